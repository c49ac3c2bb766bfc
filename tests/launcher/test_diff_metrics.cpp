/* Two metrics files, line by line. */
#include "diff_testing.h"

#include <cmath>

namespace
{

struct Step {
    int number;
    double loss = 5.5, grad_norm = 1.25, lr = 0.001, loss_scale = 1;
    int skipped = 0, counted_tokens = 256;
    double seconds = 0.1;
};

std::string number(double x)
{
    char text[64];
    snprintf(text, sizeof text, std::isfinite(x) ? "%.17g" : "null", x);
    return text;
}

std::string line(const Step &s)
{
    char hex[64];
    snprintf(hex, sizeof hex, "%a", s.loss);
    return "{\"step\":" + std::to_string(s.number) + ",\"loss\":" + number(s.loss) + ",\"loss_hex\":\"" + hex +
           "\",\"grad_norm\":" + number(s.grad_norm) + ",\"lr\":" + number(s.lr) +
           ",\"loss_scale\":" + number(s.loss_scale) + ",\"skipped\":" + std::to_string(s.skipped) +
           ",\"counted_tokens\":" + std::to_string(s.counted_tokens) +
           ",\"tokens_per_second\":" + number(256 / s.seconds) + ",\"step_seconds\":" + number(s.seconds) + "}\n";
}
std::string eval(int after, double loss)
{
    return "{\"eval\":{\"after_step\":" + std::to_string(after) + ",\"loss\":" + number(loss) + "}}\n";
}
const std::string kEnd = "{\"memory\":[],\"communication\":[],\"resident\":[],\"fingerprint\":\"0123456789abcdef\"}\n";
const std::string kOtherEnd =
    "{\"memory\":[{\"rank\":0}],\"communication\":[],\"resident\":[],\"fingerprint\":\"f\"}\n";

const std::string kThree = line({1}) + line({2}) + eval(2, 5.25) + line({3});

class DiffMetrics : public DiffTest
{
  protected:
    Compared diff(const std::string &a, const std::string &b) const { return compare(plait_diff_metrics, a, b); }
    void expect(const Compared &c, bool differ, const std::vector<std::string> &says, const std::string &what) const
    {
        EXPECT_EQ(c.status, PLAIT_OK) << what << "\n" << c.error;
        EXPECT_EQ(c.differ, differ) << what << "\n" << c.text;
        for (const std::string &s : says)
            EXPECT_TRUE(c.says(s)) << what << ": no '" << s << "' in\n" << c.text;
        EXPECT_EQ(c.says("equal to the last bit"), !differ) << what << "\n" << c.text;
        EXPECT_EQ(c.says("first difference: "), differ) << what << "\n" << c.text;
    }
};

} // namespace

TEST_F(DiffMetrics, TimesAndMemoryAreNotCompared)
{
    Step slow = {1};
    slow.seconds = 7;
    EXPECT_EQ(diff(kThree + kEnd, kThree + kEnd).text, "equal to the last bit: 3 steps; 1 evaluation\n");
    Compared c = diff(line({1}) + kEnd, line(slow) + kOtherEnd);
    EXPECT_EQ(c.text, "equal to the last bit: 1 step\n");
    EXPECT_FALSE(c.differ);
}

TEST_F(DiffMetrics, EachFieldIsCompared)
{
    struct {
        const char *name;
        void (*change)(Step &s);
        const char *says;
    } rows[] = {
        {"loss", [](Step &s) { s.loss = std::nextafter(s.loss, 9); }, "step 2, loss, 1 ULP\n"},
        {"grad_norm", [](Step &s) { s.grad_norm = std::nextafter(s.grad_norm, 0); }, "step 2, grad_norm, 1 ULP\n"},
        {"lr", [](Step &s) { s.lr = std::nextafter(std::nextafter(s.lr, 1), 1); }, "step 2, lr, 2 ULPs\n"},
        {"loss_scale", [](Step &s) { s.loss_scale = 2; }, "step 2, loss_scale, 4503599627370496 ULPs\n"},
        {"skipped", [](Step &s) { s.skipped = 1; }, "step 2, skipped\n  A: 0\n  B: 1\n"},
        {"counted_tokens", [](Step &s) { s.counted_tokens = 255; }, "step 2, counted_tokens\n  A: 256\n  B: 255\n"},
    };
    for (const auto &r : rows) {
        Step s = {2};
        r.change(s);
        expect(diff(line({1}) + line({2}) + kEnd, line({1}) + line(s) + kEnd), true,
               {std::string("first difference: ") + r.says,
                std::string("in both: 2 steps, of which 1 differ (") + r.name + " 1)\n"},
               r.name);
    }
    expect(diff(kThree + kEnd, line({1}) + line({2}) + eval(2, std::nextafter(5.25, 0)) + line({3}) + kEnd), true,
           {"first difference: evaluation after step 2, loss, 1 ULP\n"
            "  A: 5.25 (0x1.5p+2)\n  B: 5.2499999999999991 (0x1.4ffffffffffffp+2)\n"
            "in both: 3 steps, of which 0 differ; 1 evaluation, of which 1 differ (loss 1)\n"},
           "evaluation");
}

TEST_F(DiffMetrics, TheFirstAndTheLargestAreTold)
{
    Step second = {2}, third = {3};
    second.loss = std::nextafter(5.5, 9);
    third.grad_norm = 1.25 + 5 * 0x1p-52;
    third.loss = 5.5 + 3 * 0x1p-50;
    third.counted_tokens = 1;
    EXPECT_EQ(diff(kThree + kEnd, line({1}) + line(second) + eval(2, 5.25) + line(third) + kEnd).text,
              "first difference: step 2, loss, 1 ULP\n"
              "  A: 5.5 (0x1.6p+2)\n"
              "  B: 5.5000000000000009 (0x1.6000000000001p+2)\n"
              "in both: 3 steps, of which 2 differ (loss 2, grad_norm 1, counted_tokens 1); "
              "1 evaluation, of which 0 differ\n"
              "largest difference: step 3, grad_norm, 5 ULPs\n"
              "  A: 1.25 (0x1.4p+0)\n"
              "  B: 1.2500000000000011 (0x1.4000000000005p+0)\n");
}

