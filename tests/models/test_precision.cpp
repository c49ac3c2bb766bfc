// What 16-bit training rests on, on one rank: fp32 masters, loss scaling, skipped steps, what is stored in 16 bits.
#include "tests/models/training_testing.h"

using namespace training;

namespace
{

std::vector<double> losses(const std::vector<plait_step_result> &steps)
{
    std::vector<double> all;
    for (const plait_step_result &s : steps)
        all.push_back(s.loss);
    return all;
}

double rate_of(const Tensors &before, const Tensors &after, const std::string &name, size_t i)
{
    return std::fabs(after.at(name)[i] - before.at(name)[i]);
}

/* A head whose matrix is 2^11 times smaller, and with it the gradients of everything below it. */
std::string small_head(const SharedDir &dir)
{
    return edited_weights(dir, [](Tensors &all) {
        for (double &w : all.at("lm_head.weight"))
            w *= 0x1p-11;
    });
}

bool is_norm(const std::string &name)
{
    return name.find("norm") != std::string::npos;
}

} // namespace

// ---- the curve ----

struct Sixteen {
    const char *name, *dtype;
    Overrides extra;
};
class FollowsFp32 : public testing::TestWithParam<Sixteen>
{
};

TEST_P(FollowsFp32, WithinTwoPercentOverAHundredSteps)
{
    constexpr int kSteps = 100;
    static const std::vector<double> reference = [] {
        Training run(Ranks::all, "tiny.yaml", {});
        return losses(run.steps(kSteps));
    }();
    const Overrides sixteen = {std::string("precision.dtype=") + GetParam().dtype};
    Training run(Ranks::all, "tiny.yaml", join(sixteen, GetParam().extra));
    const std::vector<double> got = losses(run.steps(kSteps));
    ASSERT_LT(reference.back(), 0.8 * reference.front()) << "nothing was learned: the comparison would be idle";
    for (int i = 0; i < kSteps; i++)
        EXPECT_LE(relative(got[i], reference[i]), 0.02) << "step " << i + 1;
    EXPECT_NE(got, reference) << "16 bits were not used";
}

const Sixteen kSixteen[] = {
    {"bf16", "bf16", {}},
    /* 2^16 from the first step: nothing is skipped, so steps can be compared one by one. */
    {"fp16", "fp16", {"precision.fp16.initial_scale_power=16"}},
};
INSTANTIATE_TEST_SUITE_P(, FollowsFp32, testing::ValuesIn(kSixteen),
                         [](const auto &i) { return std::string(i.param.name); });

// ---- masters ----

// 1 - 6e-4 is 1 in bf16, whose next number below is 1 - 2^-8: without fp32 masters the norms would stand still for
// ever.
TEST(Masters, NormWeightsMoveByLessThanBf16CanShow)
{
    constexpr int kSteps = 100;
    Training run(Ranks::all, "tiny.yaml", {"precision.dtype=bf16", "optimizer.lr=6e-4"});
    run.steps(kSteps);
    int64_t elements = 0, moved = 0, representable = 0;
    for (const auto &[name, values] : run.weights()) {
        if (!is_norm(name))
            continue;
        for (double w : values) {
            elements++;
            moved += w != 1.0;
            representable += std::fmod(w * 256.0, 1.0) == 0.0;
            EXPECT_LE(std::fabs(w - 1.0), 2 * kSteps * 6e-4) << name;
        }
    }
    EXPECT_EQ(elements, 9 * 64);
    EXPECT_GE(moved, elements * 95 / 100);
    EXPECT_LT(representable, elements / 10) << "what is saved are not the masters";
}

