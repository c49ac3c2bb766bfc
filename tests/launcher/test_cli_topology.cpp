/* The same training on many grids of ranks, through the program: what a topology must not change, and what it must not
 * hang on. */
#include "plait_test.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sched.h>
#include <set>

namespace
{

const Words kThree = {"train.train_iters=3"};

class CliTopology : public PlaitTest
{
  protected:
    /* One rank's run of the same configuration, made once. */
    const Metrics &reference(const std::string &config, const Words &overrides)
    {
        static std::map<std::string, Metrics> all;
        std::string key = config + " " + text_of(overrides);
        auto found = all.find(key);
        return found != all.end() ? found->second : all[key] = train(config, overrides, 0, 120).metrics;
    }
    /* Trains on `ranks` ranks with `grid` and compares losses and norms with one rank's. */
    Metrics same_as_one_rank(const std::string &config, const Words &overrides, const Words &grid, int ranks,
                             double bound = 1e-5, size_t steps = 0)
    {
        std::string what = std::to_string(ranks) + " ranks, " + text_of(overrides + grid);
        const Metrics &one = reference(config, overrides);
        Metrics m = train(config, overrides + grid, ranks).metrics;
        expect_near(m.losses(), one.losses(), bound, what + ": loss", steps);
        expect_near(m.norms(), one.norms(), bound, what + ": norm", steps);
        return m;
    }
    /* Loss of one step from saved weights, on the samples from `first_sample` on. */
    double next_loss(const Words &overrides, const std::string &weights, int first_sample, int ranks = 0)
    {
        Metrics m = train(kTiny,
                          overrides + Words{"train.train_iters=1", "checkpoint.load_weights=" + weights,
                                            "data.first_sample=" + std::to_string(first_sample)},
                          ranks)
                        .metrics;
        return m.steps.size() == 1 ? m.steps[0].loss : NAN;
    }
};

/* Those that this process may use, as `nproc` says. */
int number_of_cores()
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : -1;
}

/* Parameters that the ranks hold for the model: the banner's own sum. */
std::string model_parameters(const Outcome &o)
{
    const std::string label = "parameters of the model: ";
    size_t at = o.out.find(label);
    return at == std::string::npos ? "" : o.out.substr(at + label.size(), o.out.find('\n', at) - at - label.size());
}

Words grid(int tp, int pp)
{
    return {"parallelism.tp=" + std::to_string(tp), "parallelism.pp=" + std::to_string(pp)};
}
Words zero(int stage)
{
    return {"zero_optimization.stage=" + std::to_string(stage)};
}

} // namespace

/* Fewer key/value heads than tensor ranks. */
TEST_F(CliTopology, KeyValueHeadsAreReplicatedOverMoreTensorRanks)
{
    Words heads = {"model.num_attention_heads=8", "train.train_iters=5"};
    same_as_one_rank(kTiny, heads, grid(4, 1), 4);
    same_as_one_rank(kTiny, heads, grid(4, 1) + Words{"parallelism.sequence_parallel=true"}, 4);
}

/* Layers that stages do not divide. */
TEST_F(CliTopology, EveryLayerIsOnExactlyOneStage)
{
    Words five = Words{"model.num_layers=5"} + kThree;
    Trained two = train(kTiny, five + grid(1, 2), 2);
    EXPECT_EQ(model_parameters(two.outcome), "217,920") << two.outcome;
    expect_near(two.metrics.losses(), reference(kTiny, five).losses(), 1e-5, "5 layers on 2 stages");
    same_as_one_rank(kTiny, five, grid(1, 2) + Words{"parallelism.pipeline_layout=[4,1]"}, 2);
}

TEST_F(CliTopology, SequenceParallelNeedsALengthThatDividesAndIsThenExact)
{
    Words sp = grid(2, 1) + Words{"parallelism.sequence_parallel=true"};
    same_as_one_rank(kTiny, kThree, sp, 2);
    Outcome o = run(Words{"train", kTiny, "model.seq_length=31"} + sp, 2, 20);
    EXPECT_EQ(o.code, 2) << o;
    EXPECT_NE(o.err.find("31"), std::string::npos) << o;
    EXPECT_NE(o.err.find("tensor_model_parallel_size 2"), std::string::npos) << o;
    EXPECT_EQ(o.out.find("iteration"), std::string::npos) << o;
}

