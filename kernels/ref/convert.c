/* Operations on arrays whose type is an argument: an element at a time through `double`, in which every float, bf16
 * and fp16 is exact. */
#include "kernels/ref/ref_impl.h"

#include <string.h>

static double load(const void *x, plait_dtype dtype, int64_t i)
{
    switch (dtype) {
    case PLAIT_FP32:
        return ((const float *)x)[i];
    case PLAIT_BF16:
        return plait_bf16_to_float(((const uint16_t *)x)[i]);
    case PLAIT_FP16:
        return plait_fp16_to_float(((const uint16_t *)x)[i]);
    default:
        return ((const double *)x)[i];
    }
}

static void store(void *y, plait_dtype dtype, int64_t i, double value)
{
    switch (dtype) {
    case PLAIT_FP32:
        ((float *)y)[i] = (float)value;
        break;
    case PLAIT_BF16:
        ((uint16_t *)y)[i] = plait_float_to_bf16((float)value);
        break;
    case PLAIT_FP16:
        ((uint16_t *)y)[i] = plait_float_to_fp16((float)value);
        break;
    default:
        ((double *)y)[i] = value;
    }
}

plait_status REF(cast)(const plait_exec *ex, void *dst, plait_dtype to, const void *src, plait_dtype from, int64_t n)
{
    (void)ex;
    if (to == from) { /* also keeps the bits of a signalling NaN */
        if (n > 0)
            memmove(dst, src, (size_t)n * plait_dtype_size(to));
        return PLAIT_OK;
    }
    for (int64_t i = 0; i < n; i++)
        store(dst, to, i, load(src, from, i));
    return PLAIT_OK;
}

/* y += x. The sum of two floats formed in double and rounded to float is the correctly rounded float sum. */
plait_status REF(add)(const plait_exec *ex, void *y, const void *x, plait_dtype dtype, int64_t n)
{
    (void)ex;
    for (int64_t i = 0; i < n; i++)
        store(y, dtype, i, load(y, dtype, i) + load(x, dtype, i));
    return PLAIT_OK;
}

plait_status REF(zero)(const plait_exec *ex, void *p, size_t bytes)
{
    (void)ex;
    if (bytes > 0)
        memset(p, 0, bytes);
    return PLAIT_OK;
}

plait_status REF(copy)(const plait_exec *ex, void *dst, const void *src, size_t bytes)
{
    (void)ex;
    if (bytes > 0)
        memcpy(dst, src, bytes);
    return PLAIT_OK;
}
