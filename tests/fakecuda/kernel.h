// tests/fakecuda/kernel.h: launches of kernels.
#ifndef PLAIT_TESTS_FAKECUDA_KERNEL_H
#define PLAIT_TESTS_FAKECUDA_KERNEL_H

#include <cstddef>

namespace fakecuda
{

// Of the device that is imitated: compute capability 9.0.
const size_t kSharedDefault = 48 * 1024, kSharedOptIn = 227 * 1024, kSharedOfMultiprocessor = 228 * 1024;
// Few multiprocessors, so that kernels that size their grid by the device run loops.
const int kMultiprocessors = 4;

// cudaFuncSetAttribute of the dynamic shared memory: false when no block may have that much.
bool allow_shared(const void *function, size_t bytes);
size_t allowed_shared(const void *function);

} // namespace fakecuda
#endif
