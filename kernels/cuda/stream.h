/* kernels/cuda/stream.h: what calls the libraries of CUDA by itself needs to know: their errors, and what is behind a
 * plait_exec.
 */
#ifndef PLAIT_KERNELS_CUDA_STREAM_H
#define PLAIT_KERNELS_CUDA_STREAM_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "kernels/kernels.h"

PLAIT_BEGIN_DECLS

/* ---- errors ---- */

/* OUT_OF_MEMORY for want of memory, else INTERNAL, with the call and the library's sentence. */
plait_status plait_cuda_fail(const char *file, int line, const char *call, cudaError_t error);
plait_status plait_cublas_fail(const char *file, int line, const char *call, cublasStatus_t error);

#define PLAIT_TRY_CUDA(call)                                                                                           \
    do {                                                                                                               \
        const cudaError_t try_cuda_ = (call);                                                                          \
        if (try_cuda_ != cudaSuccess)                                                                                  \
            return plait_cuda_fail(__FILE__, __LINE__, #call, try_cuda_);                                              \
    } while (0)

#define PLAIT_TRY_CUBLAS(call)                                                                                         \
    do {                                                                                                               \
        const cublasStatus_t try_cublas_ = (call);                                                                     \
        if (try_cublas_ != CUBLAS_STATUS_SUCCESS)                                                                      \
            return plait_cublas_fail(__FILE__, __LINE__, #call, try_cublas_);                                          \
    } while (0)

/* After a launch: whether it was accepted. */
#define PLAIT_CUDA_LAUNCHED() PLAIT_TRY_CUDA(cudaGetLastError())

/* ---- streams ---- */

struct plait_cuda_gemms;

/* What plait_exec.stream points to. */
typedef struct plait_cuda_stream {
    cudaStream_t stream; /* non-blocking */
    cublasLtHandle_t lt;
    struct plait_cuda_gemms *gemms; /* algorithms found so far, by shape (gemm_library.c) */
} plait_cuda_stream;

static inline cudaStream_t plait_cuda_stream_of(const plait_exec *ex)
{
    return ((const plait_cuda_stream *)ex->stream)->stream;
}

PLAIT_END_DECLS
#endif
