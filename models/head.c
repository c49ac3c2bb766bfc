/* Final norm, vocabulary-parallel head and cross-entropy. The logits exist once: forward turns them into their gradient
 * in place, and that is what backward multiplies. */
#include "models/decoder_impl.h"

/* Elements of T from one row of the logits' gradient to the next: it lies in the logits' own rows. */
static int64_t gradient_stride(const plait_decoder *m)
{
    size_t acc = plait_dtype_size(plait_dtype_acc(m->tp.dtype));
    return m->dims.vocab_rows * (int64_t)(acc / plait_dtype_size(m->tp.dtype));
}

plait_status plait_head_bind(const plait_decoder *m, plait_arena *mem, plait_head_saved *s)
{
    const plait_decoder_dims *d = &m->dims;
    const plait_dtype T = m->tp.dtype, A = plait_dtype_acc(T);
    const bool norm_again = m->a.cfg->recompute.granularity == PLAIT_RECOMPUTE_SELECTIVE &&
                            (m->a.cfg->recompute.modules & PLAIT_MODULE_NORMS);
    *s = (plait_head_saved){0};
    if (!norm_again)
        PLAIT_TRY(plait_arena_take(mem, (size_t)(d->local_rows * d->hidden) * plait_dtype_size(T), &s->norm));
    if (!m->arch->rms_norm)
        PLAIT_TRY(plait_arena_take(mem, (size_t)d->local_rows * plait_dtype_size(A), &s->mean));
    PLAIT_TRY(plait_arena_take(mem, (size_t)d->local_rows * plait_dtype_size(A), &s->rstd));
    return plait_arena_take(mem, (size_t)(d->rows * d->vocab_rows) * plait_dtype_size(A), &s->logits);
}

/* The final norm of s->x into s->norm or a temporary. */
static plait_status final_norm(const plait_decoder *m, const plait_exec *ex, plait_head_saved *s, void **norm)
{
    plait_unit_view v;
    *norm = s->norm;
    if (!s->norm)
        PLAIT_TRY(plait_temp(ex, m->tp.dtype, m->dims.local_rows * m->dims.hidden, norm));
    PLAIT_TRY(plait_zero_acquire(m->a.zero, m->units.final_norm, PLAIT_ACQUIRE_PARAM, &v));
    PLAIT_TRY(
        plait_norm_fwd(m, ex, *norm, s->mean, s->rstd, s->x, v.param, plait_weight(m, &v, m->units.final_norm_bias)));
    return plait_zero_release(m->a.zero, m->units.final_norm, PLAIT_ACQUIRE_PARAM);
}

/* logits = whole W^T, block of words by block. */
static plait_status logits_forward(const plait_decoder *m, const plait_exec *ex, const void *whole, void *logits)
{
    const plait_decoder_dims *d = &m->dims;
    const plait_dtype A = plait_dtype_acc(m->tp.dtype);
    for (int i = 0; i < m->units.head.count; i++) {
        int unit = m->units.head.first_unit + i;
        plait_unit_view v;
        PLAIT_TRY(plait_zero_acquire(m->a.zero, unit, PLAIT_ACQUIRE_PARAM, &v));
        plait_gemm g = {.trans_b = true,
                        .m = d->rows,
                        .n = m->a.list->units[unit].numel / d->hidden,
                        .k = d->hidden,
                        .a = whole,
                        .lda = d->hidden,
                        .b = v.param,
                        .ldb = d->hidden,
                        .c = plait_at(logits, A, i * m->units.head.rows),
                        .ldc = d->vocab_rows,
                        .c_acc = true};
        PLAIT_TRY(ex->k->gemm(ex, &g));
        PLAIT_TRY(plait_zero_release(m->a.zero, unit, PLAIT_ACQUIRE_PARAM));
    }
    return PLAIT_OK;
}

/* Adds the loss of all words and leaves the logits' gradient (training) in their place. */
static plait_status cross_entropy(const plait_decoder *m, const plait_call *c, void *logits)
{
    const plait_decoder_dims *d = &m->dims;
    const plait_exec *ex = c->ex;
    const plait_dtype A = plait_dtype_acc(m->tp.dtype);
    const size_t mark = plait_arena_mark(ex->work);
    const int64_t v0 = m->tp.rank * d->vocab_rows, real = d->vocab - v0;
    void *row_max, *sums; /* row_sum and row_target are neighbours: one exchange */
    PLAIT_TRY(plait_temp(ex, A, d->rows, &row_max));
    PLAIT_TRY(plait_temp(ex, A, 2 * d->rows, &sums));
    plait_cross_entropy ce = {.rows = d->rows,
                              .cols = d->vocab_rows,
                              .valid = real < 0               ? 0
                                       : real < d->vocab_rows ? real
                                                              : d->vocab_rows,
                              .v0 = v0,
                              .logits = logits,
                              .targets = c->batch.targets,
                              .row_max = row_max,
                              .row_sum = sums,
                              .row_target = plait_at(sums, A, d->rows)};
    PLAIT_TRY(ex->k->cross_entropy_max(ex, &ce));
    if (m->tp.size > 1) {
        plait_comm_op op = plait_comm_make(PLAIT_COMM_ALL_REDUCE, row_max, row_max, d->rows, A);
        op.reduction = PLAIT_MAX;
        PLAIT_TRY(plait_comm_run(m->tp.comm, &op, ex));
    }
    PLAIT_TRY(ex->k->cross_entropy_sum(ex, &ce));
    if (m->tp.size > 1) {
        plait_comm_op op = plait_comm_make(PLAIT_COMM_ALL_REDUCE, sums, sums, 2 * d->rows, A);
        PLAIT_TRY(plait_comm_run(m->tp.comm, &op, ex));
    }
    PLAIT_TRY(ex->k->cross_entropy_loss(ex, c->loss, &ce));
    if (c->mode == PLAIT_MODE_TRAIN)
        PLAIT_TRY(ex->k->cross_entropy_grad(ex, &ce, c->grad_scale));
    plait_arena_reset(ex->work, mark);
    return PLAIT_OK;
}

