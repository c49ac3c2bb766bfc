/* GELU (Hendrycks and Gimpel 2016, section 2) and SwiGLU (Shazeer 2020). */
#include "kernels/cpu/typed.h"

/* gelu(x) = x / 2 (1 + tanh(u)) = x sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3) */
#define TWO_SQRT_2_PI 1.59576912160573071f
#define CUBIC         0.044715f

static vf gelu(vf x)
{
    return x * vf_sigmoid(TWO_SQRT_2_PI * x * (1.0f + CUBIC * x * x));
}

/* s + x s (1 - s) d(2u)/dx with s = sigmoid(2 u) and 1 - s = exp(-2 u) s, which does not cancel. Beyond |x| = 10 it is
 * 0 or 1 in fp32, and exp(-2 u) could overflow. */
static vf gelu_slope(vf x)
{
    x = vf_max(vf_set(-10.0f), vf_min(vf_set(10.0f), x));
    vf x2 = x * x;
    vf e = vf_exp(-TWO_SQRT_2_PI * x * (1.0f + CUBIC * x2));
    vf s = 1.0f / (1.0f + e);
    return s + x * s * (e * s) * (TWO_SQRT_2_PI * (1.0f + 3.0f * CUBIC * x2));
}

plait_status FN(gelu_fwd)(const plait_exec *ex, void *y, const void *x, int64_t n)
{
    elem *yp = y;
    const elem *xp = x;
#pragma omp parallel for schedule(static) num_threads(team(ex, n))
    for (int64_t begin = 0; begin < n; begin += PLAIT_CPU_BLOCK) {
        int64_t end = min_i64(begin + PLAIT_CPU_BLOCK, n);
        for (int64_t i = begin; i < end; i += LANES) {
            int64_t w = width(i, end);
            store(yp + i, gelu(load(xp + i, w)), w);
        }
    }
    return PLAIT_OK;
}

plait_status FN(gelu_bwd)(const plait_exec *ex, void *dx, const void *dy, const void *x, int64_t n)
{
    elem *dxp = dx;
    const elem *dyp = dy, *xp = x;
#pragma omp parallel for schedule(static) num_threads(team(ex, n))
    for (int64_t begin = 0; begin < n; begin += PLAIT_CPU_BLOCK) {
        int64_t end = min_i64(begin + PLAIT_CPU_BLOCK, n);
        for (int64_t i = begin; i < end; i += LANES) {
            int64_t w = width(i, end);
            store(dxp + i, load(dyp + i, w) * gelu_slope(load(xp + i, w)), w);
        }
    }
    return PLAIT_OK;
}

/* y = g sigmoid(g) u */
plait_status FN(swiglu_fwd)(const plait_exec *ex, void *y, const void *gate_up, int64_t N, int64_t F)
{
#pragma omp parallel for schedule(static) num_threads(team(ex, N *F))
    for (int64_t r = 0; r < N; r++) {
        const elem *gate = (const elem *)gate_up + r * 2 * F, *up = gate + F;
        elem *out = (elem *)y + r * F;
        for (int64_t c = 0; c < F; c += LANES) {
            int64_t w = width(c, F);
            vf g = load(gate + c, w);
            store(out + c, g * vf_sigmoid(g) * load(up + c, w), w);
        }
    }
    return PLAIT_OK;
}

/* dg = dy u s (1 + g (1 - s)), du = dy g s, s = sigmoid(g) */
plait_status FN(swiglu_bwd)(const plait_exec *ex, void *d_gate_up, const void *dy, const void *gate_up, int64_t N,
                            int64_t F)
{
#pragma omp parallel for schedule(static) num_threads(team(ex, N *F))
    for (int64_t r = 0; r < N; r++) {
        const elem *gate = (const elem *)gate_up + r * 2 * F, *up = gate + F, *dout = (const elem *)dy + r * F;
        elem *dgate = (elem *)d_gate_up + r * 2 * F, *dup = dgate + F;
        for (int64_t c = 0; c < F; c += LANES) {
            int64_t w = width(c, F);
            vf g = load(gate + c, w), u = load(up + c, w), d = load(dout + c, w), s = vf_sigmoid(g);
            store(dgate + c, d * u * s * (1.0f + g * (1.0f - s)), w);
            store(dup + c, d * g * s, w);
        }
    }
    return PLAIT_OK;
}
