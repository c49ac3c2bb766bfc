/* The gradient of cross-entropy, written over the logits. */
#include "kernels/cpu/typed.h"

/* A row of T is written over its own row of floats: element c of T ends before element c + 1 of the floats begins, so
 * ascending order never overwrites what is still to be read. */
static void row_grad(void *row, int64_t cols, int64_t valid, float max, float factor)
{
    const float *logits = row;
    elem *out = row;
    for (int64_t c = 0; c < valid; c += LANES) {
        int64_t w = width(c, valid);
        store(out + c, vf_exp(vf_load_n(logits + c, w) - max) * factor, w);
    }
    memset(out + valid, 0, (size_t)(cols - valid) * sizeof(elem));
}

plait_status FN(cross_entropy_grad)(const plait_exec *ex, const plait_cross_entropy *c, double scale)
{
#pragma omp parallel for schedule(static) num_threads(team(ex, c->rows * c->cols))
    for (int64_t r = 0; r < c->rows; r++) {
        float *logits = (float *)c->logits + r * c->cols;
        elem *out = (elem *)logits;
        if (c->targets[r] < 0) {
            memset(out, 0, (size_t)c->cols * sizeof(elem));
            continue;
        }
        float max = ((const float *)c->row_max)[r], sum = ((const float *)c->row_sum)[r];
        int64_t target = c->targets[r] - c->v0;
        bool here = target >= 0 && target < c->valid;
        /* From fp32, as the other columns: p - 1 rounds once. */
        vf one_hot = {0};
        if (here)
            one_hot = (vf_exp(vf_set(logits[target] - max)) / sum - 1.0f) * (float)scale;
        row_grad(logits, c->cols, c->valid, max, (float)(scale / (double)sum));
        if (here)
            store(out + target, one_hot, 1);
    }
    return PLAIT_OK;
}
