#include "kernels/ref/ref_impl.h"

#define SQRT_2_OVER_PI 0.79788456080286535588
#define GELU_CUBIC     0.044715

/* y = x / 2 (1 + tanh u),  u = sqrt(2/pi) (x + 0.044715 x^3) */
plait_status REF(gelu_fwd)(const plait_exec *ex, void *y, const void *x_, int64_t n)
{
    (void)ex;
    for (int64_t i = 0; i < n; i++) {
        const double x = ((const real *)x_)[i], u = SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x);
        ((real *)y)[i] = (real)(0.5 * x * (1.0 + tanh(u)));
    }
    return PLAIT_OK;
}

/* dx = dy (1/2 (1 + tanh u) + x / 2 (1 - tanh^2 u) du/dx),  du/dx = sqrt(2/pi) (1 + 3 0.044715 x^2) */
plait_status REF(gelu_bwd)(const plait_exec *ex, void *dx, const void *dy, const void *x_, int64_t n)
{
    (void)ex;
    for (int64_t i = 0; i < n; i++) {
        const double x = ((const real *)x_)[i], t = tanh(SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x));
        const double du = SQRT_2_OVER_PI * (1.0 + 3.0 * GELU_CUBIC * x * x);
        ((real *)dx)[i] = (real)(((const real *)dy)[i] * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * du));
    }
    return PLAIT_OK;
}

/* 1 / (1 + e^-g) without overflow */
static double sigmoid(double g)
{
    return g >= 0.0 ? 1.0 / (1.0 + exp(-g)) : exp(g) / (1.0 + exp(g));
}

/* y = g sigmoid(g) u, with g the gate and u the upper half of a row */
plait_status REF(swiglu_fwd)(const plait_exec *ex, void *y, const void *gate_up, int64_t N, int64_t F)
{
    (void)ex;
    for (int64_t r = 0; r < N; r++) {
        const real *gate = (const real *)gate_up + r * 2 * F, *up = gate + F;
        for (int64_t f = 0; f < F; f++)
            ((real *)y)[r * F + f] = (real)(gate[f] * sigmoid(gate[f]) * up[f]);
    }
    return PLAIT_OK;
}

/* du = dy g sigmoid(g),  dg = dy u (s + g s (1 - s)),  s = sigmoid(g) */
plait_status REF(swiglu_bwd)(const plait_exec *ex, void *d_gate_up, const void *dy, const void *gate_up, int64_t N,
                             int64_t F)
{
    (void)ex;
    for (int64_t r = 0; r < N; r++) {
        const real *gate = (const real *)gate_up + r * 2 * F, *up = gate + F;
        real *d_gate = (real *)d_gate_up + r * 2 * F, *d_up = d_gate + F;
        for (int64_t f = 0; f < F; f++) {
            const double d = ((const real *)dy)[r * F + f], g = gate[f], u = up[f], s = sigmoid(g);
            d_gate[f] = (real)(d * u * (s + g * s * (1.0 - s)));
            d_up[f] = (real)(d * g * s);
        }
    }
    return PLAIT_OK;
}
