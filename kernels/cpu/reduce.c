/* Passes over gradients: scaling with a check for finiteness, and the sum of squares. */
#include "kernels/cpu/impl.h"
#include "kernels/cpu/vec.h"

plait_status ISA_FN(unscale)(const plait_exec *ex, void *x, double scale, int64_t n, int32_t *found_inf)
{
    const float s = (float)scale;
    float *p = x;
    int bad = 0;
#pragma omp parallel for schedule(static) num_threads(team(ex, n)) reduction(| : bad)
    for (int64_t begin = 0; begin < n; begin += PLAIT_CPU_BLOCK) {
        int64_t end = min_i64(begin + PLAIT_CPU_BLOCK, n), i = begin;
        vi worst = {0};
        for (; i < end; i += LANES) {
            int64_t w = min_i64(LANES, end - i);
            vf v = vf_load_n(p + i, w) * s;
            vf_store_n(p + i, v, w);
            /* An exponent of all ones: infinity or NaN. */
            worst |= ((vi)v & 0x7f800000) == 0x7f800000;
        }
        for (int lane = 0; lane < LANES; lane++)
            bad |= worst[lane] != 0;
    }
    if (bad)
        *found_inf = 1;
    return PLAIT_OK;
}

/* Eight double lanes, then their sum. */
static double block_squares(const float *x, int64_t n)
{
    double lane[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++)
            lane[j] += (double)x[i + j] * (double)x[i + j];
    for (int j = 0; i < n; i++, j++)
        lane[j] += (double)x[i] * (double)x[i];
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* Sums of fixed blocks, added in their order; GROUP of them at a time have a place for their sums. */
#define GROUP 256

plait_status ISA_FN(sum_squares)(const plait_exec *ex, double *sum, const void *x, int64_t n)
{
    const float *p = x;
    const int64_t blocks = ceil_div(n, PLAIT_CPU_BLOCK);
    double total = 0.0;
    for (int64_t first = 0; first < blocks; first += GROUP) {
        double part[GROUP];
        int64_t last = min_i64(first + GROUP, blocks);
#pragma omp parallel for schedule(static) num_threads(team(ex, (last - first) * PLAIT_CPU_BLOCK))
        for (int64_t b = first; b < last; b++)
            part[b - first] = block_squares(p + b * PLAIT_CPU_BLOCK, min_i64(PLAIT_CPU_BLOCK, n - b * PLAIT_CPU_BLOCK));
        for (int64_t b = first; b < last; b++)
            total += part[b - first];
    }
    *sum += total;
    return PLAIT_OK;
}
