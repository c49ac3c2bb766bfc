/* Attention, backward (Dao et al. 2022, algorithm 4). Per query row, with F the factors of dropout:
 *
 *     P = exp(scale q K^T - lse)     delta = sum_d do o      dP = F (do V^T)     dS = P (dP - delta)
 *     dV += (F P)^T do               dK += dS^T (scale q)    dq = scale dS K
 *
 * One pass over the tiles gives all three, where scratch has room for dK and dV of a whole sequence for each thread and
 * there is a key/value head for each thread. Else there are two passes, one for dK and dV and one for dq, which compute
 * P and dS twice. Every sum has the same order in both, so their results are the same to the last bit.
 */
#include "kernels/cpu/attention.h"

#include <omp.h>

/* Scratch of one thread; Q and K as in the forward pass. */
typedef struct scratch {
    float *q_rows, *do_rows; /* (Q, d_pad) scale q, do */
    float *q_t, *do_t;       /* (D, Q) transposed */
    float *k, *v;            /* (K, d_pad) widened, where T is not float */
    float *p, *ds, *factor;  /* (K, Q) */
    float *delta, *lse;      /* (Q) */
    float *dq;               /* (Q, d_pad) */
    float *dk, *dv;          /* (K, d_pad); in one pass (seq, d_pad) */
} scratch;

static size_t carve(scratch *s, float *base, const attention_tiles *t, int64_t kv_rows)
{
    size_t at = 0;
#define TAKE(field, n) (s->field = base ? base + at : NULL, at += (size_t)(n))
    TAKE(q_rows, t->queries * t->d_pad);
    TAKE(do_rows, t->queries * t->d_pad);
    TAKE(q_t, t->D * t->queries);
    TAKE(do_t, t->D * t->queries);
    TAKE(k, t->keys * t->d_pad);
    TAKE(v, t->keys * t->d_pad);
    TAKE(p, t->keys * t->queries);
    TAKE(ds, t->keys * t->queries);
    TAKE(factor, t->keys * t->queries);
    TAKE(delta, t->queries);
    TAKE(lse, t->queries);
    TAKE(dq, t->queries * t->d_pad);
    TAKE(dk, kv_rows * t->d_pad);
    TAKE(dv, kv_rows * t->d_pad);
#undef TAKE
    return at * sizeof(float);
}

static size_t bytes_for(const attention_tiles *t)
{
    scratch unused;
    return carve(&unused, NULL, t, t->keys);
}

/* One call: a, its tiles, and the rows of dk and dv in each thread's scratch. */
typedef struct job {
    const plait_exec *ex;
    const plait_attention *a;
    attention_tiles t;
    int64_t kv_rows;
} job;

/* A tile of queries: [q0, q0 + n) of head h of sample b. */
typedef struct place {
    int64_t b, h, q0, n;
} place;

static int64_t kv_head(const job *j, int64_t h)
{
    return h / (j->a->heads / j->a->kv_heads);
}

static scratch thread_scratch(const job *j)
{
    scratch s;
    size_t floats = carve(&s, NULL, &j->t, j->kv_rows) / sizeof(float);
    carve(&s, (float *)j->ex->scratch + (size_t)omp_get_thread_num() * floats, &j->t, j->kv_rows);
    return s;
}

/* What all key tiles of a tile of queries need. Columns without a query have lse infinite, so P is 0 there. */
static void load_queries(const job *j, scratch *s, const place *at)
{
    const plait_attention *a = j->a;
    const attention_tiles *t = &j->t;
    const elem *q = head_row(a->q, a->ldq, a, at->b, at->h, at->q0);
    const elem *d_o = head_row(a->d_o, a->lddo, a, at->b, at->h, at->q0);
    const float *lse = (const float *)a->lse + (at->b * a->heads + at->h) * a->seq + at->q0;
    widen_rows(s->q_rows, t->d_pad, q, a->batch * a->ldq, at->n, t->D, (float)a->scale);
    widen_rows(s->do_rows, t->d_pad, d_o, a->batch * a->lddo, at->n, t->D, 1.0f);
    transpose(s->q_t, t->queries, s->q_rows, t->d_pad, at->n, t->D);
    transpose(s->do_t, t->queries, s->do_rows, t->d_pad, at->n, t->D);
    for (int64_t i = 0; i < t->queries; i++) {
        vf dot = {0};
        if (i < at->n) {
            const elem *o = head_row(a->o, a->ldo, a, at->b, at->h, at->q0 + i);
            for (int64_t c = 0; c < t->D; c += LANES) {
                int64_t w = width(c, t->D);
                dot = vf_fma(load(o + c, w), vf_load_n(s->do_rows + i * t->d_pad + c, w), dot);
            }
        }
        s->delta[i] = vf_sum(dot);
        s->lse[i] = i < at->n ? lse[i] : INFINITY;
    }
}

