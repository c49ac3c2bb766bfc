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
    return plait_arena_take(mem, (size_t)(d->slices * d->rows * d->vocab_rows) * plait_dtype_size(A), &s->logits);
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

/* The logits of slice i, or their gradient, which lies in the logits' own rows. */
static void *logits_of(const plait_decoder *m, const void *logits, int i)
{
    return plait_at(logits, plait_dtype_acc(m->tp.dtype), i * m->dims.rows * m->dims.vocab_rows);
}

/* Unit of block k of slice i. */
static int head_unit(const plait_decoder *m, int i, int k)
{
    return m->units.head.first_unit + i * m->units.head.count + k;
}

/* logits = whole W^T, slice by slice, block of words by block. */
static plait_status logits_forward(const plait_decoder *m, const plait_exec *ex, const void *whole, void *logits)
{
    const plait_decoder_dims *d = &m->dims;
    const plait_dtype A = plait_dtype_acc(m->tp.dtype);
    for (int i = 0; i < m->tp.slices; i++)
        for (int k = 0; k < m->units.head.count; k++) {
            int unit = head_unit(m, i, k);
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
                            .c = plait_at(logits_of(m, logits, i), A, k * m->units.head.rows),
                            .ldc = d->vocab_rows,
                            .c_acc = true};
            PLAIT_TRY(ex->k->gemm(ex, &g));
            PLAIT_TRY(plait_zero_release(m->a.zero, unit, PLAIT_ACQUIRE_PARAM));
        }
    return PLAIT_OK;
}

/* ---- loss ---- */

/* The cross-entropy of slice i over the logits and row vectors of all. */
static plait_cross_entropy slice_entropy(const plait_decoder *m, const plait_cross_entropy *all, int i)
{
    const plait_decoder_dims *d = &m->dims;
    plait_cross_entropy one = *all;
    one.v0 = (d->slice0 + i) * d->vocab_rows;
    const int64_t real = d->vocab - one.v0;
    one.valid = real < 0 ? 0 : real < d->vocab_rows ? real : d->vocab_rows;
    one.logits = logits_of(m, all->logits, i);
    one.raise = i > 0;
    return one;
}

/* row_sum and row_target, which are neighbours, of one slice. */
typedef struct entropy_sums {
    const plait_decoder *m;
    const plait_cross_entropy *all;
} entropy_sums;

static plait_status sums_of_slice(const void *self, const plait_exec *ex, int i, void *out)
{
    const entropy_sums *s = self;
    plait_cross_entropy one = slice_entropy(s->m, s->all, i);
    one.row_sum = out;
    one.row_target = plait_at(out, plait_dtype_acc(s->m->tp.dtype), one.rows);
    return ex->k->cross_entropy_sum(ex, &one);
}

static plait_status over_ranks(const plait_decoder *m, const plait_exec *ex, void *x, int64_t n, plait_reduction how)
{
    if (m->tp.size == 1)
        return PLAIT_OK;
    plait_comm_op op = plait_comm_make(PLAIT_COMM_ALL_REDUCE, x, x, n, plait_dtype_acc(m->tp.dtype));
    op.reduction = how;
    return plait_comm_run(m->tp.comm, &op, ex);
}

/* Adds the loss of all words and leaves the logits' gradient (training) in their place. */
static plait_status cross_entropy(const plait_decoder *m, const plait_call *c, void *logits)
{
    const plait_decoder_dims *d = &m->dims;
    const plait_exec *ex = c->ex;
    const plait_dtype A = plait_dtype_acc(m->tp.dtype);
    const size_t mark = plait_arena_mark(ex->work);
    void *row_max, *sums; /* row_sum and row_target are neighbours: one exchange */
    PLAIT_TRY(plait_temp(ex, A, d->rows, &row_max));
    PLAIT_TRY(plait_temp(ex, A, 2 * d->rows, &sums));
    const plait_cross_entropy all = {.rows = d->rows,
                                     .cols = d->vocab_rows,
                                     .logits = logits,
                                     .targets = c->batch.targets,
                                     .row_max = row_max,
                                     .row_sum = sums,
                                     .row_target = plait_at(sums, A, d->rows)};
    for (int i = 0; i < m->tp.slices; i++) {
        const plait_cross_entropy one = slice_entropy(m, &all, i);
        PLAIT_TRY(ex->k->cross_entropy_max(ex, &one));
    }
    PLAIT_TRY(over_ranks(m, ex, row_max, d->rows, PLAIT_MAX));
    const entropy_sums of = {m, &all};
    PLAIT_TRY(plait_tp_add_tree(ex, A, 2 * d->rows, sums_of_slice, &of, 0, m->tp.slices, sums));
    PLAIT_TRY(over_ranks(m, ex, sums, 2 * d->rows, PLAIT_SUM));
    PLAIT_TRY(ex->k->cross_entropy_loss(ex, c->loss, &all));
    for (int i = 0; c->mode == PLAIT_MODE_TRAIN && i < m->tp.slices; i++) {
        const plait_cross_entropy one = slice_entropy(m, &all, i);
        PLAIT_TRY(ex->k->cross_entropy_grad(ex, &one, c->grad_scale));
    }
    plait_arena_reset(ex->work, mark);
    return PLAIT_OK;
}

