#include "schedule_testing.h"

/* ---- lists that hold ---- */

static plait_pipe_schedule kind_of(Kind k)
{
    return k == Kind::kGpipe ? PLAIT_PIPE_GPIPE : k == Kind::k1F1B ? PLAIT_PIPE_1F1B : PLAIT_PIPE_INTERLEAVED;
}

/* Generates the lists of all stages and runs them with forwards of time 1. */
static void simulate(const Shape &g, double backward, bool in_order, Pipeline *p, plait_simulation *sim)
{
    p->generate(g.kind, g.stages, g.chunks, g.micros);
    *sim = {};
    sim->forward_time = 1;
    sim->backward_time = backward;
    sim->in_order = in_order;
    ASSERT_EQ(plait_schedule_simulate(p->stages.data(), g.stages, sim), PLAIT_OK) << plait_error_text();
}

TEST(ScheduleGrid, NoDeadlockAndTheInFlightCountOfTheFormula)
{
    for (const Shape &g : grid())
        for (bool in_order : {false, true}) {
            SCOPED_TRACE(text_of(g) + (in_order ? " in order" : ""));
            Pipeline p;
            plait_simulation sim;
            ASSERT_NO_FATAL_FAILURE(simulate(g, 2, in_order, &p, &sim));
            for (int i = 0; i < g.stages; i++) {
                EXPECT_EQ(sim.in_flight[i], p.stages[size_t(i)].max_in_flight) << "stage " << i;
                if (g.kind == Kind::kForward) {
                    EXPECT_EQ(sim.in_flight[i], 1);
                    continue;
                }
                int want = plait_schedule_expected_in_flight(kind_of(g.kind), i, g.stages, g.chunks, g.micros);
                if (g.chunks == 1 || g.micros % g.stages == 0)
                    EXPECT_EQ(sim.in_flight[i], want) << "stage " << i;
                else
                    EXPECT_LE(sim.in_flight[i], want) << "stage " << i;
            }
        }
}

/* Those that configs/ ship: stages, chunks, micro-batches of the published sizes. */
TEST(ScheduleSimulate, ThePublishedSizesRun)
{
    const struct {
        const char *config;
        Shape shape;
    } shipped[] = {{"gpt3-175b", {Kind::k1F1B, 16, 1, 192}},
                   {"gpt-530b", {Kind::kInterleaved, 35, 3, 280}},
                   {"gpt-1t", {Kind::k1F1B, 64, 1, 512}},
                   {"llama2-70b", {Kind::k1F1B, 4, 1, 128}}};
    for (const auto &s : shipped)
        for (bool in_order : {false, true}) {
            SCOPED_TRACE(s.config);
            const Shape &g = s.shape;
            Pipeline p;
            plait_simulation sim;
            ASSERT_NO_FATAL_FAILURE(simulate(g, 2, in_order, &p, &sim));
            for (int i = 0; i < g.stages; i++)
                EXPECT_EQ(sim.in_flight[i],
                          plait_schedule_expected_in_flight(kind_of(g.kind), i, g.stages, g.chunks, g.micros))
                    << "stage " << i;
        }
}

/* Bubble of GPipe and 1F1B: (p - 1) (tf + tb), for any number of micro-batches; interleaved with v chunks: 1 / v of it,
 * that is p - 1 forwards and backwards of one chunk (Narayanan et al. 2021, sections 2.2.1 and 2.2.2). */
TEST(ScheduleGrid, TheBubbleOfThePaper)
{
    for (const Shape &g : grid()) {
        if (g.kind == Kind::kInterleaved && g.micros % g.stages != 0)
            continue;
        for (double backward : {1.0, 2.0}) {
            SCOPED_TRACE(text_of(g));
            Pipeline p;
            plait_simulation sim;
            ASSERT_NO_FATAL_FAILURE(simulate(g, backward, false, &p, &sim));
            double one = g.kind == Kind::kForward ? 1.0 : 1.0 + backward;
            EXPECT_EQ(sim.ideal, g.micros * g.chunks * one);
            if (g.chunks == 1 || g.micros % g.stages == 0) {
                EXPECT_EQ(sim.makespan - sim.ideal, (g.stages - 1) * one);
            }
        }
    }
}