/* From scores (p) and do V^T (ds) to F P and dS, masked. */
static void tile_gradients(const job *j, scratch *s, const place *at, int64_t k0, int64_t keys)
{
    const int64_t Q = j->t.queries;
    const bool drop = dropout_is_on(j->a->dropout);
    if (drop)
        drop_factors(s->factor, Q, j->a, at->b, at->h, at->q0, Q, k0, keys);
    for (int64_t k = 0; k < keys; k++)
        for (int64_t i = 0; i < Q; i += LANES) {
            float *pp = s->p + k * Q + i, *dsp = s->ds + k * Q + i;
            vf p = vf_exp(vf_load(pp) - vf_load(s->lse + i)), d = vf_load(dsp);
            for (int64_t lane = 0; lane < min_i64(LANES, k0 + k - at->q0 - i); lane++)
                p[lane] = 0.0f;
            vf dropped = p;
            if (drop) {
                vf f = vf_load(s->factor + k * Q + i);
                d *= f;
                dropped *= f;
            }
            vf_store(dsp, p * (d - vf_load(s->delta + i)));
            vf_store(pp, dropped);
        }
}

/* Adds the tile of keys [k0, ...) and the loaded queries to dk and dv (K rows), and to s->dq; `kv` and `query` say
 * which. */
static void key_tile(const job *j, scratch *s, const place *at, int64_t k0, float *dk, float *dv, bool query)
{
    const plait_attention *a = j->a;
    const int64_t Q = j->t.queries, D = j->t.D, d_pad = j->t.d_pad, kv = kv_head(j, at->h);
    int64_t keys = min_i64(j->t.keys, at->q0 + at->n - k0), ldk, ldv;
    const float *k =
        float_rows(s->k, d_pad, head_row(a->k, a->ldk, a, at->b, kv, k0), a->batch * a->ldk, keys, D, &ldk);
    const float *v =
        float_rows(s->v, d_pad, head_row(a->v, a->ldv, a, at->b, kv, k0), a->batch * a->ldv, keys, D, &ldv);
    ISA_FN(tile_gemm)(keys, Q, D, k, ldk, 1, s->q_t, Q, s->p, Q, false);
    ISA_FN(tile_gemm)(keys, Q, D, v, ldv, 1, s->do_t, Q, s->ds, Q, false);
    tile_gradients(j, s, at, k0, keys);
    if (dk) {
        ISA_FN(tile_gemm)(keys, D, at->n, s->p, Q, 1, s->do_rows, d_pad, dv, d_pad, true);
        ISA_FN(tile_gemm)(keys, D, at->n, s->ds, Q, 1, s->q_rows, d_pad, dk, d_pad, true);
    }
    if (query)
        ISA_FN(tile_gemm)(at->n, D, keys, s->ds, 1, Q, k, ldk, s->dq, d_pad, k0 > 0);
}

static void write_rows(const job *j, void *to, int64_t ld, const float *rows, int64_t b, int64_t h, int64_t t0,
                       int64_t n, float scale)
{
    for (int64_t i = 0; i < n; i++)
        narrow_row((elem *)(uintptr_t)head_row(to, ld, j->a, b, h, t0 + i), rows + i * j->t.d_pad, j->t.D, scale);
}

static void write_dq(const job *j, const scratch *s, const place *at)
{
    write_rows(j, j->a->dq, j->a->lddq, s->dq, at->b, at->h, at->q0, at->n, (float)j->a->scale);
}

