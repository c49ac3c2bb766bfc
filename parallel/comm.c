/* The front of communication: checks, counts, queues, waits. */
#include "kernels/backend.h"
#include "parallel/comm_impl.h"

#include <assert.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_TASKS    2048
#define MAX_REQUESTS 2048

static struct {
    plait_comm_task tasks[MAX_TASKS];
    plait_request requests[MAX_REQUESTS];
    plait_comm_task *free_tasks;
    plait_request *free_requests;
    int num_free_tasks, open_tasks;
    bool ready;
} pool;

static plait_comm *all_comms; /* over MPI, of this process */
static double timeout_seconds = 600.0;

const char *plait_comm_kind_name(plait_comm_kind kind)
{
    static const char *const names[PLAIT_COMM_KINDS] = {"all_reduce", "reduce_scatter", "all_gather", "reduce",
                                                        "broadcast",  "send",           "recv",       "barrier"};
    return (unsigned)kind < PLAIT_COMM_KINDS ? names[kind] : "unknown operation";
}

void plait_comm_set_timeout(double seconds)
{
    timeout_seconds = seconds;
}

double plait_comm_timeout(void)
{
    return timeout_seconds;
}

int plait_comm_rank(const plait_comm *c)
{
    return c->rank;
}

int plait_comm_size(const plait_comm *c)
{
    return c->size;
}

const char *plait_comm_name(const plait_comm *c)
{
    return c->name;
}

plait_traffic plait_comm_traffic(const plait_comm *c)
{
    return c->traffic;
}

void plait_comm_traffic_reset(plait_comm *c)
{
    c->traffic = (plait_traffic){0};
}

/* ---- records and pools ---- */

static void fill_pool(void)
{
    if (pool.ready)
        return;
    for (int i = MAX_TASKS - 1; i >= 0; i--) {
        pool.tasks[i].next = pool.free_tasks;
        pool.free_tasks = &pool.tasks[i];
    }
    for (int i = MAX_REQUESTS - 1; i >= 0; i--) {
        pool.requests[i].next_free = pool.free_requests;
        pool.free_requests = &pool.requests[i];
    }
    pool.num_free_tasks = MAX_TASKS;
    pool.ready = true;
}

plait_status plait_comm_alloc(const char *name, plait_comm_path path, int rank, int size, const int *world_ranks,
                              plait_comm **out)
{
    fill_pool();
    plait_comm *c = calloc(1, sizeof *c);
    if (!c)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the record of group %s", name);
    snprintf(c->name, sizeof c->name, "%s", name);
    c->path = path;
    c->rank = rank;
    c->size = size;
    c->mpi = MPI_COMM_NULL;
    c->chunk_bytes = PLAIT_COMM_CHUNK_BYTES;
    c->world_ranks = calloc((size_t)size, sizeof *c->world_ranks);
    c->held_back = calloc(2 * (size_t)size, sizeof *c->held_back);
    c->sources = calloc((size_t)size, sizeof *c->sources);
    if (!c->world_ranks || !c->held_back || !c->sources) {
        plait_comm_free(c);
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the record of group %s with %d ranks", name, size);
    }
    for (int q = 0; q < size; q++)
        c->world_ranks[q] = world_ranks ? world_ranks[q] : q;
    if (path == PLAIT_COMM_PATH_WINDOW || path == PLAIT_COMM_PATH_P2P) {
        c->next = all_comms;
        all_comms = c;
    }
    *out = c;
    return PLAIT_OK;
}

void plait_comm_free(plait_comm *c)
{
    if (!c)
        return;
    assert(!c->collectives.first && !c->messages.first);
    for (plait_comm **at = &all_comms; *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            break;
        }
    free(c->world_ranks);
    free(c->held_back);
    free(c->sources);
    free(c);
}

static void append(plait_comm_queue *q, plait_comm_task *t)
{
    t->next = NULL;
    if (q->last)
        q->last->next = t;
    else
        q->first = t;
    q->last = t;
}

