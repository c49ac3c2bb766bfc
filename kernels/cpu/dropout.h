/* kernels/cpu/dropout.h: the factors of dropout, 0 or 1 / (1 - p), for consecutive elements of a stream.
 *
 * Philox (core/rng.h) for several blocks at a time, a block a lane.
 */
#ifndef PLAIT_KERNELS_CPU_DROPOUT_H
#define PLAIT_KERNELS_CPU_DROPOUT_H

#include "kernels/cpu/vec.h"
#include "kernels/kernels.h"

#define PHILOX_LANES 16

static inline bool dropout_is_on(const plait_dropout *d)
{
    return d && d->p > 0.0;
}

static inline plait_rng dropout_rng(const plait_dropout *d, int64_t sample)
{
    return plait_rng_make(d->seed, d->use, d->layer, d->step, d->sample0 + (uint32_t)sample);
}

/* word[w][lane] = word w of block block[lane]; as plait_rng_block. */
static inline void philox_lanes(const plait_rng *rng, const uint64_t block[PHILOX_LANES],
                                uint32_t word[4][PHILOX_LANES])
{
    const vu none = {0};
    uint32_t low[PHILOX_LANES], high[PHILOX_LANES];
    for (int i = 0; i < PHILOX_LANES; i++) {
        low[i] = (uint32_t)block[i];
        high[i] = rng->layer_use | (uint32_t)(block[i] >> 32 & 0xfffu);
    }
    for (int i = 0; i < PHILOX_LANES; i += LANES) {
        uint32_t k0 = (uint32_t)rng->seed, k1 = (uint32_t)(rng->seed >> 32);
        vu c0, c1 = none + rng->minor, c2 = none + rng->major, c3;
        memcpy(&c0, low + i, sizeof c0);
        memcpy(&c3, high + i, sizeof c3);
        for (int round = 0; round < 10; round++) {
            vu p0, p1;
            vu low0 = vu_mul_wide(c0, 0xD2511F53u, &p0), low1 = vu_mul_wide(c2, 0xCD9E8D57u, &p1);
            c0 = p1 ^ c1 ^ k0;
            c1 = low1;
            c2 = p0 ^ c3 ^ k1;
            c3 = low0;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        memcpy(word[0] + i, &c0, sizeof c0);
        memcpy(word[1] + i, &c1, sizeof c1);
        memcpy(word[2] + i, &c2, sizeof c2);
        memcpy(word[3] + i, &c3, sizeof c3);
    }
}

/* factor[i] for elements first to first + n - 1; `factor` has room for n rounded up to whole blocks plus one, that is
 * n + 4 * PHILOX_LANES. Returns where element `first` lies in it. */
static inline const float *dropout_factors(const plait_dropout *d, const plait_rng *rng, uint64_t first, int64_t n,
                                           float *factor)
{
    const uint32_t threshold = plait_dropout_threshold(d->p);
    const float scale = (float)(1.0 / (1.0 - d->p));
    uint64_t block = first / 4;
    int64_t skip = (int64_t)(first % 4);
    for (int64_t i = 0; i < skip + n; i += 4 * PHILOX_LANES, block += PHILOX_LANES) {
        uint64_t blocks[PHILOX_LANES];
        uint32_t word[4][PHILOX_LANES];
        for (int j = 0; j < PHILOX_LANES; j++)
            blocks[j] = block + (uint64_t)j;
        philox_lanes(rng, blocks, word);
        for (int j = 0; j < PHILOX_LANES; j++)
            for (int w = 0; w < 4; w++)
                factor[i + 4 * j + w] = word[w][j] < threshold ? 0.0f : scale;
    }
    return factor + skip;
}

#endif
