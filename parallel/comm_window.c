/* Collectives of a group inside one node, through a shared window.
 *
 * Every rank has a line of flags and two slots with a result region each; round k uses slot k % 2:
 *
 *   FILL  wait until all are done with round k - 2; put the own contribution into the own slot; flag `in` = k + 1
 *   SUM   wait for all `in`; add one's own part over all slots; flag `out` = k + 1
 *   TAKE  wait for all `out` (of a gather: `in`); copy what one wants; flag `done` = k + 1
 *
 * So nobody waits for the slowest reader before the next round, and all ranks work in every phase. A gather and a
 * broadcast have no SUM, a reduce-scatter takes nothing. Flags only grow; k counts the rounds of the group's life.
 */
#include "parallel/comm_impl.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

enum { FILL, SUM, TAKE };

/* What a rank is doing in a round: peers compare it with their own operation. */
typedef struct claim {
    int64_t kind, count;
} claim;

typedef struct flags {
    _Alignas(64) _Atomic uint64_t in;
    _Atomic uint64_t out, done;
    claim claims[2]; /* of the rounds that use slot 0 and 1; published by `in` */
} flags;
_Static_assert(sizeof(flags) == PLAIT_MEM_ALIGN, "one line a rank");

struct plait_comm_window {
    MPI_Win win;
    uint64_t round; /* rounds of all operations so far */
    char **base;    /* [size]: each rank's share */
};

static flags *flags_of(const plait_comm *c, int q)
{
    return (flags *)(void *)c->window->base[q];
}

static char *slot_of(const plait_comm *c, int q)
{
    return c->window->base[q] + PLAIT_MEM_ALIGN + (c->window->round % 2) * c->staging.slot;
}

static char *result_of(const plait_comm *c, int q)
{
    return c->window->base[q] + PLAIT_MEM_ALIGN + 2 * c->staging.slot + (c->window->round % 2) * c->staging.result;
}

/* The kernel gives shared memory page by page and ends the process when there is none: so look before touching, and
 * at all ranks of a node together. */
static plait_status check_room(const plait_world *w, const int64_t *shared)
{
    struct statvfs fs;
    size_t wanted = 0;
    for (int q = 0; q < w->size; q++)
        wanted += w->node_of[q] == w->node_of[w->rank] ? (size_t)shared[q] : 0;
    if (statvfs("/dev/shm", &fs) != 0)
        return PLAIT_OK; /* elsewhere: MPI says whether it got the memory */
    size_t room = (size_t)fs.f_bavail * fs.f_frsize;
    if (wanted > room)
        PLAIT_FAIL(OUT_OF_MEMORY,
                   "the %d ranks of a node exchange through %zu bytes of shared memory, /dev/shm has %zu; a smaller "
                   "comm.chunk_bytes takes less",
                   w->local_size, wanted, room);
    return PLAIT_OK;
}

plait_status plait_world_check_room(const plait_world *w, size_t bytes)
{
    if (w->size == 1)
        return PLAIT_OK;
    int64_t mine = (int64_t)bytes, shared[w->size];
    MPI_Request all_here;
    PLAIT_TRY_MPI(MPI_Iallgather(&mine, 1, MPI_INT64_T, shared, 1, MPI_INT64_T, w->comm->mpi, &all_here));
    PLAIT_TRY(plait_comm_wait_mpi(w->comm, &all_here, "exchange of sizes", sizeof mine));
    return plait_comm_agree(w->comm, check_room(w, shared));
}

plait_status plait_comm_window_create(plait_comm *c, const plait_comm_staging *s)
{
    struct plait_comm_window *w = calloc(1, sizeof *w);
    char **base = calloc((size_t)c->size, sizeof *base);
    plait_status st = PLAIT_OK;
    if (!w || !base)
        st = plait_error_set(PLAIT_OUT_OF_MEMORY, __FILE__, __LINE__,
                             "no memory for the record of a window of %d ranks", c->size);
    st = plait_comm_agree(c, st); /* the allocation waits for all of them, without end */
    if (st != PLAIT_OK) {
        free(w);
        free(base);
        return st;
    }
    void *mine = NULL;
    int e = MPI_Win_allocate_shared((MPI_Aint)s->total, 1, MPI_INFO_NULL, c->mpi, &mine, &w->win);
    for (int q = 0; q < c->size && e == MPI_SUCCESS; q++) {
        MPI_Aint size;
        int unit;
        e = MPI_Win_shared_query(w->win, q, &size, &unit, &base[q]);
    }
    if (e != MPI_SUCCESS) {
        free(base);
        free(w);
        return plait_comm_mpi_fail(__FILE__, __LINE__, "MPI_Win_allocate_shared", e);
    }
    /* Touched here, by its owner: the pages are near it. */
    memset(mine, 0, s->total);
    w->base = base;
    c->window = w;
    MPI_Request all_clean;
    PLAIT_TRY_MPI(MPI_Ibarrier(c->mpi, &all_clean));
    PLAIT_TRY(plait_comm_wait_mpi(c, &all_clean, "making a shared window", s->total));
    return PLAIT_OK;
}