/* Takes finished task `t`, which comes after `before` (NULL: it is the first), out of its queue and gives it back. */
static void finish(plait_comm_queue *q, plait_comm_task *before, plait_comm_task *t)
{
    if (before)
        before->next = t->next;
    else
        q->first = t->next;
    if (q->last == t)
        q->last = before;
    t->request->open--;
    t->request->comm->moves++;
    t->next = pool.free_tasks;
    pool.free_tasks = t;
    pool.num_free_tasks++;
    pool.open_tasks--;
}

/* ---- extents ---- */

static bool is_message(plait_comm_kind kind)
{
    return kind == PLAIT_COMM_SEND || kind == PLAIT_COMM_RECV;
}

static bool is_reduction(plait_comm_kind kind)
{
    return kind == PLAIT_COMM_ALL_REDUCE || kind == PLAIT_COMM_REDUCE_SCATTER || kind == PLAIT_COMM_REDUCE;
}

static bool has_parts(plait_comm_kind kind)
{
    return kind == PLAIT_COMM_REDUCE_SCATTER || kind == PLAIT_COMM_ALL_GATHER;
}

int64_t plait_comm_part_begin(const plait_comm *c, const plait_comm_op *op, int q)
{
    if (op->offsets)
        return op->offsets[q];
    /* floor(q count / size) without the product */
    return op->count / c->size * q + op->count % c->size * q / c->size;
}

int64_t plait_comm_largest_part(const plait_comm *c, const plait_comm_op *op)
{
    int64_t largest = 0;
    for (int q = 0; q < c->size; q++) {
        int64_t len = plait_comm_part_begin(c, op, q + 1) - plait_comm_part_begin(c, op, q);
        largest = len > largest ? len : largest;
    }
    return largest;
}

void plait_comm_piece_of(const plait_comm *c, const plait_comm_task *t, int q, int64_t *begin, int64_t *end)
{
    int64_t first = plait_comm_part_begin(c, &t->op, q), len = plait_comm_part_begin(c, &t->op, q + 1) - first;
    int64_t whole = len / t->rounds, rest = len % t->rounds;
    *begin = first + whole * t->round + rest * t->round / t->rounds;
    *end = first + whole * (t->round + 1) + rest * (t->round + 1) / t->rounds;
}

size_t plait_comm_staged_size(const plait_comm_op *op)
{
    size_t wire = plait_dtype_size(op->wire), result = plait_dtype_size(op->result);
    bool travels_back = op->kind == PLAIT_COMM_ALL_REDUCE || op->kind == PLAIT_COMM_REDUCE;
    return travels_back && result > wire ? result : wire;
}

/* ---- reservation ---- */

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* A slot holds one round of a rank's contribution; it has room for two elements of every part at least. A result
 * region holds one rank's part of a round: parts differ by one element, and their pieces by another. Both exist twice,
 * for two rounds in turn; in front lies one line of flags. */
plait_comm_staging plait_comm_staging_make(int size, size_t largest, size_t chunk_bytes)
{
    plait_comm_staging s = {0, 0, 0};
    if (size == 1 || largest == 0)
        return s;
    size_t smallest = 16 * (size_t)size;
    s.slot = largest < chunk_bytes ? largest : chunk_bytes;
    s.slot = round_up(s.slot > smallest ? s.slot : smallest, PLAIT_MEM_ALIGN);
    s.result = round_up(s.slot / (size_t)size + 32, PLAIT_MEM_ALIGN);
    s.total = round_up(PLAIT_MEM_ALIGN + 2 * (s.slot + s.result), 4096);
    return s;
}

size_t plait_comm_staging_bytes(const plait_comm *c, size_t largest, size_t chunk_bytes)
{
    return plait_comm_staging_make(c->size, largest, chunk_bytes).total;
}

bool plait_comm_is_shared(const plait_comm *c)
{
    return c->path == PLAIT_COMM_PATH_WINDOW;
}

/* Rounds follow from the reservation: ranks with different ones would talk past each other. */
static plait_status check_same(plait_comm *c, size_t largest, size_t chunk_bytes)
{
    int64_t in[4] = {(int64_t)largest, (int64_t)chunk_bytes, -(int64_t)largest, -(int64_t)chunk_bytes}, all[4];
    MPI_Request req;
    PLAIT_TRY_MPI(MPI_Iallreduce(in, all, 4, MPI_INT64_T, MPI_MAX, c->mpi, &req));
    PLAIT_TRY(plait_comm_wait_mpi(c, &req, "reservation", 0));
    if (all[0] != -all[2] || all[1] != -all[3])
        PLAIT_FAIL(INTERNAL, "group %s: ranks reserve for %lld to %lld bytes in chunks of %lld to %lld", c->name,
                   (long long)-all[2], (long long)all[0], (long long)-all[3], (long long)all[1]);
    return PLAIT_OK;
}

