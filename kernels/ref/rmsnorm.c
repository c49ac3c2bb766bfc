#include "kernels/ref/ref_impl.h"

/* y[r,c] = x[r,c] rstd[r] w[c],  rstd[r] = 1 / sqrt(mean_c x[r,c]^2 + eps) */
plait_status REF(rmsnorm_fwd)(const plait_exec *ex, void *y_, void *rstd_, const void *x_, const void *w_, int64_t N,
                              int64_t C, double eps)
{
    (void)ex;
    const real *x = x_, *w = w_;
    real *y = y_, *rstd = rstd_;

    for (int64_t r = 0; r < N; r++, x += C, y += C) {
        double sum_sq = 0.0;
        for (int64_t c = 0; c < C; c++)
            sum_sq += (double)x[c] * x[c];
        const double scale = 1.0 / sqrt(sum_sq / (double)C + eps);
        for (int64_t c = 0; c < C; c++)
            y[c] = (real)(x[c] * scale * w[c]);
        rstd[r] = (real)scale;
    }
    return PLAIT_OK;
}

/* dw[c] += sum_r dy[r,c] x[r,c] rstd[r] */
static void weight_gradient(real *dw, const real *dy, const real *x, const real *rstd, int64_t N, int64_t C)
{
    for (int64_t c0 = 0; c0 < C; c0 += REF_BLOCK) {
        const int64_t width = ref_min(REF_BLOCK, C - c0);
        double sum[REF_BLOCK];
        for (int64_t c = 0; c < width; c++)
            sum[c] = dw[c0 + c];
        for (int64_t r = 0; r < N; r++)
            for (int64_t c = 0; c < width; c++)
                sum[c] += (double)dy[r * C + c0 + c] * x[r * C + c0 + c] * rstd[r];
        for (int64_t c = 0; c < width; c++)
            dw[c0 + c] = (real)sum[c];
    }
}

/* dx[r,c] = dres[r,c] + rstd[r] (w[c] dy[r,c] - x[r,c] rstd[r]^2 mean_k(w[k] dy[r,k] x[r,k])) */
plait_status REF(rmsnorm_bwd)(const plait_exec *ex, void *dx_, void *dw, const void *dy_, const void *dres_,
                              const void *x_, const void *w_, const void *rstd_, int64_t N, int64_t C)
{
    (void)ex;
    const real *dy = dy_, *dres = dres_, *x = x_, *w = w_, *rstd = rstd_;
    real *dx = dx_;

    if (dw) /* first, since dx may be written over dy */
        weight_gradient(dw, dy, x, rstd, N, C);
    if (!dx)
        return PLAIT_OK;

    for (int64_t r = 0; r < N; r++, x += C, dy += C, dx += C) {
        const double scale = rstd[r];
        double dot = 0.0;
        for (int64_t c = 0; c < C; c++)
            dot += (double)w[c] * dy[c] * x[c];
        for (int64_t c = 0; c < C; c++) {
            const double residual = dres ? (double)dres[r * C + c] : 0.0;
            dx[c] = (real)(residual + scale * ((double)w[c] * dy[c] - x[c] * scale * scale * dot / (double)C));
        }
    }
    return PLAIT_OK;
}
