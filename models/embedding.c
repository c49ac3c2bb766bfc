/* Vocabulary-parallel embedding (Shoeybi et al. 2019, section 3): a rank looks up the words it has, the sum over ranks
 * has all. */
#include "models/decoder_impl.h"

/* First row of block i among this rank's words, as a word id. */
static int64_t block_row0(const plait_decoder *m, int i)
{
    return m->tp.rank * m->dims.vocab_rows + i * m->units.tokens.rows;
}

static int64_t block_rows(const plait_decoder *m, int unit)
{
    return m->a.list->units[unit].numel / m->dims.hidden;
}

plait_status plait_embedding_forward(const plait_decoder *m, const plait_call *c, void *out)
{
    const plait_decoder_dims *d = &m->dims;
    const plait_exec *ex = c->ex;
    const plait_dtype T = m->tp.dtype;
    const size_t mark = plait_arena_mark(ex->work);
    void *partial = out;
    plait_unit_view v;

    if (m->tp.size > 1) {
        PLAIT_TRY(plait_temp(ex, T, d->rows * d->hidden, &partial));
        PLAIT_TRY(ex->k->zero(ex, partial, (size_t)(d->rows * d->hidden) * plait_dtype_size(T)));
    }
    for (int i = 0; i < m->units.tokens.count; i++) {
        int unit = m->units.tokens.first_unit + i;
        PLAIT_TRY(plait_zero_acquire(m->a.zero, unit, PLAIT_ACQUIRE_PARAM, &v));
        PLAIT_TRY(ex->k->embedding_fwd(ex, partial, c->batch.tokens, v.param, block_row0(m, i), block_rows(m, unit),
                                       d->rows, d->hidden));
        PLAIT_TRY(plait_zero_release(m->a.zero, unit, PLAIT_ACQUIRE_PARAM));
    }
    plait_request *reduced;
    PLAIT_TRY(plait_tp_reduce_start(&m->tp, ex, partial, T, out, d->rows, d->hidden, &reduced));
    PLAIT_TRY(plait_request_wait(&reduced, ex));
    plait_arena_reset(ex->work, mark);

    if (m->units.position >= 0) {
        PLAIT_TRY(plait_zero_acquire(m->a.zero, m->units.position, PLAIT_ACQUIRE_PARAM, &v));
        PLAIT_TRY(ex->k->position_fwd(ex, out, plait_at(v.param, T, d->local_t0 * d->hidden), d->local_seq, d->batch,
                                      d->hidden));
        PLAIT_TRY(plait_zero_release(m->a.zero, m->units.position, PLAIT_ACQUIRE_PARAM));
    }
    plait_dropout storage;
    const plait_dropout *drop = plait_drop(m, c, PLAIT_RNG_DROPOUT_EMBED, 0, m->a.cfg->model.hidden_dropout, &storage);
    return drop ? ex->k->bias_dropout_add_fwd(ex, out, out, NULL, NULL, drop, d->local_rows, d->hidden) : PLAIT_OK;
}

plait_status plait_embedding_backward(const plait_decoder *m, const plait_call *c, const void *dy)
{
    const plait_decoder_dims *d = &m->dims;
    const plait_exec *ex = c->ex;
    const plait_dtype T = m->tp.dtype;
    const size_t mark = plait_arena_mark(ex->work);
    plait_unit_view v;
    plait_dropout storage;
    const plait_dropout *drop = plait_drop(m, c, PLAIT_RNG_DROPOUT_EMBED, 0, m->a.cfg->model.hidden_dropout, &storage);

    if (drop) {
        void *dropped;
        PLAIT_TRY(plait_temp(ex, T, d->local_rows * d->hidden, &dropped));
        PLAIT_TRY(ex->k->bias_dropout_add_bwd(ex, dropped, NULL, dy, drop, d->local_rows, d->hidden));
        dy = dropped;
    }
    if (m->units.position >= 0) {
        PLAIT_TRY(plait_zero_acquire(m->a.zero, m->units.position, PLAIT_ACQUIRE_GRAD, &v));
        PLAIT_TRY(ex->k->position_bwd(ex, plait_at(v.grad, plait_dtype_acc(T), d->local_t0 * d->hidden), dy,
                                      d->local_seq, d->batch, d->hidden));
        PLAIT_TRY(plait_zero_release(m->a.zero, m->units.position, PLAIT_ACQUIRE_GRAD));
    }
    const void *whole;
    plait_request *gathered;
    PLAIT_TRY(plait_tp_gather_start(&m->tp, ex, dy, d->rows, d->hidden, &whole, &gathered));
    PLAIT_TRY(plait_request_wait(&gathered, ex));
    for (int i = 0; i < m->units.tokens.count; i++) {
        int unit = m->units.tokens.first_unit + i;
        PLAIT_TRY(plait_zero_acquire(m->a.zero, unit, PLAIT_ACQUIRE_GRAD, &v));
        PLAIT_TRY(ex->k->embedding_bwd(ex, v.grad, c->batch.tokens, whole, block_row0(m, i), block_rows(m, unit),
                                       d->rows, d->hidden));
        PLAIT_TRY(plait_zero_release(m->a.zero, unit, PLAIT_ACQUIRE_GRAD));
    }
    plait_arena_reset(ex->work, mark);
    return PLAIT_OK;
}
