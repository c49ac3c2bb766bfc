// Between step 2 and step 5 Plait takes no memory: malloc and its kin, called from its own objects, are counted by the
// linker's --wrap. What `plait train` does after a step is done here too: its line, its metrics, whether to stop, an
// evaluation.
#include "../parallel/mpi_world.h"
#include "launcher/hash_file.h"
#include "launcher/metrics.h"
#include "launcher/progress.h"
#include "launcher/stop.h"
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
    bool hashes = false; /* debug.tensor_hashes */
};

void PrintTo(const Case &c, std::ostream *out)
{
    *out << c.name;
}

// The rest of the loop in launcher/train.c.
class Loop
{
  public:
    explicit Loop(const std::string &metrics_file) : path_(metrics_file) {}
    ~Loop()
    {
        plait_metrics_close(&metrics_);
        plait_hash_file_close(&hashes_);
    }

    void open(plait_training &t)
    {
        ok(plait_metrics_open(&metrics_, t.world->comm, path_.c_str()));
        ok(plait_hash_file_open(&hashes_, t.world->comm, t.cfg));
        progress_ = plait_progress_make(t.cfg, t.world->rank);
        plait_stop_install();
    }
    void after(plait_training &t, int step)
    {
        plait_step_result result = {};
        result.loss = 5.5;
        plait_progress_step s = {};
        s.step = step;
        s.consumed_samples = t.consumed;
        s.tokens = t.cfg->batch.global_batch_size * t.cfg->model.seq_length;
        s.seconds = 0.1;
        s.result = &result;
        s.memory = plait_layout_total(plait_engine_layout(t.engine));
        plait_progress_step_done(&progress_, &s);
        ok(plait_metrics_step(&metrics_, step, &result, 1e-3, 1e4, 0.1));
        ok(plait_hash_file_step(&hashes_, t.engine, step));

        int signal;
        ok(plait_stop_agree(t.world->comm, false, &signal));

        double loss;
        ok(plait_training_evaluate(&t, &loss));
        plait_progress_eval(&progress_, step, loss);
        ok(plait_metrics_eval(&metrics_, step, loss));
    }

  private:
    static void ok(plait_status st) { EXPECT_EQ(st, PLAIT_OK) << plait_error_text(); }
    std::string path_;
    plait_metrics metrics_ = {};
    plait_hash_file hashes_ = {};
    plait_progress progress_ = {};
};

class NoAllocation : public testing::TestWithParam<Case>
{
  protected:
    static void TearDownTestSuite() { remove_shared_dir(); }
};

TEST_P(NoAllocation, FromStep2ToStep5)
{
    int64_t before_run = 0, after_step2 = 0, after_step5 = 0;
    const Overrides loop_keys = {"precision.dtype=fp32", "device.kernels=cpu", "train.train_iters=5",
                                 "train.eval_interval=1", "train.log_interval=1"};
    Loop loop(shared_dir() + "/metrics.jsonl");
    const Overrides hashes = {"debug.tensor_hashes=" + (GetParam().hashes ? shared_dir() + "/hashes.tsv" : "null")};
    side_by_side(8, 1, [&](plait_world *world, int) {
        before_run = calls;
        train(world, loop_keys + GetParam().overrides + hashes, 5, "", [&](plait_training &t, int step) {
            if (step == 1)
                loop.open(t);
            loop.after(t, step);
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
    {"tensor_hashes",
     {"parallelism.tp=2", "parallelism.pp=2", "zero_optimization.stage=2", "numerics.reduction=invariant",
      "recompute.granularity=full"},
     true},
};
INSTANTIATE_TEST_SUITE_P(, NoAllocation, testing::ValuesIn(kCases),
                         [](const auto &i) { return std::string(i.param.name); });

} // namespace
