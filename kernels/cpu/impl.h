/* kernels/cpu/impl.h: what the files of kernels/cpu share: names per instruction set and type, threads.
 *
 * CMake compiles each file with PLAIT_CPU_ISA (portable, avx2, avx512) and, where the storage type matters, with
 * PLAIT_CPU_DTYPE (fp32, bf16, fp16). FN(op) is then plait_cpu_op_bf16_avx2, or plait_cpu_op_avx2.
 */
#ifndef PLAIT_KERNELS_CPU_IMPL_H
#define PLAIT_KERNELS_CPU_IMPL_H

#include "kernels/kernels.h"

#ifndef PLAIT_CPU_ISA
#define PLAIT_CPU_ISA portable
#endif

#define PLAIT_CPU_PASTE2(op, isa)        plait_cpu_##op##_##isa
#define PLAIT_CPU_PASTE3(op, dtype, isa) plait_cpu_##op##_##dtype##_##isa
#define PLAIT_CPU_JOIN2(op, isa)         PLAIT_CPU_PASTE2(op, isa)
#define PLAIT_CPU_JOIN3(op, dtype, isa)  PLAIT_CPU_PASTE3(op, dtype, isa)

/* A function of one instruction set, whatever the type. */
#define ISA_FN(op) PLAIT_CPU_JOIN2(op, PLAIT_CPU_ISA)

/* Slots of the table that depend on the storage type, and those that do not. */
#define PLAIT_CPU_TYPED_OPS(X)                                                                                         \
    X(gemm)                                                                                                            \
    X(embedding_fwd)                                                                                                   \
    X(embedding_bwd)                                                                                                   \
    X(position_fwd)                                                                                                    \
    X(position_bwd)                                                                                                    \
    X(layernorm_fwd)                                                                                                   \
    X(layernorm_bwd)                                                                                                   \
    X(rmsnorm_fwd)                                                                                                     \
    X(rmsnorm_bwd)                                                                                                     \
    X(rope)                                                                                                            \
    X(attention_fwd)                                                                                                   \
    X(attention_bwd)                                                                                                   \
    X(gelu_fwd)                                                                                                        \
    X(gelu_bwd)                                                                                                        \
    X(swiglu_fwd)                                                                                                      \
    X(swiglu_bwd)                                                                                                      \
    X(bias_dropout_add_fwd)                                                                                            \
    X(bias_dropout_add_bwd)                                                                                            \
    X(bias_grad)                                                                                                       \
    X(cross_entropy_grad)                                                                                              \
    X(adamw)                                                                                                           \
    X(sgd)

#define PLAIT_CPU_COMMON_OPS(X)                                                                                        \
    X(rope_table)                                                                                                      \
    X(cross_entropy_max)                                                                                               \
    X(cross_entropy_sum)                                                                                               \
    X(cross_entropy_loss)                                                                                              \
    X(unscale)                                                                                                         \
    X(sum_squares)                                                                                                     \
    X(fixed_add)                                                                                                       \
    X(fixed_read)                                                                                                      \
    X(fixed_squares)                                                                                                   \
    X(hash)                                                                                                            \
    X(cast)                                                                                                            \
    X(add)                                                                                                             \
    X(zero)                                                                                                            \
    X(copy)

/* Declares the function of a slot with the slot's own type. */
#define PLAIT_CPU_DECLARE(op, name) __typeof__(*((plait_kernels *)0)->op) name

#define PLAIT_CPU_DECLARE_COMMON(op) PLAIT_CPU_DECLARE(op, ISA_FN(op));
PLAIT_CPU_COMMON_OPS(PLAIT_CPU_DECLARE_COMMON)
#undef PLAIT_CPU_DECLARE_COMMON

/* C (M, N) = A B, plus C when `accumulate`; fp32, one thread. A[i][k] is a[i * a_row + k * a_col], so that a transposed
 * A costs nothing; B (K, N) and C are row-major with leading dimensions. Sums over k run in ascending order. */
void ISA_FN(tile_gemm)(int64_t M, int64_t N, int64_t K, const float *a, int64_t a_row, int64_t a_col, const float *b,
                       int64_t ldb, float *c, int64_t ldc, bool accumulate);

/* A whole fp32 product (c is float whatever c_acc says) without a library: for sizes where a library's call costs more
 * than the work, for k 0, and for what a library refuses. */
void ISA_FN(small_gemm)(const plait_exec *ex, const plait_gemm *g);

/* Threads for `work` elements or so: starting a team costs some microseconds. */
static inline int team(const plait_exec *ex, int64_t work)
{
    return ex->threads > 1 && work >= 1 << 15 ? ex->threads : 1;
}

static inline int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Elements a thread takes at a time from an array without rows. */
#define PLAIT_CPU_BLOCK 8192

#endif
