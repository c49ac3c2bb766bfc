/* plait plan: what another process says without MPI is what every rank of the run takes and sends, byte by byte. */
#include "../models/matrix.h"
#include "plan_json.h"

#include <jansson.h>

#include <memory>
#include <sstream>

namespace
{

struct Job {
    int ranks;
    Words overrides;
    int steps = 1;
};

class CliPlan : public PlanTest
{
  protected:
    /* Planned, allocated and used bytes of a rank, tier by tier and category by category. */
    static void same_memory(const Plan &plan, const Metrics &m, int64_t rank)
    {
        const PlannedClass &want = plan.of(rank);
        std::map<std::string, int64_t> device, host;
        int64_t total = 0;
        for (const MemoryRow &row : m.memory) {
            if (row.rank != rank)
                continue;
            EXPECT_EQ(row.high_water, row.planned) << row.tier << " " << row.category;
            (row.tier == "host" ? host : device)[row.category] = row.planned;
            total += row.tier == "device" ? row.planned : 0;
            const PlannedRank &at = plan.ranks.at(static_cast<size_t>(rank));
            EXPECT_EQ(at.d, row.d);
            EXPECT_EQ(at.p, row.p);
            EXPECT_EQ(at.t, row.t);
        }
        EXPECT_EQ(device.size(), 6U) << "a row for each category";
        device["total"] = total;
        EXPECT_EQ(want.device, device);
        EXPECT_EQ(want.host, host);
        EXPECT_EQ(host.size(), 1U) << "the text";
    }
    /* Runs it, and compares what every rank took and sent with the plan. */
    void same_as_the_run(const Job &r)
    {
        SCOPED_TRACE(text_of(r.overrides) + " on " + std::to_string(r.ranks));
        const Plan planned = plan(kTiny8, r.overrides, r.ranks);
        ASSERT_EQ(planned.ranks.size(), static_cast<size_t>(r.ranks));
        const Trained t = train(kTiny8, r.overrides + Words{"train.train_iters=" + std::to_string(r.steps)}, r.ranks);
        ASSERT_EQ(t.metrics.steps.size(), static_cast<size_t>(r.steps));
        ASSERT_EQ(t.metrics.steps.back().skipped, 0) << "a step without update sends less";
        for (int rank = 0; rank < r.ranks; rank++) {
            SCOPED_TRACE("rank " + std::to_string(rank));
            same_memory(planned, t.metrics, rank);
            EXPECT_EQ(planned.of(rank).communication, counted_flows(t.metrics, rank));
        }
    }
};

const char *const kInvariant = "numerics.reduction=invariant";

/* tp 4 over 2 key/value heads */
const Words kSharedHeads = {"parallelism.tp=4", "model.num_query_groups=2"};
/* Of 5 samples a rank, 5 micro-batches. */
const Words kFifteen = {"batch.global_batch_size=15"};
/* 4, 4, 4, 8, 8, then 12 samples. */
const Words kRamp = {"batch.global_batch_size=12", "batch.rampup_batch_size=[4, 4, 24]"};
constexpr int kRamped = 7;

const Job kRows[] = {
    {1, {}},
    {1, {"precision.dtype=bf16", "train.eval_interval=1"}},
    {2, {"parallelism.tp=2", "parallelism.sequence_parallel=true"}},
    {2, {"parallelism.pp=2", "precision.dtype=bf16", "batch.micro_batch_size=4"}},
    {3, {"zero_optimization.stage=1", "batch.global_batch_size=12"}},
    {3, {"zero_optimization.stage=3", "batch.global_batch_size=12"}},
    {4, {"zero_optimization.stage=2", "precision.dtype=fp16", "precision.fp16.initial_scale_power=8"}},
    {4, {"parallelism.data_parallel_algorithm=gather_to_root"}},
    {4, {"parallelism.tp=2", "zero_optimization.stage=3", "zero_optimization.prefetch_units=2"}},
    {4, {"parallelism.pp=2", "parallelism.vpp=2", "recompute.granularity=full"}},
    {4, {"parallelism.pp=4", "parallelism.pipeline_layout=[1,4,3,0]", "model.tie_word_embeddings=true"}},
    {4, Words{"zero_optimization.max_unit_bytes=8KiB", "parallelism.sequence_parallel=true"} + kSharedHeads},
    {5, Words{"zero_optimization.stage=2", "model.hidden_size=48", "model.ffn_hidden_size=20"} + kFifteen},
    {2, Words{"parallelism.pp=2", "train.eval_interval=3"} + kRamp, kRamped},
    {2, {"zero_optimization.stage=2", "zero_optimization.keep_full_gradients=true", "optimizer.type=SGD"}},
    /* Norms lie in the shard of the last data rank: it alone sums them over its tensor group. */
    {4, {"parallelism.tp=2", "parallelism.sequence_parallel=true", "zero_optimization.stage=2"}},
    {8,
     {"parallelism.tp=2", "parallelism.pp=2", "zero_optimization.stage=1", "model.arch=gpt2",
      "model.num_query_groups=8"}},
    {8, {kInvariant, "parallelism.tp=2", "parallelism.pp=2", "zero_optimization.stage=3"}},
    {4, {kInvariant, "parallelism.tp=4", "debug.tensor_hashes=h.tsv"}},
    {4, {kInvariant, "precision.dtype=fp16", "parallelism.pp=2", "zero_optimization.stage=2", "train.eval_interval=1"}},
};

/* What has a way of its own and is not in the matrix of topologies. */
const Job kMore[] = {
    {2, {"precision.dtype=fp64", "zero_optimization.stage=2"}},
    {2, {"precision.dtype=bf16", "zero_optimization.stage=1", "precision.communication_data_type=bf16"}},
    {4, {"precision.dtype=bf16", "parallelism.tp=2", "parallelism.pp=2", "batch.micro_batch_size=2"}},
    {4, {"precision.dtype=bf16", "zero_optimization.stage=3", "zero_optimization.prefetch_units=3"}},
    {8,
     {"precision.dtype=fp16", "parallelism.tp=4", "parallelism.sequence_parallel=true", "model.arch=gpt2",
      "model.num_query_groups=8", "zero_optimization.stage=3"}},
    {8, {"precision.dtype=bf16", "parallelism.pp=4", "parallelism.vpp=2", "zero_optimization.stage=1"}},
    {4, {kInvariant, "parallelism.tp=2", "parallelism.sequence_parallel=true", "train.eval_interval=1"}},
    {8,
     {kInvariant, "precision.dtype=bf16", "parallelism.tp=2", "zero_optimization.stage=1",
      "model.tie_word_embeddings=true"}},
    {2, {kInvariant, "zero_optimization.stage=2", "debug.tensor_hashes=h.tsv", "recompute.granularity=full"}},
    {4, {kInvariant, "parallelism.pp=2", "debug.tensor_hashes=h.tsv", "batch.micro_batch_size=2"}},
    {1, {"batch.micro_batch_size=16"}},
    {6, {"parallelism.tp=2", "zero_optimization.stage=1", "batch.global_batch_size=12"}},
    {2, {"batch.micro_batch_size=8", "recompute.granularity=selective"}},
    {3, {"parallelism.pp=3", "parallelism.pipeline_layout=[4,1,3]", "batch.micro_batch_size=2"}},
    {8, {"parallelism.pp=4", "parallelism.vpp=2", "parallelism.pipeline_layout=[1,1,0,2,1,1,1,1]"}},
    {6, Words{"parallelism.pp=2", "zero_optimization.stage=3", "model.tie_word_embeddings=true"} + kFifteen},
    {5, Words{"zero_optimization.stage=3", "precision.dtype=bf16", "model.arch=gpt2", "model.num_query_groups=8"} +
            kFifteen},
    {5, Words{"zero_optimization.stage=1", "model.hidden_size=16", "model.ffn_hidden_size=8"} + kFifteen},
    {5, Words{"parallelism.data_parallel_algorithm=gather_to_root"} + kFifteen},
    {3, Words{"zero_optimization.stage=2", kInvariant} + kFifteen},
    {8, Words{"zero_optimization.stage=1", "parallelism.sequence_parallel=true"} + kSharedHeads},
    {8, Words{"zero_optimization.stage=3", "model.arch=llama", "precision.dtype=bf16"} + kSharedHeads},
    {8, Words{kInvariant, "parallelism.pp=2", "numerics.tensor_slices=8"} + kSharedHeads},
    {4, Words{"zero_optimization.stage=3", "parallelism.pp=2"} + kRamp, kRamped},
    {4, Words{"parallelism.pp=2", "parallelism.vpp=2", "precision.dtype=bf16"} + kRamp, kRamped},
    {8, {"parallelism.tp=8", "model.tie_word_embeddings=true", "train.eval_interval=1"}},
    {8, {"parallelism.pp=8", "parallelism.pipeline_schedule=gpipe", "train.eval_interval=1"}},
    {2, {"optimizer.type=SGD", "optimizer.momentum=0.9", "zero_optimization.stage=1"}},
    {4, {"comm.chunk_bytes=4KiB", "parallelism.tp=2"}},
};

} // namespace

