/* kernels/cpu/typed.h: the storage type of this compilation, and its vectors.
 *
 * `elem` is float or the bits of a 16-bit type. A loop over a row handles its last, partial vector like the others:
 *
 *     for (int64_t c = 0; c < C; c += LANES) {
 *         int64_t w = width(c, C);
 *         store(y + c, load(x + c, w) * 2.0f, w);
 *     }
 */
#ifndef PLAIT_KERNELS_CPU_TYPED_H
#define PLAIT_KERNELS_CPU_TYPED_H

#include "kernels/cpu/impl.h"
#include "kernels/cpu/vec.h"

#ifndef PLAIT_CPU_DTYPE
#define PLAIT_CPU_DTYPE fp32
#endif

/* A function of this type and instruction set. */
#define FN(op) PLAIT_CPU_JOIN3(op, PLAIT_CPU_DTYPE, PLAIT_CPU_ISA)

#define PLAIT_CPU_DECLARE_TYPED(op) PLAIT_CPU_DECLARE(op, FN(op));
PLAIT_CPU_TYPED_OPS(PLAIT_CPU_DECLARE_TYPED)
#undef PLAIT_CPU_DECLARE_TYPED

/* Numbers for the preprocessor: PLAIT_CPU_IS(bf16) */
#define PLAIT_CPU_NUMBER_fp32 1
#define PLAIT_CPU_NUMBER_bf16 2
#define PLAIT_CPU_NUMBER_fp16 3
#define PLAIT_CPU_NUMBER_(d)  PLAIT_CPU_NUMBER_##d
#define PLAIT_CPU_NUMBER(d)   PLAIT_CPU_NUMBER_(d)
#define PLAIT_CPU_IS(d)       (PLAIT_CPU_NUMBER(PLAIT_CPU_DTYPE) == PLAIT_CPU_NUMBER_##d)

static inline int64_t width(int64_t c, int64_t C)
{
    return C - c < LANES ? C - c : LANES;
}

#if PLAIT_CPU_IS(fp32)

#define ELEM_DTYPE PLAIT_FP32
typedef float elem;
static inline vf load(const elem *p, int64_t w)
{
    return vf_load_n(p, w);
}
static inline void store(elem *p, vf v, int64_t w)
{
    vf_store_n(p, v, w);
}

#elif PLAIT_CPU_IS(bf16)

#define ELEM_DTYPE PLAIT_BF16
typedef uint16_t elem;
static inline vf load(const elem *p, int64_t w)
{
    return vf_from_bf16(vh_load_n(p, w));
}
static inline void store(elem *p, vf v, int64_t w)
{
    vh_store_n(p, vf_to_bf16(v), w);
}

#else

#define ELEM_DTYPE PLAIT_FP16
typedef uint16_t elem;
static inline vf load(const elem *p, int64_t w)
{
    return vf_from_fp16(vh_load_n(p, w));
}
static inline void store(elem *p, vf v, int64_t w)
{
    vh_store_n(p, vf_to_fp16(v), w);
}

#endif
#endif
