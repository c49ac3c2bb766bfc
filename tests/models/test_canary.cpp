// What is planned is used, to the last byte, and nothing else: arenas are filled with a pattern before they are handed
// out, by an allocator that the linker's --wrap puts in the place of the host's. After two steps and an evaluation the
// highest byte that has changed is where the arena's high-water mark is, and nothing behind the arena has. The pattern
// is a NaN in every type, so whatever is read before it is written shows in the loss.
#include "../parallel/mpi_world.h"
#include "training_run.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace
{

constexpr unsigned char kPattern = 0xff;
constexpr size_t kGuard = 4096; // behind each arena

// Memory that is handed out now, in the order in which it was.
struct Block {
    unsigned char *begin;
    size_t bytes;
};
std::vector<Block> blocks;

} // namespace

extern "C" {
const plait_allocator *__real_plait_host_allocator(void);

static void *filled_alloc(void *self, size_t bytes)
{
    const plait_allocator *host = __real_plait_host_allocator();
    void *p = host->alloc(self, bytes + kGuard);
    if (p) {
        std::memset(p, kPattern, bytes + kGuard);
        blocks.push_back({static_cast<unsigned char *>(p), bytes});
    }
    return p;
}

static void filled_free(void *self, void *p, size_t bytes)
{
    for (size_t i = 0; i < blocks.size(); i++)
        if (blocks[i].begin == p) {
            blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i));
            break;
        }
    __real_plait_host_allocator()->free(self, p, bytes + kGuard);
}

const plait_allocator *__wrap_plait_host_allocator(void)
{
    static const plait_allocator filled = {filled_alloc, filled_free, nullptr};
    return &filled;
}
}

namespace
{

// Bytes up to the highest one that is not the pattern.
size_t changed(const unsigned char *begin, size_t bytes)
{
    while (bytes > 0 && begin[bytes - 1] == kPattern)
        bytes--;
    return bytes;
}

// The engine takes its arenas category by category; the empty ones take nothing.
void check_arenas(const plait_training &t)
{
    const plait_layout *layout = plait_engine_layout(t.engine);
    size_t next = 0;
    for (int kind = 0; kind < PLAIT_MEM_KINDS; kind++) {
        const size_t bytes = layout->bytes[kind];
        if (bytes == 0)
            continue;
        SCOPED_TRACE(std::string(plait_mem_kind_name(static_cast<plait_mem_kind>(kind))) + " of " +
                     std::to_string(bytes) + " bytes on rank " + std::to_string(t.world->rank));
        ASSERT_LT(next, blocks.size());
        const Block &b = blocks[next++];
        ASSERT_EQ(b.bytes, bytes);
        const size_t used = changed(b.begin, b.bytes);
        EXPECT_GE(used + PLAIT_MEM_ALIGN, bytes) << "used: " << used;
        EXPECT_EQ(changed(b.begin + b.bytes, kGuard), 0U) << "behind its end";
    }
}

struct Case {
    const char *name;
    int ranks;
    Overrides overrides;
};

void PrintTo(const Case &c, std::ostream *out)
{
    *out << c.name;
}

class Canary : public testing::TestWithParam<Case>
{
};

TEST_P(Canary, HighestByteIsWhereThePlanEnds)
{
    const Case &c = GetParam();
    const Overrides all = Overrides{"train.eval_interval=1", "device.workspace=256KiB"} + c.overrides;
    side_by_side(c.ranks, test_world.size / c.ranks, [&](plait_world *world, int) {
        blocks.clear();
        const RunResult r = train(world, all, 2, "", [](plait_training &t, int step) {
            double loss = NAN;
            if (step < 2)
                return;
            EXPECT_EQ(plait_training_evaluate(&t, &loss), PLAIT_OK) << plait_error_text();
            EXPECT_TRUE(std::isfinite(loss));
            check_arenas(t);
        });
        EXPECT_TRUE(r.done);
        for (const double loss : r.losses)
            EXPECT_TRUE(std::isfinite(loss));
    });
}

const Case kCases[] = {
    {"fp32_stage_0", 8, {"parallelism.tp=2", "parallelism.pp=2", "precision.dtype=fp32"}},
    {"fp64_one_rank", 1, {"precision.dtype=fp64", "model.arch=gpt2", "model.num_query_groups=8", "model.num_layers=2"}},
    {"bf16_stage_1_sequence_parallel",
     8,
     {"parallelism.tp=2", "parallelism.sequence_parallel=true", "zero_optimization.stage=1", "precision.dtype=bf16"}},
    {"fp16_stage_2_interleaved",
     4,
     {"parallelism.pp=2", "parallelism.vpp=2", "zero_optimization.stage=2", "precision.dtype=fp16",
      "precision.fp16.initial_scale_power=8"}},
    {"bf16_stage_3_prefetch_full_recompute",
     8,
     {"parallelism.tp=2", "parallelism.pp=2", "zero_optimization.stage=3", "zero_optimization.prefetch_units=2",
      "recompute.granularity=full", "model.arch=gpt2", "model.num_query_groups=8", "precision.dtype=bf16",
      "model.hidden_dropout=0.1"}},
    {"gather_to_root", 4, {"parallelism.data_parallel_algorithm=gather_to_root", "precision.dtype=bf16"}},
    {"uneven_stages_selective_tied",
     4,
     {"parallelism.pp=4", "parallelism.pipeline_layout=[1,4,3,0]", "model.tie_word_embeddings=true",
      "recompute.granularity=selective", "recompute.modules=[core_attn, mlp_act, norms]"}},
    {"shared_heads_large_micro_batch",
     4,
     {"parallelism.tp=4", "model.num_query_groups=2", "batch.micro_batch_size=4",
      "zero_optimization.max_unit_bytes=8KiB"}},
    {"stage_3_two_ranks",
     2,
     {"zero_optimization.stage=3", "precision.dtype=fp32", "recompute.granularity=full", "recompute.num_layers=3"}},
    {"invariant_stage_2",
     8,
     {"numerics.reduction=invariant", "parallelism.tp=2", "parallelism.pp=2", "zero_optimization.stage=2",
      "precision.dtype=bf16"}},
};
INSTANTIATE_TEST_SUITE_P(, Canary, testing::ValuesIn(kCases), [](const auto &i) { return std::string(i.param.name); });

} // namespace
