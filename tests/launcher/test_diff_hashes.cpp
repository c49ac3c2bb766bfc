/* Two files of tensor hashes, record by record. */
#include "diff_testing.h"

namespace
{

const std::string kModel = "# model.arch=llama precision.dtype=fp32 model.num_layers=2 model.hidden_size=64\n";

/* Tabs for blanks. */
std::string line(std::string text)
{
    for (char &c : text)
        c = c == ' ' ? '\t' : c;
    return text + "\n";
}
std::string head(const std::string &model = kModel, const std::string &grid = "# ranks=1 tensor=1\n")
{
    return "# plait tensor hashes\n" + model + grid +
           line("step micro_batch layer operation direction slice hash rank place");
}
/* "0123456789abcde" and a digit. */
std::string hash(char last)
{
    return std::string("0123456789abcde") + last;
}
/* "STEP MICRO LAYER OPERATION DIRECTION SLICE" */
std::string record(const std::string &place, char last = '0', const std::string &rank = "0 d0p0t0")
{
    return line(place + " " + hash(last) + " " + rank);
}
std::string of_step(const std::string &place, char last = '0')
{
    return line(place + " - - " + hash(last) + " - -");
}

/* Some records of a step, in the order of a run. */
const std::vector<std::string> kPlaces = {"0 embedding embedding forward 0",
                                          "0 embedding embedding forward 1",
                                          "0 0 qkv forward 0",
                                          "0 0 qkv forward 1",
                                          "0 0 mlp_residual forward 0",
                                          "0 1 input_layernorm forward 0",
                                          "0 head logits forward 0",
                                          "0 head loss forward -",
                                          "0 head logits backward 0",
                                          "0 head logits backward 1",
                                          "0 1 mlp_residual backward 0",
                                          "0 1 qkv backward 0",
                                          "0 0 qkv backward 1",
                                          "0 embedding embedding backward 0",
                                          "1 embedding embedding forward 0"};

/* A step, with another hash at one place and the rank of all. */
std::string step(int number, const std::string &changed = "", const std::string &rank = "0 d0p0t0")
{
    std::string all;
    const std::string n = std::to_string(number) + " ";
    for (const std::string &p : kPlaces)
        all += record(n + p, p == changed ? '1' : '0', rank);
    for (const char *p : {"- a.weight gradient", "- b.weight gradient", "- a.weight weight", "- b.weight weight"})
        all += of_step(n + p, p == changed ? '1' : '0');
    return all;
}
const std::string kEnd = "# end\n";
constexpr int kRecords = 19; /* of a step */

class DiffHashes : public DiffTest
{
  protected:
    Compared diff(const std::string &a, const std::string &b) const { return compare(plait_diff_hashes, a, b); }
};

} // namespace

TEST_F(DiffHashes, RanksAreNotCompared)
{
    Compared c = diff(head() + step(1) + step(2) + kEnd,
                      head(kModel, "# ranks=8 tensor=8\n") + step(1) + step(2, "", "7 d0p0t7") + kEnd);
    EXPECT_EQ(c.text, "equal to the last bit: 2 steps, 38 records\n") << c.error;
    EXPECT_FALSE(c.differ);
}

TEST_F(DiffHashes, TheFirstDifferenceIsNamed)
{
    const struct {
        std::string place, words;
        bool of_rank;
    } rows[] = {
        {"0 embedding embedding forward 1", "micro-batch 0, embedding forward, slice 1", true},
        {"0 0 qkv forward 1", "micro-batch 0, layer 0, qkv forward, slice 1", true},
        {"0 1 input_layernorm forward 0", "micro-batch 0, layer 1, input_layernorm forward, slice 0", true},
        {"0 head logits forward 0", "micro-batch 0, logits forward, slice 0", true},
        {"0 head loss forward -", "micro-batch 0, loss forward", true},
        {"0 head logits backward 1", "micro-batch 0, logits backward, slice 1", true},
        {"0 0 qkv backward 1", "micro-batch 0, layer 0, qkv backward, slice 1", true},
        {"1 embedding embedding forward 0", "micro-batch 1, embedding forward, slice 0", true},
        {"- b.weight gradient", "gradient of b.weight", false},
        {"- a.weight weight", "weight of a.weight", false},
    };
    for (const auto &r : rows) {
        Compared c = diff(head() + step(1) + step(2) + step(3) + kEnd,
                          head() + step(1) + step(2, r.place, "5 d1p0t1") + step(3, r.place) + kEnd);
        EXPECT_EQ(c.text, "first difference: step 2, " + r.words + "\n  A: 0123456789abcde0" +
                              (r.of_rank ? ", rank 0 (d0p0t0)" : "") + "\n  B: 0123456789abcde1" +
                              (r.of_rank ? ", rank 5 (d1p0t1)" : "") +
                              "\nin both: 3 steps, 57 records, of which 2 differ\n")
            << r.place << "\n"
            << c.error;
        EXPECT_TRUE(c.differ) << r.place;
    }
}

