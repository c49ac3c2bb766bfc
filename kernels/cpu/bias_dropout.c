/* Bias, dropout and residual in one pass; the gradient of a bias. */
#include "kernels/cpu/colsum.h"
#include "kernels/cpu/dropout.h"
#include "kernels/cpu/typed.h"

/* Columns whose dropout factors are made at a time; they stay in cache. */
#define CHUNK 512

/* Factors of columns [c, c + n) of row r. */
static const float *row_factors(const plait_dropout *d, int64_t r, int64_t C, int64_t c, int64_t n, float *room)
{
    plait_rng rng = dropout_rng(d, r % d->batch);
    return dropout_factors(d, &rng, (uint64_t)((d->t0 + r / d->batch) * C + c), n, room);
}

/* n columns: y = residual + factor (x + bias), each of the three optional */
static void add_fwd(elem *y, const elem *x, const elem *bias, const elem *residual, const float *factor, int64_t n)
{
    for (int64_t c = 0; c < n; c += LANES) {
        int64_t w = width(c, n);
        vf v = load(x + c, w);
        if (bias)
            v += load(bias + c, w);
        if (factor)
            v *= vf_load_n(factor + c, w);
        if (residual)
            v += load(residual + c, w);
        store(y + c, v, w);
    }
}

plait_status FN(bias_dropout_add_fwd)(const plait_exec *ex, void *y, const void *x, const void *bias,
                                      const void *residual, const plait_dropout *drop, int64_t N, int64_t C)
{
    const bool on = dropout_is_on(drop);
#pragma omp parallel for schedule(static) num_threads(team(ex, N *C))
    for (int64_t r = 0; r < N; r++)
        for (int64_t c = 0; c < C; c += CHUNK) {
            float room[CHUNK + 4 * PHILOX_LANES];
            int64_t n = min_i64(CHUNK, C - c), at = r * C + c;
            const float *factor = on ? row_factors(drop, r, C, c, n, room) : NULL;
            add_fwd((elem *)y + at, (const elem *)x + at, bias ? (const elem *)bias + c : NULL,
                    residual ? (const elem *)residual + at : NULL, factor, n);
        }
    return PLAIT_OK;
}

/* n columns: dx = factor dy, dbias += dx. The sum takes the product before it is rounded to T. */
static void add_bwd(elem *dx, float *dbias, const elem *dy, const float *factor, int64_t n)
{
    for (int64_t c = 0; c < n; c += LANES) {
        int64_t w = width(c, n);
        vf v = load(dy + c, w);
        if (factor)
            v *= vf_load_n(factor + c, w);
        if (dbias)
            vf_store_n(dbias + c, vf_load_n(dbias + c, w) + v, w);
        if (dx)
            store(dx + c, v, w);
    }
}

plait_status FN(bias_dropout_add_bwd)(const plait_exec *ex, void *dx, void *dbias, const void *dy,
                                      const plait_dropout *drop, int64_t N, int64_t C)
{
    const bool on = dropout_is_on(drop);
    colsum sums = colsum_make(ex, N, C, dbias, NULL);
#pragma omp parallel for schedule(static) num_threads(team(ex, N *C))
    for (int64_t block = 0; block < sums.blocks; block++) {
        float *db = colsum_target(&sums, block, 0);
        colsum_start(&sums, block);
        for (int64_t r = colsum_begin(&sums, block); r < colsum_end(&sums, block); r++)
            for (int64_t c = 0; c < C; c += CHUNK) {
                float room[CHUNK + 4 * PHILOX_LANES];
                int64_t n = min_i64(CHUNK, C - c), at = r * C + c;
                const float *factor = on ? row_factors(drop, r, C, c, n, room) : NULL;
                add_bwd(dx ? (elem *)dx + at : NULL, db ? db + c : NULL, (const elem *)dy + at, factor, n);
            }
    }
    colsum_finish(&sums);
    return PLAIT_OK;
}

plait_status FN(bias_grad)(const plait_exec *ex, void *db, const void *dy, int64_t N, int64_t C)
{
    return FN(bias_dropout_add_bwd)(ex, NULL, db, dy, NULL, N, C);
}