/* With all weights zero every byte is equally likely: ln 257. One padded row that counted would make it ln 258. */
TEST_F(CliTopology, PaddedVocabularyHasNoProbability)
{
    std::string weights = path("w.safetensors"), zeros = path("zeros.safetensors");
    train(kTiny, {"train.train_iters=1", "checkpoint.save_weights=" + weights});
    edit_weights(weights, zeros,
                 [](const std::string &, std::vector<double> &v) { std::fill(v.begin(), v.end(), 0.0); });
    for (const Words &padding : {Words{}, Words{"model.make_vocab_size_divisible_by=128"}})
        for (int tp : {1, 2}) {
            Trained r = train(
                kTiny, Words{"train.train_iters=1", "checkpoint.load_weights=" + zeros} + padding + grid(tp, 1), tp);
            ASSERT_EQ(r.metrics.steps.size(), 1u);
            EXPECT_NEAR(r.metrics.steps[0].loss, std::log(257.0), 1e-6) << "tp " << tp << " " << text_of(padding);
        }
}

/* Fewer micro-batches than stages, one, as many, and more that do not divide. */
TEST_F(CliTopology, AnyNumberOfMicroBatches)
{
    struct {
        int stages;
        std::vector<int> micros;
    } rows[] = {{2, {1, 2, 3, 5}}, {4, {1, 2, 3, 4, 5, 7}}};
    for (const auto &r : rows)
        for (int m : r.micros)
            same_as_one_rank(kTiny, {"batch.global_batch_size=" + std::to_string(2 * m), "train.train_iters=2"},
                             grid(1, r.stages), r.stages);
}

TEST_F(CliTopology, FullAnyNumberOfMicroBatchesOfOtherSchedules)
{
    for (const char *schedule : {"gpipe", "interleaved"})
        for (int stages : {2, 4})
            for (int m = 1; m <= 3 * stages; m++) {
                Words s = {std::string("parallelism.pipeline_schedule=") + schedule};
                if (s[0].find("interleaved") != std::string::npos)
                    s.push_back("parallelism.vpp=2");
                same_as_one_rank(kTiny8, {"batch.global_batch_size=" + std::to_string(m), "train.train_iters=2"},
                                 grid(1, stages) + s, stages);
            }
}

/* Which schedule is executed shows in the most memory that activations took: 1F1B never has more micro-batches under
 * way than stages, GPipe has all of them. */
TEST_F(CliTopology, OneForwardOneBackwardIsWhatRuns)
{
    auto activations = [&](const std::string &schedule, int micros) {
        std::string what = schedule + ", " + std::to_string(micros) + " micro-batches";
        Metrics m = train(kTiny,
                          Words{"parallelism.pipeline_schedule=" + schedule, "train.train_iters=2",
                                "batch.global_batch_size=" + std::to_string(2 * micros)} +
                              grid(1, 2),
                          2)
                        .metrics;
        std::map<int64_t, int64_t> by_rank;
        for (const MemoryRow &r : m.memory)
            if (r.tier == "device" && r.category == "activations") {
                EXPECT_EQ(r.high_water, r.planned) << what << ", rank " << r.rank;
                by_rank[r.rank] = r.high_water;
            }
        EXPECT_EQ(by_rank.size(), 2u) << what;
        return by_rank;
    };
    auto few = activations("1f1b", 4), more = activations("1f1b", 8);
    auto few_gpipe = activations("gpipe", 4), more_gpipe = activations("gpipe", 8);
    EXPECT_EQ(few, more);
    EXPECT_GT(few[0], 0);
    for (int64_t rank : {0, 1}) {
        EXPECT_GT(few_gpipe[rank], few[rank]) << "rank " << rank;
        /* What a micro-batch keeps: the first stage has two of them in flight with 1F1B, GPipe has all. */
        EXPECT_GE(more_gpipe[rank] - few_gpipe[rank], few_gpipe[rank] / 2) << "rank " << rank;
    }
}

