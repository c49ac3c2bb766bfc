/* How a run ends when something goes wrong: the exit code of the first cause, its sentence, nothing left running. */
#include "plait_test.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace
{

const Words kEndless = {"train.train_iters=1000000"};

class CliFailures : public PlaitTest
{
  protected:
    void expect_end(const Outcome &o, int code, const Words &says, const std::string &what)
    {
        EXPECT_EQ(o.code, code) << what << "\n" << o;
        EXPECT_FALSE(o.timed_out) << what << "\n" << o;
        EXPECT_TRUE(o.left.empty()) << what << "\n" << o;
        for (const std::string &s : says)
            EXPECT_NE(o.err.find(s), std::string::npos) << what << ": no '" << s << "'\n" << o;
    }
    void expect_no_step(const Outcome &o, const std::string &what)
    {
        EXPECT_EQ(o.out.find("iteration"), std::string::npos) << what << "\n" << o;
    }
    int files() const
    {
        int n = 0;
        for (auto it = std::filesystem::directory_iterator(directory()); it != std::filesystem::directory_iterator();
             ++it)
            n++;
        return n;
    }
    /* mpiexec with an own command line for each rank. */
    Command ranks(const std::vector<Words> &each) const
    {
        Words all = {mpiexec()};
        for (size_t i = 0; i < each.size(); i++)
            all = all + (i ? Words{":"} : Words{}) + each[i];
        Command c(all);
        c.in(directory()).limit(30);
        return c;
    }
    Words one(const Words &args) const { return Words{"-n", "1", plait_binary()} + args; }
    /* A rank of its own directory, as on another machine. */
    Words training_in(const std::string &where, const Words &overrides) const
    {
        return Words{"-n", "1", "-wdir", path(where), plait_binary(), "train", kTiny} + overrides;
    }
};

size_t count(const std::string &text, const std::string &what)
{
    size_t n = 0;
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size())
        n++;
    return n;
}

} // namespace

/* ---- 2: configuration ---- */

TEST_F(CliFailures, ARunForFourRanksSaysHowManyThereAre)
{
    Words args = {"train",
                  kTiny,
                  "parallelism.tp=2",
                  "parallelism.pp=2",
                  "parallelism.dp=1",
                  "checkpoint.save_weights=" + path("w.safetensors"),
                  "logging.metrics_file=" + path("m.jsonl")};
    for (int started : {0, 3, 8}) {
        std::string what = std::to_string(started) + " ranks";
        Outcome o = run(args, started, 20);
        expect_end(
            o, 2,
            {"= 4 ranks are needed", started ? "but there are " + std::to_string(started) + " (" : "but there is 1 ("},
            what);
        EXPECT_LT(o.seconds, 5) << what;
        EXPECT_EQ(count(o.err, "plait: "), 1u) << what << "\n" << o;
        expect_no_step(o, what);
        EXPECT_EQ(files(), 0) << what;
    }
}

TEST_F(CliFailures, ABatchThatTheRanksCannotMakeIsRefusedWithItsNumbers)
{
    Words args = {"train",
                  kTiny,
                  "parallelism.tp=2",
                  "batch.global_batch_size=16",
                  "batch.micro_batch_size=2",
                  "batch.gradient_accumulation_steps=3"};
    Outcome o = run(args, 4, 20);
    expect_end(o, 2, {"16 != 2 * 3 * 2", "(data 2 = 4 ranks / (tensor 2 * pipeline 1))"}, text_of(args));
    EXPECT_EQ(count(o.err, "plait: "), 1u) << o;
    expect_no_step(o, text_of(args));
}

