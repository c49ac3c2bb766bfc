#include "core/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

// The published vectors of Philox 4x32-10 (Random123, kat_vectors).
TEST(Philox, PublishedVectors)
{
    struct {
        uint32_t counter[4], key[2], want[4];
    } const rows[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (const auto &r : rows) {
        uint32_t got[4];
        plait_philox4x32(r.counter, r.key, got);
        for (int i = 0; i < 4; i++)
            EXPECT_EQ(got[i], r.want[i]) << i;
    }
}

TEST(Rng, NormalHasMeanZeroAndVarianceOne)
{
    plait_rng r = plait_rng_make(1234, PLAIT_RNG_INIT, 3, 0, 7);
    const int n = 200000;
    double sum = 0, squares = 0, fourth = 0;
    for (int i = 0; i < n; i++) {
        double x = plait_rng_normal(&r, static_cast<uint64_t>(i));
        ASSERT_TRUE(std::isfinite(x));
        sum += x;
        squares += x * x;
        fourth += x * x * x * x;
    }
    EXPECT_NEAR(sum / n, 0, 4 / std::sqrt(n));
    EXPECT_NEAR(squares / n, 1, 0.015);
    EXPECT_NEAR(fourth / n, 3, 0.1);
}

TEST(Rng, StreamsDifferInEveryPartOfTheirKey)
{
    std::set<uint32_t> seen;
    const plait_rng streams[] = {
        plait_rng_make(1, PLAIT_RNG_INIT, 0, 0, 0),          plait_rng_make(2, PLAIT_RNG_INIT, 0, 0, 0),
        plait_rng_make(1ull << 32, PLAIT_RNG_INIT, 0, 0, 0), plait_rng_make(1, PLAIT_RNG_DATA, 0, 0, 0),
        plait_rng_make(1, PLAIT_RNG_INIT, 1, 0, 0),          plait_rng_make(1, PLAIT_RNG_INIT, 0, 1, 0),
        plait_rng_make(1, PLAIT_RNG_INIT, 0, 0, 1),
    };
    for (const plait_rng &r : streams) {
        seen.insert(plait_rng_word(&r, 0));
        seen.insert(plait_rng_word(&r, uint64_t{1} << 40)); // the high part of the index counts too
    }
    EXPECT_EQ(seen.size(), 14u);
}

TEST(Rng, UniformIsInTheHalfOpenUnitInterval)
{
    plait_rng r = plait_rng_make(5, PLAIT_RNG_SAMPLING, 0, 0, 0);
    double sum = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        double u = plait_rng_uniform(&r, i);
        ASSERT_GE(u, 0);
        ASSERT_LT(u, 1);
        sum += u;
    }
    EXPECT_NEAR(sum / 100000, 0.5, 0.005);
}
