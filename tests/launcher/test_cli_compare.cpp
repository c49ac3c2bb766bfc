/* plait compare: every way to use some ranks, as planned and as run. */
#include "plait_test.h"

#include <jansson.h>

#include <algorithm>
#include <csignal>
#include <set>
#include <unistd.h>

namespace
{

struct Json {
    json_t *value;

    explicit Json(const std::string &text) : value(json_loads(text.c_str(), 0, nullptr)) {}
    Json(const Json &) = delete;
    Json &operator=(const Json &) = delete;
    ~Json() { json_decref(value); }
};

int64_t whole(json_t *object, const char *key)
{
    EXPECT_TRUE(json_is_integer(json_object_get(object, key))) << key;
    return json_integer_value(json_object_get(object, key));
}

class CliCompare : public PlaitTest
{
  protected:
    /* The variants by name. */
    std::map<std::string, json_t *> variants(const Json &j)
    {
        std::map<std::string, json_t *> all;
        size_t i;
        json_t *one;
        EXPECT_EQ(whole(j.value, "version"), 1);
        json_array_foreach(json_object_get(j.value, "variants"), i, one)
            all[json_string_value(json_object_get(one, "name"))] = one;
        EXPECT_EQ(all.size(), json_array_size(json_object_get(j.value, "variants"))) << "each name once";
        return all;
    }
    static json_t *device(json_t *variant)
    {
        json_t *first = json_array_get(json_object_get(json_object_get(variant, "plan"), "classes"), 0);
        return json_object_get(json_object_get(first, "memory"), "device");
    }
};

} // namespace

TEST_F(CliCompare, EveryWayToUseFourRanksIsRunAndIsAsPlanned)
{
    const Outcome o = run({"compare", kTiny8, "--ranks", "4", "--measure", "--steps", "3", "--json", "c.json"}, 0, 200);
    ASSERT_EQ(o.code, 0) << o;
    const Json j(read("c.json"));
    ASSERT_NE(j.value, nullptr);
    EXPECT_EQ(whole(j.value, "ranks"), 4);
    const auto all = variants(j);
    const std::set<std::string> want = {"tensor 4",
                                        "tensor 4, sequence parallel",
                                        "pipeline 4",
                                        "data 4, ZeRO-0",
                                        "data 4, ZeRO-1",
                                        "data 4, ZeRO-2",
                                        "data 4, ZeRO-3",
                                        "data 4, gather to root",
                                        "tensor 2 x pipeline 2",
                                        "tensor 2 x data 2, ZeRO-3",
                                        "pipeline 2 x data 2, ZeRO-1"};
    for (const std::string &name : want) {
        SCOPED_TRACE(name);
        ASSERT_EQ(all.count(name), 1U);
        json_t *measured = json_object_get(all.at(name), "measured");
        EXPECT_TRUE(json_is_null(json_object_get(all.at(name), "reason")));
        EXPECT_TRUE(json_is_true(json_object_get(measured, "memory_as_planned")));
        EXPECT_TRUE(json_is_true(json_object_get(measured, "communication_as_planned")));
        EXPECT_GT(json_number_value(json_object_get(measured, "step_seconds")), 0);
        int64_t largest = 0;
        size_t i;
        json_t *of_class;
        json_array_foreach(json_object_get(json_object_get(all.at(name), "plan"), "classes"), i, of_class) largest =
            std::max(largest, whole(json_object_get(json_object_get(of_class, "memory"), "device"), "total"));
        EXPECT_EQ(whole(measured, "bytes"), largest);
        EXPECT_NE(o.out.find("\n" + name + " "), std::string::npos) << o.out;
    }
    EXPECT_EQ(all.size(), want.size());
    EXPECT_NE(
        o.out.find("\nMeasured: 11 runs. Bytes held on every rank were as planned in 11 of them, bytes sent in 11.\n"),
        std::string::npos)
        << o.out;
    EXPECT_NE(o.out.find("\nSmallest of all: "), std::string::npos);
    EXPECT_NE(o.out.find("\nFastest: "), std::string::npos);
    EXPECT_NE(o.out.find("\ntensor 4 against data 4, ZeRO-3: parameters "), std::string::npos);

    /* What ZeRO shares, and what the classic data parallelism does not. */
    json_t *zero_0 = device(all.at("data 4, ZeRO-0")), *zero_3 = device(all.at("data 4, ZeRO-3"));
    EXPECT_LT(whole(zero_3, "parameters"), whole(zero_0, "parameters"));
    EXPECT_LT(whole(device(all.at("data 4, ZeRO-2")), "gradients"), whole(zero_0, "gradients"));
    EXPECT_EQ(whole(device(all.at("data 4, ZeRO-1")), "optimizer") * 4, whole(zero_0, "optimizer"));
    EXPECT_EQ(whole(device(all.at("data 4, gather to root")), "optimizer"), whole(zero_0, "optimizer"));
}

