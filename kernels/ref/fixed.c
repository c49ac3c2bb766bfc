#include "kernels/ref/ref_impl.h"

/* sum += x scale */
plait_status REF(fixed_add)(const plait_exec *ex, int64_t *sum, const void *x, double scale, double limit, int64_t n,
                            int32_t *overflow)
{
    (void)ex;
    for (int64_t i = 0; i < n; i++) {
        int64_t term;
        if (!plait_fixed_from((double)((const real *)x)[i] * scale, limit, &term))
            *overflow = 1;
        sum[i] += term;
    }
    return PLAIT_OK;
}

/* y = sum */
plait_status REF(fixed_read)(const plait_exec *ex, void *y, const int64_t *sum, int64_t n)
{
    (void)ex;
    for (int64_t i = 0; i < n; i++)
        ((real *)y)[i] = (real)plait_fixed_to_float(sum[i]);
    return PLAIT_OK;
}

/* total += sum_i x[i]^2 */
plait_status REF(fixed_squares)(const plait_exec *ex, plait_fixed_squares *total, const void *x, int64_t n,
                                int32_t *overflow)
{
    (void)ex;
    for (int64_t i = 0; i < n; i++) {
        const double scaled = fabs((double)((const real *)x)[i]) * PLAIT_FIXED_ONE;
        if (scaled < (double)PLAIT_FIXED_MOST_SQUARED)
            *total += (plait_fixed_squares)(uint64_t)scaled * (uint64_t)scaled;
        else
            *overflow = 1;
        if (!plait_fixed_squares_fit(*total))
            *overflow = 1;
    }
    return PLAIT_OK;
}