// What runs is the rounded parameter: the masters' own values are seen in the file, T's in the arena.
TEST(Masters, ParametersAreTheirRounding)
{
    Training run(Ranks::all, "tiny.yaml", {"precision.dtype=bf16"});
    run.steps(3);
    const plait_param_list *list = plait_engine_params(run.engine());
    plait_zero *zero = plait_engine_zero(run.engine());
    int64_t compared = 0, rounded = 0;
    for (int i = 0; i < list->num_units; i++) {
        std::vector<float> master(static_cast<size_t>(list->units[i].numel));
        check(plait_zero_read(zero, i, 0, list->units[i].numel, master.data()));
        const uint16_t *param = static_cast<const uint16_t *>(plait_zero_param(zero, i));
        for (size_t k = 0; k < master.size(); k++) {
            ASSERT_EQ(param[k], plait_float_to_bf16(master[k])) << list->units[i].name << " element " << k;
            rounded += plait_bf16_to_float(param[k]) != master[k];
            compared++;
        }
    }
    EXPECT_EQ(compared, 180928);
    EXPECT_GT(rounded, compared / 2);
}

// ---- loss scaling ----

// Small gradients: what a small head sends to the layers below is around 2^-29, under fp16's smallest number (2^-24).
// Without scaling the layers do not learn; with it they get fp32's updates.
TEST(LossScaling, SavesGradientsThatUnderflow)
{
    SharedDir dir(&test_world);
    const std::string file = small_head(dir);
    /* Plain SGD: an update is proportional to the gradient, where Adam would blow up whatever is left of it. */
    const Overrides plain = {"optimizer.type=SGD",
                             "optimizer.lr=1000",
                             "optimizer.weight_decay=0",
                             "optimizer.clip_grad=0",
                             "batch.micro_batch_size=8",
                             "batch.global_batch_size=32",
                             "checkpoint.load_weights=" + file};
    const auto update = [&](const Overrides &precision) {
        Training run(Ranks::all, "tiny.yaml", join(plain, precision));
        const Tensors before = run.weights();
        const plait_step_result r = run.step();
        EXPECT_FALSE(r.skipped);
        Tensors change = run.weights();
        for (auto &[name, values] : change)
            for (size_t i = 0; i < values.size(); i++)
                values[i] -= before.at(name)[i];
        return change;
    };
    const Tensors fp32 = update({});
    const Tensors lost = update({"precision.dtype=fp16", "precision.fp16.loss_scale=1"});
    const Tensors saved = update({"precision.dtype=fp16", "precision.fp16.initial_scale_power=16"});
    int layers = 0;
    for (const auto &[name, want] : fp32) {
        EXPECT_LE(distance(saved.at(name), want, 0), 0.03) << name;
        if (name.find("layers.") == std::string::npos)
            continue;
        EXPECT_GE(distance(lost.at(name), want, 0), 0.5) << name;
        layers++;
    }
    EXPECT_EQ(layers, 4 * 9);
    EXPECT_LE(distance(lost.at("lm_head.weight"), fp32.at("lm_head.weight"), 0), 0.1)
        << "the head's own gradient is large enough without scaling";
}

