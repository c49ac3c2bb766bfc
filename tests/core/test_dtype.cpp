// Every 16-bit pattern, and rounding of floats against an independent definition: the nearest representable value,
// the even one of two.
#include "core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

namespace
{

struct Format {
    const char *name;
    float (*widen)(uint16_t);
    uint16_t (*narrow)(float);
    int mantissa_bits, min_exponent, max_exponent; // of normal numbers
};

class SixteenBit : public testing::TestWithParam<Format>
{
};

void PrintTo(const Format &f, std::ostream *os)
{
    *os << f.name;
}

// The value of a pattern, from the definition.
double value_of(const Format &f, uint16_t h)
{
    int m = h & ((1 << f.mantissa_bits) - 1), e = (h & 0x7fff) >> f.mantissa_bits;
    int all_ones = (0x7fff >> f.mantissa_bits);
    double sign = h & 0x8000 ? -1 : 1;
    if (e == all_ones)
        return m ? std::nan("") : sign * std::numeric_limits<double>::infinity();
    if (e == 0)
        return sign * std::ldexp(m, f.min_exponent - f.mantissa_bits);
    return sign * std::ldexp((1 << f.mantissa_bits) + m, f.min_exponent + e - 1 - f.mantissa_bits);
}

TEST_P(SixteenBit, EveryPatternWidensToItsValueAndComesBack)
{
    const Format &f = GetParam();
    for (int i = 0; i < 65536; i++) {
        uint16_t h = static_cast<uint16_t>(i);
        double want = value_of(f, h);
        float got = f.widen(h);
        if (std::isnan(want)) { // quiet, with the payload that fits
            const uint16_t quiet = static_cast<uint16_t>(h | 1 << (f.mantissa_bits - 1));
            uint32_t bits;
            memcpy(&bits, &got, sizeof bits);
            EXPECT_TRUE(std::isnan(got)) << i;
            EXPECT_TRUE(bits & 0x00400000u) << i << " is signalling";
            EXPECT_EQ(std::signbit(got), (h & 0x8000) != 0) << i;
            EXPECT_EQ(f.narrow(got), quiet) << i;
        } else {
            ASSERT_EQ(static_cast<double>(got), want) << i;
            ASSERT_EQ(std::signbit(got), std::signbit(want)) << i;
            ASSERT_EQ(f.narrow(got), h) << i;
        }
    }
}

TEST_P(SixteenBit, MidpointsGoToEvenAndTheirNeighboursToTheNearest)
{
    const Format &f = GetParam();
    uint16_t inf = static_cast<uint16_t>(0x7fff >> f.mantissa_bits << f.mantissa_bits);
    for (uint16_t h = 0; h + 1 < inf; h++) {
        uint16_t up = static_cast<uint16_t>(h + 1);
        float mid = static_cast<float>((value_of(f, h) + value_of(f, up)) / 2);
        if (static_cast<double>(mid) != (value_of(f, h) + value_of(f, up)) / 2)
            continue; // the midpoint of the smallest bf16 subnormals is no float
        ASSERT_EQ(f.narrow(mid), h % 2 ? up : h) << h;
        ASSERT_EQ(f.narrow(std::nextafter(mid, 0.0f)), h) << h;
        ASSERT_EQ(f.narrow(std::nextafter(mid, INFINITY)), up) << h;
        ASSERT_EQ(f.narrow(-mid), 0x8000 | (h % 2 ? up : h)) << h;
    }
}

TEST_P(SixteenBit, OverflowIsInfinityAndNaNStaysNaN)
{
    const Format &f = GetParam();
    uint16_t inf = static_cast<uint16_t>(0x7fff >> f.mantissa_bits << f.mantissa_bits);
    double largest = value_of(f, static_cast<uint16_t>(inf - 1));
    double ulp = std::ldexp(1, f.max_exponent - f.mantissa_bits);
    float half_way = static_cast<float>(largest + ulp / 2); // ties to even: infinity
    EXPECT_EQ(f.narrow(half_way), inf);
    EXPECT_EQ(f.narrow(std::nextafter(half_way, 0.0f)), inf - 1);
    EXPECT_EQ(f.narrow(-half_way), inf | 0x8000);
    EXPECT_EQ(f.narrow(INFINITY), inf);
    EXPECT_EQ(f.narrow(-INFINITY), inf | 0x8000);
    for (uint32_t bits : {0x7f800001u, 0x7fffffffu, 0x7fc00000u, 0xff800001u, 0x7f80ffffu}) {
        float nan;
        memcpy(&nan, &bits, sizeof nan);
        EXPECT_TRUE(std::isnan(f.widen(f.narrow(nan)))) << std::hex << bits;
    }
}

const Format kFormats[] = {
    {"bf16", plait_bf16_to_float, plait_float_to_bf16, 7, -126, 127},
    {"fp16", plait_fp16_to_float, plait_float_to_fp16, 10, -14, 15},
};
INSTANTIATE_TEST_SUITE_P(, SixteenBit, testing::ValuesIn(kFormats),
                         [](const auto &i) { return std::string(i.param.name); });

} // namespace
