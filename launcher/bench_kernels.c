#include "launcher/bench_kernels.h"

#include <stdio.h>
#include <string.h>

#include "core/file.h"
#include "core/json_out.h"
#include "kernels/backend.h"
#include "launcher/bench.h"
#include "launcher/bench_calls.h"
#include "launcher/machine_file.h"
#include "launcher/options.h"
#include "launcher/outputs.h"
#include "launcher/run_config.h"
#include "launcher/stop.h"
#include "launcher/usage.h"
#include "parallel/device.h"

enum { MOST_ROWS = 256, TOO_MANY_WORDS = 64, SCRATCH = 32 << 20, WIDTHS = 2 };

typedef struct options {
    plait_backend_choice backend;
    plait_isa isa; /* of the host */
    plait_bench_dtypes dtypes;
    const char *json;    /* NULL: none */
    const char *against; /* machine file; NULL: none */
    bool quick;
} options;

/* What a step of a model of these sizes does. */
typedef struct sizes {
    double bytes; /* of a call that memory bounds */
    int64_t tokens, hidden[WIDTHS], vocabulary;
    int64_t heads, seq, head_dim[WIDTHS];
    size_t ring; /* holds the largest of them */
} sizes;

static const sizes of_gpu = {256 << 20, 8192, {1024, 4096}, 32768, 16, 2048, {64, 128}, (size_t)1 << 30},
                   of_host = {16 << 20, 512, {768, 2048}, 8192, 8, 512, {64, 128}, 64 << 20},
                   quick = {64 << 10, 16, {64, 128}, PLAIT_BENCH_LEAST_VOCABULARY, 2, 32, {16, 32}, 4 << 20};

typedef struct row {
    plait_bench_call call;
    plait_op_record work;
    double seconds;
    double predicted; /* seconds, by the machine file; 0: it says nothing of this, or there is none */
} row;

typedef struct bench {
    plait_bench b;
    plait_bench_calls calls;
    const plait_backend *backend;
    const sizes *sizes;
    char kernels[64], libraries[128];
    double copy;                  /* bytes a second, read and written, of the first copy */
    const plait_machine *against; /* NULL: none */
    row rows[MOST_ROWS];
    int num;
} bench;

/* Which of the names the word is. */
static plait_status choose(const char *option, const char *word, const char *const names[3], int *out)
{
    for (*out = 0; *out < 3; ++*out)
        if (strcmp(names[*out], word) == 0)
            return PLAIT_OK;
    PLAIT_FAIL(USAGE, "%s takes %s, %s or %s, not '%s'", option, names[0], names[1], names[2], word);
}

static plait_status parse(int argc, char **argv, options *o)
{
    /* In the order of plait_backend_choice and plait_isa. */
    static const char *const backends[] = {"auto", "cpu", "cuda"}, *const isas[] = {"auto", "avx2", "avx512"};
    const char *backend = "auto", *isa = "auto", *dtypes = NULL;
    int choice;
    const char *words[TOO_MANY_WORDS];
    int num_words = 0;
    const plait_option all[] = {
        {"--backend", PLAIT_OPTION_TEXT, &backend, 0, 0},    {"--isa", PLAIT_OPTION_TEXT, &isa, 0, 0},
        {"--dtypes", PLAIT_OPTION_TEXT, &dtypes, 0, 0},      {"--json", PLAIT_OPTION_TEXT, &o->json, 0, 0},
        {"--against", PLAIT_OPTION_TEXT, &o->against, 0, 0}, {"--quick", PLAIT_OPTION_FLAG, &o->quick, 0, 0}};
    if (argc > TOO_MANY_WORDS)
        PLAIT_FAIL(USAGE, "plait bench kernels: %d arguments\n%s", argc - 1, plait_usage_bench);
    PLAIT_TRY(plait_options_parse(all, sizeof all / sizeof *all, plait_usage_bench, argc, argv, words, &num_words));
    if (num_words > 0)
        PLAIT_FAIL(USAGE, "plait bench kernels: unknown argument %s\n%s", words[0], plait_usage_bench);
    PLAIT_TRY(choose("--backend", backend, backends, &choice));
    o->backend = (plait_backend_choice)choice;
    PLAIT_TRY(choose("--isa", isa, isas, &choice));
    o->isa = (plait_isa)choice;
    if (dtypes)
        PLAIT_TRY(plait_bench_dtypes_parse(dtypes, &o->dtypes));
    const plait_named_file written = {"--json", o->json}, read = {"--against", o->against};
    return plait_outputs_check(&written, 1, &read, 1);
}

