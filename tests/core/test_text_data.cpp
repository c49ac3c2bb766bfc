#include "core/text_data.h"

#include "tests/core/temp_dir.h"

#include <sys/stat.h>

#include <cmath>
#include <numeric>
#include <set>

namespace
{

plait_text_options options_of(const std::string &path, int64_t seq)
{
    return {path.c_str(), {1, 0, 0}, seq, 257, 1234, 0};
}

struct Data {
    plait_text_data *d = nullptr;
    plait_status st;
    explicit Data(const plait_text_options &o) : st(plait_text_data_open(&o, &d)) {}
    ~Data() { plait_text_data_close(d); }
};

std::vector<int32_t> row(const std::vector<int32_t> &m, int64_t b, int64_t batch)
{
    std::vector<int32_t> out;
    for (size_t i = static_cast<size_t>(b); i < m.size(); i += static_cast<size_t>(batch))
        out.push_back(m[i]);
    return out;
}

using TextData = TempDir;

} // namespace

// 100 bytes and the end mark: 101 tokens, floor(100 / 32) samples; sample i covers tokens 32 i to 32 i + 32.
TEST_F(TextData, SamplesShareOneTokenWithTheNext)
{
    std::string text;
    for (int i = 0; i < 100; i++)
        text.push_back(static_cast<char>(33 + i * 7 % 90));
    const std::string p = write("t100", text);
    Data t(options_of(p, 32));
    ASSERT_EQ(t.st, PLAIT_OK) << plait_error_text();
    ASSERT_EQ(plait_text_data_samples(t.d, PLAIT_SPLIT_TRAIN), 3);
    EXPECT_EQ(plait_text_data_tokens(t.d, PLAIT_SPLIT_TRAIN), 101);
    EXPECT_EQ(plait_text_data_bytes(t.d), 100u + 3 * 4);

    std::vector<int32_t> tokens(32 * 3), targets(32 * 3);
    plait_text_data_fill_train(t.d, 0, 3, tokens.data(), targets.data());
    for (int64_t b = 0; b < 3; b++) {
        int64_t at = plait_text_data_train_index(t.d, b) * 32;
        for (int i = 0; i < 32; i++) {
            EXPECT_EQ(tokens[static_cast<size_t>(i * 3 + b)], text[static_cast<size_t>(at + i)]);
            EXPECT_EQ(targets[static_cast<size_t>(i * 3 + b)], text[static_cast<size_t>(at + i + 1)]);
        }
    }
}

TEST_F(TextData, EveryByteComesBackAndTheEndMarkIsLast)
{
    std::string text;
    for (int i = 0; i < 256; i++)
        text.push_back(static_cast<char>(i));
    const std::string p = write("all", text);
    Data t(options_of(p, 256));
    ASSERT_EQ(t.st, PLAIT_OK) << plait_error_text();
    ASSERT_EQ(plait_text_data_samples(t.d, PLAIT_SPLIT_TRAIN), 1);
    std::vector<int32_t> tokens(256), targets(256), want(257);
    std::iota(want.begin(), want.end(), 0);
    plait_text_data_fill_train(t.d, 0, 1, tokens.data(), nullptr);
    plait_text_data_fill_train(t.d, 0, 1, nullptr, targets.data());
    EXPECT_EQ(tokens, std::vector<int32_t>(want.begin(), want.end() - 1));
    EXPECT_EQ(targets, std::vector<int32_t>(want.begin() + 1, want.end()));
}