TEST_F(CliFailures, RanksThatWereToldDifferentThingsAreRefused)
{
    std::string other = write("other.yaml", read("none"));
    Words good = one({"train", kTiny});
    struct {
        const char *name;
        Words second;
        int code;
        Words says;
    } rows[] = {
        {"missing_file", one({"train", path("missing.yaml")}), 5, {"rank 1", "missing.yaml"}},
        {"bad_flag", one({"--frobnicate"}), 2, {"--frobnicate"}},
        {"unknown_key", one({"train", kTiny, "train.sed=1"}), 2, {"rank 1", "sed"}},
        {"other_seed", one({"train", kTiny, "train.seed=99"}), 2, {"train.seed", "1234", "99"}},
        {"other_tp", one({"train", kTiny, "parallelism.tp=2"}), 2, {"tensor_model_parallel_size"}},
        {"other_command", one({"version"}), 2, {"rank"}},
        {"no_config", one({"train"}), 2, {"usage"}},
    };
    for (const auto &r : rows) {
        Outcome o = ranks({good, r.second}).run();
        expect_end(o, r.code, r.says, r.name);
        EXPECT_LT(o.seconds, 10) << r.name;
        expect_no_step(o, r.name);
    }
}

/* Another MPI's mpiexec starts four lonely ranks. */
TEST_F(CliFailures, AForeignLauncherIsRecognised)
{
    Command c = plait({"train", kTiny});
    Outcome o = c.set("OMPI_COMM_WORLD_SIZE", "4").set("OMPI_COMM_WORLD_RANK", "0").run();
    expect_end(o, 2, {"OMPI_COMM_WORLD_SIZE", "4"}, "four ranks of Open MPI");
    expect_no_step(o, "four ranks of Open MPI");
}

/* ---- 3: memory ---- */

TEST_F(CliFailures, ALimitJustBelowThePlanIsRefusedAndThePlanItselfRuns)
{
    Words two = {"train.train_iters=1", "parallelism.tp=2"};
    Metrics m = train(kTiny, two, 2).metrics;
    int64_t plan = 0;
    for (int rank : {0, 1})
        plan = std::max(plan, m.planned(rank, ""));
    ASSERT_GT(plan, 0);
    std::string weights = path("w.safetensors"), metrics = path("limited.jsonl");
    int before = files();
    Outcome o = run(Words{"train", kTiny, "device.memory_limit=" + std::to_string(plan - 1),
                          "checkpoint.save_weights=" + weights, "logging.metrics_file=" + metrics} +
                        two,
                    2);
    expect_end(o, 3, {"device.memory_limit " + std::to_string(plan - 1), std::to_string(plan), "optimizer"}, "below");
    expect_no_step(o, "below");
    EXPECT_EQ(files(), before) << "something was written";
    train(kTiny, two + Words{"device.memory_limit=" + std::to_string(plan)}, 2);
}

TEST_F(CliFailures, AWorkspaceTooSmallForAttentionIsSaidBeforeTheFirstStep)
{
    for (int ranks : {0, 2}) {
        Outcome o = run({"train", kTiny, "device.workspace=4KiB"}, ranks);
        expect_end(o, 3, {"device.workspace 4096 bytes: attention with head_dim 16 needs "}, "too little");
        expect_no_step(o, "too little");
    }
}

/* Memory that is given page by page: a rank that touches what is not there would end by a signal. */
TEST_F(CliFailures, SharedMemoryThatANodeLacksIsSaidBeforeItIsTouched)
{
    const std::string script = "mount -t tmpfs -o size=160m tmpfs /dev/shm && exec \"$0\" \"$@\"";
    const Words own_mounts = {"unshare", "--mount", "/bin/sh", "-c", script};
    if (Command({"unshare", "--mount", "true"}).run().code != 0)
        GTEST_SKIP() << "a mount of one's own is not allowed here";
    /* Each of the two data groups has room for its windows, the two together have not: a head of 32 MiB a rank. */
    const Words wide = {"parallelism.tp=2",       "model.vocab_size=65536",
                        "model.hidden_size=256",  "train.train_iters=1",
                        "comm.chunk_bytes=32MiB", "model.ffn_hidden_size=64",
                        "model.seq_length=8",     "device.kernels=ref",
                        "model.num_layers=1",     "model.make_vocab_size_divisible_by=1"};
    Command c(own_mounts + Words{mpiexec(), "-n", "4", plait_binary(), "train", kTiny} + wide);
    Outcome o = c.in(directory()).run();
    expect_end(o, 3, {"the 4 ranks of a node exchange through", "/dev/shm has", "comm.chunk_bytes"}, "4 ranks");
    expect_no_step(o, "4 ranks");
}