/* A gradient that is a sum instead of a mean hides behind Adam, not behind SGD or clipping. */
TEST_F(CliTopology, ThePipelineHasTheSameGradient)
{
    for (const Words &rule :
         {Words{"optimizer.type=SGD", "optimizer.lr=0.1", "optimizer.clip_grad=0"}, Words{"optimizer.clip_grad=0.5"}}) {
        Words one = Words{"train.train_iters=1"} + rule;
        std::string want = path("one.safetensors"), got = path("got.safetensors");
        train(kTiny, one + Words{"checkpoint.save_weights=" + want});
        for (int stages : {2, 4}) {
            same_as_one_rank(kTiny, one, grid(1, stages) + Words{"checkpoint.save_weights=" + got}, stages);
            Weights a = read_weights(got), b = read_weights(want);
            ASSERT_EQ(a.size(), b.size());
            for (const auto &[name, t] : b)
                for (size_t i = 0; i < t.values.size(); i++)
                    ASSERT_NEAR(a[name].values[i], t.values[i], 1e-6)
                        << stages << " stages: " << name << "[" << i << "]";
        }
    }
}

/* The loss is known to the last stage alone, and printed by the first rank. */
TEST_F(CliTopology, TheFirstRankPrintsTheTrueLoss)
{
    Words ten = {"train.train_iters=10"};
    Trained r = train(kTiny, ten + grid(1, 2), 4);
    const Metrics &one = reference(kTiny, ten);
    expect_near(r.metrics.losses(), one.losses(), 1e-5, "pp 2 dp 2", 3);
    expect_near(r.metrics.losses(), one.losses(), 1e-3, "pp 2 dp 2");
    size_t at = 0;
    for (const StepLine &s : r.metrics.steps) {
        const std::string label = "lm loss: ";
        at = r.outcome.out.find(label, at);
        ASSERT_NE(at, std::string::npos) << s.step << "\n" << r.outcome;
        at += label.size();
        EXPECT_NEAR(std::stod(r.outcome.out.substr(at)), s.loss, 1e-6 * s.loss) << s.step;
    }
    EXPECT_EQ(r.outcome.out.find("lm loss: ", at), std::string::npos) << "a line too many\n" << r.outcome;
}

/* Embedding and head on different stages. */
TEST_F(CliTopology, ATiedHeadStaysTied)
{
    Words tied = {"model.tie_word_embeddings=true", "train.train_iters=20", "train.log_interval=20"};
    std::string want = path("one.safetensors"), got = path("got.safetensors");
    const Metrics one = train(kTiny, tied + Words{"checkpoint.save_weights=" + want}).metrics;
    Weights b = read_weights(want);
    EXPECT_EQ(b.count("lm_head.weight"), 0u);
    for (int dp : {1, 2})
        for (int stage : {0, 1}) {
            std::string what = "dp " + std::to_string(dp) + " zero " + std::to_string(stage);
            Metrics m =
                train(kTiny, tied + grid(1, 2) + zero(stage) + Words{"checkpoint.save_weights=" + got}, 2 * dp).metrics;
            expect_near(m.losses(), one.losses(), 1e-4, what);
            expect_near_weights(read_weights(got), b, 1e-3, what);
            /* The exported model is the trained one: one rank finds the loss that it would have had next itself. */
            expect_near({next_loss(tied, got, 160)}, {next_loss(tied, want, 160)}, 1e-4, what + ": exported");
        }
}

/* Ranks with few or no parameters join every collective. */
TEST_F(CliTopology, StagesWithoutLayersRun)
{
    Words one_layer = Words{"model.num_layers=1"} + kThree, two_layers = Words{"model.num_layers=2"} + kThree;
    for (int dp : {1, 2})
        same_as_one_rank(kTiny, one_layer, grid(1, 2) + zero(1), 2 * dp);
    same_as_one_rank(kTiny, two_layers, grid(1, 4) + zero(1), 4);
}