TEST_F(CliCompare, WhatTheModelDoesNotAllowHasItsReason)
{
    const Outcome o = run({"compare", kTiny8, "--ranks", "16", "batch.global_batch_size=8", "--json", "c.json"});
    ASSERT_EQ(o.code, 0) << o;
    const Json j(read("c.json"));
    const auto all = variants(j);
    for (const char *name : {"tensor 16", "data 16, ZeRO-0"}) {
        ASSERT_EQ(all.count(name), 1U) << name;
        EXPECT_TRUE(json_is_string(json_object_get(all.at(name), "reason"))) << name;
        EXPECT_TRUE(json_is_null(json_object_get(all.at(name), "plan"))) << name;
    }
    EXPECT_NE(o.out.find("not possible:\n  tensor 16: "), std::string::npos) << o.out;
    EXPECT_NE(o.out.find("model.num_attention_heads 8"), std::string::npos) << o.out;
    EXPECT_NE(o.out.find("\n  data 16, ZeRO-0: batch.global_batch_size 8 is not a multiple of "), std::string::npos)
        << "whose override that was is not said: most are the comparison's own\n"
        << o.out;
}

/* As far as the model goes: with pipeline stages where its heads are too few. */
TEST_F(CliCompare, TensorParallelismIsHeldAgainstZero3)
{
    const Outcome o = run({"compare", kTiny8, "--ranks", "16", "batch.global_batch_size=16"});
    ASSERT_EQ(o.code, 0) << o;
    EXPECT_NE(o.out.find("\ntensor 8 x pipeline 2 against data 16, ZeRO-3: parameters "), std::string::npos) << o;
}

/* Of two ranks' all-reduce each sends the buffer once, in the type in which gradients travel. */
TEST_F(CliCompare, SentIsWhatTravels)
{
    int64_t sent[2];
    int64_t elements = 0;
    for (const bool narrow : {false, true}) {
        const Outcome o = run({"compare", kTiny8, "--ranks", "2", "precision.dtype=bf16", "--json", "c.json",
                               std::string("precision.communication_data_type=") + (narrow ? "bf16" : "fp32")});
        ASSERT_EQ(o.code, 0) << o;
        const Json j(read("c.json"));
        json_t *one = variants(j).at("data 2, ZeRO-0");
        sent[narrow] = whole(one, "sent_bytes");
        elements = whole(json_array_get(json_object_get(json_object_get(one, "plan"), "classes"), 0), "elements");
    }
    EXPECT_EQ(sent[false] - sent[true], 2 * elements);
    EXPECT_GT(sent[true], 2 * elements);
}

/* A pipeline with one micro-batch is the naive one. */
TEST_F(CliCompare, ThePipelineGetsAsManyMicroBatchesAsStages)
{
    const Outcome o = run({"compare", kTiny8, "--ranks", "2", "batch.micro_batch_size=8", "batch.global_batch_size=8",
                           "--json", "c.json"});
    ASSERT_EQ(o.code, 0) << o;
    const Json j(read("c.json"));
    const auto all = variants(j);
    auto keys = [&](const char *name) {
        std::set<std::string> s;
        size_t i;
        json_t *key;
        json_array_foreach(json_object_get(all.at(name), "overrides"), i, key) s.insert(json_string_value(key));
        return s;
    };
    EXPECT_TRUE(keys("pipeline 2").count("batch.micro_batch_size=4"));
    EXPECT_TRUE(keys("pipeline 2, naive").count("batch.micro_batch_size=8"));
    EXPECT_TRUE(keys("tensor 2").count("batch.micro_batch_size=8"));
    EXPECT_TRUE(keys("data 2, ZeRO-3").count("batch.micro_batch_size=4"));
}