/* ---- 4: numbers ---- */

TEST_F(CliFailures, ANonFiniteWeightEndsTheRunWithItsStep)
{
    std::string good = path("good.safetensors"), bad = path("bad.safetensors"), after = path("after.safetensors");
    train(kTiny, {"train.train_iters=1", "checkpoint.save_weights=" + good});
    for (double value : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
        edit_weights(good, bad, [&](const std::string &name, std::vector<double> &v) {
            if (name == "model.layers.1.mlp.up_proj.weight")
                v[5] = value;
        });
        for (const Words &grid : {Words{}, Words{"parallelism.pp=2"}, Words{"parallelism.tp=2"}}) {
            Outcome o = run(Words{"train", kTiny, "train.train_iters=5", "checkpoint.load_weights=" + bad,
                                  "checkpoint.save_weights=" + after} +
                                grid,
                            grid.empty() ? 0 : 2);
            expect_end(o, 4, {"step 1", "not finite"}, text_of(grid));
            EXPECT_EQ(count(o.err, "plait: "), 1u) << "one message\n" << o;
            EXPECT_FALSE(exists("after.safetensors")) << text_of(grid);
        }
    }
}

/* ---- 5: files ---- */

TEST_F(CliFailures, OutputsThatCannotBeWrittenAreRefusedBeforeTheFirstStep)
{
    Words rows[] = {
        {"checkpoint.save_weights=" + path("no/such/w.safetensors"), "no/such/w.safetensors"},
        {"checkpoint.save_weights=" + directory(), directory()},
        {"checkpoint.save_weights=/proc/w.safetensors", "/proc/w.safetensors"},
        {"logging.metrics_file=" + path("no/such/m.jsonl"), "no/such/m.jsonl"},
        {"logging.metrics_file=" + directory(), directory()},
    };
    for (const Words &r : rows)
        for (int n : {0, 2}) {
            Outcome o = run({"train", kTiny, r[0]}, n);
            expect_end(o, 5, {r[1]}, r[0]);
            expect_no_step(o, r[0]);
            EXPECT_EQ(files(), 0) << r[0];
        }
}

/* Under whatever name: what is there stays as it is. */
TEST_F(CliFailures, OutputsThatAreInputsAreRefusedBeforeAnythingIsWritten)
{
    const std::string text = std::string(5000, 'x');
    write("a", text);
    ASSERT_EQ(symlink("a", path("soft").c_str()), 0);
    ASSERT_EQ(link(path("a").c_str(), path("hard").c_str()), 0);
    const std::string config = "model: {arch: llama}\ndata:\n  data_path: a\n";
    const std::string file = write("run.yaml", config);
    struct {
        std::string override;
        Words says;
    } rows[] = {
        {"logging.metrics_file=./a", {"logging.metrics_file", "data.data_path", "run.yaml:3"}},
        {"logging.metrics_file=soft", {"logging.metrics_file", "data.data_path", "run.yaml:3"}},
        {"logging.metrics_file=" + path("hard"), {"logging.metrics_file", "data.data_path", "run.yaml:3"}},
        {"checkpoint.save_weights=soft", {"checkpoint.save_weights", "data.data_path", "run.yaml:3"}},
        {"logging.metrics_file=run.yaml", {"logging.metrics_file", "configuration file"}},
        {"checkpoint.save_weights=./run.yaml", {"checkpoint.save_weights", "configuration file"}},
    };
    for (const auto &r : rows) {
        for (int n : {0, 2}) {
            Outcome o = run({"train", file, r.override}, n);
            expect_end(o, 2, r.says, r.override);
            expect_no_step(o, r.override);
        }
        expect_end(run({"config", file, r.override}), 2, r.says, r.override);
        EXPECT_EQ(read("a"), text) << r.override;
        EXPECT_EQ(read("run.yaml"), config) << r.override;
        EXPECT_EQ(files(), 4) << r.override;
    }
}

