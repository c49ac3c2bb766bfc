/* plait diff on files that runs wrote: exit codes, what is printed where, under mpiexec, and in which memory. */
#include "plait_test.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

namespace
{

class CliDiff : public PlaitTest
{
  protected:
    /* Three steps with an evaluation; NAME.jsonl and NAME.safetensors. */
    void trained(const std::string &name, const Words &overrides = {}, int ranks = 0)
    {
        Outcome o = run(Words{"train", kTiny, "train.train_iters=3", "train.eval_interval=2", "data.split=80,20,0",
                              "logging.metrics_file=" + path(name + ".jsonl"),
                              "checkpoint.save_weights=" + path(name + ".safetensors")} +
                            overrides,
                        ranks);
        ASSERT_EQ(o.code, 0) << text_of(overrides) << "\n" << o;
    }
    Outcome diff(const std::string &a, const std::string &b, int ranks = 0) { return run({"diff", a, b}, ranks); }
    void expect_equal(const Outcome &o, const Words &says = {}) const
    {
        EXPECT_EQ(o.code, 0) << o;
        EXPECT_EQ(o.out.compare(0, 23, "equal to the last bit: "), 0) << o;
        EXPECT_EQ(o.err, "") << o;
        for (const std::string &s : says)
            EXPECT_NE(o.out.find(s), std::string::npos) << "no '" << s << "'\n" << o;
    }
    void expect_different(const Outcome &o, const Words &says) const
    {
        EXPECT_EQ(o.code, 8) << o;
        EXPECT_EQ(o.out.compare(0, 18, "first difference: "), 0) << o;
        EXPECT_NE(o.out.find("\nin both: "), std::string::npos) << o;
        EXPECT_NE(o.err.find("plait: different: "), std::string::npos) << o;
        EXPECT_TRUE(o.left.empty()) << o;
        for (const std::string &s : says)
            EXPECT_NE(o.out.find(s), std::string::npos) << "no '" << s << "'\n" << o;
    }
    void expect_refused(const Outcome &o, int code, const Words &says) const
    {
        EXPECT_EQ(o.code, code) << o;
        EXPECT_EQ(o.out, "") << o;
        for (const std::string &s : says)
            EXPECT_NE(o.err.find(s), std::string::npos) << "no '" << s << "'\n" << o;
    }
};

} // namespace

TEST_F(CliDiff, TheSameRunIsEqualAndAnotherIsNot)
{
    trained("a");
    trained("b");
    trained("lr", {"optimizer.lr=0.002"});
    trained("fp64", {"precision.dtype=fp64"});
    for (int ranks : {0, 2}) {
        expect_equal(diff("a.jsonl", "b.jsonl", ranks), {"3 steps; 2 evaluations\n"});
        expect_equal(diff("a.safetensors", "b.safetensors", ranks), {"39 tensors, 180928 elements\n"});
        /* the first loss is of the weights before any update */
        expect_different(diff("a.jsonl", "lr.jsonl", ranks),
                         {"first difference: step 1, lr, ",
                          "  a.jsonl: 0.001 (0x1.0624dd2f1a9fcp-10)\n  lr.jsonl: 0.002",
                          "3 steps, of which 3 differ (loss 2, grad_norm 2, lr 3)"});
        expect_different(diff("a.safetensors", "lr.safetensors", ranks),
                         {"F32", "39 tensors, of which 39 differ", "largest difference: "});
        expect_different(diff("a.safetensors", "fp64.safetensors", ranks),
                         {": F32 [", ": F64 [", "39 differ (39 in type or shape, not compared); 0 elements"});
    }
}

/* One number a ULP up, where and how far is told. */
TEST_F(CliDiff, AChangedFileIsNamedToTheElementAndTheField)
{
    trained("a", {"train.train_iters=2"});
    float before = 0, after = 0;
    edit_weights(path("a.safetensors"), path("b.safetensors"),
                 [&](const std::string &name, std::vector<double> &values) {
                     if (name != "model.layers.2.mlp.up_proj.weight") /* [128, 64] */
                         return;
                     before = static_cast<float>(values[64 * 77 + 13]);
                     after = std::nextafter(before, std::numeric_limits<float>::infinity());
                     values[64 * 77 + 13] = static_cast<double>(after);
                 });
    char values[256];
    snprintf(values, sizeof values, "  a.safetensors: %.9g (%a)\n  b.safetensors: %.9g (%a)\n",
             static_cast<double>(before), static_cast<double>(before), static_cast<double>(after),
             static_cast<double>(after));
    expect_different(
        diff("a.safetensors", "b.safetensors"),
        {std::string("first difference: model.layers.2.mlp.up_proj.weight [77, 13], F32, 1 ULP\n") + values,
         "in both: 39 tensors, of which 1 differ; 180928 elements compared, of which 1 differ\n",
         std::string("largest difference: model.layers.2.mlp.up_proj.weight [77, 13], F32, 1 ULP\n") + values});

    std::string metrics = read("a.jsonl");
    size_t at = metrics.find("\"grad_norm\":", metrics.find("\"step\":2")) + 12;
    metrics.insert(at, "1"); /* a digit before all others */
    write("b.jsonl", metrics);
    expect_different(diff("a.jsonl", "b.jsonl"),
                     {"first difference: step 2, grad_norm, ", "2 steps, of which 1 differ (grad_norm 1)"});
}

