#include "parallel/tensor.h"

plait_tp plait_tp_make(plait_comm *tensor, bool sequence_parallel, plait_dtype dtype)
{
    int size = plait_comm_size(tensor);
    return (plait_tp){.comm = tensor,
                      .rank = plait_comm_rank(tensor),
                      .size = size,
                      .sequence_parallel = sequence_parallel && size > 1,
                      .dtype = dtype,
                      .slices = 1};
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
    op.wire = tp->exact ? dtype : tp->dtype;
    op.result = tp->dtype;
    return plait_comm_start(tp->comm, &op, 1, ex, req);
}

/* ---- products of a slice ---- */

static plait_linear slice_of(const plait_tp *tp, const plait_linear *l, int i)
{
    const plait_dtype T = tp->dtype, A = plait_dtype_acc(T);
    plait_linear one = *l;
    one.weight = plait_at(l->weight, T, i * l->stride);
    one.bias = l->bias ? plait_at(l->bias, T, i * l->stride) : NULL;
    one.grad_weight = l->grad_weight ? plait_at(l->grad_weight, A, i * l->stride) : NULL;
    one.grad_bias = l->grad_bias ? plait_at(l->grad_bias, A, i * l->stride) : NULL;
    one.gelu = l->gelu ? plait_at(l->gelu, T, i * l->rows * l->out) : NULL;
    one.dgelu = l->dgelu ? plait_at(l->dgelu, T, i * l->rows * l->in) : NULL;
    return one;
}

/* y = x W^T + b, (rows, out); y is T, or A with `in_acc` */
static plait_status multiply(const plait_exec *ex, const plait_linear *l, const void *x, void *y, bool in_acc)
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
                    .c_acc = in_acc,
                    .bias = l->bias,
                    .gelu = l->gelu};
    return ex->k->gemm(ex, &g);
}

/* dx = dy W, (rows, in); likewise */
static plait_status multiply_back(const plait_exec *ex, const plait_linear *l, const void *dy, void *dx, bool in_acc)
{
    plait_gemm g = {.m = l->rows,
                    .n = l->in,
                    .k = l->out,
                    .a = dy,
                    .lda = l->out,
                    .b = l->weight,
                    .ldb = l->in,
                    .c = dx,
                    .ldc = l->in,
                    .c_acc = in_acc,
                    .dgelu = l->dgelu};
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
                    .accumulate = true,
                    .bias_grad = ex->k->epilogues ? l->grad_bias : NULL};
    PLAIT_TRY(ex->k->gemm(ex, &g));
    return l->grad_bias && !g.bias_grad ? ex->k->bias_grad(ex, l->grad_bias, dy, l->rows, l->out) : PLAIT_OK;
}

/* ---- sums over slices ---- */

/* Products of which all slices have one and whose sum is wanted: x W^T, or (back) dy W. */
typedef struct plait_partials {
    const plait_tp *tp;
    const plait_linear *l;
    const void *in; /* T (slices, rows, in), or back: (slices, rows, out) */
    bool back;
} plait_partials;

static int64_t partial_numel(const plait_partials *p)
{
    return p->l->rows * (p->back ? p->l->in : p->l->out);
}

/* The product of slice i, in T, or in A for a sum. */
static plait_status partial(const plait_partials *p, const plait_exec *ex, int i, void *out, bool in_acc)
{
    const plait_linear one = slice_of(p->tp, p->l, i);
    const void *in = plait_at(p->in, p->tp->dtype, i * p->l->rows * (p->back ? p->l->out : p->l->in));
    return p->back ? multiply_back(ex, &one, in, out, in_acc) : multiply(ex, &one, in, out, in_acc);
}

plait_status plait_tp_add_tree(const plait_exec *ex, plait_dtype acc, int64_t numel, plait_tp_term term,
                               const void *self, int first, int n, void *sum)
{
    if (n == 1)
        return term(self, ex, first, sum);
    const size_t mark = plait_arena_mark(ex->work);
    void *other;
    PLAIT_TRY(plait_tp_add_tree(ex, acc, numel, term, self, first, n / 2, sum));
    PLAIT_TRY(plait_temp(ex, acc, numel, &other));
    PLAIT_TRY(plait_tp_add_tree(ex, acc, numel, term, self, first + n / 2, n / 2, other));
    PLAIT_TRY(ex->k->add(ex, sum, other, acc, numel));
    plait_arena_reset(ex->work, mark);
    return PLAIT_OK;
}

