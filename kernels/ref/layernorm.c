#include "kernels/ref/ref_impl.h"

/* y[r,c] = (x[r,c] - mean[r]) rstd[r] w[c] + b[c]
 * mean[r] = mean_c x[r,c],  rstd[r] = 1 / sqrt(mean_c (x[r,c] - mean[r])^2 + eps) */
plait_status REF(layernorm_fwd)(const plait_exec *ex, void *y_, void *mean_, void *rstd_, const void *x_,
                                const void *w_, const void *b_, int64_t N, int64_t C, double eps)
{
    (void)ex;
    const real *x = x_, *w = w_, *b = b_;
    real *y = y_, *mean = mean_, *rstd = rstd_;

    for (int64_t r = 0; r < N; r++, x += C, y += C) {
        double sum = 0.0, sum_sq = 0.0;
        for (int64_t c = 0; c < C; c++)
            sum += x[c];
        const double mu = sum / (double)C;
        for (int64_t c = 0; c < C; c++)
            sum_sq += ((double)x[c] - mu) * ((double)x[c] - mu);
        const double scale = 1.0 / sqrt(sum_sq / (double)C + eps);
        for (int64_t c = 0; c < C; c++)
            y[c] = (real)(((double)x[c] - mu) * scale * w[c] + b[c]);
        mean[r] = (real)mu;
        rstd[r] = (real)scale;
    }
    return PLAIT_OK;
}

/* dw[c] += sum_r dy[r,c] xhat[r,c],  db[c] += sum_r dy[r,c],  xhat[r,c] = (x[r,c] - mean[r]) rstd[r] */
static void weight_gradient(real *dw, real *db, const real *dy, const real *x, const real *mean, const real *rstd,
                            int64_t N, int64_t C)
{
    for (int64_t c0 = 0; c0 < C; c0 += REF_BLOCK) {
        const int64_t width = ref_min(REF_BLOCK, C - c0);
        double sum_w[REF_BLOCK], sum_b[REF_BLOCK];
        for (int64_t c = 0; c < width; c++) {
            sum_w[c] = dw[c0 + c];
            sum_b[c] = db[c0 + c];
        }
        for (int64_t r = 0; r < N; r++) {
            const real *x_r = x + r * C + c0, *dy_r = dy + r * C + c0;
            for (int64_t c = 0; c < width; c++) {
                sum_w[c] += dy_r[c] * ((double)x_r[c] - mean[r]) * rstd[r];
                sum_b[c] += dy_r[c];
            }
        }
        for (int64_t c = 0; c < width; c++) {
            dw[c0 + c] = (real)sum_w[c];
            db[c0 + c] = (real)sum_b[c];
        }
    }
}

/* dx[r,c] = dres[r,c] + rstd[r] (g[r,c] - mean_k g[r,k] - xhat[r,c] mean_k(g[r,k] xhat[r,k])),  g = w dy */
plait_status REF(layernorm_bwd)(const plait_exec *ex, void *dx_, void *dw, void *db, const void *dy_, const void *dres_,
                                const void *x_, const void *w_, const void *mean_, const void *rstd_, int64_t N,
                                int64_t C)
{
    (void)ex;
    const real *dy = dy_, *dres = dres_, *x = x_, *w = w_, *mean = mean_, *rstd = rstd_;
    real *dx = dx_;

    if (dw) /* first, since dx may be written over dy */
        weight_gradient(dw, db, dy, x, mean, rstd, N, C);
    if (!dx)
        return PLAIT_OK;

    for (int64_t r = 0; r < N; r++, x += C, dy += C, dx += C) {
        const double mu = mean[r], scale = rstd[r];
        double sum = 0.0, dot = 0.0;
        for (int64_t c = 0; c < C; c++) {
            const double g = (double)w[c] * dy[c];
            sum += g;
            dot += g * (x[c] - mu) * scale;
        }
        for (int64_t c = 0; c < C; c++) {
            const double g = (double)w[c] * dy[c], xhat = (x[c] - mu) * scale;
            const double residual = dres ? (double)dres[r * C + c] : 0.0;
            dx[c] = (real)(residual + scale * (g - sum / (double)C - xhat * dot / (double)C));
        }
    }
    return PLAIT_OK;
}
