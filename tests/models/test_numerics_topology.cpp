// One definition of the norm, whatever the topology: what is summed once, what is replicated, what is decayed. Runs on
// 2 and on 4 ranks; each case is a split run against one rank alone.
#include "tests/models/training_testing.h"

using namespace training;

namespace
{

struct Topology {
    const char *name;
    int ranks;
    Overrides overrides;
};
void PrintTo(const Topology &t, std::ostream *os)
{
    *os << t.name;
}

template <typename Row> std::vector<Row> here(const std::vector<Row> &all)
{
    std::vector<Row> out;
    for (const Row &row : all)
        if (row.ranks == test_world.size)
            out.push_back(row);
    return out;
}

std::string name_of(const testing::TestParamInfo<Topology> &i)
{
    return i.param.name;
}

/* The same function with the gradients of the norms' weights times `factor`: those weights divided by it, the matrices
 * that they feed multiplied by it. Powers of two: nothing is rounded. */
void shift_norms(Tensors &all, double factor, int layers)
{
    const auto scale = [&](const std::string &name, double by) {
        for (double &w : all.at(name))
            w *= by;
    };
    for (int l = 0; l < layers; l++) {
        const std::string layer = "model.layers." + std::to_string(l) + ".";
        scale(layer + "input_layernorm.weight", 1 / factor);
        scale(layer + "post_attention_layernorm.weight", 1 / factor);
        for (const char *fed :
             {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"})
            scale(layer + fed + ".weight", factor);
    }
}

/* Of the squared gradient norm, what the weights of norms give; seen in the first update of plain SGD. */
double share_of_norms(const Overrides &overrides)
{
    Training run(Ranks::alone, "tiny.yaml", overrides);
    const Tensors before = run.weights();
    run.step();
    double all = 0, norms = 0;
    for (const auto &[name, values] : run.weights()) {
        for (size_t i = 0; i < values.size(); i++) {
            const double change = values[i] - before.at(name)[i];
            all += change * change;
            norms += name.find("norm") == std::string::npos ? 0 : change * change;
        }
    }
    return norms / all;
}

} // namespace

// ---- a replicated parameter counts once ----

class ReplicatedNorms : public testing::TestWithParam<Topology>
{
};

// With norm gradients 1024 times larger they dominate: a replica that is counted twice is seen in the first digit.
TEST_P(ReplicatedNorms, CountOnceInTheGradientNorm)
{
    SharedDir dir(&test_world);
    const std::string file = edited_weights(dir, [](Tensors &all) { shift_norms(all, 1024, 4); });
    /* Without momentum, clipping and decay an update is the gradient. */
    const Overrides load = {"checkpoint.load_weights=" + file, "optimizer.type=SGD", "optimizer.clip_grad=0",
                            "optimizer.weight_decay=0", "optimizer.lr=1e-6"};
    const auto want = alone(load, 3);
    EXPECT_GT(share_of_norms(load), 0.9);
    Training run(Ranks::all, "tiny.yaml", join(load, GetParam().overrides));
    expect_steps(run.steps(3), want, 1e-5, 1e-4);
}

const std::vector<Topology> kTensor = {
    {"tp2", 2, {"parallelism.tp=2"}},
    {"tp2_sequence", 2, {"parallelism.tp=2", "parallelism.sequence_parallel=true"}},
    {"dp2_zero2", 2, {"zero_optimization.stage=2"}},
    {"tp4", 4, {"parallelism.tp=4"}},
    {"tp4_sequence", 4, {"parallelism.tp=4", "parallelism.sequence_parallel=true"}},
    {"tp2_sequence_pp2", 4, {"parallelism.tp=2", "parallelism.sequence_parallel=true", "parallelism.pp=2"}},
};
INSTANTIATE_TEST_SUITE_P(, ReplicatedNorms, testing::ValuesIn(here(kTensor)), name_of);

// ---- and stays the same on all of its ranks ----

class Replicas : public testing::TestWithParam<Topology>
{
};

TEST_P(Replicas, StayBitEqual)
{
    Training run(Ranks::all, "tiny.yaml", GetParam().overrides);
    run.steps(20);
    EXPECT_GT(check_replicas(run.training()), 0);
}

const Overrides kTied = {"model.tie_word_embeddings=true", "parallelism.pp=2"};
const std::vector<Topology> kReplicated = {
    {"norms_tp2_sequence", 2, {"parallelism.tp=2", "parallelism.sequence_parallel=true"}},
    {"norms_and_biases_tp2_sequence",
     2,
     {"model.arch=gpt2", "model.num_query_groups=null", "parallelism.tp=2", "parallelism.sequence_parallel=true"}},
    {"one_kv_head_tp2", 2, {"model.num_query_groups=1", "parallelism.tp=2"}},
    {"data_ranks_zero1", 2, {"zero_optimization.stage=1"}},
    {"tied_pp2", 2, kTied},
    {"two_kv_heads_tp4", 4, {"parallelism.tp=4"}},
    {"tied_pp2_dp2_zero0", 4, join(kTied, {"zero_optimization.stage=0"})},
    {"tied_pp2_dp2_zero1", 4, join(kTied, {"zero_optimization.stage=1"})},
    {"tied_pp2_dp2_zero2", 4, join(kTied, {"zero_optimization.stage=2"})},
    {"tied_pp2_dp2_zero3", 4, join(kTied, {"zero_optimization.stage=3"})},
    {"root_updates_dp2_tp2_bf16",
     4,
     {"parallelism.data_parallel_algorithm=gather_to_root", "parallelism.tp=2", "precision.dtype=bf16"}},
};
INSTANTIATE_TEST_SUITE_P(, Replicas, testing::ValuesIn(here(kReplicated)), name_of);

// ---- a tied matrix on two stages trains like one ----

class TiedStages : public testing::TestWithParam<Topology>
{
};

// What is saved after 20 steps goes on like the run of one rank.
TEST_P(TiedStages, SaveOneMatrix)
{
    constexpr int kSteps = 20;
    const Overrides tied = {"model.tie_word_embeddings=true"};
    SharedDir dir(&test_world);
    Training run(Ranks::all, "tiny.yaml", GetParam().overrides);
    const auto want = alone(tied, kSteps + 1);
    const auto got = run.steps(kSteps);
    for (int i = 0; i < kSteps; i++)
        EXPECT_LE(relative(got[static_cast<size_t>(i)].loss, want[static_cast<size_t>(i)].loss), 1e-4)
            << "step " << i + 1;
    run.save(dir.path("tied.safetensors"));
    const std::string samples = std::to_string(kSteps * run.config().batch.global_batch_size);
    const auto next = alone(
        join(tied, {"checkpoint.load_weights=" + dir.path("tied.safetensors"), "data.first_sample=" + samples}), 1);
    EXPECT_LE(relative(next[0].loss, want[kSteps].loss), 1e-4);
}

const std::vector<Topology> kTiedStages = {
    {"dp1", 2, kTied},
    {"dp2_zero0", 4, join(kTied, {"zero_optimization.stage=0"})},
    {"dp2_zero1", 4, join(kTied, {"zero_optimization.stage=1"})},
    {"dp2_zero2", 4, join(kTied, {"zero_optimization.stage=2"})},
    {"dp2_zero3", 4, join(kTied, {"zero_optimization.stage=3"})},
};
INSTANTIATE_TEST_SUITE_P(, TiedStages, testing::ValuesIn(here(kTiedStages)), name_of);

// ---- every stage has the same norm ----

class ZeroStages : public testing::TestWithParam<Topology>
{
};

TEST_P(ZeroStages, HaveTheNormOfOneRank)
{
    Training run(Ranks::all, "tiny.yaml", GetParam().overrides);
    expect_steps(run.steps(5), alone({}, 5), 1e-5, 1e-5);
}

const std::vector<Topology> kStages = {
    {"stage0", 2, {"zero_optimization.stage=0"}},
    {"stage1", 2, {"zero_optimization.stage=1"}},
    {"stage2", 2, {"zero_optimization.stage=2"}},
    {"stage3", 2, {"zero_optimization.stage=3"}},
    {"root_updates", 2, {"parallelism.data_parallel_algorithm=gather_to_root"}},
    {"stage3_on_four", 4, {"zero_optimization.stage=3"}},
};
INSTANTIATE_TEST_SUITE_P(, ZeroStages, testing::ValuesIn(here(kStages)), name_of);

// ---- the same start everywhere ----

class InitialWeights : public testing::TestWithParam<Topology>
{
};

TEST_P(InitialWeights, AreTheSameModel)
{
    for (const Overrides &arch : {Overrides{}, Overrides{"model.arch=gpt2", "model.num_query_groups=null"}}) {
        Training one(Ranks::alone, "tiny.yaml", arch), split(Ranks::all, "tiny.yaml", join(arch, GetParam().overrides));
        const Tensors want = one.weights();
        expect_bit_equal(split.weights(), want);
        EXPECT_LE(relative(split.step().loss, one.step().loss), 1e-6);
        if (!arch.empty())
            continue;
        const std::vector<double> &q = want.at("model.layers.0.self_attn.q_proj.weight");
        const auto half = q.begin() + static_cast<std::ptrdiff_t>(q.size() / 2);
        EXPECT_FALSE(std::equal(q.begin(), half, half)) << "both halves were drawn alike";
    }
}

const std::vector<Topology> kInitial = {
    {"tp2", 2, {"parallelism.tp=2"}},
    {"pp2", 2, {"parallelism.pp=2"}},
    {"dp2_zero3", 2, {"zero_optimization.stage=3"}},
    {"tp2_pp2", 4, {"parallelism.tp=2", "parallelism.pp=2"}},
    {"tp2_dp2_zero3", 4, {"parallelism.tp=2", "zero_optimization.stage=3"}},
};
INSTANTIATE_TEST_SUITE_P(, InitialWeights, testing::ValuesIn(here(kInitial)), name_of);

// ---- what is decayed ----

// Matrices are, vectors are not, also where a shard's border cuts through a parameter.
TEST(WeightDecay, SparesVectors)
{
    const Overrides topology = test_world.size == 4 ? Overrides{"parallelism.tp=2", "zero_optimization.stage=3"}
                                                    : Overrides{"zero_optimization.stage=1"};
    for (const Overrides &arch : {Overrides{}, Overrides{"model.arch=gpt2", "model.num_query_groups=null"}}) {
        Training with(Ranks::all, "tiny.yaml", join(join(arch, topology), {"optimizer.weight_decay=0.1"}));
        Training without(Ranks::all, "tiny.yaml", join(join(arch, topology), {"optimizer.weight_decay=0"}));
        with.step();
        without.step();
        const Tensors decayed = with.weights(), plain = without.weights();
        int vectors = 0, matrices = 0;
        for (const auto &[name, values] : plain) {
            const bool vector = name.find("norm") != std::string::npos || name.find("ln_") != std::string::npos ||
                                name.find("bias") != std::string::npos;
            (vector ? vectors : matrices)++;
            EXPECT_EQ(decayed.at(name) == values, vector) << name;
        }
        EXPECT_EQ(vectors, arch.empty() ? 9 : 4 * 8 + 2);
        EXPECT_EQ(matrices, arch.empty() ? 4 * 7 + 2 : 4 * 4 + 3);
    }
}
