/* bench_kernels [fp32|bf16|fp16] [threads] [avx2|avx512|portable]: speed of each operation on the shapes of a small
 * training step (8 samples of 256 tokens, 6 heads of 64, feed-forward 1536, vocabulary 8192).
 *
 * A line an operation: milliseconds (the best of some), GFLOP/s where arithmetic bounds it, GB/s of operands where
 * memory does. One thread is measured by its own processor time, which other programs disturb less than the clock on
 * the wall. Compare figures of runs made in turn on a quiet machine.
 */
#include "kernels/cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SEQ = 256, BATCH = 8, HEADS = 6, D = 64, C = HEADS * D, F = 4 * C, V = 8192, N = SEQ * BATCH, REPEAT = 15 };

typedef struct bench {
    const plait_kernels *k;
    plait_exec ex;
    double elem; /* bytes of T */
    float *buffer[8];
    int32_t *tokens;
    double times[REPEAT];
} bench;

static double now(const bench *b)
{
    struct timespec t;
    clock_gettime(b->ex.threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void report(const bench *b, const char *name, double flops, double bytes)
{
    double t = b->times[0];
    for (int r = 1; r < REPEAT; r++)
        t = b->times[r] < t ? b->times[r] : t;
    printf("%-24s %8.3f ms", name, t * 1e3);
    if (flops > 0)
        printf(" %8.1f GFLOP/s", flops / t * 1e-9);
    if (bytes > 0)
        printf(" %8.1f GB/s", bytes / t * 1e-9);
    printf("\n");
}

/* Runs `call` once to warm up, then REPEAT times. */
#define MEASURE(name, flops, bytes, call)                                                                              \
    do {                                                                                                               \
        for (int r_ = -1; r_ < REPEAT; r_++) {                                                                         \
            double t_ = now(b);                                                                                        \
            PLAIT_TRY(call);                                                                                           \
            if (r_ >= 0)                                                                                               \
                b->times[r_] = now(b) - t_;                                                                            \
        }                                                                                                              \
        report(b, name, flops, bytes);                                                                                 \
    } while (0)

static plait_status bench_gemm(bench *b)
{
    static const struct {
        const char *name;
        int64_t m, n, k;
        bool trans_a, trans_b, c_acc, bias;
    } rows[] = {
        {"gemm up", N, F, C, false, true, false, true},        {"gemm down", N, C, F, false, true, false, true},
        {"gemm dx", N, C, F, false, false, false, false},      {"gemm dw", F, C, N, true, false, true, false},
        {"gemm logits", N, V, C, false, true, true, false},    {"gemm square", C, C, 256, false, false, false, false},
        {"gemm tiny", 32, 32, 32, false, false, false, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        plait_gemm g = {.trans_a = rows[i].trans_a,
                        .trans_b = rows[i].trans_b,
                        .m = rows[i].m,
                        .n = rows[i].n,
                        .k = rows[i].k,
                        .a = b->buffer[0],
                        .lda = rows[i].trans_a ? rows[i].m : rows[i].k,
                        .b = b->buffer[1],
                        .ldb = rows[i].trans_b ? rows[i].k : rows[i].n,
                        .c = b->buffer[2],
                        .ldc = rows[i].n,
                        .c_acc = rows[i].c_acc,
                        .bias = rows[i].bias ? b->buffer[3] : NULL};
        MEASURE(rows[i].name, 2.0 * (double)g.m * (double)g.n * (double)g.k, 0, b->k->gemm(&b->ex, &g));
    }
    return PLAIT_OK;
}

static plait_status bench_attention(bench *b, double p)
{
    const plait_dropout drop = {.p = p, .use = PLAIT_RNG_DROPOUT_ATTN, .batch = BATCH};
    plait_attention a = {.batch = BATCH,
                         .seq = SEQ,
                         .heads = HEADS,
                         .kv_heads = HEADS,
                         .head_dim = D,
                         .scale = 0.125,
                         .dropout = &drop,
                         .q = b->buffer[0],
                         .k = b->buffer[1],
                         .v = b->buffer[2],
                         .o = b->buffer[3],
                         .lse = b->buffer[7],
                         .d_o = b->buffer[4],
                         .dq = b->buffer[5],
                         .dk = b->buffer[6],
                         .dv = b->buffer[6] + N * C};
    a.ldq = a.ldk = a.ldv = a.ldo = a.lddo = a.lddq = a.lddk = a.lddv = C;
    /* Half of the scores: the other half is masked. Two products forward, five backward. */
    const double product = 2.0 * BATCH * HEADS * D * SEQ * SEQ / 2;
    MEASURE(p > 0 ? "attention fwd, dropout" : "attention fwd", 2 * product, 0, b->k->attention_fwd(&b->ex, &a));
    MEASURE(p > 0 ? "attention bwd, dropout" : "attention bwd", 5 * product, 0, b->k->attention_bwd(&b->ex, &a));
    return PLAIT_OK;
}

static plait_status bench_rows(bench *b)
{
    const plait_kernels *k = b->k;
    const plait_exec *ex = &b->ex;
    const plait_dropout drop = {.p = 0.1, .use = PLAIT_RNG_DROPOUT_MLP, .batch = BATCH};
    float **x = b->buffer;
    const double nc = (double)N * C * b->elem, nf = (double)N * F * b->elem;
    MEASURE("embedding fwd", 0, 2 * nc, k->embedding_fwd(ex, x[0], b->tokens, x[1], 0, V, N, C));
    MEASURE("embedding bwd", 0, nc + 8.0 * N * C, k->embedding_bwd(ex, x[1], b->tokens, x[0], 0, V, N, C));
    MEASURE("layernorm fwd", 0, 2 * nc, k->layernorm_fwd(ex, x[1], x[2], x[3], x[0], x[4], x[5], N, C, 1e-5));
    MEASURE("layernorm bwd", 0, 4 * nc,
            k->layernorm_bwd(ex, x[1], x[6], x[7], x[5], x[4], x[0], x[4], x[2], x[3], N, C));
    MEASURE("rmsnorm fwd", 0, 2 * nc, k->rmsnorm_fwd(ex, x[1], x[3], x[0], x[4], N, C, 1e-5));
    MEASURE("rmsnorm bwd", 0, 4 * nc, k->rmsnorm_bwd(ex, x[1], x[6], x[5], x[4], x[0], x[4], x[3], N, C));
    PLAIT_TRY(k->rope_table(ex, x[7], SEQ, D, 1e4));
    MEASURE("rope", 0, 2 * nc, k->rope(ex, x[0], C, x[7], SEQ, BATCH, HEADS, D, false));
    MEASURE("gelu fwd", 0, 2 * nf, k->gelu_fwd(ex, x[1], x[0], (int64_t)N * F));
    MEASURE("gelu bwd", 0, 3 * nf, k->gelu_bwd(ex, x[1], x[2], x[0], (int64_t)N * F));
    MEASURE("swiglu fwd", 0, 3 * nf, k->swiglu_fwd(ex, x[2], x[0], N, F));
    MEASURE("swiglu bwd", 0, 5 * nf, k->swiglu_bwd(ex, x[1], x[2], x[0], N, F));
    MEASURE("bias add", 0, 3 * nc, k->bias_dropout_add_fwd(ex, x[1], x[0], x[3], x[2], NULL, N, C));
    MEASURE("bias dropout add", 0, 3 * nc, k->bias_dropout_add_fwd(ex, x[1], x[0], x[3], x[2], &drop, N, C));
    MEASURE("bias grad", 0, nf, k->bias_grad(ex, x[3], x[0], N, F));
    return PLAIT_OK;
}

static plait_status bench_loss(bench *b)
{
    const plait_kernels *k = b->k;
    const plait_exec *ex = &b->ex;
    float **x = b->buffer;
    double sum = 0;
    const double nv = (double)N * V;
    plait_cross_entropy c = {.rows = N, .cols = V, .valid = V, .logits = x[0], .targets = b->tokens};
    c.row_max = x[1];
    c.row_sum = x[2];
    c.row_target = x[3];
    MEASURE("cross-entropy max", 0, 4 * nv, k->cross_entropy_max(ex, &c));
    MEASURE("cross-entropy sum", 0, 4 * nv, k->cross_entropy_sum(ex, &c));
    MEASURE("cross-entropy loss", 0, 0, k->cross_entropy_loss(ex, &sum, &c));
    MEASURE("cross-entropy grad", 0, (4 + b->elem) * nv, k->cross_entropy_grad(ex, &c, 1e-3));
    return PLAIT_OK;
}

static plait_status bench_arrays(bench *b)
{
    const plait_kernels *k = b->k;
    const plait_exec *ex = &b->ex;
    float **x = b->buffer;
    const int64_t n = (int64_t)N * V / 2;
    const plait_adamw h = {1e-3, 0.9, 0.95, 1e-8, 0.1, 0.1, 0.05, 1.0};
    double sum = 0;
    int32_t inf = 0;
    for (int i = 0; i < 5; i++) /* what came before is not a moment */
        PLAIT_TRY(k->zero(ex, x[i], (size_t)n * sizeof(float)));
    MEASURE("adamw", 0, 28.0 * (double)n, k->adamw(ex, NULL, x[0], x[1], x[2], x[3], n, &h));
    MEASURE("sum of squares", 0, 4.0 * (double)n, k->sum_squares(ex, &sum, x[0], n));
    MEASURE("unscale", 0, 8.0 * (double)n, k->unscale(ex, x[0], 1.0, n, &inf));
    MEASURE("cast fp32 to bf16", 0, 6.0 * (double)n, k->cast(ex, x[1], PLAIT_BF16, x[0], PLAIT_FP32, n));
    MEASURE("add fp32", 0, 12.0 * (double)n, k->add(ex, x[1], x[0], PLAIT_FP32, n));
    MEASURE("copy", 0, 8.0 * (double)n, k->copy(ex, x[1], x[0], (size_t)n * 4));
    return PLAIT_OK;
}

/* All buffers: numbers between -0.5 and 0.5 in `dtype`. */
static plait_status fill(bench *b, plait_dtype dtype)
{
    float part[1024];
    for (int i = 0; i < 8; i++)
        for (int64_t at = 0; at < (int64_t)N * V; at += 1024) {
            for (int64_t j = 0; j < 1024; j++)
                part[j] = (float)(((at + j) * 7919 + i) % 1000) * 1e-3f - 0.5f;
            PLAIT_TRY(b->k->cast(&b->ex, plait_at(b->buffer[i], dtype, at), dtype, part, PLAIT_FP32, 1024));
        }
    return PLAIT_OK;
}

static plait_status run_all(bench *b)
{
    PLAIT_TRY(fill(b, b->k->dtype));
    PLAIT_TRY(bench_gemm(b));
    PLAIT_TRY(bench_attention(b, 0.0));
    PLAIT_TRY(bench_attention(b, 0.1));
    PLAIT_TRY(bench_rows(b));
    PLAIT_TRY(fill(b, PLAIT_FP32));
    PLAIT_TRY(bench_loss(b));
    return bench_arrays(b);
}

static plait_status set_up(bench *b, plait_arena *arena)
{
    const size_t n = (size_t)N * V;
    b->elem = (double)plait_dtype_size(b->k->dtype);
    b->ex.k = b->k;
    b->ex.scratch_bytes = 32 << 20;
    PLAIT_TRY(plait_arena_take(arena, b->ex.scratch_bytes, &b->ex.scratch));
    void *p = NULL;
    for (int i = 0; i < 8; i++) {
        PLAIT_TRY(plait_arena_take(arena, n * sizeof(float), &p));
        b->buffer[i] = p;
    }
    PLAIT_TRY(plait_arena_take(arena, N * sizeof(int32_t), &p));
    b->tokens = p;
    for (int32_t i = 0; i < N; i++)
        b->tokens[i] = i * 31 % V;
    return PLAIT_OK;
}

static const plait_kernels *table_of(const char *dtype, const char *isa)
{
    plait_dtype d = strcmp(dtype, "bf16") == 0 ? PLAIT_BF16 : strcmp(dtype, "fp16") == 0 ? PLAIT_FP16 : PLAIT_FP32;
    if (strcmp(isa, "portable") == 0)
        return plait_kernels_cpu_portable(d);
    return plait_kernels_cpu(d, strcmp(isa, "avx2") == 0     ? PLAIT_ISA_AVX2
                                : strcmp(isa, "avx512") == 0 ? PLAIT_ISA_AVX512
                                                             : PLAIT_ISA_AUTO);
}

int main(int argc, char **argv)
{
    static plait_ledger ledger;
    static bench b;
    plait_arena *arena = NULL;
    b.k = table_of(argc > 1 ? argv[1] : "fp32", argc > 3 ? argv[3] : "auto");
    b.ex.threads = argc > 2 ? atoi(argv[2]) : 1;
    if (!b.k || b.ex.threads < 1) {
        fprintf(stderr, "usage: bench_kernels [fp32|bf16|fp16] [threads] [avx2|avx512|portable]\n");
        return 2;
    }
    printf("%s %s, %d threads\n", b.k->name, plait_dtype_name(b.k->dtype), b.ex.threads);
    plait_status st = plait_arena_create(plait_host_allocator(), &ledger, PLAIT_TIER_HOST, PLAIT_MEM_WORK,
                                         ((size_t)N * V * 8 + (17 << 20)) * sizeof(float), &arena);
    if (st == PLAIT_OK)
        st = set_up(&b, arena);
    if (st == PLAIT_OK)
        st = run_all(&b);
    if (st != PLAIT_OK)
        fprintf(stderr, "%s\n", plait_error_text());
    plait_arena_destroy(arena);
    return plait_status_exit_code(st);
}