TEST_F(DiffMetrics, WhatIsNotFiniteIsEqualToItselfAlone)
{
    Step overflow = {1}, nan = {1}, inf = {1};
    overflow.grad_norm = INFINITY;
    nan.loss = NAN;
    inf.loss = INFINITY;
    expect(diff(line(overflow) + kEnd, line(overflow) + kEnd), false, {}, "null");
    expect(diff(line(nan) + kEnd, line(nan) + kEnd), false, {}, "nan");
    expect(diff(line(inf) + kEnd, line(inf) + kEnd), false, {}, "inf");
    expect(diff(line({1}) + kEnd, line(overflow) + kEnd), true,
           {"step 1, grad_norm, no distance in ULPs", "  A: 1.25 (0x1.4p+0)\n  B: not finite\n"}, "null and a number");
    expect(diff(line(inf) + kEnd, line(nan) + kEnd), true, {"  A: inf (inf)\n  B: not finite\n"}, "inf and nan");
}

TEST_F(DiffMetrics, StepsOfOneFileAloneAreNamed)
{
    expect(diff(kThree + kEnd, line({1}) + line({2}) + eval(2, 5.25) + kEnd), true,
           {"first difference: step 3 is only in A\n", "in both: 2 steps, of which 0 differ", "only in A: 1 step, 3\n"},
           "shorter");
    expect(diff(line({1}) + kEnd, kThree + kEnd), true,
           {"first difference: step 2 is only in B\n", "only in B: 2 steps, 2 to 3\n", "only in B: 1 evaluation, 2\n"},
           "longer");
    expect(diff(kThree + kEnd, line({1}) + line({2}) + line({3}) + kEnd), true,
           {"first difference: evaluation after step 2 is only in A\n", "in both: 3 steps, of which 0 differ"},
           "no evaluation");
    expect(diff(line({1}) + line({2}), line({5}) + line({6})), true,
           {"step 1 is only in A", "in both: 0 steps", "only in A: 2 steps, 1 to 2\n", "only in B: 2 steps, 5 to 6\n"},
           "nothing in common");
}

TEST_F(DiffMetrics, OfACutFileTheWholeLinesCount)
{
    const std::string cut = kThree.substr(0, kThree.size() - 20), last = kThree.substr(0, kThree.size() - 1);
    expect(diff(kThree + kEnd, cut), true, {"first difference: step 3 is only in A\n", "B: line 4 is cut off"}, "one");
    expect(diff(cut, cut), false, {"2 steps; 1 evaluation", "A: line 4 is cut off", "B: line 4 is cut off"}, "both");
    expect(diff(kThree + kEnd, kThree), false, {"B: the last line is missing"}, "between lines");
    expect(diff(kThree + kEnd, last), false, {"B: the last line is missing"}, "only the line's end");
    expect(diff(kThree + kEnd, kThree + kEnd.substr(0, 30)), false, {"B: line 5 is cut off"}, "in the last");
}

TEST_F(DiffMetrics, OtherFilesAreRefusedWithTheLine)
{
    const std::string good = line({1});
    struct {
        const char *name;
        std::string bytes;
        const char *says;
    } rows[] = {
        {"empty", "", "B has no whole line of a step"},
        {"end_alone", kEnd, "B has no whole line of a step"},
        {"cut_in_the_first", good.substr(0, 30), "B has no whole line of a step"},
        {"no_json", good + "hello\n" + line({2}), "B, line 2: "},
        {"cut_in_the_middle", good + line({2}).substr(0, 40) + "\n" + line({3}), "B, line 2: "},
        {"blank_line", good + "\n" + line({2}), "B, line 2: "},
        {"a_list", good + "[1]\n", "B, line 2: step is not a whole number"},
        {"another_object", good + "{\"a\":1}\n", "B, line 2: step is not a whole number"},
        {"eval_of_nothing", good + "{\"eval\":1}\n", "B, line 2: after_step is not a whole number"},
        {"twice", good + good, "B, line 2: step 1 after step 1"},
        {"backwards", line({2}) + good, "B, line 2: step 1 after step 2"},
        {"two_runs", good + kEnd + good, "B, line 3: there is a line after the last"},
        {"missing", "{\"step\":1}\n", "B, line 1: loss_hex is missing"},
        {"no_hex", "{\"step\":1,\"loss_hex\":\"0x1.8p+1 \"}\n", "B, line 1: loss_hex is not what"},
        {"number_as_hex", "{\"step\":1,\"loss_hex\":1}\n", "B, line 1: loss_hex is not what"},
        {"text_as_number", "{\"step\":1,\"loss_hex\":\"0x1p+1\",\"grad_norm\":\"1\"}\n", "B, line 1: grad_norm is not"},
        {"nul", good + std::string("\0\n", 2), "B, line 2: "},
    };
    for (const auto &r : rows) {
        Compared c = diff(good + kEnd, r.bytes);
        EXPECT_EQ(c.status, PLAIT_IO) << r.name << "\n" << c.text;
        EXPECT_NE(c.error.find(r.says), std::string::npos) << r.name << ": " << c.error;
    }
    EXPECT_EQ(diff("", good).status, PLAIT_IO);
}
