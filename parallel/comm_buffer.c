/* Where an operation's buffers are read and written.
 *
 * Collectives over windows and messages work on staging memory of the host; what goes in comes from the operation's
 * buffers, and what comes out goes there. Buffers of the host are read and written where they are. Those of a device
 * (comm.backend staged) go through `bounce`, pinned memory of the process, with a stream of their own: the host waits
 * for every block. That serves ranks which share a GPU, and tests; NCCL is the fast way.
 */
#include "kernels/backend.h"
#include "parallel/comm_impl.h"

/* Elements that fit into the bounce in any type. */
enum { BLOCK = PLAIT_COMM_BOUNCE / 8 };

static int64_t block_at(int64_t i, int64_t n)
{
    return n - i < BLOCK ? n - i : BLOCK;
}

static plait_status fetch(const plait_comm *c, const void *device, size_t bytes)
{
    PLAIT_TRY(plait_download(c->copies, c->bounce, device, bytes));
    return plait_finish(c->copies);
}

static plait_status put(const plait_comm *c, void *device, size_t bytes)
{
    PLAIT_TRY(plait_upload(c->copies, device, c->bounce, bytes));
    return plait_finish(c->copies);
}

plait_status plait_comm_read(const plait_comm *c, const plait_comm_task *t, void *dst, int64_t at, int64_t n)
{
    const plait_comm_op *op = &t->op;
    const void *in = plait_at(op->in, op->dtype, at);
    if (!t->device)
        return plait_comm_convert(dst, op->wire, in, op->dtype, n);
    for (int64_t i = 0; i < n; i += BLOCK) {
        const int64_t len = block_at(i, n);
        PLAIT_TRY(fetch(c, plait_at(in, op->dtype, i), (size_t)len * plait_dtype_size(op->dtype)));
        PLAIT_TRY(plait_comm_convert(plait_at(dst, op->wire, i), op->wire, c->bounce, op->dtype, len));
    }
    return PLAIT_OK;
}

/* to[n] (result type) = from, or += where the operation accumulates. */
static plait_status store(const plait_comm_op *op, void *to, const void *from, plait_dtype dtype, int64_t n)
{
    return op->accumulate ? plait_comm_accumulate(to, from, op->result, n)
                          : plait_comm_convert(to, op->result, from, dtype, n);
}

plait_status plait_comm_write(const plait_comm *c, const plait_comm_task *t, int64_t at, const void *src,
                              plait_dtype dtype, int64_t n)
{
    const plait_comm_op *op = &t->op;
    void *out = plait_at(op->out, op->result, at);
    if (!t->device)
        return store(op, out, src, dtype, n);
    for (int64_t i = 0; i < n; i += BLOCK) {
        const int64_t len = block_at(i, n);
        const size_t bytes = (size_t)len * plait_dtype_size(op->result);
        if (op->accumulate)
            PLAIT_TRY(fetch(c, plait_at(out, op->result, i), bytes));
        PLAIT_TRY(store(op, c->bounce, plait_at(src, dtype, i), dtype, len));
        PLAIT_TRY(put(c, plait_at(out, op->result, i), bytes));
    }
    return PLAIT_OK;
}

plait_status plait_comm_write_sum(const plait_comm *c, const plait_comm_task *t, int64_t at, int64_t n)
{
    const plait_comm_op *op = &t->op;
    void *out = plait_at(op->out, op->result, at);
    if (!t->device)
        return plait_comm_reduce(op, c->sources, c->size, out, n, op->accumulate);
    for (int64_t i = 0; i < n; i += BLOCK) {
        const int64_t len = block_at(i, n);
        const size_t bytes = (size_t)len * plait_dtype_size(op->result);
        if (op->accumulate)
            PLAIT_TRY(fetch(c, plait_at(out, op->result, i), bytes));
        PLAIT_TRY(plait_comm_reduce(op, c->sources, c->size, c->bounce, len, op->accumulate));
        PLAIT_TRY(put(c, plait_at(out, op->result, i), bytes));
        for (int q = 0; q < c->size; q++)
            c->sources[q] = plait_at(c->sources[q], op->wire, len);
    }
    return PLAIT_OK;
}
