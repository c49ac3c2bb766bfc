// Numbers with a fixed point: rounding, limits, squares in limbs.
#include "core/fixed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace
{

int64_t fixed(double x)
{
    int64_t k = -1;
    EXPECT_TRUE(plait_fixed_from(x, PLAIT_FIXED_LIMIT, &k)) << x;
    return k;
}

} // namespace

TEST(Fixed, RoundsToTheNearestAndTiesToEven)
{
    EXPECT_EQ(fixed(0), 0);
    EXPECT_EQ(fixed(1), INT64_C(1) << 43);
    EXPECT_EQ(fixed(-1.5), -(INT64_C(3) << 42));
    EXPECT_EQ(fixed(0x1p-44), 0);
    EXPECT_EQ(fixed(0x1.8p-43), 2);
    EXPECT_EQ(fixed(-0x1.8p-43), -2);
    EXPECT_EQ(fixed(0x1.4p-41), 5);
    EXPECT_EQ(fixed(std::nextafter(256.0, 0.0)), INT64_C(1) << 51);
    EXPECT_EQ(fixed(1e-30), 0);
}

TEST(Fixed, WhatIsNotBelowTheLimitIsSaid)
{
    const double inf = std::numeric_limits<double>::infinity();
    for (double x : {256.0, -256.0, 1e30, inf, -inf, std::nan("")}) {
        int64_t k = -1;
        EXPECT_FALSE(plait_fixed_from(x, PLAIT_FIXED_LIMIT, &k)) << x;
        EXPECT_EQ(k, 0) << x;
    }
    int64_t k;
    EXPECT_TRUE(plait_fixed_from(15.5, 16, &k));
    EXPECT_FALSE(plait_fixed_from(16, 16, &k));
}

// All terms at the limit, all of one sign.
TEST(Fixed, AsManyTermsAsTheLimitIsForFit)
{
    for (int64_t n : {INT64_C(1), INT64_C(4096), INT64_C(4097), INT64_C(100000), INT64_C(1) << 40}) {
        const double limit = plait_fixed_limit(n);
        EXPECT_LE(limit, PLAIT_FIXED_LIMIT);
        EXPECT_LE(limit * (double)n * PLAIT_FIXED_ONE, 0x1p63) << n;
        EXPECT_EQ(std::log2(limit), std::floor(std::log2(limit))) << n;
    }
    EXPECT_EQ(plait_fixed_limit(4096), PLAIT_FIXED_LIMIT);
    EXPECT_EQ(plait_fixed_limit(4097), PLAIT_FIXED_LIMIT / 2);
}

TEST(Fixed, ReadsAsTheNearestFloat)
{
    EXPECT_EQ(plait_fixed_to_float(3), 0x1.8p-42F);
    EXPECT_EQ(plait_fixed_to_float(-(INT64_C(1) << 43)), -1.0F);
    const int64_t wide = (INT64_C(1) << 24) + 1; // 25 bits: a tie
    EXPECT_EQ(plait_fixed_to_float(wide), 0x1p-19F);
}

TEST(Fixed, SquaresAddOverRanksInLimbs)
{
    std::vector<plait_fixed_squares> given;
    plait_fixed_squares all = 0;
    double value = 0;
    int64_t sum[4] = {};
    for (int rank = 0; rank < 1000; rank++) {
        const auto k = static_cast<plait_fixed_squares>((INT64_C(1) << 54) - rank * INT64_C(7919));
        given.push_back(k * k);
        all += given.back();
        value += std::pow(static_cast<double>(k) * 0x1p-43, 2);
    }
    for (plait_fixed_squares s : given) {
        int64_t limb[4];
        plait_fixed_squares_split(s, limb);
        for (int i = 0; i < 4; i++)
            sum[i] += limb[i];
    }
    plait_fixed_squares joined;
    EXPECT_TRUE(plait_fixed_squares_join(sum, &joined));
    EXPECT_TRUE(joined == all);
    EXPECT_NEAR(plait_fixed_squares_value(joined), value, 1e-12 * value);
}

TEST(Fixed, SquaresThatLeaveTheirRangeAreSaid)
{
    const plait_fixed_squares most = static_cast<plait_fixed_squares>(1) << 126;
    EXPECT_TRUE(plait_fixed_squares_fit(most - 1));
    EXPECT_FALSE(plait_fixed_squares_fit(most));
    int64_t limb[4], sum[4] = {};
    plait_fixed_squares_split(most - 1, limb);
    plait_fixed_squares joined;
    EXPECT_TRUE(plait_fixed_squares_join(limb, &joined));
    EXPECT_TRUE(joined == most - 1);
    for (int ranks = 2; ranks <= 16; ranks *= 2) { // 4 and more leave 128 bits too
        for (int i = 0; i < 4; i++)
            sum[i] = ranks * limb[i];
        EXPECT_FALSE(plait_fixed_squares_join(sum, &joined)) << ranks;
    }
}
