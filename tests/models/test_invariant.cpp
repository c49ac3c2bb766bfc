// numerics.reduction invariant: losses, gradient norms and weights have the same bits for every topology, ZeRO stage,
// schedule and division of layers, with and without sequence parallelism and recomputation, on one thread and on two.
#include "../parallel/mpi_world.h"
#include "core/safetensors.h"
#include "kernels/cpu/cpu.h"
#include "matrix.h"
#include "training_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace
{

const Overrides kMode = {"numerics.reduction=invariant", "device.kernels=cpu"};
const Overrides kGpt = {"model.arch=gpt2", "model.num_query_groups=8", "model.tie_word_embeddings=true",
                        "model.hidden_dropout=0.1", "model.attention_dropout=0.1"};

struct Model {
    const char *name;
    Overrides overrides;
};
// T1, whose four key/value heads are fewer than its eight slices, and a GPT with everything that draws and ties.
const std::vector<Model> kModelsOfTheTest = {
    {"llama fp32", {"precision.dtype=fp32"}},
    {"llama bf16", {"precision.dtype=bf16"}},
    {"gpt fp32", kGpt + Overrides{"precision.dtype=fp32"}},
    {"gpt bf16", kGpt + Overrides{"precision.dtype=bf16"}},
    // Too large a scale at first; after five good steps it grows and is too large again.
    {"llama fp16",
     {"precision.dtype=fp16", "precision.fp16.initial_scale_power=24", "precision.fp16.loss_scale_window=5"}},
};

struct Case {
    int model;
    Row row;
    int threads;
    bool uneven; // layers of pipeline stages

    Overrides overrides() const
    {
        Overrides all = {"device.threads=" + std::to_string(threads)};
        for (const std::string &o : row.overrides())
            if (o.rfind("model.", 0) != 0) // the model is not the row's own here
                all.push_back(o);
        if (uneven)
            all.push_back("parallelism.pipeline_layout=" + std::string(row.pp == 2   ? "[3, 5]"
                                                                       : row.pp == 4 ? "[1, 4, 3, 0]"
                                                                                     : "[1, 2, 1, 0, 1, 1, 1, 1]"));
        return all;
    }
    std::string name() const
    {
        return row.name() + ", " + std::to_string(threads) + " threads" + (uneven ? ", uneven stages" : "");
    }
};

// Deals out what has no row of its own.
void add_case(std::vector<Case> *cases, int model, Row row)
{
    const int i = (int)cases->size();
    row.recompute = (Recompute)(i * 3 % (int)Recompute::kCount);
    cases->push_back({model, row, i % 3 == 1 ? 2 : 1, row.pp > 1 && row.chunks() == 1 && i % 2 == 0});
}

// The legal rows of each (tp, pp, dp); the first is one rank.
std::vector<std::vector<Row>> rows_by_triple()
{
    std::map<std::tuple<int, int, int>, std::vector<Row>> by;
    by[{1, 1, 1}] = {{1, 1, 1, Zero::kStage0, Pipe::kNone, false, false, false, false, Recompute::kNone}};
    for (const Row &r : legal_rows())
        by[{r.tp, r.pp, r.dp}].push_back(r);
    std::vector<std::vector<Row>> triples;
    for (const auto &[triple, rows] : by)
        triples.push_back(rows);
    return triples;
}

// Each triple with one of the models. The steps are those with which most pairs of choices meet.
std::vector<Case> few_cases()
{
    const std::vector<std::vector<Row>> triples = rows_by_triple();
    std::vector<Case> cases;
    for (size_t t = 0; t < triples.size(); t++)
        add_case(&cases, (int)(t % kModelsOfTheTest.size()), triples[t][(4 * t + 5) % triples[t].size()]);
    return cases;
}

// Each triple with each model; together the models have every legal row.
std::vector<Case> many_cases()
{
    std::vector<Case> cases;
    const size_t models = kModelsOfTheTest.size();
    for (size_t m = 0; m < models; m++)
        for (const std::vector<Row> &rows : rows_by_triple())
            for (size_t i = m % rows.size(); i < rows.size(); i += models)
                add_case(&cases, (int)m, rows[i]);
    return cases;
}

// A weight file: the bits of each tensor.
using Bits = std::map<std::string, std::vector<unsigned char>>;
Bits bits_of(const std::string &path)
{
    Bits all;
    plait_st_file *f = nullptr;
    EXPECT_EQ(plait_st_open(path.c_str(), &f), PLAIT_OK) << plait_error_text();
    for (int64_t i = 0; f && i < plait_st_count(f); i++) {
        const plait_st_tensor *t = plait_st_at(f, i);
        std::vector<unsigned char> &bits = all[t->name];
        bits.resize((size_t)t->numel * plait_st_dtype_size(t->dtype));
        EXPECT_EQ(plait_st_read_raw(f, t, 0, t->numel, bits.data()), PLAIT_OK) << plait_error_text();
    }
    plait_st_close(f);
    EXPECT_FALSE(all.empty());
    return all;
}

class Invariant : public testing::Test
{
  protected:
    static void TearDownTestSuite() { remove_shared_dir(); }

    // The models on one rank, as others are compared with.
    void make_references(const std::vector<Model> &models, const Overrides &also, int num_steps)
    {
        steps = num_steps;
        std::vector<Overrides> runs;
        for (const Model &m : models)
            runs.push_back(kMode + m.overrides + also);
        overrides = runs;
        reference = references(runs, steps);
        for (const RunResult &r : reference)
            weights.push_back(bits_of(r.weights));
    }

    void has_the_bits_of_one_rank(plait_world *world, int model, const Overrides &topology)
    {
        const std::string file =
            shared_dir() + "/invariant-" + std::to_string(test_world.rank / world->size) + ".safetensors";
        const RunResult got = train(world, overrides[(size_t)model] + topology, steps, file);
        if (world->rank != 0)
            return;
        EXPECT_EQ(got.losses, reference[(size_t)model].losses);
        EXPECT_EQ(got.norms, reference[(size_t)model].norms);
        EXPECT_TRUE(bits_of(file) == weights[(size_t)model]);
    }

    void all_have_the_bits_of_one_rank(const std::vector<Case> &cases)
    {
        for (int ranks : {1, 2, 4, 8}) {
            std::vector<Case> fit;
            std::copy_if(cases.begin(), cases.end(), std::back_inserter(fit),
                         [&](const Case &c) { return c.row.ranks() == ranks; });
            side_by_side(ranks, (int)fit.size(), [&](plait_world *world, int i) {
                const Case &c = fit[(size_t)i];
                SCOPED_TRACE(std::string(kModelsOfTheTest[(size_t)c.model].name) + ", " + c.name());
                has_the_bits_of_one_rank(world, c.model, c.overrides());
            });
        }
    }

    int steps = 0;
    std::vector<Overrides> overrides;
    std::vector<RunResult> reference;
    std::vector<Bits> weights;
};

// What a list of cases is for: that no choice is left out.
void expect_every_choice(const std::vector<Case> &cases)
{
    std::set<std::tuple<int, int, int>> triples;
    std::set<Zero> zero;
    std::set<Pipe> pipe;
    std::set<Recompute> recompute;
    std::set<int> models, threads, sequence, uneven;
    for (const Case &c : cases) {
        triples.insert({c.row.tp, c.row.pp, c.row.dp});
        zero.insert(c.row.zero);
        pipe.insert(c.row.pipe);
        recompute.insert(c.row.recompute);
        models.insert(c.model);
        threads.insert(c.threads);
        sequence.insert(c.row.sequence_parallel);
        uneven.insert(c.uneven);
    }
    EXPECT_EQ(triples.size(), 20U);
    EXPECT_EQ(zero.size(), 5U);
    EXPECT_EQ(pipe.size(), 4U);
    EXPECT_EQ(recompute.size(), (size_t)Recompute::kCount);
    EXPECT_EQ(models.size(), kModelsOfTheTest.size());
    EXPECT_EQ(threads.size(), 2U);
    EXPECT_EQ(sequence.size(), 2U);
    EXPECT_EQ(uneven.size(), 2U);
}

TEST_F(Invariant, EveryTripleHasTheBitsOfOneRank)
{
    const std::vector<Case> cases = few_cases();
    EXPECT_GE(cases.size(), 20U);
    expect_every_choice(cases);
    make_references(kModelsOfTheTest, {}, 20);
    all_have_the_bits_of_one_rank(cases);

    // The fp16 model has skipped steps, at the start and later, and made others.
    const std::vector<double> &norms = reference.back().norms;
    EXPECT_FALSE(std::isfinite(norms.front()));
    const auto good = std::find_if(norms.begin(), norms.end(), [](double n) { return std::isfinite(n); });
    ASSERT_NE(good, norms.end());
    EXPECT_TRUE(std::any_of(good, norms.end(), [](double n) { return !std::isfinite(n); }));
}

TEST_F(Invariant, EveryLegalRowHasTheBitsOfOneRank)
{
    const std::vector<Case> cases = many_cases();
    EXPECT_GE(cases.size(), 152U);
    expect_every_choice(cases);
    make_references(kModelsOfTheTest, {}, 20);
    all_have_the_bits_of_one_rank(cases);
}

// The same with the instructions that every processor has, where there are others.
TEST_F(Invariant, EveryTripleWithAvx2)
{
    if (!plait_kernels_cpu(PLAIT_FP32, PLAIT_ISA_AVX512))
        GTEST_SKIP() << "the test before has run with AVX2";
    make_references(kModelsOfTheTest, {"device.isa=avx2"}, 20);
    all_have_the_bits_of_one_rank(few_cases());
}

// Sizes at which a library would choose other ways: blocks, threads, leading dimensions. A slice of the vocabulary is
// several units.
class InvariantWide : public Invariant, public testing::WithParamInterface<const char *>
{
};

TEST_P(InvariantWide, TensorRanksHaveTheBitsOfOne)
{
    make_references(
        {{"wide",
          {"model.num_layers=2", "model.hidden_size=512", "model.ffn_hidden_size=1408", "model.num_query_groups=2",
           "model.seq_length=256", "batch.micro_batch_size=4", "batch.global_batch_size=8",
           "zero_optimization.max_unit_bytes=20000", std::string("precision.dtype=") + GetParam()}}},
        {}, 3);
    const struct {
        int ranks;
        std::vector<Overrides> topologies;
    } all[] = {
        {1, {{"device.threads=2"}}},
        {2, {{"parallelism.tp=2"}, {"parallelism.tp=2", "parallelism.sequence_parallel=true", "device.threads=2"}}},
        {4,
         {{"parallelism.tp=4", "parallelism.sequence_parallel=true"},
          {"parallelism.tp=2", "zero_optimization.stage=3"}}},
    };
    for (const auto &a : all)
        side_by_side(a.ranks, (int)a.topologies.size(), [&](plait_world *world, int i) {
            SCOPED_TRACE(testing::PrintToString(a.topologies[(size_t)i]));
            has_the_bits_of_one_rank(world, 0, a.topologies[(size_t)i]);
        });
}

// Positions that slices do not divide, or of which there are fewer; a head that all slices share; what else a step may
// do.
TEST_F(Invariant, OddSizesAndRarerWays)
{
    const Overrides positions = {"model.num_layers=2", "batch.global_batch_size=8"};
    const struct {
        Overrides model;
        int ranks;
        std::vector<Overrides> topologies;
    } all[] = {
        {{"model.seq_length=20"},
         4,
         {{"parallelism.tp=4", "parallelism.sequence_parallel=true"},
          {"parallelism.tp=2", "parallelism.sequence_parallel=true", "zero_optimization.stage=3",
           "zero_optimization.prefetch_units=3"}}},
        {{"model.seq_length=4", "model.num_query_groups=1"},
         8,
         {{"parallelism.tp=8"}, {"parallelism.tp=4", "parallelism.sequence_parallel=true"}}},
        {{"optimizer.type=SGD", "optimizer.momentum=0.9", "batch.rampup_batch_size=[4,4,8]"},
         4,
         {{"parallelism.tp=2", "zero_optimization.stage=2", "zero_optimization.keep_full_gradients=true"},
          {"zero_optimization.stage=3"},
          {"parallelism.pp=2", "zero_optimization.stage=2"}}},
    };
    std::vector<Model> models;
    for (const auto &a : all)
        models.push_back({"odd", positions + a.model});
    make_references(models, {"precision.dtype=fp32"}, 4);
    for (int model = 0; model < (int)models.size(); model++)
        side_by_side(all[model].ranks, (int)all[model].topologies.size(), [&](plait_world *world, int i) {
            const Overrides &topology = all[model].topologies[(size_t)i];
            SCOPED_TRACE(testing::PrintToString(all[model].model + topology));
            has_the_bits_of_one_rank(world, model, topology);
        });
}

INSTANTIATE_TEST_SUITE_P(, InvariantWide, testing::Values("fp32", "bf16"),
                         [](const auto &i) { return std::string(i.param); });

} // namespace