TEST_F(TextData, AnEpochIsAPermutationAndTheNextIsAnother)
{
    const std::string p = write("x", std::string(1000, 'x'));
    Data t(options_of(p, 10)), again(options_of(p, 10));
    ASSERT_EQ(t.st, PLAIT_OK) << plait_error_text();
    ASSERT_EQ(plait_text_data_samples(t.d, PLAIT_SPLIT_TRAIN), 100);
    std::vector<int64_t> order(300);
    for (int n = 0; n < 300; n++)
        order[static_cast<size_t>(n)] = plait_text_data_train_index(t.d, n);
    for (int e = 0; e < 3; e++)
        EXPECT_EQ(std::set<int64_t>(order.begin() + e * 100, order.begin() + (e + 1) * 100).size(), 100u) << e;
    EXPECT_FALSE(std::equal(order.begin(), order.begin() + 100, order.begin() + 100));
    EXPECT_FALSE(std::equal(order.begin() + 100, order.begin() + 200, order.begin() + 200));
    // random access, backwards, gives the same
    for (int n = 299; n >= 0; n -= 7)
        EXPECT_EQ(plait_text_data_train_index(again.d, n), order[static_cast<size_t>(n)]) << n;
}

// From an own Philox, Fisher-Yates and Lemire draw in Python: the order is part of what a run means.
TEST_F(TextData, TheOrderIsPinned)
{
    const std::string p = write("x", std::string(80, 'x'));
    Data t(options_of(p, 10));
    ASSERT_EQ(t.st, PLAIT_OK) << plait_error_text();
    const std::vector<int64_t> want = {1, 3, 6, 2, 0, 5, 4, 7, 4, 6, 3, 5, 2, 1, 0, 7};
    std::vector<int64_t> got;
    for (int n = 0; n < 16; n++)
        got.push_back(plait_text_data_train_index(t.d, n));
    EXPECT_EQ(got, want);
}

TEST_F(TextData, TheOrderDependsOnTheSeedAndFirstSampleShiftsIt)
{
    const std::string p = write("x", std::string(1000, 'x'));
    plait_text_options other = options_of(p, 10), later = options_of(p, 10);
    other.seed = 1235;
    later.first_sample = 130;
    Data t(options_of(p, 10)), o(other), l(later);
    int same = 0;
    for (int n = 0; n < 100; n++)
        same += plait_text_data_train_index(t.d, n) == plait_text_data_train_index(o.d, n);
    EXPECT_LT(same, 10);
    for (int n = 0; n < 100; n++)
        EXPECT_EQ(plait_text_data_train_index(l.d, n), plait_text_data_train_index(t.d, n + 130));
}

// Of 6 orders of 3 samples each comes up about equally often; a biased draw is far outside four standard deviations.
TEST_F(TextData, AllOrdersAreEquallyLikely)
{
    const std::string p = write("x", std::string(30, 'x'));
    Data t(options_of(p, 10));
    ASSERT_EQ(plait_text_data_samples(t.d, PLAIT_SPLIT_TRAIN), 3);
    int seen[9] = {}, epochs = 6000;
    for (int e = 0; e < epochs; e++)
        seen[plait_text_data_train_index(t.d, 3 * e) * 3 + plait_text_data_train_index(t.d, 3 * e + 1)]++;
    for (int i = 0; i < 9; i++)
        EXPECT_NEAR(seen[i], i % 4 == 0 ? 0 : epochs / 6, i % 4 == 0 ? 0 : 4 * std::sqrt(epochs * 5 / 36.0)) << i;
}

TEST_F(TextData, ABatchGoesAcrossTheEndOfAnEpoch)
{
    const std::string p = write("x", "abcdefghijklmnopqrstuvwxyz");
    Data t(options_of(p, 5)); // 27 tokens, 5 samples
    ASSERT_EQ(plait_text_data_samples(t.d, PLAIT_SPLIT_TRAIN), 5);
    std::vector<int32_t> m(5 * 4), one(5);
    plait_text_data_fill_train(t.d, 3, 4, m.data(), nullptr);
    for (int64_t b = 0; b < 4; b++) {
        plait_text_data_fill_train(t.d, 3 + b, 1, one.data(), nullptr);
        EXPECT_EQ(row(m, b, 4), one) << b;
    }
}