void plait_comm_window_destroy(plait_comm *c)
{
    if (!c->window)
        return;
    MPI_Win_free(&c->window->win);
    free(c->window->base);
    free(c->window);
    c->window = NULL;
}

int64_t plait_comm_window_rounds(const plait_comm *c, const plait_comm_op *op)
{
    if (op->kind == PLAIT_COMM_BARRIER)
        return 1;
    int64_t room = (int64_t)(c->staging.slot / plait_comm_staged_size(op));
    /* A slot holds the pieces of all parts, in a gather of the own one. Each may be one longer than its share. */
    bool gather = op->kind == PLAIT_COMM_ALL_GATHER;
    int64_t length = gather ? plait_comm_largest_part(c, op) : op->count;
    int64_t share = room - (gather ? 1 : c->size);
    return length <= room ? length > 0 : (length + share - 1) / share;
}

/* Ranks that started operations in different orders would otherwise exchange nonsense. Called when all are in. */
static plait_status check_claims(const plait_comm *c, const plait_comm_op *op)
{
    for (int q = 0; q < c->size; q++) {
        const claim *of = &flags_of(c, q)->claims[c->window->round % 2];
        if (of->kind != (int64_t)op->kind || of->count != op->count) {
            char other[64];
            plait_comm_rank_text(c, q, other, sizeof other);
            PLAIT_FAIL(INTERNAL, "group %s: this rank started %s of %lld elements, %s started %s of %lld", c->name,
                       plait_comm_kind_name(op->kind), (long long)op->count, other,
                       plait_comm_kind_name((plait_comm_kind)of->kind), (long long)of->count);
        }
    }
    return PLAIT_OK;
}

/* The pieces of all parts, one behind the other. */
static plait_status pack(const plait_comm *c, const plait_comm_task *t, char *slot)
{
    const plait_comm_op *op = &t->op;
    if (t->rounds == 1) {
        PLAIT_TRY(plait_comm_read(c, t, slot, 0, op->count));
        return PLAIT_OK;
    }
    for (int q = 0; q < c->size; q++) {
        int64_t begin, end;
        plait_comm_piece_of(c, t, q, &begin, &end);
        PLAIT_TRY(plait_comm_read(c, t, slot, begin, end - begin));
        slot += (end - begin) * (int64_t)plait_dtype_size(op->wire);
    }
    return PLAIT_OK;
}

static plait_status unpack(const plait_comm *c, const plait_comm_task *t, const char *slot)
{
    const plait_comm_op *op = &t->op;
    for (int q = 0; q < c->size; q++) {
        int64_t begin, end;
        plait_comm_piece_of(c, t, q, &begin, &end);
        PLAIT_TRY(plait_comm_write(c, t, begin, slot, op->wire, end - begin));
        slot += (end - begin) * (int64_t)plait_dtype_size(op->wire);
    }
    return PLAIT_OK;
}

static plait_status fill(const plait_comm *c, const plait_comm_task *t)
{
    const plait_comm_op *op = &t->op;
    char *slot = slot_of(c, c->rank);
    flags_of(c, c->rank)->claims[c->window->round % 2] = (claim){op->kind, op->count};
    if (op->kind == PLAIT_COMM_BARRIER || (op->kind == PLAIT_COMM_BROADCAST && c->rank != op->peer))
        return PLAIT_OK;
    if (op->kind != PLAIT_COMM_ALL_GATHER) {
        PLAIT_TRY(pack(c, t, slot));
        return PLAIT_OK;
    }
    int64_t begin, end, own = plait_comm_part_begin(c, op, c->rank);
    plait_comm_piece_of(c, t, c->rank, &begin, &end);
    return plait_comm_read(c, t, slot, begin - own, end - begin);
}

