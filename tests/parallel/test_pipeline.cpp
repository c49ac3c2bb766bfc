// The interpreter on real messages: a stage with a closed form is trained and evaluated under every schedule.
#include "fake_stage.h"
#include "mpi_world.h"
#include "parallel/pipeline.h"
#include "schedule_testing.h"

#include <memory>

namespace
{

/* Groups of one pipeline over all ranks, or of one pipeline a rank. */
struct Groups {
    plait_topology topo = {};
    plait_groups g = {};
    explicit Groups(int stages)
    {
        EXPECT_EQ(plait_topology_init(&topo, test_world.size, test_world.rank, 1, stages, test_world.size / stages, 1,
                                      "tp-cp-ep-dp-pp"),
                  PLAIT_OK)
            << plait_error_text();
        EXPECT_EQ(plait_groups_create(&test_world, &topo, &g), PLAIT_OK) << plait_error_text();
    }
    Groups(const Groups &) = delete;
    Groups &operator=(const Groups &) = delete;
    ~Groups() { plait_groups_destroy(&g); }
};

/* A pipeline in arenas of exactly the planned size. */
struct Trainer {
    FakeStage stage;
    plait_exec ex = {};
    plait_ledger ledger = {};
    plait_arena *acts = nullptr, *comms = nullptr;
    plait_pipeline *pipe = nullptr;
    std::vector<const plait_schedule *> schedules;
    std::vector<int32_t> tokens;
    std::vector<plait_micro_batch> batches;
    double loss = 0;

    Trainer(const Groups &groups, std::vector<const plait_schedule *> list, int64_t rows, int64_t hidden)
        : stage(groups.topo.p, groups.topo.pp, list[0]->chunks, rows * hidden), schedules(std::move(list))
    {
        plait_pipeline_options o = {stage.handle(), groups.g.pipe_act, groups.g.pipe_grad, stage.chunks,          rows,
                                    hidden,         PLAIT_FP32,        schedules.data(),   int(schedules.size()), &ex};
        plait_arena *counting[2];
        EXPECT_EQ(plait_arena_create_counting(PLAIT_TIER_DEVICE, PLAIT_MEM_ACT, &counting[0]), PLAIT_OK);
        EXPECT_EQ(plait_arena_create_counting(PLAIT_TIER_DEVICE, PLAIT_MEM_COMM, &counting[1]), PLAIT_OK);
        EXPECT_EQ(plait_pipeline_create(&o, counting[0], counting[1], &pipe), PLAIT_OK) << plait_error_text();
        plait_pipeline_destroy(pipe);
        pipe = nullptr;
        EXPECT_EQ(plait_arena_create(plait_host_allocator(), &ledger, PLAIT_TIER_DEVICE, PLAIT_MEM_ACT,
                                     plait_arena_high_water(counting[0]), &acts),
                  PLAIT_OK);
        EXPECT_EQ(plait_arena_create(plait_host_allocator(), &ledger, PLAIT_TIER_DEVICE, PLAIT_MEM_COMM,
                                     plait_arena_high_water(counting[1]), &comms),
                  PLAIT_OK);
        EXPECT_EQ(plait_pipeline_create(&o, acts, comms, &pipe), PLAIT_OK) << plait_error_text();
        EXPECT_EQ(plait_arena_high_water(acts), plait_arena_high_water(counting[0]));
        EXPECT_EQ(plait_arena_high_water(comms), plait_arena_high_water(counting[1]));
        plait_arena_destroy(counting[0]);
        plait_arena_destroy(counting[1]);
    }
    Trainer(const Trainer &) = delete;
    Trainer &operator=(const Trainer &) = delete;
    ~Trainer()
    {
        plait_pipeline_destroy(pipe);
        plait_arena_destroy(acts);
        plait_arena_destroy(comms);
    }

    plait_pipeline_step step_of(const plait_schedule *s, plait_mode mode, uint32_t step)
    {
        tokens.assign(size_t(s->micros), 0);
        batches.clear();
        for (int m = 0; m < s->micros; m++) {
            tokens[size_t(m)] = int32_t(step) + 7 * m;
            batches.push_back({&tokens[size_t(m)], nullptr, uint32_t(m)});
        }
        loss = 0;
        stage.calls.clear();
        std::fill(stage.da.begin(), stage.da.end(), 0.0);
        std::fill(stage.db.begin(), stage.db.end(), 0.0);
        return {s, mode, step, 2.0, &loss, batches.data(), nullptr, 0, nullptr, nullptr};
    }