plait_status plait_comm_reserve(plait_comm *c, size_t largest, size_t chunk_bytes, plait_tier tier,
                                plait_ledger *ledger)
{
    /* MPI counts bytes in an int. */
    if (chunk_bytes < PLAIT_MEM_ALIGN || chunk_bytes > (size_t)1 << 30)
        PLAIT_FAIL(USAGE, "comm.chunk_bytes %zu is not between %d and %d", chunk_bytes, PLAIT_MEM_ALIGN, 1 << 30);
    if (c->reserved)
        PLAIT_FAIL(INTERNAL, "group %s: staging memory is reserved once, and %zu bytes were", c->name,
                   c->staging.total);
    if (c->mpi != MPI_COMM_NULL)
        PLAIT_TRY(check_same(c, largest, chunk_bytes));
    c->chunk_bytes = chunk_bytes;
    plait_comm_staging staging = plait_comm_staging_make(c->size, largest, chunk_bytes);
    if (staging.total > 0) {
        if (c->path == PLAIT_COMM_PATH_WINDOW)
            PLAIT_TRY(plait_comm_window_create(c, &staging));
        else if (c->path == PLAIT_COMM_PATH_P2P)
            PLAIT_TRY(plait_comm_p2p_reserve(c, &staging));
    }
    c->staging = staging;
    c->reserved = true;
    ledger->planned[tier][PLAIT_MEM_COMM] += staging.total;
    ledger->high_water[tier][PLAIT_MEM_COMM] += staging.total;
    return PLAIT_OK;
}

plait_status plait_comm_reserve_device(plait_comm *c, size_t bytes, plait_ledger *ledger)
{
    return c->carrier ? c->carrier->reserve(c, bytes, ledger) : PLAIT_OK;
}

/* ---- start ---- */

static bool is_integer(plait_dtype dtype)
{
    return dtype == PLAIT_INT32 || dtype == PLAIT_INT64;
}

static plait_status check_types(const plait_comm *c, const plait_comm_op *op)
{
    const char *what = plait_comm_kind_name(op->kind);
    bool one_type = op->dtype == op->wire && op->wire == op->result;
    if ((unsigned)op->dtype >= PLAIT_DTYPES || (unsigned)op->wire >= PLAIT_DTYPES ||
        (unsigned)op->result >= PLAIT_DTYPES)
        PLAIT_FAIL(INTERNAL, "group %s: %s with types %d, %d, %d", c->name, what, (int)op->dtype, (int)op->wire,
                   (int)op->result);
    bool integers = is_integer(op->dtype) || is_integer(op->wire) || is_integer(op->result);
    if (!one_type && (integers || is_message(op->kind)))
        PLAIT_FAIL(UNSUPPORTED, "group %s: %s of %s as %s into %s; %s one type throughout", c->name, what,
                   plait_dtype_name(op->dtype), plait_dtype_name(op->wire), plait_dtype_name(op->result),
                   integers ? "integers are" : "a message has");
    if (is_reduction(op->kind) && op->dtype == PLAIT_INT32 && (op->reduction != PLAIT_MAX || op->accumulate))
        PLAIT_FAIL(UNSUPPORTED, "group %s: %s of int32 takes the maximum only", c->name, what);
    if (is_reduction(op->kind) && op->dtype == PLAIT_INT64 && op->reduction != PLAIT_SUM)
        PLAIT_FAIL(UNSUPPORTED, "group %s: %s of int64 takes the sum only", c->name, what);
    return PLAIT_OK;
}

