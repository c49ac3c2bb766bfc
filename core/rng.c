#include "core/rng.h"

#include <math.h>

void plait_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
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

plait_rng plait_rng_make(uint64_t seed, plait_rng_use use, uint32_t layer, uint32_t major, uint32_t minor)
{
    return (plait_rng){seed, major, minor, layer << 16 | (uint32_t)use << 12};
}

void plait_rng_block(const plait_rng *r, uint64_t block, uint32_t out[4])
{
    const uint32_t counter[4] = {(uint32_t)block, r->minor, r->major, r->layer_use | (uint32_t)(block >> 32 & 0xfffu)};
    const uint32_t key[2] = {(uint32_t)r->seed, (uint32_t)(r->seed >> 32)};
    plait_philox4x32(counter, key, out);
}

uint32_t plait_rng_word(const plait_rng *r, uint64_t i)
{
    uint32_t w[4];
    plait_rng_block(r, i / 4, w);
    return w[i % 4];
}

/* 53 bits of a pair of words, in [0, 1). */
static double unit_interval(uint32_t high, uint32_t low)
{
    return (double)((uint64_t)high << 21 | low >> 11) * 0x1p-53;
}

double plait_rng_normal(const plait_rng *r, uint64_t i)
{
    uint32_t w[4];
    plait_rng_block(r, i / 2, w);
    double radius = sqrt(-2.0 * log1p(-unit_interval(w[0], w[1])));
    double angle = 6.283185307179586476925 * unit_interval(w[2], w[3]);
    return radius * (i % 2 ? sin(angle) : cos(angle));
}

double plait_rng_uniform(const plait_rng *r, uint64_t i)
{
    uint32_t w[4];
    plait_rng_block(r, i / 2, w);
    return i % 2 ? unit_interval(w[2], w[3]) : unit_interval(w[0], w[1]);
}
