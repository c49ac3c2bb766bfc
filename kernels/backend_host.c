/* The host as a backend: one kind of memory, one stream, which is never behind. And the backend of a plan. */
#include <string.h>

#include "kernels/backend.h"
#include "kernels/ref/ref.h"

static plait_status open_host(int local_rank, int local_size)
{
    (void)local_rank;
    (void)local_size;
    return PLAIT_OK;
}

static int no_devices(void)
{
    return 0;
}

static plait_status no_stream(void **out)
{
    *out = NULL;
    return PLAIT_OK;
}

static void destroy_no_stream(void *stream)
{
    (void)stream;
}

static plait_status copy_bytes(const plait_exec *ex, void *to, const void *from, size_t bytes)
{
    (void)ex;
    if (bytes > 0)
        memcpy(to, from, bytes);
    return PLAIT_OK;
}

static plait_status finish(const plait_exec *ex)
{
    (void)ex;
    return PLAIT_OK;
}

static plait_status always_idle(const plait_exec *ex, bool *idle)
{
    (void)ex;
    *idle = true;
    return PLAIT_OK;
}

static plait_status no_memory(size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = *total_bytes = 0;
    return PLAIT_OK;
}

const plait_backend *plait_backend_cpu(void)
{
    static plait_backend cpu = {.name = "cpu",
                                .open = open_host,
                                .devices = no_devices,
                                .stream_create = no_stream,
                                .stream_destroy = destroy_no_stream,
                                .upload = copy_bytes,
                                .download = copy_bytes,
                                .finish = finish,
                                .is_idle = always_idle,
                                .memory = no_memory};
    cpu.tensors = cpu.staging = plait_host_allocator();
    return &cpu;
}

static plait_status copy_nothing(const plait_exec *ex, void *to, const void *from, size_t bytes)
{
    (void)ex;
    (void)to;
    (void)from;
    (void)bytes;
    return PLAIT_OK;
}

const plait_backend *plait_backend_plan(void)
{
    static const plait_backend plan = {.name = "plan",
                                       .open = open_host,
                                       .devices = no_devices,
                                       .stream_create = no_stream,
                                       .stream_destroy = destroy_no_stream,
                                       .upload = copy_nothing,
                                       .download = copy_nothing,
                                       .finish = finish,
                                       .is_idle = always_idle,
                                       .memory = no_memory};
    return &plan;
}

plait_status plait_host_cast(void *dst, plait_dtype to, const void *src, plait_dtype from, int64_t n)
{
    const plait_exec host = {.k = plait_kernels_ref(PLAIT_FP32), .threads = 1};
    return host.k->cast(&host, dst, to, src, from, n);
}