/* /dev/full can be opened; what is written to it fails as on a full disk. */
TEST_F(CliFailures, ADiskThatFillsUnderWayEndsTheRun)
{
    Words endless = Words{"train", kTiny, "logging.metrics_file=/dev/full"} + kEndless;
    for (int n : {0, 2}) {
        Outcome o = run(endless, n);
        expect_end(o, 5, {"logging.metrics_file /dev/full", "No space left"}, text_of(endless));
        EXPECT_EQ(count(o.err, "plait: "), 1u) << o;
    }
}

/* A disk for a file of 64 KiB: training ends, but is not lost, and the file ends with a whole line. */
TEST_F(CliFailures, MetricsThatNoLongerFitLeaveWeightsAndWholeLines)
{
    const std::string script = "mkdir small && mount -t tmpfs -o size=64k tmpfs small && \"$0\" \"$@\"; code=$?; "
                               "cp small/m.jsonl . && umount small && rmdir small && exit $code";
    const Words own_mounts = {"unshare", "--mount", "/bin/sh", "-c", script};
    const std::string weights = path("w.safetensors");
    Command c(own_mounts +
              Words{mpiexec(), "-n", "2", plait_binary(), "train", kTiny, "parallelism.pp=2",
                    "logging.metrics_file=small/m.jsonl", "checkpoint.save_weights=" + weights} +
              kEndless);
    if (Command({"unshare", "--mount", "true"}).run().code != 0)
        GTEST_SKIP() << "a mount of one's own is not allowed here";
    Outcome o = c.in(directory()).run();
    expect_end(o, 5, {"logging.metrics_file ", "small/m.jsonl: No space left"}, "2 ranks");
    EXPECT_EQ(count_elements(read_weights(weights)), 180928);
    const std::string lines = read("m.jsonl");
    ASSERT_GT(count(lines, "\n"), 100u);
    EXPECT_EQ(count(lines, "\n"), count(lines, "}"));
    EXPECT_EQ(lines.back(), '\n');
}

TEST_F(CliFailures, AFileBeyondTheLimitOfItsSizeIsAnErrorNotASignal)
{
    const auto limited = [&](const std::string &redirect, const Words &args) {
        Command c(Words{"/bin/sh", "-c", "ulimit -f 16384 && exec \"$0\" \"$@\"" + redirect, plait_binary()} + args);
        return c.in(directory()).run();
    };
    const std::string weights = path("w.safetensors"), full = write("full", "");
    std::filesystem::resize_file(full, 8 << 20);
    expect_end(limited(" >> full", {"config", kTiny}), 5, {"standard output: "}, "standard output");
    std::filesystem::remove(full);
    expect_end(limited("", {"train", kTiny, "train.train_iters=1", "model.vocab_size=32768",
                            "checkpoint.save_weights=" + weights}),
               5, {weights, "above the process's file size limit of 8388608"}, "weights");
    EXPECT_EQ(files(), 0);
}

TEST_F(CliFailures, OutputThatNobodyCanReadIsAFailure)
{
    const std::string weights = path("w.safetensors");
    train(kTiny, {"train.train_iters=1", "checkpoint.save_weights=" + weights});
    for (const Words &args : {Words{"config", kTiny}, Words{"config", kTiny, "--json"}, Words{"config", "--reference"},
                              Words{"version"}, Words{"diff", weights, weights}, Words{"help"},
                              Words{"train", "--help"}, Words{"train", kTiny, "train.train_iters=1"},
                              Words{"generate", weights, kTiny, "--prompt", "x", "--bytes", "1"}}) {
        Command c = plait(args);
        Outcome o = c.output("/dev/full").run();
        expect_end(o, 5, {"file: standard output: "}, text_of(args));
        EXPECT_EQ(count(o.err, "plait: "), 1u) << o;

        /* without one: no socket or file of the program may take its place */
        Words closed = {"sh", "-c", "exec \"$0\" \"$@\" >&-", plait_binary()};
        o = Command(closed + args).in(directory()).run();
        expect_end(o, 5, {"file: standard output: "}, text_of(args) + " >&-");
        EXPECT_EQ(count(o.err, "plait: "), 1u) << o;
    }
}

