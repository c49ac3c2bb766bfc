/* kernels/cpu/colsum.h: sums over rows (dw, db), in an order that only the shapes decide.
 *
 * The rows are cut into at most 32 blocks. Each block is summed into its own fp32 partial sums in scratch, by whatever
 * thread takes it; then the partial sums are added to the result in the order of the blocks. Where scratch has no place
 * for two blocks there is one, and it adds to the result itself.
 */
#ifndef PLAIT_KERNELS_CPU_COLSUM_H
#define PLAIT_KERNELS_CPU_COLSUM_H

#include "kernels/cpu/impl.h"
#include "kernels/cpu/vec.h"

typedef struct colsum {
    int64_t blocks, rows; /* rows of a block */
    int64_t N, C;
    int vectors; /* 0, 1 or 2 results of C columns */
    float *result[2];
    float *partial; /* (blocks, vectors, C) when blocks > 1 */
} colsum;

/* first, second: results, or NULL for none (then second is NULL too). */
static inline colsum colsum_make(const plait_exec *ex, int64_t N, int64_t C, float *first, float *second)
{
    colsum s = {.N = N, .C = C, .vectors = !first ? 0 : !second ? 1 : 2, .result = {first, second}};
    s.blocks = ceil_div(N, 32);
    s.blocks = s.blocks > 32 ? 32 : s.blocks < 1 ? 1 : s.blocks;
    if (s.vectors > 0) {
        int64_t fit = (int64_t)(ex->scratch_bytes / sizeof(float)) / (s.vectors * C > 0 ? s.vectors * C : 1);
        s.blocks = s.blocks > fit ? (fit < 1 ? 1 : fit) : s.blocks;
    }
    s.rows = ceil_div(N, s.blocks);
    s.blocks = s.rows > 0 ? ceil_div(N, s.rows) : 1;
    s.partial = (float *)ex->scratch;
    return s;
}

static inline int64_t colsum_begin(const colsum *s, int64_t block)
{
    return block * s->rows;
}

static inline int64_t colsum_end(const colsum *s, int64_t block)
{
    return min_i64((block + 1) * s->rows, s->N);
}

/* Where `block` adds its part of result i (0 or 1); NULL when there is none. */
static inline float *colsum_target(const colsum *s, int64_t block, int i)
{
    if (i >= s->vectors)
        return NULL;
    return s->blocks > 1 ? s->partial + (block * s->vectors + i) * s->C : s->result[i];
}

/* Before a block's first row. */
static inline void colsum_start(const colsum *s, int64_t block)
{
    if (s->blocks > 1 && s->vectors > 0)
        memset(colsum_target(s, block, 0), 0, (size_t)(s->vectors * s->C) * sizeof(float));
}

/* After the last block. */
static inline void colsum_finish(const colsum *s)
{
    if (s->blocks == 1)
        return;
    for (int i = 0; i < s->vectors; i++)
        for (int64_t c = 0; c < s->C; c += LANES) {
            int64_t w = s->C - c < LANES ? s->C - c : LANES;
            vf sum = {0};
            for (int64_t b = 0; b < s->blocks; b++)
                sum += vf_load_n(colsum_target(s, b, i) + c, w);
            vf_store_n(s->result[i] + c, vf_load_n(s->result[i] + c, w) + sum, w);
        }
}

#endif