/* dq, dk and dv of one key/value head and all its query heads. */
static void whole_head(const job *j, int64_t b, int64_t kv)
{
    const plait_attention *a = j->a;
    const int64_t group = a->heads / a->kv_heads, d_pad = j->t.d_pad;
    scratch s = thread_scratch(j);
    memset(s.dk, 0, (size_t)(a->seq * d_pad) * sizeof(float));
    memset(s.dv, 0, (size_t)(a->seq * d_pad) * sizeof(float));
    for (int64_t h = kv * group; h < (kv + 1) * group; h++)
        for (int64_t q0 = 0; q0 < a->seq; q0 += j->t.queries) {
            place at = {b, h, q0, min_i64(j->t.queries, a->seq - q0)};
            load_queries(j, &s, &at);
            for (int64_t k0 = 0; k0 < q0 + at.n; k0 += j->t.keys)
                key_tile(j, &s, &at, k0, s.dk + k0 * d_pad, s.dv + k0 * d_pad, true);
            write_dq(j, &s, &at);
        }
    write_rows(j, a->dk, a->lddk, s.dk, b, kv, 0, a->seq, 1.0f);
    write_rows(j, a->dv, a->lddv, s.dv, b, kv, 0, a->seq, 1.0f);
}

/* dk and dv of one tile of keys, over all queries that see it. */
static void keys_only(const job *j, int64_t b, int64_t kv, int64_t k0)
{
    const plait_attention *a = j->a;
    const int64_t group = a->heads / a->kv_heads, n = min_i64(j->t.keys, a->seq - k0);
    scratch s = thread_scratch(j);
    memset(s.dk, 0, (size_t)(n * j->t.d_pad) * sizeof(float));
    memset(s.dv, 0, (size_t)(n * j->t.d_pad) * sizeof(float));
    for (int64_t h = kv * group; h < (kv + 1) * group; h++)
        for (int64_t q0 = k0 / j->t.queries * j->t.queries; q0 < a->seq; q0 += j->t.queries) {
            place at = {b, h, q0, min_i64(j->t.queries, a->seq - q0)};
            load_queries(j, &s, &at);
            key_tile(j, &s, &at, k0, s.dk, s.dv, false);
        }
    write_rows(j, a->dk, a->lddk, s.dk, b, kv, k0, n, 1.0f);
    write_rows(j, a->dv, a->lddv, s.dv, b, kv, k0, n, 1.0f);
}

/* dq of one tile of queries, over all keys that it sees. */
static void queries_only(const job *j, int64_t b, int64_t h, int64_t q0)
{
    place at = {b, h, q0, min_i64(j->t.queries, j->a->seq - q0)};
    scratch s = thread_scratch(j);
    load_queries(j, &s, &at);
    for (int64_t k0 = 0; k0 < q0 + at.n; k0 += j->t.keys)
        key_tile(j, &s, &at, k0, NULL, NULL, true);
    write_dq(j, &s, &at);
}

static void one_pass(const job *j)
{
    const int64_t tasks = j->a->batch * j->a->kv_heads;
#pragma omp parallel for schedule(dynamic) num_threads(team(j->ex, tasks * j->a->seq * j->a->seq * j->a->head_dim))
    for (int64_t task = 0; task < tasks; task++)
        whole_head(j, task / j->a->kv_heads, task % j->a->kv_heads);
}

static void two_passes(const job *j)
{
    const plait_attention *a = j->a;
    const int64_t key_tiles = ceil_div(a->seq, j->t.keys), query_tiles = ceil_div(a->seq, j->t.queries);
    const int threads = attention_threads(j->ex, a, j->t.bytes);
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t task = 0; task < a->batch * a->kv_heads * key_tiles; task++) {
        int64_t head = task / key_tiles;
        keys_only(j, head / a->kv_heads, head % a->kv_heads, task % key_tiles * j->t.keys);
    }
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t task = 0; task < a->batch * a->heads * query_tiles; task++) {
        int64_t head = task / query_tiles;
        queries_only(j, head / a->heads, head % a->heads, task % query_tiles * j->t.queries);
    }
}

plait_status FN(attention_bwd)(const plait_exec *ex, const plait_attention *a)
{
    scratch unused;
    job j = {.ex = ex, .a = a};
    PLAIT_TRY(attention_plan(ex, a, bytes_for, &j.t));
    const int64_t threads = ex->threads > 1 ? ex->threads : 1;
    const size_t whole = carve(&unused, NULL, &j.t, a->seq);
    if (whole * (size_t)threads <= ex->scratch_bytes && a->batch * a->kv_heads >= threads) {
        j.kv_rows = a->seq;
        one_pass(&j);
    } else {
        j.kv_rows = j.t.keys;
        two_passes(&j);
    }
    return PLAIT_OK;
}
