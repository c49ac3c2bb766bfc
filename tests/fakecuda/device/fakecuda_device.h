// tests/fakecuda/device/fakecuda_device.h: CUDA C++ for a C++ compiler: what kernels/cuda/device.cuh includes instead
// of what nvcc has built in.
#ifndef PLAIT_TESTS_FAKECUDA_DEVICE_FAKECUDA_DEVICE_H
#define PLAIT_TESTS_FAKECUDA_DEVICE_FAKECUDA_DEVICE_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "tests/fakecuda/device/fakecuda_launch.h"
#include "tests/fakecuda/device/fakecuda_thread.h"

// A variable of a block is one of the program: blocks run one at a time. They lie together, so that each block finds
// them uninitialised.
#undef __shared__
#define __shared__ static __attribute__((section("fakecuda_shared"), aligned(16)))
#undef __launch_bounds__
#define __launch_bounds__(...)

#define threadIdx (fakecuda::current->index)
#define blockIdx  (fakecuda::block_index)
#define blockDim  (fakecuda::block_size)
#define gridDim   (fakecuda::grid_size)

#include "tests/fakecuda/device/fakecuda_atomics.h"
#include "tests/fakecuda/device/fakecuda_math.h"
#include "tests/fakecuda/device/fakecuda_ptx.h"
#include "tests/fakecuda/device/fakecuda_warp.h"

#endif
