#include "parallel/loss_scaler.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace
{

// Dynamic, from `scale` down to `min`.
plait_loss_scaler scaler(int64_t power, int64_t window, int64_t hysteresis, double min)
{
    plait_config cfg = {};
    cfg.precision.dtype = PLAIT_FP16;
    cfg.precision.initial_scale_power = power;
    cfg.precision.loss_scale_window = window;
    cfg.precision.hysteresis = hysteresis;
    cfg.precision.min_loss_scale = min;
    return plait_loss_scaler_of(&cfg);
}

} // namespace

struct ScaleCase {
    const char *name;
    int64_t power, window, hysteresis;
    double min;
    const char *steps; // '.': finite, 'X': an overflow
    std::vector<double> want;
};
class LossScaler : public testing::TestWithParam<ScaleCase>
{
};
void PrintTo(const ScaleCase &c, std::ostream *os)
{
    *os << c.name;
}

TEST_P(LossScaler, FollowsTheGoldenSequence)
{
    const ScaleCase &c = GetParam();
    plait_loss_scaler s = scaler(c.power, c.window, c.hysteresis, c.min);
    std::vector<double> got;
    int64_t overflows = 0;
    for (const char *p = c.steps; *p; p++) {
        ASSERT_EQ(plait_loss_scaler_update(&s, *p == 'X'), PLAIT_OK) << plait_error_text();
        got.push_back(s.scale);
        overflows += *p == 'X';
    }
    EXPECT_EQ(got, c.want);
    EXPECT_EQ(s.skipped, overflows);
}
// Recorded by hand from Megatron-LM's DynamicGradScaler.update.
const ScaleCase kScaleCases[] = {
    {"halves_each_time_without_hysteresis", 4, 1000, 1, 1, "XXX", {8, 4, 2}},
    {"the_first_overflow_is_forgiven", 4, 1000, 2, 1, "XX", {16, 8}},
    {"used_up_tolerance_stays_used_up", 4, 1000, 2, 1, "XXX.X", {16, 8, 4, 4, 2}},
    {"a_good_step_does_not_refill", 4, 1000, 2, 1, "X.X", {16, 16, 8}},
    {"growth_refills", 4, 2, 2, 1, "XX..XX", {16, 8, 8, 16, 16, 8}},
    {"an_overflow_restarts_the_window", 4, 3, 2, 1, "..X...", {16, 16, 16, 16, 16, 32}},
    {"grows_each_window", 0, 1, 2, 1, "...", {2, 4, 8}},
    {"not_below_the_minimum", 2, 1000, 1, 2, "XXX", {2, 2, 2}},
    {"a_minimum_between_powers", 3, 1000, 1, 3, "XXX", {4, 3, 3}},
};
INSTANTIATE_TEST_SUITE_P(, LossScaler, testing::ValuesIn(kScaleCases),
                         [](const auto &i) { return std::string(i.param.name); });

TEST(LossScalerEnd, StuckAtTheMinimumIsAnError)
{
    plait_loss_scaler s = scaler(1, 1000, 1, 1);
    ASSERT_EQ(plait_loss_scaler_update(&s, true), PLAIT_OK); // 2 to 1
    for (int i = 1; i < PLAIT_LOSS_SCALE_MAX_OVERFLOWS; i++)
        ASSERT_EQ(plait_loss_scaler_update(&s, true), PLAIT_OK) << i;
    ASSERT_EQ(plait_loss_scaler_update(&s, false), PLAIT_OK); // a good step starts the count again
    for (int i = 1; i < PLAIT_LOSS_SCALE_MAX_OVERFLOWS; i++)
        ASSERT_EQ(plait_loss_scaler_update(&s, true), PLAIT_OK) << i;
    EXPECT_EQ(plait_loss_scaler_update(&s, true), PLAIT_NUMERIC);
    EXPECT_NE(std::string(plait_error_text()).find("20 steps in a row"), std::string::npos) << plait_error_text();
    EXPECT_NE(std::string(plait_error_text()).find("minimum 1"), std::string::npos) << plait_error_text();
}

TEST(LossScalerEnd, AFixedScaleNeverMovesAndEndsTheRunToo)
{
    plait_config cfg = {};
    cfg.precision.dtype = PLAIT_FP16;
    cfg.precision.loss_scale = 128;
    cfg.precision.min_loss_scale = 1;
    plait_loss_scaler s = plait_loss_scaler_of(&cfg);
    for (int i = 1; i < PLAIT_LOSS_SCALE_MAX_OVERFLOWS; i++)
        ASSERT_EQ(plait_loss_scaler_update(&s, true), PLAIT_OK);
    EXPECT_EQ(s.scale, 128);
    EXPECT_EQ(plait_loss_scaler_update(&s, true), PLAIT_NUMERIC);
    EXPECT_NE(std::string(plait_error_text()).find("fixed loss scale 128"), std::string::npos) << plait_error_text();
}

TEST(LossScalerEnd, OtherTypesAreNotScaledAndGrowthIsBounded)
{
    plait_config cfg = {};
    cfg.precision.dtype = PLAIT_BF16;
    cfg.precision.initial_scale_power = 16;
    EXPECT_EQ(plait_loss_scaler_of(&cfg).scale, 1);
    plait_loss_scaler s = scaler(16, 1, 1, 1);
    for (int i = 0; i < 2000; i++)
        ASSERT_EQ(plait_loss_scaler_update(&s, false), PLAIT_OK);
    EXPECT_EQ(s.scale, 0x1p120);
}
