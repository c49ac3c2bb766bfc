#include "launcher/bench_links.h"

#include <stdio.h>

#include "launcher/progress.h"

enum { MOST_POINTS = 8, CHUNK = 4 << 20 /* comm.chunk_bytes, unless a run says otherwise */ };

/* 0: as little as possible. */
static const double full[] = {0, 4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20, 64 << 20},
                    quick[] = {0, 4 << 10, 256 << 10};
enum { FULL = sizeof full / sizeof *full, QUICK = sizeof quick / sizeof *quick };

typedef struct links {
    plait_bench *b;
    plait_world part; /* this rank's group; size 0: it is in none */
    int size;         /* of the groups */
    bool spans;       /* they are on several nodes */
    void *in, *out;   /* of the largest operation */
    plait_comm_op op; /* what is measured */
} links;

/* ---- one operation ---- */

static plait_status run_collective(void *self)
{
    links *l = self;
    return l->part.size == 0 ? PLAIT_OK : plait_comm_run(l->part.comm, &l->op, NULL);
}

/* There and back: two messages after each other. */
static plait_status run_messages(void *self)
{
    links *l = self;
    if (l->part.size == 0)
        return PLAIT_OK;
    plait_comm_op send = l->op, recv = l->op;
    recv.kind = PLAIT_COMM_RECV;
    recv.in = NULL;
    send.out = NULL;
    send.peer = recv.peer = 1 - l->part.rank;
    PLAIT_TRY(plait_comm_run(l->part.comm, l->part.rank == 0 ? &send : &recv, NULL));
    return plait_comm_run(l->part.comm, l->part.rank == 0 ? &recv : &send, NULL);
}

static plait_status time_of(links *l, plait_comm_kind kind, plait_dtype dtype, double bytes, double *seconds)
{
    /* At least an element of each rank. */
    const int64_t elements = (int64_t)bytes / (int64_t)plait_dtype_size(dtype);
    const int64_t count = kind == PLAIT_COMM_BARRIER ? 0 : elements < l->size ? l->size : elements / l->size * l->size;
    const bool message = kind == PLAIT_COMM_SEND;
    l->op = plait_comm_make(kind, l->in, l->out, count, dtype);
    PLAIT_TRY(plait_bench_time(l->b, message ? run_messages : run_collective, l, seconds));
    if (message)
        *seconds /= 2;
    return PLAIT_OK;
}

static plait_status bench_kind(links *l, plait_comm_kind kind, plait_dtype dtype)
{
    const double started = plait_seconds();
    double seconds[MOST_POINTS];
    plait_bench *b = l->b;
    plait_link_table t = {.kind = kind,
                          .size = l->size,
                          .ranks = b->ranks,
                          .spans = l->spans,
                          .dtype = dtype,
                          .num = kind == PLAIT_COMM_BARRIER ? 1
                                 : b->quick                 ? QUICK
                                                            : FULL,
                          .bytes = (double *)(uintptr_t)(b->quick ? quick : full), /* copied from there */
                          .seconds = seconds};
    for (int i = 0; i < t.num; i++)
        PLAIT_TRY(time_of(l, kind, dtype, t.bytes[i], &seconds[i]));
    PLAIT_TRY(plait_comm_agree(b->world->comm, plait_machine_put_links(&b->machine, &t)));
    if (b->world->rank == 0) {
        printf("  %s %s among %d: %.3g us", plait_dtype_name(dtype), plait_comm_kind_name(kind), l->size,
               seconds[0] * 1e6);
        if (t.num > 1)
            printf(" and %.3g GB/s", t.bytes[t.num - 1] / seconds[t.num - 1] / 1e9);
        printf(", %d points in %.1f s\n", t.num, plait_seconds() - started);
        fflush(stdout);
    }
    return PLAIT_OK;
}

/* ---- groups ---- */

static plait_status bench_kinds(links *l, const plait_dtype *dtypes, int num)
{
    static const plait_comm_kind sums[] = {PLAIT_COMM_ALL_REDUCE, PLAIT_COMM_REDUCE_SCATTER, PLAIT_COMM_REDUCE},
                                 moves[] = {PLAIT_COMM_ALL_GATHER, PLAIT_COMM_BROADCAST, PLAIT_COMM_BARRIER};
    for (int i = 0; i < 3; i++)
        PLAIT_TRY(bench_kind(l, sums[i], PLAIT_FP32));
    for (int d = 0; d < num; d++)
        for (int i = 0; i < 3 && dtypes[d] != PLAIT_FP32; i++)
            PLAIT_TRY(bench_kind(l, sums[i], dtypes[d]));
    for (int i = 0; i < 3; i++)
        PLAIT_TRY(bench_kind(l, moves[i], PLAIT_FP32));
    return l->size == 2 ? bench_kind(l, PLAIT_COMM_SEND, PLAIT_FP32) : PLAIT_OK;
}

