#include "kernels/ref/ref_impl.h"

/* m[r,c]: 0 with probability p, else 1 / (1 - p) */
static double mask(const plait_dropout *drop, int64_t r, int64_t c, int64_t C)
{
    if (!ref_drops(drop))
        return 1.0;
    return ref_dropout_factor(drop, r % drop->batch, (drop->t0 + r / drop->batch) * C + c);
}

/* y[r,c] = residual[r,c] + m[r,c] (x[r,c] + bias[c]) */
plait_status REF(bias_dropout_add_fwd)(const plait_exec *ex, void *y_, const void *x_, const void *bias_,
                                       const void *residual_, const plait_dropout *drop, int64_t N, int64_t C)
{
    (void)ex;
    const real *x = x_, *bias = bias_, *residual = residual_;
    real *y = y_;
    for (int64_t r = 0; r < N; r++) {
        for (int64_t c = 0; c < C; c++) {
            const int64_t i = r * C + c;
            const double sum = bias ? (double)x[i] + bias[c] : (double)x[i];
            y[i] = (real)((residual ? (double)residual[i] : 0.0) + mask(drop, r, c, C) * sum);
        }
    }
    return PLAIT_OK;
}

/* dx[r,c] = m[r,c] dy[r,c],  dbias[c] += sum_r m[r,c] dy[r,c] */
plait_status REF(bias_dropout_add_bwd)(const plait_exec *ex, void *dx_, void *dbias_, const void *dy_,
                                       const plait_dropout *drop, int64_t N, int64_t C)
{
    (void)ex;
    const real *dy = dy_;
    real *dx = dx_, *dbias = dbias_;
    for (int64_t c = 0; c < C; c++) {
        double sum = dbias ? (double)dbias[c] : 0.0;
        for (int64_t r = 0; r < N; r++) {
            const double d = mask(drop, r, c, C) * dy[r * C + c];
            sum += d;
            if (dx)
                dx[r * C + c] = (real)d;
        }
        if (dbias)
            dbias[c] = (real)sum;
    }
    return PLAIT_OK;
}

/* db[c] += sum_r dy[r,c] */
plait_status REF(bias_grad)(const plait_exec *ex, void *db, const void *dy, int64_t N, int64_t C)
{
    return REF(bias_dropout_add_bwd)(ex, NULL, db, dy, NULL, N, C);
}
