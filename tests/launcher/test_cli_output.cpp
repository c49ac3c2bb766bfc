/* What a run tells: metrics, log lines, evaluations, the bar on a terminal, and where its files are. */
#include "plait_test.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

namespace
{

class CliOutput : public PlaitTest
{
};

Words lines_of(const std::string &text)
{
    Words lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);)
        lines.push_back(line);
    return lines;
}

Words matching(const std::string &text, const std::regex &pattern)
{
    Words found;
    for (const std::string &line : lines_of(text))
        if (std::regex_search(line, pattern))
            found.push_back(line);
    return found;
}

} // namespace

TEST_F(CliOutput, TheMetricsFileHasALineAStepAndEndsWithMemoryAndCommunication)
{
    Trained r = train(kTiny,
                      {"train.train_iters=5", "train.eval_interval=2", "parallelism.tp=2", "parallelism.pp=2",
                       "zero_optimization.stage=1", "lr_scheduler.style=linear", "numerics.fingerprint=weights"},
                      4);
    const Metrics &m = r.metrics;
    ASSERT_EQ(m.steps.size(), 5u);
    for (const StepLine &s : m.steps) {
        EXPECT_EQ(s.counted_tokens, 8 * 32);
        EXPECT_EQ(s.loss_scale, 1.0);
        EXPECT_EQ(s.skipped, 0);
        EXPECT_GT(s.grad_norm, 0.0);
        EXPECT_GT(s.step_seconds, 0.0);
        EXPECT_NEAR(s.tokens_per_second * s.step_seconds, 8 * 32, 1e-6);
    }
    EXPECT_GT(m.steps[0].lr, m.steps[4].lr);
    EXPECT_NE(r.outcome.out.find("\nfingerprint: " + m.fingerprint + " (losses of 5 steps, weights)\n"),
              std::string::npos)
        << m.fingerprint << r.outcome;
    /* every second step, and after the last */
    std::vector<int64_t> after;
    for (const EvalLine &e : m.evals)
        after.push_back(e.after_step);
    EXPECT_EQ(after, (std::vector<int64_t>{2, 4, 5}));

    std::set<std::string> categories, places;
    for (const MemoryRow &row : m.memory) {
        EXPECT_LE(row.high_water, row.planned) << "rank " << row.rank << " " << row.category;
        if (row.tier == "device") {
            categories.insert(row.category);
            places.insert(std::to_string(row.rank) + ":" + std::to_string(row.d) + std::to_string(row.p) +
                          std::to_string(row.t));
        }
    }
    EXPECT_EQ(categories, (std::set<std::string>{"parameters", "gradients", "optimizer", "activations", "communication",
                                                 "workspace"}));
    EXPECT_EQ(places, (std::set<std::string>{"0:000", "1:001", "2:010", "3:011"}));
    for (const char *what : {"parameters", "gradients", "optimizer", "activations", "communication"})
        EXPECT_GT(m.planned(0, what), 0) << what;

    std::set<std::string> groups;
    for (const TrafficRow &row : m.traffic) {
        EXPECT_GE(row.calls, 1) << row.group << " " << row.op;
        EXPECT_GE(row.bytes, 0) << row.group << " " << row.op;
        groups.insert(row.group);
    }
    EXPECT_TRUE(groups.count("tensor") && groups.count("pipeline") && groups.count("world"))
        << testing::PrintToString(groups);
}

TEST_F(CliOutput, LinesHaveMegatronsFieldsInItsOrder)
{
    Trained r = train(kTiny, {"train.train_iters=6", "train.log_interval=4"});
    const std::regex line(
        R"(^ \[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] iteration +(\d+)/ +6 \| consumed samples: +(\d+) \| elapsed time per iteration )"
        R"(\(ms\): [\d.]+ \| learning rate: [\d.E+-]+ \| global batch size: +8 \| lm loss: [\d.E+-]+ \| loss scale: 1.0 )"
        R"(\| grad norm: [\d.]+ \| number of skipped iterations: +0 \| number of nan iterations: +0 \| )"
        R"(tokens/s: \d+ \| model GFLOP/s: [\d.]+ \| mem \(MiB\): [\d.]+ \|$)");
    Words found = matching(r.outcome.out, line);
    ASSERT_EQ(found.size(), 2u) << "every fourth step, and the last\n" << r.outcome;
    EXPECT_NE(found[0].find("iteration        4/"), std::string::npos) << found[0];
    EXPECT_NE(found[1].find("iteration        6/"), std::string::npos) << found[1];
    EXPECT_NE(found[1].find("consumed samples:           48"), std::string::npos) << found[1];
    EXPECT_EQ(r.outcome.err, "");

    Trained quiet = train(kTiny, {"train.train_iters=1", "logging.log_throughput=false"});
    EXPECT_EQ(quiet.outcome.out.find("tokens/s"), std::string::npos) << quiet.outcome;
}

