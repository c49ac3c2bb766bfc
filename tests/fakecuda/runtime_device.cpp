// cudart: devices, properties, errors, attributes of kernels.
#include "tests/fakecuda/kernel.h"
#include "tests/fakecuda/memory.h"
#include "tests/fakecuda/runtime.h"
#include "tests/fakecuda/settings.h"
#include "tests/fakecuda/streams.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace fakecuda
{

namespace
{

cudaError_t last_error = cudaSuccess;
int chosen_device;

struct ErrorText {
    cudaError_t error;
    const char *name, *text;
};
const ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const ErrorText &text_of(cudaError_t error)
{
    for (const ErrorText &e : kErrors)
        if (e.error == error)
            return e;
    return kErrors[sizeof kErrors / sizeof kErrors[0] - 1];
}

} // namespace

cudaError_t set_error(cudaError_t error)
{
    last_error = error;
    return error;
}

bool enter(const char *function)
{
    api_call();
    return fails(function);
}

} // namespace fakecuda

using fakecuda::chosen_device;
using fakecuda::set_error;
using fakecuda::settings;

cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = fakecuda::last_error;
    fakecuda::last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return fakecuda::last_error;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return fakecuda::text_of(error).text;
}

const char *cudaGetErrorName(cudaError_t error)
{
    return fakecuda::text_of(error).name;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    FAKECUDA_ENTER(cudaErrorNoDevice);
    *count = settings().devices;
    return *count > 0 ? cudaSuccess : set_error(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device)
{
    FAKECUDA_ENTER(cudaErrorInvalidDevice);
    if (device < 0 || device >= settings().devices)
        return set_error(cudaErrorInvalidDevice);
    if (device != chosen_device && fakecuda::device_memory().allocated > 0)
        fakecuda::die("the device changes from %d to %d with memory allocated: one device a process is imitated",
                      chosen_device, device);
    chosen_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    FAKECUDA_ENTER(cudaErrorInvalidDevice);
    *device = chosen_device;
    return cudaSuccess;
}

cudaError_t cudaInitDevice(int device, unsigned int, unsigned int)
{
    return cudaSetDevice(device);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    FAKECUDA_ENTER(cudaErrorInvalidDevice);
    if (device < 0 || device >= settings().devices)
        return set_error(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "fakecuda");
    p->uuid.bytes[0] = static_cast<char>(device + 1);
    p->totalGlobalMem = settings().memory;
    p->sharedMemPerBlock = fakecuda::kSharedDefault;
    p->sharedMemPerBlockOptin = fakecuda::kSharedOptIn;
    p->sharedMemPerMultiprocessor = fakecuda::kSharedOfMultiprocessor;
    p->reservedSharedMemPerBlock = 1024;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxBlocksPerMultiProcessor = 32;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->totalConstMem = 65536;
    p->major = 9;
    p->multiProcessorCount = fakecuda::kMultiprocessors;
    p->l2CacheSize = 50 << 20;
    p->asyncEngineCount = 3;
    p->concurrentKernels = p->unifiedAddressing = p->canMapHostMemory = p->streamPrioritiesSupported = 1;
    p->pciBusID = device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    struct cudaDeviceProp p;
    const cudaError_t error = cudaGetDeviceProperties(&p, device);
    if (error != cudaSuccess)
        return error;
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = p.maxThreadsPerBlock;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = static_cast<int>(p.sharedMemPerBlock);
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = static_cast<int>(p.sharedMemPerBlockOptin);
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = static_cast<int>(p.sharedMemPerMultiprocessor);
        return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
        *value = p.multiProcessorCount;
        return cudaSuccess;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = p.maxThreadsPerMultiProcessor;
        return cudaSuccess;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
        *value = p.maxBlocksPerMultiProcessor;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
        *value = p.major;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *value = p.minor;
        return cudaSuccess;
    case cudaDevAttrWarpSize:
        *value = p.warpSize;
        return cudaSuccess;
    case cudaDevAttrMaxGridDimX:
        *value = p.maxGridSize[0];
        return cudaSuccess;
    case cudaDevAttrMaxGridDimY:
        *value = p.maxGridSize[1];
        return cudaSuccess;
    case cudaDevAttrL2CacheSize:
        *value = p.l2CacheSize;
        return cudaSuccess;
    case cudaDevAttrPciBusId:
        *value = p.pciBusID;
        return cudaSuccess;
    case cudaDevAttrClockRate:
        *value = 1000000; // kHz
        return cudaSuccess;
    case cudaDevAttrMemoryClockRate:
        *value = 1000000;
        return cudaSuccess;
    case cudaDevAttrGlobalMemoryBusWidth:
        *value = 1024;
        return cudaSuccess;
    default:
        fakecuda::die("cudaDeviceGetAttribute(%d): not imitated", static_cast<int>(attribute));
    }
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int length, int device)
{
    FAKECUDA_ENTER(cudaErrorInvalidDevice);
    snprintf(id, static_cast<size_t>(length), "0000:%02x:00.0", device);
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int, int)
{
    *can = 0;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    FAKECUDA_ENTER(cudaErrorUnknown);
    *total = settings().memory;
    *free_bytes = settings().memory - std::min(settings().memory, fakecuda::device_memory().allocated);
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    FAKECUDA_ENTER(cudaErrorInvalidValue);
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout)
        return cudaSuccess;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        fakecuda::die("cudaFuncSetAttribute(%d): not imitated", static_cast<int>(attribute));
    if (value < 0 || !fakecuda::allow_shared(function, static_cast<size_t>(value)))
        return set_error(cudaErrorInvalidValue);
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *function)
{
    FAKECUDA_ENTER(cudaErrorInvalidValue);
    memset(a, 0, sizeof *a);
    a->maxThreadsPerBlock = 1024;
    a->numRegs = 32;
    a->ptxVersion = a->binaryVersion = 90;
    a->maxDynamicSharedSizeBytes = static_cast<int>(fakecuda::allowed_shared(function));
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads,
                                                                   size_t shared, unsigned int)
{
    FAKECUDA_ENTER(cudaErrorInvalidValue);
    if (threads < 1 || threads > 1024 || shared > fakecuda::allowed_shared(function))
        return set_error(cudaErrorInvalidValue);
    const int by_threads = std::min(2048 / threads, 32);
    const int by_shared = static_cast<int>(fakecuda::kSharedOfMultiprocessor / (shared + 1024));
    *blocks = std::min(by_threads, by_shared);
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads, size_t shared)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, 0);
}
