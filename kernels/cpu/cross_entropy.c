/* Vocabulary-parallel cross-entropy: the parts on fp32 logits. */
#include "kernels/cpu/impl.h"
#include "kernels/cpu/vec.h"

static float max_of(float first, const float *x, int64_t n)
{
    vf max = vf_set(first);
    int64_t c = 0;
    for (; c + LANES <= n; c += LANES)
        max = vf_max(vf_load(x + c), max);
    float m = vf_max_lane(max);
    for (; c < n; c++)
        m = x[c] > m ? x[c] : m;
    return m;
}

/* Sum of exp(x - max). Lanes are emptied into a double every 1024 elements. */
static double sum_exp(const float *x, float max, int64_t n)
{
    double total = 0.0;
    for (int64_t begin = 0; begin < n; begin += 1024) {
        int64_t end = min_i64(begin + 1024, n), c = begin;
        vf sum = {0};
        for (; c + LANES <= end; c += LANES)
            sum += vf_exp(vf_load(x + c) - max);
        if (c < end) {
            vf e = vf_exp(vf_load_n(x + c, end - c) - max);
            for (int64_t i = 0; i < end - c; i++)
                sum[i] += e[i];
        }
        total += vf_sum(sum);
    }
    return total;
}

plait_status ISA_FN(cross_entropy_max)(const plait_exec *ex, const plait_cross_entropy *c)
{
#pragma omp parallel for schedule(static) num_threads(team(ex, c->rows * c->cols))
    for (int64_t r = 0; r < c->rows; r++) {
        float *max = (float *)c->row_max + r;
        *max = max_of(c->raise ? *max : -INFINITY, (const float *)c->logits + r * c->cols, c->valid);
    }
    return PLAIT_OK;
}

plait_status ISA_FN(cross_entropy_sum)(const plait_exec *ex, const plait_cross_entropy *c)
{
#pragma omp parallel for schedule(static) num_threads(team(ex, c->rows * c->cols))
    for (int64_t r = 0; r < c->rows; r++) {
        const float *logits = (const float *)c->logits + r * c->cols;
        float max = ((const float *)c->row_max)[r];
        int64_t target = c->targets[r] - c->v0;
        ((float *)c->row_sum)[r] = (float)sum_exp(logits, max, c->valid);
        ((float *)c->row_target)[r] =
            c->targets[r] >= 0 && target >= 0 && target < c->valid ? logits[target] - max : 0.0f;
    }
    return PLAIT_OK;
}

/* A logarithm a row: not worth threads, which would need a place for their sums. */
plait_status ISA_FN(cross_entropy_loss)(const plait_exec *ex, double *loss, const plait_cross_entropy *c)
{
    double sum = 0.0;
    (void)ex;
    for (int64_t r = 0; r < c->rows; r++)
        if (c->targets[r] >= 0)
            sum += log((double)((const float *)c->row_sum)[r]) - (double)((const float *)c->row_target)[r];
    *loss += sum;
    return PLAIT_OK;
}