TEST_F(CliCompare, ARunThatFailsIsSaidAndTheOthersGoOn)
{
    const Outcome o = run({"compare", kTiny8, "--ranks", "2", "device.memory_limit=38MB", "--measure", "--steps", "3",
                           "--json", "c.json"},
                          0, 120);
    ASSERT_EQ(o.code, 2) << "MB is no unit of a size\n" << o;
    const Outcome p = run({"compare", kTiny8, "--ranks", "2", "device.memory_limit=36MiB", "--measure", "--steps", "3",
                           "--json", "c.json"},
                          0, 120);
    ASSERT_EQ(p.code, 0) << p;
    const Json j(read("c.json"));
    int ran = 0, failed = 0;
    for (const auto &[name, one] : variants(j)) {
        json_t *measured = json_object_get(one, "measured");
        const char *failure = json_string_value(json_object_get(measured, "failure"));
        const bool fits = json_is_true(json_object_get(json_object_get(one, "plan"), "fits"));
        EXPECT_EQ(fits, failure == nullptr) << name;
        ran += fits;
        failed += !fits;
        EXPECT_TRUE(fits || std::string(failure).find("it ended with 3: plait: out of memory: ") == 0) << failure;
    }
    EXPECT_GT(ran, 0);
    EXPECT_GT(failed, 0);
}

/* With a limit the fastest is one that fits, and who does not is marked. */
TEST_F(CliCompare, WhatDoesNotFitIsNotTheFastest)
{
    const std::string machine = source("configs/machines/h100-sxm.yaml");
    const Outcome o = run({"compare", kTiny8, "--ranks", "2", "--machine", machine, "device.memory_limit=36MiB"});
    ASSERT_EQ(o.code, 0) << o;
    const std::string says = "\nFastest of those that fit: ";
    const size_t at = o.out.find(says), name = at + says.size();
    ASSERT_NE(at, std::string::npos) << o;
    const std::string fastest = o.out.substr(name, o.out.find(',', name) - name);
    const size_t row = o.out.find("\n" + fastest);
    ASSERT_NE(row, std::string::npos) << fastest << "\n" << o;
    EXPECT_EQ(o.out.substr(row + 1, o.out.find('\n', row + 1) - row).find("does not fit"), std::string::npos) << o;
    EXPECT_NE(o.out.find("  does not fit\n"), std::string::npos) << o;
    EXPECT_NE(o.out.find(" fit in device.memory_limit 37,748,736.\n"), std::string::npos) << o;
    EXPECT_NE(o.out.find("\nTimes are predicted on "), std::string::npos) << o;
    const Outcome none =
        run({"compare", "--device-memory", "1MiB", kTiny8, "--ranks", "2", "--json", "c.json", "--html", "c.html"});
    EXPECT_EQ(none.code, 3) << none;
    EXPECT_NE(none.err.find("variants fits device.memory_limit 1048576\n"), std::string::npos) << none;
    EXPECT_TRUE(exists("c.json") && exists("c.html")) << "all is written";
    EXPECT_NE(none.out.find("\n0 of "), std::string::npos) << none;
}

TEST_F(CliCompare, ThatNothingCouldBeMeasuredIsAFailure)
{
    for (const char *command : {"false", " env  false"}) {
        const Outcome o = run({"compare", kTiny8, "--ranks", "2", "--measure", "--mpiexec", command}, 0, 120);
        EXPECT_EQ(o.code, 5) << o;
        EXPECT_NE(o.err.find("none of the runs could be measured; the first: it ended with 1 and said nothing"),
                  std::string::npos)
            << o;
    }
    const Outcome blank = run({"compare", kTiny8, "--ranks", "2", "--measure", "--mpiexec", " "});
    EXPECT_EQ(blank.code, 2) << blank;
    EXPECT_NE(blank.err.find("--mpiexec: no command"), std::string::npos) << blank;
}

