#include "launcher/bench_ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "launcher/bench_calls.h"
#include "launcher/progress.h"

enum { MOST_POINTS = 16, SCRATCH = 32 << 20 };

typedef struct points {
    int num;
    double at[MOST_POINTS];
} points;

/* Of the products of a training: tokens of a micro-batch, columns in and out of a layer or of a tensor rank's part. */
static const points tokens_full = {4, {32, 64, 256, 2048}}, tokens_quick = {2, {32, 128}};
/* Rows of a multiple of 4 KiB fall into the same sets of a cache, and are slower; so of the large widths some are such
 * multiples and some are not. The last stands for a vocabulary. */
static const points width_full = {15, {16, 32, 64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 2304, 3072, 4096, 12032}},
                    width_quick = {2, {64, 256}};
static const points heads_full = {3, {1, 8, 64}}, heads_quick = {2, {1, 8}};
static const points seq_full = {4, {32, 128, 512, 2048}}, seq_quick = {2, {32, 128}};
static const points head_full = {5, {8, 16, 32, 64, 128}}, head_quick = {2, {16, 64}};
static const points bytes_full = {6, {4 << 10, 64 << 10, 512 << 10, 4 << 20, 16 << 20, 64 << 20}},
                    bytes_quick = {2, {64 << 10, 1 << 20}};

/* A larger product or attention takes the rate of the same one with fewer tokens or heads. */
static const double largest_product = 4e9, largest_attention = 2e9;

/* Small tensors come from small models, with short rows. */
static const struct shape {
    int64_t columns, vocabulary;
} narrow = {64, PLAIT_BENCH_LEAST_VOCABULARY}, wide = {768, 8192};
static const double largest_narrow = 64 << 10;

typedef struct bench {
    plait_bench *b;
    plait_bench_calls calls;
    plait_dtype dtype;
} bench;

/* Seconds of the prepared call, without what every call costs, as a rate. */
static plait_status rate_of_prepared(bench *x, const plait_op_record *work, double *rate)
{
    double seconds = 0;
    PLAIT_TRY(plait_bench_time(x->b, plait_bench_calls_run, &x->calls, &seconds));
    const double amount = plait_rate_is_flops(work->op) ? work->flops : plait_bench_bytes(work);
    *rate = amount / fmax(seconds - x->b->machine.launch_seconds, seconds / 2);
    return PLAIT_OK;
}

static plait_status rate_of(bench *x, const plait_bench_call *call, plait_op_record *work, double *rate)
{
    PLAIT_TRY(plait_bench_calls_prepare(&x->calls, call, work));
    return rate_of_prepared(x, work, rate);
}

static plait_rate_table table_of(bench *x, plait_op op, double *rate)
{
    return (plait_rate_table){.op = op,
                              .dtype = x->dtype,
                              .threads = x->b->threads,
                              .ranks = x->b->ranks,
                              .launch_seconds = x->b->machine.launch_seconds,
                              .rate = rate};
}

static void set_axis(plait_rate_table *t, const points *p)
{
    t->at[t->num_axes] = (double *)(uintptr_t)p->at; /* copied from there, never written */
    t->num[t->num_axes++] = p->num;
}

/* Keeps it, and says its least and largest rate. */
static plait_status keep(bench *x, const plait_rate_table *t, double started)
{
    PLAIT_TRY(plait_comm_agree(x->b->world->comm, plait_machine_put_rates(&x->b->machine, t)));
    if (x->b->world->rank != 0)
        return PLAIT_OK;
    const bool flops = plait_rate_is_flops(t->op);
    double least = t->rate[0], most = t->rate[0];
    for (int i = 0; i < plait_rate_points(t); i++) {
        least = fmin(least, t->rate[i]);
        most = fmax(most, t->rate[i]);
    }
    const char *trans = t->op != PLAIT_OP_gemm ? "" : t->trans_a ? " TN" : t->trans_b ? " NT" : " NN";
    printf("  %s %s%s: %.3g to %.3g %s, %d points in %.1f s\n", plait_dtype_name(t->dtype), plait_op_name(t->op), trans,
           least / 1e9, most / 1e9, flops ? "GFLOP/s" : "GB/s", plait_rate_points(t), plait_seconds() - started);
    fflush(stdout);
    return PLAIT_OK;
}

/* ---- products ---- */

/* The call at a point of a table with three axes. */
static plait_bench_call call_at(const plait_rate_table *t, int i)
{
    return (plait_bench_call){.op = t->op,
                              .trans_a = t->trans_a,
                              .trans_b = t->trans_b,
                              .m = (int64_t)t->at[0][i / t->num[2] / t->num[1]],
                              .n = (int64_t)t->at[1][i / t->num[2] % t->num[1]],
                              .k = (int64_t)t->at[2][i % t->num[2]]};
}

/* Which product's rate stands for that of point i: i where it is measured itself. One that takes long has the rate of
 * fewer tokens, one whose weight does not fit into the ring that of a narrower one. */