/* ---- measuring ---- */

static plait_status predict(const bench *x, row *r)
{
    const plait_machine_use use = {.threads = x->b.threads, .ranks = x->b.ranks};
    r->predicted = 0;
    if (!x->against)
        return PLAIT_OK;
    const plait_status st = plait_machine_op_seconds(x->against, &use, &r->work, &r->predicted);
    return st == PLAIT_UNSUPPORTED ? PLAIT_OK : st;
}

/* Each once: the calls are long, and what else the machine does would show between them too. */
static plait_status add_row(bench *x)
{
    if (x->num == MOST_ROWS)
        PLAIT_FAIL(INTERNAL, "more than %d rows", MOST_ROWS);
    row *r = &x->rows[x->num];
    r->call = x->calls.call;
    PLAIT_TRY(plait_bench_time(&x->b, plait_bench_calls_run, &x->calls, &r->seconds));
    x->num++;
    return predict(x, r);
}

static plait_status add_call(bench *x, const plait_bench_call *call)
{
    PLAIT_TRY(plait_bench_calls_prepare(&x->calls, call, &x->rows[x->num % MOST_ROWS].work));
    return add_row(x);
}

static plait_status add_of_bytes(bench *x, plait_op op, plait_dtype dtype)
{
    const sizes *s = x->sizes;
    PLAIT_TRY(plait_bench_calls_of_bytes(&x->calls, op, dtype, s->hidden[WIDTHS - 1], s->vocabulary, s->bytes,
                                         &x->rows[x->num % MOST_ROWS].work));
    return add_row(x);
}

/* Into four times the width: the layer, the gradient of its input, the gradient of its weight. With their epilogues the
 * second is of the layer behind, whose input is GELU of this one's output. */
