/* Operations on a GPU's buffers by NCCL.
 *
 * A group has a communicator, which is cut out of the world's, and a stream. A start makes that stream wait for what
 * the exec's stream has been given, gives it the operations and notes an event; a wait makes the other stream wait for
 * the event. The host waits for nothing, but that NCCL has taken the operations: communicators do not block, and what
 * would (a peer that never comes, an error on the way) is seen by polling, within the time-out.
 *
 * NCCL sums in the type that travels, in an order of its own: replicas get the same bits, other topologies do not. It
 * neither converts nor adds to what is there: those operations go through device memory that was reserved for them.
 */
#include <nccl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/backend.h"
#include "kernels/cuda/stream.h"
#include "parallel/comm_impl.h"

struct plait_comm_nccl {
    ncclComm_t comm;
    plait_exec ex;       /* the group's stream, and the table that converts */
    cudaEvent_t started; /* what the exec of a start has been given */
    char *room;          /* for conversions */
    size_t room_bytes;
    bool aborted;
    struct plait_comm_nccl *next; /* all of the process */
};

static struct plait_comm_nccl *all;

/* ---- errors ---- */

/* Everybody else waits for operations of this rank: they are told, and end too. */
static void abort_all(void)
{
    for (struct plait_comm_nccl *n = all; n; n = n->next) {
        if (n->comm)
            (void)ncclCommAbort(n->comm);
        n->comm = NULL;
        n->aborted = true;
    }
}

static plait_status fail(const plait_comm *c, const char *what, ncclResult_t result)
{
    char last[256] = "";
    const char *text = c->nccl && c->nccl->comm ? ncclGetLastError(c->nccl->comm) : NULL;
    if (text)
        (void)snprintf(last, sizeof last, "%s", text);
    abort_all();
    PLAIT_FAIL(PEER, "group %s (%d ranks): %s: NCCL: %s%s%s", c->name, c->size, what, ncclGetErrorString(result),
               last[0] ? ": " : "", last);
}