TEST_F(DiffHashes, WhatOnlyOneHasIsADifference)
{
    std::string without;
    for (const std::string &p : kPlaces)
        without += p.find("0 head") == 0 ? "" : record("1 " + p);
    Compared c = diff(head() + without + kEnd, head() + step(1) + kEnd);
    EXPECT_EQ(c.text, "first difference: step 1, micro-batch 0, logits forward, slice 0 is only in B\n"
                      "in both: 1 step, 11 records, of which 0 differ\n"
                      "only in B: 8 records, from step 1, micro-batch 0, logits forward, slice 0 on\n")
        << c.error;
    EXPECT_TRUE(c.differ);

    c = diff(head() + step(1) + step(2) + kEnd, head() + step(2) + step(3) + kEnd);
    EXPECT_EQ(c.text, "first difference: step 1, micro-batch 0, embedding forward, slice 0 is only in A\n"
                      "in both: 1 step, 19 records, of which 0 differ\n"
                      "only in A: 19 records, from step 1, micro-batch 0, embedding forward, slice 0 on\n"
                      "only in B: 19 records, from step 3, micro-batch 0, embedding forward, slice 0 on\n")
        << c.error;
}

/* A run that was killed, or a copy of a file that grows. */
TEST_F(DiffHashes, ACutFileIsComparedAsFarAsItGoes)
{
    const std::string whole = head() + step(1) + step(2) + kEnd;
    Compared c = diff(head() + step(1), head() + step(1));
    EXPECT_EQ(c.text, "equal to the last bit: 1 step, 19 records\n"
                      "A: the last line is missing: the run did not come to its end, or the file was cut\n"
                      "B: the last line is missing: the run did not come to its end, or the file was cut\n")
        << c.error;
    c = diff(whole, (head() + step(1) + step(2)).substr(0, (head() + step(1)).size() + 30));
    EXPECT_TRUE(c.says("first difference: step 2, micro-batch 0, embedding forward, slice 0 is only in A\n")) << c.text;
    EXPECT_TRUE(c.says("B: line 24 is cut off and was left out\n")) << c.text;
    /* each beginning of a file is compared or refused, and never said to be equal to the whole */
    for (size_t n = 0; n + 1 < whole.size(); n++) {
        c = diff(whole, whole.substr(0, n));
        if (n <= head().size() + record("1 " + kPlaces[0]).size() - 1)
            EXPECT_EQ(c.status, PLAIT_IO) << n;
        else
            EXPECT_TRUE(c.status == PLAIT_OK && (c.says("the last line is missing") || c.says("is cut off")))
                << n << "\n"
                << c.text << c.error;
    }
}

TEST_F(DiffHashes, OtherModelsAreRefusedByWhatDiffers)
{
    const std::string good = head() + step(1) + kEnd;
    const struct {
        std::string model, says;
    } rows[] = {
        {"# model.arch=gpt2 precision.dtype=fp32 model.num_layers=2 model.hidden_size=64\n",
         "A has model.arch=llama, B has model.arch=gpt2: "},
        {"# model.arch=llama precision.dtype=fp32 model.num_layers=24 model.hidden_size=64\n",
         "A has model.num_layers=2, B has model.num_layers=24: "},
        {"# model.arch=llama precision.dtype=fp32 model.num_layers=2 model.hidden_size=6\n",
         "A has model.hidden_size=64, B has model.hidden_size=6: "},
    };
    for (const auto &r : rows) {
        Compared c = diff(good, head(r.model) + step(1) + kEnd);
        EXPECT_EQ(c.status, PLAIT_USAGE) << r.model;
        EXPECT_NE(c.error.find(r.says), std::string::npos) << c.error;
        EXPECT_EQ(c.text, "");
    }
}

