#include "parallel/tensor.h"

plait_tp plait_tp_make(plait_comm *tensor, bool sequence_parallel, plait_dtype dtype)
{
    int size = plait_comm_size(tensor);
    return (plait_tp){tensor, plait_comm_rank(tensor), size, sequence_parallel && size > 1, dtype};
}

plait_status plait_temp(const plait_exec *ex, plait_dtype dtype, int64_t n, void **out)
{
    return plait_arena_array(ex->work, dtype, n, out);
}

plait_status plait_tp_gather_start(const plait_tp *tp, const plait_exec *ex, const void *x, int64_t rows, int64_t C,
                                   const void **whole, plait_request **req)
{
    *whole = x;
    *req = NULL;
    if (!tp->sequence_parallel)
        return PLAIT_OK;
    void *gathered;
    PLAIT_TRY(plait_temp(ex, tp->dtype, rows * C, &gathered));
    *whole = gathered;
    plait_comm_op op = plait_comm_make(PLAIT_COMM_ALL_GATHER, x, gathered, rows * C, tp->dtype);
    return plait_comm_start(tp->comm, &op, 1, ex, req);
}

plait_status plait_tp_reduce_start(const plait_tp *tp, const plait_exec *ex, const void *partial, plait_dtype dtype,
                                   void *y, int64_t rows, int64_t C, plait_request **req)
{
    *req = NULL;
    if (tp->size == 1) {
        if (dtype != tp->dtype)
            return ex->k->cast(ex, y, tp->dtype, partial, dtype, rows * C);
        return partial == y ? PLAIT_OK : ex->k->copy(ex, y, partial, (size_t)(rows * C) * plait_dtype_size(dtype));
    }
    plait_comm_op op = plait_comm_make(tp->sequence_parallel ? PLAIT_COMM_REDUCE_SCATTER : PLAIT_COMM_ALL_REDUCE,
                                       partial, y, rows * C, dtype);
    op.wire = op.result = tp->dtype;
    return plait_comm_start(tp->comm, &op, 1, ex, req);
}

/* y = x W^T + b, (rows, out) */
static plait_status multiply(const plait_exec *ex, const plait_linear *l, const void *x, void *y)
{
    plait_gemm g = {.trans_b = true,
                    .m = l->rows,
                    .n = l->out,
                    .k = l->in,
                    .a = x,
                    .lda = l->in,
                    .b = l->weight,
                    .ldb = l->in,
                    .c = y,
                    .ldc = l->out,
                    .bias = l->bias};
    return ex->k->gemm(ex, &g);
}

/* dx = dy W, (rows, in) */
static plait_status multiply_back(const plait_exec *ex, const plait_linear *l, const void *dy, void *dx)
{
    plait_gemm g = {.m = l->rows,
                    .n = l->in,
                    .k = l->out,
                    .a = dy,
                    .lda = l->out,
                    .b = l->weight,
                    .ldb = l->in,
                    .c = dx,
                    .ldc = l->in};
    return ex->k->gemm(ex, &g);
}

/* dW += dy^T x, db += column sums of dy */
static plait_status weight_gradient(const plait_exec *ex, const plait_linear *l, const void *dy, const void *x)
{
    plait_gemm g = {.trans_a = true,
                    .m = l->out,
                    .n = l->in,
                    .k = l->rows,
                    .a = dy,
                    .lda = l->out,
                    .b = x,
                    .ldb = l->in,
                    .c = l->grad_weight,
                    .ldc = l->in,
                    .c_acc = true,
                    .accumulate = true};
    PLAIT_TRY(ex->k->gemm(ex, &g));
    return l->grad_bias ? ex->k->bias_grad(ex, l->grad_bias, dy, l->rows, l->out) : PLAIT_OK;
}

plait_status plait_col_linear_fwd(const plait_tp *tp, const plait_exec *ex, const plait_linear *l, const void *x,
                                  void *y)
{
    size_t mark = plait_arena_mark(ex->work);
    const void *whole;
    plait_request *gathered;
    PLAIT_TRY(plait_tp_gather_start(tp, ex, x, l->rows, l->in, &whole, &gathered));
    PLAIT_TRY(plait_request_wait(&gathered, ex));
    PLAIT_TRY(multiply(ex, l, whole, y));
    plait_arena_reset(ex->work, mark);
    return PLAIT_OK;
}

plait_status plait_col_linear_bwd(const plait_tp *tp, const plait_exec *ex, const plait_linear *l, const void *dy,
                                  const void *x, void *dx)
{
    size_t mark = plait_arena_mark(ex->work);
    const void *whole;
    plait_request *gathered, *reduced;
    PLAIT_TRY(plait_tp_gather_start(tp, ex, x, l->rows, l->in, &whole, &gathered));
    void *partial = dx;
    if (tp->sequence_parallel)
        PLAIT_TRY(plait_temp(ex, tp->dtype, l->rows * l->in, &partial));
    PLAIT_TRY(multiply_back(ex, l, dy, partial));
    PLAIT_TRY(plait_tp_reduce_start(tp, ex, partial, tp->dtype, dx, l->rows, l->in, &reduced));
    PLAIT_TRY(plait_request_wait(&gathered, ex));
    PLAIT_TRY(weight_gradient(ex, l, dy, whole));
    PLAIT_TRY(plait_request_wait(&reduced, ex));
    plait_arena_reset(ex->work, mark);
    return PLAIT_OK;
}

plait_status plait_row_linear_fwd(const plait_tp *tp, const plait_exec *ex, const plait_linear *l, const void *x,
                                  void *y)
{
    size_t mark = plait_arena_mark(ex->work);
    void *partial = y;
    plait_request *reduced;
    if (tp->sequence_parallel)
        PLAIT_TRY(plait_temp(ex, tp->dtype, l->rows * l->out, &partial));
    PLAIT_TRY(multiply(ex, l, x, partial));
    PLAIT_TRY(plait_tp_reduce_start(tp, ex, partial, tp->dtype, y, l->rows, l->out, &reduced));
    PLAIT_TRY(plait_request_wait(&reduced, ex));
    plait_arena_reset(ex->work, mark);
    return PLAIT_OK;
}

plait_status plait_row_linear_bwd(const plait_tp *tp, const plait_exec *ex, const plait_linear *l, const void *dy,
                                  const void *x, void *dx)
{
    size_t mark = plait_arena_mark(ex->work);
    const void *whole;
    plait_request *gathered;
    PLAIT_TRY(plait_tp_gather_start(tp, ex, dy, l->rows, l->out, &whole, &gathered));
    PLAIT_TRY(plait_request_wait(&gathered, ex));
    PLAIT_TRY(multiply_back(ex, l, whole, dx));
    PLAIT_TRY(weight_gradient(ex, l, whole, x));
    plait_arena_reset(ex->work, mark);
    return PLAIT_OK;
}
