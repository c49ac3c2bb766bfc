/* The collectives of comm_window.c over messages, for groups that span nodes. The bits are the same: contributions are
 * rounded to the wire type and added by the owner of each part.
 *
 *   phase 0  round the contribution into the send panel; send piece q to rank q, receive p - 1 pieces of the own part
 *   phase 1  add them; send the sum to all (reduce: to the root), receive the other parts' sums
 *   phase 2  copy what arrived into the output
 *
 * A gather begins with its own part as the sum, a broadcast with the root's pieces instead of sums: so the root sends
 * its buffer about twice, whatever the size of the group. A barrier goes in log2 p rounds (dissemination; Hensgen,
 * Finkel and Manber 1988).
 */
#include "parallel/comm_impl.h"

#include <stdlib.h>

enum { PARTS, SUMS, FINISH };

struct plait_comm_panels {
    MPI_Request *reqs; /* [2 size] */
    int *peers;        /* of reqs */
    int *done;         /* of MPI_Testsome, as are the next */
    MPI_Status *statuses;
    int num, pending;
    char *send, *recv, *result; /* NULL before a reservation */
    char *memory;
};

plait_status plait_comm_p2p_create(plait_comm *c)
{
    struct plait_comm_panels *p = calloc(1, sizeof *p);
    c->panels = p;
    if (p) {
        p->reqs = calloc(2 * (size_t)c->size, sizeof *p->reqs);
        p->peers = calloc(2 * (size_t)c->size, sizeof *p->peers);
        p->done = calloc(2 * (size_t)c->size, sizeof *p->done);
        p->statuses = calloc(2 * (size_t)c->size, sizeof *p->statuses);
    }
    if (!p || !p->reqs || !p->peers || !p->done || !p->statuses)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the requests of %d ranks", c->size);
    return PLAIT_OK;
}

plait_status plait_comm_p2p_reserve(plait_comm *c, const plait_comm_staging *s)
{
    struct plait_comm_panels *p = c->panels;
    const plait_allocator *host = plait_host_allocator();
    p->memory = host->alloc(host->self, s->total);
    if (!p->memory)
        PLAIT_FAIL(OUT_OF_MEMORY, "group %s: %zu bytes of staging memory could not be allocated", c->name, s->total);
    p->send = p->memory;
    p->recv = p->send + s->slot;
    p->result = p->recv + s->slot;
    return PLAIT_OK;
}

void plait_comm_p2p_destroy(plait_comm *c)
{
    struct plait_comm_panels *p = c->panels;
    if (!p)
        return;
    const plait_allocator *host = plait_host_allocator();
    if (p->memory)
        host->free(host->self, p->memory, c->staging.total);
    free(p->reqs);
    free(p->peers);
    free(p->done);
    free(p->statuses);
    free(p);
    c->panels = NULL;
}

/* Elements between the places of two ranks in a panel: as many as a piece may have. */
static int64_t pitch_of(const plait_comm *c, const plait_comm_op *op)
{
    return (int64_t)(c->staging.slot / plait_comm_staged_size(op)) / c->size;
}

int64_t plait_comm_p2p_rounds(const plait_comm *c, const plait_comm_op *op)
{
    if (op->kind == PLAIT_COMM_BARRIER) {
        int64_t rounds = 0;
        while (((int64_t)1 << rounds) < c->size)
            rounds++;
        return rounds;
    }
    if (op->count == 0)
        return 0;
    int64_t pitch = pitch_of(c, op), largest = plait_comm_largest_part(c, op);
    return largest <= pitch ? 1 : (largest + pitch - 2) / (pitch - 1);
}

bool plait_comm_p2p_lags(const plait_comm *c, const plait_comm_task *t, int q)
{
    (void)t;
    const struct plait_comm_panels *p = c->panels;
    for (int i = 0; i < p->num; i++)
        if (p->reqs[i] != MPI_REQUEST_NULL && p->peers[i] == q)
            return true;
    return false;
}