/* Activations of 4 MiB: far over what MPI sends eagerly. */
class BigMessages : public CliTopology
{
  protected:
    void one_step(int stages, bool smallest_eager)
    {
        Words big = {"model.hidden_size=512",    "model.num_attention_heads=8", "model.seq_length=512",
                     "batch.micro_batch_size=4", "batch.global_batch_size=12",  "train.train_iters=1"};
        Command c =
            plait(Words{"train", kTiny, "logging.metrics_file=" + path("m.jsonl")} + big + grid(1, stages), stages);
        if (smallest_eager)
            c.set("UCX_RNDV_THRESH", "0")
                .set("MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_CELL_SIZE", "1024")
                .set("UCX_LOG_LEVEL", "info");
        Outcome o = c.limit(120).run();
        ASSERT_EQ(o.code, 0) << o;
        EXPECT_FALSE(o.timed_out);
        expect_near(read_metrics(path("m.jsonl")).losses(), reference(kTiny, big).losses(), 1e-5,
                    std::to_string(stages) + " stages");
        /* UCX, where MPI uses it, lists the variables that it follows. */
        const std::string all = o.out + o.err;
        if (smallest_eager && all.find("UCX ") != std::string::npos) {
            EXPECT_NE(all.find(" UCX_RNDV_THRESH=0"), std::string::npos) << o;
        }
    }
};
TEST_F(BigMessages, TwoStagesDoNotBlockEachOther)
{
    one_step(2, false);
}
TEST_F(BigMessages, TwoStagesWithTheSmallestEagerLimit)
{
    one_step(2, true);
}
TEST_F(BigMessages, FourStagesDoNotBlockEachOther)
{
    one_step(4, false);
}
TEST_F(BigMessages, FourStagesWithTheSmallestEagerLimit)
{
    one_step(4, true);
}

/* Parameters smaller than the number of data ranks: empty shards. */
TEST_F(CliTopology, EmptyShardsAreLegal)
{
    const Words small = {
        "model.hidden_size=4", "model.num_attention_heads=1", "model.num_query_groups=1",  "model.ffn_hidden_size=4",
        "model.num_layers=1",  "batch.micro_batch_size=1",    "batch.global_batch_size=8", "optimizer.lr=0.02"};
    const Words four = {"train.train_iters=4"};
    const Metrics &one = reference(kTiny, small + four);
    ASSERT_EQ(one.steps.size(), 4u);
    std::string from_one = path("one.safetensors"), from_eight = path("eight.safetensors");
    train(kTiny, small + kThree + Words{"checkpoint.save_weights=" + from_one});
    for (int stage : {1, 2, 3}) {
        std::string what = "zero " + std::to_string(stage);
        Metrics unbroken = same_as_one_rank(kTiny, small + four, zero(stage), 8);
        ASSERT_EQ(unbroken.steps.size(), 4u) << what;
        train(kTiny, small + kThree + zero(stage) + Words{"checkpoint.save_weights=" + from_eight}, 8);
        /* Each file goes on with the other number of ranks: the fourth step has the loss of the unbroken run. */
        expect_near({next_loss(small, from_eight, 24)}, {unbroken.steps[3].loss}, 1e-5, what + ": from eight to one");
        expect_near({next_loss(small + zero(stage), from_one, 24, 8)}, {one.steps[3].loss}, 1e-5,
                    what + ": from one to eight");
    }
    /* What three steps change is far more than the bound. */
    Words untrained = small + Words{"train.train_iters=1", "data.first_sample=24"};
    EXPECT_GT(train(kTiny, untrained).metrics.steps.at(0).loss, one.steps[3].loss * (1 + 1e-3));
}

/* Odd element counts: flat groups need padding, which must not shift or enlarge what is written. With one micro-batch
 * the sums have the same order in every stage, so the bits are the same, too. */