TEST(ScheduleSimulate, ADeepPipelineOfManyMicroBatches)
{
    Pipeline p;
    p.generate(Kind::kInterleaved, 64, 2, 509);
    plait_simulation sim = {};
    sim.forward_time = 1;
    sim.backward_time = 2;
    sim.in_order = true;
    EXPECT_EQ(plait_schedule_simulate(p.stages.data(), 64, &sim), PLAIT_OK) << plait_error_text();
}

/* ---- lists that do not ---- */

struct Broken {
    const char *name;
    int micro;
    std::vector<const char *> lists;
    const char *want;
};

class BrokenSchedule : public testing::TestWithParam<Broken>
{
};

TEST_P(BrokenSchedule, IsFoundAndNamed)
{
    const Broken &c = GetParam();
    for (bool in_order : {false, true}) {
        Pipeline p;
        int stages = int(c.lists.size());
        for (int i = 0; i < stages; i++)
            p.stages.push_back(parse(c.lists[size_t(i)], i, stages, 1, c.micro));
        plait_simulation sim = {};
        sim.forward_time = sim.backward_time = 1;
        sim.in_order = in_order;
        EXPECT_EQ(plait_schedule_simulate(p.stages.data(), stages, &sim), PLAIT_INTERNAL);
        EXPECT_STREQ(plait_error_text(), c.want);
    }
}

#define FIRST_OF_TWO "F0 sy0 F1 sy1 ry0 B0 ry1 B1"
#define LAST_OF_TWO  "rx0 F0 rx1 B0 sx0 F1 B1 sx1"

const Broken kBroken[] = {
    {"swapped_receives",
     2,
     {FIRST_OF_TWO, "rx1 rx0 F0 B0 sx0 F1 B1 sx1"},
     "pipeline stage 1, action 0: rx1 would receive sy0 of stage 0"},
    {"missing_receive",
     2,
     {FIRST_OF_TWO, "rx0 F0 B0 sx0 F1 B1 sx1"},
     "pipeline stage 1 of 2, action 4 (F1): what it needs has not been received"},
    {"missing_gradient_receive",
     2,
     {"F0 sy0 F1 sy1 ry0 B0 B1", LAST_OF_TWO},
     "pipeline stage 0 of 2, action 6 (B1): what it needs has not been received"},
    {"missing_send", 2, {"F0 sy0 F1 ry0 B0 ry1 B1", LAST_OF_TWO}, "pipeline stage 0 of 2: sy1 is not in the list"},
    {"missing_forward", 2, {FIRST_OF_TWO, "rx0 F0 B0 sx0"}, "pipeline stage 1 of 2: F1 is not in the list"},
    {"missing_backward", 1, {"F0"}, "pipeline stage 0 of 1: B0 is not in the list"},
    {"backward_before_forward", 1, {"B0 F0"}, "pipeline stage 0 of 1, action 0 (B0): backward before forward"},
    {"double_backward", 1, {"F0 B0 B0"}, "pipeline stage 0 of 1, action 2 (B0): it is in the list twice"},
    {"double_forward", 1, {"F0 F0 B0"}, "pipeline stage 0 of 1, action 1 (F0): it is in the list twice"},
    {"sent_before_computed",
     1,
     {"sy0 F0 ry0 B0", "rx0 F0 B0 sx0"},
     "pipeline stage 0 of 2, action 0 (sy0): sent before it is computed"},
    {"received_after_use",
     1,
     {"F0 sy0 ry0 B0", "F0 rx0 B0 sx0"},
     "pipeline stage 1 of 2, action 0 (F0): what it needs has not been received"},
    {"first_stage_receives",
     1,
     {"rx0 F0 B0"},
     "pipeline stage 0 of 1, action 0 (rx0): there is no stage to receive from"},
    {"last_stage_sends", 1, {"F0 sy0 B0"}, "pipeline stage 0 of 1, action 1 (sy0): there is no stage to send to"},
    {"output_overwritten",
     3,
     {"F0 F1 F2 sy0 sy1 sy2 ry0 B0 ry1 B1 ry2 B2", "rx0 F0 B0 sx0 rx1 F1 B1 sx1 rx2 F2 B2 sx2"},
     "pipeline stage 0 of 2, action 2 (F2): it overwrites an output that has not been sent"},
    {"no_such_micro_batch",
     1,
     {"F0 B0 F1"},
     "pipeline stage 0, action 2: kind 1 of chunk 0 (of 1), micro-batch 1 (of 1)"},
    /* Stage 0 wants the gradient of 0 before it makes 1, stage 1 wants 1 before it makes the gradient of 0. */
    {"cyclic_wait",
     2,
     {"F0 sy0 ry0 B0 F1 sy1 ry1 B1", "rx0 F0 rx1 F1 B0 sx0 B1 sx1"},
     "pipeline stage 0, action 3: B0 waits for ry0, and no stage can move"},
    {"wrong_order",
     2,
     {FIRST_OF_TWO, "rx0 F0 rx1 F1 B1 sx1 B0 sx0"},
     "pipeline stage 0, action 4: ry0 would receive sx1 of stage 1"},
};
INSTANTIATE_TEST_SUITE_P(, BrokenSchedule, testing::ValuesIn(kBroken),
                         [](const auto &i) { return std::string(i.param.name); });