    /* Runs a step and compares all that it leaves behind with the closed form. */
    void check(const plait_schedule *s, plait_mode mode, uint32_t step)
    {
        SCOPED_TRACE("step " + std::to_string(step));
        plait_pipeline_step what = step_of(s, mode, step);
        plait_status st = plait_pipeline_run(pipe, &what);
        EXPECT_EQ(st, PLAIT_OK) << plait_error_text() << "\n" << plait_error_trace_text();
        EXPECT_EQ(stage.calls, computes_of(*s));
        EXPECT_EQ(plait_pipeline_in_flight(pipe), s->max_in_flight);

        std::pair<double, double> last_line = FakeStage::input_line(stage.last() + 1);
        double want_loss = 0;
        std::vector<double> want_da(size_t(stage.chunks)), want_db(size_t(stage.chunks));
        for (int m = 0; m < s->micros; m++)
            for (int64_t i = 0; i < stage.count; i++) {
                double in = FakeStage::token_value(batches[size_t(m)], i), w = FakeStage::weight(m, i);
                want_loss += w * (last_line.first * in + last_line.second);
                for (int c = 0; c < stage.chunks; c++) {
                    int k = stage.virtual_stage(c);
                    std::pair<double, double> line = FakeStage::input_line(k);
                    double d = w * 2.0 * stage.tail_slope(k);
                    want_da[size_t(c)] += d * (line.first * in + line.second);
                    want_db[size_t(c)] += d;
                }
            }
        EXPECT_EQ(loss, stage.stage == stage.stages - 1 ? want_loss : 0.0);
        if (mode != PLAIT_MODE_TRAIN) {
            want_da.assign(size_t(stage.chunks), 0.0);
            want_db.assign(size_t(stage.chunks), 0.0);
        }
        EXPECT_EQ(stage.da, want_da);
        EXPECT_EQ(stage.db, want_db);
    }