static int stands_for(const bench *x, const plait_rate_table *t, int i)
{
    const plait_bench_call call = call_at(t, i);
    const int to_n = t->num[2], to_m = t->num[1] * t->num[2]; /* in `rate`, to the next of n, of m */
    const int64_t weight = t->trans_a ? call.m * call.n : call.n * call.k;
    if ((size_t)weight * plait_dtype_size(PLAIT_FP32) > x->calls.read.bytes)
        return t->trans_a ? i - to_n : i - 1;
    const bool fewest = (t->trans_a ? i % to_n : i / to_m) == 0;
    if (!fewest && 2.0 * (double)call.m * (double)call.n * (double)call.k > largest_product)
        return t->trans_a ? i - 1 : i - to_m;
    return i;
}

/* The geometric mean of the rates next to point i, along every axis. */
static double rate_around(const plait_rate_table *t, int i)
{
    double sum = 0;
    int num = 0, step = 1;
    for (int a = t->num_axes - 1; a >= 0; step *= t->num[a--]) {
        const int at = i / step % t->num[a];
        for (int to = -1; to <= 1; to += 2) {
            if (at + to < 0 || at + to >= t->num[a])
                continue;
            sum += log(t->rate[i + to * step]);
            num++;
        }
    }
    return exp(sum / num);
}

/* Whatever else the machine does only ever makes a call slower: a point far below those around it is measured again,
 * and the faster of both is kept. */
static plait_status measure_slow_again(bench *x, const plait_rate_table *t)
{
    for (int i = 0; i < plait_rate_points(t); i++) {
        if (stands_for(x, t, i) != i) {
            t->rate[i] = t->rate[stands_for(x, t, i)];
        } else if (t->rate[i] < 0.8 * rate_around(t, i)) {
            plait_op_record work;
            double again = 0;
            const plait_bench_call call = call_at(t, i);
            PLAIT_TRY(rate_of(x, &call, &work, &again));
            t->rate[i] = fmax(t->rate[i], again);
        }
    }
    return PLAIT_OK;
}

static plait_status measure_products(bench *x, const plait_rate_table *t)
{
    for (int i = 0; i < plait_rate_points(t); i++) {
        plait_op_record work;
        const plait_bench_call call = call_at(t, i);
        if (stands_for(x, t, i) != i)
            t->rate[i] = t->rate[stands_for(x, t, i)];
        else
            PLAIT_TRY(rate_of(x, &call, &work, &t->rate[i]));
    }
    return measure_slow_again(x, t);
}

/* Forward y = x W^T (NT), gradient of the input (NN), gradient of the weight (TN): the tokens are m, m and k. */
static plait_status bench_gemm(bench *x, bool trans_a, bool trans_b)
{
    const double started = plait_seconds();
    const points *tokens = x->b->quick ? &tokens_quick : &tokens_full,
                 *width = x->b->quick ? &width_quick : &width_full;
    double *rate = malloc((size_t)(tokens->num * width->num * width->num) * sizeof *rate);
    PLAIT_TRY(plait_comm_agree(x->b->world->comm,
                               rate ? PLAIT_OK
                                    : plait_error_set(PLAIT_OUT_OF_MEMORY, __FILE__, __LINE__, "no memory for rates")));
    plait_rate_table t = table_of(x, PLAIT_OP_gemm, rate);
    t.trans_a = trans_a;
    t.trans_b = trans_b;
    for (int a = 0; a < 3; a++)
        set_axis(&t, a == (trans_a ? 2 : 0) ? tokens : width);
    plait_status st = plait_bench_calls_clear(&x->calls);
    if (st == PLAIT_OK)
        st = measure_products(x, &t);
    if (st == PLAIT_OK)
        st = keep(x, &t, started);
    free(rate);
    return st;
}

static plait_status bench_attention(bench *x, plait_op op)
{
    const double started = plait_seconds();
    double rate[MOST_POINTS * MOST_POINTS];
    plait_rate_table t = table_of(x, op, rate);
    set_axis(&t, x->b->quick ? &heads_quick : &heads_full);
    set_axis(&t, x->b->quick ? &seq_quick : &seq_full);
    set_axis(&t, x->b->quick ? &head_quick : &head_full);
    const int of_heads = t.num[1] * t.num[2];
    PLAIT_TRY(plait_bench_calls_clear(&x->calls));
    for (int i = 0; i < plait_rate_points(&t); i++) {
        plait_op_record work;
        const plait_bench_call call = call_at(&t, i);
        PLAIT_TRY(plait_bench_calls_prepare(&x->calls, &call, &work));
        if (i >= of_heads && work.flops > largest_attention)
            rate[i] = rate[i - of_heads];
        else
            PLAIT_TRY(rate_of(x, &call, &work, &rate[i]));
    }
    return keep(x, &t, started);
}

/* ---- what memory bounds ---- */

