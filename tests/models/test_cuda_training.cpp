// Small trainings on GPUs, over both carriers: losses and saved weights as on the host; memory as planned, to the byte,
// and allocated before the first step (the emulation counts).
#include "../parallel/gpus.h"
#include "device_memory.h"
#include "training_run.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace
{

size_t planned_on_device(plait_training &t)
{
    const plait_ledger *l = plait_engine_ledger(t.engine);
    size_t all = 0;
    for (size_t bytes : l->planned[PLAIT_TIER_DEVICE])
        all += bytes;
    return all;
}

class CudaTraining : public testing::Test
{
  protected:
    static void TearDownTestSuite() { remove_shared_dir(); }
};

constexpr double kExact = 1e-6; // of losses in fp32, but for the order of sums

// Relative: 16-bit types round what passes between layers, in an order of their own on each side.
double bound_of(const Overrides &o)
{
    const auto has = [&](const char *key) { return std::find(o.begin(), o.end(), key) != o.end(); };
    if (has("precision.communication_data_type=bf16"))
        return 1e-4; /* gradients are rounded on the way */
    if (has("precision.allow_tf32=true"))
        return 2e-4;
    return has("precision.dtype=bf16") ? 4e-3 : has("precision.dtype=fp16") ? 1e-3 : kExact;
}

TEST_F(CudaTraining, LossesAndWeightsAreThoseOfTheHostAndMemoryThatOfThePlan)
{
    const Overrides small = {"precision.dtype=fp32", "device.backend=cuda", "model.num_layers=2",
                             "optimizer.eps=1e-4",   "model.seq_length=16", "batch.global_batch_size=4"};
    const std::vector<Overrides> all = {
        {"comm.backend=nccl"},
        {"comm.backend=nccl", "precision.allow_tf32=true"},
        {"comm.backend=nccl", "precision.dtype=bf16", "zero_optimization.stage=2"},
        {"comm.backend=nccl", "zero_optimization.stage=3", "precision.communication_data_type=bf16"},
        {"comm.backend=nccl", "parallelism.tp=2", "parallelism.sequence_parallel=true"},
        {"comm.backend=nccl", "parallelism.pp=2", "recompute.granularity=full"},
        {"comm.backend=staged", "zero_optimization.stage=1", "precision.dtype=fp16"},
        {"comm.backend=staged", "parallelism.pp=2"},
        {"comm.backend=staged", "model.arch=gpt2", "model.num_query_groups=8"},
        {"comm.backend=nccl", "model.arch=gpt2", "model.num_query_groups=8", "precision.dtype=bf16", "parallelism.tp=2",
         "parallelism.sequence_parallel=true", "recompute.granularity=selective", "recompute.modules=[mlp_act]"},
    };
    std::vector<Overrides> cases;
    std::copy_if(all.begin(), all.end(), std::back_inserter(cases), [](const Overrides &o) {
        return gpus_take(o[0] == "comm.backend=nccl" ? PLAIT_COMM_NCCL : PLAIT_COMM_STAGED);
    });
    if (cases.empty())
        GTEST_SKIP() << "no GPU";
    const auto on_host = [](Overrides o) {
        o.erase(std::remove(o.begin(), o.end(), "precision.allow_tf32=true"), o.end());
        return o + Overrides{"device.backend=cpu", "comm.backend=mpi"};
    };
    const std::string dir = shared_dir();
    std::vector<RunResult> want(cases.size());
    side_by_side(2, (int)cases.size(), [&](plait_world *world, int i) {
        want[(size_t)i] = train(world, small + on_host(cases[(size_t)i]), 3, dir + "/host" + std::to_string(i));
    });
    side_by_side(2, (int)cases.size(), [&](plait_world *world, int i) {
        SCOPED_TRACE(i);
        DeviceMemory memory;
        const RunResult got = train(world, small + cases[(size_t)i], 3, dir + "/gpu" + std::to_string(i),
                                    [&](plait_training &t, int step) {
                                        memory.expect(planned_on_device(t), step);
                                        check_memory(t);
                                    });
        const std::vector<double> &losses = want[(size_t)i].losses;
        ASSERT_EQ(got.losses.size(), 3u);
        ASSERT_EQ(losses.size(), 3u);
        for (size_t step = 0; step < losses.size(); step++)
            EXPECT_NEAR(got.losses[step], losses[step], bound_of(cases[(size_t)i]) * losses[step])
                << "step " << step + 1;
        if (world->rank == 0 && bound_of(cases[(size_t)i]) == kExact) { /* of others the file is written, no more */
            EXPECT_GT(compare(got, want[(size_t)i], kFp32, 1e-3), 0);
        }
        memory.expect_given_back();
    });
}

} // namespace
