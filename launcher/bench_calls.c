#include "launcher/bench_calls.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/backend.h"

/* Flat operations take `FLAT` elements a row, so that few bytes are possible too. */
enum { FLAT = 64, HEAD = 64, TOKENS = 1 << 20 };

/* ---- operands ---- */

static void *take(plait_bench_ring *r, size_t bytes)
{
    void *at = r->base + r->at;
    r->at += (bytes + PLAIT_MEM_ALIGN - 1) / PLAIT_MEM_ALIGN * PLAIT_MEM_ALIGN;
    return at;
}

static const void *in(plait_bench_calls *c, plait_dtype dtype, int64_t n)
{
    return take(&c->read, (size_t)n * plait_dtype_size(dtype));
}

static void *out(plait_bench_calls *c, plait_dtype dtype, int64_t n)
{
    return take(&c->written, (size_t)n * plait_dtype_size(dtype));
}

/* n elements of the table's type, of its type of sums. */
static const void *in_t(plait_bench_calls *c, int64_t n)
{
    return in(c, c->ex.k->dtype, n);
}

static const void *in_a(plait_bench_calls *c, int64_t n)
{
    return in(c, c->ex.k->acc, n);
}

static void *out_t(plait_bench_calls *c, int64_t n)
{
    return out(c, c->ex.k->dtype, n);
}

static void *out_a(plait_bench_calls *c, int64_t n)
{
    return out(c, c->ex.k->acc, n);
}

/* ---- a call of each operation ---- */

#define CALL(op) static plait_status call_##op(plait_bench_calls *c, const plait_exec *ex, const plait_bench_call *s)

CALL(gemm)
{
    plait_gemm g = {.trans_a = s->trans_a,
                    .trans_b = s->trans_b,
                    .m = s->m,
                    .n = s->n,
                    .k = s->k,
                    .a = in_t(c, s->m * s->k),
                    .lda = s->trans_a ? s->m : s->k,
                    .b = in_t(c, s->k * s->n),
                    .ldb = s->trans_b ? s->k : s->n,
                    .c = s->trans_a ? out_a(c, s->m * s->n) : out_t(c, s->m * s->n),
                    .ldc = s->n,
                    .c_acc = s->trans_a,
                    .accumulate = s->trans_a};
    if (s->epilogue && s->trans_a) {
        g.bias_grad = out_a(c, s->m);
    } else if (s->epilogue && s->trans_b) {
        g.bias = in_t(c, s->n);
        g.gelu = out_t(c, s->m * s->n);
    } else if (s->epilogue) {
        g.dgelu = in_t(c, s->m * s->n);
    }
    return ex->k->gemm(ex, &g);
}

CALL(embedding_fwd)
{
    return ex->k->embedding_fwd(ex, out_t(c, s->m * s->n), c->tokens, in_t(c, s->k * s->n), 0, s->k, s->m, s->n);
}

CALL(embedding_bwd)
{
    return ex->k->embedding_bwd(ex, out_a(c, s->k * s->n), c->tokens, in_t(c, s->m * s->n), 0, s->k, s->m, s->n);
}

CALL(position_fwd)
{
    return ex->k->position_fwd(ex, out_t(c, s->m * s->n), in_t(c, s->m * s->n), s->m, 1, s->n);
}

CALL(position_bwd)
{
    return ex->k->position_bwd(ex, out_a(c, s->m * s->n), in_t(c, s->m * s->n), s->m, 1, s->n);
}

CALL(layernorm_fwd)
{
    return ex->k->layernorm_fwd(ex, out_t(c, s->m * s->n), out_a(c, s->m), out_a(c, s->m), in_t(c, s->m * s->n),
                                in_t(c, s->n), in_t(c, s->n), s->m, s->n, 1e-5);
}

CALL(layernorm_bwd)
{
    return ex->k->layernorm_bwd(ex, out_t(c, s->m * s->n), out_a(c, s->n), out_a(c, s->n), in_t(c, s->m * s->n),
                                in_t(c, s->m * s->n), in_t(c, s->m * s->n), in_t(c, s->n), in_a(c, s->m), in_a(c, s->m),
                                s->m, s->n);
}

CALL(rmsnorm_fwd)
{
    return ex->k->rmsnorm_fwd(ex, out_t(c, s->m * s->n), out_a(c, s->m), in_t(c, s->m * s->n), in_t(c, s->n), s->m,
                              s->n, 1e-5);
}

CALL(rmsnorm_bwd)
{
    return ex->k->rmsnorm_bwd(ex, out_t(c, s->m * s->n), out_a(c, s->n), in_t(c, s->m * s->n), in_t(c, s->m * s->n),
                              in_t(c, s->m * s->n), in_t(c, s->n), in_a(c, s->m), s->m, s->n);
}

