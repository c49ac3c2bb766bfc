/* Root mean square normalisation (Zhang and Sennrich 2019). */
#include "kernels/cpu/colsum.h"
#include "kernels/cpu/typed.h"

plait_status FN(rmsnorm_fwd)(const plait_exec *ex, void *y, void *rstd, const void *x, const void *w, int64_t N,
                             int64_t C, double eps)
{
    const elem *weight = w;
#pragma omp parallel for schedule(static) num_threads(team(ex, N *C))
    for (int64_t r = 0; r < N; r++) {
        const elem *in = (const elem *)x + r * C;
        elem *out = (elem *)y + r * C;
        vf squares = {0};
        for (int64_t c = 0; c < C; c += LANES) {
            vf v = load(in + c, width(c, C));
            squares = vf_fma(v, v, squares);
        }
        float s = (float)(1.0 / sqrt((double)vf_sum(squares) / (double)C + eps));
        ((float *)rstd)[r] = s;
        for (int64_t c = 0; c < C; c += LANES) {
            int64_t n = width(c, C);
            store(out + c, load(in + c, n) * s * load(weight + c, n), n);
        }
    }
    return PLAIT_OK;
}

/* One row: dw += dy x rstd (if there), then dx = dres + rstd (w dy - x rstd^2 mean(w dy x)). */
static void row_bwd(elem *dx, float *dw, const elem *dy, const elem *dres, const elem *x, const elem *weight,
                    float rstd, int64_t C)
{
    vf dot = {0};
    for (int64_t c = 0; c < C; c += LANES) {
        int64_t n = width(c, C);
        vf d = load(dy + c, n), v = load(x + c, n);
        dot = vf_fma(load(weight + c, n) * d, v, dot);
        if (dw)
            vf_store_n(dw + c, vf_fma(d, v * rstd, vf_load_n(dw + c, n)), n);
    }
    if (!dx)
        return;
    float k = vf_sum(dot) / (float)C * rstd * rstd;
    for (int64_t c = 0; c < C; c += LANES) {
        int64_t n = width(c, C);
        vf d = (load(weight + c, n) * load(dy + c, n) - load(x + c, n) * k) * rstd;
        store(dx + c, dres ? d + load(dres + c, n) : d, n);
    }
}

plait_status FN(rmsnorm_bwd)(const plait_exec *ex, void *dx, void *dw, const void *dy, const void *dres, const void *x,
                             const void *w, const void *rstd, int64_t N, int64_t C)
{
    colsum sums = colsum_make(ex, N, C, dw, NULL);
#pragma omp parallel for schedule(static) num_threads(team(ex, N *C))
    for (int64_t block = 0; block < sums.blocks; block++) {
        colsum_start(&sums, block);
        for (int64_t r = colsum_begin(&sums, block); r < colsum_end(&sums, block); r++)
            row_bwd(dx ? (elem *)dx + r * C : NULL, colsum_target(&sums, block, 0), (const elem *)dy + r * C,
                    dres ? (const elem *)dres + r * C : NULL, (const elem *)x + r * C, w, ((const float *)rstd)[r], C);
    }
    colsum_finish(&sums);
    return PLAIT_OK;
}
