/* The fingerprint that a run ends with: of which numbers it is made, and that the grid is none of them. */
#include "plait_test.h"

#include "core/safetensors.h"

#include <cstring>
#include <regex>
#include <xxhash.h>

namespace
{

const Words kWeights = {"numerics.fingerprint=weights"};

/* What parallel/weights.h says of a weight file. */
uint64_t hash_of_file(const std::string &path)
{
    plait_st_file *f = nullptr;
    if (plait_st_open(path.c_str(), &f) != PLAIT_OK) {
        ADD_FAILURE() << plait_error_text();
        return 0;
    }
    uint64_t sum = 0;
    for (int64_t i = 0; i < plait_st_count(f); i++) {
        const plait_st_tensor *t = plait_st_at(f, i);
        const size_t size = plait_st_dtype_size(t->dtype);
        std::vector<unsigned char> bytes(static_cast<size_t>(t->numel) * size);
        EXPECT_EQ(plait_st_read_raw(f, t, 0, t->numel, bytes.data()), PLAIT_OK) << plait_error_text();
        const uint64_t seed = XXH3_64bits(t->name, std::strlen(t->name));
        for (int64_t k = 0; k < t->numel; k++) {
            uint64_t term[2] = {static_cast<uint64_t>(k), 0};
            std::memcpy(&term[1], &bytes[static_cast<size_t>(k) * size], size);
            sum += XXH3_64bits_withSeed(term, sizeof term, seed);
        }
    }
    plait_st_close(f);
    return sum;
}

std::string hex(uint64_t x)
{
    char text[17];
    snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(x));
    return text;
}

class CliFingerprint : public PlaitTest
{
  protected:
    std::string of(const Words &overrides, int ranks = 0)
    {
        return train(kTiny, Words{"train.train_iters=3"} + overrides, ranks).metrics.fingerprint;
    }
};

} // namespace

TEST_F(CliFingerprint, IsOfTheLossesOfAllSteps)
{
    Trained r = train(kTiny, {"train.train_iters=3"});
    const std::vector<double> losses = r.metrics.losses();
    EXPECT_EQ(r.metrics.fingerprint, hex(XXH3_64bits(losses.data(), losses.size() * sizeof losses[0])));
    EXPECT_NE(r.outcome.out.find("\nfingerprint: " + r.metrics.fingerprint + " (losses of 3 steps)\n"),
              std::string::npos)
        << r.outcome;
    EXPECT_EQ(of({}), r.metrics.fingerprint) << "the same run again";
    EXPECT_EQ(of({"device.threads=2"}), r.metrics.fingerprint);
    EXPECT_NE(of({"train.seed=7"}), r.metrics.fingerprint);
    EXPECT_NE(of({"train.train_iters=2"}), r.metrics.fingerprint);
    /* seen from the second loss on */
    EXPECT_NE(of({"optimizer.lr=0.0011"}), r.metrics.fingerprint);
}

