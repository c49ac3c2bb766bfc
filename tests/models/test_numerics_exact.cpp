// What is equal to the last bit on one rank, and what is equal within rounding: recomputation, threads, instruction
// sets.
#include "tests/models/training_testing.h"

using namespace training;

namespace
{

struct Result {
    std::vector<plait_step_result> steps;
    Tensors weights;
};

Result train(const Overrides &overrides, int steps)
{
    Training run(Ranks::all, "tiny.yaml", overrides);
    Result r;
    r.steps = run.steps(steps);
    r.weights = run.weights();
    return r;
}

void expect_same_bits(const Result &got, const Result &want)
{
    for (size_t i = 0; i < want.steps.size(); i++) {
        EXPECT_EQ(got.steps[i].loss, want.steps[i].loss) << "step " << i + 1;
        EXPECT_EQ(got.steps[i].grad_norm, want.steps[i].grad_norm) << "step " << i + 1;
    }
    expect_bit_equal(got.weights, want.weights);
}

void expect_fp32_bounds(const Result &got, const Result &want)
{
    for (size_t i = 0; i < want.steps.size(); i++) {
        EXPECT_LE(relative(got.steps[i].loss, want.steps[i].loss), 1e-6) << "step " << i + 1;
        EXPECT_LE(relative(got.steps[i].grad_norm, want.steps[i].grad_norm), 5e-6) << "step " << i + 1;
    }
}

} // namespace

// ---- recomputation ----

struct Recompute {
    const char *name, *arch, *dtype;
    Overrides how;
};
void PrintTo(const Recompute &r, std::ostream *os)
{
    *os << r.name;
}
class Recomputation : public testing::TestWithParam<Recompute>
{
};

// Dropout masks are functions of what they are for, so nothing is redrawn.
TEST_P(Recomputation, GivesTheSameBits)
{
    const Recompute &c = GetParam();
    Overrides common = {std::string("model.arch=") + c.arch, std::string("precision.dtype=") + c.dtype,
                        "model.hidden_dropout=0.1", "model.attention_dropout=0.1"};
    if (std::string(c.arch) == "gpt2")
        common.push_back("model.num_query_groups=null");
    expect_same_bits(train(join(common, c.how), 3), train(common, 3));
}

const Overrides kSelective = {"recompute.granularity=selective", "recompute.modules=[core_attn, mlp_act, norms]"};
const Overrides kFull = {"recompute.granularity=full", "recompute.num_layers=2"};
const Overrides kBlock = {"recompute.granularity=full", "recompute.method=block", "recompute.num_layers=3"};
const Recompute kRecompute[] = {
    {"llama_selective", "llama", "fp32", kSelective},
    {"llama_full", "llama", "fp32", kFull},
    {"llama_block", "llama", "fp32", kBlock},
    {"gpt2_selective", "gpt2", "fp32", kSelective},
    {"gpt2_full", "gpt2", "fp32", kFull},
    {"llama_selective_bf16", "llama", "bf16", kSelective},
    {"llama_full_bf16", "llama", "bf16", kFull},
};
INSTANTIATE_TEST_SUITE_P(, Recomputation, testing::ValuesIn(kRecompute),
                         [](const auto &i) { return std::string(i.param.name); });

// ---- dropout ----

// The masks are used in training, change from step to step and with the seed, and evaluation has none.
TEST(Dropout, IsDrawnAnewEachStepAndNotInEvaluation)
{
    const Overrides still = {"optimizer.lr=0", "train.eval_interval=1"};
    const Overrides dropped = join(still, {"model.hidden_dropout=0.2", "model.attention_dropout=0.2"});
    Training plain(Ranks::all, "tiny.yaml", still), run(Ranks::all, "tiny.yaml", dropped);
    const Samples same = [](int64_t s, int64_t t) {
        return Token{static_cast<int32_t>((s * 37 + t) % 200), static_cast<int32_t>((s * 37 + t + 1) % 200)};
    };
    const double a = run.step(same).loss, b = run.step(same).loss, without = plain.step(same).loss;
    EXPECT_NE(a, without);
    EXPECT_NE(a, b);
    EXPECT_EQ(plain.step(same).loss, without) << "the rate is zero: nothing else changes";
    EXPECT_EQ(run.evaluate(), plain.evaluate());
}

// Inverted dropout keeps the mean. Rows of ones through the residual's dropout: the mean of n elements of mean 1 and
// variance p / (1 - p) is within 5 standard errors of 1, and a share p of them is zero.
TEST(Dropout, KeepsTheMean)
{
    const int64_t rows = 512, cols = 256, n = rows * cols;
    for (double p : {0.1, 0.5, 0.9}) {
        Training run(Ranks::all, "tiny.yaml", {});
        const plait_exec *ex = plait_engine_exec(run.engine());
        std::vector<float> ones(n, 1), zeros(n, 0), y(n);
        plait_dropout drop = {};
        drop.p = p;
        drop.seed = 1234;
        drop.use = PLAIT_RNG_DROPOUT_MLP;
        drop.layer = 2;
        drop.step = 7;
        drop.batch = 4;
        check(ex->k->bias_dropout_add_fwd(ex, y.data(), ones.data(), nullptr, zeros.data(), &drop, rows, cols));
        double sum = 0, dropped = 0;
        for (float v : y) {
            sum += static_cast<double>(v);
            dropped += v == 0.0f;
        }
        const double count = static_cast<double>(n);
        EXPECT_NEAR(sum / count, 1.0, 5 * std::sqrt(p / (1 - p) / count)) << "p " << p;
        EXPECT_NEAR(dropped / count, p, 5 * std::sqrt(p * (1 - p) / count)) << "p " << p;
    }
}

// ---- the same run again, with more threads, with other kernels ----

TEST(SameRun, TwiceGivesTheSameBits)
{
    for (const char *dtype : {"fp32", "bf16", "fp16"}) {
        const Overrides o = {std::string("precision.dtype=") + dtype};
        expect_same_bits(train(o, 3), train(o, 3));
    }
}

TEST(Threads, AnyNumberGivesTheSameBits)
{
    for (const char *dtype : {"precision.dtype=fp32", "precision.dtype=bf16"}) {
        const Result one = train({dtype, "device.threads=1"}, 5);
        for (const char *threads : {"device.threads=2", "device.threads=3"})
            expect_same_bits(train({dtype, threads}, 5), one);
    }
}

// T0 with the specification's loops, in fp32 and fp64: what every instruction set is compared with.
TEST(InstructionSet, TrainsLikeTheReference)
{
    const Result fp32 = train({}, 5);
    expect_fp32_bounds(fp32, train({"precision.dtype=fp64"}, 5));
    expect_fp32_bounds(fp32, train({"device.kernels=ref"}, 5));
}