TEST_F(CliPlan, IsWhatEveryRankTakesAndSends)
{
    for (const Job &r : kRows)
        same_as_the_run(r);
}

TEST_F(CliPlan, FullEveryPairOfTheMatrix)
{
    for (const Row &row : covering_rows())
        same_as_the_run({row.ranks(), row.overrides()});
}

TEST_F(CliPlan, FullTypesSizesAndCorners)
{
    for (const Job &r : kMore)
        same_as_the_run(r);
    EXPECT_GE(covering_rows().size() + std::size(kMore) + std::size(kRows), 60U);
}

/* Ranks that hold the same are planned once: thousands of them take seconds and little memory, also with thousands of
 * micro-batches. */
TEST_F(CliPlan, ThousandsOfRanksAreAFewClasses)
{
    const struct {
        const char *config;
        Words overrides;
        size_t ranks, classes;
    } rows[] = {
        {"configs/gpt3-175b.yaml", {}, 1024, 16},
        {"configs/gpt3-175b.yaml", {"batch.global_batch_size=12288"}, 1024, 16},
        {"configs/gpt-1t.yaml", {}, 3072, 64},
        {"configs/gpt-1t.yaml", {"batch.global_batch_size=24576"}, 3072, 64},
    };
    for (const auto &r : rows) {
        SCOPED_TRACE(std::string(r.config) + " " + text_of(r.overrides));
        Outcome o = plait(Words{"plan", source(r.config), "--json"} + r.overrides).limit(20).run();
        ASSERT_EQ(o.code, 0) << o;
        EXPECT_LT(o.cpu_seconds, 5);
        EXPECT_LT(o.peak_bytes, int64_t{500} << 20);
        const Plan planned = read_plan(o.out);
        EXPECT_EQ(planned.ranks.size(), r.ranks);
        EXPECT_EQ(planned.classes.size(), r.classes) << "a stage each";
    }
}

