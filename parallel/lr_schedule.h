/* parallel/lr_schedule.h: the learning rate and the batch size as pure functions of how far the run is. Nothing is
 * carried from step to step, so a resumed run cannot differ. */
#ifndef PLAIT_PARALLEL_LR_SCHEDULE_H
#define PLAIT_PARALLEL_LR_SCHEDULE_H

#include "core/config.h"

PLAIT_BEGIN_DECLS

typedef struct plait_lr_schedule {
    plait_lr_style style;
    double lr, min_lr;
    int64_t warmup_iters;
    int64_t decay_iters;     /* the step at which min_lr is reached; counts from the start, warm-up included */
    int64_t wsd_decay_iters; /* WSD only: the last so many of decay_iters decay */
} plait_lr_schedule;

static inline plait_lr_schedule plait_lr_schedule_of(const plait_config *cfg)
{
    plait_lr_schedule s = {cfg->lr.style,        cfg->optimizer.lr,   cfg->optimizer.min_lr,
                           cfg->lr.warmup_iters, cfg->lr.decay_iters, cfg->lr.wsd_decay_iters};
    return s;
}

/* Rate of update number `step`, counted from 1 over the updates that were applied (a skipped step does not count).
 * With w = warmup_iters, D = decay_iters, d = wsd_decay_iters:
 *     step <= w:  lr step / w
 *     constant:   lr, for ever
 *     step > D:   min_lr
 *     otherwise:  min_lr + c (lr - min_lr), with r = (step - w) / (D - w) and
 *         linear  c = 1 - r
 *         cosine  c = (1 + cos(pi r)) / 2
 *         WSD     c = 1 up to step D - d, then 2 2^(-(step - (D - d)) / d) - 1 (exponential from 1 to 0)
 * These are Megatron-LM's rules (OptimizerParamScheduler, its default WSD decay), except that Megatron gives the first
 * update the rate of step 0. */
double plait_lr_at(const plait_lr_schedule *s, int64_t step);

/* The global batch grows from `start` by `increment` at a time until, after `samples` samples, it is `global`; each
 * size lasts equally long (Megatron-LM's rampup_batch_size). */
typedef struct plait_batch_ramp {
    int64_t start, increment, samples, global;
    int64_t increments; /* (global - start) / increment; 0: always `global` */
} plait_batch_ramp;

/* start 0: no ramp. Sizes are as plait_config_resolve accepts them: whole increments from below `global`. */
plait_batch_ramp plait_batch_ramp_make(int64_t start, int64_t increment, int64_t samples, int64_t global);
static inline plait_batch_ramp plait_batch_ramp_of(const plait_config *cfg)
{
    return plait_batch_ramp_make(cfg->batch.rampup_start, cfg->batch.rampup_increment, cfg->batch.rampup_samples,
                                 cfg->batch.global_batch_size);
}
/* Size of the step that begins after `consumed` samples. */
int64_t plait_batch_size_at(const plait_batch_ramp *r, int64_t consumed);
/* Micro-batches that each data rank has in a step of `batch` samples. */
static inline int64_t plait_num_micro_batches(int64_t batch, int64_t micro_batch, int64_t dp)
{
    return batch / (micro_batch * dp);
}

PLAIT_END_DECLS
#endif
