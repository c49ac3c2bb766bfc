#include "kernels/ref/ref_impl.h"

/* g = grad grad_scale;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
 * w -= lr (m / bias1 / (sqrt(v / bias2) + eps) + weight_decay w) */
plait_status REF(adamw)(const plait_exec *ex, void *param, void *master, void *m_, void *v_, const void *grad,
                        int64_t n, const plait_adamw *h)
{
    (void)ex;
    const real b1 = (real)h->beta1, c1 = (real)(1.0 - h->beta1), b2 = (real)h->beta2, c2 = (real)(1.0 - h->beta2);
    const real lr = (real)h->lr, eps = (real)h->eps, decay = (real)h->weight_decay;
    const real bias1 = (real)h->bias1, bias2 = (real)h->bias2, scale = (real)h->grad_scale;
    real *w = master, *m = m_, *v = v_;
    for (int64_t i = 0; i < n; i++) {
        const real g = ((const real *)grad)[i] * scale;
        m[i] = b1 * m[i] + c1 * g;
        v[i] = b2 * v[i] + c2 * g * g;
        w[i] -= lr * (m[i] / bias1 / ((real)sqrt((double)(v[i] / bias2)) + eps) + decay * w[i]);
        if (param)
            ((real *)param)[i] = w[i];
    }
    return PLAIT_OK;
}

/* g = grad grad_scale + weight_decay w;  buf = momentum buf + g;  w -= lr buf */
plait_status REF(sgd)(const plait_exec *ex, void *param, void *master, void *buf_, const void *grad, int64_t n,
                      const plait_sgd *h)
{
    (void)ex;
    const real lr = (real)h->lr, momentum = (real)h->momentum, decay = (real)h->weight_decay;
    const real scale = (real)h->grad_scale;
    real *w = master, *buf = buf_;
    for (int64_t i = 0; i < n; i++) {
        real g = ((const real *)grad)[i] * scale + decay * w[i];
        if (buf)
            g = buf[i] = momentum * buf[i] + g;
        w[i] -= lr * g;
        if (param)
            ((real *)param)[i] = w[i];
    }
    return PLAIT_OK;
}

/* x *= scale */
plait_status REF(unscale)(const plait_exec *ex, void *x_, double scale, int64_t n, int32_t *found_inf)
{
    (void)ex;
    real *x = x_;
    for (int64_t i = 0; i < n; i++) {
        x[i] *= (real)scale;
        if (!isfinite(x[i]))
            *found_inf = 1;
    }
    return PLAIT_OK;
}

/* sum += sum_i x[i]^2: one block from first to last */
plait_status REF(sum_squares)(const plait_exec *ex, double *sum, const void *x_, int64_t n)
{
    (void)ex;
    const real *x = x_;
    double s = 0.0;
    for (int64_t i = 0; i < n; i++)
        s += (double)x[i] * x[i];
    *sum += s;
    return PLAIT_OK;
}