TEST_F(DiffHashes, BrokenFilesAreRefusedWithTheirLine)
{
    const std::string good = head() + step(1) + kEnd;
    const auto with = [](const std::string &one) { return head() + one + "\n" + kEnd; };
    const std::string tail = "\t" + hash('0') + "\t0\td0";
    const struct {
        const char *name;
        std::string bytes, says;
    } rows[] = {
        {"other first line", "# plait tensor hash\n", "B, line 1: not '# plait tensor hashes'"},
        {"no head", "# plait tensor hashes\n", "B, line 1: the head of the file is not whole"},
        {"no columns", "# plait tensor hashes\n# a\n# b\n# end\n", "B, line 4: not 'step\tmicro_batch\t"},
        {"nothing", head() + kEnd, "B has no whole record"},
        {"cut in the first record", head() + "1\t0", "B has no whole record"},
        {"columns", with("1\t0\t0\tqkv\tforward\t0\t" + hash('0') + "\t0"), "line 5: not 9 columns"},
        {"too many columns", with("1\t0\t0\tqkv\tforward\t0" + tail + "\tx"), "line 5: not 9 columns"},
        {"empty line", with(""), "line 5: not 9 columns"},
        {"step", with("-1\t0\t0\tqkv\tforward\t0" + tail), "line 5: step is not"},
        {"long step", with("1234567890123456789\t0\t0\tqkv\tforward\t0" + tail), "line 5: step is not"},
        {"micro", with("1\t-\t0\tqkv\tforward\t0" + tail), "line 5: micro_batch is not"},
        {"micro of a gradient", with("1\t0\tw\tgradient\t-\t-" + tail), "line 5: micro_batch is not"},
        {"layer", with("1\t0\thead\tqkv\tforward\t0" + tail), "line 5: layer is not"},
        {"layer of the head", with("1\t0\t0\tlogits\tforward\t0" + tail), "line 5: layer is not"},
        {"no tensor", with("1\t-\t\tgradient\t-\t-" + tail), "line 5: layer is not"},
        {"long tensor", with("1\t-\t" + std::string(96, 'w') + "\tgradient\t-\t-" + tail), "line 5: layer is not"},
        {"operation", with("1\t0\t0\tqkw\tforward\t0" + tail), "line 5: operation is not"},
        {"direction", with("1\t0\t0\tqkv\tsideways\t0" + tail), "line 5: direction is not"},
        {"direction of a weight", with("1\t-\tw\tweight\tforward\t-" + tail), "line 5: direction is not"},
        {"slice", with("1\t0\t0\tqkv\tforward\t-" + tail), "line 5: slice is not"},
        {"slice of the loss", with("1\t0\thead\tloss\tforward\t0" + tail), "line 5: slice is not"},
        {"hash", with("1\t0\t0\tqkv\tforward\t0\t0123456789abcdeF\t0\td0"), "line 5: hash is not"},
        {"short hash", with("1\t0\t0\tqkv\tforward\t0\t0123\t0\td0"), "line 5: hash is not"},
        {"rank", with("1\t0\t0\tqkv\tforward\t0\t" + hash('0') + "\tx\td0"), "line 5: rank is not"},
        {"twice", head() + step(1) + step(1) + kEnd, "line 24: the record is not in the order"},
        {"steps", head() + step(2) + step(1) + kEnd, "line 24: the record is not in the order"},
        {"layers back", head() + record("1 0 0 qkv backward 0") + record("1 0 1 qkv backward 0") + kEnd,
         "line 6: the record is not in the order"},
        {"operations back", head() + record("1 0 0 qkv backward 0") + record("1 0 0 up backward 0") + kEnd,
         "line 6: the record is not in the order"},
        {"slices", head() + record("1 0 0 qkv backward 1") + record("1 0 0 qkv backward 0") + kEnd,
         "line 6: the record is not in the order"},
        {"forward after backward", head() + record("1 0 0 qkv backward 0") + record("1 0 0 qkv forward 0") + kEnd,
         "line 6: the record is not in the order"},
        {"micro-batch after gradients", head() + of_step("1 - w gradient") + record("1 0 0 qkv forward 0") + kEnd,
         "line 6: the record is not in the order"},
        {"after the end", good + "x", "line 25: there is a line after the last"},
    };
    for (const auto &r : rows) {
        Compared c = diff(good, r.bytes);
        EXPECT_EQ(c.status, PLAIT_IO) << r.name << "\n" << c.text;
        EXPECT_NE(c.error.find(r.says), std::string::npos) << r.name << ": " << c.error;
        c = diff(r.bytes, good);
        EXPECT_EQ(c.status, PLAIT_IO) << r.name;
    }
    EXPECT_EQ(diff(good, good).text, "equal to the last bit: 1 step, " + std::to_string(kRecords) + " records\n");
}
