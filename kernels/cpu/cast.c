/* Conversions, sums of communication buffers, and plain memory. */
#include "kernels/cpu/impl.h"
#include "kernels/cpu/vec.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* w elements from x[i] on. `dtype` is a constant in every call, so that nothing is left of the switch. */
ALWAYS_INLINE vf load_as(const void *x, plait_dtype dtype, int64_t i, int64_t w)
{
    vf v = {0};
    switch (dtype) {
    case PLAIT_BF16:
        v = vf_from_bf16(vh_load_n((const uint16_t *)x + i, w));
        return (vf)((vi)v | ((v != v) & 0x00400000)); /* a shift alone would leave a NaN signalling */
    case PLAIT_FP16:
        return vf_from_fp16(vh_load_n((const uint16_t *)x + i, w));
    case PLAIT_FP64:
        for (int64_t j = 0; j < w; j++)
            v[j] = (float)((const double *)x)[i + j];
        return v;
    default:
        return vf_load_n((const float *)x + i, w);
    }
}

ALWAYS_INLINE void store_as(void *y, plait_dtype dtype, int64_t i, vf v, int64_t w)
{
    switch (dtype) {
    case PLAIT_BF16:
        vh_store_n((uint16_t *)y + i, vf_to_bf16(v), w);
        break;
    case PLAIT_FP16:
        vh_store_n((uint16_t *)y + i, vf_to_fp16(v), w);
        break;
    case PLAIT_FP64:
        for (int64_t j = 0; j < w; j++)
            ((double *)y)[i + j] = (double)v[j];
        break;
    default:
        vf_store_n((float *)y + i, v, w);
    }
}

ALWAYS_INLINE void cast_block(void *dst, plait_dtype to, const void *src, plait_dtype from, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i += LANES) {
        int64_t w = min_i64(LANES, end - i);
        store_as(dst, to, i, load_as(src, from, i, w), w);
    }
}

static void cast_range(void *dst, plait_dtype to, const void *src, plait_dtype from, int64_t begin, int64_t end)
{
#define CASE(to_, from_)                                                                                               \
    case PLAIT_##to_ *PLAIT_DTYPES + PLAIT_##from_:                                                                    \
        cast_block(dst, PLAIT_##to_, src, PLAIT_##from_, begin, end);                                                  \
        break;
    switch ((int)to * PLAIT_DTYPES + (int)from) {
        CASE(FP32, BF16)
        CASE(FP32, FP16)
        CASE(FP32, FP64)
        CASE(BF16, FP32)
        CASE(BF16, FP16)
        CASE(BF16, FP64)
        CASE(FP16, FP32)
        CASE(FP16, BF16)
        CASE(FP16, FP64)
        CASE(FP64, FP32)
        CASE(FP64, BF16)
        CASE(FP64, FP16)
    }
#undef CASE
}

plait_status ISA_FN(copy)(const plait_exec *ex, void *dst, const void *src, size_t bytes)
{
    const int64_t n = (int64_t)bytes, block = 1 << 16;
    if (dst == src)
        return PLAIT_OK;
#pragma omp parallel for schedule(static) num_threads(team(ex, n / 8))
    for (int64_t i = 0; i < n; i += block)
        memcpy((char *)dst + i, (const char *)src + i, (size_t)min_i64(block, n - i));
    return PLAIT_OK;
}

plait_status ISA_FN(zero)(const plait_exec *ex, void *p, size_t bytes)
{
    const int64_t n = (int64_t)bytes, block = 1 << 16;
#pragma omp parallel for schedule(static) num_threads(team(ex, n / 8))
    for (int64_t i = 0; i < n; i += block)
        memset((char *)p + i, 0, (size_t)min_i64(block, n - i));
    return PLAIT_OK;
}

/* One type to itself is a copy, which keeps the bits of every NaN. */
plait_status ISA_FN(cast)(const plait_exec *ex, void *dst, plait_dtype to, const void *src, plait_dtype from, int64_t n)
{
    if (to == from)
        return ISA_FN(copy)(ex, dst, src, (size_t)n * plait_dtype_size(to));
#pragma omp parallel for schedule(static) num_threads(team(ex, n))
    for (int64_t begin = 0; begin < n; begin += PLAIT_CPU_BLOCK)
        cast_range(dst, to, src, from, begin, min_i64(begin + PLAIT_CPU_BLOCK, n));
    return PLAIT_OK;
}

ALWAYS_INLINE void add_block(void *y, const void *x, plait_dtype dtype, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i += LANES) {
        int64_t w = min_i64(LANES, end - i);
        store_as(y, dtype, i, load_as(y, dtype, i, w) + load_as(x, dtype, i, w), w);
    }
}

static void add_range(void *y, const void *x, plait_dtype dtype, int64_t begin, int64_t end)
{
    switch (dtype) {
    case PLAIT_BF16:
        add_block(y, x, PLAIT_BF16, begin, end);
        break;
    case PLAIT_FP16:
        add_block(y, x, PLAIT_FP16, begin, end);
        break;
    case PLAIT_FP64:
        for (int64_t i = begin; i < end; i++)
            ((double *)y)[i] += ((const double *)x)[i];
        break;
    default:
        add_block(y, x, PLAIT_FP32, begin, end);
    }
}

plait_status ISA_FN(add)(const plait_exec *ex, void *y, const void *x, plait_dtype dtype, int64_t n)
{
#pragma omp parallel for schedule(static) num_threads(team(ex, n))
    for (int64_t begin = 0; begin < n; begin += PLAIT_CPU_BLOCK)
        add_range(y, x, dtype, begin, min_i64(begin + PLAIT_CPU_BLOCK, n));
    return PLAIT_OK;
}
