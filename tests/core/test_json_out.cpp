#include "core/json_out.h"
#include "printed.h"

#include <gtest/gtest.h>
#include <jansson.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

namespace
{

std::string number(double x)
{
    return printed([&](FILE *f) { plait_json_number(f, x); });
}
std::string hex(double x)
{
    return printed([&](FILE *f) { plait_json_hex(f, x); });
}
std::string quoted(const std::string &s)
{
    return printed([&](FILE *f) { plait_json_string(f, s.c_str()); });
}

} // namespace

TEST(JsonOut, NumbersComeBackToTheLastBit)
{
    const double rows[] = {
        0, -0.0, 1, 0.1, 1.0 / 3, 5.5490760848952201, 5e-324, std::numeric_limits<double>::max(), -1e-17, 1e100};
    for (double x : rows) {
        EXPECT_EQ(std::strtod(number(x).c_str(), nullptr), x);
        EXPECT_EQ(std::signbit(std::strtod(number(x).c_str(), nullptr)), std::signbit(x));
        const std::string h = hex(x);
        EXPECT_EQ(std::strtod(h.substr(1, h.size() - 2).c_str(), nullptr), x) << h;
        json_t *parsed = json_loads(("[" + number(x) + "," + h + "]").c_str(), 0, nullptr);
        EXPECT_NE(parsed, nullptr) << number(x);
        json_decref(parsed);
    }
}

TEST(JsonOut, WhatIsNotFiniteIsNull)
{
    EXPECT_EQ(number(INFINITY), "null");
    EXPECT_EQ(number(-INFINITY), "null");
    EXPECT_EQ(number(NAN), "null");
    EXPECT_EQ(hex(NAN), "\"nan\"");
    EXPECT_EQ(hex(-INFINITY), "\"-inf\"");
    EXPECT_EQ(hex(3), "\"0x1.8p+1\"");
}

TEST(JsonOut, StringsAreEscapedAndAlwaysValid)
{
    struct {
        std::string in, want;
    } const rows[] = {
        {"", "\"\""},
        {"a\"b\\c", R"("a\"b\\c")"},
        {"tab\tnl\n\x01\x7f", "\"tab\\u0009nl\\u000a\\u0001\x7f\""},
        {"\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80", "\"\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80\""},
        {"\xc0\xaf", R"("\ufffd\ufffd")"},                     // overlong
        {"\xed\xa0\x80", R"("\ufffd\ufffd\ufffd")"},           // a surrogate
        {"\xf5\x90\x80\x80", R"("\ufffd\ufffd\ufffd\ufffd")"}, // beyond U+10FFFF
        {"cut\xe2\x82", R"("cut\ufffd\ufffd")"},               // the end in mid-character
        {"\x80x", R"("\ufffdx")"},
    };
    for (const auto &r : rows) {
        EXPECT_EQ(quoted(r.in), r.want);
        json_t *parsed = json_loads(("[" + quoted(r.in) + "]").c_str(), 0, nullptr);
        EXPECT_NE(parsed, nullptr) << r.want;
        json_decref(parsed);
    }
}
