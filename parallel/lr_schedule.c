#include "parallel/lr_schedule.h"

#include <assert.h>
#include <math.h>

#define PI 3.14159265358979323846

/* 1 at the end of the warm-up, 0 at the end of the decay. */
static double coefficient(const plait_lr_schedule *s, int64_t step)
{
    int64_t decay_start = s->decay_iters - s->wsd_decay_iters;
    double r = (double)(step - s->warmup_iters) / (double)(s->decay_iters - s->warmup_iters);
    switch (s->style) {
    case PLAIT_LR_LINEAR:
        return 1.0 - r;
    case PLAIT_LR_COSINE:
        return 0.5 * (1.0 + cos(PI * r));
    case PLAIT_LR_WSD:
        if (step <= decay_start)
            return 1.0;
        return 2.0 * exp2(-(double)(step - decay_start) / (double)s->wsd_decay_iters) - 1.0;
    case PLAIT_LR_CONSTANT:
        break;
    }
    return 1.0;
}

double plait_lr_at(const plait_lr_schedule *s, int64_t step)
{
    if (step <= s->warmup_iters)
        return s->lr * (double)step / (double)s->warmup_iters;
    if (s->style == PLAIT_LR_CONSTANT)
        return s->lr;
    if (step > s->decay_iters)
        return s->min_lr;
    return s->min_lr + coefficient(s, step) * (s->lr - s->min_lr);
}

plait_batch_ramp plait_batch_ramp_make(int64_t start, int64_t increment, int64_t samples, int64_t global)
{
    plait_batch_ramp r = {start, increment, samples, global, 0};
    if (start > 0) {
        assert(start < global && increment > 0 && (global - start) % increment == 0);
        r.increments = (global - start) / increment;
    }
    return r;
}

int64_t plait_batch_size_at(const plait_batch_ramp *r, int64_t consumed)
{
    if (r->increments == 0 || consumed >= r->samples)
        return r->global;
    /* floor(consumed / (samples / increments)) without rounding: the product may need 128 bits */
    __extension__ unsigned __int128 scaled = (unsigned __int128)(uint64_t)consumed * (uint64_t)r->increments;
    return r->start + (int64_t)(scaled / (uint64_t)r->samples) * r->increment;
}
