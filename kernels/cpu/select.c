/* Which table runs on this processor. */
#include "kernels/cpu/blas.h"
#include "kernels/cpu/cpu.h"

#define TABLES(isa)                                                                                                    \
    extern const plait_kernels plait_cpu_table_fp32_##isa, plait_cpu_table_bf16_##isa, plait_cpu_table_fp16_##isa;     \
    static const plait_kernels *isa##_table(plait_dtype dtype)                                                         \
    {                                                                                                                  \
        switch (dtype) {                                                                                               \
        case PLAIT_FP32:                                                                                               \
            return &plait_cpu_table_fp32_##isa;                                                                        \
        case PLAIT_BF16:                                                                                               \
            return &plait_cpu_table_bf16_##isa;                                                                        \
        case PLAIT_FP16:                                                                                               \
            return &plait_cpu_table_fp16_##isa;                                                                        \
        default:                                                                                                       \
            return NULL;                                                                                               \
        }                                                                                                              \
    }

TABLES(portable)

const plait_kernels *plait_kernels_cpu_portable(plait_dtype dtype)
{
    return portable_table(dtype);
}

#if PLAIT_CPU_X86

#include <cpuid.h>

TABLES(avx2)
TABLES(avx512)

/* clang before 16 has no name for f16c in __builtin_cpu_supports. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

const plait_kernels *plait_kernels_cpu(plait_dtype dtype, plait_isa isa)
{
    switch (isa) {
    case PLAIT_ISA_AVX512:
        return has_avx512() ? avx512_table(dtype) : NULL;
    case PLAIT_ISA_AVX2:
        if (!has_avx2())
            return NULL;
        plait_blas_limit_avx2();
        return avx2_table(dtype);
    default:
        return has_avx512() ? avx512_table(dtype) : has_avx2() ? avx2_table(dtype) : portable_table(dtype);
    }
}

#else

const plait_kernels *plait_kernels_cpu(plait_dtype dtype, plait_isa isa)
{
    return isa == PLAIT_ISA_AUTO ? portable_table(dtype) : NULL;
}

#endif
