#include "parallel/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

struct LrCase {
    const char *name;
    plait_lr_schedule s;
    int64_t step;
    double want;
};
class LrSchedule : public testing::TestWithParam<LrCase>
{
};
void PrintTo(const LrCase &c, std::ostream *os)
{
    *os << c.name;
}

TEST_P(LrSchedule, Rate)
{
    const LrCase &c = GetParam();
    EXPECT_NEAR(plait_lr_at(&c.s, c.step), c.want, 1e-15);
}

const plait_lr_schedule kCosine = {PLAIT_LR_COSINE, 1e-3, 0, 10, 100, 0};
const plait_lr_schedule kCosine190 = {PLAIT_LR_COSINE, 1e-3, 0, 10, 190, 0};
const plait_lr_schedule kLinear = {PLAIT_LR_LINEAR, 1e-3, 1e-4, 10, 100, 0};
const plait_lr_schedule kConstant = {PLAIT_LR_CONSTANT, 1e-3, 1e-4, 10, 100, 0};
const plait_lr_schedule kWsd = {PLAIT_LR_WSD, 1e-3, 1e-4, 10, 100, 20};
const plait_lr_schedule kWsdNoDecay = {PLAIT_LR_WSD, 1e-3, 1e-4, 0, 100, 0};
const plait_lr_schedule kAllWarmup = {PLAIT_LR_COSINE, 1e-3, 1e-5, 100, 100, 0};
const plait_lr_schedule kNoWarmup = {PLAIT_LR_COSINE, 1e-3, 0, 0, 100, 0};
const LrCase kLrCases[] = {
    {"warmup_counts_from_one", kCosine, 1, 1e-4},
    {"warmup_end", kCosine, 10, 1e-3},
    {"cosine_half_way", kCosine, 55, 5e-4},
    {"cosine_of_another_length", kCosine190, 55, 8.535533905932738e-4},
    {"cosine_end", kCosine, 100, 0},
    {"cosine_after", kCosine, 101, 0},
    {"no_warmup_first", kNoWarmup, 1, 5e-4 * (1 + std::cos(std::acos(-1.0) / 100))},
    {"linear_half_way", kLinear, 55, 5.5e-4},
    {"linear_end", kLinear, 100, 1e-4},
    {"linear_after", kLinear, 1000000, 1e-4},
    {"constant_warmup", kConstant, 5, 5e-4},
    {"constant_for_ever", kConstant, 1000000, 1e-3},
    {"wsd_stable", kWsd, 80, 1e-3},
    {"wsd_half_decayed", kWsd, 90, 1e-4 + (std::sqrt(2.0) - 1) * 9e-4},
    {"wsd_end", kWsd, 100, 1e-4},
    {"wsd_after", kWsd, 101, 1e-4},
    {"wsd_without_decay", kWsdNoDecay, 100, 1e-3},
    {"only_warmup", kAllWarmup, 100, 1e-3},
    {"only_warmup_after", kAllWarmup, 101, 1e-5},
};
INSTANTIATE_TEST_SUITE_P(, LrSchedule, testing::ValuesIn(kLrCases),
                         [](const auto &i) { return std::string(i.param.name); });

TEST(BatchRamp, GrowsInEqualPartsOfTheSamples)
{
    const plait_batch_ramp r = plait_batch_ramp_make(8, 8, 120, 32);
    struct {
        int64_t consumed, want;
    } const rows[] = {
        {0, 8}, {39, 8}, {40, 16}, {79, 16}, {80, 24}, {119, 24}, {120, 32}, {121, 32}, {int64_t{1} << 62, 32}};
    for (const auto &row : rows)
        EXPECT_EQ(plait_batch_size_at(&r, row.consumed), row.want) << row.consumed;
    EXPECT_EQ(plait_num_micro_batches(24, 2, 2), 6);
}

TEST(BatchRamp, NoneAndEndlessOnesAreExact)
{
    plait_batch_ramp r = plait_batch_ramp_make(0, 0, 0, 48);
    EXPECT_EQ(plait_batch_size_at(&r, 0), 48);
    r = plait_batch_ramp_make(1, 1, INT64_MAX, 1025);
    EXPECT_EQ(plait_batch_size_at(&r, INT64_MAX - 1), 1024);
    EXPECT_EQ(plait_batch_size_at(&r, INT64_MAX / 1024), 1); // 1024 does not divide 2^63 - 1: just below the first rise
    EXPECT_EQ(plait_batch_size_at(&r, INT64_MAX / 1024 + 1), 2);
}
