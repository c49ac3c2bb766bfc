/* Token and position embeddings. */
#include "kernels/cpu/typed.h"

plait_status FN(embedding_fwd)(const plait_exec *ex, void *y, const int32_t *tokens, const void *table, int64_t row0,
                               int64_t rows, int64_t N, int64_t C)
{
#pragma omp parallel for schedule(static) num_threads(team(ex, N *C))
    for (int64_t r = 0; r < N; r++) {
        int64_t row = tokens[r] - row0;
        if (row >= 0 && row < rows)
            memcpy((elem *)y + r * C, (const elem *)table + row * C, (size_t)C * sizeof(elem));
    }
    return PLAIT_OK;
}

/* to += from, n elements */
static void add_row(float *to, const elem *from, int64_t n)
{
    for (int64_t c = 0; c < n; c += LANES) {
        int64_t w = width(c, n);
        vf_store_n(to + c, vf_load_n(to + c, w) + load(from + c, w), w);
    }
}

/* A token may occur in many rows: threads share the columns, so that each sum stays with one thread and in row order.
 * A stripe of 64 floats is four cache lines. */
#define STRIPE 64

plait_status FN(embedding_bwd)(const plait_exec *ex, void *dtable, const int32_t *tokens, const void *dy, int64_t row0,
                               int64_t rows, int64_t N, int64_t C)
{
    const int64_t stripes = ceil_div(C, STRIPE);
    const int64_t parts = min_i64(team(ex, N * C), stripes > 0 ? stripes : 1);
#pragma omp parallel for schedule(static) num_threads((int)parts)
    for (int64_t part = 0; part < parts; part++) {
        int64_t c = part * stripes / parts * STRIPE, end = min_i64((part + 1) * stripes / parts * STRIPE, C);
        for (int64_t r = 0; r < N; r++) {
            int64_t row = tokens[r] - row0;
            if (row >= 0 && row < rows)
                add_row((float *)dtable + row * C + c, (const elem *)dy + r * C + c, end - c);
        }
    }
    return PLAIT_OK;
}

plait_status FN(position_fwd)(const plait_exec *ex, void *y, const void *pos, int64_t seq, int64_t batch, int64_t C)
{
#pragma omp parallel for schedule(static) num_threads(team(ex, seq *batch *C))
    for (int64_t t = 0; t < seq; t++) {
        const elem *p = (const elem *)pos + t * C;
        for (int64_t b = 0; b < batch; b++) {
            elem *row = (elem *)y + (t * batch + b) * C;
            for (int64_t c = 0; c < C; c += LANES) {
                int64_t w = width(c, C);
                store(row + c, load(row + c, w) + load(p + c, w), w);
            }
        }
    }
    return PLAIT_OK;
}

plait_status FN(position_bwd)(const plait_exec *ex, void *dpos, const void *dy, int64_t seq, int64_t batch, int64_t C)
{
#pragma omp parallel for schedule(static) num_threads(team(ex, seq *batch *C))
    for (int64_t t = 0; t < seq; t++)
        for (int64_t b = 0; b < batch; b++)
            add_row((float *)dpos + t * C, (const elem *)dy + (t * batch + b) * C, C);
    return PLAIT_OK;
}
