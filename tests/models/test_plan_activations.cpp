// Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", tables 1 and 2: what a GPT
// layer keeps for its backward, in bytes, with 16-bit activations. s sequence, b micro-batch, h width, a heads, t
// tensor ranks.
//
//   none sbh (34 + 5as/h)             tensor            sbh (10 + 24/t + 5as/(ht))   tensor, sequence  sbh/t (34 +
//   5as/h) selective, tensor sbh (10 + 24/t)   selective, sequence  sbh 34/t                full              2 sbh
//
// Plait keeps something else in four places, each a row of the table below:
//
//   - no s x s tensor at all: attention goes over tiles and keeps the log-sum-exp of each row and head, in fp32
//   - no dropout mask: it is drawn again from its counters
//   - mean and reciprocal deviation of both norms, in fp32, which the paper leaves out as small
//   - selective recomputation runs all of core attention again, so its output is not kept either
//
// Full recomputation keeps the input alone, 2 sbh, or its part with sequence parallelism, and one set of a layer's
// tensors for the layer that is run again.
#include "planned_model.h"

#include <gtest/gtest.h>

namespace
{

enum Per { kSbh, kSb, kAsb, kAssb };
enum Split { kSequence, kTensor };                         // divided by t: with sequence parallelism, or always
enum Selective { kKept, kNotInPaper, kNeither, kNotHere }; // who keeps it with selective recomputation

struct Saved {
    const char *tensor;
    Per per;
    int paper, plait; // bytes
    Split split;
    Selective selective;
};
const Saved kLayer[] = {
    {"input", kSbh, 2, 2, kSequence, kKept},
    {"norm 1", kSbh, 2, 2, kSequence, kKept},
    {"statistics of norm 1", kSb, 0, 8, kSequence, kKept},
    {"q, k, v", kSbh, 6, 6, kTensor, kKept},
    {"softmax", kAssb, 2, 0, kTensor, kNeither},
    {"dropout mask of the softmax", kAssb, 1, 0, kTensor, kNeither},
    {"softmax after dropout", kAssb, 2, 0, kTensor, kNeither},
    {"log-sum-exp", kAsb, 0, 4, kTensor, kKept},
    {"attention output", kSbh, 2, 2, kTensor, kNotHere},
    {"dropout mask after attention", kSbh, 1, 0, kSequence, kKept},
    {"after attention", kSbh, 2, 2, kSequence, kKept},
    {"norm 2", kSbh, 2, 2, kSequence, kKept},
    {"statistics of norm 2", kSb, 0, 8, kSequence, kKept},
    {"GELU input", kSbh, 8, 8, kTensor, kKept},
    {"GELU output", kSbh, 8, 8, kTensor, kKept},
    {"dropout mask after the MLP", kSbh, 1, 0, kSequence, kKept},
};

// The paper's models (table 3), and the activations of all their layers in GiB (section 5): none, tensor, tensor and
// sequence, selective, selective and sequence, full.
struct Model {
    const char *name;
    int64_t a, h, layers, b;
    double gib[6];
};
void PrintTo(const Model &m, std::ostream *out)
{
    *out << m.name;
}
const Model kModels[] = {
    {"22B", 64, 6144, 48, 4, {316.5, 59.25, 39.5625, 29.25, 9.5625, 4.5}},
    {"175B", 96, 12288, 96, 1, {256.5, 51.75, 32.0625, 29.25, 9.5625, 4.5}},
    {"530B", 128, 20480, 105, 1, {401.953125, 86.1328125, 50.244140625, 53.3203125, 17.431640625, 8.203125}},
    {"1T", 160, 25600, 128, 1, {612.5, 131.25, 76.5625, 81.25, 26.5625, 12.5}},
};
constexpr int64_t s = 2048, V = 51200;

struct Way {
    const char *name;
    int64_t t;
    bool sequence, selective, full;
};
const Way kWays[] = {
    {"none", 1, false, false, false},
    {"tensor", 8, false, false, false},
    {"tensor and sequence", 8, true, false, false},
    {"selective, tensor", 8, false, true, false},
    {"selective, tensor and sequence", 8, true, true, false},
    {"full, tensor", 8, false, false, true},
};
constexpr Way kFullAndSequence = {"full, tensor and sequence", 8, true, false, true};

int64_t bytes_of(const Saved &row, int coefficient, const Model &m, const Way &w)
{
    const int64_t rows = s * m.b;
    const int64_t n = row.per == kSbh   ? rows * m.h
                      : row.per == kSb  ? rows
                      : row.per == kAsb ? rows * m.a
                                        : rows * m.a * s;
    return coefficient * n / (row.split == kTensor || w.sequence ? w.t : 1);
}

int64_t paper_layer(const Model &m, const Way &w)
{
    int64_t sum = 0;
    for (const Saved &row : kLayer) {
        const bool kept = w.full ? row.tensor == kLayer[0].tensor : !(w.selective && row.selective == kNeither);
        sum += kept ? bytes_of(row, row.paper, m, w) : 0;
    }
    return sum;
}

// All tensors of a layer, but those that selective recomputation makes again.
int64_t plait_set(const Model &m, const Way &w)
{
    int64_t sum = 0;
    for (const Saved &row : kLayer)
        sum += w.selective && row.selective == kNotHere ? 0 : bytes_of(row, row.plait, m, w);
    return sum;
}

int64_t plait_layer(const Model &m, const Way &w)
{
    return w.full ? bytes_of(kLayer[0], 2, m, w) : plait_set(m, w);
}

// Input, norm with its statistics, and fp32 logits. The paper: (sbh/t) 4 (1 + V/h), less the statistics.
int64_t head(const Model &m, const Way &w)
{
    const int64_t rows = s * m.b;
    return (4 * rows * m.h + 8 * rows) / (w.sequence ? w.t : 1) + 4 * rows * V / w.t;
}

Words overrides(const Model &m, const Way &w)
{
    Words all = {"model.arch=gpt2",
                 set("model.num_layers", m.layers),
                 set("model.hidden_size", m.h),
                 set("model.num_attention_heads", m.a),
                 set("model.seq_length", s),
                 set("model.vocab_size", V),
                 "model.hidden_dropout=0.1",
                 "model.attention_dropout=0.1",
                 "precision.dtype=bf16",
                 set("batch.micro_batch_size", m.b),
                 set("batch.global_batch_size", m.b),
                 set("parallelism.tp", w.t)};
    if (w.sequence)
        all.emplace_back("parallelism.sequence_parallel=true");
    if (w.selective)
        all = all + Words{"recompute.granularity=selective", "recompute.modules=[core_attn]"};
    if (w.full)
        all = all + Words{"recompute.granularity=full", "recompute.method=uniform", "recompute.num_layers=1"};
    return all;
}

class PlanActivations : public testing::TestWithParam<Model>
{
};

// The table above is the paper's.
TEST_P(PlanActivations, TableAddsUpToThePapersFormulas)
{
    const Model &m = GetParam();
    const double sbh = static_cast<double>(s * m.b * m.h),
                 ratio = 5.0 * static_cast<double>(m.a * s) / static_cast<double>(m.h);
    const double want[] = {34 + ratio, 10 + 3 + ratio / 8, (34 + ratio) / 8, 10 + 3, 34.0 / 8, 2};
    for (size_t i = 0; i < std::size(kWays); i++) {
        SCOPED_TRACE(kWays[i].name);
        EXPECT_DOUBLE_EQ(static_cast<double>(paper_layer(m, kWays[i])), sbh * want[i]);
        EXPECT_DOUBLE_EQ(static_cast<double>(m.layers * paper_layer(m, kWays[i])) / (1 << 30), m.gib[i]);
    }
}

// What a plan holds is the table's other column, to the byte.
TEST_P(PlanActivations, PlanIsTheTable)
{
    const Model &m = GetParam();
    std::vector<Way> ways(std::begin(kWays), std::end(kWays));
    ways.push_back(kFullAndSequence);
    for (const Way &w : ways) {
        SCOPED_TRACE(w.name);
        const PlannedModel model("", overrides(m, w), static_cast<int>(w.t));
        ASSERT_TRUE(model.ok());
        int64_t want = m.layers * plait_layer(m, w) + head(m, w);
        if (w.full)
            want += plait_set(m, w) - plait_layer(m, w); // of the layer that is run again, besides its input
        EXPECT_EQ(model.bytes(0, PLAIT_MEM_ACT), want);
    }
}

// Paper less plan, by tensor: masks, s x s tensors, and what stands in their place.
TEST_P(PlanActivations, DifferencesHaveNames)
{
    const Model &m = GetParam();
    const int64_t rows = s * m.b;
    for (const Way &w : kWays) {
        SCOPED_TRACE(w.name);
        if (w.full) {
            EXPECT_EQ(plait_layer(m, w), paper_layer(m, w));
            continue;
        }
        const int64_t over_sequence = w.sequence ? w.t : 1;
        int64_t difference = 2 * rows * m.h / over_sequence;            // two masks of a byte
        difference += w.selective ? 0 : 5 * rows * m.a * s / w.t;       // softmax, its mask, their product
        difference += w.selective ? 2 * rows * m.h / w.t : 0;           // attention output
        difference -= 4 * rows * m.a / w.t + 16 * rows / over_sequence; // log-sum-exp; two norms' statistics
        EXPECT_EQ(paper_layer(m, w) - plait_layer(m, w), difference);
    }
}
INSTANTIATE_TEST_SUITE_P(, PlanActivations, testing::ValuesIn(kModels),
                         [](const auto &i) { return "Of" + std::string(i.param.name); });

// Section 4.2.3: with 1F1B stage 0 holds p micro-batches of L / p layers, as much as all layers of one; interleaving
// makes it (1 + (p - 1) / (p v)) times that. Of a chunk that is not the model's first the input lies in a buffer of the
// pipeline, besides slots of one size for all chunks: (v - 1) p of them are held.
TEST(PlanActivationsOfStages, FirstStageOfAPipeline)
{
    const Model m = {"", 8, 512, 16, 1, {}};
    const Way w = {"", 1, false, false, false};
    const int64_t p = 4, layer = plait_layer(m, w), input = bytes_of(kLayer[0], 2, m, w);
    const Words pipeline = {"parallelism.pp=4", "batch.global_batch_size=16"};
    const PlannedModel plain("", overrides(m, w) + pipeline, 4);
    ASSERT_TRUE(plain.ok());
    EXPECT_EQ(plain.bytes(0, PLAIT_MEM_ACT), m.layers * layer);
    for (const int64_t v : {2, 4}) {
        const PlannedModel interleaved("", overrides(m, w) + pipeline + Words{set("parallelism.vpp", v)}, 4);
        ASSERT_TRUE(interleaved.ok());
        EXPECT_EQ(interleaved.bytes(0, PLAIT_MEM_ACT) - m.layers * layer * (p * v + p - 1) / (p * v),
                  (v - 1) * p * input)
            << v;
    }
}

} // namespace