static plait_status post(plait_comm *c, bool send, int peer, int tag, void *buffer, int64_t n, plait_dtype dtype)
{
    struct plait_comm_panels *p = c->panels;
    int bytes = (int)(n * (int64_t)plait_dtype_size(dtype)); /* at most a slot, and that a chunk */
    if (send)
        PLAIT_TRY_MPI(MPI_Isend(buffer, bytes, MPI_BYTE, peer, tag, c->mpi, &p->reqs[p->num]));
    else
        PLAIT_TRY_MPI(MPI_Irecv(buffer, bytes, MPI_BYTE, peer, tag, c->mpi, &p->reqs[p->num]));
    p->peers[p->num++] = peer;
    p->pending++;
    return PLAIT_OK;
}

static plait_status test(plait_comm *c, bool *all)
{
    struct plait_comm_panels *p = c->panels;
    if (p->pending > 0) {
        int n = 0;
        PLAIT_TRY_MPI(MPI_Testsome(p->num, p->reqs, &n, p->done, p->statuses));
        if (n > 0) {
            p->pending -= n;
            c->moves++;
        }
    }
    *all = p->pending == 0;
    if (*all)
        p->num = 0;
    return PLAIT_OK;
}

static int64_t length_of(const plait_comm *c, const plait_comm_task *t, int q, int64_t *begin)
{
    int64_t end;
    plait_comm_piece_of(c, t, q, begin, &end);
    return end - *begin;
}

static void *place(const plait_comm *c, const plait_comm_op *op, char *panel, plait_dtype dtype, int q)
{
    return plait_at(panel, dtype, q * pitch_of(c, op));
}

/* Does rank `from` send piece `to` of its contribution to rank `to`? */
static bool sends_part(const plait_comm_op *op, int from, int to)
{
    if (from == to || op->kind == PLAIT_COMM_ALL_GATHER)
        return false;
    return op->kind != PLAIT_COMM_BROADCAST || from == op->peer;
}

/* Does rank `from` send its sum (of a gather, a broadcast: its part) to rank `to`? */
static bool sends_sum(const plait_comm_op *op, int from, int to)
{
    if (from == to || op->kind == PLAIT_COMM_REDUCE_SCATTER)
        return false;
    if (op->kind == PLAIT_COMM_REDUCE)
        return to == op->peer;
    return op->kind != PLAIT_COMM_BROADCAST || to != op->peer;
}

static plait_status post_parts(plait_comm *c, plait_comm_task *t)
{
    const plait_comm_op *op = &t->op;
    bool contributes = op->kind != PLAIT_COMM_ALL_GATHER && (op->kind != PLAIT_COMM_BROADCAST || c->rank == op->peer);
    int64_t begin, own = length_of(c, t, c->rank, &begin);
    for (int q = 0; q < c->size; q++)
        if (own > 0 && sends_part(op, q, c->rank))
            PLAIT_TRY(
                post(c, false, q, PLAIT_COMM_TAG_PARTS, place(c, op, c->panels->recv, op->wire, q), own, op->wire));
    for (int i = 0; i < c->size && contributes; i++) {
        int q = (c->rank + i) % c->size; /* not all to rank 0 first */
        int64_t n = length_of(c, t, q, &begin);
        void *piece = place(c, op, c->panels->send, op->wire, q);
        PLAIT_TRY(plait_comm_read(c, t, piece, begin, n));
        if (n > 0 && sends_part(op, c->rank, q))
            PLAIT_TRY(post(c, true, q, PLAIT_COMM_TAG_PARTS, piece, n, op->wire));
    }
    return PLAIT_OK;
}

/* The type in which sums travel: those of a reduction are rounded to the result, parts travel as they are. */
static plait_dtype sum_dtype(const plait_comm_op *op)
{
    return op->kind == PLAIT_COMM_ALL_GATHER || op->kind == PLAIT_COMM_BROADCAST ? op->wire : op->result;
}