TEST_F(TextData, PartsAreContiguousAndComplete)
{
    const std::string p = write("x", std::string(9999, 'x'));
    plait_text_options o = options_of(p, 10);
    o.split[0] = 95, o.split[1] = 5, o.split[2] = 0;
    Data t(o);
    ASSERT_EQ(t.st, PLAIT_OK) << plait_error_text();
    EXPECT_EQ(plait_text_data_tokens(t.d, PLAIT_SPLIT_TRAIN), 9500);
    EXPECT_EQ(plait_text_data_tokens(t.d, PLAIT_SPLIT_VALIDATION), 500);
    EXPECT_EQ(plait_text_data_tokens(t.d, PLAIT_SPLIT_TEST), 0);
    EXPECT_EQ(plait_text_data_require(t.d, PLAIT_SPLIT_VALIDATION), PLAIT_OK);
    EXPECT_EQ(plait_text_data_require(t.d, PLAIT_SPLIT_TEST), PLAIT_USAGE);
    EXPECT_STREQ(plait_error_text(), "data.split gives the test part 0 of the 10000 tokens, one sample needs 11");
}

TEST_F(TextData, APartWithoutASampleIsAnErrorOnlyWhenAskedFor)
{
    const std::string p = write("x", std::string(999, 'x'));
    plait_text_options o = options_of(p, 32);
    o.split[0] = 998, o.split[1] = 1, o.split[2] = 1;
    Data t(o);
    ASSERT_EQ(t.st, PLAIT_OK) << plait_error_text();
    EXPECT_EQ(plait_text_data_require(t.d, PLAIT_SPLIT_TRAIN), PLAIT_OK);
    EXPECT_EQ(plait_text_data_eval_samples(t.d, PLAIT_SPLIT_VALIDATION), 0);
    EXPECT_EQ(plait_text_data_require(t.d, PLAIT_SPLIT_VALIDATION), PLAIT_USAGE);
    EXPECT_STREQ(plait_error_text(), "data.split gives the validation part 1 of the 1000 tokens, one sample needs 33");
}

TEST_F(TextData, EvaluationIsInNaturalOrderAndBounded)
{
    std::string text(40000, 'x');
    for (size_t i = 0; i < text.size(); i++)
        text[i] = static_cast<char>('a' + i % 26);
    const std::string p = write("x", text);
    struct {
        int64_t seq, want;
    } const rows[] = {{100, 163}, {16384, 1}, {19000, 1}};
    for (const auto &r : rows) {
        plait_text_options o = options_of(p, r.seq);
        o.split[0] = 1, o.split[1] = 1;
        Data t(o);
        ASSERT_EQ(t.st, PLAIT_OK) << plait_error_text();
        EXPECT_EQ(plait_text_data_eval_samples(t.d, PLAIT_SPLIT_VALIDATION), r.want) << r.seq;
    }
    plait_text_options o = options_of(p, 100);
    o.split[0] = 1, o.split[1] = 1;
    Data t(o);
    std::vector<int32_t> tokens(100 * 3), targets(100 * 3);
    plait_text_data_fill_eval(t.d, PLAIT_SPLIT_VALIDATION, 161, 3, 163, tokens.data(), targets.data());
    const size_t begin = 20001; // round(40001 / 2)
    for (size_t i = 0; i < 100; i++) {
        EXPECT_EQ(tokens[i * 3], text[begin + 16100 + i]);
        EXPECT_EQ(targets[i * 3 + 1], text[begin + 16200 + i + 1]);
        EXPECT_EQ(tokens[i * 3 + 2], 0);
        EXPECT_EQ(targets[i * 3 + 2], -1);
    }
}

TEST_F(TextData, ALongLineIsOneDocument)
{
    const std::string p = write("x", std::string(65537, 'x'));
    Data t(options_of(p, 32));
    EXPECT_EQ(plait_text_data_tokens(t.d, PLAIT_SPLIT_TRAIN), 65538);
    EXPECT_EQ(plait_text_data_samples(t.d, PLAIT_SPLIT_TRAIN), 2048);
}