TEST_F(CliDiff, ACutFileIsComparedAsFarAsItGoes)
{
    trained("a");
    const std::string whole = read("a.jsonl");
    const size_t last_step = whole.find("{\"step\":3");
    write("cut.jsonl", whole.substr(0, last_step + 40));
    write("early.jsonl", whole.substr(0, last_step));
    expect_different(diff("a.jsonl", "cut.jsonl"), {"step 3 is only in a.jsonl", "cut.jsonl: line 4 is cut off"});
    expect_different(diff("early.jsonl", "a.jsonl"), {"step 3 is only in a.jsonl", "early.jsonl: the last line is"});
    expect_equal(diff("early.jsonl", "cut.jsonl"), {"2 steps; 1 evaluation\n", "cut.jsonl: line 4 is cut off"});

    write("cut.safetensors", read("a.safetensors").substr(0, 5000));
    expect_refused(diff("a.safetensors", "cut.safetensors"), 5, {"cut.safetensors"});
}

TEST_F(CliDiff, WhatCannotBeComparedIsRefused)
{
    trained("a", {"train.train_iters=1"});
    write("empty", "");
    write("text", "hello\n");
    write("short", "he");
    std::filesystem::create_directory(path("directory"));
    struct {
        const char *a, *b;
        int code;
        Words says;
    } rows[] = {
        {"a.jsonl", "a.safetensors", 2, {"a.jsonl is a metrics file, a.safetensors is a weight file"}},
        {"a.safetensors", "a.jsonl", 2, {"a.safetensors is a weight file, a.jsonl is a metrics file"}},
        {"a.jsonl", "missing", 5, {"missing: No such file"}},
        {"missing", "a.jsonl", 5, {"missing: No such file"}},
        {"a.jsonl", "directory", 5, {"directory"}},
        {"empty", "empty", 5, {"empty is empty"}},
        {"a.jsonl", "empty", 5, {"empty is empty"}},
        {"a.safetensors", "text", 5, {"text is neither a metrics file nor a weight file nor one of tensor hashes"}},
        {"short", "a.jsonl", 5, {"short is neither a metrics file nor a weight file"}},
    };
    for (const auto &r : rows)
        for (int ranks : {0, 2})
            expect_refused(diff(r.a, r.b, ranks), r.code, r.says);
}

TEST_F(CliDiff, ADifferenceThatNobodyCanReadIsAFailure)
{
    trained("a", {"train.train_iters=1"});
    trained("b", {"train.train_iters=1", "train.seed=7"});
    Command c = plait({"diff", "a.jsonl", "b.jsonl"});
    Outcome o = c.output("/dev/full").run();
    EXPECT_EQ(o.code, 5) << o;
    EXPECT_NE(o.err.find("standard output: "), std::string::npos) << o;
    EXPECT_EQ(o.err.find("different"), std::string::npos) << o;
}

/* Two files of 256 MiB of zeros, which take no place on the disk, but for their last element. */
TEST_F(CliDiff, MemoryDoesNotGrowWithTheFiles)
{
    const std::string header = R"({"w":{"dtype":"F32","shape":[8192,8192],"data_offsets":[0,268435456]}})";
    for (const char *name : {"a", "b"}) {
        const std::string length = {static_cast<char>(header.size()), 0, 0, 0, 0, 0, 0, 0};
        write(name, length + header);
        std::filesystem::resize_file(path(name), 8 + header.size() + (size_t{256} << 20));
    }
    {
        std::fstream b(path("b"), std::ios::in | std::ios::out | std::ios::binary);
        b.seekp(-4, std::ios::end);
        b.put(1);
    }
    Outcome o = diff("a", "b");
    expect_different(o,
                     {"first difference: w [8191, 8191], F32, 1 ULP\n  a: 0 (0x0p+0)\n  b: 1.40129846e-45 (0x1p-149)"});
    EXPECT_LT(o.peak_bytes, 100000000);
}
