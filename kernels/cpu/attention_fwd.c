/* Attention, forward. */
#include "kernels/cpu/attention.h"

#include <omp.h>

/* Scratch of one thread. Q is the number of queries of a tile, K of keys. */
typedef struct scratch {
    float *q_rows;    /* (Q, d_pad) scale q */
    float *q_t;       /* (D, Q) its transposed */
    float *k, *v;     /* (K, d_pad) widened, where T is not float */
    float *s;         /* (K, Q) scores, then probabilities */
    float *factor;    /* (K, Q) of dropout */
    float *o;         /* (Q, d_pad) */
    float *max, *sum; /* (Q) of the scores so far */
    float *shrink;    /* (Q) exp(old max - new max) */
} scratch;

/* Carves scratch from `base`; with base NULL only counts. Returns the bytes. */
static size_t carve(scratch *s, float *base, const attention_tiles *t)
{
    size_t at = 0;
#define TAKE(field, n) (s->field = base ? base + at : NULL, at += (size_t)(n))
    TAKE(q_rows, t->queries * t->d_pad);
    TAKE(q_t, t->D * t->queries);
    TAKE(k, t->keys * t->d_pad);
    TAKE(v, t->keys * t->d_pad);
    TAKE(s, t->keys * t->queries);
    TAKE(factor, t->keys * t->queries);
    TAKE(o, t->queries * t->d_pad);
    TAKE(max, t->queries);
    TAKE(sum, t->queries);
    TAKE(shrink, t->queries);
#undef TAKE
    return at * sizeof(float);
}

static size_t bytes_for(const attention_tiles *t)
{
    scratch unused;
    return carve(&unused, NULL, t);
}

/* Scores to probabilities relative to the maximum so far; max, sum and shrink follow. Row j is key k0 + j, column i
 * query q0 + i. */
static void online_softmax(scratch *s, int64_t queries, int64_t keys, int64_t q0, int64_t k0)
{
    for (int64_t i = 0; i < queries; i += LANES) {
        vf old = vf_load(s->max + i), max = old, sum = {0};
        int64_t visible = min_i64(keys, q0 + i - k0 + 1); /* keys that no query of this vector is before */
        for (int64_t j = visible > 0 ? visible : 0; j < keys; j++)
            for (int64_t lane = 0; lane < min_i64(LANES, k0 + j - q0 - i); lane++)
                s->s[j * queries + i + lane] = -INFINITY;
        for (int64_t j = 0; j < keys; j++)
            max = vf_max(vf_load(s->s + j * queries + i), max);
        for (int64_t j = 0; j < keys; j++) {
            vf p = vf_exp(vf_load(s->s + j * queries + i) - max);
            sum += p;
            vf_store(s->s + j * queries + i, p);
        }
        vf shrink = vf_exp(old - max);
        vf_store(s->max + i, max);
        vf_store(s->sum + i, vf_fma(vf_load(s->sum + i), shrink, sum));
        vf_store(s->shrink + i, shrink);
    }
}

static void scale_rows(float *rows, int64_t n, int64_t d_pad, int64_t D, const float *factor)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < D; c += LANES) {
            int64_t w = width(c, D);
            vf_store_n(rows + i * d_pad + c, vf_load_n(rows + i * d_pad + c, w) * factor[i], w);
        }
}

/* Queries [q0, q0 + n) of head h of sample b. */
static void query_tile(const plait_attention *a, const attention_tiles *t, scratch *s, int64_t b, int64_t h, int64_t q0,
                       int64_t n)
{
    const int64_t Q = t->queries, D = t->D, kv = h / (a->heads / a->kv_heads);
    widen_rows(s->q_rows, t->d_pad, head_row(a->q, a->ldq, a, b, h, q0), a->batch * a->ldq, n, D, (float)a->scale);
    transpose(s->q_t, Q, s->q_rows, t->d_pad, n, D);
    for (int64_t i = 0; i < Q; i++) {
        s->max[i] = -INFINITY;
        s->sum[i] = 0.0f;
    }
    for (int64_t k0 = 0; k0 < q0 + n; k0 += t->keys) {
        int64_t keys = min_i64(t->keys, q0 + n - k0), ldk, ldv;
        const float *k =
            float_rows(s->k, t->d_pad, head_row(a->k, a->ldk, a, b, kv, k0), a->batch * a->ldk, keys, D, &ldk);
        const float *v =
            float_rows(s->v, t->d_pad, head_row(a->v, a->ldv, a, b, kv, k0), a->batch * a->ldv, keys, D, &ldv);
        ISA_FN(tile_gemm)(keys, Q, D, k, ldk, 1, s->q_t, Q, s->s, Q, false);
        online_softmax(s, Q, keys, q0, k0);
        if (dropout_is_on(a->dropout)) {
            drop_factors(s->factor, Q, a, b, h, q0, Q, k0, keys);
            for (int64_t i = 0; i < keys * Q; i += LANES)
                vf_store(s->s + i, vf_load(s->s + i) * vf_load(s->factor + i));
        }
        if (k0 > 0)
            scale_rows(s->o, n, t->d_pad, D, s->shrink);
        ISA_FN(tile_gemm)(n, D, keys, s->s, 1, Q, v, ldv, s->o, t->d_pad, k0 > 0);
    }
    float *lse = (float *)a->lse + (b * a->heads + h) * a->seq + q0;
    for (int64_t i = 0; i < n; i++) {
        lse[i] = s->max[i] + logf(s->sum[i]);
        narrow_row((elem *)(uintptr_t)head_row(a->o, a->ldo, a, b, h, q0 + i), s->o + i * t->d_pad, D,
                   1.0f / s->sum[i]);
    }
}

/* A task is one tile of queries of one head. The longest come first, since threads take them as they go. */
plait_status FN(attention_fwd)(const plait_exec *ex, const plait_attention *a)
{
    attention_tiles t;
    PLAIT_TRY(attention_plan(ex, a, bytes_for, &t));
    const int64_t tiles = ceil_div(a->seq, t.queries), heads = a->batch * a->heads;
#pragma omp parallel for schedule(dynamic) num_threads(attention_threads(ex, a, t.bytes))
    for (int64_t task = 0; task < tiles * heads; task++) {
        scratch s;
        carve(&s, (float *)ex->scratch + (size_t)omp_get_thread_num() * (t.bytes / sizeof(float)), &t);
        int64_t q0 = (tiles - 1 - task / heads) * t.queries, head = task % heads;
        query_tile(a, &t, &s, head / a->heads, head % a->heads, q0, min_i64(t.queries, a->seq - q0));
    }
    return PLAIT_OK;
}