/* A run fits to the byte where the plan says, and is refused with the plan's numbers where it lacks one. */
TEST_F(CliPlan, SaysWhetherItFits)
{
    const Job rows[] = {
        {1, {}},
        {2, {"parallelism.pp=2", "precision.dtype=bf16"}},
        {3, {"zero_optimization.stage=3", "batch.global_batch_size=12"}},
        {4, {"parallelism.data_parallel_algorithm=gather_to_root"}},
        {8, {"parallelism.tp=2", "parallelism.pp=2", "zero_optimization.stage=2", "recompute.granularity=full"}},
        {8, {"parallelism.pp=4", "parallelism.vpp=2", "model.tie_word_embeddings=true"}},
    };
    for (const Job &r : rows) {
        SCOPED_TRACE(text_of(r.overrides) + " on " + std::to_string(r.ranks));
        const PlannedClass most = plan(kTiny8, r.overrides, r.ranks).largest();
        const int64_t all = most.bytes("total");
        for (const int64_t lacks : {0, 1}) {
            const std::string limit = std::to_string(all - lacks);
            const Words limited = r.overrides + Words{"device.memory_limit=" + limit};
            EXPECT_EQ(plan(kTiny8, limited, r.ranks).fits, lacks ? "false" : "true");
            Outcome o =
                run(Words{"plan", kTiny8, "--device-memory", limit, "--ranks", std::to_string(r.ranks)} + r.overrides);
            EXPECT_EQ(o.code, lacks ? 3 : 0) << o;
            const std::string says = "plait: out of memory: the plan does not fit: rank " + std::to_string(most.first) +
                                     " needs " + std::to_string(all) + " bytes, device.memory_limit is " + limit + "\n";
            EXPECT_EQ(o.err, lacks ? says : "");
            EXPECT_NE(o.out.find(lacks ? "device.memory_limit lacks 1\n" : ": fits, 0 are left"), std::string::npos)
                << o;

            Outcome t = run(Words{"train", kTiny8, "train.train_iters=1"} + limited, r.ranks);
            EXPECT_EQ(t.code, lacks ? 3 : 0) << t;
            std::string numbers = "needs " + std::to_string(all) + " (";
            for (const char *category :
                 {"parameters", "gradients", "optimizer", "activations", "communication", "workspace"})
                numbers += std::string(category) + " " + std::to_string(most.bytes(category)) +
                           (std::string(category) == "workspace" ? ")" : ", ");
            EXPECT_EQ(t.err.find(numbers) != std::string::npos, lacks == 1) << numbers << "\n" << t;
        }
    }
}