CALL(rope_table)
{
    return ex->k->rope_table(ex, out_a(c, s->m * HEAD), s->m, HEAD, 1e4);
}

CALL(rope)
{
    return ex->k->rope(ex, out_t(c, s->m * s->n), s->n, in_a(c, s->m * HEAD), s->m, 1, s->n / HEAD, HEAD, false);
}

/* One sequence; query, key and value interleaved as in the model. */
static plait_attention attention_of(plait_bench_calls *c, const plait_bench_call *s)
{
    const int64_t width = s->m * s->k;
    const char *qkv = in_t(c, s->n * 3 * width);
    const int64_t stride = width * (int64_t)plait_dtype_size(c->ex.k->dtype);
    const plait_attention a = {.batch = 1,
                               .seq = s->n,
                               .heads = s->m,
                               .kv_heads = s->m,
                               .head_dim = s->k,
                               .scale = 1 / sqrt((double)s->k),
                               .q = qkv,
                               .k = qkv + stride,
                               .v = qkv + 2 * stride,
                               .ldq = 3 * width,
                               .ldk = 3 * width,
                               .ldv = 3 * width,
                               .ldo = width,
                               .lddo = width,
                               .lddq = 3 * width,
                               .lddk = 3 * width,
                               .lddv = 3 * width};
    return a;
}

CALL(attention_fwd)
{
    plait_attention a = attention_of(c, s);
    a.o = out_t(c, s->n * s->m * s->k);
    a.lse = out_a(c, s->n * s->m);
    return ex->k->attention_fwd(ex, &a);
}

CALL(attention_bwd)
{
    plait_attention a = attention_of(c, s);
    const int64_t all = s->n * s->m * s->k, stride = s->m * s->k * (int64_t)plait_dtype_size(c->ex.k->dtype);
    char *d_qkv = out_t(c, 3 * all);
    a.o = (void *)(uintptr_t)in_t(c, all); /* backward only reads it */
    a.lse = (void *)(uintptr_t)in_a(c, s->n * s->m);
    a.d_o = in_t(c, all);
    a.dq = d_qkv;
    a.dk = d_qkv + stride;
    a.dv = d_qkv + 2 * stride;
    return ex->k->attention_bwd(ex, &a);
}

CALL(gelu_fwd)
{
    return ex->k->gelu_fwd(ex, out_t(c, s->m * FLAT), in_t(c, s->m * FLAT), s->m * FLAT);
}

CALL(gelu_bwd)
{
    return ex->k->gelu_bwd(ex, out_t(c, s->m * FLAT), in_t(c, s->m * FLAT), in_t(c, s->m * FLAT), s->m * FLAT);
}

CALL(swiglu_fwd)
{
    return ex->k->swiglu_fwd(ex, out_t(c, s->m * s->n), in_t(c, s->m * 2 * s->n), s->m, s->n);
}

CALL(swiglu_bwd)
{
    return ex->k->swiglu_bwd(ex, out_t(c, s->m * 2 * s->n), in_t(c, s->m * s->n), in_t(c, s->m * 2 * s->n), s->m, s->n);
}

CALL(bias_dropout_add_fwd)
{
    return ex->k->bias_dropout_add_fwd(ex, out_t(c, s->m * s->n), in_t(c, s->m * s->n), in_t(c, s->n),
                                       in_t(c, s->m * s->n), NULL, s->m, s->n);
}

CALL(bias_dropout_add_bwd)
{
    return ex->k->bias_dropout_add_bwd(ex, out_t(c, s->m * s->n), out_a(c, s->n), in_t(c, s->m * s->n), NULL, s->m,
                                       s->n);
}

CALL(bias_grad)
{
    return ex->k->bias_grad(ex, out_a(c, s->n), in_t(c, s->m * s->n), s->m, s->n);
}

/* A row for each of m tokens, over a vocabulary; row_max is there, the rest is filled. */
static plait_cross_entropy cross_entropy_of(plait_bench_calls *c, const plait_bench_call *s)
{
    const plait_cross_entropy e = {.rows = s->m,
                                   .cols = s->k,
                                   .valid = s->k,
                                   .targets = c->tokens,
                                   .row_max = out_a(c, s->m),
                                   .row_sum = out_a(c, s->m),
                                   .row_target = out_a(c, s->m)};
    return e;
}

/* What is read and not changed has no const in the record. */
static void *logits(plait_bench_calls *c, const plait_bench_call *s)
{
    return (void *)(uintptr_t)in_a(c, s->m * s->k);
}

CALL(cross_entropy_max)
{
    plait_cross_entropy e = cross_entropy_of(c, s);
    e.logits = logits(c, s);
    return ex->k->cross_entropy_max(ex, &e);
}