static plait_status check_parts(const plait_comm *c, const plait_comm_op *op)
{
    const char *what = plait_comm_kind_name(op->kind);
    if (!op->offsets) {
        if (op->count % c->size != 0)
            PLAIT_FAIL(INTERNAL, "group %s: %s of %lld elements has no offsets and %d ranks do not divide it", c->name,
                       what, (long long)op->count, c->size);
        return PLAIT_OK;
    }
    if (op->offsets[0] != 0 || op->offsets[c->size] != op->count)
        PLAIT_FAIL(INTERNAL, "group %s: %s of %lld elements has parts from %lld to %lld", c->name, what,
                   (long long)op->count, (long long)op->offsets[0], (long long)op->offsets[c->size]);
    for (int q = 0; q < c->size; q++)
        if (op->offsets[q] > op->offsets[q + 1])
            PLAIT_FAIL(INTERNAL, "group %s: %s: part %d begins at %lld and ends at %lld", c->name, what, q,
                       (long long)op->offsets[q], (long long)op->offsets[q + 1]);
    return PLAIT_OK;
}

static plait_status check_buffers(const plait_comm *c, const plait_comm_op *op)
{
    bool at_root = c->rank == op->peer;
    int64_t own = op->count;
    if (has_parts(op->kind))
        own = plait_comm_part_begin(c, op, c->rank + 1) - plait_comm_part_begin(c, op, c->rank);
    int64_t in = op->kind == PLAIT_COMM_ALL_GATHER ? own : op->count;
    int64_t out = op->kind == PLAIT_COMM_REDUCE_SCATTER ? own : op->count;
    if (op->kind == PLAIT_COMM_RECV || (op->kind == PLAIT_COMM_BROADCAST && !at_root))
        in = 0;
    if (op->kind == PLAIT_COMM_SEND || (op->kind == PLAIT_COMM_REDUCE && !at_root))
        out = 0;
    if ((in > 0 && !op->in) || (out > 0 && !op->out))
        PLAIT_FAIL(INTERNAL, "group %s: %s of %lld elements without %s buffer", c->name, plait_comm_kind_name(op->kind),
                   (long long)op->count, in > 0 && !op->in ? "an input" : "an output");
    return PLAIT_OK;
}

static plait_status check(const plait_comm *c, const plait_comm_op *op)
{
    const char *what = plait_comm_kind_name(op->kind);
    if ((unsigned)op->kind >= PLAIT_COMM_KINDS || op->count < 0)
        PLAIT_FAIL(INTERNAL, "group %s: %s of %lld elements", c->name, what, (long long)op->count);
    if (op->kind == PLAIT_COMM_BARRIER)
        return PLAIT_OK;
    bool names_rank = is_message(op->kind) || op->kind == PLAIT_COMM_REDUCE || op->kind == PLAIT_COMM_BROADCAST;
    if (names_rank && (op->peer < 0 || op->peer >= c->size))
        PLAIT_FAIL(INTERNAL, "group %s: %s with rank %d of %d", c->name, what, op->peer, c->size);
    if (is_message(op->kind) && op->peer == c->rank)
        PLAIT_FAIL(INTERNAL, "group %s: %s of rank %d with itself", c->name, what, op->peer);
    if (op->reduction == PLAIT_MAX && !is_reduction(op->kind))
        PLAIT_FAIL(INTERNAL, "group %s: %s takes no maximum", c->name, what);
    if (op->accumulate && op->kind != PLAIT_COMM_ALL_REDUCE && op->kind != PLAIT_COMM_REDUCE_SCATTER)
        PLAIT_FAIL(INTERNAL, "group %s: %s adds to nothing", c->name, what);
    if (op->offsets && !has_parts(op->kind))
        PLAIT_FAIL(INTERNAL, "group %s: %s has no parts", c->name, what);
    PLAIT_TRY(check_types(c, op));
    if (has_parts(op->kind))
        PLAIT_TRY(check_parts(c, op));
    PLAIT_TRY(check_buffers(c, op));
    if (c->path == PLAIT_COMM_PATH_PLAN)
        return PLAIT_OK;
    PLAIT_TRY(plait_comm_math_ready(op));
    if (c->size > 1 && !c->carrier && !is_message(op->kind) && op->count > 0 && c->staging.total == 0)
        PLAIT_FAIL(INTERNAL, "group %s: %s of %lld elements before staging memory was reserved", c->name, what,
                   (long long)op->count);
    return PLAIT_OK;
}

