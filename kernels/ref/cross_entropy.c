/* loss[r] = log sum_k exp(z[r,k]) - z[r,target]. With the row's maximum taken out, the parts that ranks add up are the
 * sum of exponentials and the target's logit; only the rank that holds the target's column gives the latter. */
#include "kernels/ref/ref_impl.h"

/* The target's column on this rank, or -1: another rank has it, or the token is not counted. */
static int64_t target_column(const plait_cross_entropy *c, int64_t r)
{
    const int64_t column = c->targets[r] - c->v0;
    return c->targets[r] >= 0 && column >= 0 && column < c->valid ? column : -1;
}

/* row_max[r] = max_(k < valid) z[r,k] */
plait_status REF(cross_entropy_max)(const plait_exec *ex, const plait_cross_entropy *c)
{
    (void)ex;
    for (int64_t r = 0; r < c->rows; r++) {
        const real *z = (const real *)c->logits + r * c->cols;
        real max = c->raise ? ((const real *)c->row_max)[r] : (real)-INFINITY;
        for (int64_t k = 0; k < c->valid; k++)
            max = z[k] > max || isnan(z[k]) ? z[k] : max; /* a NaN stays, so that the loss shows it */
        ((real *)c->row_max)[r] = max;
    }
    return PLAIT_OK;
}

/* row_sum[r] = sum_(k < valid) exp(z[r,k] - row_max[r]),  row_target[r] = z[r,target] - row_max[r] or 0 */
plait_status REF(cross_entropy_sum)(const plait_exec *ex, const plait_cross_entropy *c)
{
    (void)ex;
    for (int64_t r = 0; r < c->rows; r++) {
        const real *z = (const real *)c->logits + r * c->cols;
        const double max = ((const real *)c->row_max)[r];
        const int64_t target = target_column(c, r);
        double sum = 0.0;
        for (int64_t k = 0; k < c->valid; k++)
            sum += exp(z[k] - max);
        ((real *)c->row_sum)[r] = (real)sum;
        ((real *)c->row_target)[r] = target < 0 ? (real)0 : (real)(z[target] - max);
    }
    return PLAIT_OK;
}

plait_status REF(cross_entropy_loss)(const plait_exec *ex, double *loss, const plait_cross_entropy *c)
{
    (void)ex;
    for (int64_t r = 0; r < c->rows; r++)
        if (c->targets[r] >= 0)
            *loss += log((double)((const real *)c->row_sum)[r]) - (double)((const real *)c->row_target)[r];
    return PLAIT_OK;
}

/* dz[r,k] = (exp(z[r,k] - row_max[r]) / row_sum[r] - [k = target]) scale. T is A here: each element over its logit. */
plait_status REF(cross_entropy_grad)(const plait_exec *ex, const plait_cross_entropy *c, double scale)
{
    (void)ex;
    for (int64_t r = 0; r < c->rows; r++) {
        real *z = (real *)c->logits + r * c->cols;
        const double max = ((const real *)c->row_max)[r], sum = ((const real *)c->row_sum)[r];
        const int64_t valid = c->targets[r] >= 0 ? c->valid : 0, target = target_column(c, r);
        for (int64_t k = 0; k < valid; k++)
            z[k] = (real)((exp(z[k] - max) / sum - (k == target ? 1.0 : 0.0)) * scale);
        for (int64_t k = valid; k < c->cols; k++)
            z[k] = (real)0;
    }
    return PLAIT_OK;
}
