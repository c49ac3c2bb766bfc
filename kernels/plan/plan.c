#include "kernels/plan/plan.h"

#include <assert.h>
#include <string.h>

static _Thread_local struct {
    plait_op_listener listener;
    void *self;
} ear;

static const char *const names[PLAIT_OPS] = {
#define NAME(op) #op,
    PLAIT_KERNELS_OPS(NAME)
#undef NAME
};

const char *plait_op_name(plait_op op)
{
    return (unsigned)op < PLAIT_OPS ? names[op] : "?";
}

plait_op plait_op_find(const char *name)
{
    int op = 0;
    while (op < PLAIT_OPS && strcmp(names[op], name) != 0)
        op++;
    return (plait_op)op;
}

void plait_plan_listen(plait_op_listener listener, void *self)
{
    ear.listener = listener;
    ear.self = self;
}

/* ---- what a call says ---- */

static plait_status tell(const plait_op_record *r)
{
    if (ear.listener)
        ear.listener(ear.self, r);
    return PLAIT_OK;
}

/* An operation that memory bounds, over a matrix of m x n. */
static plait_status moves(plait_op op, plait_dtype dtype, int64_t m, int64_t n, double read, double written)
{
    const plait_op_record r = {
        .op = op, .dtype = dtype, .m = m, .n = n, .k = 1, .bytes_read = read, .bytes_written = written};
    return tell(&r);
}

/* Bytes of n elements of T, of A, of an int32 or int64. */
static double in_t(const plait_exec *ex, int64_t n)
{
    return (double)n * (double)plait_dtype_size(ex->k->dtype);
}
static double in_a(const plait_exec *ex, int64_t n)
{
    return (double)n * (double)plait_dtype_size(ex->k->acc);
}
static double in_int32(int64_t n)
{
    return (double)n * sizeof(int32_t);
}
static double in_int64(int64_t n)
{
    return (double)n * sizeof(int64_t);
}

/* ---- products ---- */

static plait_status note_gemm(const plait_exec *ex, const plait_gemm *g)
{
    const double c = g->c_acc ? in_a(ex, g->m * g->n) : in_t(ex, g->m * g->n);
    const double factors = in_t(ex, g->m * g->k) + in_t(ex, g->k * g->n) + (g->bias ? in_t(ex, g->n) : 0);
    const double sums = g->bias_grad ? in_a(ex, g->m) : 0;
    const plait_op_record r = {.op = PLAIT_OP_gemm,
                               .dtype = ex->k->dtype,
                               .m = g->m,
                               .n = g->n,
                               .k = g->k,
                               .trans_a = g->trans_a,
                               .trans_b = g->trans_b,
                               .flops = 2.0 * (double)g->m * (double)g->n * (double)g->k,
                               .bytes_read = factors + (g->accumulate ? c : 0) + (g->dgelu ? c : 0) + sums,
                               .bytes_written = c + (g->gelu ? c : 0) + sums};
    return tell(&r);
}

/* `products` of (seq, seq, head_dim) for each head, of which the mask leaves half. */
static plait_status note_attention(const plait_exec *ex, const plait_attention *a, plait_op op, int products)
{
    const int64_t tokens = a->batch * a->seq, width = a->heads * a->head_dim, kv_width = a->kv_heads * a->head_dim;
    const double q = in_t(ex, tokens * width), kv = in_t(ex, 2 * tokens * kv_width);
    const double lse = in_a(ex, tokens * a->heads);
    const bool backward = op == PLAIT_OP_attention_bwd;
    const plait_op_record r = {.op = op,
                               .dtype = ex->k->dtype,
                               .m = a->batch * a->heads,
                               .n = a->seq,
                               .k = a->head_dim,
                               .flops = products * (double)(a->batch * a->heads) * (double)a->seq * (double)a->seq *
                                        (double)a->head_dim,
                               .bytes_read = q + kv + (backward ? 2 * q + lse : 0),
                               .bytes_written = q + (backward ? kv : lse)};
    return tell(&r);
}

static plait_status note_attention_fwd(const plait_exec *ex, const plait_attention *a)
{
    return note_attention(ex, a, PLAIT_OP_attention_fwd, 2);
}

static plait_status note_attention_bwd(const plait_exec *ex, const plait_attention *a)
{
    return note_attention(ex, a, PLAIT_OP_attention_bwd, 5);
}

