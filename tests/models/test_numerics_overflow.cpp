// fp16 over several ranks: an overflow on one is a skipped step on all; and what travels in 16 bits.
#include "tests/models/training_testing.h"

using namespace training;

namespace
{

/* Layer 0 as the same function with the gradient of a norm's output 2^k times larger: its weight divided by that, the
 * matrices that it feeds multiplied. */
void shift_norm(Tensors &all, const std::string &norm, const std::vector<std::string> &fed, int k)
{
    for (double &w : all.at("model.layers.0." + norm + ".weight"))
        w = std::ldexp(w, -k);
    for (const std::string &matrix : fed)
        for (double &w : all.at("model.layers.0." + matrix + ".weight"))
            w = std::ldexp(w, k);
}

void shift_first_norm(Tensors &all)
{
    shift_norm(all, "input_layernorm", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}, 12);
}

void shift_both_norms(Tensors &all)
{
    shift_first_norm(all);
    shift_norm(all, "post_attention_layernorm", {"mlp.gate_proj", "mlp.up_proj"}, 12);
}

std::vector<double> gather_from_ranks(double mine)
{
    std::vector<double> all;
    for (int rank = 0; rank < test_world.size; rank++) {
        double value = mine;
        check(plait_comm_broadcast_bytes(test_world.comm, &value, sizeof value, rank));
        all.push_back(value);
    }
    return all;
}

/* Whether this rank's own gradients of the last step have an infinity or NaN. */
bool own_overflow(Training &run)
{
    int32_t found = 0;
    check(plait_zero_unscale(plait_engine_zero(run.engine()), 1.0, &found));
    return found != 0;
}

} // namespace

// The first stage alone overflows. Every rank skips the step, halves the scale and counts it; the losses stay those of
// the model before its norms were shifted.
TEST(Overflow, OnOneStageSkipsOnAllRanks)
{
    const int steps = 5;
    SharedDir dir(&test_world);
    const std::string file = edited_weights(dir, shift_both_norms);
    Overrides o = {"precision.dtype=fp16",
                   "precision.fp16.initial_scale_power=16",
                   "precision.fp16.hysteresis=1",
                   "optimizer.lr=1e-6",
                   "parallelism.pp=2",
                   "checkpoint.load_weights=" + file};
    if (test_world.size == 4)
        o.push_back("parallelism.tp=2");
    Training unshifted(Ranks::alone, "tiny.yaml", {"optimizer.lr=1e-6"});
    Training run(Ranks::all, "tiny.yaml", o);
    const bool first_stage = plait_engine_topology(run.engine())->p == 0;
    double scale = 65536;
    int skipped = 0;
    for (int i = 0; i < steps; i++) {
        const plait_step_result r = run.step();
        EXPECT_LE(relative(r.loss, unshifted.step().loss), 2e-3) << "step " << i + 1;
        EXPECT_EQ(r.loss_scale, scale) << "step " << i + 1;
        ASSERT_TRUE(i > 0 || r.skipped) << "nothing overflows: the case is idle";
        EXPECT_EQ(own_overflow(run), r.skipped && first_stage) << "step " << i + 1;
        skipped += r.skipped;
        scale = r.skipped ? scale / 2 : scale;
        for (double s : gather_from_ranks(plait_engine_loss_scaler(run.engine())->scale))
            EXPECT_EQ(s, scale) << "step " << i + 1;
        for (double s : gather_from_ranks(static_cast<double>(plait_engine_loss_scaler(run.engine())->skipped)))
            EXPECT_EQ(s, skipped) << "step " << i + 1;
        for (double u : gather_from_ranks(static_cast<double>(plait_engine_updates(run.engine()))))
            EXPECT_EQ(u, i + 1 - skipped) << "step " << i + 1;
    }
}

// Shards: the gradients of the first norm and of the embedding's rows overflow, those of the layers' matrices do not.
// Of four data ranks the third holds neither norms nor rows of letters, and skips all the same.
TEST(Overflow, OfSomeShardsSkipsOnAllDataRanks)
{
    SharedDir dir(&test_world);
    const std::string file = edited_weights(dir, shift_first_norm);
    Training run(Ranks::all, "tiny.yaml",
                 {"precision.dtype=fp16", "precision.fp16.initial_scale_power=16", "precision.fp16.hysteresis=1",
                  "zero_optimization.stage=2", "checkpoint.load_weights=" + file});
    const Tensors before = run.weights();
    ASSERT_TRUE(run.step().skipped);
    const std::vector<double> own = gather_from_ranks(own_overflow(run));
    EXPECT_EQ(own, test_world.size == 4 ? std::vector<double>({1, 1, 0, 1}) : std::vector<double>({1, 1}));
    for (double s : gather_from_ranks(plait_engine_loss_scaler(run.engine())->scale))
        EXPECT_EQ(s, 32768);
    expect_bit_equal(run.weights(), before);
}

// ---- the wire ----

struct Wire {
    const char *name, *dtype, *wire;
    Overrides topology;
    double bound; /* of the norm, against an fp32 wire */
};
void PrintTo(const Wire &w, std::ostream *os)
{
    *os << w.name;
}
class GradientWire : public testing::TestWithParam<Wire>
{
};

// communication_data_type rounds what data ranks exchange of gradients, and nothing else: the first loss is untouched.
TEST_P(GradientWire, RoundsGradientsAlone)
{
    const Wire &w = GetParam();
    const Overrides common = join({std::string("precision.dtype=") + w.dtype}, w.topology);
    Training wide(Ranks::all, "tiny.yaml", join(common, {"precision.communication_data_type=fp32"}));
    Training narrow(Ranks::all, "tiny.yaml",
                    join(common, {std::string("precision.communication_data_type=") + w.wire}));
    const auto want = wide.steps(3), got = narrow.steps(3);
    EXPECT_EQ(got[0].loss, want[0].loss);
    EXPECT_NE(got[0].grad_norm, want[0].grad_norm) << "the wire was not used";
    for (int i = 0; i < 3; i++) {
        EXPECT_LE(relative(got[i].loss, want[i].loss), 1e-3) << "step " << i + 1;
        EXPECT_LE(relative(got[i].grad_norm, want[i].grad_norm), w.bound) << "step " << i + 1;
    }
}

const Wire kWires[] = {
    {"bf16_stage0", "fp32", "bf16", {}, 4e-3},
    {"fp16_stage0", "fp32", "fp16", {}, 1e-3},
    {"bf16_stage2", "bf16", "bf16", {"zero_optimization.stage=2"}, 8e-3},
    {"fp16_stage2", "bf16", "fp16", {"zero_optimization.stage=2"}, 2e-3},
};
INSTANTIATE_TEST_SUITE_P(, GradientWire, testing::ValuesIn(kWires),
                         [](const auto &i) { return std::string(i.param.name); });