/* Adds the own part's piece over all slots, into the output or where the others fetch it. */
static plait_status sum(const plait_comm *c, const plait_comm_task *t)
{
    const plait_comm_op *op = &t->op;
    bool scatter = op->kind == PLAIT_COMM_REDUCE_SCATTER;
    int64_t begin, end, before = 0;
    for (int q = 0; q < c->rank; q++) {
        plait_comm_piece_of(c, t, q, &begin, &end);
        before += end - begin;
    }
    plait_comm_piece_of(c, t, c->rank, &begin, &end);
    for (int q = 0; q < c->size; q++)
        c->sources[q] = plait_at(slot_of(c, q), op->wire, before);
    return scatter ? plait_comm_write_sum(c, t, begin - plait_comm_part_begin(c, op, c->rank), end - begin)
                   : plait_comm_reduce(op, c->sources, c->size, result_of(c, c->rank), end - begin, false);
}

static plait_status take_parts(const plait_comm *c, const plait_comm_task *t)
{
    const plait_comm_op *op = &t->op;
    bool gather = op->kind == PLAIT_COMM_ALL_GATHER;
    for (int q = 0; q < c->size; q++) {
        int64_t begin, end;
        plait_comm_piece_of(c, t, q, &begin, &end);
        const char *from = gather ? slot_of(c, q) : result_of(c, q);
        PLAIT_TRY(plait_comm_write(c, t, begin, from, gather ? op->wire : op->result, end - begin));
    }
    return PLAIT_OK;
}

static bool sums(plait_comm_kind kind)
{
    return kind == PLAIT_COMM_ALL_REDUCE || kind == PLAIT_COMM_REDUCE_SCATTER || kind == PLAIT_COMM_REDUCE;
}

/* Which flag rank q has to have set before this rank may leave the task's phase: its offset and value, or false. */
static bool awaits(const plait_comm *c, const plait_comm_task *t, int q, size_t *flag, uint64_t *value)
{
    const plait_comm_op *op = &t->op;
    uint64_t k = c->window->round;
    if (t->phase == FILL) {
        *flag = offsetof(flags, done);
        *value = k >= 1 ? k - 1 : 0;
        return true;
    }
    *value = k + 1;
    *flag = offsetof(flags, in);
    if (t->phase == SUM)
        return sums(op->kind);
    switch (op->kind) {
    case PLAIT_COMM_ALL_REDUCE:
    case PLAIT_COMM_REDUCE:
        *flag = offsetof(flags, out);
        return op->kind == PLAIT_COMM_ALL_REDUCE || c->rank == op->peer;
    case PLAIT_COMM_BROADCAST:
        return q == op->peer;
    default:
        return op->kind != PLAIT_COMM_REDUCE_SCATTER;
    }
}

bool plait_comm_window_lags(const plait_comm *c, const plait_comm_task *t, int q)
{
    size_t flag;
    uint64_t value;
    if (!awaits(c, t, q, &flag, &value))
        return false;
    const _Atomic uint64_t *f = (const _Atomic uint64_t *)(const void *)(c->window->base[q] + flag);
    return atomic_load_explicit(f, memory_order_acquire) < value;
}

static bool may_leave(const plait_comm *c, const plait_comm_task *t)
{
    for (int q = 0; q < c->size; q++)
        if (plait_comm_window_lags(c, t, q))
            return false;
    return true;
}

plait_status plait_comm_window_advance(plait_comm *c, plait_comm_task *t, bool *finished)
{
    const plait_comm_op *op = &t->op;
    flags *mine = flags_of(c, c->rank);
    while (may_leave(c, t)) {
        uint64_t k = c->window->round;
        switch (t->phase) {
        case FILL:
            PLAIT_TRY(fill(c, t));
            atomic_store_explicit(&mine->in, k + 1, memory_order_release);
            t->phase = SUM;
            break;
        case SUM:
            if (sums(op->kind)) {
                PLAIT_TRY(check_claims(c, op));
                PLAIT_TRY(sum(c, t));
            }
            atomic_store_explicit(&mine->out, k + 1, memory_order_release);
            t->phase = TAKE;
            break;
        case TAKE:
            if (op->kind == PLAIT_COMM_ALL_GATHER || op->kind == PLAIT_COMM_BARRIER)
                PLAIT_TRY(check_claims(c, op));
            if (op->kind == PLAIT_COMM_BROADCAST)
                PLAIT_TRY(unpack(c, t, slot_of(c, op->peer)));
            else if (op->kind == PLAIT_COMM_ALL_GATHER || op->kind == PLAIT_COMM_ALL_REDUCE ||
                     (op->kind == PLAIT_COMM_REDUCE && c->rank == op->peer))
                PLAIT_TRY(take_parts(c, t));
            atomic_store_explicit(&mine->done, k + 1, memory_order_release);
            t->phase = FILL;
            c->window->round++;
            *finished = ++t->round == t->rounds;
            break;
        }
        c->moves++;
        if (*finished)
            return PLAIT_OK;
    }
    return PLAIT_OK;
}