static plait_status partial_in_acc(const void *self, const plait_exec *ex, int i, void *out)
{
    return partial(self, ex, i, out, true);
}

/* Starts the sum of all partials of the group into y: T, all rows or this rank's (sp). */
static plait_status sum_partials(const plait_partials *p, const plait_exec *ex, void *y, plait_request **req)
{
    const plait_tp *tp = p->tp;
    const plait_dtype A = plait_dtype_acc(tp->dtype);
    const int64_t columns = p->back ? p->l->in : p->l->out;
    void *sum = y;
    if (tp->exact) {
        PLAIT_TRY(plait_temp(ex, A, partial_numel(p), &sum));
        PLAIT_TRY(plait_tp_add_tree(ex, A, partial_numel(p), partial_in_acc, p, 0, tp->slices, sum));
        return plait_tp_reduce_start(tp, ex, sum, A, y, p->l->rows, columns, req);
    }
    if (tp->sequence_parallel)
        PLAIT_TRY(plait_temp(ex, tp->dtype, partial_numel(p), &sum));
    PLAIT_TRY(partial(p, ex, 0, sum, false));
    return plait_tp_reduce_start(tp, ex, sum, tp->dtype, y, p->l->rows, columns, req);
}

/* ---- layers ---- */

plait_status plait_col_linear_fwd(const plait_tp *tp, const plait_exec *ex, const plait_linear *l, const void *x,
                                  void *y)
{
    size_t mark = plait_arena_mark(ex->work);
    const void *whole;
    plait_request *gathered;
    PLAIT_TRY(plait_tp_gather_start(tp, ex, x, l->rows, l->in, &whole, &gathered));
    PLAIT_TRY(plait_request_wait(&gathered, ex));
    for (int i = 0; i < tp->slices; i++) {
        const plait_linear one = slice_of(tp, l, i);
        PLAIT_TRY(multiply(ex, &one, whole, plait_at(y, tp->dtype, i * l->rows * l->out), false));
    }
    plait_arena_reset(ex->work, mark);
    return PLAIT_OK;
}

plait_status plait_col_linear_bwd(const plait_tp *tp, const plait_exec *ex, const plait_linear *l, const void *dy,
                                  const void *x, void *dx)
{
    size_t mark = plait_arena_mark(ex->work);
    const plait_partials input = {tp, l, dy, true};
    const void *whole;
    plait_request *gathered, *reduced;
    PLAIT_TRY(plait_tp_gather_start(tp, ex, x, l->rows, l->in, &whole, &gathered));
    PLAIT_TRY(sum_partials(&input, ex, dx, &reduced));
    PLAIT_TRY(plait_request_wait(&gathered, ex));
    for (int i = 0; i < tp->slices; i++) {
        const plait_linear one = slice_of(tp, l, i);
        PLAIT_TRY(weight_gradient(ex, &one, plait_at(dy, tp->dtype, i * l->rows * l->out), whole));
    }
    PLAIT_TRY(plait_request_wait(&reduced, ex));
    plait_arena_reset(ex->work, mark);
    return PLAIT_OK;
}

plait_status plait_row_linear_fwd(const plait_tp *tp, const plait_exec *ex, const plait_linear *l, const void *x,
                                  void *y)
{
    size_t mark = plait_arena_mark(ex->work);
    const plait_partials output = {tp, l, x, false};
    plait_request *reduced;
    PLAIT_TRY(sum_partials(&output, ex, y, &reduced));
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
    for (int i = 0; i < tp->slices; i++) {
        const plait_linear one = slice_of(tp, l, i);
        const int64_t at = i * l->rows * l->in;
        PLAIT_TRY(multiply_back(ex, &one, whole, plait_at(dx, tp->dtype, at), false));
        PLAIT_TRY(weight_gradient(ex, &one, whole, plait_at(x, tp->dtype, at)));
    }
    plait_arena_reset(ex->work, mark);
    return PLAIT_OK;
}
