#include "kernels/ref/ref_impl.h"

/* table[t,j] = (cos a, sin a),  a = t base^(-2 j / D) */
plait_status REF(rope_table)(const plait_exec *ex, void *table_, int64_t seq, int64_t D, double base)
{
    (void)ex;
    real *table = table_;
    for (int64_t t = 0; t < seq; t++) {
        for (int64_t j = 0; j < D / 2; j++) {
            const double angle = (double)t * pow(base, -2.0 * (double)j / (double)D);
            *table++ = (real)cos(angle);
            *table++ = (real)sin(angle);
        }
    }
    return PLAIT_OK;
}

/* (x[j], x[j + D/2]) turns by the angle of (t, j): (u cos - v sin, v cos + u sin). The rotation is orthogonal, so its
 * backward is the rotation by the negative angle. */
plait_status REF(rope)(const plait_exec *ex, void *x_, int64_t ldx, const void *table_, int64_t seq, int64_t batch,
                       int64_t heads, int64_t D, bool inverse)
{
    (void)ex;
    const real *table = table_;
    for (int64_t r = 0; r < seq * batch; r++) {
        const real *turn = table + r / batch * D;
        for (int64_t h = 0; h < heads; h++) {
            real *x = (real *)x_ + r * ldx + h * D;
            for (int64_t j = 0; j < D / 2; j++) {
                const double cosine = turn[2 * j], sine = inverse ? -(double)turn[2 * j + 1] : (double)turn[2 * j + 1];
                const double u = x[j], v = x[j + D / 2];
                x[j] = (real)(u * cosine - v * sine);
                x[j + D / 2] = (real)(v * cosine + u * sine);
            }
        }
    }
    return PLAIT_OK;
}