CALL(cross_entropy_sum)
{
    plait_cross_entropy e = cross_entropy_of(c, s);
    e.logits = logits(c, s);
    return ex->k->cross_entropy_sum(ex, &e);
}

/* Reads the sums alone, of which zeros would have no logarithm. */
CALL(cross_entropy_loss)
{
    plait_cross_entropy e = cross_entropy_of(c, s);
    e.row_sum = (void *)(uintptr_t)in_a(c, s->m);
    e.row_target = (void *)(uintptr_t)in_a(c, s->m);
    return ex->k->cross_entropy_loss(ex, out(c, PLAIT_FP64, 1), &e);
}

CALL(cross_entropy_grad)
{
    plait_cross_entropy e = cross_entropy_of(c, s);
    e.logits = out_a(c, s->m * s->k);
    e.row_sum = (void *)(uintptr_t)in_a(c, s->m);
    return ex->k->cross_entropy_grad(ex, &e, 1e-3);
}

CALL(adamw)
{
    static const plait_adamw h = {1e-3, 0.9, 0.95, 1e-8, 0.1, 0.1, 0.05, 1.0};
    const int64_t n = s->m * FLAT;
    return ex->k->adamw(ex, ex->k->dtype == ex->k->acc ? NULL : out_t(c, n), out_a(c, n), out_a(c, n), out_a(c, n),
                        in_a(c, n), n, &h);
}

CALL(sgd)
{
    static const plait_sgd h = {1e-3, 0.9, 0.1, 1.0};
    const int64_t n = s->m * FLAT;
    return ex->k->sgd(ex, ex->k->dtype == ex->k->acc ? NULL : out_t(c, n), out_a(c, n), out_a(c, n), in_a(c, n), n, &h);
}

CALL(unscale)
{
    return ex->k->unscale(ex, out_a(c, s->m * FLAT), 1.0, s->m * FLAT, out(c, PLAIT_INT32, 1));
}

CALL(sum_squares)
{
    return ex->k->sum_squares(ex, out(c, PLAIT_FP64, 1), in_a(c, s->m * FLAT), s->m * FLAT);
}

CALL(fixed_add)
{
    const double scale = 1 << 20, limit = 1 << 10;
    return ex->k->fixed_add(ex, out(c, PLAIT_INT64, s->m * FLAT), in(c, PLAIT_FP32, s->m * FLAT), scale, limit,
                            s->m * FLAT, out(c, PLAIT_INT32, 1));
}

CALL(fixed_read)
{
    return ex->k->fixed_read(ex, out(c, PLAIT_FP32, s->m * FLAT), in(c, PLAIT_INT64, s->m * FLAT), s->m * FLAT);
}

CALL(fixed_squares)
{
    plait_fixed_squares *total = take(&c->written, sizeof *total);
    return ex->k->fixed_squares(ex, total, in(c, PLAIT_FP32, s->m * FLAT), s->m * FLAT, out(c, PLAIT_INT32, 1));
}

CALL(hash)
{
    const size_t row = (size_t)s->n * plait_dtype_size(c->ex.k->dtype);
    return ex->k->hash(ex, &c->hash, in_t(c, s->m * s->n), s->m, row, row);
}

CALL(cast)
{
    const plait_dtype from = s->dtype == PLAIT_FP32 ? PLAIT_BF16 : PLAIT_FP32;
    return ex->k->cast(ex, out(c, s->dtype, s->m * FLAT), s->dtype, in(c, from, s->m * FLAT), from, s->m * FLAT);
}

CALL(add)
{
    return ex->k->add(ex, out(c, s->dtype, s->m * FLAT), in(c, s->dtype, s->m * FLAT), s->dtype, s->m * FLAT);
}

CALL(zero)
{
    return ex->k->zero(ex, out_t(c, s->m * FLAT), (size_t)(s->m * FLAT) * plait_dtype_size(c->ex.k->dtype));
}

CALL(copy)
{
    return ex->k->copy(ex, out_t(c, s->m * FLAT), in_t(c, s->m * FLAT),
                       (size_t)(s->m * FLAT) * plait_dtype_size(c->ex.k->dtype));
}

typedef plait_status (*call)(plait_bench_calls *c, const plait_exec *ex, const plait_bench_call *s);

static call call_of(plait_op op)
{
#define OP(op) call_##op,
    static const call calls[PLAIT_OPS] = {PLAIT_KERNELS_OPS(OP)};
#undef OP
    return calls[op];
}

/* ---- memory and numbers ---- */

