// tests/fakecuda/runtime.h: what the functions of cudart share.
#ifndef PLAIT_TESTS_FAKECUDA_RUNTIME_H
#define PLAIT_TESTS_FAKECUDA_RUNTIME_H

#include <cuda_runtime_api.h>

namespace fakecuda
{

// Keeps the error for cudaGetLastError, and returns it.
cudaError_t set_error(cudaError_t error);

// Begins a function of cudart: operations may run; true when this call is to fail.
bool enter(const char *function);

// At the start of a function of cudart.
#define FAKECUDA_ENTER(error)                                                                                          \
    do {                                                                                                               \
        if (fakecuda::enter(__func__))                                                                                 \
            return fakecuda::set_error(error);                                                                         \
    } while (0)

} // namespace fakecuda
#endif
