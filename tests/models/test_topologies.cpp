// Corners of the space of topologies, on a model so small that eight of them run in no time: any number of
// micro-batches, uneven and empty stages, sizes that nothing divides, growing batches, matrices in several units.
#include "../parallel/mpi_world.h"
#include "launcher/run_config.h"
#include "models/registry.h"
#include "parallel/weights.h"
#include "traffic.h"
#include "training_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace
{

const char *const kConfig = PLAIT_SOURCE_DIR "/configs/tiny8.yaml";
constexpr int kSteps = 3;
constexpr double kLearningRate = 1e-3;

struct Case {
    std::string name;
    int ranks;
    Overrides model;    // of one rank too
    Overrides topology; // of this run alone
};

Overrides over(int tp, int pp, int dp)
{
    return {"parallelism.tp=" + std::to_string(tp), "parallelism.pp=" + std::to_string(pp),
            "parallelism.dp=" + std::to_string(dp)};
}

const char *const kStages[] = {"zero_optimization.stage=0", "zero_optimization.stage=1", "zero_optimization.stage=2",
                               "zero_optimization.stage=3", "parallelism.data_parallel_algorithm=gather_to_root"};

// Runs all cases, each beside others with as many ranks, and compares with one rank.
void run_cases(const std::vector<Case> &cases, int steps = kSteps)
{
    std::vector<Overrides> models;
    for (const Case &c : cases)
        if (std::find(models.begin(), models.end(), c.model) == models.end())
            models.push_back(c.model);
    std::vector<Overrides> runs;
    for (const Overrides &m : models)
        runs.push_back(small_model() + m);
    const std::vector<RunResult> reference = references(runs, steps);

    std::map<int, std::vector<const Case *>> by_ranks;
    for (const Case &c : cases)
        by_ranks[c.ranks].push_back(&c);
    for (const auto &group : by_ranks) {
        const int ranks = group.first;
        side_by_side(ranks, (int)group.second.size(), [&](plait_world *world, int i) {
            const Case &c = *group.second[(size_t)i];
            SCOPED_TRACE(c.name);
            const std::string file = shared_dir() + "/case-" + std::to_string(test_world.rank / ranks) + ".safetensors";
            const bool ramp = std::any_of(c.model.begin(), c.model.end(),
                                          [](const std::string &o) { return o.rfind("batch.rampup", 0) == 0; });
            const Watch look = [&](plait_training &t, int step) {
                if (step < steps)
                    return;
                check_replicas(t);
                check_memory(t);
                if (!ramp)
                    check_traffic(t);
            };
            const RunResult got = train(world, small_model() + c.model + c.topology, steps, file, look);
            if (world->rank != 0)
                return;
            const size_t at = (size_t)(std::find(models.begin(), models.end(), c.model) - models.begin());
            EXPECT_GT(compare(got, reference[at], kFp64, kLearningRate), 0);
            EXPECT_EQ(got.batches, reference[at].batches);
        });
    }
}

class Topologies : public testing::Test
{
  protected:
    static void TearDownTestSuite() { remove_shared_dir(); }
};

// Fewer micro-batches than stages, no multiple of them, and more; 6, 8 and 12 virtual stages of 8 layers, so that some
// have two and some none.
TEST_F(Topologies, AnyNumberOfMicroBatchesWithInterleaving)
{
    std::vector<Case> cases;
    for (int pp : {2, 4})
        for (int chunks : {2, 3})
            for (int micros = 1; micros <= 3 * pp; micros++)
                cases.push_back({"pp " + std::to_string(pp) + ", " + std::to_string(chunks) + " chunks, " +
                                     std::to_string(micros) + " micro-batches",
                                 pp,
                                 {"model.num_layers=8", "batch.global_batch_size=" + std::to_string(micros)},
                                 over(1, pp, 1) + Overrides{"parallelism.vpp=" + std::to_string(chunks)}});
    run_cases(cases, 2);
}

TEST_F(Topologies, GradientsOfSeveralMicroBatchesAtEveryStageOfZero)
{
    std::vector<Case> cases;
    for (const char *stage : kStages)
        for (int pp : {1, 2, 4})
            for (int micros : {2, 3})
                cases.push_back({std::string(stage) + ", pp " + std::to_string(pp) + ", " + std::to_string(micros) +
                                     " micro-batches",
                                 2 * pp,
                                 {"batch.global_batch_size=" + std::to_string(2 * micros)},
                                 over(1, pp, 2) + Overrides{stage}});
    run_cases(cases);
}

TEST_F(Topologies, StagesOfAnySize)
{
    const Overrides eight = {"model.num_layers=8"}, tied = {"model.num_layers=5", "model.tie_word_embeddings=true"};
    const Overrides gpt = {"model.num_layers=3", "model.arch=gpt2", "model.num_query_groups=4"};
    const std::vector<Case> cases = {
        {"3 and 5", 2, eight, over(1, 2, 1) + Overrides{"parallelism.pipeline_layout=[3, 5]"}},
        {"5 and 3, dp 2, stage 3", 4, eight,
         over(1, 2, 2) + Overrides{"parallelism.pipeline_layout=[5, 3]", kStages[3]}},
        {"0 and 8", 2, eight, over(1, 2, 1) + Overrides{"parallelism.pipeline_layout=[0, 8]"}},
        {"8 and 0", 2, eight, over(1, 2, 1) + Overrides{"parallelism.pipeline_layout=[8, 0]"}},
        {"none at both ends", 4, eight, over(1, 4, 1) + Overrides{"parallelism.pipeline_layout=[0, 4, 4, 0]"}},
        {"none in the middle", 4, eight, over(1, 4, 1) + Overrides{"parallelism.pipeline_layout=[2, 0, 0, 6]"}},
        {"none in the middle, gpipe", 4, eight,
         over(1, 4, 1) + Overrides{"parallelism.pipeline_layout=[2, 0, 0, 6]", "parallelism.pipeline_schedule=gpipe"}},
        {"none in some chunks", 4, eight,
         over(1, 2, 2) + Overrides{"parallelism.vpp=2", "parallelism.pipeline_layout=[0, 5, 0, 3]", kStages[2]}},
        {"5 layers, pp 2", 2, tied, over(1, 2, 1)},
        {"5 layers, pp 2, dp 2, stage 3", 4, tied, over(1, 2, 2) + Overrides{kStages[3]}},
        {"5 layers, pp 4, tp 2", 8, tied, over(2, 4, 1) + Overrides{"parallelism.sequence_parallel=true"}},
        {"3 layers, pp 4", 4, gpt, over(1, 4, 1)},
        {"3 layers, pp 4, recomputed", 4, gpt, over(1, 4, 1) + Overrides{"recompute.granularity=full"}},
        {"3 layers, pp 8", 8, gpt, over(1, 8, 1)},
        {"3 layers, 8 virtual stages", 4, gpt, over(1, 4, 1) + Overrides{"parallelism.vpp=2"}},
    };
    run_cases(cases);
}

TEST_F(Topologies, SizesThatNothingDivides)
{
    const Overrides odd = {"model.ffn_hidden_size=129", "batch.global_batch_size=12"};
    const Overrides odd_gpt = odd + Overrides{"model.arch=gpt2", "model.num_query_groups=4"};
    // Norms of 4 elements and shards of multiples of 8: most ranks have none of them.
    const Overrides thin = {"model.hidden_size=4", "model.num_attention_heads=1", "model.num_query_groups=1",
                            "model.ffn_hidden_size=3", "model.num_layers=2"};
    const Overrides thin_gpt = thin + Overrides{"model.arch=gpt2"};
    const Overrides one_head = {"model.hidden_size=32", "model.num_attention_heads=8", "model.num_query_groups=1"};
    const Overrides padded = {"model.make_vocab_size_divisible_by=128"}, pairs = {"batch.micro_batch_size=2"};
    std::vector<Case> cases = {
        {"one key/value head, tp 4", 4, one_head, over(4, 1, 1)},
        {"one key/value head, tp 4, dp 2, stage 3, sp", 8, one_head,
         over(4, 1, 2) + Overrides{kStages[3], "parallelism.sequence_parallel=true"}},
        {"one key/value head, tp 8, sp", 8, one_head, over(8, 1, 1) + Overrides{"parallelism.sequence_parallel=true"}},
        {"vocabulary of 384 rows, tp 2, pp 2, dp 2", 8, padded, over(2, 2, 2) + Overrides{kStages[1]}},
        {"two samples a micro-batch, tp 2, sp, pp 2, dp 2", 8, pairs,
         over(2, 2, 2) + Overrides{"parallelism.sequence_parallel=true"}},
        {"data ranks before tensor ranks", 8, {}, over(2, 2, 2) + Overrides{"parallelism.order=dp-pp-tp", kStages[2]}},
        {"whole gradients at stage 2",
         4,
         {},
         over(1, 1, 4) + Overrides{kStages[2], "zero_optimization.keep_full_gradients=true"}},
    };
    for (const char *stage : kStages) {
        const std::string s = stage;
        cases.push_back({"ffn 129, dp 3, " + s, 3, odd, over(1, 1, 3) + Overrides{stage}});
        cases.push_back({"ffn 129, gpt2, dp 4, " + s, 4, odd_gpt, over(1, 1, 4) + Overrides{stage}});
        cases.push_back({"ffn 129, dp 3, pp 2, " + s, 6, odd, over(1, 2, 3) + Overrides{stage}});
        cases.push_back({"hidden 4, dp 8, " + s, 8, thin, over(1, 1, 8) + Overrides{stage}});
        cases.push_back({"hidden 4, gpt2, dp 8, " + s, 8, thin_gpt, over(1, 1, 8) + Overrides{stage}});
    }
    run_cases(cases);
}

TEST_F(Topologies, GrowingBatches)
{
    // 4 samples a step at first, 8 from sample 12 on, 12 from sample 24 on.
    const Overrides ramp = {"batch.global_batch_size=12", "batch.rampup_batch_size=[4, 4, 24]"};
    const std::vector<Case> cases = {
        {"dp 2, stage 0", 2, ramp, over(1, 1, 2)},
        {"dp 4, stage 3", 4, ramp, over(1, 1, 4) + Overrides{kStages[3]}},
        {"pp 2, dp 2, stage 2", 4, ramp, over(1, 2, 2) + Overrides{kStages[2]}},
        {"pp 2, two chunks, dp 2, stage 1", 4, ramp, over(1, 2, 2) + Overrides{"parallelism.vpp=2", kStages[1]}},
    };
    run_cases(cases, 8);
}

// Gradients of replicated biases are sums over tensor ranks with sequence parallelism, and lie in shards of units.
TEST_F(Topologies, BiasesInShardsWithTensorRanks)
{
    const Overrides gpt = {"model.arch=gpt2", "model.num_query_groups=4"}, three = {kStages[3]};
    const Overrides sp = {"parallelism.sequence_parallel=true", kStages[3]};
    run_cases({
        {"tp 2, dp 2", 4, gpt, over(2, 1, 2) + three},
        {"tp 2, dp 2, sp", 4, gpt, over(2, 1, 2) + sp},
        {"tp 4, dp 2, sp", 8, gpt, over(4, 1, 2) + sp},
        {"tp 2, pp 2, dp 2", 8, gpt, over(2, 2, 2) + three},
        {"tp 2, pp 2, dp 2, sp", 8, gpt, over(2, 2, 2) + sp},
    });
}

// 2 bytes of a parameter and 4 of a gradient: where one stands for the other, the closed forms do not hold.
TEST_F(Topologies, TrafficAndMemoryOfTwoTypes)
{
    const Overrides sp = {"parallelism.sequence_parallel=true"}, tied = {"model.tie_word_embeddings=true"};
    const Overrides gpt = {"model.arch=gpt2", "model.num_query_groups=4"};
    const Overrides blocks = {"zero_optimization.max_unit_bytes=1KiB"};
    std::vector<Case> cases = {
        {"tp 2", 2, {}, over(2, 1, 1)},
        {"tp 2, sp", 2, {}, over(2, 1, 1) + sp},
        {"tp 2, sp, head in blocks", 2, {}, over(2, 1, 1) + sp + blocks},
        {"tp 4, one key/value head for two", 4, {}, over(4, 1, 1) + sp},
        {"pp 2", 2, {}, over(1, 2, 1)},
        {"pp 2, tied", 2, tied, over(1, 2, 1)},
        {"pp 2, two chunks, gpt, sp", 4, gpt, over(2, 2, 1) + sp + Overrides{"parallelism.vpp=2"}},
        {"tp 2, pp 2, dp 2, sp, stage 3", 8, gpt, over(2, 2, 2) + sp + Overrides{kStages[3]}},
    };
    for (const char *stage : kStages)
        cases.push_back({std::string("dp 2, ") + stage, 2, {}, over(1, 1, 2) + Overrides{stage}});
    for (const Case &c : cases)
        side_by_side(c.ranks, 1, [&](plait_world *world, int) {
            SCOPED_TRACE(c.name);
            const Overrides two_types = {"precision.dtype=bf16"};
            const RunResult got =
                train(world, small_model() + two_types + c.model + c.topology, 2, "", [](plait_training &t, int) {
                    check_memory(t);
                    check_traffic(t);
                });
            EXPECT_TRUE(got.done);
        });
}

// 1 KiB holds 8 rows of 16 doubles: 33 blocks of the 257 words, fewer with tensor ranks.
TEST_F(Topologies, TokenMatrixInSeveralUnits)
{
    std::vector<Case> cases;
    for (const bool tied : {false, true}) {
        const Overrides model = {tied ? "model.tie_word_embeddings=true" : "model.tie_word_embeddings=false",
                                 "zero_optimization.max_unit_bytes=1KiB"};
        const std::string t = tied ? "tied, " : "untied, ";
        for (const char *stage : kStages)
            cases.push_back({t + "dp 2, " + stage, 2, model, over(1, 1, 2) + Overrides{stage}});
        for (const char *stage : {kStages[2], kStages[3]}) {
            cases.push_back({t + "pp 2, dp 2, " + stage, 4, model, over(1, 2, 2) + Overrides{stage}});
            cases.push_back({t + "tp 2, dp 4, sp, " + stage, 8, model,
                             over(2, 1, 4) + Overrides{stage, "parallelism.sequence_parallel=true"}});
            cases.push_back({t + "tp 2, pp 2, dp 2, " + stage, 8, model, over(2, 2, 2) + Overrides{stage}});
        }
    }
    run_cases(cases);
}

// Requests of all units at once.
TEST_F(Topologies, PrefetchBeyondAllUnits)
{
    run_cases({{"300 layers",
                2,
                {"model.num_layers=300"},
                over(1, 1, 2) + Overrides{kStages[3], "zero_optimization.prefetch_units=1024"}}},
              1);
}

// A chunk that is shorter than a group of replayed layers needs no sets for the rest of it.
TEST_F(Topologies, GroupsOfRecomputationEndWithTheirChunk)
{
    const auto activations = [](const char *layers) {
        size_t bytes = 0;
        side_by_side(2, 1, [&](plait_world *world, int) {
            const Overrides full = {"recompute.granularity=full", "recompute.method=uniform", layers};
            EXPECT_TRUE(train(world, small_model() + over(1, 2, 1) + full, 1, "", [&](plait_training &t, int) {
                            check_memory(t);
                            bytes = plait_engine_layout(t.engine)->bytes[PLAIT_MEM_ACT];
                        }).done);
        });
        return bytes;
    };
    const size_t layer = activations("recompute.num_layers=1"), chunk = activations("recompute.num_layers=2");
    EXPECT_EQ(activations("recompute.num_layers=4"), chunk);
    if (test_world.rank < 2) {
        EXPECT_LT(layer, chunk);
    }
}

// Ranks of the pipeline that have sent their part wait for those whose part is written.
TEST_F(Topologies, ASaveMayTakeLongerThanARankIsWaitedFor)
{
    const double usual = plait_comm_timeout();
    const std::string file = shared_dir() + "/slow.safetensors";
    side_by_side(2, 1, [&](plait_world *world, int) {
        const Watch save = [&](plait_training &t, int) {
            EXPECT_EQ(plait_comm_agree(world->comm, PLAIT_OK), PLAIT_OK);
            if (world->rank != 0)
                plait_comm_set_timeout(1e-6);
            const plait_status st = plait_weights_save(t.engine, file.c_str());
            plait_comm_set_timeout(usual);
            EXPECT_EQ(st, PLAIT_OK) << plait_error_text();
        };
        EXPECT_TRUE(train(world, small_model() + over(1, 2, 1) + Overrides{"model.hidden_size=128"}, 1, "", save).done);
    });
    EXPECT_EQ(plait_comm_timeout(), usual);
}

// Sampling keeps parameters alone, and the plan knows it.
TEST_F(Topologies, SamplingHoldsNoGradientsAndNoMoments)
{
    for (const char *stage : kStages)
        side_by_side(2, 1, [&](plait_world *world, int) {
            SCOPED_TRACE(stage);
            const Overrides all = small_model() + over(1, 1, 2) + Overrides{stage, "precision.dtype=bf16"};
            std::vector<const char *> texts;
            for (const std::string &o : all)
                texts.push_back(o.c_str());
            plait_config cfg = {};
            plait_engine *engine = nullptr;
            ASSERT_EQ(plait_run_config(world, &cfg, kConfig, texts.data(), (int)texts.size()), PLAIT_OK);
            plait_engine_options o = {&cfg, plait_model_find(cfg.model.arch), {}};
            o.shape.logits = true;
            ASSERT_EQ(plait_engine_create(world, &o, &engine), PLAIT_OK) << plait_error_text();
            ASSERT_EQ(plait_engine_init_weights(engine), PLAIT_OK);
            double logits[257] = {};
            EXPECT_EQ(plait_engine_logits(engine, 0, logits), PLAIT_OK) << plait_error_text();
            EXPECT_NE(logits[0], 0.0);
            const plait_layout *l = plait_engine_layout(engine);
            EXPECT_GT(l->bytes[PLAIT_MEM_PARAM], 0u);
            EXPECT_EQ(l->bytes[PLAIT_MEM_GRAD], 0u);
            EXPECT_EQ(l->bytes[PLAIT_MEM_OPTIM], 0u);
            plait_engine_destroy(engine);
            plait_config_deinit(&cfg);
        });
}

// The best kernels of one node need not be those of another: replicas would drift apart.
TEST_F(Topologies, RanksWithOtherKernelsAreRefused)
{
    side_by_side(2, 1, [&](plait_world *world, int) {
        const char *mine[] = {world->rank == 0 ? "device.kernels=ref" : "device.kernels=cpu"};
        plait_config cfg = {};
        plait_engine *engine = nullptr;
        ASSERT_EQ(plait_config_load(&cfg, kConfig, mine, 1), PLAIT_OK);
        ASSERT_EQ(plait_config_resolve(&cfg, world->size), PLAIT_OK);
        const plait_engine_options o = {&cfg, plait_model_find(cfg.model.arch), {}};
        EXPECT_EQ(plait_engine_create(world, &o, &engine), PLAIT_UNSUPPORTED);
        const std::string text = plait_error_text();
        EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
        EXPECT_NE(text.find("device.isa"), std::string::npos) << text;
        EXPECT_TRUE(plait_comm_agreed()) << text;
        plait_config_deinit(&cfg);
    });
}

// A contradiction is a sentence with the numbers, on every rank, and never a signal.
TEST_F(Topologies, RefusedWithTheNumbers)
{
    const struct {
        const char *name;
        Overrides overrides;
        std::vector<const char *> says;
    } cases[] = {
        {"tensor ranks that do not divide the world",
         {"parallelism.tp=3"},
         {"tensor_model_parallel_size", "3", "8 ranks"}},
        {"more pipeline ranks than ranks", {"parallelism.pp=16"}, {"16", "8 ranks"}},
        {"a data degree that does not fit", {"parallelism.tp=2", "parallelism.dp=3"}, {"6 ranks", "but there are 8"}},
        {"heads that tensor ranks do not divide", {"parallelism.tp=8"}, {"num_attention_heads", "4", "8"}},
        {"a layout with a layer too many",
         {"parallelism.pp=2", "parallelism.pipeline_layout=[2, 3]"},
         {"pipeline_layout", "5", "4"}},
        {"a batch that data ranks do not divide", {"batch.global_batch_size=12"}, {"12", "8"}},
    };
    for (const auto &c : cases) {
        SCOPED_TRACE(c.name);
        std::vector<const char *> texts;
        const Overrides all = small_model() + c.overrides;
        for (const std::string &o : all)
            texts.push_back(o.c_str());
        plait_config cfg;
        EXPECT_EQ(plait_run_config(&test_world, &cfg, kConfig, texts.data(), (int)texts.size()), PLAIT_USAGE);
        const std::string text = plait_error_text();
        for (const char *part : c.says)
            EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
        EXPECT_TRUE(plait_comm_agreed()) << text;
    }
}

} // namespace