/* Receives right before their use, instead of together with the send before: two neighbours wait for each other as soon
 * as sends are in order with receives. The proof has to see that. */
TEST(ScheduleSimulate, NaivePostingHangsWhereGroupsAreInOrder)
{
    int hung = 0, cases = 0;
    for (int stages = 2; stages <= 6; stages++)
        for (int groups = 1; groups <= 3; groups++, cases++) {
            Pipeline p;
            p.generate(Kind::kInterleaved, stages, 2, stages * groups);
            for (auto &s : p.stages) {
                std::vector<plait_act> naive;
                for (int i = 0; i < s.num_acts; i++) {
                    plait_act a = s.acts[i];
                    if (plait_act_role(a) == PLAIT_ROLE_RECV)
                        continue;
                    if (plait_act_role(a) == PLAIT_ROLE_COMPUTE &&
                        plait_schedule_receives(&s, plait_act_dir(a), a.chunk))
                        naive.push_back({plait_act_kind_of(plait_act_dir(a), PLAIT_ROLE_RECV), a.chunk, a.micro});
                    naive.push_back(a);
                }
                ASSERT_EQ(naive.size(), size_t(s.num_acts));
                std::copy(naive.begin(), naive.end(), s.acts);
            }
            plait_simulation sim = {};
            sim.forward_time = sim.backward_time = 1;
            sim.in_order = true;
            hung += plait_schedule_simulate(p.stages.data(), stages, &sim) != PLAIT_OK;
        }
    EXPECT_GT(hung, 0) << "of " << cases;
}

TEST(ScheduleSimulate, SchedulesOfDifferentSizesAreRefused)
{
    Pipeline p, q;
    p.generate(Kind::k1F1B, 2, 1, 3);
    q.generate(Kind::k1F1B, 2, 1, 4);
    plait_schedule mixed[2] = {p.stages[0], q.stages[1]};
    plait_simulation sim = {};
    EXPECT_EQ(plait_schedule_simulate(mixed, 2, &sim), PLAIT_INTERNAL);
    EXPECT_NE(std::string(plait_error_text()).find("4 micro-batches"), std::string::npos);
    EXPECT_EQ(plait_schedule_simulate(mixed, 0, &sim), PLAIT_INTERNAL);
}
