/* kernels/cuda/gemm_small.h: products and bias rows by own kernels, for what cuBLASLt does not take (gemm.c). */
#ifndef PLAIT_KERNELS_CUDA_GEMM_SMALL_H
#define PLAIT_KERNELS_CUDA_GEMM_SMALL_H

#include "kernels/kernels.h"

PLAIT_BEGIN_DECLS

/* Any product of kernels.h with m, n > 0, also k 0: any alignment and leading dimensions, no scratch. Each element of C
 * is one sum in fp32 in the order of k. */
plait_status plait_cuda_small_gemm(const plait_exec *ex, plait_dtype dtype, const plait_gemm *g);

/* C (m, n), fp32, = bias (n), of type `dtype`, in every row; added to C if g->accumulate. */
plait_status plait_cuda_bias_rows(const plait_exec *ex, plait_dtype dtype, const plait_gemm *g);

PLAIT_END_DECLS
#endif
