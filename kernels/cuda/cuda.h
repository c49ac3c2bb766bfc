/* kernels/cuda/cuda.h: the tables and the backend for NVIDIA GPUs.
 *
 * Matrix products by cuBLASLt, everything else by own kernels. All tensors, sums and flags of an operation are in
 * device memory, except where its slot says host. A call gives work to the stream and returns; nothing is waited for.
 */
#ifndef PLAIT_KERNELS_CUDA_CUDA_H
#define PLAIT_KERNELS_CUDA_CUDA_H

#include "kernels/backend.h"

PLAIT_BEGIN_DECLS

/* The table of `dtype` (fp32, bf16, fp16); NULL for others. Every slot is filled. Operations need plait_exec.stream. */
const plait_kernels *plait_kernels_cuda(plait_dtype dtype);

const plait_backend *plait_backend_cuda(void);

/* Of the libraries that are linked and of the driver, for people: "CUDA 13.0 (driver 13.0), cuBLASLt 13.1.0". */
void plait_cuda_versions(char *text, size_t size);

PLAIT_END_DECLS
#endif