TEST_F(CliCompare, WritesOverNothingThatItReads)
{
    const std::string text = write("mine.txt", std::string(100000, 'a'));
    const std::string own = write("own.yaml", "model: {hidden_size: 32, num_layers: 2, num_attention_heads: 4, "
                                              "seq_length: 16, vocab_size: 257}\ndata: {data_path: mine.txt}\n");
    const struct {
        Words args;
        const char *says;
    } rows[] = {
        {{"compare", own, "--ranks", "2", "--json", own}, "--json is the same file as the configuration"},
        {{"compare", own, "--ranks", "2", "--html", text}, "--html is the same file as the text"},
        {{"compare", own, "--ranks", "2", "--json", "x", "--html", "./x"}, "--html is the same file as --json"},
        {{"plan", own, "--ranks", "2", "--html", own}, "--html is the same file as the configuration"},
        {{"plan", own, "--ranks", "2", "--html", text}, "--html is the same file as the text"},
        {{"plan", own, "logging.metrics_file=m.jsonl", "--html", "m.jsonl"}, "the same file as logging.metrics_file"},
        {{"compare", own, "checkpoint.load_weights=mine.txt", "--ranks", "2", "--json", "w.txt",
          "checkpoint.save_weights=w.txt"},
         "--json is the same file as checkpoint.save_weights"},
    };
    for (const auto &r : rows) {
        const Outcome o = run(r.args);
        EXPECT_EQ(o.code, 2) << text_of(r.args) << "\n" << o;
        EXPECT_NE(o.err.find(r.says), std::string::npos) << text_of(r.args) << "\n" << o;
    }
    EXPECT_EQ(read("mine.txt"), std::string(100000, 'a'));
    EXPECT_NE(read("own.yaml").find("hidden_size"), std::string::npos);
}

/* What a run of the configuration writes is not touched by runs that are only measured. */
TEST_F(CliCompare, MeasuredRunsLeaveTheFilesOfTheConfiguration)
{
    for (const char *file : {"w.safetensors", "m.jsonl", "h.tsv"})
        write(file, "keep");
    const Outcome o =
        run({"compare", kTiny, "--ranks", "2", "--measure", "--steps", "3", "logging.metrics_file=m.jsonl",
             "checkpoint.save_weights=w.safetensors", "debug.tensor_hashes=h.tsv", "numerics.reduction=invariant"},
            0, 200);
    EXPECT_EQ(o.code, 0) << o;
    for (const char *file : {"w.safetensors", "m.jsonl", "h.tsv"})
        EXPECT_EQ(read(file), "keep") << file;
}

TEST_F(CliCompare, BadArgumentsAndFilesAreRefused)
{
    const struct {
        Words args;
        int ranks, code;
        const char *says;
    } rows[] = {
        {{"compare"}, 0, 2, "usage: plait compare"},
        {{"compare", kTiny8, "--what"}, 0, 2, "unknown option --what"},
        {{"compare", kTiny8, "--ranks"}, 0, 2, "--ranks takes a whole number from 1 to 65536, not nothing"},
        {{"compare", kTiny8, "--ranks", "0"}, 0, 2, "--ranks"},
        {{"compare", kTiny8, "--steps", "2", "--measure"}, 0, 2, "--steps"},
        {{"compare", kTiny8, "--steps", "5"}, 0, 2, "they come with --measure"},
        {{"compare", kTiny8, "--mpiexec", "mpirun"}, 0, 2, "they come with --measure"},
        {{"compare", "nothing.yaml", "--ranks", "2"}, 0, 5, "nothing.yaml"},
        {{"compare", kTiny8, "model.hidden_size=wide", "--ranks", "2"}, 0, 2, "model.hidden_size"},
        {{"compare", kTiny8, "--ranks", "2", "--machine", "nothing.yaml"}, 0, 5, "nothing.yaml"},
        {{"compare", kTiny8, "--ranks", "2", "--json", "nowhere/c.json"}, 0, 5, "nowhere/c.json"},
        {{"compare", kTiny8, "--ranks", "2", "--measure", "--mpiexec", "no-such-program"}, 0, 5, "no-such-program"},
        {{"compare", kTiny8, "--ranks", "2"}, 2, 2, "is not to be started under mpiexec"},
    };
    for (const auto &r : rows) {
        const Outcome o = run(r.args, r.ranks);
        EXPECT_EQ(o.code, r.code) << text_of(r.args) << "\n" << o;
        EXPECT_NE(o.err.find(r.says), std::string::npos) << text_of(r.args) << "\n" << o;
    }
}

/* A signal ends the run that is measured too: no process is left. */
TEST_F(CliCompare, ASignalEndsTheRunsToo)
{
    Command c = plait({"compare", kTiny8, "--ranks", "2", "--measure", "--steps", "100000"});
    c.limit(60);
    c.start();
    for (int i = 0; i < 200 && c.rank(1) < 0; i++)
        usleep(50000);
    ASSERT_GT(c.rank(1), 0);
    kill(c.pid(), SIGTERM);
    const Outcome o = c.wait();
    EXPECT_EQ(o.code, 7) << o;
    EXPECT_TRUE(o.left.empty()) << o;
    EXPECT_NE(o.err.find("signal 15 while tensor 2 was measured"), std::string::npos) << o;
}