TEST_F(CliTopology, OddCountsAreWrittenWithoutPadding)
{
    for (int dp : {4, 3}) {
        Words odd = Words{"model.ffn_hidden_size=129", "batch.global_batch_size=" + std::to_string(2 * dp)} + kThree;
        std::string file = path("w.safetensors");
        train(kTiny, odd + zero(0) + Words{"checkpoint.save_weights=" + file}, dp);
        Weights whole = read_weights(file);
        EXPECT_EQ(count_elements(whole), 180928 + 4 * 3 * 64);
        for (int stage : {1, 2, 3}) {
            std::string what = "dp " + std::to_string(dp) + " zero " + std::to_string(stage);
            train(kTiny, odd + zero(stage) + Words{"checkpoint.save_weights=" + file}, dp);
            expect_same_weights(read_weights(file), whole, what);
        }
    }
}

TEST_F(CliTopology, ShardedParametersAreGatheredForTheFile)
{
    std::string file = path("w.safetensors");
    train(kTiny, Words{"train.train_iters=1", "checkpoint.save_weights=" + file} + zero(3), 2);
    Weights all = read_weights(file);
    EXPECT_EQ(count_elements(all), 180928);
    for (const auto &[name, t] : all) {
        EXPECT_FALSE(t.values.empty()) << name;
        EXPECT_TRUE(std::any_of(t.values.begin(), t.values.end(), [](double x) { return x != 0; })) << name;
    }
    int64_t header = 0;
    std::string bytes = read("w.safetensors");
    std::memcpy(&header, bytes.data(), sizeof header);
    EXPECT_EQ(static_cast<int64_t>(bytes.size()), 8 + header + 180928 * 4);
    EXPECT_EQ(bytes[8], '{');
    EXPECT_EQ(header % 8, 0);
}

/* With accumulation: a stage changes memory, not numbers. */
TEST_F(CliTopology, ZeroStagesHaveTheSameNumbersWithAccumulation)
{
    Words accumulate = {"batch.micro_batch_size=1", "batch.gradient_accumulation_steps=4", "train.train_iters=10"};
    Metrics first;
    std::vector<int64_t> model_bytes;
    for (int stage : {0, 1, 2, 3}) {
        std::string what = "zero " + std::to_string(stage);
        Metrics m = train(kTiny, accumulate + zero(stage), 2).metrics;
        ASSERT_EQ(m.steps.size(), 10u);
        const Metrics &one = reference(kTiny, {"batch.micro_batch_size=1", "train.train_iters=10"});
        expect_near(m.losses(), one.losses(), 1e-5, what, 3);
        expect_near(m.losses(), one.losses(), 1e-3, what);
        expect_near(m.norms(), one.norms(), 1e-4, what + ": norm", 3);
        model_bytes.push_back(m.planned(0, "parameters") + m.planned(0, "gradients") + m.planned(0, "optimizer"));
    }
    for (size_t i = 1; i < model_bytes.size(); i++)
        EXPECT_LT(model_bytes[i], model_bytes[i - 1]) << "zero " << i;
}

/* Threads of each process that do not compute: UCX's asynchronous progress, and the one that receives signals. */
constexpr int kThreadsBeside = 2;

int threads_of(pid_t pid)
{
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(status, line);)
        if (line.compare(0, 8, "Threads:") == 0)
            return std::stoi(line.substr(8));
    return -1;
}

TEST_F(CliTopology, ThreadsARankAreThoseOfTheEnvironmentOrTheCores)
{
    auto started = [&](const std::string &variable) {
        Command c = plait({"train", kTiny, "train.train_iters=1"});
        return c.set("OMP_NUM_THREADS", variable).run();
    };
    auto banner = [&](const std::string &variable) {
        Outcome o = started(variable);
        EXPECT_EQ(o.code, 0) << o;
        return o.out;
    };
    auto text = [](int threads) { return " " + std::to_string(threads) + " threads a rank"; };
    EXPECT_NE(banner("3").find(text(3)), std::string::npos) << banner("3");
    for (const char *list : {"3,2", " 3 , 2"})
        EXPECT_NE(banner(list).find(text(3)), std::string::npos) << banner(list);
    EXPECT_NE(banner("").find(text(number_of_cores())), std::string::npos) << banner("");
    for (const char *wrong : {"0", "-1", "1e3", "4097", "99999999999", "many"}) {
        Outcome o = started(wrong);
        EXPECT_EQ(o.code, 2) << wrong << o;
        EXPECT_NE(o.err.find(std::string("OMP_NUM_THREADS takes a whole number from 1 to 4096, not '") + wrong),
                  std::string::npos)
            << o;
    }
}

