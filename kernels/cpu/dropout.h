/* kernels/cpu/dropout.h: the factors of dropout, 0 or 1 / (1 - p), for consecutive elements of a stream.
 *
 * Philox (core/rng.h) for several blocks at a time, in loops over lanes that a compiler turns into vectors.
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

/* word[w][lane] = word w of block first[lane]; as plait_rng_block. */
static inline void philox_lanes(const plait_rng *rng, const uint64_t block[PHILOX_LANES],
                                uint32_t word[4][PHILOX_LANES])
{
    uint32_t k0 = (uint32_t)rng->seed, k1 = (uint32_t)(rng->seed >> 32);
    uint32_t *c0 = word[0], *c1 = word[1], *c2 = word[2], *c3 = word[3];
    for (int i = 0; i < PHILOX_LANES; i++) {
        c0[i] = (uint32_t)block[i];
        c1[i] = rng->minor;
        c2[i] = rng->major;
        c3[i] = rng->layer_use | (uint32_t)(block[i] >> 32 & 0xfffu);
    }
    for (int round = 0; round < 10; round++) {
        uint32_t n0[PHILOX_LANES], n1[PHILOX_LANES], n2[PHILOX_LANES], n3[PHILOX_LANES];
        for (int i = 0; i < PHILOX_LANES; i++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c0[i], p1 = (uint64_t)0xCD9E8D57u * c2[i];
            n0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
            n1[i] = (uint32_t)p1;
            n2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
            n3[i] = (uint32_t)p0;
        }
        memcpy(c0, n0, sizeof n0);
        memcpy(c1, n1, sizeof n1);
        memcpy(c2, n2, sizeof n2);
        memcpy(c3, n3, sizeof n3);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
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
