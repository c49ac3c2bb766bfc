// Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models": model states of a
// device, of P parameters on N data ranks, in 16-bit training with Adam. The paper counts 2 bytes for a parameter, 2
// for its gradient and 12 for fp32 copy, momentum and variance:
//
//   stage 1   2 P + 2 P + 12 P / N      stage 2   2 P + (2 + 12) P / N      stage 3   (2 + 2 + 12) P / N
//
// Plait adds up gradients in fp32, so it holds 4 bytes where the paper has 2; parameters and optimizer are the paper's.
// Besides it holds, and the paper leaves out, at stages 2 and 3 two scratch gradients of the largest unit, and at stage
// 3 the gathered units: the one in use and prefetch_units more.
#include "planned_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace
{

// GPT-type models whose token matrix makes up what layers of a width leave to a round number of parameters.
struct Model {
    const char *name;
    double parameters;
    int layers, hidden, heads, vocab;
};
const Model k7B = {"7.5B", 7.5e9, 36, 4096, 32, 60088}, k128B = {"128B", 128e9, 125, 9216, 72, 62240},
            k1T = {"1T", 1e12, 127, 25600, 160, 45424};

constexpr int kRanks[] = {1, 4, 16, 64, 256, 1024};

// Gigabytes as the paper's table 1 prints them, for stages 1, 2, 3.
struct Printed {
    const Model *model;
    const char *text[6][3];
};
const Printed kTable[] = {
    {&k7B,
     {{"120", "120", "120"},
      {"52.5", "41.3", "30"},
      {"35.6", "21.6", "7.5"},
      {"31.4", "16.6", "1.88"},
      {"30.4", "15.4", "0.47"},
      {"30.1", "15.1", "0.12"}}},
    {&k128B,
     {{"2048", "2048", "2048"},
      {"896", "704", "512"},
      {"608", "368", "128"},
      {"536", "284", "32"},
      {"518", "263", "8"},
      {"513", "257", "2"}}},
    {&k1T,
     {{"16000", "16000", "16000"},
      {"7000", "5500", "4000"},
      {"4750", "2875", "1000"},
      {"4187", "2218", "250"},
      {"4046", "2054", "62.5"},
      {"4011", "2013", "15.6"}}},
};

// What the last printed digit is worth: the table rounds some numbers and cuts others.
double last_digit(const std::string &text)
{
    const size_t point = text.find('.');
    return point == std::string::npos ? 1.0 : std::pow(10.0, -static_cast<double>(text.size() - point - 1));
}

Words overrides(const Model &m, int ranks, int stage)
{
    return {"model.arch=gpt2",
            set("model.num_layers", m.layers),
            set("model.hidden_size", m.hidden),
            set("model.num_attention_heads", m.heads),
            set("model.vocab_size", m.vocab),
            "model.make_vocab_size_divisible_by=1",
            "model.seq_length=1024",
            "precision.dtype=bf16",
            "batch.micro_batch_size=1",
            set("batch.global_batch_size", ranks),
            set("parallelism.dp", ranks),
            "zero_optimization.max_unit_bytes=64GiB",
            set("zero_optimization.stage", stage)};
}

// 12 h^2 for the matrices of a layer, 13 h for its norms and biases; tokens, positions and the final norm.
int64_t parameters_of(const Model &m)
{
    const int64_t h = m.hidden;
    return m.layers * (12 * h * h + 13 * h) + (m.vocab + 1024) * h + 2 * h;
}

class ZeroTable : public testing::TestWithParam<Printed>
{
};

TEST_P(ZeroTable, IsThePapersAndGradientsTwice)
{
    const Model &m = *GetParam().model;
    const int64_t P = parameters_of(m);
    // As near to the round number as one more word.
    ASSERT_LE(std::fabs(static_cast<double>(P) - m.parameters), 8.0 * m.hidden);
    for (size_t row = 0; row < std::size(kRanks); row++)
        for (int stage = 1; stage <= 3; stage++) {
            const int N = kRanks[row];
            SCOPED_TRACE(std::to_string(N) + " ranks, stage " + std::to_string(stage));
            const PlannedModel model("", overrides(m, N, stage), N);
            ASSERT_TRUE(model.ok());
            ASSERT_EQ(model.parameters(), P);
            const std::vector<int64_t> units = model.units(0);
            const int64_t num_units = static_cast<int64_t>(units.size()),
                          largest = *std::max_element(units.begin(), units.end());
            // A shard begins at a multiple of 8 elements, each buffer at one of 64 bytes.
            const double rounding = static_cast<double>(num_units) * 8, aligned = PLAIT_MEM_ALIGN;
            const double whole = static_cast<double>(P), shard = whole / N;
            const double slack = aligned * static_cast<double>(num_units + 2);
            for (int i = 0; i < model.plan().num_classes; i++) {
                const plait_rank_class &c = model.plan().classes[i];
                const double scratch = stage >= 2 ? 2.0 * 4 * static_cast<double>(largest) : 0;
                const double gathered = stage == 3 ? 2.0 * 2 * static_cast<double>(largest) : 0; // 1 + 1 prefetched
                const double parameters = static_cast<double>(c.bytes[PLAIT_MEM_PARAM]),
                             gradients = static_cast<double>(c.bytes[PLAIT_MEM_GRAD]) - scratch,
                             optimizer = static_cast<double>(c.bytes[PLAIT_MEM_OPTIM]);
                EXPECT_NEAR(optimizer, 12 * shard, 12 * rounding + 3 * slack);
                EXPECT_NEAR(gradients, 4 * (stage >= 2 ? shard : whole), 4 * rounding + slack);
                if (stage < 3) {
                    EXPECT_NEAR(parameters, 2 * whole, slack);
                } else {
                    // Neighbours in the order that are both the largest unit need all of it.
                    EXPECT_LE(parameters, 2 * shard + gathered + 2 * rounding + slack);
                    EXPECT_GE(parameters, 2 * shard + gathered / 2 - 2 * rounding);
                }
                // The paper's row: its gradients are half as wide, and nothing is gathered.
                const double kept_parameters = stage < 3 ? parameters : 2 * shard;
                const double paper = kept_parameters + gradients / 2 + optimizer;
                const std::string printed = GetParam().text[row][stage - 1];
                EXPECT_NEAR(paper / 1e9, std::stod(printed), last_digit(printed)) << "printed " << printed;
            }
        }
}
INSTANTIATE_TEST_SUITE_P(, ZeroTable, testing::ValuesIn(kTable),
                         [](const auto &i) { return "Of" + std::to_string(i.index); });

// Narayanan et al. 2021, table 1: GPT-3 175B on 1024 ranks and 1T on 3072, fp16, no ZeRO. Every stage has l layers; a
// tensor rank its part of the matrices and split biases, and all of what is not cut. Exact: no buffer of these sizes
// needs padding.
struct Published {
    const char *file;
    int64_t h, layers, V, s, t, p, d;
};
void PrintTo(const Published &p, std::ostream *out)
{
    *out << p.file;
}

class ModelStates : public testing::TestWithParam<Published>
{
};

TEST_P(ModelStates, OfEveryStageAreTheClosedForm)
{
    const auto [file, h, layers, V, s, t, p, d] = GetParam();
    const PlannedModel model(file, {});
    ASSERT_TRUE(model.ok());
    ASSERT_EQ(model.topo().world, t * p * d);
    EXPECT_EQ(model.parameters(), layers * (12 * h * h + 13 * h) + (V + s) * h + 2 * h);
    EXPECT_EQ(model.plan().num_classes, p);
    for (int stage = 0; stage < p; stage++) {
        const int64_t cut = 12 * h * h + 7 * h, whole = 6 * h; // of a layer; 3 h + 4 h biases are cut
        int64_t elements = layers / p * (cut / t + whole);
        if (stage == 0)
            elements += V * h / t + s * h;
        if (stage == p - 1)
            elements += 2 * h + V * h / t; // the tied matrix, once more
        EXPECT_EQ(model.stage(stage).elements, elements) << stage;
        EXPECT_EQ(model.stage(stage).num_ranks, t * d) << stage;
        EXPECT_EQ(model.bytes(stage, PLAIT_MEM_PARAM), 2 * elements) << stage;
        EXPECT_EQ(model.bytes(stage, PLAIT_MEM_GRAD), 4 * elements) << stage;
        EXPECT_EQ(model.bytes(stage, PLAIT_MEM_OPTIM), 12 * elements) << stage;
    }
}

const Published kPublished[] = {
    {"gpt3-175b.yaml", 12288, 96, 51200, 2048, 8, 16, 8},
    {"gpt-1t.yaml", 25600, 128, 51200, 2048, 8, 64, 6},
};
INSTANTIATE_TEST_SUITE_P(, ModelStates, testing::ValuesIn(kPublished),
                         [](const auto &i) { return "Of" + std::to_string(i.index); });

} // namespace