/* A file or socket that the program opens must not get the number of a stream that it was started without. */
TEST_F(CliFailures, ClosedStreamsAreNotReused)
{
    Words closed = {"sh", "-c", "exec \"$0\" \"$@\" <&- >&- 2>&-", plait_binary()};
    Outcome o = Command(closed + Words{"train", kTiny, "train.train_iters=1", "logging.metrics_file=m.jsonl",
                                       "checkpoint.save_weights=w.safetensors"})
                    .in(directory())
                    .run();
    EXPECT_EQ(o.code, 5) << o;
    EXPECT_EQ(read("m.jsonl"), "") << "said before the first step";
    EXPECT_FALSE(exists("w.safetensors"));
}

TEST_F(CliFailures, DataThatCannotBeUsedIsNamed)
{
    write("short.txt", "ten bytes.");
    write("empty.txt", "");
    struct {
        const char *name;
        Words args;
        int code;
        Words says;
    } rows[] = {
        {"missing", {"data.data_path=" + path("missing.txt")}, 5, {"missing.txt"}},
        {"directory", {"data.data_path=" + directory()}, 5, {directory()}},
        {"short", {"data.data_path=" + path("short.txt")}, 2, {"11", "33"}},
        {"empty", {"data.data_path=" + path("empty.txt")}, 2, {"empty.txt is empty"}},
        {"no_validation", {"data.split=1,0,0", "train.eval_interval=1"}, 2, {"validation"}},
        {"small_vocabulary", {"model.vocab_size=256"}, 2, {"256", "257"}},
        {"weights_missing", {"checkpoint.load_weights=" + path("missing.safetensors")}, 5, {"missing.safetensors"}},
        {"weights_empty", {"checkpoint.load_weights=" + path("empty.txt")}, 5, {"empty.txt"}},
    };
    for (const auto &r : rows) {
        Outcome o = run(Words{"train", kTiny} + r.args);
        expect_end(o, r.code, r.says, r.name);
        expect_no_step(o, r.name);
    }
    Outcome none = run({"train", write("none.yaml", "model: {arch: llama}\n")});
    expect_end(none, 2, {"data.data_path"}, "no data");
}

TEST_F(CliFailures, WeightsOfAnotherModelAreRefusedWithNamesAndShapes)
{
    std::string weights = path("w.safetensors");
    train(kTiny, {"train.train_iters=1", "checkpoint.save_weights=" + weights});
    struct {
        const char *name;
        Words args, says;
    } rows[] = {
        {"wider", {"model.hidden_size=128"}, {"[257, 64]", "[257, 128]"}},
        {"deeper", {"model.num_layers=5"}, {"model.layers.4."}},
        {"shallower", {"model.num_layers=3"}, {"model.layers.3."}},
        {"tied", {"model.tie_word_embeddings=true"}, {"lm_head.weight", "tie_word_embeddings"}},
        {"gpt2", {"model.arch=gpt2", "model.num_query_groups=4"}, {"transformer."}},
    };
    for (const auto &r : rows)
        for (int n : {0, 2}) {
            Outcome o = run(Words{"train", kTiny, "checkpoint.load_weights=" + weights} + r.args, n);
            expect_end(o, 5, r.says, r.name);
            expect_no_step(o, r.name);
        }
}