/* ---- all others: NOTE(operation, its arguments, rows, columns, bytes read, bytes written) ---- */

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define ARGS(...) __VA_ARGS__
#define NOTE(op, args, m, n, read, written)                                                                            \
    static plait_status note_##op(const plait_exec *ex, args)                                                          \
    {                                                                                                                  \
        return moves(PLAIT_OP_##op, ex->k->dtype, m, n, read, written);                                                \
    }

NOTE(embedding_fwd,
     ARGS(void *y, const int32_t *tokens, const void *table, int64_t row0, int64_t rows, int64_t N, int64_t C), N, C,
     in_int32(N) + in_t(ex, N *C), in_t(ex, N *C))
NOTE(embedding_bwd,
     ARGS(void *dtable, const int32_t *tokens, const void *dy, int64_t row0, int64_t rows, int64_t N, int64_t C), N, C,
     in_int32(N) + in_t(ex, N *C) + in_a(ex, N *C), in_a(ex, N *C))
NOTE(position_fwd, ARGS(void *y, const void *pos, int64_t seq, int64_t batch, int64_t C), seq *batch, C,
     in_t(ex, seq *batch *C) + in_t(ex, seq *C), in_t(ex, seq *batch *C))
NOTE(position_bwd, ARGS(void *dpos, const void *dy, int64_t seq, int64_t batch, int64_t C), seq *batch, C,
     in_t(ex, seq *batch *C) + in_a(ex, seq *C), in_a(ex, seq *C))

NOTE(layernorm_fwd,
     ARGS(void *y, void *mean, void *rstd, const void *x, const void *w, const void *b, int64_t N, int64_t C,
          double eps),
     N, C, in_t(ex, N *C + 2 * C), in_t(ex, N *C) + in_a(ex, 2 * N))
NOTE(layernorm_bwd,
     ARGS(void *dx, void *dw, void *db, const void *dy, const void *dres, const void *x, const void *w,
          const void *mean, const void *rstd, int64_t N, int64_t C),
     N, C, in_t(ex, (dres ? 3 : 2) * N * C + C) + in_a(ex, 2 * N) + (dw ? in_a(ex, 2 * C) : 0),
     (dx ? in_t(ex, N *C) : 0) + (dw ? in_a(ex, 2 * C) : 0))
NOTE(rmsnorm_fwd, ARGS(void *y, void *rstd, const void *x, const void *w, int64_t N, int64_t C, double eps), N, C,
     in_t(ex, N *C + C), in_t(ex, N *C) + in_a(ex, N))
NOTE(rmsnorm_bwd,
     ARGS(void *dx, void *dw, const void *dy, const void *dres, const void *x, const void *w, const void *rstd,
          int64_t N, int64_t C),
     N, C, in_t(ex, (dres ? 3 : 2) * N * C + C) + in_a(ex, N) + (dw ? in_a(ex, C) : 0),
     (dx ? in_t(ex, N *C) : 0) + (dw ? in_a(ex, C) : 0))

NOTE(rope_table, ARGS(void *table, int64_t seq, int64_t D, double base), seq, D, 0, in_a(ex, seq *D))
NOTE(rope,
     ARGS(void *x, int64_t ldx, const void *table, int64_t seq, int64_t batch, int64_t heads, int64_t D, bool inverse),
     seq *batch, heads *D, in_t(ex, seq *batch *heads *D) + in_a(ex, seq *D), in_t(ex, seq *batch *heads *D))

NOTE(gelu_fwd, ARGS(void *y, const void *x, int64_t n), 1, n, in_t(ex, n), in_t(ex, n))
NOTE(gelu_bwd, ARGS(void *dx, const void *dy, const void *x, int64_t n), 1, n, in_t(ex, 2 * n), in_t(ex, n))
NOTE(swiglu_fwd, ARGS(void *y, const void *gate_up, int64_t N, int64_t F), N, F, in_t(ex, 2 * N * F), in_t(ex, N *F))
NOTE(swiglu_bwd, ARGS(void *d_gate_up, const void *dy, const void *gate_up, int64_t N, int64_t F), N, F,
     in_t(ex, 3 * N * F), in_t(ex, 2 * N * F))

NOTE(bias_dropout_add_fwd,
     ARGS(void *y, const void *x, const void *bias, const void *residual, const plait_dropout *drop, int64_t N,
          int64_t C),
     N, C, in_t(ex, (residual ? 2 : 1) * N * C + (bias ? C : 0)), in_t(ex, N *C))
NOTE(bias_dropout_add_bwd, ARGS(void *dx, void *dbias, const void *dy, const plait_dropout *drop, int64_t N, int64_t C),
     N, C, in_t(ex, N *C) + (dbias ? in_a(ex, C) : 0), (dx ? in_t(ex, N *C) : 0) + (dbias ? in_a(ex, C) : 0))
NOTE(bias_grad, ARGS(void *db, const void *dy, int64_t N, int64_t C), N, C, in_t(ex, N *C) + in_a(ex, C), in_a(ex, C))

NOTE(cross_entropy_max, ARGS(const plait_cross_entropy *c), c->rows, c->cols,
     in_a(ex, c->rows * c->cols + (c->raise ? c->rows : 0)), in_a(ex, c->rows))
NOTE(cross_entropy_sum, ARGS(const plait_cross_entropy *c), c->rows, c->cols,
     in_a(ex, c->rows * c->cols + c->rows) + in_int32(c->rows), in_a(ex, 2 * c->rows))
NOTE(cross_entropy_loss, ARGS(double *loss, const plait_cross_entropy *c), c->rows, 1,
     in_a(ex, 2 * c->rows) + in_int32(c->rows) + sizeof(double), sizeof(double))
NOTE(cross_entropy_grad, ARGS(const plait_cross_entropy *c, double scale), c->rows, c->cols,
     in_a(ex, c->rows * c->cols + 2 * c->rows) + in_int32(c->rows), in_t(ex, c->rows * c->cols))

NOTE(adamw, ARGS(void *param, void *master, void *m, void *v, const void *grad, int64_t n, const plait_adamw *h), 1, n,
     in_a(ex, 4 * n), in_a(ex, 3 * n) + (param ? in_t(ex, n) : 0))
NOTE(sgd, ARGS(void *param, void *master, void *buf, const void *grad, int64_t n, const plait_sgd *h), 1, n,
     in_a(ex, (buf ? 3 : 2) * n), in_a(ex, (buf ? 2 : 1) * n) + (param ? in_t(ex, n) : 0))
NOTE(unscale, ARGS(void *x, double scale, int64_t n, int32_t *found_inf), 1, n, in_a(ex, n), in_a(ex, n))
NOTE(sum_squares, ARGS(double *sum, const void *x, int64_t n), 1, n, in_a(ex, n), sizeof(double))

NOTE(fixed_add, ARGS(int64_t *sum, const void *x, double scale, double limit, int64_t n, int32_t *overflow), 1, n,
     in_a(ex, n) + in_int64(n), in_int64(n))
NOTE(fixed_read, ARGS(void *y, const int64_t *sum, int64_t n), 1, n, in_int64(n), in_a(ex, n))
NOTE(fixed_squares, ARGS(plait_fixed_squares *total, const void *x, int64_t n, int32_t *overflow), 1, n, in_a(ex, n),
     sizeof(plait_fixed_squares))
NOTE(hash, ARGS(uint64_t *out, const void *x, int64_t rows, size_t row_bytes, size_t stride), rows, (int64_t)row_bytes,
     (double)rows *(double)row_bytes, sizeof(uint64_t))
NOTE(zero, ARGS(void *p, size_t bytes), 1, (int64_t)bytes, 0, (double)bytes)
NOTE(copy, ARGS(void *dst, const void *src, size_t bytes), 1, (int64_t)bytes, (double)bytes, (double)bytes)

/* These work on types of their own. */
static plait_status note_cast(const plait_exec *ex, void *dst, plait_dtype to, const void *src, plait_dtype from,
                              int64_t n)
{
    return moves(PLAIT_OP_cast, to, 1, n, (double)n * (double)plait_dtype_size(from),
                 (double)n * (double)plait_dtype_size(to));
}

static plait_status note_add(const plait_exec *ex, void *y, const void *x, plait_dtype dtype, int64_t n)
{
    const double bytes = (double)n * (double)plait_dtype_size(dtype);
    return moves(PLAIT_OP_add, dtype, 1, n, 2 * bytes, bytes);
}

/* ---- tables ---- */

#define SLOT(op) .op = note_##op,
#define TABLE(type, accumulate, more)                                                                                  \
    {                                                                                                                  \
        .name = "plan", .dtype = type, .acc = accumulate, .epilogues = more, PLAIT_KERNELS_OPS(SLOT)                   \
    }
#define TABLES(more)                                                                                                   \
    {                                                                                                                  \
        [PLAIT_FP32] = TABLE(PLAIT_FP32, PLAIT_FP32, more), [PLAIT_BF16] = TABLE(PLAIT_BF16, PLAIT_FP32, more),        \
        [PLAIT_FP16] = TABLE(PLAIT_FP16, PLAIT_FP32, more), [PLAIT_FP64] = TABLE(PLAIT_FP64, PLAIT_FP64, more),        \
    }

const plait_kernels *plait_kernels_plan(plait_dtype dtype, plait_backend_choice backend)
{
    static const plait_kernels host[] = TABLES(false), cuda[] = TABLES(true);
    assert((size_t)dtype < sizeof host / sizeof *host);
    return backend == PLAIT_BACKEND_CUDA ? &cuda[dtype] : &host[dtype];
}