/* Threads that spin for long take the cores from each other. The OpenMP library says how it waits. */
TEST_F(CliTopology, ThreadsThatWaitSleepUnlessTheUserSaysOtherwise)
{
    auto says = [&](const std::string &policy) {
        Command c = plait({"version"});
        Outcome o = c.set("OMP_WAIT_POLICY", policy).set("OMP_DISPLAY_ENV", "verbose").run();
        EXPECT_EQ(o.code, 0) << o;
        return o.err;
    };
    auto is_short = [](const std::string &text) {
        return text.find("GOMP_SPINCOUNT = '10000'") != std::string::npos ||
               text.find("KMP_BLOCKTIME='0'") != std::string::npos;
    };
    EXPECT_TRUE(is_short(says(""))) << says("");
    EXPECT_FALSE(is_short(says("active"))) << says("active");
}

/* Where ranks times threads are the cores, each rank has its own. */
TEST_F(CliTopology, RanksHaveCoresOfTheirOwn)
{
    const int cores = number_of_cores();
    if (cores < 2 || cores > 8)
        GTEST_SKIP() << cores << " cores";
    Command c = plait({"train", kTiny, "train.train_iters=1000000", "device.threads=1", "batch.micro_batch_size=1",
                       "batch.global_batch_size=" + std::to_string(cores)},
                      cores);
    c.limit(60).start();
    ASSERT_TRUE(c.wait_for("iteration        1/"));
    std::set<std::string> own;
    for (int rank = 0; rank < cores; rank++) {
        std::ifstream status("/proc/" + std::to_string(c.rank(rank)) + "/status");
        for (std::string line; std::getline(status, line);)
            if (line.rfind("Cpus_allowed_list:", 0) == 0)
                own.insert(line);
    }
    kill(c.pid(), SIGTERM);
    EXPECT_EQ(c.wait().code, 7);
    EXPECT_EQ(own.size(), static_cast<size_t>(cores));
    for (const std::string &list : own)
        EXPECT_EQ(list.find_first_of(",-"), std::string::npos) << list;
}

/* Eight ranks on two cores, also with two threads each. Without the variables that the other tests set, so that how
 * threads wait is the program's own choice. */
TEST_F(CliTopology, MoreRanksThanCores)
{
    const int ranks = 8, cores = number_of_cores();
    const Words ten = {"train.train_iters=10"};
    for (int configured : {0, 2}) {
        const int threads = configured ? configured : (cores + ranks - 1) / ranks;
        const std::string what = std::to_string(threads) + " threads";
        Words args = Words{"train", kTiny, "logging.metrics_file=" + path("m.jsonl")} + ten + grid(2, 2);
        if (configured)
            args.push_back("device.threads=" + std::to_string(configured));
        Command c = plait(args, ranks);
        c.set("OMP_NUM_THREADS", "").set("OMP_WAIT_POLICY", "").limit(120).start();
        ASSERT_TRUE(c.wait_for("iteration        2/")) << what;
        for (int rank = 0; rank < ranks; rank++) {
            const int there = threads_of(c.rank(rank));
            EXPECT_GE(there, threads) << what << ", rank " << rank;
            EXPECT_LE(there, threads + kThreadsBeside) << what << ", rank " << rank;
        }
        const Outcome o = c.wait();
        ASSERT_EQ(o.code, 0) << what << "\n" << o;
        EXPECT_FALSE(o.timed_out) << what << "\n" << o;
        const Metrics m = read_metrics(path("m.jsonl"));
        expect_near(m.losses(), reference(kTiny, ten).losses(), 1e-5, what, 3);
        expect_near(m.losses(), reference(kTiny, ten).losses(), 1e-3, what);
        EXPECT_NE(o.out.find(" " + what + " a rank"), std::string::npos) << o;
    }
}