TEST_F(CliOutput, TheBannerShowsGridGroupsScheduleAndBytes)
{
    Trained r = train(kTiny, {"train.train_iters=1", "parallelism.tp=2", "parallelism.pp=2"}, 8);
    for (const char *s :
         {"ranks: 8 = tensor 2 x pipeline 2 x data 2", "order tp-cp-ep-dp-pp", "tensor     [0 1] [2 3] [4 5] [6 7]",
          "data       [0 2] [1 3] [4 6] [5 7]", "pipeline   [0 4] [1 5] [2 6] [3 7]", "schedule: 1f1b",
          "parameters of the model: 180,928", "ZeRO stage 0"})
        EXPECT_NE(r.outcome.out.find(s), std::string::npos) << s << "\n" << r.outcome;
    EXPECT_EQ(matching(r.outcome.out, std::regex(R"(^ +[0-7] d[01] +p[01] +t[01] )")).size(), 8u) << r.outcome;
    /* The total of a rank's row is what the metrics say it planned. */
    for (int64_t rank : {0, 7}) {
        Words row = matching(r.outcome.out, std::regex("^ +" + std::to_string(rank) + " d"));
        ASSERT_EQ(row.size(), 1u);
        std::string total = row[0].substr(row[0].find_last_of(' ') + 1);
        total.erase(std::remove(total.begin(), total.end(), ','), total.end());
        EXPECT_EQ(std::stoll(total), r.metrics.planned(rank, "")) << row[0];
    }
}

TEST_F(CliOutput, TheBannerSaysWhatOneMightOverlook)
{
    Trained r = train(kTiny, {"train.train_iters=1", "model.num_layers=2", "parallelism.pp=4"}, 4);
    EXPECT_NE(r.outcome.out.find("without layers: virtual stages 0 2\n"), std::string::npos) << r.outcome;
    r = train(kTiny, {"train.train_iters=1", "zero_optimization.stage=3"}, 2);
    EXPECT_EQ(r.outcome.out.find("without layers"), std::string::npos) << r.outcome;
    EXPECT_NE(r.outcome.out.find("parameters: the own part and the units gathered at a time; gradients: the own 1/2"),
              std::string::npos)
        << r.outcome;
    int64_t host = 0;
    for (const MemoryRow &m : r.metrics.memory)
        host += m.rank == 0 && m.tier == "host" ? m.planned : 0;
    std::string digits = std::to_string(host);
    ASSERT_GT(host, 1000);
    digits.insert(digits.size() - 3, ",");
    EXPECT_NE(r.outcome.out.find("beside these at most " + digits + " a rank for the text"), std::string::npos)
        << digits << r.outcome;
}

TEST_F(CliOutput, EvaluationIsOnTheSameSamplesForEveryGrid)
{
    Words every = {"train.train_iters=4", "train.eval_interval=2", "data.split=80,20,0"};
    Trained one = train(kTiny, every);
    ASSERT_EQ(one.metrics.evals.size(), 2u);
    EXPECT_LT(one.metrics.evals[1].loss, one.metrics.evals[0].loss);
    EXPECT_EQ(matching(one.outcome.out, std::regex(R"(^ validation loss at iteration [24]: [\d.E+-]+ \|)")).size(), 2u)
        << one.outcome;
    for (const Words &grid : {Words{"parallelism.dp=2"}, Words{"parallelism.pp=2"}, Words{"parallelism.tp=2"},
                              Words{"parallelism.dp=2", "zero_optimization.stage=3"}}) {
        Metrics m = train(kTiny, every + grid, 2).metrics;
        ASSERT_EQ(m.evals.size(), 2u) << text_of(grid);
        for (size_t i : {0u, 1u})
            EXPECT_NEAR(m.evals[i].loss, one.metrics.evals[i].loss, 1e-5 * m.evals[i].loss) << text_of(grid);
        /* Evaluating leaves training alone. */
        expect_near(m.losses(), one.metrics.losses(), 1e-5, text_of(grid));
    }
    Metrics without = train(kTiny, {"train.train_iters=4", "data.split=80,20,0"}).metrics;
    EXPECT_EQ(without.losses(), one.metrics.losses());
    EXPECT_TRUE(train(kTiny, {"train.train_iters=1", "data.split=1,0,0"}).metrics.evals.empty());
}

