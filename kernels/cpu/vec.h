/* kernels/cpu/vec.h: a vector of floats: 16 (AVX-512), 8 (AVX2) or 4 (any processor).
 *
 * It is the compilers' own vector type, so + - * / and comparisons need no names; this header adds what they lack:
 * loads and stores (whole or of the first w lanes), min, max, square root, reductions, exp and the 16-bit types.
 */
#ifndef PLAIT_KERNELS_CPU_VEC_H
#define PLAIT_KERNELS_CPU_VEC_H

#include "core/dtype.h"

#include <math.h>

#if defined __AVX512F__ || defined __AVX2__
#include <immintrin.h>
#endif

#if defined __AVX512F__
#define LANES 16
#elif defined __AVX2__
#define LANES 8
#else
#define LANES 4
#endif

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));
typedef uint32_t vu __attribute__((vector_size(4 * LANES)));
typedef uint16_t vh __attribute__((vector_size(2 * LANES)));

static inline vf vf_set(float x)
{
    return x - (vf){0};
}

static inline vf vf_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void vf_store(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}

/* The first w lanes (1 to LANES); the others are zero and their memory is not touched. */
static inline vf vf_load_n(const float *p, int64_t w)
{
    if (w == LANES)
        return vf_load(p);
    vf v = {0};
    memcpy(&v, p, (size_t)w * sizeof *p);
    return v;
}

static inline void vf_store_n(float *p, vf v, int64_t w)
{
    if (w == LANES)
        vf_store(p, v);
    else
        memcpy(p, &v, (size_t)w * sizeof *p);
}

