/* Sums in fixed point: a pass over a leaf of gradients and its integers. Written so that compilers make vectors of it.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/impl.h"

plait_status ISA_FN(fixed_add)(const plait_exec *ex, int64_t *sum, const void *x, double scale, double limit, int64_t n,
                               int32_t *overflow)
{
    const float *p = x;
    const double to_fixed = scale * PLAIT_FIXED_ONE, most = limit * PLAIT_FIXED_ONE, magic = 0x1.8p52;
    int bad = 0;
#pragma omp parallel for schedule(static) num_threads(team(ex, n)) reduction(| : bad)
    for (int64_t begin = 0; begin < n; begin += PLAIT_CPU_BLOCK) {
        const int64_t end = min_i64(begin + PLAIT_CPU_BLOCK, n);
        int beyond = 0;
        for (int64_t i = begin; i < end; i++) {
            /* plait_fixed_from without its branch: a term that is too large adds nothing. */
            const double term = (double)p[i] * to_fixed;
            const int fits = (term < most) & (term > -most);
            const double shifted = (fits ? term : 0.0) + magic;
            int64_t bits, zero;
            memcpy(&bits, &shifted, sizeof bits);
            memcpy(&zero, &magic, sizeof zero);
            sum[i] += bits - zero;
            beyond |= !fits;
        }
        bad |= beyond;
    }
    if (bad)
        *overflow = 1;
    return PLAIT_OK;
}

plait_status ISA_FN(fixed_read)(const plait_exec *ex, void *y, const int64_t *sum, int64_t n)
{
    float *p = y;
#pragma omp parallel for schedule(static) num_threads(team(ex, n))
    for (int64_t begin = 0; begin < n; begin += PLAIT_CPU_BLOCK)
        for (int64_t i = begin; i < min_i64(begin + PLAIT_CPU_BLOCK, n); i++)
            p[i] = plait_fixed_to_float(sum[i]);
    return PLAIT_OK;
}

plait_status ISA_FN(fixed_squares)(const plait_exec *ex, plait_fixed_squares *total, const void *x, int64_t n,
                                   int32_t *overflow)
{
    const float *p = x;
    int bad = 0;
#pragma omp parallel num_threads(team(ex, n)) reduction(| : bad)
    {
        plait_fixed_squares mine = 0;
#pragma omp for schedule(static) nowait
        for (int64_t i = 0; i < n; i++) {
            const double scaled = fabs((double)p[i]) * PLAIT_FIXED_ONE;
            const int fits = scaled < (double)PLAIT_FIXED_MOST_SQUARED;
            const uint64_t k = fits ? (uint64_t)scaled : 0;
            mine += (plait_fixed_squares)k * k;
            bad |= !fits | !plait_fixed_squares_fit(mine);
        }
#pragma omp critical(plait_fixed_squares)
        {
            *total += mine;
            bad |= !plait_fixed_squares_fit(*total);
        }
    }
    if (bad)
        *overflow = 1;
    return PLAIT_OK;
}
