#include "core/rng.h"

#include <math.h>

plait_rng plait_rng_make(uint64_t seed, plait_rng_use use, uint32_t layer, uint32_t major, uint32_t minor)
{
    return (plait_rng){seed, major, minor, layer << 16 | (uint32_t)use << 12};
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