/* Of products in fp32 alone. */
const std::string kMachine =
    "version: 1\nname: m\nsource: s\nranks_per_node: 0\noverlap: false\nlaunch_microseconds: 1\n"
    "step_microseconds: 1500\nnode: {microseconds: 1, gbytes: 10}\nrates:\n"
    "  - {op: gemm, dtype: fp32, trans_a: false, trans_b: true, threads: 0, ranks: 0, m: [64], n: [64], "
    "k: [64], gflops: [100]}\n"
    "  - {op: attention_fwd, dtype: fp32, threads: 0, ranks: 0, heads: [1], seq: [32], head_dim: [8], "
    "gflops: [100]}\n"
    "  - {op: attention_bwd, dtype: fp32, threads: 0, ranks: 0, heads: [1], seq: [32], head_dim: [8], "
    "gflops: [100]}\n"
    "  - {op: memory, dtype: fp32, bytes: [1024], gbytes: [10]}\n";

/* The host's part is in the step, and so among the parts. */
TEST_F(CliPlan, ThePartsOfAPredictedStepAreTheStep)
{
    const std::string machine = write("m.yaml", kMachine);
    const Words args = {"plan", kTiny8, "parallelism.pp=2", "--ranks", "4", "--machine", machine, "device.threads=1"};
    const Outcome json = run(args + Words{"--json"}), text = run(args);
    ASSERT_EQ(json.code, 0) << json;
    ASSERT_EQ(text.code, 0) << text;
    const std::unique_ptr<json_t, void (*)(json_t *)> root(json_loads(json.out.c_str(), 0, nullptr), json_decref);
    json_t *predicted = json_object_get(root.get(), "predicted"), *stages = json_object_get(predicted, "stages");
    const double step = json_number_value(json_object_get(predicted, "step_seconds"));
    std::istringstream lines(text.out.substr(text.out.find("  stage    computes")));
    std::string line;
    std::getline(lines, line);
    EXPECT_EQ(line.substr(line.size() - 10), "host  (ms)") << text;
    ASSERT_EQ(json_array_size(stages), 2u);
    for (size_t i = 0; i < 2; i++) {
        json_t *one = json_array_get(stages, i), *value;
        const char *group;
        EXPECT_EQ(json_number_value(json_object_get(one, "host")), 1500e-6);
        double sum = 0, printed = -static_cast<double>(i), x;
        for (const char *part : {"compute", "idle", "host"})
            sum += json_number_value(json_object_get(one, part));
        json_object_foreach(json_object_get(one, "exposed"), group, value) sum += json_number_value(value);
        EXPECT_NEAR(sum, step, 1e-12 * step) << "stage " << i;
        std::getline(lines, line);
        for (std::istringstream numbers(line); numbers >> x;)
            printed += x;
        EXPECT_NEAR(printed, 1e3 * step, 9 * 0.00051) << line;
    }
}

