/* Distances in units in the last place, and numbers as text. */
#include "../core/printed.h"
#include "launcher/diff_number.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace
{

struct Row {
    const char *name;
    plait_dtype dtype;
    uint64_t a, b, ulps;
};

std::string text(plait_dtype dtype, uint64_t bits)
{
    return printed([&](FILE *out) { plait_number_print(out, dtype, bits); });
}

} // namespace

TEST(Ulps, AreStepsBetweenNeighboursOfTheType)
{
    const Row rows[] = {
        {"same", PLAIT_FP32, 0x3f800000, 0x3f800000, 0},
        {"next", PLAIT_FP32, 0x3f800000, 0x3f800001, 1},
        {"over_an_exponent", PLAIT_FP32, 0x3f7fffff, 0x3f800001, 2},
        {"both_negative", PLAIT_FP32, 0xbf800000, 0xbf800003, 3},
        {"zeros", PLAIT_FP32, 0x00000000, 0x80000000, 0},
        {"smallest_about_zero", PLAIT_FP32, 0x80000001, 0x00000001, 2},
        {"subnormal_from_minus_zero", PLAIT_FP32, 0x80000000, 0x00000005, 5},
        {"largest_to_infinity", PLAIT_FP32, 0x7f7fffff, 0x7f800000, 1},
        {"all_of_them", PLAIT_FP32, 0xff800000, 0x7f800000, 0xff000000},
        {"bf16_next", PLAIT_BF16, 0x3f80, 0x3f81, 1},
        {"bf16_all", PLAIT_BF16, 0xff80, 0x7f80, 0xff00},
        {"fp16_next", PLAIT_FP16, 0x3c00, 0x3bff, 1},
        {"fp16_all", PLAIT_FP16, 0xfc00, 0x7c00, 0xf800},
        {"fp64_next", PLAIT_FP64, 0x3ff0000000000000, 0x3ff0000000000001, 1},
        {"fp64_about_zero", PLAIT_FP64, 0x8000000000000003, 0x4, 7},
        {"fp64_all", PLAIT_FP64, 0xfff0000000000000, 0x7ff0000000000000, 0xffe0000000000000},
        {"nan_same_bits", PLAIT_FP32, 0x7fc00001, 0x7fc00001, 0},
        {"nan_other_bits", PLAIT_FP32, 0x7fc00001, 0x7fc00002, PLAIT_ULPS_NAN},
        {"nan_of_other_sign", PLAIT_FP64, 0x7ff8000000000000, 0xfff8000000000000, PLAIT_ULPS_NAN},
        {"nan_and_infinity", PLAIT_FP16, 0x7c01, 0x7c00, PLAIT_ULPS_NAN},
        {"nan_and_number", PLAIT_BF16, 0x3f80, 0xff81, PLAIT_ULPS_NAN},
    };
    for (const Row &r : rows) {
        EXPECT_EQ(plait_ulps(r.dtype, r.a, r.b), r.ulps) << r.name;
        EXPECT_EQ(plait_ulps(r.dtype, r.b, r.a), r.ulps) << r.name << ", the other way";
    }
}

/* The definition, by walking. */
TEST(Ulps, CountWhatNextafterWalks)
{
    for (double from : {-3e-324, -1.0, 0.0, 1e-310, 0.9999999999999999, 1e300}) {
        double to = from;
        for (uint64_t steps = 0; steps < 40; steps++) {
            EXPECT_EQ(plait_ulps(PLAIT_FP64, plait_double_bits(from), plait_double_bits(to)), steps) << from;
            to = std::nextafter(to, std::numeric_limits<double>::infinity());
        }
    }
}

TEST(Ulps, NumbersArePrintedWithAllDigits)
{
    EXPECT_EQ(text(PLAIT_FP64, plait_double_bits(0.1)), "0.10000000000000001 (0x1.999999999999ap-4)");
    EXPECT_EQ(text(PLAIT_FP32, 0x3dcccccd), "0.100000001 (0x1.99999ap-4)");
    EXPECT_EQ(text(PLAIT_BF16, 0xbf80), "-1 (-0x1p+0)");
    EXPECT_EQ(text(PLAIT_FP16, 0x0001), "5.96046448e-08 (0x1p-24)");
    EXPECT_EQ(text(PLAIT_FP32, 0x80000000), "-0 (-0x0p+0)");
    EXPECT_EQ(text(PLAIT_FP32, 0xff800000), "-inf (-inf)");
    EXPECT_EQ(text(PLAIT_FP32, 0x7fc00001), "nan (bits 0x7fc00001)");
    EXPECT_EQ(text(PLAIT_BF16, 0xff81), "nan (bits 0xff81)");

    auto ulps = [](uint64_t n) { return printed([&](FILE *out) { plait_ulps_print(out, n); }); };
    EXPECT_EQ(ulps(1), "1 ULP");
    EXPECT_EQ(ulps(2), "2 ULPs");
    EXPECT_EQ(ulps(0), "0 ULPs: the sign of zero");
    EXPECT_EQ(ulps(PLAIT_ULPS_NAN), "no distance in ULPs: not both are numbers");
}
