// cudart: allocation, copies, fills.
#include "tests/fakecuda/memory.h"
#include "tests/fakecuda/race.h"
#include "tests/fakecuda/runtime.h"
#include "tests/fakecuda/streams_impl.h"

#include <cstring>
#include <vector>

namespace fakecuda
{

void touch(const void *bytes, size_t size, Access access, const char *what)
{
    if (size == 0)
        return;
    for (const Arena *arena : {&device_memory(), &pinned_memory()}) {
        if (!arena->contains(bytes))
            continue;
        const Allocation *a = arena->find(bytes);
        const char *from = static_cast<const char *>(bytes);
        if (!a || !a->live || from < a->begin || from + size > a->begin + a->size)
            die("%s of %zu bytes is not inside of an allocation: %s", what, size, describe(bytes).c_str());
    }
    race::access(bytes, size, access == Access::write ? race::Kind::write : race::Kind::read, 0);
}

namespace
{

const char *name_of(cudaMemcpyKind kind)
{
    switch (kind) {
    case cudaMemcpyHostToHost:
        return "cudaMemcpyHostToHost";
    case cudaMemcpyHostToDevice:
        return "cudaMemcpyHostToDevice";
    case cudaMemcpyDeviceToHost:
        return "cudaMemcpyDeviceToHost";
    case cudaMemcpyDeviceToDevice:
        return "cudaMemcpyDeviceToDevice";
    case cudaMemcpyDefault:
        return "cudaMemcpyDefault";
    }
    return "an unknown direction";
}

void check_direction(const void *to, const void *from, cudaMemcpyKind kind, const char *what)
{
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind == cudaMemcpyDefault)
        return;
    if (is_device(to) != to_device || is_device(from) != from_device)
        die("%s: %s, but it goes to %s and from %s", what, name_of(kind), describe(to).c_str(), describe(from).c_str());
}

void copy_rows(char *to, size_t to_pitch, const char *from, size_t from_pitch, size_t width, size_t height,
               const char *what)
{
    for (size_t r = 0; r < height; r++) {
        touch(from + r * from_pitch, width, Access::read, what);
        touch(to + r * to_pitch, width, Access::write, what);
        memmove(to + r * to_pitch, from + r * from_pitch, width);
    }
}

bool is_pageable(const void *p)
{
    return !is_device(p) && !is_pinned(p);
}

struct Copy {
    char *to;
    size_t to_pitch;
    const char *from;
    size_t from_pitch, width, height;
    const char *what;
};

TicketRef submit_copy(Stream *s, const Copy &c)
{
    return submit(s, c.what, [c] {
        copy_rows(c.to, c.to_pitch, c.from, c.from_pitch, c.width, c.height, c.what);
        return true;
    });
}

// From pageable memory: the stream is waited for, then the bytes are taken, and land later.
void copy_from_pageable(Stream *s, const Copy &c)
{
    wait_for_stream(s, c.what);
    auto taken = std::make_shared<std::vector<char>>(c.width * c.height);
    copy_rows(taken->data(), c.width, c.from, c.from_pitch, c.width, c.height, c.what);
    submit(s, c.what, [c, taken] {
        copy_rows(c.to, c.to_pitch, taken->data(), c.width, c.width, c.height, c.what);
        return true;
    });
}

// Says whether the host may go on, by the rules of "API synchronization behavior" in the manual of cudart.
void copy(cudaStream_t stream, const Copy &c, cudaMemcpyKind kind, bool async)
{
    Stream *s = stream_of(stream);
    check_direction(c.to, c.from, kind, c.what);
    if (c.width * c.height == 0)
        return;
    if (is_device(c.to) && is_pageable(c.from)) {
        copy_from_pageable(s, c);
        return;
    }
    const TicketRef ticket = submit_copy(s, c);
    const bool on_device = is_device(c.to) && is_device(c.from);
    if (is_pageable(c.to) || (!async && !on_device))
        wait_for(ticket, c.what);
}

Copy row(void *to, const void *from, size_t bytes, const char *what)
{
    return {static_cast<char *>(to), bytes, static_cast<const char *>(from), bytes, bytes, 1, what};
}

void fill(cudaStream_t stream, void *to, size_t pitch, int value, size_t width, size_t height, const char *what)
{
    char *at = static_cast<char *>(to);
    if (width * height == 0)
        return;
    if (is_pageable(to))
        die("%s: %s", what, describe(to).c_str());
    submit(stream_of(stream), what, [=] {
        for (size_t r = 0; r < height; r++) {
            touch(at + r * pitch, width, Access::write, what);
            memset(at + r * pitch, value, width);
        }
        return true;
    });
}

} // namespace
} // namespace fakecuda