static int64_t bytes_as(const plait_comm_op *op, plait_dtype dtype)
{
    return op->kind == PLAIT_COMM_BARRIER ? 0 : op->count * (int64_t)plait_dtype_size(dtype);
}

static int64_t op_bytes(const plait_comm_op *op)
{
    return bytes_as(op, op->dtype);
}

void plait_comm_own_counts(const plait_comm *c, const plait_comm_op *op, int64_t *in, int64_t *out)
{
    const int64_t own = has_parts(op->kind)
                            ? plait_comm_part_begin(c, op, c->rank + 1) - plait_comm_part_begin(c, op, c->rank)
                            : op->count;
    *in = op->kind == PLAIT_COMM_ALL_GATHER ? own : op->count;
    *out = op->kind == PLAIT_COMM_REDUCE_SCATTER ? own : op->count;
}

size_t plait_comm_converted_part(int64_t n, plait_dtype dtype)
{
    return round_up((size_t)n * plait_dtype_size(dtype), PLAIT_MEM_ALIGN);
}

size_t plait_comm_converted_bytes(const plait_comm *c, const plait_comm_op *op)
{
    int64_t in, out;
    plait_comm_own_counts(c, op, &in, &out);
    return (op->dtype != op->wire ? plait_comm_converted_part(in, op->wire) : 0) +
           (op->result != op->wire || op->accumulate ? plait_comm_converted_part(out, op->wire) : 0) +
           (op->result != op->wire && op->accumulate ? plait_comm_converted_part(out, op->result) : 0);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void count_traffic(plait_comm *c, const plait_comm_op *op, bool of_tensors)
{
    if (c->size == 1)
        return;
    c->traffic.calls[op->kind]++;
    c->traffic.bytes[op->kind] += op_bytes(op);
    c->traffic.wire[op->kind] += bytes_as(op, op->wire);
    if (is_message(op->kind) || op->kind == PLAIT_COMM_BARRIER)
        return;
    size_t staged = (size_t)op->count * plait_comm_staged_size(op);
    c->traffic.largest = larger(c->traffic.largest, staged);
    if (of_tensors)
        c->traffic.converted = larger(c->traffic.converted, plait_comm_converted_bytes(c, op));
    else
        c->traffic.largest_host = larger(c->traffic.largest_host, staged);
}

static void add_task(plait_comm *c, plait_request *req, const plait_comm_op *op, bool device)
{
    plait_comm_task *t = pool.free_tasks;
    pool.free_tasks = t->next;
    pool.num_free_tasks--;
    pool.open_tasks++;
    *t = (plait_comm_task){.op = *op, .request = req, .device = device};
    for (int i = 0; i < PLAIT_COMM_PIECES; i++)
        t->pieces[i] = MPI_REQUEST_NULL;
    req->open++;
    req->bytes += op_bytes(op);
    if (is_message(op->kind)) {
        append(&c->messages, t);
        return;
    }
    t->rounds = c->window ? plait_comm_window_rounds(c, op) : plait_comm_p2p_rounds(c, op);
    append(&c->collectives, t);
}

/* One is there: the caller has looked. */
static plait_request *take_request(plait_comm *c, plait_comm_kind kind)
{
    plait_request *req = pool.free_requests;
    pool.free_requests = req->next_free;
    *req = (plait_request){.comm = c, .kind = kind, .event = req->event};
    return req;
}

static plait_status start_planned(plait_comm *c, const plait_comm_op *ops, int n, plait_request **out)
{
    bool heard;
    if (!pool.free_requests)
        PLAIT_FAIL(INTERNAL, "group %s: %d operations more, with %d requests open", c->name, n, MAX_REQUESTS);
    const int number = plait_comm_plan_start(c, ops, n, &heard);
    if (!heard)
        return PLAIT_OK;
    *out = take_request(c, ops[0].kind);
    (*out)->planned = number;
    return PLAIT_OK;
}

plait_status plait_comm_start(plait_comm *c, const plait_comm_op *ops, int n, const plait_exec *after,
                              plait_request **out)
{
    const bool device = after && plait_backend_of(after)->device;
    *out = NULL;
    for (int i = 0; i < n; i++)
        PLAIT_TRY(check(c, &ops[i]));
    bool local = c->path == PLAIT_COMM_PATH_SELF || c->path == PLAIT_COMM_PATH_PLAN;
    if (!local && (n > pool.num_free_tasks || !pool.free_requests))
        PLAIT_FAIL(INTERNAL, "group %s: %d operations more, with %d of %d open", c->name, n,
                   MAX_TASKS - pool.num_free_tasks, MAX_TASKS);
    for (int i = 0; i < n; i++)
        count_traffic(c, &ops[i], after != NULL);
    for (int i = 0; i < n && c->path == PLAIT_COMM_PATH_SELF; i++)
        PLAIT_TRY(device ? plait_comm_self_run_device(&ops[i], after) : plait_comm_self_run(&ops[i]));
    if (c->path == PLAIT_COMM_PATH_PLAN)
        return start_planned(c, ops, n, out);
    if (local || n == 0)
        return PLAIT_OK;

    /* Staged: the host copies as soon as it gets round to it, so what it copies has to be there. */
    if (device && !c->carrier)
        PLAIT_TRY(plait_comm_finish(c, after));
    plait_request *req = take_request(c, ops[0].kind);
    *out = req;
    if (device && c->carrier)
        return c->carrier->start(c, ops, n, after, req);
    for (int i = 0; i < n; i++)
        add_task(c, req, &ops[i], device);
    return plait_comm_progress();
}

/* ---- progress ---- */

static plait_status advance_collectives(plait_comm *c)
{
    for (plait_comm_task *t; (t = c->collectives.first) != NULL;) {
        bool finished = t->rounds == 0;
        if (!finished && c->window)
            PLAIT_TRY(plait_comm_window_advance(c, t, &finished));
        else if (!finished)
            PLAIT_TRY(plait_comm_p2p_advance(c, t, &finished));
        if (!finished)
            break;
        finish(&c->collectives, NULL, t);
    }
    return PLAIT_OK;
}

static plait_status advance_messages(plait_comm *c)
{
    if (!c->messages.first)
        return PLAIT_OK;
    PLAIT_TRY(plait_comm_messages_advance(c));
    plait_comm_task *before = NULL;
    for (plait_comm_task *t = c->messages.first, *next; t; t = next) {
        next = t->next;
        if (t->under_way == 0 && t->posted == op_bytes(&t->op))
            finish(&c->messages, before, t);
        else
            before = t;
    }
    return PLAIT_OK;
}

plait_status plait_comm_progress(void)
{
    for (plait_comm *c = all_comms; c; c = c->next)
        if (c->carrier)
            PLAIT_TRY(c->carrier->check(c));
    if (pool.open_tasks == 0)
        return PLAIT_OK;
    for (plait_comm *c = all_comms; c; c = c->next) {
        PLAIT_TRY(advance_collectives(c));
        PLAIT_TRY(advance_messages(c));
    }
    return PLAIT_OK;
}

/* ---- waits ---- */

double plait_comm_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void plait_comm_rank_text(const plait_comm *c, int rank, char *text, size_t size)
{
    int world_rank = c->world_ranks[rank];
    if (!c->has_topo) {
        snprintf(text, size, "rank %d", world_rank);
        return;
    }
    plait_topology at = plait_topology_at(&c->topo, world_rank);
    snprintf(text, size, "[d%d p%d t%d] (rank %d)", at.d, at.p, at.t, world_rank);
}

static bool lags(const plait_comm *c, const plait_comm_task *t, int q)
{
    if (is_message(t->op.kind))
        return t->op.peer == q;
    return c->window ? plait_comm_window_lags(c, t, q) : plait_comm_p2p_lags(c, t, q);
}

/* The ranks that an unfinished task of the group waits for: in one queue the head stands for all behind it. */
static void late_ranks(const plait_comm *c, const plait_request *req, char *text, size_t size)
{
    text[0] = '\0';
    for (int q = 0; q < c->size; q++) {
        bool late = q != c->rank && c->collectives.first && lags(c, c->collectives.first, q) && !is_message(req->kind);
        for (const plait_comm_task *t = c->messages.first; t && !late; t = t->next)
            late = t->request == req && lags(c, t, q);
        if (!late)
            continue;
        char one[64];
        plait_comm_rank_text(c, q, one, sizeof one);
        size_t used = strlen(text);
        if (used + strlen(one) + 8 > size) {
            snprintf(text + used, size - used, ", ...");
            return;
        }
        snprintf(text + used, size - used, "%s%s", used ? ", " : "", one);
    }
}

/* Gives the core away after `waited` seconds in which nothing moved: by a yield while the peer may come any moment,
 * later by a nap of half the time waited so far. With more ranks than cores a rank that only yields counts as busy, so
 * that the kernel leaves two that compute on one core beside it (measured with eight ranks on two cores: a third
 * slower). */
static void give_way(double waited)
{
    const double yields = 100e-6, shortest = 50e-6, longest = 500e-6;
    if (waited < yields) {
        sched_yield();
        return;
    }
    double nap = fmin(fmax(waited / 2, shortest), longest);
    nanosleep(&(struct timespec){.tv_nsec = (long)(nap * 1e9)}, NULL);
}

/* Called while nothing moves. Past the time-out of standing still it returns true. */
static bool stalled(const plait_comm *c, uint64_t *moves, double *since)
{
    double t = plait_comm_now();
    if (*since == 0.0 || *moves != c->moves) {
        *since = t;
        *moves = c->moves;
    }
    give_way(t - *since);
    return t - *since > timeout_seconds;
}

plait_status plait_request_wait(plait_request **req, const plait_exec *before)
{
    plait_request *r = *req;
    if (!r)
        return PLAIT_OK;
    plait_comm *c = r->comm;
    uint64_t moves = 0;
    for (double since = 0.0; r->open > 0;) {
        PLAIT_TRY(plait_comm_progress());
        if (r->open > 0 && stalled(c, &moves, &since)) {
            char me[64], late[512];
            plait_comm_rank_text(c, c->rank, me, sizeof me);
            late_ranks(c, r, late, sizeof late);
            PLAIT_FAIL(PEER, "group %s (%d ranks): %s of %lld bytes on %s has stood still for %.3g s; it waits for %s",
                       c->name, c->size, plait_comm_kind_name(r->kind), (long long)r->bytes, me, timeout_seconds,
                       late[0] ? late : "the ranks that come after this one");
        }
    }
    if (c->path == PLAIT_COMM_PATH_PLAN)
        plait_comm_plan_wait(r->planned);
    if (c->carrier && before && plait_backend_of(before)->device)
        PLAIT_TRY(c->carrier->wait(r, before));
    r->next_free = pool.free_requests;
    pool.free_requests = r;
    *req = NULL;
    return PLAIT_OK;
}

plait_status plait_comm_finish(plait_comm *c, const plait_exec *ex)
{
    double since = plait_comm_now();
    for (bool idle = false;;) {
        PLAIT_TRY(plait_backend_of(ex)->is_idle(ex, &idle));
        if (idle)
            return plait_finish(ex);
        PLAIT_TRY(plait_comm_progress());
        if (plait_comm_now() - since > timeout_seconds)
            PLAIT_FAIL(PEER, "group %s (%d ranks): the device has not come to the end of its work for %.3g s", c->name,
                       c->size, timeout_seconds);
        give_way(0);
    }
}

plait_status plait_comm_run(plait_comm *c, const plait_comm_op *op, const plait_exec *ex)
{
    plait_request *req = NULL;
    PLAIT_TRY(plait_comm_start(c, op, 1, ex, &req));
    PLAIT_TRY(plait_request_wait(&req, ex));
    return PLAIT_OK;
}

plait_status plait_comm_wait_mpi(plait_comm *c, MPI_Request *req, const char *what, size_t bytes)
{
    uint64_t moves = 0;
    double since = 0.0;
    for (;;) {
        int done = 0;
        PLAIT_TRY_MPI(MPI_Test(req, &done, MPI_STATUS_IGNORE));
        if (done)
            return PLAIT_OK;
        PLAIT_TRY(plait_comm_progress());
        if (stalled(c, &moves, &since)) {
            char me[64];
            plait_comm_rank_text(c, c->rank, me, sizeof me);
            PLAIT_FAIL(PEER, "group %s (%d ranks): %s of %zu bytes on %s has stood still for %.3g s", c->name, c->size,
                       what, bytes, me, timeout_seconds);
        }
    }
}
