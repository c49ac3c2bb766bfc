/* kernels/cpu/attention.h: what forward and backward of attention share.
 *
 * Dao et al. 2022, algorithms 1 and 4, with tiles of scores stored transposed: a column is a query, a row a key. So the
 * online softmax runs down the rows, a vector of queries at a time and without sums over lanes, and of all operands
 * only the queries are ever transposed, once for all their keys.
 */
#ifndef PLAIT_KERNELS_CPU_ATTENTION_H
#define PLAIT_KERNELS_CPU_ATTENTION_H

#include "kernels/cpu/dropout.h"
#include "kernels/cpu/typed.h"

/* Extents of a tile: multiples of tile_gemm's blocks (6 or 12 rows, 16 or 32 columns). They depend on the shapes and
 * on scratch alone, so that results do not depend on the number of threads. */
#define MAX_KEYS 48

typedef struct attention_tiles {
    int64_t queries, keys;
    int64_t D, d_pad; /* head_dim, and rounded up to whole vectors */
    size_t bytes;     /* of scratch for one thread; a multiple of a cache line */
} attention_tiles;

static inline int64_t pad16(int64_t n)
{
    return (n + 15) / 16 * 16;
}

/* The row of position t of sample b, at head h. */
static inline const elem *head_row(const void *x, int64_t ld, const plait_attention *a, int64_t b, int64_t h, int64_t t)
{
    return (const elem *)x + (t * a->batch + b) * ld + h * a->head_dim;
}

/* to (n, ld_to) = scale from, `cols` columns; the rows of `from` are `stride` apart. */
static inline void widen_rows(float *to, int64_t ld_to, const elem *from, int64_t stride, int64_t n, int64_t cols,
                              float scale)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < cols; c += LANES) {
            int64_t w = width(c, cols);
            vf_store_n(to + i * ld_to + c, load(from + i * stride + c, w) * scale, w);
        }
}

/* to = scale from, a row of D. */
static inline void narrow_row(elem *to, const float *from, int64_t D, float scale)
{
    for (int64_t c = 0; c < D; c += LANES) {
        int64_t w = width(c, D);
        store(to + c, vf_load_n(from + c, w) * scale, w);
    }
}

/* Rows as floats: in place where T is float, else widened into `room`. *ld becomes their leading dimension. */
static inline const float *float_rows(float *room, int64_t d_pad, const elem *from, int64_t stride, int64_t n,
                                      int64_t cols, int64_t *ld)
{
#if PLAIT_CPU_IS(fp32)
    (void)room, (void)d_pad, (void)n, (void)cols;
    *ld = stride;
    return from;
#else
    widen_rows(room, d_pad, from, stride, n, cols, 1.0f);
    *ld = d_pad;
    return room;
#endif
}

/* to (cols, ld_to) = the transposed of from (n, cols); columns n to ld_to - 1 become zero. */
static inline void transpose(float *to, int64_t ld_to, const float *from, int64_t ld_from, int64_t n, int64_t cols)
{
    for (int64_t c = 0; c < cols; c++)
        for (int64_t i = 0; i < ld_to; i++)
            to[c * ld_to + i] = i < n ? from[i * ld_from + c] : 0.0f;
}

/* factor (keys, ld): dropout's factors of a tile whose first query and key are q0 and k0; head h of sample b. `queries`
 * is a multiple of 16. Where keys are later than queries the factor does not matter, but is a number. */
static inline void drop_factors(float *factor, int64_t ld, const plait_attention *a, int64_t b, int64_t h, int64_t q0,
                                int64_t queries, int64_t k0, int64_t keys)
{
    const plait_dropout *d = a->dropout;
    const plait_rng rng = dropout_rng(d, b);
    const uint64_t first = (uint64_t)(((d->head0 + h) * a->seq + q0) * a->seq + k0);
    if (a->seq % 4 == 0 && k0 % 4 == 0) { /* a block is four keys of one query: a lane is a query */
        const uint32_t threshold = plait_dropout_threshold(d->p);
        const float scale = (float)(1.0 / (1.0 - d->p));
        for (int64_t k = 0; k < keys; k += 4)
            for (int64_t q = 0; q < queries; q += PHILOX_LANES) {
                uint64_t block[PHILOX_LANES];
                uint32_t word[4][PHILOX_LANES];
                for (int j = 0; j < PHILOX_LANES; j++)
                    block[j] = (first + (uint64_t)((q + j) * a->seq + k)) / 4;
                philox_lanes(&rng, block, word);
                for (int64_t w = 0; w < min_i64(4, keys - k); w++)
                    for (int j = 0; j < PHILOX_LANES; j++)
                        factor[(k + w) * ld + q + j] = word[w][j] < threshold ? 0.0f : scale;
            }
        return;
    }
    for (int64_t q = 0; q < queries; q++) {
        float room[MAX_KEYS + 4 * PHILOX_LANES];
        const float *row = dropout_factors(d, &rng, first + (uint64_t)(q * a->seq), keys, room);
        for (int64_t k = 0; k < keys; k++)
            factor[k * ld + q] = row[k];
    }
}

/* Tiles for which bytes(a, tiles) fits into scratch, and the threads that it is enough for. */
static inline plait_status attention_plan(const plait_exec *ex, const plait_attention *a,
                                          size_t (*bytes)(const attention_tiles *), attention_tiles *out)
{
    static const int64_t extents[][2] = {{48, 48}, {48, 24}, {32, 12}, {16, 6}};
    attention_tiles t = {.D = a->head_dim, .d_pad = pad16(a->head_dim)};
    for (size_t i = 0; i < sizeof extents / sizeof extents[0]; i++) {
        t.queries = extents[i][0];
        t.keys = extents[i][1];
        t.bytes = bytes(&t);
        if (t.bytes <= ex->scratch_bytes) {
            *out = t;
            return PLAIT_OK;
        }
    }
    PLAIT_FAIL(OUT_OF_MEMORY, "device.workspace %zu bytes: attention with head_dim %lld needs %zu", ex->scratch_bytes,
               (long long)a->head_dim, t.bytes);
}

/* Threads that `bytes` of scratch for each are enough for; at least 1. */
static inline int attention_threads(const plait_exec *ex, const plait_attention *a, size_t bytes)
{
    int64_t threads = team(ex, a->batch * a->heads * a->seq * a->seq * a->head_dim / 8);
    return (int)min_i64(threads, (int64_t)(ex->scratch_bytes / bytes));
}

#endif
