/* Optimizers: one pass over master, moments and gradient, and the copy of the parameter in its storage type. */
#include "kernels/cpu/typed.h"

/* AdamW (Loshchilov and Hutter 2019, algorithm 2); see kernels.h. */
plait_status FN(adamw)(const plait_exec *ex, void *param, void *master, void *m, void *v, const void *grad, int64_t n,
                       const plait_adamw *h)
{
    const float b1 = (float)h->beta1, c1 = (float)(1.0 - h->beta1), b2 = (float)h->beta2, c2 = (float)(1.0 - h->beta2);
    const float inv1 = (float)(1.0 / h->bias1), inv2 = (float)(1.0 / h->bias2), eps = (float)h->eps;
    const float lr = (float)h->lr, decay = (float)h->weight_decay, scale = (float)h->grad_scale;
    float *wp = master, *mp = m, *vp = v;
    const float *gp = grad;
    elem *out = param;
#pragma omp parallel for schedule(static) num_threads(team(ex, n))
    for (int64_t begin = 0; begin < n; begin += PLAIT_CPU_BLOCK) {
        int64_t end = min_i64(begin + PLAIT_CPU_BLOCK, n);
        for (int64_t i = begin; i < end; i += LANES) {
            int64_t k = width(i, end);
            vf g = vf_load_n(gp + i, k) * scale, weight = vf_load_n(wp + i, k);
            vf m1 = b1 * vf_load_n(mp + i, k) + c1 * g;
            vf m2 = b2 * vf_load_n(vp + i, k) + c2 * g * g;
            weight -= lr * (m1 * inv1 / (vf_sqrt(m2 * inv2) + eps) + decay * weight);
            vf_store_n(mp + i, m1, k);
            vf_store_n(vp + i, m2, k);
            vf_store_n(wp + i, weight, k);
            if (out)
                store(out + i, weight, k);
        }
    }
    return PLAIT_OK;
}

plait_status FN(sgd)(const plait_exec *ex, void *param, void *master, void *buf, const void *grad, int64_t n,
                     const plait_sgd *h)
{
    const float lr = (float)h->lr, momentum = (float)h->momentum, decay = (float)h->weight_decay;
    const float scale = (float)h->grad_scale;
    float *wp = master, *bp = buf;
    const float *gp = grad;
    elem *out = param;
#pragma omp parallel for schedule(static) num_threads(team(ex, n))
    for (int64_t begin = 0; begin < n; begin += PLAIT_CPU_BLOCK) {
        int64_t end = min_i64(begin + PLAIT_CPU_BLOCK, n);
        for (int64_t i = begin; i < end; i += LANES) {
            int64_t k = width(i, end);
            vf weight = vf_load_n(wp + i, k);
            vf g = vf_load_n(gp + i, k) * scale + decay * weight;
            if (bp) {
                g += momentum * vf_load_n(bp + i, k);
                vf_store_n(bp + i, g, k);
            }
            weight -= lr * g;
            vf_store_n(wp + i, weight, k);
            if (out)
                store(out + i, weight, k);
        }
    }
    return PLAIT_OK;
}
