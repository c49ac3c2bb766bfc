#include "kernels/plan/plan.h"

#include <assert.h>

static _Thread_local plait_plan_counts counts;

const char *plait_op_name(plait_op op)
{
#define NAME(op) #op,
    static const char *const names[PLAIT_OPS] = {PLAIT_KERNELS_OPS(NAME)};
#undef NAME
    return (unsigned)op < PLAIT_OPS ? names[op] : "?";
}

plait_plan_counts plait_plan_read(void)
{
    return counts;
}

void plait_plan_reset(void)
{
    counts = (plait_plan_counts){0};
}

static plait_status count_gemm(const plait_exec *ex, const plait_gemm *g)
{
    (void)ex;
    counts.calls[PLAIT_OP_gemm]++;
    counts.gemm_flops += 2.0 * (double)g->m * (double)g->n * (double)g->k;
    return PLAIT_OK;
}

/* All others ignore their arguments. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define COUNT(op, ...)                                                                                                 \
    static plait_status count_##op(const plait_exec *ex, __VA_ARGS__)                                                  \
    {                                                                                                                  \
        counts.calls[PLAIT_OP_##op]++;                                                                                 \
        return PLAIT_OK;                                                                                               \
    }

COUNT(embedding_fwd, void *y, const int32_t *tokens, const void *table, int64_t row0, int64_t rows, int64_t N,
      int64_t C)
COUNT(embedding_bwd, void *dtable, const int32_t *tokens, const void *dy, int64_t row0, int64_t rows, int64_t N,
      int64_t C)
COUNT(position_fwd, void *y, const void *pos, int64_t seq, int64_t batch, int64_t C)
COUNT(position_bwd, void *dpos, const void *dy, int64_t seq, int64_t batch, int64_t C)
COUNT(layernorm_fwd, void *y, void *mean, void *rstd, const void *x, const void *w, const void *b, int64_t N, int64_t C,
      double eps)
COUNT(layernorm_bwd, void *dx, void *dw, void *db, const void *dy, const void *dres, const void *x, const void *w,
      const void *mean, const void *rstd, int64_t N, int64_t C)
COUNT(rmsnorm_fwd, void *y, void *rstd, const void *x, const void *w, int64_t N, int64_t C, double eps)
COUNT(rmsnorm_bwd, void *dx, void *dw, const void *dy, const void *dres, const void *x, const void *w, const void *rstd,
      int64_t N, int64_t C)
COUNT(rope_table, void *table, int64_t seq, int64_t D, double base)
COUNT(rope, void *x, int64_t ldx, const void *table, int64_t seq, int64_t batch, int64_t heads, int64_t D, bool inverse)
COUNT(attention_fwd, const plait_attention *a)
COUNT(attention_bwd, const plait_attention *a)
COUNT(gelu_fwd, void *y, const void *x, int64_t n)
COUNT(gelu_bwd, void *dx, const void *dy, const void *x, int64_t n)
COUNT(swiglu_fwd, void *y, const void *gate_up, int64_t N, int64_t F)
COUNT(swiglu_bwd, void *d_gate_up, const void *dy, const void *gate_up, int64_t N, int64_t F)
COUNT(bias_dropout_add_fwd, void *y, const void *x, const void *bias, const void *residual, const plait_dropout *drop,
      int64_t N, int64_t C)
COUNT(bias_dropout_add_bwd, void *dx, void *dbias, const void *dy, const plait_dropout *drop, int64_t N, int64_t C)
COUNT(bias_grad, void *db, const void *dy, int64_t N, int64_t C)
COUNT(cross_entropy_max, const plait_cross_entropy *c)
COUNT(cross_entropy_sum, const plait_cross_entropy *c)
COUNT(cross_entropy_loss, double *loss, const plait_cross_entropy *c)
COUNT(cross_entropy_grad, const plait_cross_entropy *c, double scale)
COUNT(adamw, void *param, void *master, void *m, void *v, const void *grad, int64_t n, const plait_adamw *h)
COUNT(sgd, void *param, void *master, void *buf, const void *grad, int64_t n, const plait_sgd *h)
COUNT(unscale, void *x, double scale, int64_t n, int32_t *found_inf)
COUNT(sum_squares, double *sum, const void *x, int64_t n)
COUNT(fixed_add, int64_t *sum, const void *x, double scale, double limit, int64_t n, int32_t *overflow)
COUNT(fixed_read, void *y, const int64_t *sum, int64_t n)
COUNT(fixed_squares, plait_fixed_squares *total, const void *x, int64_t n, int32_t *overflow)
COUNT(hash, uint64_t *out, const void *x, int64_t rows, size_t row_bytes, size_t stride)
COUNT(cast, void *dst, plait_dtype to, const void *src, plait_dtype from, int64_t n)
COUNT(add, void *y, const void *x, plait_dtype dtype, int64_t n)
COUNT(zero, void *p, size_t bytes)
COUNT(copy, void *dst, const void *src, size_t bytes)

#define SLOT(op) .op = count_##op,
#define TABLE(type, accumulate)                                                                                        \
    {                                                                                                                  \
        .name = "plan", .dtype = type, .acc = accumulate, PLAIT_KERNELS_OPS(SLOT)                                      \
    }

const plait_kernels *plait_kernels_plan(plait_dtype dtype)
{
    static const plait_kernels tables[] = {
        [PLAIT_FP32] = TABLE(PLAIT_FP32, PLAIT_FP32),
        [PLAIT_BF16] = TABLE(PLAIT_BF16, PLAIT_FP32),
        [PLAIT_FP16] = TABLE(PLAIT_FP16, PLAIT_FP32),
        [PLAIT_FP64] = TABLE(PLAIT_FP64, PLAIT_FP64),
    };
    assert((size_t)dtype < sizeof tables / sizeof *tables);
    return &tables[dtype];
}
