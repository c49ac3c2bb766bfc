/* core/dtype.h: element types, and conversions between 16-bit floats and float.
 *
 * Rounding is to nearest, ties to even. NaN stays NaN and becomes quiet in either direction, infinities and
 * subnormals are kept, overflow gives infinity. These scalar forms are the specification; kernels/ has vector forms
 * that must agree bit for bit.
 */
#ifndef PLAIT_CORE_DTYPE_H
#define PLAIT_CORE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/status.h"

PLAIT_BEGIN_DECLS

typedef enum plait_dtype {
    PLAIT_FP32,
    PLAIT_BF16,
    PLAIT_FP16,
    PLAIT_FP64,
    PLAIT_INT32,
    PLAIT_INT64,
    PLAIT_DTYPES
} plait_dtype;

static inline size_t plait_dtype_size(plait_dtype dtype)
{
    static const unsigned char sizes[PLAIT_DTYPES] = {4, 2, 2, 8, 4, 8};
    return sizes[dtype];
}

const char *plait_dtype_name(plait_dtype dtype);

/* The type in which sums, gradients, statistics and optimizer states of a model of this type live:
 * fp64 for fp64, otherwise fp32. */
static inline plait_dtype plait_dtype_acc(plait_dtype dtype)
{
    return dtype == PLAIT_FP64 ? PLAIT_FP64 : PLAIT_FP32;
}

static inline float plait_bf16_to_float(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        bits |= 0x00400000u; /* quiet NaN */
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint16_t plait_float_to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16) | 0x0040u); /* quiet NaN; rounding could turn its payload into infinity */
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float plait_fp16_to_float(uint16_t h);
uint16_t plait_float_to_fp16(float f);

PLAIT_END_DECLS
#endif
