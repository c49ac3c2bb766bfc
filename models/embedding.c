/* Vocabulary-parallel embedding (Shoeybi et al. 2019, section 3): a rank looks up the words it has, the sum over ranks
 * has all. */
#include "models/decoder_impl.h"

/* Blocks of all slices of this rank. */
static int num_blocks(const plait_decoder *m)
{
    return m->tp.slices * m->units.tokens.count;
}

/* First row of block i, as a word id. */
static int64_t block_row0(const plait_decoder *m, int i)
{
    const int slice = i / m->units.tokens.count, block = i % m->units.tokens.count;
    return (m->dims.slice0 + slice) * m->dims.vocab_rows + block * m->units.tokens.rows;
}

static int64_t block_rows(const plait_decoder *m, int unit)
{
    return m->a.list->units[unit].numel / m->dims.hidden;
}

/* What a sum with the zeros of other ranks makes of -0. */
static plait_status without_minus_zero(const plait_decoder *m, const plait_exec *ex, void *x)
{
    const plait_dtype T = m->tp.dtype;
    const int64_t n = m->dims.rows * m->dims.hidden;
    const size_t mark = plait_arena_mark(ex->work);
    void *zeros;
    PLAIT_TRY(plait_temp(ex, T, n, &zeros));
    PLAIT_TRY(ex->k->zero(ex, zeros, (size_t)n * plait_dtype_size(T)));
    PLAIT_TRY(ex->k->add(ex, x, zeros, T, n));
    plait_arena_reset(ex->work, mark);
    return PLAIT_OK;
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
    for (int i = 0; i < num_blocks(m); i++) {
        int unit = m->units.tokens.first_unit + i;
        PLAIT_TRY(plait_zero_acquire(m->a.zero, unit, PLAIT_ACQUIRE_PARAM, &v));
        PLAIT_TRY(ex->k->embedding_fwd(ex, partial, c->batch.tokens, v.param, block_row0(m, i), block_rows(m, unit),
                                       d->rows, d->hidden));
        PLAIT_TRY(plait_zero_release(m->a.zero, unit, PLAIT_ACQUIRE_PARAM));
    }
    plait_request *reduced;
    /* In T also in exact mode: one rank has the row, the others zeros. */
    if (m->tp.exact && m->tp.size == 1)
        PLAIT_TRY(without_minus_zero(m, ex, out));
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
    if (drop)
        PLAIT_TRY(ex->k->bias_dropout_add_fwd(ex, out, out, NULL, NULL, drop, d->local_rows, d->hidden));
    return plait_hash_rows(m, c, (plait_hash_place){.op = PLAIT_HASH_EMBEDDING}, out);
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

    PLAIT_TRY(plait_hash_rows(m, c, (plait_hash_place){.op = PLAIT_HASH_EMBEDDING, .backward = true}, dy));
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
    for (int i = 0; i < num_blocks(m); i++) {
        int unit = m->units.tokens.first_unit + i;
        PLAIT_TRY(plait_zero_acquire(m->a.zero, unit, PLAIT_ACQUIRE_GRAD, &v));
        PLAIT_TRY(ex->k->embedding_bwd(ex, v.grad, c->batch.tokens, whole, block_row0(m, i), block_rows(m, unit),
                                       d->rows, d->hidden));
        PLAIT_TRY(plait_zero_release(m->a.zero, unit, PLAIT_ACQUIRE_GRAD));
    }
    plait_arena_reset(ex->work, mark);
    return PLAIT_OK;
}
