/* Rotary embeddings (Su et al. 2021), pairs (j, j + D/2). */
#include "kernels/cpu/typed.h"

/* Pairs rotated at a time: their cosines and sines are separated once for all samples and heads of a position. */
#define PAIRS 128

static void rotate(elem *low, elem *high, const float *cosine, const float *sine, int64_t n)
{
    for (int64_t j = 0; j < n; j += LANES) {
        int64_t w = width(j, n);
        vf a = load(low + j, w), b = load(high + j, w), c = vf_load_n(cosine + j, w), s = vf_load_n(sine + j, w);
        store(low + j, a * c - b * s, w);
        store(high + j, b * c + a * s, w);
    }
}

plait_status FN(rope)(const plait_exec *ex, void *x, int64_t ldx, const void *table, int64_t seq, int64_t batch,
                      int64_t heads, int64_t D, bool inverse)
{
    const int64_t half = D / 2;
#pragma omp parallel for schedule(static) num_threads(team(ex, seq *batch *heads *D))
    for (int64_t t = 0; t < seq; t++) {
        const float *row = (const float *)table + t * half * 2;
        for (int64_t j0 = 0; j0 < half; j0 += PAIRS) {
            float cosine[PAIRS], sine[PAIRS];
            int64_t n = min_i64(PAIRS, half - j0);
            for (int64_t j = 0; j < n; j++) {
                cosine[j] = row[2 * (j0 + j)];
                sine[j] = inverse ? -row[2 * (j0 + j) + 1] : row[2 * (j0 + j) + 1];
            }
            for (int64_t b = 0; b < batch; b++)
                for (int64_t h = 0; h < heads; h++) {
                    elem *head = (elem *)x + (t * batch + b) * ldx + h * D + j0;
                    rotate(head, head + half, cosine, sine, n);
                }
        }
    }
    return PLAIT_OK;
}