static plait_status add_products(bench *x, int64_t hidden)
{
    const int64_t tokens = x->sizes->tokens, wide = 4 * hidden;
    const plait_bench_call calls[] = {
        {.op = PLAIT_OP_gemm, .m = tokens, .n = wide, .k = hidden, .trans_b = true},
        {.op = PLAIT_OP_gemm, .m = tokens, .n = wide, .k = hidden, .trans_b = true, .epilogue = true},
        {.op = PLAIT_OP_gemm, .m = tokens, .n = hidden, .k = wide},
        {.op = PLAIT_OP_gemm, .m = tokens, .n = wide, .k = hidden, .epilogue = true},
        {.op = PLAIT_OP_gemm, .m = wide, .n = hidden, .k = tokens, .trans_a = true},
        {.op = PLAIT_OP_gemm, .m = wide, .n = hidden, .k = tokens, .trans_a = true, .epilogue = true}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (!calls[i].epilogue || x->calls.ex.k->epilogues)
            PLAIT_TRY(add_call(x, &calls[i]));
    return PLAIT_OK;
}

static plait_status add_attention(bench *x, int64_t head_dim)
{
    plait_bench_call call = {.m = x->sizes->heads, .n = x->sizes->seq, .k = head_dim};
    call.op = PLAIT_OP_attention_fwd;
    PLAIT_TRY(add_call(x, &call));
    call.op = PLAIT_OP_attention_bwd;
    return add_call(x, &call);
}

static plait_status measure_dtype(bench *x, plait_dtype dtype)
{
    PLAIT_TRY(plait_bench_calls_clear(&x->calls));
    PLAIT_TRY(add_of_bytes(x, PLAIT_OP_copy, dtype));
    const row *copy = &x->rows[x->num - 1];
    if (x->copy == 0)
        x->copy = plait_bench_bytes(&copy->work) / copy->seconds;
    for (int i = 0; i < WIDTHS; i++)
        PLAIT_TRY(add_products(x, x->sizes->hidden[i]));
    PLAIT_TRY(plait_bench_calls_clear(&x->calls));
    for (int i = 0; i < WIDTHS; i++)
        PLAIT_TRY(add_attention(x, x->sizes->head_dim[i]));
    for (int op = 0; op < PLAIT_OPS; op++) {
        if (plait_rate_is_flops((plait_op)op) || op == PLAIT_OP_copy)
            continue;
        PLAIT_TRY(plait_bench_calls_clear(&x->calls));
        PLAIT_TRY(add_of_bytes(x, (plait_op)op, dtype));
    }
    return PLAIT_OK;
}

/* ---- printing ---- */

static void print_shape(const row *r, char *text, size_t size)
{
    const plait_bench_call *c = &r->call;
    if (c->op == PLAIT_OP_gemm)
        snprintf(text, size, "%lld x %lld x %lld %s%s", (long long)c->m, (long long)c->n, (long long)c->k,
                 c->trans_a   ? "TN"
                 : c->trans_b ? "NT"
                              : "NN",
                 c->epilogue ? "+" : "");
    else if (plait_rate_is_flops(c->op))
        snprintf(text, size, "%lld heads of %lld, %lld tokens", (long long)c->m, (long long)c->k, (long long)c->n);
    else
        snprintf(text, size, "%.3g MB", plait_bench_bytes(&r->work) / 1e6);
}

static void print_row(const bench *x, const row *r)
{
    char shape[64];
    const double bytes = plait_bench_bytes(&r->work) / r->seconds;
    print_shape(r, shape, sizeof shape);
    printf("%-5s %-21s %-28s %11.1f", plait_dtype_name(r->work.dtype), plait_op_name(r->call.op), shape,
           1e6 * r->seconds);
    if (plait_rate_is_flops(r->call.op))
        printf(" %11.1f %9s %8s", r->work.flops / r->seconds / 1e9, "", "");
    else
        printf(" %11s %9.1f %8.2f", "", bytes / 1e9, bytes / x->copy);
    if (r->predicted > 0)
        printf(" %8.2f", r->predicted / r->seconds);
    putchar('\n');
}

static void print_json(const void *self, FILE *out)
{
    const bench *x = self;
    fputs("{\"version\":1,\"backend\":", out);
    plait_json_string(out, x->backend->name);
    fputs(",\"kernels\":", out);
    plait_json_string(out, x->kernels);
    fputs(",\"libraries\":", out);
    plait_json_string(out, x->libraries);
    fputs(",\"against\":", out);
    if (x->against)
        plait_json_string(out, x->against->name);
    else
        fputs("null", out);
    fprintf(out, ",\"threads\":%d,\"copy_bytes_per_second\":%.6g,\"rows\":[", x->b.threads, x->copy);
    for (int i = 0; i < x->num; i++) {
        const row *r = &x->rows[i];
        fprintf(out,
                "%s\n{\"op\":\"%s\",\"dtype\":\"%s\",\"m\":%lld,\"n\":%lld,\"k\":%lld,\"trans_a\":%s,\"trans_b\":%s,"
                "\"epilogue\":%s,",
                i ? "," : "", plait_op_name(r->call.op), plait_dtype_name(r->work.dtype), (long long)r->call.m,
                (long long)r->call.n, (long long)r->call.k, r->call.trans_a ? "true" : "false",
                r->call.trans_b ? "true" : "false", r->call.epilogue ? "true" : "false");
        fprintf(out, "\"flops\":%.0f,\"bytes\":%.0f,\"seconds\":%.6g,\"predicted_seconds\":", r->work.flops,
                plait_bench_bytes(&r->work), r->seconds);
        if (r->predicted > 0)
            fprintf(out, "%.6g}", r->predicted);
        else
            fputs("null}", out);
    }
    fputs("\n]}\n", out);
}

/* ---- all ---- */

static plait_status find_table(bench *x, const options *o, plait_dtype dtype, const plait_kernels **k)
{
    const plait_config cfg = {.device = {.backend = o->backend, .isa = o->isa}, .precision.dtype = dtype};
    return plait_device_find(&cfg, k, &x->backend);
}

static plait_status measure(bench *x, const options *o)
{
    for (int i = 0; i < o->dtypes.num; i++) {
        const plait_kernels *k;
        const int first = x->num;
        PLAIT_TRY(find_table(x, o, o->dtypes.all[i], &k));
        PLAIT_TRY(plait_bench_calls_set_table(&x->calls, k));
        PLAIT_TRY(measure_dtype(x, o->dtypes.all[i]));
        for (int at = first; at < x->num; at++)
            print_row(x, &x->rows[at]);
        fflush(stdout);
    }
    return PLAIT_OK;
}

static plait_status open_device(bench *x, const options *o, plait_exec *ex)
{
    const plait_kernels *k;
    PLAIT_TRY(find_table(x, o, o->dtypes.all[0], &k));
    PLAIT_TRY(x->backend->open(0, 1));
    *ex = (plait_exec){.backend = x->backend, .threads = x->b.threads, .scratch_bytes = SCRATCH};
    PLAIT_TRY(x->backend->stream_create(&ex->stream));
    snprintf(x->kernels, sizeof x->kernels, "%s", k->name);
    if (x->backend->device)
        plait_device_versions(x->libraries, sizeof x->libraries);
    x->sizes = o->quick ? &quick : x->backend->device ? &of_gpu : &of_host;
    return PLAIT_OK;
}

static plait_status run(bench *x, const options *o, plait_exec *ex)
{
    static plait_ledger ledger;
    plait_arena *arena = NULL;
    const size_t ring = x->sizes->ring;
    plait_status st = plait_arena_create(x->backend->tensors, &ledger, PLAIT_TIER_DEVICE, PLAIT_MEM_WORK,
                                         2 * ring + SCRATCH + (8 << 20), &arena);
    if (st == PLAIT_OK)
        st = plait_arena_take(arena, SCRATCH, &ex->scratch);
    if (st == PLAIT_OK)
        st = plait_bench_calls_init(&x->calls, ex, arena, ring);
    if (st == PLAIT_OK) {
        x->b.ex = &x->calls.ex;
        printf("kernels %s, %d thread%s%s%s\n", x->kernels, x->b.threads, x->b.threads == 1 ? "" : "s",
               x->libraries[0] ? "; " : "", x->libraries);
        printf("%-5s %-21s %-28s %11s %11s %9s %8s%s%s\n", "dtype", "operation", "size", "microseconds", "GFLOP/s",
               "GB/s", "of copy", x->against ? "   of " : "", x->against ? x->against->name : "");
        st = measure(x, o);
    }
    plait_arena_destroy(arena);
    return st;
}

plait_status plait_bench_kernels(plait_world *world, int argc, char **argv)
{
    static bench x;
    plait_machine against = {0};
    options o = {.dtypes = plait_bench_dtypes_all};
    plait_exec ex = {0};
    int64_t threads = PLAIT_AUTO;
    PLAIT_TRY(plait_comm_agree(world->comm, parse(argc, argv, &o)));
    if (world->size > 1)
        return plait_comm_agree(world->comm, plait_error_set(PLAIT_USAGE, __FILE__, __LINE__,
                                                             "plait bench kernels is of one rank: without mpiexec"));
    plait_stop_report(world, o.json ? ", nothing was written" : "");
    if (o.backend == PLAIT_BACKEND_AUTO)
        o.backend = plait_device_count() > 0 ? PLAIT_BACKEND_CUDA : PLAIT_BACKEND_CPU;
    PLAIT_TRY(plait_run_threads(world, &threads));
    x = (bench){.b = {.world = world, .threads = (int)threads, .ranks = 1, .share = 1, .quick = o.quick}};
    if (o.against) {
        PLAIT_TRY(plait_machine_read(o.against, &against));
        x.against = &against;
    }
    plait_status st = open_device(&x, &o, &ex);
    if (st == PLAIT_OK)
        st = run(&x, &o, &ex);
    if (ex.stream)
        x.backend->stream_destroy(ex.stream);
    if (st == PLAIT_OK && o.json)
        st = plait_file_write_text(o.json, print_json, &x);
    plait_machine_deinit(&against);
    return st;
}