/* Whether the groups are on several nodes; `same`: all of them are, or none. */
static plait_status find_spans(links *l, bool *same)
{
    double some = l->part.nodes > 1, not_all = l->part.size > 0 && l->part.nodes == 1;
    PLAIT_TRY(plait_bench_slowest(l->b, &some));
    PLAIT_TRY(plait_bench_slowest(l->b, &not_all));
    l->spans = some > 0;
    *same = some == 0 || not_all == 0;
    return PLAIT_OK;
}

static plait_status reserve(links *l, size_t largest, plait_ledger *ledger)
{
    plait_comm *world = l->b->world->comm, *c = l->part.size > 0 ? l->part.comm : NULL;
    PLAIT_TRY(plait_world_check_room(l->b->world,
                                     c && plait_comm_is_shared(c) ? plait_comm_staging_bytes(c, largest, CHUNK) : 0));
    return plait_comm_agree(world, c ? plait_comm_reserve(c, largest, CHUNK, PLAIT_TIER_HOST, ledger) : PLAIT_OK);
}

static plait_status bench_groups(links *l, size_t largest, plait_ledger *ledger, const plait_dtype *dtypes, int num)
{
    bool same = false;
    PLAIT_TRY(find_spans(l, &same));
    if (!same) {
        if (l->b->world->rank == 0)
            printf("  groups of %d: some are on one node and some on several, nothing is measured\n", l->size);
        return PLAIT_OK;
    }
    PLAIT_TRY(reserve(l, largest, ledger));
    return bench_kinds(l, dtypes, num);
}

static plait_status bench_size(links *l, size_t largest, plait_ledger *ledger, const plait_dtype *dtypes, int num)
{
    PLAIT_TRY(plait_comm_agree(l->b->world->comm, plait_world_split(l->b->world, l->size, &l->part)));
    const plait_status st = bench_groups(l, largest, ledger, dtypes, num);
    /* A rank that failed alone ends the job: giving back shared windows would wait for the others. */
    if (l->part.size > 0 && (st == PLAIT_OK || plait_comm_agreed()))
        plait_world_close(&l->part);
    return st;
}

/* The groups after groups of `size`: powers of two, and all ranks. */
static int next_size(int size, int ranks)
{
    return size < ranks && 2 * size > ranks ? ranks : 2 * size;
}

/* Says about how long it will take: 64 MiB take some hundredths of a second, with many ranks a core more. */
static void announce(const plait_bench *b, const plait_dtype *dtypes, int num)
{
    int kinds = 6, sizes = 0;
    for (int d = 0; d < num; d++)
        kinds += dtypes[d] == PLAIT_FP32 ? 0 : 3;
    for (int size = 2; size <= b->world->size; size = next_size(size, b->world->size))
        sizes++;
    const int points = kinds * (b->quick ? QUICK : FULL) * sizes;
    printf("links: %d points, about %.0f s\n", points, plait_bench_time_cost(b, b->quick ? 1e-3 : 10e-3) * points);
    fflush(stdout);
}

plait_status plait_bench_links(plait_bench *b, const plait_dtype *dtypes, int num)
{
    static plait_ledger ledger;
    const size_t largest = (size_t)(b->quick ? quick[QUICK - 1] : full[FULL - 1]);
    const int ranks = b->world->size;
    links l = {.b = b};
    plait_arena *arena = NULL;
    if (ranks < 2)
        return PLAIT_OK;
    plait_status st =
        plait_arena_create(plait_host_allocator(), &ledger, PLAIT_TIER_HOST, PLAIT_MEM_COMM, 2 * largest, &arena);
    if (st == PLAIT_OK)
        st = plait_arena_take(arena, largest, &l.in);
    if (st == PLAIT_OK)
        st = plait_arena_take(arena, largest, &l.out);
    st = plait_comm_agree(b->world->comm, st);
    if (st == PLAIT_OK && b->world->rank == 0)
        announce(b, dtypes, num);
    for (l.size = 2; st == PLAIT_OK && l.size <= ranks; l.size = next_size(l.size, ranks))
        st = bench_size(&l, largest, &ledger, dtypes, num);
    plait_arena_destroy(arena);
    return st;
}