/* Two machines, one without the data. */
TEST_F(CliFailures, AFileThatOneRankLacksIsNamedWithTheRank)
{
    ASSERT_EQ(Command({"mkdir", path("a"), path("b")}).run().code, 0);
    write("a/text.txt", std::string(5000, 'x'));
    auto in = [&](const char *where) { return training_in(where, {"data.data_path=text.txt"}); };
    Outcome o = ranks({in("a"), in("b")}).run();
    expect_end(o, 5, {"rank 1", "text.txt"}, "second rank without data");
    expect_no_step(o, "second rank without data");
    write("b/text.txt", std::string(20, 'x')); /* truncated */
    o = ranks({in("a"), in("b")}).run();
    expect_end(o, 2, {"rank 1", "21"}, "second rank with less data");
    write("b/text.txt", std::string(5000, 'x'));
    Outcome well = ranks({in("a") + Words{"train.train_iters=1"}, in("b") + Words{"train.train_iters=1"}}).run();
    expect_end(well, 0, {}, "both have it");
}

TEST_F(CliFailures, DataThatDiffersByRankIsRefused)
{
    ASSERT_EQ(Command({"mkdir", path("a"), path("b")}).run().code, 0);
    write("a/text.txt", std::string(5000, 'x'));
    write("b/text.txt", std::string(4000, 'x'));
    auto in = [&](const char *where) { return training_in(where, {"data.data_path=text.txt", "train.train_iters=1"}); };
    Outcome o = ranks({in("a"), in("b")}).run();
    expect_end(o, 5, {"text.txt", "5000", "4000"}, "another length");
    std::string same_length(5000, 'x');
    same_length[2500] = 'y';
    write("b/text.txt", same_length);
    o = ranks({in("a"), in("b")}).run();
    expect_end(o, 5, {"text.txt"}, "one other byte");
    expect_no_step(o, "one other byte");
}

/* An older copy of the weights on the second machine. */
TEST_F(CliFailures, WeightsThatDifferByRankAreRefused)
{
    ASSERT_EQ(Command({"mkdir", path("a"), path("b")}).run().code, 0);
    auto made = [&](const char *where, const char *seed) {
        return run({"train", kTiny, "train.train_iters=1", seed,
                    "checkpoint.save_weights=" + path(std::string(where) + "/w.safetensors")});
    };
    auto in = [&](const char *where) {
        return training_in(where, {"train.train_iters=1", "checkpoint.load_weights=w.safetensors"});
    };
    expect_end(made("a", "train.seed=1"), 0, {}, "first weights");
    expect_end(made("b", "train.seed=2"), 0, {}, "other weights");
    Outcome o = ranks({in("a"), in("b")}).run();
    expect_end(o, 5, {"w.safetensors", "other weights here than on rank 0", "rank 1"}, "another copy");
    expect_no_step(o, "another copy");
    expect_end(made("b", "train.seed=1"), 0, {}, "the same weights");
    expect_end(ranks({in("a"), in("b")}).run(), 0, {}, "equal copies");
}

TEST_F(CliFailures, DataTruncatedUnderWayDoesNotMatter)
{
    std::string text = write("text.txt", std::string(5000, 'x'));
    Command c = plait(Words{"train", kTiny, "train.train_iters=200", "data.data_path=" + text}, 2);
    c.start();
    ASSERT_TRUE(c.wait_for("iteration        2/"));
    write("text.txt", "");
    expect_end(c.wait(), 0, {}, "truncated");
}

/* ---- 6: peers ---- */

TEST_F(CliFailures, AStalledPeerEndsTheRun)
{
    Command c = plait(Words{"train", kTiny, "parallelism.tp=2", "comm.distributed_timeout_minutes=0.03"} + kEndless, 2);
    c.limit(40).start();
    ASSERT_TRUE(c.wait_for("iteration        2/"));
    pid_t stalled = c.rank(1);
    ASSERT_GT(stalled, 0);
    ASSERT_EQ(kill(stalled, SIGSTOP), 0);
    ASSERT_TRUE(!c.wait_for("never said"));
    Outcome o = c.wait();
    kill(stalled, SIGCONT);
    EXPECT_EQ(o.code, 6) << o;
    EXPECT_FALSE(o.timed_out) << o;
    EXPECT_TRUE(o.left.empty()) << o;
    EXPECT_NE(o.err.find(" has stood still for "), std::string::npos) << "what waited\n" << o;
    EXPECT_NE(o.err.find("[d0 p0 t0]"), std::string::npos) << "the rank that waited\n" << o;
}

