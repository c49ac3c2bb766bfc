/* kernels/backend.h: where tensors lie, and how they get there and back.
 *
 * A table of operations (kernels/kernels.h) computes on tensors of one backend. On `cpu` they are in the host's memory
 * and everything happens at once; on `cuda` they are in the memory of a GPU, and what an exec's stream is given happens
 * in its order, later. Code above kernels/ is the same for both: it follows no pointer to a tensor, moves bytes with
 * upload and download, and asks for finish before the host looks at them.
 */
#ifndef PLAIT_KERNELS_BACKEND_H
#define PLAIT_KERNELS_BACKEND_H

#include "kernels/kernels.h"

PLAIT_BEGIN_DECLS

typedef struct plait_backend {
    const char *name; /* "cpu", "cuda" */
    bool device;      /* tensors are not in the host's memory */

    /* Memory of tensors, and host memory that upload and download reach fastest (pinned): both from one call of the
     * driver or the system each, NULL when there is no more. Of `cuda`: of the device that `open` has chosen. */
    const plait_allocator *tensors, *staging;

    /* Once, before anything else: takes a device for local rank `local_rank` of `local_size` on this node; ranks share
     * devices in turn (local_rank modulo devices). PLAIT_UNSUPPORTED: there is none, or it is too old. */
    plait_status (*open)(int local_rank, int local_size);
    /* Devices of this node; 0 when it has none or no driver. Needs no open. */
    int (*devices)(void);

    /* A stream for plait_exec.stream, with what the library of matrix products needs; NULL on `cpu`. */
    plait_status (*stream_create)(void **out);
    /* After everything it was given has happened. NULL is fine. */
    void (*stream_destroy)(void *stream);

    /* In the order of the stream. `host` belongs to the copy until finish. */
    plait_status (*upload)(const plait_exec *ex, void *tensor, const void *host, size_t bytes);
    plait_status (*download)(const plait_exec *ex, void *host, const void *tensor, size_t bytes);
    /* Waits until everything that the stream was given has happened; tells what went wrong since the last time. */
    plait_status (*finish)(const plait_exec *ex);
    /* Whether everything has happened, without waiting. */
    plait_status (*is_idle)(const plait_exec *ex, bool *idle);

    /* Bytes of the device that are free, and all of them; 0 and 0 on `cpu`. */
    plait_status (*memory)(size_t *free_bytes, size_t *total_bytes);
} plait_backend;

const plait_backend *plait_backend_cpu(void);

/* That of the table that computes nothing: its tensors have no memory, so nothing is copied. */
const plait_backend *plait_backend_plan(void);

static inline const plait_backend *plait_backend_of(const plait_exec *ex)
{
    return ex->backend ? ex->backend : plait_backend_cpu();
}

/* In the order of the stream; a tensor that is its own host memory needs no copy. */
PLAIT_MUST_USE static inline plait_status plait_upload(const plait_exec *ex, void *tensor, const void *host,
                                                       size_t bytes)
{
    return tensor == host ? PLAIT_OK : plait_backend_of(ex)->upload(ex, tensor, host, bytes);
}
PLAIT_MUST_USE static inline plait_status plait_download(const plait_exec *ex, void *host, const void *tensor,
                                                         size_t bytes)
{
    return tensor == host ? PLAIT_OK : plait_backend_of(ex)->download(ex, host, tensor, bytes);
}
PLAIT_MUST_USE static inline plait_status plait_finish(const plait_exec *ex)
{
    return plait_backend_of(ex)->finish(ex);
}

/* dst[n] = src[n] in host memory, rounded as every table's cast rounds. */
PLAIT_MUST_USE plait_status plait_host_cast(void *dst, plait_dtype to, const void *src, plait_dtype from, int64_t n);

PLAIT_END_DECLS
#endif