plait_status plait_head_forward(const plait_decoder *m, const plait_call *c, plait_head_saved *s, const void *x,
                                void *logits)
{
    const plait_decoder_dims *d = &m->dims;
    const plait_exec *ex = c->ex;
    const size_t mark = plait_arena_mark(ex->work);
    void *norm;
    const void *whole;
    plait_request *gathered;

    s->x = x;
    PLAIT_TRY(final_norm(m, ex, s, &norm));
    PLAIT_TRY(plait_tp_gather_start(&m->tp, ex, norm, d->rows, d->hidden, &whole, &gathered));
    PLAIT_TRY(plait_request_wait(&gathered, ex));
    PLAIT_TRY(logits_forward(m, ex, whole, logits ? logits : s->logits));
    plait_arena_reset(ex->work, mark);
    return logits ? PLAIT_OK : cross_entropy(m, c, s->logits);
}

/* d_whole and the blocks' gradients from the logits' gradient; d_whole in A when several blocks add to it. */
static plait_status logits_backward(const plait_decoder *m, const plait_exec *ex, const void *d_logits,
                                    const void *whole, void *d_whole, bool in_acc)
{
    const plait_decoder_dims *d = &m->dims;
    const plait_dtype T = m->tp.dtype;
    for (int i = 0; i < m->units.head.count; i++) {
        int unit = m->units.head.first_unit + i;
        const void *d_block = plait_at(d_logits, T, i * m->units.head.rows);
        int64_t words = m->a.list->units[unit].numel / d->hidden;
        plait_unit_view v;
        PLAIT_TRY(plait_zero_acquire(m->a.zero, unit, PLAIT_ACQUIRE_PARAM | PLAIT_ACQUIRE_GRAD, &v));
        plait_gemm input = {.m = d->rows,
                            .n = d->hidden,
                            .k = words,
                            .a = d_block,
                            .lda = gradient_stride(m),
                            .b = v.param,
                            .ldb = d->hidden,
                            .c = d_whole,
                            .ldc = d->hidden,
                            .c_acc = in_acc,
                            .accumulate = i > 0};
        PLAIT_TRY(ex->k->gemm(ex, &input));
        plait_gemm weight = {.trans_a = true,
                             .m = words,
                             .n = d->hidden,
                             .k = d->rows,
                             .a = d_block,
                             .lda = gradient_stride(m),
                             .b = whole,
                             .ldb = d->hidden,
                             .c = v.grad,
                             .ldc = d->hidden,
                             .c_acc = true,
                             .accumulate = true};
        PLAIT_TRY(ex->k->gemm(ex, &weight));
        PLAIT_TRY(plait_zero_release(m->a.zero, unit, PLAIT_ACQUIRE_PARAM | PLAIT_ACQUIRE_GRAD));
    }
    return PLAIT_OK;
}

plait_status plait_head_backward(const plait_decoder *m, const plait_call *c, plait_head_saved *s, void *dx)
{
    const plait_decoder_dims *d = &m->dims;
    const plait_exec *ex = c->ex;
    const plait_dtype T = m->tp.dtype;
    const size_t mark = plait_arena_mark(ex->work);
    const bool in_acc = m->units.head.count > 1;
    const plait_dtype partial_type = in_acc ? plait_dtype_acc(T) : T;
    void *norm = s->norm, *d_whole;
    const void *whole;
    plait_request *gathered, *reduced;

    if (!norm)
        PLAIT_TRY(final_norm(m, ex, s, &norm));
    PLAIT_TRY(plait_tp_gather_start(&m->tp, ex, norm, d->rows, d->hidden, &whole, &gathered));
    PLAIT_TRY(plait_request_wait(&gathered, ex));
    PLAIT_TRY(plait_temp(ex, partial_type, d->rows * d->hidden, &d_whole));
    PLAIT_TRY(logits_backward(m, ex, s->logits, whole, d_whole, in_acc));
    PLAIT_TRY(plait_tp_reduce_start(&m->tp, ex, d_whole, partial_type, dx, d->rows, d->hidden, &reduced));
    PLAIT_TRY(plait_request_wait(&reduced, ex));

    plait_unit_view v;
    const unsigned both = PLAIT_ACQUIRE_PARAM | PLAIT_ACQUIRE_GRAD;
    PLAIT_TRY(plait_zero_acquire(m->a.zero, m->units.final_norm, both, &v));
    PLAIT_TRY(plait_norm_bwd(m, ex, dx, v.grad, plait_grad(m, &v, m->units.final_norm_bias), dx, NULL, s->x, v.param,
                             s->mean, s->rstd));
    PLAIT_TRY(plait_zero_release(m->a.zero, m->units.final_norm, both));
    plait_arena_reset(ex->work, mark);
    return PLAIT_OK;
}