TEST_F(CliFingerprint, OfTheWeightsIsThatOfTheWeightFileOnEveryGrid)
{
    struct {
        const char *name;
        int ranks;
        Words overrides;
    } rows[] = {
        {"llama", 0, {}},
        {"fp64", 0, {"precision.dtype=fp64"}},
        {"bf16_masters", 2, {"precision.dtype=bf16", "zero_optimization.stage=1"}},
        {"gpt2_transposed_tied", 2, {"model.arch=gpt2", "model.num_query_groups=4", "parallelism.tp=2"}},
        {"tied_on_two_stages", 2, {"model.tie_word_embeddings=true", "parallelism.pp=2"}},
        {"padded_copied_heads", 4, {"model.make_vocab_size_divisible_by=128", "parallelism.tp=4"}},
        {"dp3_zero3", 3, {"zero_optimization.stage=3", "batch.global_batch_size=6"}},
        {"gather_to_root", 2, {"parallelism.data_parallel_algorithm=gather_to_root"}},
        {"all", 8, {"parallelism.tp=2", "parallelism.pp=2", "zero_optimization.stage=2"}},
    };
    const std::string file = path("w.safetensors");
    for (const auto &r : rows) {
        Trained t = train(
            kTiny, Words{"train.train_iters=2", "checkpoint.save_weights=" + file} + kWeights + r.overrides, r.ranks);
        const uint64_t hash = hash_of_file(file);
        std::vector<double> parts = t.metrics.losses();
        parts.push_back(0);
        std::memcpy(&parts.back(), &hash, sizeof hash);
        EXPECT_EQ(t.metrics.fingerprint, hex(XXH3_64bits(parts.data(), parts.size() * sizeof parts[0]))) << r.name;
        EXPECT_NE(t.outcome.out.find("\nfingerprint: " + t.metrics.fingerprint + " (losses of 2 steps, weights)\n"),
                  std::string::npos)
            << r.name << "\n"
            << t.outcome;
    }
}

/* A step's loss is of the weights before its update. */
TEST_F(CliFingerprint, OnlyThatOfTheWeightsKnowsTheLastUpdate)
{
    const Words one = {"train.train_iters=1"}, still = {"train.train_iters=1", "optimizer.lr=0"};
    EXPECT_EQ(of(one), of(still));
    EXPECT_NE(of(one + kWeights), of(still + kWeights));
    EXPECT_EQ(of(still + kWeights), of(still + kWeights));
    EXPECT_NE(of(still), of(still + kWeights));
}

/* One micro-batch a rank: every gradient is one sum of two numbers, whoever forms it. */
TEST_F(CliFingerprint, IsTheSameForAllStagesThatComputeTheSameBits)
{
    const Words two = kWeights + Words{"batch.global_batch_size=4", "optimizer.clip_grad=0"};
    const std::string whole = of(two, 2);
    for (const char *stage : {"1", "2", "3"})
        EXPECT_EQ(of(two + Words{std::string("zero_optimization.stage=") + stage}, 2), whole) << stage;
    EXPECT_EQ(of(two + Words{"parallelism.data_parallel_algorithm=gather_to_root"}, 2), whole);
    EXPECT_NE(of(two + Words{"train.seed=7"}, 2), whole);
}

/* Also losses of evaluations, and with a number of data ranks and of micro-batches that are no powers of two. */
TEST_F(CliFingerprint, IsTheSameOnEveryGridWithInvariantReductions)
{
    const Words run = kWeights + Words{"numerics.reduction=invariant", "train.train_iters=3", "train.eval_interval=2",
                                       "batch.global_batch_size=12", "data.split=80,20,0"};
    struct {
        int ranks;
        Words overrides;
    } rows[] = {
        {0, {"device.threads=2"}},
        {2, {"parallelism.tp=2"}},
        {3, {"zero_optimization.stage=3"}},
        {4, {"parallelism.tp=4", "parallelism.sequence_parallel=true"}},
        {6, {"parallelism.pp=2", "zero_optimization.stage=1"}},
        {8, {"parallelism.tp=2", "parallelism.pp=2", "zero_optimization.stage=2", "parallelism.vpp=2"}},
    };
    const Trained one = train(kTiny, run);
    ASSERT_FALSE(one.metrics.evals.empty());
    for (const auto &r : rows) {
        SCOPED_TRACE(text_of(r.overrides));
        const Trained t = train(kTiny, run + r.overrides, r.ranks);
        EXPECT_EQ(t.metrics.fingerprint, one.metrics.fingerprint);
        EXPECT_EQ(t.metrics.norms(), one.metrics.norms());
        ASSERT_EQ(t.metrics.evals.size(), one.metrics.evals.size());
        for (size_t i = 0; i < one.metrics.evals.size(); i++)
            EXPECT_EQ(t.metrics.evals[i].loss, one.metrics.evals[i].loss);
    }
}
