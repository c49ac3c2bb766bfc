/* Attention without scratch: what would be a row of probabilities is formed again where it is needed, from a query, a
 * key and the logarithm of the row's sum. Outputs are summed in double, REF_BLOCK columns of a head at a time.
 *
 * For sample b and head h, with i a query, j <= i a key, and m[i,j] the factor of dropout (1 without it):
 *   s[i,j] = scale q[i] . k[j]
 *   p[i,j] = exp(s[i,j]) / sum_(l <= i) exp(s[i,l])      the normaliser is that of the row before dropout
 *   o[i]   = sum_j m[i,j] p[i,j] v[j]
 */
#include "kernels/ref/ref_impl.h"

/* One head of one sample. Row t of a matrix begins at its pointer + t * its stride. */
typedef struct head {
    const plait_attention *a;
    int64_t b, h;
    const real *q, *k, *v, *d_o, *o, *lse;
    int64_t stride_q, stride_k, stride_v, stride_do, stride_o;
} head;

static head head_of(const plait_attention *a, int64_t b, int64_t h)
{
    const int64_t D = a->head_dim, kv = h / (a->heads / a->kv_heads);
    head s = {
        .a = a,
        .b = b,
        .h = h,
        .q = (const real *)a->q + b * a->ldq + h * D,
        .k = (const real *)a->k + b * a->ldk + kv * D,
        .v = (const real *)a->v + b * a->ldv + kv * D,
        .o = (const real *)a->o + b * a->ldo + h * D,
        .lse = (const real *)a->lse + (b * a->heads + h) * a->seq,
        .stride_q = a->batch * a->ldq,
        .stride_k = a->batch * a->ldk,
        .stride_v = a->batch * a->ldv,
        .stride_o = a->batch * a->ldo,
    };
    if (a->d_o) {
        s.d_o = (const real *)a->d_o + b * a->lddo + h * D;
        s.stride_do = a->batch * a->lddo;
    }
    return s;
}

static double dot(const real *x, const real *y, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * y[i];
    return sum;
}

static double score(const head *s, int64_t i, int64_t j)
{
    return s->a->scale * dot(s->q + i * s->stride_q, s->k + j * s->stride_k, s->a->head_dim);
}

static double mask(const head *s, int64_t i, int64_t j)
{
    const plait_dropout *drop = s->a->dropout;
    if (!ref_drops(drop))
        return 1.0;
    return ref_dropout_factor(drop, s->b, ((drop->head0 + s->h) * s->a->seq + i) * s->a->seq + j);
}

/* log sum_(j <= i) exp(s[i,j]); the maximum so far is kept out of the exponentials. */
static double log_sum_exp(const head *s, int64_t i)
{
    double max = score(s, i, 0), sum = 1.0;
    for (int64_t j = 1; j <= i; j++) {
        const double s_ij = score(s, i, j);
        if (s_ij <= max) {
            sum += exp(s_ij - max);
        } else {
            sum = sum * exp(max - s_ij) + 1.0;
            max = s_ij;
        }
    }
    return max + log(sum);
}

plait_status REF(attention_fwd)(const plait_exec *ex, const plait_attention *a)
{
    (void)ex;
    for (int64_t b = 0; b < a->batch; b++) {
        for (int64_t h = 0; h < a->heads; h++) {
            const head s = head_of(a, b, h);
            for (int64_t i = 0; i < a->seq; i++) {
                const double lse = log_sum_exp(&s, i);
                ((real *)a->lse)[(b * a->heads + h) * a->seq + i] = (real)lse;
                for (int64_t c0 = 0; c0 < a->head_dim; c0 += REF_BLOCK) {
                    const int64_t width = ref_min(REF_BLOCK, a->head_dim - c0);
                    double sum[REF_BLOCK] = {0.0};
                    for (int64_t j = 0; j <= i; j++) {
                        const double p = mask(&s, i, j) * exp(score(&s, i, j) - lse);
                        for (int64_t c = 0; c < width; c++)
                            sum[c] += p * (double)s.v[j * s.stride_v + c0 + c];
                    }
                    real *o = (real *)a->o + (i * a->batch + b) * a->ldo + h * a->head_dim + c0;
                    for (int64_t c = 0; c < width; c++)
                        o[c] = (real)sum[c];
                }
            }
        }
    }
    return PLAIT_OK;
}