plait_status plait_bench_calls_init(plait_bench_calls *c, const plait_exec *ex, plait_arena *arena, size_t ring)
{
    *c = (plait_bench_calls){.ex = *ex};
    void *p = NULL;
    PLAIT_TRY(plait_arena_take(arena, ring, &p));
    c->read = (plait_bench_ring){p, ring, 0};
    PLAIT_TRY(plait_arena_take(arena, ring, &p));
    c->written = (plait_bench_ring){p, ring, 0};
    PLAIT_TRY(plait_arena_take(arena, TOKENS * sizeof(int32_t), &p));
    c->tokens = p;
    int32_t *words = malloc(TOKENS * sizeof *words);
    if (!words)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for %d words", TOKENS);
    for (int64_t i = 0; i < TOKENS; i++)
        words[i] = (int32_t)(i * 4099 % PLAIT_BENCH_LEAST_VOCABULARY);
    plait_status st = plait_upload(ex, c->tokens, words, TOKENS * sizeof *words);
    if (st == PLAIT_OK)
        st = plait_finish(ex);
    free(words);
    return st;
}

/* Numbers between 1/4 and 3/4: as one of them, or as two of 16 bits that are read as a float, never a denormal, which
 * would be slow, and never below 0, which has no logarithm. */
plait_status plait_bench_calls_set_table(plait_bench_calls *c, const plait_kernels *k)
{
    enum { PART = 1 << 14 };
    static float numbers[PART], part[PART];
    c->ex.k = k;
    for (int i = 0; i < PART; i++)
        numbers[i] = 0.25f + 0.5f * (float)(i * 7919 % 1009) / 1009;
    PLAIT_TRY(plait_host_cast(part, k->dtype, numbers, PLAIT_FP32, PART));
    const int64_t all = (int64_t)(c->read.bytes / plait_dtype_size(k->dtype));
    for (int64_t at = 0; at < all; at += PART)
        PLAIT_TRY(plait_upload(&c->ex, plait_at(c->read.base, k->dtype, at), part,
                               (size_t)(all - at < PART ? all - at : PART) * plait_dtype_size(k->dtype)));
    return plait_finish(&c->ex);
}

plait_status plait_bench_calls_clear(plait_bench_calls *c)
{
    return c->ex.k->zero(&c->ex, c->written.base, c->written.bytes);
}

static void keep_record(void *self, const plait_op_record *r)
{
    *(plait_op_record *)self = *r;
}

plait_status plait_bench_calls_prepare(plait_bench_calls *c, const plait_bench_call *call, plait_op_record *work)
{
    c->call = *call;
    c->read.at = c->written.at = 0;
    plait_exec plan = c->ex;
    plan.k = plait_kernels_plan(c->ex.k->dtype, PLAIT_BACKEND_AUTO);
    *work = (plait_op_record){.op = PLAIT_OPS};
    plait_plan_listen(keep_record, work);
    const plait_status st = call_of(call->op)(c, &plan, &c->call);
    plait_plan_listen(NULL, NULL);
    PLAIT_TRY(st);
    c->call.read = c->read.at;
    c->call.written = c->written.at;
    if (work->op != call->op)
        PLAIT_FAIL(INTERNAL, "a call of %s says %s", plait_op_name(call->op), plait_op_name(work->op));
    return PLAIT_OK;
}

plait_status plait_bench_calls_of_bytes(plait_bench_calls *c, plait_op op, plait_dtype dtype, int64_t columns,
                                        int64_t vocabulary, double bytes, plait_op_record *work)
{
    enum { SOME = 257, MOST = 1 << 20 };
    plait_op_record one, some;
    plait_bench_call call = {.op = op, .m = 1, .n = columns, .k = vocabulary, .dtype = dtype};
    PLAIT_TRY(plait_bench_calls_prepare(c, &call, &one));
    call.m = SOME;
    PLAIT_TRY(plait_bench_calls_prepare(c, &call, &some));
    const double of_row = (plait_bench_bytes(&some) - plait_bench_bytes(&one)) / (SOME - 1);
    const double fit = 1 + (bytes - plait_bench_bytes(&one)) / of_row;
    call.m = fit < 1 ? 1 : fit > MOST ? MOST : (int64_t)fit;
    return plait_bench_calls_prepare(c, &call, work);
}

plait_status plait_bench_calls_run(void *calls)
{
    plait_bench_calls *c = calls;
    if (c->call.read > c->read.bytes || c->call.written > c->written.bytes)
        PLAIT_FAIL(INTERNAL, "a call of %s takes %zu and %zu bytes, the rings have %zu and %zu",
                   plait_op_name(c->call.op), c->call.read, c->call.written, c->read.bytes, c->written.bytes);
    if (c->read.at + c->call.read > c->read.bytes)
        c->read.at = 0;
    if (c->written.at + c->call.written > c->written.bytes)
        c->written.at = 0;
    return call_of(c->call.op)(c, &c->ex, &c->call);
}