static plait_status make_sum(plait_comm *c, plait_comm_task *t)
{
    const plait_comm_op *op = &t->op;
    struct plait_comm_panels *p = c->panels;
    int64_t begin, n = length_of(c, t, c->rank, &begin);
    int64_t within = begin - plait_comm_part_begin(c, op, c->rank);
    void *own = place(c, op, p->send, op->wire, c->rank);
    if (op->kind == PLAIT_COMM_ALL_GATHER) {
        PLAIT_TRY(plait_comm_read(c, t, p->result, within, n));
        return PLAIT_OK;
    }
    if (op->kind == PLAIT_COMM_BROADCAST) {
        const void *from = c->rank == op->peer ? own : place(c, op, p->recv, op->wire, op->peer);
        PLAIT_TRY(plait_comm_convert(p->result, op->wire, from, op->wire, n));
        return PLAIT_OK;
    }
    for (int q = 0; q < c->size; q++)
        c->sources[q] = q == c->rank ? own : place(c, op, p->recv, op->wire, q);
    return op->kind == PLAIT_COMM_REDUCE_SCATTER ? plait_comm_write_sum(c, t, within, n)
                                                 : plait_comm_reduce(op, c->sources, c->size, p->result, n, false);
}

static plait_status post_sums(plait_comm *c, plait_comm_task *t)
{
    const plait_comm_op *op = &t->op;
    plait_dtype dtype = sum_dtype(op);
    int64_t begin, own = length_of(c, t, c->rank, &begin);
    for (int q = 0; q < c->size; q++) {
        int64_t n = length_of(c, t, q, &begin);
        if (n > 0 && sends_sum(op, q, c->rank))
            PLAIT_TRY(post(c, false, q, PLAIT_COMM_TAG_RESULTS, place(c, op, c->panels->recv, dtype, q), n, dtype));
    }
    for (int i = 1; i < c->size && own > 0; i++) {
        int q = (c->rank + i) % c->size;
        if (sends_sum(op, c->rank, q))
            PLAIT_TRY(post(c, true, q, PLAIT_COMM_TAG_RESULTS, c->panels->result, own, dtype));
    }
    return PLAIT_OK;
}

static plait_status take_sums(plait_comm *c, plait_comm_task *t)
{
    const plait_comm_op *op = &t->op;
    struct plait_comm_panels *p = c->panels;
    plait_dtype dtype = sum_dtype(op);
    bool nothing = op->kind == PLAIT_COMM_REDUCE_SCATTER || (op->kind == PLAIT_COMM_REDUCE && c->rank != op->peer);
    bool all_mine = op->kind == PLAIT_COMM_BROADCAST && c->rank == op->peer;
    for (int q = 0; q < c->size && !nothing; q++) {
        int64_t begin, n = length_of(c, t, q, &begin);
        const void *from = q == c->rank ? p->result : place(c, op, p->recv, dtype, q);
        if (all_mine)
            from = place(c, op, p->send, dtype, q);
        PLAIT_TRY(plait_comm_write(c, t, begin, from, dtype, n));
    }
    return PLAIT_OK;
}

static plait_status barrier_post(plait_comm *c, plait_comm_task *t)
{
    int64_t step = (int64_t)1 << t->round;
    int to = (int)((c->rank + step) % c->size), from = (int)((c->rank - step % c->size + c->size) % c->size);
    PLAIT_TRY(post(c, false, from, PLAIT_COMM_TAG_BARRIER, NULL, 0, PLAIT_FP32));
    PLAIT_TRY(post(c, true, to, PLAIT_COMM_TAG_BARRIER, NULL, 0, PLAIT_FP32));
    return PLAIT_OK;
}

plait_status plait_comm_p2p_advance(plait_comm *c, plait_comm_task *t, bool *finished)
{
    bool barrier = t->op.kind == PLAIT_COMM_BARRIER;
    for (;;) {
        bool all = false;
        PLAIT_TRY(test(c, &all));
        if (!all)
            return PLAIT_OK;
        switch (t->phase) {
        case PARTS:
            if (barrier)
                PLAIT_TRY(barrier_post(c, t));
            else
                PLAIT_TRY(post_parts(c, t));
            t->phase = barrier ? FINISH : SUMS;
            break;
        case SUMS:
            PLAIT_TRY(make_sum(c, t));
            PLAIT_TRY(post_sums(c, t));
            t->phase = FINISH;
            break;
        case FINISH:
            if (!barrier)
                PLAIT_TRY(take_sums(c, t));
            t->phase = PARTS;
            *finished = ++t->round == t->rounds;
            break;
        }
        c->moves++;
        if (*finished)
            return PLAIT_OK;
    }
}