    static std::string computes_of(const plait_schedule &s)
    {
        std::string all;
        char text[32];
        for (int i = 0; i < s.num_acts; i++)
            if (plait_act_role(s.acts[i]) == PLAIT_ROLE_COMPUTE)
                all += (all.empty() ? "" : " ") + std::string(plait_act_text(&s, s.acts[i], text));
        return all;
    }
};

/* Training, evaluation with another number of micro-batches in the same buffers, and training again with one more. */
void train_and_evaluate(const Groups &groups, const Shape &g, int64_t rows, int64_t hidden)
{
    SCOPED_TRACE(text_of(g));
    Pipeline train, more, eval;
    train.generate(g.kind, g.stages, g.chunks, g.micros);
    more.generate(g.kind, g.stages, g.chunks, g.micros + 1);
    eval.generate(Kind::kForward, g.stages, g.chunks, g.micros + 2);
    size_t stage = size_t(groups.topo.p);
    Trainer run(groups, {&eval.stages[stage], &train.stages[stage], &more.stages[stage]}, rows, hidden);
    run.check(&train.stages[stage], PLAIT_MODE_TRAIN, 1);
    run.check(&eval.stages[stage], PLAIT_MODE_EVAL, 2);
    run.check(&more.stages[stage], PLAIT_MODE_TRAIN, 3);
}

TEST(Pipeline, EveryScheduleComputesTheClosedForm)
{
    Groups groups(test_world.size);
    for (int micros = 1; micros <= 7; micros++) {
        train_and_evaluate(groups, {Kind::kGpipe, test_world.size, 1, micros}, 1, 3);
        train_and_evaluate(groups, {Kind::k1F1B, test_world.size, 1, micros}, 1, 3);
        for (int chunks = 1; chunks <= 3; chunks++)
            train_and_evaluate(groups, {Kind::kInterleaved, test_world.size, chunks, micros}, 1, 3);
    }
}

/* Far above what MPI sends without a receiver: a wrong posting order cannot be hidden by its buffers. */
TEST(Pipeline, MessagesOfFourMebibytes)
{
    Groups groups(test_world.size);
    for (const Shape &g : {Shape{Kind::k1F1B, test_world.size, 1, 3}, Shape{Kind::kGpipe, test_world.size, 1, 3},
                           Shape{Kind::kInterleaved, test_world.size, 2, 3}})
        train_and_evaluate(groups, g, 1024, 1024);
}

TEST(Pipeline, ASingleStageNeedsNoMessages)
{
    Groups groups(1);
    train_and_evaluate(groups, {Kind::k1F1B, 1, 1, 3}, 1, 3);
    train_and_evaluate(groups, {Kind::kGpipe, 1, 1, 3}, 1, 3);
    train_and_evaluate(groups, {Kind::kInterleaved, 1, 3, 3}, 1, 3); /* chunk to chunk by copy */
}

TEST(Pipeline, LogitsOfOneMicroBatch)
{
    Groups groups(test_world.size);
    Pipeline p;
    p.generate(Kind::kForward, test_world.size, 1, 1);
    const plait_schedule *s = &p.stages[size_t(groups.topo.p)];
    Trainer run(groups, {s}, 1, 5);
    std::vector<float> logits(5, -1.0f);
    plait_pipeline_step step = run.step_of(s, PLAIT_MODE_LOGITS, 4);
    step.loss = nullptr;
    step.logits = logits.data();
    ASSERT_EQ(plait_pipeline_run(run.pipe, &step), PLAIT_OK) << plait_error_text();
    std::pair<double, double> line = FakeStage::input_line(test_world.size);
    for (int i = 0; i < 5; i++)
        EXPECT_EQ(logits[size_t(i)], groups.topo.p == test_world.size - 1
                                         ? float(line.first * FakeStage::token_value(run.batches[0], i) + line.second)
                                         : -1.0f);
}

/* Forward-only schedules reuse what training has; a pipeline of both is no larger than of the larger. */
TEST(Pipeline, TheBuffersAreThoseOfTheSchedule)
{
    Groups groups(test_world.size);
    Pipeline train, eval;
    train.generate(Kind::k1F1B, test_world.size, 1, 7);
    eval.generate(Kind::kForward, test_world.size, 1, 9);
    const plait_schedule *t = &train.stages[size_t(groups.topo.p)], *e = &eval.stages[size_t(groups.topo.p)];
    Trainer both(groups, {t, e}, 1, 64), alone(groups, {t}, 1, 64);
    EXPECT_EQ(plait_arena_high_water(both.acts), plait_arena_high_water(alone.acts));
    EXPECT_EQ(plait_arena_high_water(both.comms), plait_arena_high_water(alone.comms));
    EXPECT_EQ(both.stage.slots.size(), size_t(t->max_in_flight));

    size_t message = 64 * sizeof(float), slot = 64 + both.stage.slot_elements(0) * sizeof(int32_t);
    slot = (slot + 63) / 64 * 64;
    bool first = groups.topo.p == 0, last = groups.topo.p == groups.topo.pp - 1;
    std::vector<int> slots(7);
    size_t x = size_t(plait_schedule_colour(t, PLAIT_SEG_X, slots.data()));
    size_t dy = size_t(plait_schedule_colour(t, PLAIT_SEG_DY, slots.data()));
    EXPECT_EQ(plait_arena_high_water(both.acts), x * message + size_t(t->max_in_flight) * slot);
    EXPECT_EQ(plait_arena_high_water(both.comms), (dy + (last ? 0u : 2u) + (first ? 0u : 2u)) * message);
}

TEST(Pipeline, AFailureSaysStepAndMicroBatch)
{
    Groups groups(1);
    Pipeline p;
    p.generate(Kind::k1F1B, 1, 1, 5);
    Trainer run(groups, {&p.stages[0]}, 1, 3);
    run.stage.fail_at = "B3";
    plait_pipeline_step step = run.step_of(&p.stages[0], PLAIT_MODE_TRAIN, 12);
    EXPECT_EQ(plait_pipeline_run(run.pipe, &step), PLAIT_NUMERIC);
    EXPECT_STREQ(plait_error_text(), "step 12 micro-batch 3: no luck in B3");
    EXPECT_EQ(run.stage.calls, "F0 B0 F1 B1 F2 B2 F3 B3");
}

TEST(Pipeline, WhatDoesNotFitIsRefused)
{
    Groups groups(1);
    Pipeline p, q, two;
    p.generate(Kind::k1F1B, 1, 1, 2);
    q.generate(Kind::kForward, 1, 1, 2);
    two.generate(Kind::k1F1B, 2, 1, 2);
    Trainer run(groups, {&p.stages[0], &q.stages[0]}, 1, 3);
    plait_schedule stranger = p.stages[0];
    plait_pipeline_step step = run.step_of(&stranger, PLAIT_MODE_TRAIN, 1);
    EXPECT_EQ(plait_pipeline_run(run.pipe, &step), PLAIT_INTERNAL);
    EXPECT_STREQ(plait_error_text(), "the schedule of step 1 is not one of the 2 given to the pipeline");
    step.schedule = &q.stages[0];
    EXPECT_EQ(plait_pipeline_run(run.pipe, &step), PLAIT_INTERNAL);
    EXPECT_STREQ(plait_error_text(), "step 1: a schedule without backward, but mode 0");
    step.mode = PLAIT_MODE_LOGITS;
    EXPECT_EQ(plait_pipeline_run(run.pipe, &step), PLAIT_INTERNAL);
    EXPECT_STREQ(plait_error_text(), "step 1: logits of 2 micro-batches; there is a place for 0");
    step.mode = PLAIT_MODE_EVAL;
    step.loss = nullptr;
    EXPECT_EQ(plait_pipeline_run(run.pipe, &step), PLAIT_INTERNAL);
    EXPECT_STREQ(plait_error_text(), "step 1: the last stage has no place for the loss");
    EXPECT_EQ(run.stage.calls, "");

    const plait_schedule *wrong[] = {&two.stages[1]};
    plait_pipeline_options o = {
        run.stage.handle(), groups.g.pipe_act, groups.g.pipe_grad, 1, 1, 3, PLAIT_FP32, wrong, 1, &run.ex};
    plait_pipeline *pipe = nullptr;
    EXPECT_EQ(plait_pipeline_create(&o, run.acts, run.comms, &pipe), PLAIT_INTERNAL);
    EXPECT_STREQ(plait_error_text(),
                 "a schedule of stage 1 of 2 with 1 chunks was given to the pipeline of stage 0 of 1 with 1");
    o.schedules = run.schedules.data();
    EXPECT_EQ(plait_pipeline_create(&o, run.acts, run.comms, &pipe), PLAIT_OUT_OF_MEMORY); /* the arena is full */
}

} // namespace
