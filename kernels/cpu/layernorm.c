/* Layer normalisation (Ba et al. 2016). */
#include "kernels/cpu/colsum.h"
#include "kernels/cpu/typed.h"

/* The variance is of the centred row, in a second pass over a row that is in cache by then. */
plait_status FN(layernorm_fwd)(const plait_exec *ex, void *y, void *mean, void *rstd, const void *x, const void *w,
                               const void *b, int64_t N, int64_t C, double eps)
{
    const elem *weight = w, *bias = b;
#pragma omp parallel for schedule(static) num_threads(team(ex, N *C))
    for (int64_t r = 0; r < N; r++) {
        const elem *in = (const elem *)x + r * C;
        elem *out = (elem *)y + r * C;
        vf sum = {0}, squares = {0};
        for (int64_t c = 0; c < C; c += LANES)
            sum += load(in + c, width(c, C));
        float m = vf_sum(sum) / (float)C;
        for (int64_t c = 0; c < C; c += LANES) {
            int64_t n = width(c, C);
            vf centred = load(in + c, n) - m;
            if (n < LANES) /* the absent lanes are -m, not 0 */
                for (int64_t i = n; i < LANES; i++)
                    centred[i] = 0.0f;
            squares = vf_fma(centred, centred, squares);
        }
        float s = (float)(1.0 / sqrt((double)vf_sum(squares) / (double)C + eps));
        ((float *)mean)[r] = m;
        ((float *)rstd)[r] = s;
        for (int64_t c = 0; c < C; c += LANES) {
            int64_t n = width(c, C);
            store(out + c, vf_fma((load(in + c, n) - m) * s, load(weight + c, n), load(bias + c, n)), n);
        }
    }
    return PLAIT_OK;
}

/* One row: dw += dy xhat and db += dy (if there), then dx = dres + rstd (w dy - mean(w dy) - xhat mean(w dy xhat)). */
static void row_bwd(elem *dx, float *dw, float *db, const elem *dy, const elem *dres, const elem *x, const elem *weight,
                    float mean, float rstd, int64_t C)
{
    vf sum = {0}, dot = {0};
    for (int64_t c = 0; c < C; c += LANES) {
        int64_t n = width(c, C);
        vf d = load(dy + c, n), xhat = (load(x + c, n) - mean) * rstd, wd = load(weight + c, n) * d;
        sum += wd;
        dot = vf_fma(wd, xhat, dot);
        if (dw) {
            vf_store_n(dw + c, vf_fma(d, xhat, vf_load_n(dw + c, n)), n);
            vf_store_n(db + c, vf_load_n(db + c, n) + d, n);
        }
    }
    if (!dx)
        return;
    float a = vf_sum(sum) / (float)C, b = vf_sum(dot) / (float)C;
    for (int64_t c = 0; c < C; c += LANES) {
        int64_t n = width(c, C);
        vf xhat = (load(x + c, n) - mean) * rstd;
        vf d = (load(weight + c, n) * load(dy + c, n) - a - xhat * b) * rstd;
        store(dx + c, dres ? d + load(dres + c, n) : d, n);
    }
}

plait_status FN(layernorm_bwd)(const plait_exec *ex, void *dx, void *dw, void *db, const void *dy, const void *dres,
                               const void *x, const void *w, const void *mean, const void *rstd, int64_t N, int64_t C)
{
    colsum sums = colsum_make(ex, N, C, dw, db);
#pragma omp parallel for schedule(static) num_threads(team(ex, N *C))
    for (int64_t block = 0; block < sums.blocks; block++) {
        colsum_start(&sums, block);
        for (int64_t r = colsum_begin(&sums, block); r < colsum_end(&sums, block); r++)
            row_bwd(dx ? (elem *)dx + r * C : NULL, colsum_target(&sums, block, 0), colsum_target(&sums, block, 1),
                    (const elem *)dy + r * C, dres ? (const elem *)dres + r * C : NULL, (const elem *)x + r * C, w,
                    ((const float *)mean)[r], ((const float *)rstd)[r], C);
    }
    colsum_finish(&sums);
    return PLAIT_OK;
}
