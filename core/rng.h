/* core/rng.h: counter-based random numbers (Philox 4x32-10; Salmon et al. 2011, "Parallel random numbers: as easy as
 * 1, 2, 3", section 4.3).
 *
 * A number is a pure function of the seed and of what it is for. So every topology draws the same initial model and the
 * same dropout masks, and recomputation redraws nothing.
 */
#ifndef PLAIT_CORE_RNG_H
#define PLAIT_CORE_RNG_H

#include "core/status.h"

#include <stdint.h>

PLAIT_BEGIN_DECLS

/* Ten rounds: four words from a counter of four and a key of two. */
PLAIT_HOST_DEVICE static inline void plait_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* What a stream of random numbers is for. */
typedef enum plait_rng_use {
    PLAIT_RNG_INIT,
    PLAIT_RNG_DATA,
    PLAIT_RNG_SAMPLING,
    PLAIT_RNG_DROPOUT_EMBED,
    PLAIT_RNG_DROPOUT_ATTN, /* attention probabilities */
    PLAIT_RNG_DROPOUT_PROJ, /* after attention's output projection */
    PLAIT_RNG_DROPOUT_MLP
} plait_rng_use;

/* A stream: element i of it is word i % 4 of block i / 4. `major` is the step, `minor` the sample (dropout), the
 * tensor (initial weights), or the epoch (data); `layer` is below 2^16. */
typedef struct plait_rng {
    uint64_t seed;
    uint32_t major, minor;
    uint32_t layer_use; /* plait_rng_make packs layer and use */
} plait_rng;

plait_rng plait_rng_make(uint64_t seed, plait_rng_use use, uint32_t layer, uint32_t major, uint32_t minor);

/* The four words of block `block` (below 2^44): elements 4 block to 4 block + 3. */
PLAIT_HOST_DEVICE static inline void plait_rng_block(const plait_rng *r, uint64_t block, uint32_t out[4])
{
    const uint32_t counter[4] = {(uint32_t)block, r->minor, r->major, r->layer_use | (uint32_t)(block >> 32 & 0xfffu)};
    const uint32_t key[2] = {(uint32_t)r->seed, (uint32_t)(r->seed >> 32)};
    plait_philox4x32(counter, key, out);
}
/* Element i as a 32-bit word. */
uint32_t plait_rng_word(const plait_rng *r, uint64_t i);
/* Element i of a standard normal sequence (Box and Muller, double precision). */
double plait_rng_normal(const plait_rng *r, uint64_t i);
/* Element i uniform in [0, 1), 53 bits. */
double plait_rng_uniform(const plait_rng *r, uint64_t i);

/* An element is dropped when its word is below this. p in [0, 1). */
static inline uint32_t plait_dropout_threshold(double p)
{
    return (uint32_t)(p * 4294967296.0);
}

PLAIT_END_DECLS
#endif