/* a b + c */
static inline vf vf_fma(vf a, vf b, vf c)
{
#if defined __AVX512F__
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined __AVX2__
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

/* mask is a comparison: all bits of a lane or none. */
static inline vf vf_select(vi mask, vf yes, vf no)
{
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}

/* b where either is NaN */
static inline vf vf_min(vf a, vf b)
{
#if defined __AVX512F__
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined __AVX2__
    return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return vf_select(a < b, a, b);
#endif
}

static inline vf vf_max(vf a, vf b)
{
#if defined __AVX512F__
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined __AVX2__
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return vf_select(a > b, a, b);
#endif
}

static inline vf vf_sqrt(vf a)
{
#if defined __AVX512F__
    return (vf)_mm512_sqrt_ps((__m512)a);
#elif defined __AVX2__
    return (vf)_mm256_sqrt_ps((__m256)a);
#else
    for (int i = 0; i < LANES; i++)
        a[i] = sqrtf(a[i]);
    return a;
#endif
}

/* Sum of the lanes, by halves. */
static inline float vf_sum(vf a)
{
    float x[LANES];
    vf_store(x, a);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            x[i] += x[i + half];
    return x[0];
}

static inline float vf_max_lane(vf a)
{
    float x[LANES];
    vf_store(x, a);
    for (int i = 1; i < LANES; i++)
        x[0] = x[i] > x[0] ? x[i] : x[0];
    return x[0];
}

/* 2^n for n in [-126, 127] */
static inline vf vf_pow2(vi n)
{
    return (vf)((n + 127) << 23);
}

/* exp(x), within about one unit in the last place; 0 far below, infinity above, NaN for NaN.
 * x = n log 2 + r with |r| <= log(2) / 2; exp(r) = 1 + r + r^2 P(r) with the polynomial of Cephes' expf (Moshier). */
static inline vf vf_exp(vf x)
{
    const float magic = 12582912.0f; /* 1.5 2^23: adding it leaves the nearest integer in the low bits */
    x = vf_max(vf_set(-105.0f), vf_min(vf_set(89.0f), x));
    vf t = vf_fma(x, vf_set(1.44269504088896341f), vf_set(magic));
    vi n = (vi)t - 0x4b400000;
    vf nf = t - magic;
    vf r = vf_fma(nf, vf_set(-0.693359375f), x);
    r = vf_fma(nf, vf_set(2.12194440e-4f), r);
    vf p = vf_set(1.9875691500e-4f);
    p = vf_fma(p, r, vf_set(1.3981999507e-3f));
    p = vf_fma(p, r, vf_set(8.3334519073e-3f));
    p = vf_fma(p, r, vf_set(4.1665795894e-2f));
    p = vf_fma(p, r, vf_set(1.6666665459e-1f));
    p = vf_fma(p, r, vf_set(5.0000001201e-1f));
    p = vf_fma(p, r * r, r) + 1.0f;
    /* In two halves, since 2^n alone has no place for the largest and the subnormal results. */
    vi half = n >> 1;
    return p * vf_pow2(half) * vf_pow2(n - half);
}

/* 1 / (1 + exp(-x)) */
static inline vf vf_sigmoid(vf x)
{
    return 1.0f / (1.0f + vf_exp(-x));
}

/* bf16: rounded as plait_float_to_bf16 does. */
static inline vf vf_from_bf16(vh h)
{
    return (vf)(__builtin_convertvector(h, vu) << 16);
}

static inline vh vf_to_bf16(vf f)
{
    vu bits = (vu)f;
    vu rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    vu quiet = bits >> 16 | 0x40u;
    vu nan = (vu)(f != f);
    return __builtin_convertvector((nan & quiet) | (~nan & rounded), vh);
}

/* fp16: rounded as plait_float_to_fp16 does. */
static inline vf vf_from_fp16(vh h)
{
#if defined __AVX512F__
    return (vf)_mm512_cvtph_ps((__m256i)h);
#elif defined __AVX2__
    return (vf)_mm256_cvtph_ps((__m128i)h);
#else
    vf f;
    for (int i = 0; i < LANES; i++)
        f[i] = plait_fp16_to_float(h[i]);
    return f;
#endif
}

static inline vh vf_to_fp16(vf f)
{
#if defined __AVX512F__
    return (vh)_mm512_cvtps_ph((__m512)f, _MM_FROUND_TO_NEAREST_INT);
#elif defined __AVX2__
    return (vh)_mm256_cvtps_ph((__m256)f, _MM_FROUND_TO_NEAREST_INT);
#else
    vh h;
    for (int i = 0; i < LANES; i++)
        h[i] = plait_float_to_fp16(f[i]);
    return h;
#endif
}

/* The 64-bit products a m: returns their low halves, *high becomes the high ones. */
static inline vu vu_mul_wide(vu a, uint32_t m, vu *high)
{
#if defined __AVX512F__
    __m512i v = (__m512i)a, k = _mm512_set1_epi32((int)m);
    __m512i even = _mm512_mul_epu32(v, k), odd = _mm512_mul_epu32(_mm512_srli_epi64(v, 32), k);
    *high = (vu)_mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
    return (vu)_mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
#elif defined __AVX2__
    __m256i v = (__m256i)a, k = _mm256_set1_epi32((int)m);
    __m256i even = _mm256_mul_epu32(v, k), odd = _mm256_mul_epu32(_mm256_srli_epi64(v, 32), k);
    *high = (vu)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
    return (vu)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
#else
    for (int i = 0; i < LANES; i++)
        (*high)[i] = (uint32_t)((uint64_t)m * a[i] >> 32);
    return a * m;
#endif
}

/* The first w of LANES 16-bit elements. */
static inline vh vh_load_n(const uint16_t *p, int64_t w)
{
    vh h = {0};
    if (w == LANES)
        memcpy(&h, p, sizeof h);
    else
        memcpy(&h, p, (size_t)w * sizeof *p);
    return h;
}

static inline void vh_store_n(uint16_t *p, vh h, int64_t w)
{
    if (w == LANES)
        memcpy(p, &h, sizeof h);
    else
        memcpy(p, &h, (size_t)w * sizeof *p);
}

#endif
