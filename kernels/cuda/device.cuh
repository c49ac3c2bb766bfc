/* kernels/cuda/device.cuh: included first by every .cu. nvcc compiles it for a GPU; a C++ compiler with PLAIT_FAKECUDA
 * compiles the same source for the host emulation of the tests, against the same headers of the toolkit. Inline PTX
 * stands in ptx.cuh alone, where each instruction has a model for the host.
 */
#ifndef PLAIT_KERNELS_CUDA_DEVICE_CUH
#define PLAIT_KERNELS_CUDA_DEVICE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

/* PLAIT_LAUNCH(kernel, grid, block, shared bytes, stream, arguments...); a kernel with commas in its template arguments
 * stands in parentheses.
 * PLAIT_DYNAMIC_SHARED(T, name): T *name = the dynamic shared memory of the block, aligned to 128 bytes. */
#ifdef PLAIT_FAKECUDA
#include <fakecuda_device.h>
#define PLAIT_LAUNCH(kernel, grid, block, shared, stream, ...)                                                         \
    fakecuda::launch(#kernel, grid, block, shared, stream, fakecuda::bind(kernel, __VA_ARGS__))
#define PLAIT_DYNAMIC_SHARED(T, name) T *name = static_cast<T *>(fakecuda::dynamic_shared())
#else
#define PLAIT_LAUNCH(kernel, grid, block, shared, stream, ...) (kernel)<<<grid, block, shared, stream>>>(__VA_ARGS__)
#define PLAIT_DYNAMIC_SHARED(T, name)                                                                                  \
    extern __shared__ __align__(128) unsigned char plait_dynamic_shared[];                                             \
    T *name = reinterpret_cast<T *>(plait_dynamic_shared)
#endif

#include "kernels/cuda/cuda_impl.h"

#endif
