// Between step 2 and step 5 Plait takes no memory: malloc and its kin, called from its own objects, are counted by the
// linker's --wrap.
#include "../parallel/mpi_world.h"
#include "training_run.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>

namespace
{
int64_t calls;
}

extern "C" {
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
int __real_posix_memalign(void **p, size_t align, size_t n);
char *__real_strdup(const char *text);
void __real_free(void *p);

void *__wrap_malloc(size_t n)
{
    calls++;
    return __real_malloc(n);
}
void *__wrap_calloc(size_t n, size_t size)
{
    calls++;
    return __real_calloc(n, size);
}
void *__wrap_realloc(void *p, size_t n)
{
    calls++;
    return __real_realloc(p, n);
}
void *__wrap_aligned_alloc(size_t align, size_t n)
{
    calls++;
    return __real_aligned_alloc(align, n);
}
int __wrap_posix_memalign(void **p, size_t align, size_t n)
{
    calls++;
    return __real_posix_memalign(p, align, n);
}
char *__wrap_strdup(const char *text)
{
    calls++;
    return __real_strdup(text);
}
void __wrap_free(void *p)
{
    calls += p != nullptr;
    __real_free(p);
}
}

namespace
{

struct Case {
    const char *name;
    Overrides overrides;
};

void PrintTo(const Case &c, std::ostream *out)
{
    *out << c.name;
}

class NoAllocation : public testing::TestWithParam<Case>
{
};

TEST_P(NoAllocation, FromStep2ToStep5)
{
    int64_t before_run = 0, after_step2 = 0, after_step5 = 0;
    side_by_side(8, 1, [&](plait_world *world, int) {
        before_run = calls;
        train(world, Overrides{"precision.dtype=fp32", "device.kernels=cpu"} + GetParam().overrides, 5, "",
              [&](plait_training &, int step) {
                  if (step == 2)
                      after_step2 = calls;
                  if (step == 5)
                      after_step5 = calls;
              });
    });
    EXPECT_GT(after_step2 - before_run, 100) << "the hook counts nothing";
    EXPECT_EQ(after_step5 - after_step2, 0);
}

const Case kCases[] = {
    {"stage_0", {"parallelism.tp=2", "parallelism.pp=2", "zero_optimization.stage=0"}},
    {"gather_to_root", {"parallelism.tp=2", "parallelism.data_parallel_algorithm=gather_to_root"}},
    {"stage_1_interleaved", {"parallelism.pp=2", "parallelism.vpp=2", "zero_optimization.stage=1"}},
    {"stage_2_sequence_parallel",
     {"parallelism.tp=2", "parallelism.sequence_parallel=true", "zero_optimization.stage=2"}},
    {"stage_3_pipeline_recompute",
     {"parallelism.tp=2", "parallelism.pp=2", "zero_optimization.stage=3", "recompute.granularity=full"}},
    {"stage_3_gpt_bf16",
     {"model.arch=gpt2", "model.num_query_groups=8", "zero_optimization.stage=3", "precision.dtype=bf16",
      "model.hidden_dropout=0.1"}},
};
INSTANTIATE_TEST_SUITE_P(, NoAllocation, testing::ValuesIn(kCases),
                         [](const auto &i) { return std::string(i.param.name); });

} // namespace
