// What each kind of parallelism sends in a step, as its paper counts it: bytes of the buffers that a planned step hands
// to its groups. b micro-batch, s sequence, h width, V vocabulary, l layers of a stage, m micro-batches of a data rank,
// t tensor ranks, v chunks, P parameters. A rank of N puts (N - 1) / N of a reduce-scatter's or all-gather's buffer on
// the wire, twice that of an all-reduce's, where groups are rings.
//
// (Every rank's traffic of every topology is held to closed forms in traffic.cpp.)
#include "planned_model.h"

#include <gtest/gtest.h>

#include <numeric>

namespace
{

constexpr int64_t b = 2, s = 64, h = 96, V = 512, kLayers = 8, m = 6;
constexpr int64_t bsh = b * s * h;
constexpr int64_t T = 2, A = 4; // bytes of bf16, which travels, and of fp32, in which gradients add up

const Words kModel = {"model.arch=gpt2",
                      "model.num_layers=8",
                      "model.hidden_size=96",
                      "model.seq_length=64",
                      "model.vocab_size=512",
                      "model.num_attention_heads=8",
                      "batch.micro_batch_size=2",
                      "precision.dtype=bf16",
                      "model.tie_word_embeddings=false",
                      "precision.communication_data_type=fp32"};

class PlanTraffic : public testing::Test
{
  protected:
    // The model on tp x pp x dp ranks, m micro-batches each.
    static Words on(int tp, int pp, int dp)
    {
        return kModel + Words{set("parallelism.tp", tp), set("parallelism.pp", pp), set("parallelism.dp", dp),
                              set("batch.global_batch_size", b * m * dp)};
    }
    static int64_t bytes(const plait_rank_class &c, plait_group group, plait_comm_kind kind)
    {
        return c.traffic[group].bytes[kind];
    }
    static int64_t calls(const plait_rank_class &c, plait_group group, plait_comm_kind kind)
    {
        return c.traffic[group].calls[kind];
    }
    static int64_t sum(const std::vector<int64_t> &all) { return std::accumulate(all.begin(), all.end(), int64_t{0}); }
};

// Shoeybi et al. 2019, section 3: a layer has two all-reduces forward, behind attention and MLP, and two backward.
TEST_F(PlanTraffic, TensorParallelIsFourAllReducesOfALayer)
{
    for (const int t : {2, 4, 8}) {
        const PlannedModel model("", on(t, 4, 1));
        ASSERT_TRUE(model.ok());
        const plait_rank_class &inner = model.stage(1); // layers alone
        const int64_t l = kLayers / 4;
        EXPECT_EQ(calls(inner, PLAIT_GROUP_TENSOR, PLAIT_COMM_ALL_REDUCE), m * l * 4);
        EXPECT_EQ(bytes(inner, PLAIT_GROUP_TENSOR, PLAIT_COMM_ALL_REDUCE), m * l * 4 * bsh * T);
        for (const plait_comm_kind kind : {PLAIT_COMM_REDUCE_SCATTER, PLAIT_COMM_ALL_GATHER})
            EXPECT_EQ(calls(inner, PLAIT_GROUP_TENSOR, kind), 0);
    }
}

// Korthikanti et al. 2022, section 4.2: each all-reduce becomes a reduce-scatter and an all-gather, so the same bytes
// on a ring. Backward needs the two gathered inputs again, of which a rank has kept its part: 2 all-gathers more.
TEST_F(PlanTraffic, SequenceParallelIsFourAndFourAndTwoMore)
{
    for (const int t : {2, 4, 8}) {
        const PlannedModel model("", on(t, 4, 1) + Words{"parallelism.sequence_parallel=true"});
        ASSERT_TRUE(model.ok());
        const plait_rank_class &inner = model.stage(1);
        const int64_t l = kLayers / 4, replicated = 6 * h; // norms and the biases behind a sum: neighbours in a layer
        EXPECT_EQ(bytes(inner, PLAIT_GROUP_TENSOR, PLAIT_COMM_REDUCE_SCATTER), m * l * 4 * bsh * T);
        EXPECT_EQ(bytes(inner, PLAIT_GROUP_TENSOR, PLAIT_COMM_ALL_GATHER), m * l * (4 + 2) * bsh * T);
        // Every rank has seen its rows alone: gradients of what is not cut are summed, once a step.
        EXPECT_EQ(calls(inner, PLAIT_GROUP_TENSOR, PLAIT_COMM_ALL_REDUCE), l);
        EXPECT_EQ(bytes(inner, PLAIT_GROUP_TENSOR, PLAIT_COMM_ALL_REDUCE), l * replicated * A);
    }
}

// Full recomputation runs the forward again (Narayanan et al. 2021, section 3.5), and with it its two all-reduces. The
// one at the end of a layer makes the next layer's input: where that is kept, for groups of one layer always, it is not
// made again, and of the two one is left.
TEST_F(PlanTraffic, RecomputationRepeatsTheForward)
{
    const int64_t l = kLayers / 4;
    const auto all_reduces = [&](const Words &recompute) {
        const PlannedModel model("", on(2, 4, 1) + recompute);
        EXPECT_TRUE(model.ok());
        return calls(model.stage(1), PLAIT_GROUP_TENSOR, PLAIT_COMM_ALL_REDUCE);
    };
    const Words full = {"recompute.granularity=full", "recompute.method=uniform"};
    EXPECT_EQ(all_reduces(full + Words{"recompute.num_layers=1"}), m * l * (4 + 1));
    EXPECT_EQ(all_reduces(full + Words{"recompute.num_layers=2"}), m * (l * (4 + 2) - 1)) << "of a group, all but one";
    EXPECT_EQ(all_reduces({"recompute.granularity=selective"}), m * l * 4) << "core attention has none";
}

// Rajbhandari et al. 2020, section 7: of each unit and step, with M micro-batches. Gradients travel as they add up, in
// fp32, parameters in bf16. The inner stage of a pipeline has layers alone.
TEST_F(PlanTraffic, ZeroStages)
{
    const struct {
        Words stage;
        int64_t all_reduce, reduce_scatter, all_gather, reduce, broadcast; // times P
    } rows[] = {
        {{"zero_optimization.stage=0"}, 1, 0, 0, 0, 0},
        {{"zero_optimization.stage=1"}, 0, 1, 1, 0, 0},
        {{"zero_optimization.stage=2"}, 0, m, 1, 0, 0},
        {{"zero_optimization.stage=2", "zero_optimization.keep_full_gradients=true"}, 0, 1, 1, 0, 0},
        {{"zero_optimization.stage=3"}, 0, m, 2 * m, 0, 0},
        {{"parallelism.data_parallel_algorithm=gather_to_root"}, 0, 0, 0, 1, 1},
    };
    for (const auto &r : rows)
        for (const int d : {2, 3, 8}) {
            SCOPED_TRACE(r.stage.back() + " on " + std::to_string(d));
            const PlannedModel model("", on(1, 4, d) + r.stage);
            ASSERT_TRUE(model.ok());
            const int64_t P = sum(model.units(1)), units = static_cast<int64_t>(model.units(1).size());
            ASSERT_EQ(P, kLayers / 4 * (12 * h * h + 13 * h));
            for (int rank = 0; rank < d; rank++) {
                const plait_rank_class &c = model.at(rank, 1, 0);
                const int64_t tokens = 8; // how many count, of all ranks
                EXPECT_EQ(bytes(c, PLAIT_GROUP_DATA, PLAIT_COMM_ALL_REDUCE), r.all_reduce * P * A + tokens);
                EXPECT_EQ(bytes(c, PLAIT_GROUP_DATA, PLAIT_COMM_REDUCE_SCATTER), r.reduce_scatter * P * A);
                EXPECT_EQ(bytes(c, PLAIT_GROUP_DATA, PLAIT_COMM_ALL_GATHER), r.all_gather * P * T);
                EXPECT_EQ(bytes(c, PLAIT_GROUP_DATA, PLAIT_COMM_REDUCE), r.reduce * P * A);
                EXPECT_EQ(bytes(c, PLAIT_GROUP_DATA, PLAIT_COMM_BROADCAST), r.broadcast * P * T);
                EXPECT_EQ(calls(c, PLAIT_GROUP_DATA, PLAIT_COMM_REDUCE_SCATTER), r.reduce_scatter * units);
                EXPECT_EQ(calls(c, PLAIT_GROUP_DATA, PLAIT_COMM_ALL_GATHER), r.all_gather * units);
            }
        }
}

// Stage 3 of a whole model: the paper's 2 M all-gathers, but backward of an embedding needs no parameters.
TEST_F(PlanTraffic, ZeroStage3OfAWholeModel)
{
    const PlannedModel model("", on(1, 1, 4) + Words{"zero_optimization.stage=3"});
    ASSERT_TRUE(model.ok());
    const int64_t P = sum(model.units(0)), embeddings = (V + s) * h;
    EXPECT_EQ(bytes(model.stage(0), PLAIT_GROUP_DATA, PLAIT_COMM_ALL_GATHER), m * (2 * P - embeddings) * T);
    EXPECT_EQ(bytes(model.stage(0), PLAIT_GROUP_DATA, PLAIT_COMM_REDUCE_SCATTER), m * P * A);
}

// A border is crossed once in each direction by each micro-batch; with sequence parallelism by a tensor rank's rows
// alone; with v chunks there are v times the borders, less the one behind the last.
TEST_F(PlanTraffic, PipelineBorders)
{
    const struct {
        Words extra;
        int64_t t, v;
    } rows[] = {{{}, 1, 1},
                {{"parallelism.sequence_parallel=true"}, 2, 1},
                {{"parallelism.pipeline_schedule=gpipe"}, 1, 1},
                {{"parallelism.vpp=2"}, 1, 2}};
    for (const auto &r : rows) {
        const PlannedModel model("", on(r.t == 1 ? 1 : 2, 4, 1) + r.extra);
        ASSERT_TRUE(model.ok());
        for (int p = 0; p < 4; p++) {
            // Outputs of all chunks but the model's last go on, gradients of all inputs but the model's first go back.
            const int64_t messages = m * (2 * r.v - (p == 0) - (p == 3));
            EXPECT_EQ(calls(model.stage(p), PLAIT_GROUP_PIPELINE, PLAIT_COMM_SEND), messages);
            EXPECT_EQ(calls(model.stage(p), PLAIT_GROUP_PIPELINE, PLAIT_COMM_RECV), messages);
            EXPECT_EQ(bytes(model.stage(p), PLAIT_GROUP_PIPELINE, PLAIT_COMM_SEND), messages * bsh * T / r.t);
            EXPECT_EQ(bytes(model.stage(p), PLAIT_GROUP_PIPELINE, PLAIT_COMM_RECV), messages * bsh * T / r.t);
        }
    }
}

// The two copies of a tied token matrix add up their gradients, V h / t, once a step.
TEST_F(PlanTraffic, TiedEmbedding)
{
    for (const int t : {1, 2, 4}) {
        const PlannedModel model("", on(t, 4, 1) + Words{"model.tie_word_embeddings=true"});
        ASSERT_TRUE(model.ok());
        for (const int p : {0, 1, 2, 3})
            EXPECT_EQ(bytes(model.stage(p), PLAIT_GROUP_EMBEDDING, PLAIT_COMM_ALL_REDUCE),
                      p == 0 || p == 3 ? V * h / t * A : 0)
                << "stage " << p << ", tp " << t;
    }
}

// Shoeybi et al. 2019, section 3: a vocabulary that is cut is looked up with an all-reduce of b s h; its loss takes no
// b s V, only maximum, sum and the target's logit of each row; the head's input has a gradient of b s h.
TEST_F(PlanTraffic, CutVocabulary)
{
    for (const int t : {2, 4, 8}) {
        const PlannedModel model("", on(t, 4, 1));
        ASSERT_TRUE(model.ok());
        const auto more = [&](int p) {
            return bytes(model.stage(p), PLAIT_GROUP_TENSOR, PLAIT_COMM_ALL_REDUCE) -
                   bytes(model.stage(1), PLAIT_GROUP_TENSOR, PLAIT_COMM_ALL_REDUCE);
        };
        EXPECT_EQ(more(0), m * bsh * T);
        EXPECT_EQ(more(3), m * (bsh * T + 3 * b * s * A));
    }
}

} // namespace