TEST_F(CliFailures, AKilledRankEndsTheRunOnEveryGrid)
{
    for (const Words &grid : {Words{"parallelism.tp=2"}, Words{"parallelism.pp=2"}, Words{"parallelism.dp=2"}}) {
        Command c = plait(Words{"train", kTiny} + grid + kEndless, 2);
        c.limit(30).start();
        ASSERT_TRUE(c.wait_for("iteration        2/"));
        pid_t victim = c.rank(1);
        ASSERT_GT(victim, 0);
        kill(victim, SIGKILL);
        Outcome o = c.wait();
        EXPECT_NE(o.code, 0) << text_of(grid) << "\n" << o;
        EXPECT_FALSE(o.timed_out) << text_of(grid) << "\n" << o;
        EXPECT_TRUE(o.left.empty()) << text_of(grid) << "\n" << o;
        /* Or the transport of a neighbour that was reading from the rank's memory aborted first. */
        const std::string all = o.out + o.err;
        EXPECT_NE(all.find("BAD TERMINATION"), std::string::npos) << text_of(grid) << "\n" << o;
        EXPECT_TRUE(all.find("Killed") != std::string::npos || all.find("No such process") != std::string::npos)
            << text_of(grid) << "\n"
            << o;
    }
}

/* ---- 7: signals ---- */

class CliSignals : public CliFailures
{
  protected:
    /* Sends `signal` in the middle of a run; weights and metrics must be whole. */
    void stopped_by(int signal, int ranks, int receiver /* -1: mpiexec (or plait itself) */)
    {
        std::string what = "signal " + std::to_string(signal) + ", " + std::to_string(ranks) + " ranks, to " +
                           std::to_string(receiver);
        std::string weights = path("w.safetensors"), metrics = path("m.jsonl");
        Command c = plait(
            Words{"train", kTiny, "checkpoint.save_weights=" + weights, "logging.metrics_file=" + metrics} + kEndless,
            ranks);
        c.limit(30).start();
        ASSERT_TRUE(c.wait_for("iteration        2/")) << what;
        pid_t pid = receiver < 0 ? c.pid() : c.rank(receiver);
        ASSERT_GT(pid, 0) << what;
        kill(pid, signal);
        Outcome o = c.wait();
        expect_end(o, 7, {"signal " + std::to_string(signal), "weights saved"}, what);
        EXPECT_EQ(count(o.err, "plait: "), 1u) << what << "\n" << o;
        EXPECT_EQ(count_elements(read_weights(weights)), 180928) << what;
        Metrics m = read_metrics(metrics);
        EXPECT_TRUE(m.ended) << what;
        EXPECT_GE(m.steps.size(), 2u) << what;
        EXPECT_LT(m.steps.size(), 1000000u) << what;
        std::filesystem::remove(weights);
    }
};

TEST_F(CliSignals, OneProcessSavesAndEnds)
{
    stopped_by(SIGINT, 0, -1);
    stopped_by(SIGTERM, 0, -1);
}
TEST_F(CliSignals, MpiexecPassesThemOn)
{
    stopped_by(SIGINT, 2, -1);
    stopped_by(SIGTERM, 2, -1);
}
TEST_F(CliSignals, ASignalToOneRankStopsAll)
{
    stopped_by(SIGTERM, 2, 1);
    stopped_by(SIGINT, 2, 0);
}

/* The code that oneDNN generates for AVX2 has its stack pointer in the heap for a part of a product, where the frame of
 * a handler would destroy what other threads and later calls have there. */