/* Until NCCL has done on the host what it was asked: it may need the peers for that. */
static plait_status settle(plait_comm *c, ncclComm_t comm, const char *what)
{
    const double since = plait_comm_now();
    for (;;) {
        ncclResult_t state = ncclSuccess;
        const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
        if (asked != ncclSuccess)
            return fail(c, what, asked);
        if (state == ncclSuccess)
            return PLAIT_OK;
        if (state != ncclInProgress)
            return fail(c, what, state);
        PLAIT_TRY(plait_comm_progress());
        if (plait_comm_now() - since > plait_comm_timeout()) {
            abort_all();
            PLAIT_FAIL(PEER, "group %s (%d ranks): %s: NCCL has stood still for %.3g s", c->name, c->size, what,
                       plait_comm_timeout());
        }
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
}

static plait_status accepted(plait_comm *c, ncclComm_t comm, const char *what, ncclResult_t result)
{
    if (result != ncclSuccess && result != ncclInProgress)
        return fail(c, what, result);
    return comm ? settle(c, comm, what) : PLAIT_OK;
}

/* Polled also by the waits in which ranks agree on what went wrong: a failure is said once. */
static plait_status nccl_check(plait_comm *c)
{
    ncclResult_t state = ncclSuccess;
    if (!c->nccl->comm)
        return PLAIT_OK; /* it is being made, or was aborted */
    const ncclResult_t asked = ncclCommGetAsyncError(c->nccl->comm, &state);
    if (asked != ncclSuccess)
        return fail(c, "an operation", asked);
    return state == ncclSuccess || state == ncclInProgress ? PLAIT_OK : fail(c, "an operation", state);
}

/* ---- operations ---- */

static ncclDataType_t type_of(plait_dtype dtype)
{
    static const ncclDataType_t types[PLAIT_DTYPES] = {ncclFloat32, ncclBfloat16, ncclFloat16,
                                                       ncclFloat64, ncclInt32,    ncclInt64};
    return types[dtype];
}

static bool parts_are_equal(const plait_comm *c, const plait_comm_op *op)
{
    for (int q = 0; q < c->size; q++)
        if (plait_comm_part_begin(c, op, q + 1) - plait_comm_part_begin(c, op, q) != op->count / c->size)
            return false;
    return op->count % c->size == 0;
}

/* NCCL's scatters and gathers have equal parts; others are reduced to, or broadcast by, their owners. Inside a group.
 */
static ncclResult_t each_part(const plait_comm *c, const plait_comm_op *op, const void *in, void *out)
{
    const struct plait_comm_nccl *n = c->nccl;
    const bool scatter = op->kind == PLAIT_COMM_REDUCE_SCATTER;
    const cudaStream_t stream = plait_cuda_stream_of(&n->ex);
    ncclResult_t result = ncclSuccess;
    for (int q = 0; q < c->size && result == ncclSuccess; q++) {
        const int64_t begin = plait_comm_part_begin(c, op, q), len = plait_comm_part_begin(c, op, q + 1) - begin;
        if (len == 0)
            continue;
        result = scatter ? ncclReduce(plait_at(in, op->wire, begin), q == c->rank ? out : NULL, (size_t)len,
                                      type_of(op->wire), ncclSum, q, n->comm, stream)
                         : ncclBroadcast(q == c->rank ? in : NULL, plait_at(out, op->wire, begin), (size_t)len,
                                         type_of(op->wire), q, n->comm, stream);
    }
    return result;
}

/* One operation as it travels. Inside a group. */
static ncclResult_t give(const plait_comm *c, const plait_comm_op *op, const void *in, void *out)
{
    const struct plait_comm_nccl *n = c->nccl;
    const cudaStream_t stream = plait_cuda_stream_of(&n->ex);
    const ncclDataType_t type = type_of(op->wire);
    const ncclRedOp_t how = op->reduction == PLAIT_MAX ? ncclMax : ncclSum;
    const size_t count = (size_t)op->count, part = count / (size_t)c->size;
    switch (op->kind) {
    case PLAIT_COMM_ALL_REDUCE:
        return ncclAllReduce(in, out, count, type, how, n->comm, stream);
    case PLAIT_COMM_REDUCE_SCATTER:
        return parts_are_equal(c, op) ? ncclReduceScatter(in, out, part, type, how, n->comm, stream)
                                      : each_part(c, op, in, out);
    case PLAIT_COMM_ALL_GATHER:
        return parts_are_equal(c, op) ? ncclAllGather(in, out, part, type, n->comm, stream) : each_part(c, op, in, out);
    case PLAIT_COMM_REDUCE:
        return ncclReduce(in, out, count, type, how, op->peer, n->comm, stream);
    case PLAIT_COMM_BROADCAST:
        return ncclBroadcast(in, out, count, type, op->peer, n->comm, stream);
    case PLAIT_COMM_SEND:
        return ncclSend(in, count, type, op->peer, n->comm, stream);
    case PLAIT_COMM_RECV:
        return ncclRecv(out, count, type, op->peer, n->comm, stream);
    default:
        return ncclInvalidUsage; /* a barrier is the host's */
    }
}

/* Where an operation's data are as they travel: its own buffers, or parts of the room. */
typedef struct travel {
    const void *in;
    void *out, *result; /* result: of an accumulation whose sum is rounded first */
    int64_t num_in, num_out;
} travel;

static plait_status prepare(plait_comm *c, const plait_comm_op *op, travel *t)
{
    const struct plait_comm_nccl *n = c->nccl;
    const plait_exec *ex = &n->ex;
    char *room = n->room;
    plait_comm_own_counts(c, op, &t->num_in, &t->num_out);
    if (plait_comm_converted_bytes(c, op) > n->room_bytes)
        PLAIT_FAIL(INTERNAL, "group %s: %s needs %zu bytes for conversions, and %zu were reserved", c->name,
                   plait_comm_kind_name(op->kind), plait_comm_converted_bytes(c, op), n->room_bytes);
    t->in = op->in;
    t->out = op->out;
    if (op->dtype != op->wire) {
        t->in = room;
        if (op->in)
            PLAIT_TRY(ex->k->cast(ex, room, op->wire, op->in, op->dtype, t->num_in));
        room += plait_comm_converted_part(t->num_in, op->wire);
    }
    if (op->result != op->wire || op->accumulate) {
        t->out = room;
        room += plait_comm_converted_part(t->num_out, op->wire);
        t->result = op->result == op->wire ? t->out : room;
    }
    return PLAIT_OK;
}

static plait_status conclude(const plait_comm *c, const plait_comm_op *op, const travel *t)
{
    const plait_exec *ex = &c->nccl->ex;
    const bool nothing = op->kind == PLAIT_COMM_REDUCE && c->rank != op->peer;
    if (t->out == op->out || nothing)
        return PLAIT_OK;
    if (!op->accumulate)
        return ex->k->cast(ex, op->out, op->result, t->out, op->wire, t->num_out);
    if (t->result != t->out)
        PLAIT_TRY(ex->k->cast(ex, t->result, op->result, t->out, op->wire, t->num_out));
    return ex->k->add(ex, op->out, t->result, op->result, t->num_out);
}

/* The operations of one start, as one group of NCCL's. Several are messages, which nothing is done to. */
static plait_status give_all(plait_comm *c, const plait_comm_op *ops, const travel *t, int n)
{
    ncclResult_t result = ncclGroupStart();
    for (int i = 0; i < n && result == ncclSuccess; i++)
        if (ops[i].count > 0)
            result = give(c, &ops[i], t[i].in, t[i].out);
    const ncclResult_t ended = ncclGroupEnd();
    return accepted(c, c->nccl->comm, plait_comm_kind_name(ops[0].kind), result == ncclSuccess ? ended : result);
}

static plait_status nccl_start(plait_comm *c, const plait_comm_op *ops, int n, const plait_exec *after,
                               plait_request *req)
{
    const cudaStream_t stream = plait_cuda_stream_of(&c->nccl->ex);
    travel t[n];
    if (c->nccl->aborted)
        PLAIT_FAIL(PEER, "group %s (%d ranks): NCCL was aborted after an error", c->name, c->size);
    PLAIT_TRY(nccl_check(c));
    PLAIT_TRY_CUDA(cudaEventRecord(c->nccl->started, plait_cuda_stream_of(after)));
    PLAIT_TRY_CUDA(cudaStreamWaitEvent(stream, c->nccl->started, 0));
    for (int i = 0; i < n; i++)
        PLAIT_TRY(prepare(c, &ops[i], &t[i]));
    PLAIT_TRY(give_all(c, ops, t, n));
    for (int i = 0; i < n; i++)
        PLAIT_TRY(conclude(c, &ops[i], &t[i]));
    if (!req->event)
        PLAIT_TRY_CUDA(cudaEventCreateWithFlags((cudaEvent_t *)&req->event, cudaEventDisableTiming));
    PLAIT_TRY_CUDA(cudaEventRecord(req->event, stream));
    return PLAIT_OK;
}

static plait_status nccl_wait(const plait_request *req, const plait_exec *before)
{
    PLAIT_TRY_CUDA(cudaStreamWaitEvent(plait_cuda_stream_of(before), req->event, 0));
    return PLAIT_OK;
}

/* ---- creation ---- */

static plait_status nccl_reserve(plait_comm *c, size_t bytes, plait_ledger *ledger)
{
    struct plait_comm_nccl *n = c->nccl;
    if (bytes == 0)
        return PLAIT_OK;
    const plait_allocator *device = n->ex.backend->tensors;
    n->room = device->alloc(device->self, bytes);
    if (!n->room)
        PLAIT_FAIL(OUT_OF_MEMORY, "group %s: %zu bytes of device memory for conversions could not be allocated",
                   c->name, bytes);
    n->room_bytes = bytes;
    ledger->planned[PLAIT_TIER_DEVICE][PLAIT_MEM_COMM] += bytes;
    ledger->high_water[PLAIT_TIER_DEVICE][PLAIT_MEM_COMM] += bytes;
    return PLAIT_OK;
}

static void nccl_destroy(plait_comm *c)
{
    struct plait_comm_nccl *n = c->nccl;
    if (!n)
        return;
    for (struct plait_comm_nccl **at = &all; *at; at = &(*at)->next)
        if (*at == n) {
            *at = n->next;
            break;
        }
    if (n->ex.backend)
        n->ex.backend->stream_destroy(n->ex.stream);
    if (n->comm)
        (void)ncclCommAbort(n->comm); /* at once: nothing is under way */
    if (n->started)
        (void)cudaEventDestroy(n->started);
    if (n->room)
        n->ex.backend->tensors->free(n->ex.backend->tensors->self, n->room, n->room_bytes);
    free(n);
    c->nccl = NULL;
    c->carrier = NULL;
}

static const struct plait_comm_carrier nccl = {nccl_start, nccl_wait, nccl_check, nccl_reserve, nccl_destroy};

static plait_status make_record(plait_comm *c)
{
    struct plait_comm_nccl *n = calloc(1, sizeof *n);
    if (!n)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the record of group %s", c->name);
    n->next = all;
    all = n;
    c->nccl = n;
    c->carrier = &nccl;
    n->ex = (plait_exec){.k = c->copies->k, .backend = c->copies->backend, .threads = 1};
    PLAIT_TRY(n->ex.backend->stream_create(&n->ex.stream));
    PLAIT_TRY_CUDA(cudaEventCreateWithFlags(&n->started, cudaEventDisableTiming));
    return PLAIT_OK;
}

static ncclConfig_t not_blocking(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return config;
}

plait_status plait_comm_nccl_attach_world(plait_comm *world)
{
    ncclUniqueId id;
    ncclConfig_t config = not_blocking();
    PLAIT_TRY(plait_comm_agree(world, make_record(world)));
    memset(&id, 0, sizeof id);
    plait_status st = PLAIT_OK;
    if (world->rank == 0)
        st = accepted(world, NULL, "making a name for the communicator", ncclGetUniqueId(&id));
    PLAIT_TRY(plait_comm_agree(world, st));
    PLAIT_TRY(plait_comm_broadcast_bytes(world, &id, sizeof id, 0));
    struct plait_comm_nccl *n = world->nccl;
    const ncclResult_t result = ncclCommInitRankConfig(&n->comm, world->size, id, world->rank, &config);
    return accepted(world, n->comm, "making the communicator", result);
}

plait_status plait_comm_nccl_attach(plait_comm *c, plait_comm *world)
{
    ncclConfig_t config = not_blocking();
    ncclComm_t mine = NULL;
    const bool member = c->size > 1;
    PLAIT_TRY(plait_comm_agree(world, member ? make_record(c) : PLAIT_OK));
    PLAIT_TRY(accepted(
        world, world->nccl->comm, "cutting out the communicator of a group",
        ncclCommSplit(world->nccl->comm, member ? c->world_ranks[0] : NCCL_SPLIT_NOCOLOR, c->rank, &mine, &config)));
    if (!member)
        return PLAIT_OK;
    c->nccl->comm = mine;
    return settle(c, mine, "making the communicator");
}

int plait_comm_nccl_version(void)
{
    int version = 0;
    (void)ncclGetVersion(&version);
    return version;
}

/* ---- first contact ---- */

/* Ranks connect when they first meet in an operation, and the host waits for that. Here all do it in one order; in a
 * step one could wait in one group for a rank that waits in another. */
plait_status plait_comm_nccl_connect(plait_comm *c, bool messages, void *few_bytes)
{
    const struct plait_comm_nccl *n = c->nccl;
    const cudaStream_t stream = plait_cuda_stream_of(&n->ex);
    char *bytes = few_bytes;
    PLAIT_TRY_CUDA(cudaMemsetAsync(bytes, 0, PLAIT_MEM_ALIGN, stream));
    PLAIT_TRY(accepted(c, n->comm, "meeting the other ranks",
                       ncclAllReduce(bytes, bytes, 1, ncclFloat32, ncclSum, n->comm, stream)));
    if (messages) {
        const int next = (c->rank + 1) % c->size, before = (c->rank + c->size - 1) % c->size;
        ncclResult_t result = ncclGroupStart();
        if (result == ncclSuccess)
            result = ncclSend(bytes, 1, ncclFloat32, next, n->comm, stream);
        if (result == ncclSuccess)
            result = ncclRecv(bytes + 4, 1, ncclFloat32, before, n->comm, stream);
        const ncclResult_t ended = ncclGroupEnd();
        PLAIT_TRY(accepted(c, n->comm, "meeting the neighbours", result == ncclSuccess ? ended : result));
    }
    return plait_comm_finish(c, &n->ex);
}