using namespace fakecuda;

// ---- allocation ----

cudaError_t cudaMalloc(void **p, size_t size)
{
    FAKECUDA_ENTER(cudaErrorMemoryAllocation);
    *p = nullptr;
    if (size == 0)
        return cudaSuccess;
    *p = device_memory().allocate(size);
    return *p ? cudaSuccess : set_error(cudaErrorMemoryAllocation);
}

// Waits for the device, as the real one does.
cudaError_t cudaFree(void *p)
{
    FAKECUDA_ENTER(cudaErrorUnknown);
    if (!p)
        return cudaSuccess;
    wait_for_all("cudaFree");
    device_memory().release(p);
    return cudaSuccess;
}

cudaError_t cudaMallocAsync(void **p, size_t size, cudaStream_t)
{
    FAKECUDA_ENTER(cudaErrorMemoryAllocation);
    return cudaMalloc(p, size);
}

cudaError_t cudaFreeAsync(void *p, cudaStream_t stream)
{
    FAKECUDA_ENTER(cudaErrorUnknown);
    submit(stream_of(stream), "cudaFreeAsync", [p] {
        device_memory().release(p);
        return true;
    });
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **p, size_t size)
{
    FAKECUDA_ENTER(cudaErrorMemoryAllocation);
    *p = size ? pinned_memory().allocate(size) : nullptr;
    return *p || !size ? cudaSuccess : set_error(cudaErrorMemoryAllocation);
}

cudaError_t cudaHostAlloc(void **p, size_t size, unsigned int)
{
    FAKECUDA_ENTER(cudaErrorMemoryAllocation);
    return cudaMallocHost(p, size);
}

cudaError_t cudaFreeHost(void *p)
{
    FAKECUDA_ENTER(cudaErrorUnknown);
    if (!p)
        return cudaSuccess;
    wait_for_all("cudaFreeHost");
    pinned_memory().release(p);
    return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned int)
{
    FAKECUDA_ENTER(cudaErrorUnknown);
    if (!is_pinned(host))
        return set_error(cudaErrorInvalidValue);
    *device = host;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
    FAKECUDA_ENTER(cudaErrorUnknown);
    memset(a, 0, sizeof *a);
    a->device = 0;
    a->type = is_device(p) ? cudaMemoryTypeDevice : is_pinned(p) ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
    a->devicePointer = a->type == cudaMemoryTypeUnregistered ? nullptr : const_cast<void *>(p);
    a->hostPointer = a->type == cudaMemoryTypeDevice ? nullptr : const_cast<void *>(p);
    return cudaSuccess;
}

// ---- copies ----

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    FAKECUDA_ENTER(cudaErrorUnknown);
    copy(stream, row(to, from, size, "cudaMemcpyAsync"), kind, true);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind)
{
    FAKECUDA_ENTER(cudaErrorUnknown);
    copy(nullptr, row(to, from, size, "cudaMemcpy"), kind, false);
    return cudaSuccess;
}

static cudaError_t copy_2d(cudaStream_t stream, const Copy &c, enum cudaMemcpyKind kind, bool async)
{
    if (c.width > c.to_pitch || c.width > c.from_pitch)
        return set_error(cudaErrorInvalidValue);
    copy(stream, c, kind, async);
    return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    FAKECUDA_ENTER(cudaErrorUnknown);
    return copy_2d(stream,
                   {static_cast<char *>(to), to_pitch, static_cast<const char *>(from), from_pitch, width, height,
                    "cudaMemcpy2DAsync"},
                   kind, true);
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                         enum cudaMemcpyKind kind)
{
    FAKECUDA_ENTER(cudaErrorUnknown);
    return copy_2d(
        nullptr,
        {static_cast<char *>(to), to_pitch, static_cast<const char *>(from), from_pitch, width, height, "cudaMemcpy2D"},
        kind, false);
}

// ---- fills ----

cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t stream)
{
    FAKECUDA_ENTER(cudaErrorUnknown);
    fill(stream, to, size, value, size, 1, "cudaMemsetAsync");
    return cudaSuccess;
}

cudaError_t cudaMemset(void *to, int value, size_t size)
{
    FAKECUDA_ENTER(cudaErrorUnknown);
    fill(nullptr, to, size, value, size, 1, "cudaMemset");
    return cudaSuccess;
}

cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream)
{
    FAKECUDA_ENTER(cudaErrorUnknown);
    fill(stream, to, pitch, value, width, height, "cudaMemset2DAsync");
    return cudaSuccess;
}