plait_status plait_head_forward(const plait_decoder *m, const plait_call *c, plait_head_saved *s, const void *x,
                                void *logits)
{
    const plait_decoder_dims *d = &m->dims;
    const plait_exec *ex = c->ex;
    const size_t mark = plait_arena_mark(ex->work);
    const size_t row = (size_t)d->vocab_rows * plait_dtype_size(plait_dtype_acc(m->tp.dtype));
    void *norm;
    const void *whole;
    plait_request *gathered;

    s->x = x;
    PLAIT_TRY(final_norm(m, ex, s, &norm));
    PLAIT_TRY(plait_tp_gather_start(&m->tp, ex, norm, d->rows, d->hidden, &whole, &gathered));
    PLAIT_TRY(plait_request_wait(&gathered, ex));
    PLAIT_TRY(plait_hash_rows(m, c, (plait_hash_place){.op = PLAIT_HASH_FINAL_LAYERNORM}, norm));
    PLAIT_TRY(logits_forward(m, ex, whole, logits ? logits : s->logits));
    plait_arena_reset(ex->work, mark);
    if (logits)
        return PLAIT_OK;
    PLAIT_TRY(plait_hash_slices(m, c, (plait_hash_place){.op = PLAIT_HASH_LOGITS}, s->logits, row, row));
    PLAIT_TRY(cross_entropy(m, c, s->logits));
    return plait_hash_loss(m, c);
}

/* ---- backward ---- */

/* What the words of a slice make of the logits' gradient. */
typedef struct head_gradient {
    const plait_decoder *m;
    const void *d_logits; /* of all slices */
    const void *whole;    /* T (rows, hidden): the head's input */
    bool in_acc;          /* d_whole is A: several blocks or slices add to it */
} head_gradient;

/* d_whole of slice i, and the gradients of its blocks. */
static plait_status slice_backward(const void *self, const plait_exec *ex, int i, void *d_whole)
{
    const head_gradient *h = self;
    const plait_decoder *m = h->m;
    const plait_decoder_dims *d = &m->dims;
    for (int k = 0; k < m->units.head.count; k++) {
        int unit = head_unit(m, i, k);
        const void *d_block = plait_at(logits_of(m, h->d_logits, i), m->tp.dtype, k * m->units.head.rows);
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
                            .c_acc = h->in_acc,
                            .accumulate = k > 0};
        PLAIT_TRY(ex->k->gemm(ex, &input));
        plait_gemm weight = {.trans_a = true,
                             .m = words,
                             .n = d->hidden,
                             .k = d->rows,
                             .a = d_block,
                             .lda = gradient_stride(m),
                             .b = h->whole,
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
    const bool in_acc = m->tp.exact || m->units.head.count > 1;
    const plait_dtype partial_type = in_acc ? plait_dtype_acc(T) : T;
    const size_t row = (size_t)d->vocab_rows * plait_dtype_size(T),
                 stride = (size_t)gradient_stride(m) * plait_dtype_size(T);
    void *norm = s->norm, *d_whole;
    const void *whole;
    plait_request *gathered, *reduced;

    PLAIT_TRY(
        plait_hash_slices(m, c, (plait_hash_place){.op = PLAIT_HASH_LOGITS, .backward = true}, s->logits, row, stride));
    if (!norm)
        PLAIT_TRY(final_norm(m, ex, s, &norm));
    PLAIT_TRY(plait_tp_gather_start(&m->tp, ex, norm, d->rows, d->hidden, &whole, &gathered));
    PLAIT_TRY(plait_request_wait(&gathered, ex));
    PLAIT_TRY(plait_temp(ex, partial_type, d->rows * d->hidden, &d_whole));
    const head_gradient h = {m, s->logits, whole, in_acc};
    PLAIT_TRY(plait_tp_add_tree(ex, partial_type, d->rows * d->hidden, slice_backward, &h, 0, m->tp.slices, d_whole));
    PLAIT_TRY(plait_tp_reduce_start(&m->tp, ex, d_whole, partial_type, dx, d->rows, d->hidden, &reduced));
    PLAIT_TRY(plait_request_wait(&reduced, ex));

    PLAIT_TRY(plait_hash_rows(m, c, (plait_hash_place){.op = PLAIT_HASH_FINAL_LAYERNORM, .backward = true}, dx));

    plait_unit_view v;
    const unsigned both = PLAIT_ACQUIRE_PARAM | PLAIT_ACQUIRE_GRAD;
    PLAIT_TRY(plait_zero_acquire(m->a.zero, m->units.final_norm, both, &v));
    PLAIT_TRY(plait_norm_bwd(m, ex, &v, 0, m->units.final_norm_bias, dx, dx, NULL, s->x, s->mean, s->rstd));
    PLAIT_TRY(plait_zero_release(m->a.zero, m->units.final_norm, both));
    plait_arena_reset(ex->work, mark);
    return PLAIT_OK;
}