static plait_status bench_memory(bench *x, plait_op op, plait_dtype dtype)
{
    const double started = plait_seconds();
    const points *want = x->b->quick ? &bytes_quick : &bytes_full;
    points bytes = {0};
    double rate[MOST_POINTS];
    PLAIT_TRY(plait_bench_calls_clear(&x->calls));
    for (int i = 0; i < want->num; i++) {
        plait_op_record work;
        const struct shape *s = want->at[i] > largest_narrow ? &wide : &narrow;
        PLAIT_TRY(plait_bench_calls_of_bytes(&x->calls, op, dtype, s->columns, s->vocabulary, want->at[i], &work));
        /* As much as the point before, since a row, or a million of them, is the limit. */
        if (bytes.num > 0 && plait_bench_bytes(&work) <= bytes.at[bytes.num - 1])
            continue;
        PLAIT_TRY(rate_of_prepared(x, &work, &rate[bytes.num]));
        bytes.at[bytes.num++] = plait_bench_bytes(&work);
    }
    plait_rate_table t = table_of(x, op, rate);
    t.dtype = dtype;
    set_axis(&t, &bytes);
    return keep(x, &t, started);
}

/* ---- all ---- */

/* What a call of nearly nothing takes. */
static plait_status bench_launch(bench *x)
{
    plait_op_record work;
    const plait_bench_call call = {.op = PLAIT_OP_add, .m = 1, .dtype = PLAIT_FP32};
    PLAIT_TRY(plait_bench_calls_prepare(&x->calls, &call, &work));
    return plait_bench_time(x->b, plait_bench_calls_run, &x->calls, &x->b->machine.launch_seconds);
}

static plait_status bench_dtype(bench *x)
{
    PLAIT_TRY(bench_gemm(x, false, true));
    PLAIT_TRY(bench_gemm(x, false, false));
    PLAIT_TRY(bench_gemm(x, true, false));
    for (int op = 0; op < PLAIT_OPS; op++)
        if (!plait_rate_is_flops((plait_op)op))
            PLAIT_TRY(bench_memory(x, (plait_op)op, x->dtype));
    PLAIT_TRY(bench_attention(x, PLAIT_OP_attention_fwd));
    PLAIT_TRY(bench_attention(x, PLAIT_OP_attention_bwd));
    return PLAIT_OK;
}

static plait_status bench_dtypes(bench *x, const plait_dtype *dtypes, int num)
{
    bool fp32 = false;
    for (int i = 0; i < num; i++) {
        const plait_kernels *k;
        x->dtype = dtypes[i];
        fp32 = fp32 || dtypes[i] == PLAIT_FP32;
        plait_status st = plait_kernels_find(PLAIT_KERNELS_AUTO, PLAIT_ISA_AUTO, dtypes[i], &k);
        if (st == PLAIT_OK)
            st = plait_bench_calls_set_table(&x->calls, k);
        PLAIT_TRY(plait_comm_agree(x->b->world->comm, st));
        if (i == 0)
            PLAIT_TRY(bench_launch(x));
        PLAIT_TRY(bench_dtype(x));
    }
    if (fp32)
        return PLAIT_OK;
    /* Gradients are fp32 with every type. */
    PLAIT_TRY(bench_memory(x, PLAIT_OP_cast, PLAIT_FP32));
    return bench_memory(x, PLAIT_OP_add, PLAIT_FP32);
}

/* Says about how long it will take: most calls last some milliseconds or much less. */
static void announce(const plait_bench *b, int num)
{
    const int T = (b->quick ? tokens_quick : tokens_full).num, W = (b->quick ? width_quick : width_full).num;
    const int attention = (b->quick ? heads_quick : heads_full).num * (b->quick ? seq_quick : seq_full).num *
                          (b->quick ? head_quick : head_full).num;
    const int points = 3 * T * W * W + 2 * attention + (PLAIT_OPS - 3) * (b->quick ? bytes_quick : bytes_full).num;
    printf("rates: %d points of each of %d types, about %.0f s\n", points, num,
           plait_bench_time_cost(b, 2e-3) * points * num);
    fflush(stdout);
}

plait_status plait_bench_ops(plait_bench *b, const plait_dtype *dtypes, int num)
{
    static plait_ledger ledger;
    const size_t ring = b->quick ? PLAIT_BENCH_QUICK_RING : PLAIT_BENCH_RING;
    plait_arena *arena = NULL;
    bench x = {.b = b};
    plait_exec ex = {.threads = b->threads, .scratch_bytes = SCRATCH};
    plait_status st = plait_arena_create(plait_host_allocator(), &ledger, PLAIT_TIER_HOST, PLAIT_MEM_WORK,
                                         2 * ring + SCRATCH + (8 << 20), &arena);
    if (st == PLAIT_OK)
        st = plait_arena_take(arena, SCRATCH, &ex.scratch);
    if (st == PLAIT_OK)
        st = plait_bench_calls_init(&x.calls, &ex, arena, ring);
    st = plait_comm_agree(b->world->comm, st);
    if (st == PLAIT_OK && b->world->rank == 0)
        announce(b, num);
    if (st == PLAIT_OK)
        st = bench_dtypes(&x, dtypes, num);
    plait_arena_destroy(arena);
    return st;
}