/* Backward.
 *   dv[j]   = sum_i m[i,j] p[i,j] do[i]
 *   dp[i,j] = m[i,j] do[i] . v[j]
 *   ds[i,j] = p[i,j] (dp[i,j] - delta[i]),  delta[i] = sum_l p[i,l] dp[i,l] = do[i] . o[i]
 *   dq[i]   = scale sum_j ds[i,j] k[j],  dk[j] = scale sum_i ds[i,j] q[i]
 * dk and dv of a key/value head are sums over the query heads that read it, in ascending order. */
typedef struct pair {
    double dropped_p, ds;
} pair;

static pair gradient_of_pair(const head *s, int64_t i, int64_t j)
{
    const int64_t D = s->a->head_dim;
    const real *d_o = s->d_o + i * s->stride_do;
    const double m = mask(s, i, j), p = exp(score(s, i, j) - (double)s->lse[i]);
    const double dp = m * dot(d_o, s->v + j * s->stride_v, D), delta = dot(d_o, s->o + i * s->stride_o, D);
    return (pair){m * p, p * (dp - delta)};
}

static void query_gradient(const plait_attention *a, int64_t b, int64_t h)
{
    const head s = head_of(a, b, h);
    for (int64_t i = 0; i < a->seq; i++) {
        for (int64_t c0 = 0; c0 < a->head_dim; c0 += REF_BLOCK) {
            const int64_t width = ref_min(REF_BLOCK, a->head_dim - c0);
            double sum[REF_BLOCK] = {0.0};
            for (int64_t j = 0; j <= i; j++) {
                const double ds = gradient_of_pair(&s, i, j).ds;
                for (int64_t c = 0; c < width; c++)
                    sum[c] += ds * (double)s.k[j * s.stride_k + c0 + c];
            }
            real *dq = (real *)a->dq + (i * a->batch + b) * a->lddq + h * a->head_dim + c0;
            for (int64_t c = 0; c < width; c++)
                dq[c] = (real)(a->scale * sum[c]);
        }
    }
}

static void key_value_gradient(const plait_attention *a, int64_t b, int64_t kv)
{
    const int64_t group = a->heads / a->kv_heads;
    for (int64_t j = 0; j < a->seq; j++) {
        for (int64_t c0 = 0; c0 < a->head_dim; c0 += REF_BLOCK) {
            const int64_t width = ref_min(REF_BLOCK, a->head_dim - c0);
            double sum_k[REF_BLOCK] = {0.0}, sum_v[REF_BLOCK] = {0.0};
            for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
                const head s = head_of(a, b, h);
                for (int64_t i = j; i < a->seq; i++) {
                    const pair g = gradient_of_pair(&s, i, j);
                    for (int64_t c = 0; c < width; c++) {
                        sum_k[c] += g.ds * (double)s.q[i * s.stride_q + c0 + c];
                        sum_v[c] += g.dropped_p * (double)s.d_o[i * s.stride_do + c0 + c];
                    }
                }
            }
            real *dk = (real *)a->dk + (j * a->batch + b) * a->lddk + kv * a->head_dim + c0;
            real *dv = (real *)a->dv + (j * a->batch + b) * a->lddv + kv * a->head_dim + c0;
            for (int64_t c = 0; c < width; c++) {
                dk[c] = (real)(a->scale * sum_k[c]);
                dv[c] = (real)sum_v[c];
            }
        }
    }
}

plait_status REF(attention_bwd)(const plait_exec *ex, const plait_attention *a)
{
    (void)ex;
    for (int64_t b = 0; b < a->batch; b++) {
        for (int64_t h = 0; h < a->heads; h++)
            query_gradient(a, b, h);
        for (int64_t kv = 0; kv < a->kv_heads; kv++)
            key_value_gradient(a, b, kv);
    }
    return PLAIT_OK;
}