/* --device-memory is an override among the others, wherever it stands. */
TEST_F(CliPlan, OfSeveralLimitsTheLastCounts)
{
    const std::string small = "device.memory_limit=1MiB", large = "device.memory_limit=1GiB";
    const Words option_small = {"--device-memory", "1MiB"}, option_large = {"--device-memory", "1GiB"};
    const struct {
        Words words;
        int code;
    } rows[] = {
        {Words{kTiny8, small} + option_large, 0},
        {Words{kTiny8} + option_large + Words{small}, 3},
        {Words{kTiny8} + option_small + Words{large}, 0},
        {option_small + Words{kTiny8, large}, 0},
        {option_small + Words{kTiny8}, 3},
        {option_small + option_large + Words{kTiny8}, 0},
        {Words{kTiny8} + option_large + Words{large} + option_small, 3},
    };
    for (const auto &r : rows) {
        const Outcome o = run(Words{"plan"} + r.words);
        EXPECT_EQ(o.code, r.code) << text_of(r.words) << "\n" << o;
        EXPECT_EQ(o.out.find("does not fit") != std::string::npos, r.code == 3) << text_of(r.words) << "\n" << o;
    }
    const Outcome none = run(Words{"plan"} + option_small),
                  endless = run({"plan", kTiny8, "--device-memory", std::string(200, '1')});
    EXPECT_EQ(none.code, 2) << none;
    EXPECT_NE(none.err.find("usage: plait plan"), std::string::npos) << none;
    EXPECT_EQ(endless.code, 2) << endless;
    EXPECT_NE(endless.err.find("--device-memory: a value of 200 characters is none"), std::string::npos) << endless;
}

/* A line of what would help can be taken as it stands; a machine file without a type leaves only the time out. */
TEST_F(CliPlan, WhatWouldHelpCanBeTakenAsItStands)
{
    const std::string machine = write("m.yaml", kMachine);
    const Outcome o =
        run({"plan", kTiny8, "--ranks", "4", "--machine", machine, "--device-memory", "34MiB", "device.threads=1"});
    ASSERT_EQ(o.code, 3) << o;
    EXPECT_NE(o.out.find("step time not known: "), std::string::npos) << "bf16\n" << o;
    int taken = 0;
    for (size_t at = o.out.find("one key at a time"); (at = o.out.find("\n  ", at + 1)) != std::string::npos;) {
        const std::string line = o.out.substr(at + 3, o.out.find('\n', at + 1) - at - 3);
        Words words;
        size_t i = 0;
        while (line.find('=', i) != std::string::npos && line.find('=', i) < line.find("  ", i)) {
            const size_t end = line.find(' ', i);
            words.push_back(line.substr(i, end - i));
            i = end == std::string::npos ? line.size() : end + 1;
        }
        const size_t number = line.find_first_not_of(' ', i);
        if (words.empty() || number == std::string::npos || !isdigit(static_cast<unsigned char>(line[number])))
            continue;
        const std::string rest = line.substr(number);
        const Outcome again = run(Words{"plan", kTiny8, "--ranks", "4", "device.threads=1"} + words);
        ASSERT_EQ(again.code, 0) << again;
        EXPECT_NE(again.out.find("largest: " + rest.substr(0, rest.find(' ')) + " bytes"), std::string::npos)
            << line << "\n"
            << again;
        taken++;
    }
    EXPECT_GT(taken, 3) << o;
}

/* What one change makes possible is looked at too: sequence parallelism once there is tensor parallelism. */
TEST_F(CliPlan, WhatWouldHelpTogetherGoesOnFromWhatWasChosen)
{
    const Words grid = {"plan", kTiny, "--ranks", "2"};
    const Outcome o = run(grid + Words{"--device-memory", "35180000"});
    ASSERT_EQ(o.code, 3) << o;
    const size_t at = o.out.find("together:\n  ");
    ASSERT_NE(at, std::string::npos) << o;
    std::istringstream line(o.out.substr(at + 12, o.out.find('\n', at + 12) - at - 12));
    Words words;
    for (std::string word; line >> word;)
        words.push_back(word);
    EXPECT_NE(o.out.find(": fits\n", at), std::string::npos) << o;
    EXPECT_EQ(run(grid + words + Words{"--device-memory", "35180000"}).code, 0) << text_of(words);
}

