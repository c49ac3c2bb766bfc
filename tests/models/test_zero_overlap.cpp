// What ZeRO promises about time and memory inside a step, counted while it runs: few gathered units, and gradients that
// travel while backward goes on.
#include "../parallel/mpi_world.h"
#include "training_run.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace
{

constexpr int kSteps = 2;

class ZeroOverlap : public testing::Test
{
  protected:
    static void TearDownTestSuite() { remove_shared_dir(); }
};

struct Case {
    const char *name;
    int ranks;
    Overrides overrides;
};

void run_cases(const std::vector<Case> &cases, const std::function<void(const Case &, plait_training &)> &look)
{
    for (int ranks : {2, 4, 8}) {
        std::vector<const Case *> fit;
        for (const Case &c : cases)
            if (c.ranks == ranks)
                fit.push_back(&c);
        side_by_side(ranks, (int)fit.size(), [&](plait_world *world, int i) {
            SCOPED_TRACE(fit[(size_t)i]->name);
            const RunResult r =
                train(world, small_model() + fit[(size_t)i]->overrides, kSteps, "", [&](plait_training &t, int step) {
                    if (step == kSteps)
                        look(*fit[(size_t)i], t);
                });
            EXPECT_EQ(r.losses.size(), (size_t)kSteps);
        });
    }
}

// The plan, too, has room for no more: parameters without this rank's shards are 1 + prefetch units of the largest size
// (the same one may be gathered twice in a row, as the head for forward and backward). Each array is rounded up to the
// arena's alignment.
void expect_room_for_few_units(plait_training &t)
{
    const plait_param_list *list = plait_engine_params(t.engine);
    const size_t element = plait_dtype_size(t.cfg->precision.dtype);
    const auto aligned = [](size_t n) { return (n + PLAIT_MEM_ALIGN - 1) / PLAIT_MEM_ALIGN * PLAIT_MEM_ALIGN; };
    size_t shards = 0, largest = 0;
    for (int i = 0; i < list->num_units; i++) {
        int64_t begin, end;
        plait_zero_held(plait_engine_zero(t.engine), i, &begin, &end);
        shards += aligned((size_t)(end - begin) * element);
        largest = std::max(largest, aligned((size_t)list->units[i].numel * element));
    }
    const size_t planned = plait_engine_layout(t.engine)->bytes[PLAIT_MEM_PARAM];
    EXPECT_GE(planned, shards + largest) << "rank " << t.world->rank;
    EXPECT_LE(planned, shards + (size_t)(1 + t.cfg->zero.prefetch_units) * largest) << "rank " << t.world->rank;
}

TEST_F(ZeroOverlap, GathersNoMoreThanPrefetchAhead)
{
    std::vector<Case> cases;
    for (const char *prefetch : {"zero_optimization.prefetch_units=0", "zero_optimization.prefetch_units=1",
                                 "zero_optimization.prefetch_units=2"}) {
        const Overrides three = {"zero_optimization.stage=3", prefetch};
        cases.push_back({prefetch, 2, three});
        cases.push_back({prefetch, 4, three + Overrides{"parallelism.pp=2", "parallelism.vpp=2"}});
        cases.push_back({prefetch, 8, three + Overrides{"parallelism.pp=2", "parallelism.tp=2"}});
        cases.push_back({prefetch, 8, three + Overrides{"recompute.granularity=full", "recompute.num_layers=2"}});
    }
    run_cases(cases, [](const Case &, plait_training &t) {
        expect_room_for_few_units(t);
        // A step acquires far more units than prefetch, so the bound is also reached.
        EXPECT_EQ(plait_zero_get_stats(plait_engine_zero(t.engine)).max_gathered, 1 + t.cfg->zero.prefetch_units);
    });
}

// Requests of a step: one a unit (stages 0, 1), or one a unit, use and micro-batch (stages 2, 3). All but the last
// start before the last backward is done. And none is waited for before the next backward begins: whenever a gradient
// is acquired after a request, that request is open. (At stages 0 and 1 a chunk that is done with its last micro-batch
// has open requests during the micro-batches of other chunks too.)
TEST_F(ZeroOverlap, GradientsTravelDuringBackward)
{
    std::vector<Case> cases;
    for (const char *stage : {"zero_optimization.stage=0", "zero_optimization.stage=1", "zero_optimization.stage=2",
                              "zero_optimization.stage=3", "parallelism.data_parallel_algorithm=gather_to_root"}) {
        const Overrides one_micro = {"batch.global_batch_size=2", stage};
        cases.push_back({stage, 2, one_micro});
        cases.push_back({stage, 2, {"batch.global_batch_size=6", stage}});
        cases.push_back({stage, 2, one_micro + Overrides{"model.tie_word_embeddings=true"}});
        cases.push_back({stage, 4, {"parallelism.pp=2", stage}});
        cases.push_back({stage, 8, {"parallelism.pp=2", "parallelism.tp=2", "parallelism.vpp=2", stage}});
    }
    run_cases(cases, [](const Case &, plait_training &t) {
        const plait_param_list *list = plait_engine_params(t.engine);
        const int micros = (int)t.cfg->batch.accumulation;
        int uses = 0;
        for (int i = 0; i < list->num_units; i++)
            uses += list->units[i].uses;
        const bool each_micro = t.cfg->zero.stage >= 2;
        const int requests = each_micro ? micros * uses : list->num_units;
        const plait_zero_stats stats = plait_zero_get_stats(plait_engine_zero(t.engine));
        EXPECT_GT(requests, 1);
        EXPECT_EQ(stats.early_reductions, kSteps * (requests - 1));
        EXPECT_GE(stats.open_reductions, kSteps * (requests - 1));
        if (each_micro) {
            EXPECT_EQ(stats.open_reductions, kSteps * (requests - 1));
        }
    });
}

} // namespace
