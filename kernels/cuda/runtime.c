/* Device, memory, streams and errors: the backend. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/cuda_impl.h"

/* mma.sync of bf16, cp.async and 164 KB of shared memory a multiprocessor. */
enum { LEAST_MAJOR = 8 };

static plait_cuda_device device;

/* ---- errors ---- */

plait_status plait_cuda_fail(const char *file, int line, const char *call, cudaError_t error)
{
    (void)cudaGetLastError(); /* said once */
    const plait_status st = error == cudaErrorMemoryAllocation ? PLAIT_OUT_OF_MEMORY : PLAIT_INTERNAL;
    return plait_error_set(st, file, line, "%s: %s (%s)", call, cudaGetErrorString(error), cudaGetErrorName(error));
}

plait_status plait_cublas_fail(const char *file, int line, const char *call, cublasStatus_t error)
{
    const plait_status st = error == CUBLAS_STATUS_ALLOC_FAILED ? PLAIT_OUT_OF_MEMORY : PLAIT_INTERNAL;
    return plait_error_set(st, file, line, "%s: %s", call, cublasLtGetStatusString(error));
}

/* ---- the device ---- */

static int devices(void)
{
    int n = 0;
    if (cudaGetDeviceCount(&n) == cudaSuccess)
        return n;
    (void)cudaGetLastError(); /* no driver is no device */
    return 0;
}

static plait_status open_device(int local_rank, int local_size)
{
    struct cudaDeviceProp p;
    const int n = devices();
    (void)local_size;
    if (n == 0)
        PLAIT_FAIL(UNSUPPORTED, "device.backend cuda: this node has no NVIDIA GPU that its driver shows");
    const int mine = local_rank % n;
    PLAIT_TRY_CUDA(cudaSetDevice(mine));
    PLAIT_TRY_CUDA(cudaGetDeviceProperties(&p, mine));
    if (p.major < LEAST_MAJOR)
        PLAIT_FAIL(UNSUPPORTED,
                   "device.backend cuda: GPU %d is a %s of compute capability %d.%d, needed is %d.0 (A100) or later",
                   mine, p.name, p.major, p.minor, LEAST_MAJOR);
    device.sms = p.multiProcessorCount;
    device.shared_bytes = (int)p.sharedMemPerBlockOptin;
    return PLAIT_OK;
}

const plait_cuda_device *plait_cuda_device_of(void)
{
    return &device;
}

void plait_cuda_versions(char *text, size_t size)
{
    int runtime = 0, driver = 0;
    const size_t lt = cublasLtGetVersion();
    (void)cudaRuntimeGetVersion(&runtime);
    (void)cudaDriverGetVersion(&driver); /* 0: there is none */
    (void)snprintf(text, size, "CUDA %d.%d (driver %d.%d), cuBLASLt %zu.%zu.%zu", runtime / 1000, runtime % 1000 / 10,
                   driver / 1000, driver % 1000 / 10, lt / 10000, lt / 100 % 100, lt % 100);
}

/* ---- memory ---- */

/* The allocator's interface says only that there is no memory; what else went wrong shows at the next call. */
static void *allocate_device(void *self, size_t bytes)
{
    void *p = NULL;
    (void)self;
    if (cudaMalloc(&p, bytes) == cudaSuccess)
        return p;
    (void)cudaGetLastError();
    return NULL;
}

static void free_device(void *self, void *p, size_t bytes)
{
    (void)self;
    (void)bytes;
    (void)cudaFree(p);
}

static void *allocate_pinned(void *self, size_t bytes)
{
    void *p = NULL;
    (void)self;
    if (cudaMallocHost(&p, bytes) == cudaSuccess)
        return p;
    (void)cudaGetLastError();
    return NULL;
}

static void free_pinned(void *self, void *p, size_t bytes)
{
    (void)self;
    (void)bytes;
    (void)cudaFreeHost(p);
}

static plait_status memory(size_t *free_bytes, size_t *total_bytes)
{
    PLAIT_TRY_CUDA(cudaMemGetInfo(free_bytes, total_bytes));
    return PLAIT_OK;
}

/* ---- streams ---- */

static void stream_destroy(void *stream)
{
    plait_cuda_stream *s = stream;
    if (!s)
        return;
    if (s->stream) {
        (void)cudaStreamSynchronize(s->stream);
        (void)cudaStreamDestroy(s->stream);
    }
    plait_cuda_gemms_destroy(s->gemms);
    if (s->lt)
        (void)cublasLtDestroy(s->lt);
    free(s);
}

static plait_status fill_stream(plait_cuda_stream *s)
{
    PLAIT_TRY_CUDA(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking));
    PLAIT_TRY_CUBLAS(cublasLtCreate(&s->lt));
    return plait_cuda_gemms_create(&s->gemms);
}

static plait_status stream_create(void **out)
{
    plait_cuda_stream *s = calloc(1, sizeof *s);
    if (!s)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the record of a stream");
    const plait_status st = fill_stream(s);
    if (st != PLAIT_OK) {
        stream_destroy(s);
        return st;
    }
    *out = s;
    return PLAIT_OK;
}

static plait_status upload(const plait_exec *ex, void *tensor, const void *host, size_t bytes)
{
    if (bytes > 0)
        PLAIT_TRY_CUDA(cudaMemcpyAsync(tensor, host, bytes, cudaMemcpyHostToDevice, plait_cuda_stream_of(ex)));
    return PLAIT_OK;
}

static plait_status download(const plait_exec *ex, void *host, const void *tensor, size_t bytes)
{
    if (bytes > 0)
        PLAIT_TRY_CUDA(cudaMemcpyAsync(host, tensor, bytes, cudaMemcpyDeviceToHost, plait_cuda_stream_of(ex)));
    return PLAIT_OK;
}

static plait_status finish(const plait_exec *ex)
{
    PLAIT_TRY_CUDA(cudaStreamSynchronize(plait_cuda_stream_of(ex)));
    return PLAIT_OK;
}

static plait_status is_idle(const plait_exec *ex, bool *idle)
{
    const cudaError_t e = cudaStreamQuery(plait_cuda_stream_of(ex));
    *idle = e != cudaErrorNotReady;
    if (e != cudaSuccess && e != cudaErrorNotReady)
        return plait_cuda_fail(__FILE__, __LINE__, "cudaStreamQuery", e);
    return PLAIT_OK;
}

const plait_backend *plait_backend_cuda(void)
{
    static const plait_allocator tensors = {allocate_device, free_device, NULL},
                                 staging = {allocate_pinned, free_pinned, NULL};
    static const plait_backend cuda = {.name = "cuda",
                                       .device = true,
                                       .tensors = &tensors,
                                       .staging = &staging,
                                       .open = open_device,
                                       .devices = devices,
                                       .stream_create = stream_create,
                                       .stream_destroy = stream_destroy,
                                       .upload = upload,
                                       .download = download,
                                       .finish = finish,
                                       .is_idle = is_idle,
                                       .memory = memory};
    return &cuda;
}