TEST_F(CliOutput, ABarWithTheTimeLeftIsForTerminalsOnly)
{
    Words args = {"train", kTiny, "train.train_iters=5", "train.eval_interval=2"};
    Command c = plait(args);
    Outcome on = c.terminal().run();
    ASSERT_EQ(on.code, 0) << on;
    EXPECT_TRUE(std::regex_search(on.out, std::regex(R"(\r\[#+ +\] 2/5  \d+:\d\d left)"))) << on;
    EXPECT_EQ(on.out.find("5/5  "), std::string::npos) << "no bar when all is done\n" << on;
    /* Each line begins where the bar was cleared, and the last thing on the terminal is no bar. */
    EXPECT_EQ(matching(on.out, std::regex("\r\033\\[K \\[.*iteration +[1-5]/")).size(), 5u) << on;
    EXPECT_GT(on.out.rfind("\r\033[K"), on.out.rfind(" left")) << on;

    Outcome off = run(args);
    ASSERT_EQ(off.code, 0) << off;
    EXPECT_EQ(off.out.find('\r'), std::string::npos) << off;
    EXPECT_EQ(off.out.find('\033'), std::string::npos) << off;
    EXPECT_EQ(off.out.find("left"), std::string::npos) << off;
}

TEST_F(CliOutput, RelativePathsBelongToTheFileOrTheWorkingDirectory)
{
    std::filesystem::create_directories(path("project/out"));
    std::filesystem::create_directories(path("elsewhere"));
    std::filesystem::copy_file(source("configs/tiny.txt"), path("project/text.txt"));
    std::string tiny;
    {
        std::stringstream s;
        s << std::ifstream(kTiny).rdbuf();
        tiny = std::regex_replace(s.str(), std::regex("data_path: .*"), "data_path: text.txt");
    }
    std::string file = write("project/run.yaml", tiny + "checkpoint:\n  save_weights: out/w.safetensors\n"
                                                        "logging:\n  metrics_file: out/m.jsonl\n");
    Command c = plait({"train", file, "train.train_iters=1"});
    Outcome o = c.in(path("elsewhere")).run();
    ASSERT_EQ(o.code, 0) << o;
    EXPECT_TRUE(exists("project/out/w.safetensors"));
    EXPECT_TRUE(exists("project/out/m.jsonl"));
    EXPECT_TRUE(std::filesystem::is_empty(path("elsewhere")));

    Command d = plait({"train", "../project/run.yaml", "train.train_iters=1",
                       "checkpoint.save_weights=mine.safetensors", "logging.metrics_file=mine.jsonl"});
    o = d.in(path("elsewhere")).run();
    ASSERT_EQ(o.code, 0) << o;
    EXPECT_TRUE(exists("elsewhere/mine.safetensors"));
    EXPECT_TRUE(exists("elsewhere/mine.jsonl"));
}

/* One of something is no "ranks"; of several words that follow a 1, none ends with s. */
TEST_F(CliOutput, OneOfSomethingIsSingular)
{
    const Words one = {"batch.micro_batch_size=1", "batch.global_batch_size=1"};
    const std::regex plural("(^|[ (])1 (ranks|stages|chunks|samples|micro-batches|threads a node|variants)\\b");
    for (const Words &args :
         {Words{"config", kTiny}, Words{"plan", kTiny} + one, Words{"compare", kTiny, "--ranks", "1"} + one,
          Words{"train", kTiny, "train.train_iters=1"} + one,
          Words{"bench", "--machine", "m.yaml", "--quick", "--dtypes", "fp32"}}) {
        const Outcome o = run(args);
        std::smatch found;
        EXPECT_EQ(o.code, 0) << text_of(args) << "\n" << o;
        EXPECT_FALSE(std::regex_search(o.out, found, plural)) << text_of(args) << ": " << found.str();
        EXPECT_TRUE(std::regex_search(o.out, std::regex("\\b1 (rank|stage|micro-batch|sample)\\b"))) << o;
    }
}

/* A terminal must not obey what somebody has put into the name of a file. */
TEST_F(CliOutput, ControlCharactersInMessagesAreShown)
{
    for (const Words &args : {Words{"plan", "a\x1b[31mb"}, Words{"config", "a\x1b[31mb"}, Words{"train", "a\x1b[31mb"},
                              Words{"plan", kTiny, "--machine", "a\x1b[31mb"}}) {
        const Outcome o = run(args);
        EXPECT_EQ(o.code, 5) << o;
        EXPECT_EQ(o.err.find('\x1b'), std::string::npos) << o;
        EXPECT_NE(o.err.find("a\\x1b[31mb"), std::string::npos) << o;
    }
}

TEST_F(CliOutput, ARunThatIsRefusedLeavesOlderFilesAlone)
{
    write("w.safetensors", "old weights");
    write("m.jsonl", "old metrics");
    Outcome o = run({"train", kTiny, "checkpoint.save_weights=" + path("w.safetensors"),
                     "logging.metrics_file=" + path("m.jsonl"), "device.memory_limit=1MiB"});
    EXPECT_EQ(o.code, 3) << o;
    EXPECT_EQ(read("w.safetensors"), "old weights");
    EXPECT_EQ(read("m.jsonl"), "old metrics");
}