// 2^32 / 256 tokens is far over fp16's largest number, 65504: the first steps overflow. They change nothing: not the
// weights, not the schedule, not Adam's t.
TEST(LossScaling, SkippedStepsAdvanceNothing)
{
    const double lr = 1e-3, warmup = 10;
    Training run(Ranks::all, "tiny.yaml",
                 {"precision.dtype=fp16", "precision.fp16.initial_scale_power=32", "precision.fp16.hysteresis=1",
                  "lr_scheduler.warmup_iters=10", "optimizer.weight_decay=0"});
    const Tensors initial = run.weights();
    int skipped = 0;
    plait_step_result r;
    for (; skipped < 30; skipped++) {
        r = run.step();
        EXPECT_EQ(r.loss_scale, std::ldexp(1.0, 32 - skipped));
        EXPECT_DOUBLE_EQ(run.lr, lr / warmup) << "after " << skipped << " skipped steps";
        EXPECT_TRUE(std::isfinite(r.loss));
        if (!r.skipped)
            break;
        EXPECT_FALSE(std::isfinite(r.grad_norm));
        EXPECT_EQ(plait_engine_updates(run.engine()), 0);
        EXPECT_EQ(plait_engine_loss_scaler(run.engine())->skipped, skipped + 1);
        if (skipped == 2)
            expect_bit_equal(run.weights(), initial);
    }
    ASSERT_FALSE(r.skipped);
    EXPECT_GE(skipped, 7);
    EXPECT_LE(skipped, 16);
    EXPECT_EQ(plait_engine_updates(run.engine()), 1);
    EXPECT_EQ(plait_engine_loss_scaler(run.engine())->skipped, skipped);

    /* With t = 1 the bias corrections cancel and every weight with a gradient far above eps moves by the rate of the
     * first update. Were t the number of steps, it would be a multiple of it; were the rate the (k + 1)th, likewise. */
    const Tensors after = run.weights();
    int64_t elements = 0, at_rate = 0;
    for (const char *name : {"lm_head.weight", "model.layers.2.mlp.down_proj.weight", "model.norm.weight"}) {
        for (size_t i = 0; i < after.at(name).size(); i++) {
            elements++;
            at_rate += relative(rate_of(initial, after, name, i), lr / warmup) < 0.01;
        }
    }
    EXPECT_GE(at_rate, elements * 98 / 100);
    run.step();
    EXPECT_DOUBLE_EQ(run.lr, 2 * lr / warmup);
}

// The sequence of scales worked out by hand. With 192 counted tokens and a small head the largest number of the
// backward pass is a logit's gradient, just below scale / 192: above 65504 (overflow) for 2^24 and more, below it for
// 2^23. From 2^26, hysteresis 2, window 3: two overflows before the first halving, one for each halving after it; three
// good steps double the scale and refill the tolerance, so the next overflow is forgiven once.
TEST(LossScaling, ScaleFollowsTheSequenceWorkedOutByHand)
{
    SharedDir dir(&test_world);
    Training run(Ranks::all, "tiny.yaml",
                 {"precision.dtype=fp16", "precision.fp16.initial_scale_power=26", "precision.fp16.hysteresis=2",
                  "precision.fp16.loss_scale_window=3", "batch.global_batch_size=6", "optimizer.lr=1e-7",
                  "checkpoint.load_weights=" + small_head(dir)});
    const struct {
        int power;
        bool skipped;
    } want[] = {{26, true}, {26, true},  {25, true},  {24, true},  {23, false}, {23, false}, {23, false}, {24, true},
                {24, true}, {23, false}, {23, false}, {23, false}, {24, true},  {24, true},  {23, false}};
    int64_t step = 0, updates = 0;
    for (const auto &w : want) {
        const plait_step_result r = run.step();
        step++;
        updates += !w.skipped;
        ASSERT_EQ(r.loss_scale, std::ldexp(1.0, w.power)) << "step " << step;
        ASSERT_EQ(r.skipped, w.skipped) << "step " << step;
        ASSERT_EQ(plait_engine_updates(run.engine()), updates) << "step " << step;
    }
}

// The scale cancels: the same norm and the same update from scales that are 16 apart.
TEST(LossScaling, ScaleIsDividedOut)
{
    const auto run_with = [](const char *power) {
        Training run(Ranks::all, "tiny.yaml",
                     {"precision.dtype=fp16", std::string("precision.fp16.initial_scale_power=") + power});
        return run.steps(3);
    };
    const auto low = run_with("12"), high = run_with("16");
    for (int i = 0; i < 3; i++) {
        EXPECT_LE(relative(low[i].loss, high[i].loss), 1e-3);
        EXPECT_LE(relative(low[i].grad_norm, high[i].grad_norm), 5e-3);
    }
}

// ---- bytes ----

struct Bytes {
    const char *name, *dtype;
    int64_t param, optim; /* bytes a parameter */
};
class Ledger : public testing::TestWithParam<Bytes>
{
};

