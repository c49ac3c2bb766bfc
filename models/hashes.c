/* What of a layer's results is recorded, and by whom (parallel/tensor_hashes.h). Without debug.tensor_hashes: a branch
 * for each. */
#include "models/decoder_impl.h"

plait_status plait_hash_rows(const plait_decoder *m, const plait_call *c, plait_hash_place p, const void *x)
{
    const plait_decoder_dims *d = &m->dims;
    const size_t row = (size_t)d->hidden * plait_dtype_size(m->tp.dtype);
    p.micro = c->micro;
    for (int i = 0; c->hashes && i < m->tp.slices; i++) {
        p.slice = d->slice0 + i;
        /* Without sequence parallelism all pieces are here, and other tensor ranks have them too. */
        const plait_piece piece = plait_piece_at(m, m->tp.sequence_parallel ? i : (int)p.slice);
        const size_t bytes = (size_t)piece.n * row;
        PLAIT_TRY(
            plait_hashes_add(c->hashes, c->ex, &p, plait_at(x, m->tp.dtype, piece.begin * d->hidden), 1, bytes, bytes));
    }
    return PLAIT_OK;
}

plait_status plait_hash_slices(const plait_decoder *m, const plait_call *c, plait_hash_place p, const void *x,
                               size_t row_bytes, size_t stride)
{
    const bool dense = row_bytes == stride;
    const size_t bytes = (size_t)m->dims.rows * stride;
    p.micro = c->micro;
    for (int i = 0; c->hashes && i < m->tp.slices; i++) {
        const void *slice = (const char *)x + (size_t)i * bytes;
        p.slice = m->dims.slice0 + i;
        PLAIT_TRY(plait_hashes_add(c->hashes, c->ex, &p, slice, dense ? 1 : m->dims.rows, dense ? bytes : row_bytes,
                                   dense ? bytes : stride));
    }
    return PLAIT_OK;
}

plait_status plait_hash_blocks(const plait_decoder *m, const plait_call *c, plait_hash_place p, const void *x,
                               int64_t columns)
{
    const size_t row = (size_t)columns * plait_dtype_size(m->tp.dtype);
    return plait_hash_slices(m, c, p, x, row, row);
}

plait_status plait_hash_loss(const plait_decoder *m, const plait_call *c)
{
    const plait_hash_place p = {.micro = c->micro, .layer = -1, .op = PLAIT_HASH_LOSS};
    return c->hashes && m->tp.rank == 0
               ? plait_hashes_add(c->hashes, c->ex, &p, c->loss, 1, sizeof *c->loss, sizeof *c->loss)
               : PLAIT_OK;
}
