#include "../core/printed.h"
#include "schedule_testing.h"

struct Case {
    const char *name;
    Kind kind;
    int stage, stages, chunks, micro, in_flight;
    const char *want;
};

class Schedule : public testing::TestWithParam<Case>
{
};

TEST_P(Schedule, ListsTheStep)
{
    const Case &c = GetParam();
    Pipeline p;
    p.generate(c.kind, c.stages, c.chunks, c.micro);
    const plait_schedule &s = p.stages[size_t(c.stage)];
    EXPECT_EQ(text_of(s), c.want);
    EXPECT_EQ(s.max_in_flight, c.in_flight);
}

const Case kCases[] = {
    {"single_stage", Kind::k1F1B, 0, 1, 1, 2, 1, "F0 B0 F1 B1"},
    {"first_of_two", Kind::k1F1B, 0, 2, 1, 3, 2, "F0 sy0 F1 sy1 ry0 B0 ry1 F2 sy2 B1 ry2 B2"},
    {"last_of_two", Kind::k1F1B, 1, 2, 1, 2, 1, "rx0 F0 rx1 B0 sx0 F1 B1 sx1"},
    {"fewer_than_deep", Kind::k1F1B, 0, 4, 1, 1, 1, "F0 sy0 ry0 B0"},
    {"middle_of_three", Kind::k1F1B, 1, 3, 1, 3, 2,
     "rx0 F0 sy0 rx1 F1 sy1 rx2 ry0 B0 sx0 ry1 F2 sy2 B1 sx1 ry2 B2 sx2"},
    {"gpipe_last_of_two", Kind::kGpipe, 1, 2, 1, 2, 2, "rx0 F0 rx1 F1 B0 sx0 B1 sx1"},
    {"gpipe_single_stage", Kind::kGpipe, 0, 1, 1, 2, 2, "F0 F1 B0 B1"},
    {"forward_middle", Kind::kForward, 1, 3, 1, 2, 1, "rx0 F0 sy0 rx1 F1 sy1"},
    {"forward_two_chunks", Kind::kForward, 0, 2, 2, 2, 1, "F0.0 sy0.0 F0.1 sy0.1 rx1.0 F1.0 sy1.0 rx1.1 F1.1 sy1.1"},
    /* Last of two, two chunks: warm-up of 2 (2 - 1 - 1) + (2 - 1) 2 = 2 forwards. */
    {"interleaved_last", Kind::kInterleaved, 1, 2, 2, 2, 3,
     "rx0.0 F0.0 sy0.0 rx0.1 F0.1 sy0.1 rx1.0 F1.0 rx1.1 B1.0 sx1.0 F1.1 B1.1 sx1.1 ry0.0 B0.0 sx0.0 ry0.1 B0.1 "
     "sx0.1"},
    /* Made for 2 micro-batches, then those of micro-batch 1 are left out. */
    {"interleaved_odd", Kind::kInterleaved, 1, 2, 2, 1, 2, "rx0.0 F0.0 sy0.0 rx1.0 F1.0 B1.0 sx1.0 ry0.0 B0.0 sx0.0"},
};
INSTANTIATE_TEST_SUITE_P(, Schedule, testing::ValuesIn(kCases),
                         [](const auto &i) { return std::string(i.param.name); });

struct BadCase {
    const char *name;
    plait_pipe_schedule kind;
    int stage, stages, chunks, micro;
    const char *want;
};

class BadSchedule : public testing::TestWithParam<BadCase>
{
};

TEST_P(BadSchedule, IsRefusedWithTheNumbers)
{
    const BadCase &c = GetParam();
    plait_schedule s;
    EXPECT_EQ(plait_schedule_init(&s, c.kind, c.stage, c.stages, c.chunks, c.micro), PLAIT_USAGE);
    EXPECT_STREQ(plait_error_text(), c.want);
    plait_schedule_deinit(&s);
}

const BadCase kBadCases[] = {
    {"no_such_stage", PLAIT_PIPE_1F1B, 2, 2, 1, 1, "pipeline stage 2 of 2 stages does not exist"},
    {"no_micro_batch", PLAIT_PIPE_1F1B, 0, 2, 1, 0, "a pipeline schedule needs at least 1 micro-batch, not 0"},
    {"too_many_chunks", PLAIT_PIPE_INTERLEAVED, 0, 2, 513, 1,
     "513 model chunks on each of 2 pipeline stages: between 1 and 1024 virtual stages are possible"},
    {"too_many_micro_batches", PLAIT_PIPE_GPIPE, 0, 2, 1, 2000000000,
     "2000000000 micro-batches through 1 chunks are too many for one pipeline step"},
    {"chunks_need_interleaving", PLAIT_PIPE_1F1B, 0, 2, 2, 1, "2 model chunks a stage need the interleaved schedule"},
    {"unresolved", PLAIT_PIPE_AUTO, 0, 2, 1, 1, "pipeline schedule 0 is not one of gpipe, 1f1b, interleaved"},
};
INSTANTIATE_TEST_SUITE_P(, BadSchedule, testing::ValuesIn(kBadCases),
                         [](const auto &i) { return std::string(i.param.name); });

TEST(ScheduleText, IsCutAtTheSizeOfTheBuffer)
{
    Pipeline p;
    p.generate(Kind::k1F1B, 1, 1, 2);
    char buf[8];
    plait_schedule_text(&p.stages[0], buf, sizeof buf);
    EXPECT_STREQ(buf, "F0 B0 F");
    plait_schedule_text(&p.stages[0], buf, 1);
    EXPECT_STREQ(buf, "");
}

static std::string drawing(const Pipeline &p, int max_width)
{
    return printed([&](FILE *out) {
        EXPECT_EQ(plait_schedule_draw(p.stages.data(), int(p.stages.size()), out, max_width), PLAIT_OK)
            << plait_error_text();
    });
}

TEST(ScheduleDraw, OneF1B)
{
    Pipeline p;
    p.generate(Kind::k1F1B, 2, 1, 3);
    EXPECT_EQ(drawing(p, 120), "stage   0 01..aa2bb.cc\n"
                               "stage   1 .0aa1bb2cc..\n");
}

TEST(ScheduleDraw, ALongStepKeepsItsEnds)
{
    Pipeline p;
    p.generate(Kind::kGpipe, 1, 1, 12);
    EXPECT_EQ(drawing(p, 120), "stage   0 012345678901aabbccddeeffgghhiijjkkll\n");
    EXPECT_EQ(drawing(p, 30), "stage   0 012345678 ~ iijjkkll\n");
    EXPECT_EQ(drawing(p, 0), "stage   0 0123 ~ kll\n");
}