TEST_P(Ledger, SixteenBitsHalveParametersAndActivations)
{
    Training run(Ranks::all, "tiny.yaml", {std::string("precision.dtype=") + GetParam().dtype});
    run.step();
    const plait_ledger *ledger = plait_engine_ledger(run.engine());
    const auto held = [ledger](plait_mem_kind kind) {
        EXPECT_EQ(ledger->high_water[PLAIT_TIER_DEVICE][kind], ledger->planned[PLAIT_TIER_DEVICE][kind])
            << plait_mem_kind_name(kind);
        return static_cast<int64_t>(ledger->high_water[PLAIT_TIER_DEVICE][kind]);
    };
    const int64_t parameters = plait_param_list_counted(plait_engine_params(run.engine()));
    /* Statistics and logits stay in fp32. One micro-batch of 64 rows is in flight. */
    const int64_t rows = 64, layers = 4, heads = 4, head_dim = 16, hidden = 64, ffn = 128, vocab = 257;
    const int64_t in_acc = layers * (2 * rows + rows * heads) + rows + rows * vocab;
    const int64_t qkv = (heads + 2 * 2) * head_dim;
    const int64_t in_dtype =
        layers * rows * (4 * hidden + qkv + 3 * ffn) + (layers + 2) * rows * hidden; /* and inputs, final norm */
    const int64_t size = GetParam().param, slack = 64 * 64;                          /* views are aligned to 64 bytes */
    EXPECT_NEAR(held(PLAIT_MEM_PARAM), parameters * size, slack);
    EXPECT_NEAR(held(PLAIT_MEM_GRAD), parameters * 4, slack);
    EXPECT_NEAR(held(PLAIT_MEM_OPTIM), parameters * GetParam().optim, slack);
    EXPECT_NEAR(held(PLAIT_MEM_ACT), in_acc * 4 + in_dtype * size, slack);
}

const Bytes kBytes[] = {
    {"fp32", "fp32", 4, 8}, /* the parameter is its own master */
    {"bf16", "bf16", 2, 12},
    {"fp16", "fp16", 2, 12},
};
INSTANTIATE_TEST_SUITE_P(, Ledger, testing::ValuesIn(kBytes), [](const auto &i) { return std::string(i.param.name); });

// ---- what is refused ----

struct Refusal {
    const char *name;
    Overrides overrides;
    const char *text; /* in the message */
};
void PrintTo(const Refusal &r, std::ostream *os)
{
    *os << r.name;
}
class Refused : public testing::TestWithParam<Refusal>
{
};

TEST_P(Refused, WithASentence)
{
    try {
        Training run(Ranks::all, "tiny.yaml", GetParam().overrides);
        FAIL() << "was accepted";
    } catch (const std::runtime_error &e) {
        EXPECT_NE(std::string(e.what()).find(GetParam().text), std::string::npos) << e.what();
    }
}

const Refusal kRefusals[] = {
    {"ref_bf16", {"device.kernels=ref", "precision.dtype=bf16"}, "ref has no bf16"},
    {"ref_fp16", {"device.kernels=ref", "precision.dtype=fp16"}, "ref has no fp16"},
    {"cpu_fp64", {"device.kernels=cpu", "precision.dtype=fp64"}, "cpu has no fp64"},
    {"fp64_over_a_narrow_wire",
     {"precision.dtype=fp64", "precision.communication_data_type=fp32"},
     "fp32 does not go with precision.dtype fp64"},
    {"fp32_over_a_wide_wire", {"precision.communication_data_type=fp64"}, "fp64 does not go with precision.dtype fp32"},
    {"scale_without_fp16",
     {"precision.dtype=bf16", "precision.fp16.initial_scale_power=8"},
     "has an effect only with precision.dtype fp16"},
};
INSTANTIATE_TEST_SUITE_P(, Refused, testing::ValuesIn(kRefusals),
                         [](const auto &i) { return std::string(i.param.name); });