/* Without data ranks stage 3 only has copies: it can be taken back. */
TEST_F(CliPlan, WhatWouldHelpTakesAStageBack)
{
    const Outcome o = run({"plan", kTiny, "--ranks", "1", "zero_optimization.stage=3", "--device-memory", "1MiB"});
    ASSERT_EQ(o.code, 3) << o;
    const size_t at = o.out.find("\n  zero_optimization.stage=0 ");
    ASSERT_NE(at, std::string::npos) << o;
    EXPECT_NE(o.out.substr(at + 1, o.out.find('\n', at + 1) - at).find("  smaller by "), std::string::npos) << o;
    EXPECT_NE(o.out.find("none of these keys saves more: more ranks or a smaller model would\n"), std::string::npos)
        << o;
}

/* What the ranks are is the configuration's: GPUs can be planned where there are none. */
TEST_F(CliPlan, IsOfTheRanksThatItNames)
{
    const struct {
        Words words;
        const char *says, *backend, *host;
    } rows[] = {
        {{"device.backend=cpu"}, "; CPU ranks\n", "cpu", "\"host\":null}"},
        {{"device.backend=cuda"}, "; GPUs over NCCL\n", "cuda", "\"host\":{\"workspace\":null,\"communication\":"},
        {{"device.backend=cuda", "comm.backend=staged"},
         "; GPUs over host memory and MPI\n",
         "cuda",
         "\"communication\":"},
    };
    for (const auto &r : rows) {
        const Words grid = Words{"plan", kTiny8, "--ranks", "2", "data.data_path=missing.txt"} + r.words;
        const Outcome text = run(grid), json = run(grid + Words{"--json"});
        ASSERT_EQ(text.code, 0) << text;
        EXPECT_NE(text.out.find(r.says), std::string::npos) << text;
        EXPECT_NE(json.out.find(std::string("\"backend\":\"") + r.backend + "\""), std::string::npos) << json;
        EXPECT_NE(json.out.find(r.host), std::string::npos) << json;
    }
}

TEST_F(CliPlan, UnderMpiexecItIsOfItsRanks)
{
    const Outcome o = run({"plan", kTiny}, 2), same = run({"plan", kTiny, "--ranks", "2"});
    ASSERT_EQ(o.code, 0) << o;
    EXPECT_EQ(o.out, same.out);
}

/* What another estimator says stands beside the plan; where it has no rules that is said. */
TEST_F(CliPlan, DeepSpeedsEstimatorStandsBeside)
{
    const Outcome text = run({"plan", kTiny8, "--ranks", "2", "zero_optimization.stage=2", "--estimator", "deepspeed"});
    ASSERT_EQ(text.code, 0) << text;
    /* 2 bytes of each of 328,896 parameters, 18 shared by two */
    EXPECT_NE(
        text.out.find("DeepSpeed's estimator says 3,617,856 bytes of a GPU, without activations and buffers; planned "
                      "are "),
        std::string::npos)
        << text;
    const Outcome json =
        run({"plan", kTiny8, "--ranks", "2", "zero_optimization.stage=2", "--estimator", "deepspeed", "--json"});
    EXPECT_NE(json.out.find("\"estimators\":{\"deepspeed\":{\"device\":3617856,\"host\":"), std::string::npos) << json;
    /* Its rules count the GPUs of a node for the host's memory. */
    const auto host_of = [this](const Words &machine) {
        const Outcome o = run(Words{"plan", kTiny8, "--ranks", "16", "batch.global_batch_size=16",
                                    "zero_optimization.stage=3", "--estimator", "deepspeed", "--json"} +
                              machine);
        const std::string key = "\"host\":", after = o.out.substr(o.out.find("\"estimators\""));
        return std::stoll(after.substr(after.find(key) + key.size()));
    };
    EXPECT_EQ(host_of({}), 2 * host_of({"--machine", source("configs/machines/h100-sxm.yaml")}));
    const Outcome below = run({"plan", kTiny8, "--estimator", "deepspeed"});
    EXPECT_EQ(below.code, 2) << below;
    EXPECT_NE(below.err.find("rules for ZeRO stages 2 and 3, not for 0"), std::string::npos) << below;
    const Outcome other = run({"plan", kTiny8, "--estimator", "mine"});
    EXPECT_EQ(other.code, 2) << other;
    EXPECT_NE(other.err.find("deepspeed is known, 'mine' is not"), std::string::npos) << other;
}
