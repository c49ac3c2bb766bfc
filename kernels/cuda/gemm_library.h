/* kernels/cuda/gemm_library.h: products that cuBLASLt computes, with at most one epilogue.
 */
#ifndef PLAIT_KERNELS_CUDA_GEMM_LIBRARY_H
#define PLAIT_KERNELS_CUDA_GEMM_LIBRARY_H

#include "kernels/kernels.h"

PLAIT_BEGIN_DECLS

/* More than any algorithm asks of a pointer, in bytes. Matrices are described as aligned to that at most, so that where
 * an arena put them does not decide about bits. */
enum { PLAIT_CUDA_ALIGN = 16 };

static inline uint8_t plait_cuda_alignment(const void *p)
{
    const uintptr_t lowest = (uintptr_t)p & (~(uintptr_t)p + 1);
    return (uint8_t)(lowest == 0 || lowest > PLAIT_CUDA_ALIGN ? PLAIT_CUDA_ALIGN : lowest);
}

/* Memory for the library: its workspace. */
typedef struct plait_cuda_room {
    char *at;
    size_t bytes;
} plait_cuda_room;

/* *done: the library has an algorithm, and the product is in the stream; else nothing was done. The product is not
 * empty, and a bias aligned. `sums`: fp32 (m), where the gradient of a bias is written (g->bias_grad only says that it
 * is wanted), else NULL. */
PLAIT_MUST_USE plait_status plait_cuda_library_gemm(const plait_exec *ex, const plait_gemm *g, plait_cuda_room room,
                                                    void *sums, bool *done);

PLAIT_END_DECLS
#endif