TEST_F(CliSignals, NoThreadThatComputesReceivesThem)
{
    Command c = plait(Words{"train", kTiny, "device.threads=3"} + kEndless);
    c.limit(30).start();
    ASSERT_TRUE(c.wait_for("iteration        2/"));
    const unsigned long long both = 1ull << (SIGINT - 1) | 1ull << (SIGTERM - 1);
    int away = 0, receivers = 0;
    for (const auto &task : std::filesystem::directory_iterator("/proc/" + std::to_string(c.pid()) + "/task")) {
        std::ifstream status(task.path() / "status");
        std::string name, blocked;
        for (std::string line; std::getline(status, line);) {
            if (line.rfind("Name:", 0) == 0)
                name = line.substr(6);
            if (line.rfind("SigBlk:", 0) == 0)
                blocked = line.substr(8);
        }
        if (blocked.empty()) /* has ended meanwhile */
            continue;
        const bool is_away = (std::stoull(blocked, nullptr, 16) & both) == both;
        away += is_away;
        receivers += name == "plait-signals" && !is_away;
        EXPECT_TRUE(is_away || task.path().filename() != std::to_string(c.pid())) << "the main thread";
    }
    EXPECT_GE(away, 3);
    EXPECT_EQ(receivers, 1);
    kill(c.pid(), SIGTERM);
    expect_end(c.wait(), 7, {"signal 15"}, "the end");
}

TEST_F(CliSignals, AtAnyMomentTheWeightsAreSaved)
{
    const std::string weights = path("w.safetensors");
    for (int i = 0; i < 6; i++) {
        Command c = plait(Words{"train", kTiny, "parallelism.pp=2", "model.hidden_size=256",
                                "model.ffn_hidden_size=1024", "checkpoint.save_weights=" + weights} +
                              kEndless,
                          4);
        c.limit(60).start();
        ASSERT_TRUE(c.wait_for("iteration        2/"));
        pid_t pids[4];
        for (int rank = 0; rank < 4; rank++) /* all are looked for before one ends: kill(-1) is for everybody */
            ASSERT_GT(pids[rank] = c.rank(rank), 0);
        for (pid_t pid : pids)
            kill(pid, SIGTERM);
        expect_end(c.wait(), 7, {"weights saved"}, std::to_string(i));
        EXPECT_TRUE(std::filesystem::remove(weights)) << i;
    }
}

TEST_F(CliSignals, WithoutAFileForThemNoWeightsAreSaved)
{
    Command c = plait(Words{"train", kTiny} + kEndless);
    c.start();
    ASSERT_TRUE(c.wait_for("iteration        2/"));
    kill(c.pid(), SIGTERM);
    Outcome o = c.wait();
    expect_end(o, 7, {"signal 15"}, "no file");
    EXPECT_EQ(o.err.find("weights saved"), std::string::npos) << o;
    EXPECT_EQ(files(), 0);
}

/* The second one does not wait for the end of a step: these steps take minutes. */
TEST_F(CliSignals, TheSecondOneEndsAtOnce)
{
    Words slow = {"model.hidden_size=256", "model.seq_length=1024", "batch.global_batch_size=64", "device.kernels=ref",
                  "train.train_iters=2"};
    Command c = plait(Words{"train", kTiny, "checkpoint.save_weights=" + path("w.safetensors")} + slow);
    c.limit(60).start();
    ASSERT_TRUE(c.wait_for("parameters of the model"));
    ASSERT_TRUE(c.catches(SIGINT, true));
    kill(c.pid(), SIGINT);
    ASSERT_TRUE(c.catches(SIGINT, false)) << "the first one arrived";
    kill(c.pid(), SIGINT);
    Outcome o = c.wait();
    EXPECT_EQ(o.code, 128 + SIGINT) << o;
    EXPECT_FALSE(o.timed_out) << o;
    EXPECT_EQ(files(), 0) << "half a file of weights";
}