struct Refusal {
    const char *name, *text;
    int64_t seq, vocab;
    plait_status code;
    const char *want;
};
class TextDataRefuses : public TextData, public testing::WithParamInterface<Refusal>
{
};
void PrintTo(const Refusal &r, std::ostream *os)
{
    *os << r.name;
}

TEST_P(TextDataRefuses, WithBothNumbers)
{
    const Refusal &r = GetParam();
    const std::string p = write("f", r.text);
    plait_text_options o = options_of(p, r.seq);
    o.vocab_size = r.vocab;
    Data t(o);
    EXPECT_EQ(t.st, r.code);
    EXPECT_NE(std::string(plait_error_text()).find(r.want), std::string::npos) << plait_error_text();
}
const Refusal kRefusals[] = {
    {"ten_bytes", "0123456789", 32, 257, PLAIT_USAGE, "10 (11 with the end mark) tokens < 33"},
    {"one_byte", "a", 32, 257, PLAIT_USAGE, "1 (2 with the end mark) tokens < 33"},
    {"one_byte_short", "0123456789", 11, 257, PLAIT_USAGE, "10 (11 with the end mark) tokens < 12"},
    {"empty", "", 1, 257, PLAIT_USAGE, "empty: 0 bytes"},
    {"byte_above_vocabulary", "ab\x80", 1, 128, PLAIT_USAGE,
     "token 128 at position 2 is not below model.vocab_size 128"},
    {"end_mark_above_vocabulary", "abc", 1, 256, PLAIT_USAGE, "token 256 at position 3 (the end mark)"},
    {"no_length", "abc", 0, 257, PLAIT_USAGE, "seq_length 0"},
};
INSTANTIATE_TEST_SUITE_P(, TextDataRefuses, testing::ValuesIn(kRefusals),
                         [](const auto &i) { return std::string(i.param.name); });

TEST_F(TextData, AFileOfExactlyOneSampleIsEnough)
{
    const std::string p = write("x", "0123456789");
    Data t(options_of(p, 10));
    ASSERT_EQ(t.st, PLAIT_OK) << plait_error_text();
    EXPECT_EQ(plait_text_data_samples(t.d, PLAIT_SPLIT_TRAIN), 1);
}

TEST_F(TextData, RefusesWhatIsNoReadableFile)
{
    ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
    struct {
        std::string path, want;
    } const rows[] = {
        {path("missing"), "open " + path("missing") + ": No such file or directory"},
        {dir, "not a regular file but a directory"},
        {path("pipe"), "not a regular file"},
    };
    for (const auto &r : rows) {
        Data t(options_of(r.path, 8));
        EXPECT_EQ(t.st, PLAIT_IO);
        EXPECT_NE(std::string(plait_error_text()).find(r.want), std::string::npos) << plait_error_text();
    }
}

TEST_F(TextData, RefusesImpossibleWeights)
{
    const std::string p = write("x", std::string(100, 'x'));
    const double rows[][3] = {{-1, 2, 0}, {0, 0, 0}, {NAN, 1, 0}, {INFINITY, 1, 0}, {1.7e308, 1.7e308, 1}};
    for (const auto &r : rows) {
        plait_text_options o = options_of(p, 8);
        std::copy(r, r + 3, o.split);
        Data t(o);
        EXPECT_EQ(t.st, PLAIT_USAGE) << r[0] << " " << r[1];
    }
}

TEST_F(TextData, ShorteningTheFileAfterwardsChangesNothing)
{
    const std::string p = write("x", std::string(1 << 20, 'x'));
    Data t(options_of(p, 1 << 19));
    std::filesystem::resize_file(p, 0);
    std::vector<int32_t> tokens(1 << 19);
    plait_text_data_fill_train(t.d, 0, 1, tokens.data(), nullptr);
    EXPECT_EQ(tokens, std::vector<int32_t>(1 << 19, 'x'));
}
