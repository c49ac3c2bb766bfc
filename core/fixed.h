/* core/fixed.h: numbers with a fixed point, whose sums do not depend on the order of their terms
 * (docs/design/0003-invariant-sums.md).
 *
 * An int64 k stands for k 2^-43. A term may be below 2^8, which leaves room for sums of 4096 of them.
 */
#ifndef PLAIT_CORE_FIXED_H
#define PLAIT_CORE_FIXED_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/status.h"

PLAIT_BEGIN_DECLS

#define PLAIT_FIXED_ONE   0x1p43
#define PLAIT_FIXED_LIMIT 0x1p8

/* x to the nearest k, ties to even; false (and k 0) when |x| is not below the limit, or x is not a number. */
static inline bool plait_fixed_from(double x, int64_t *k)
{
    /* Adding 1.5 2^52 leaves the rounded integer in the low bits: what vectors without a conversion to int64 do too. */
    const double magic = 0x1.8p52, shifted = x * PLAIT_FIXED_ONE + magic;
    int64_t bits, zero;
    *k = 0;
    if (!(x < PLAIT_FIXED_LIMIT && x > -PLAIT_FIXED_LIMIT))
        return false;
    memcpy(&bits, &shifted, sizeof bits);
    memcpy(&zero, &magic, sizeof zero);
    *k = bits - zero;
    return true;
}

/* k 2^-43 as fp32, rounded once. */
static inline float plait_fixed_to_float(int64_t k)
{
    return (float)k * (float)(1 / PLAIT_FIXED_ONE);
}

/* Sums of squares of such numbers, in units of 2^-86. */
__extension__ typedef unsigned __int128 plait_fixed_squares;

/* Magnitudes below this may be squared: 2^18 of the largest fit. */
#define PLAIT_FIXED_MOST_SQUARED ((int64_t)1 << 55)

/* In limbs of 32 bits, which may be added over up to 2^31 ranks as int64, in any order; and the sum back. */
static inline void plait_fixed_squares_split(plait_fixed_squares sum, int64_t limb[4])
{
    for (int i = 0; i < 4; i++)
        limb[i] = (int64_t)(uint32_t)(sum >> 32 * i);
}
static inline plait_fixed_squares plait_fixed_squares_join(const int64_t limb[4])
{
    plait_fixed_squares sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (plait_fixed_squares)(uint64_t)limb[i] << 32 * i;
    return sum;
}

static inline double plait_fixed_squares_value(plait_fixed_squares sum)
{
    return ((double)(uint64_t)(sum >> 64) * 0x1p64 + (double)(uint64_t)sum) * (1 / (PLAIT_FIXED_ONE * PLAIT_FIXED_ONE));
}

PLAIT_END_DECLS
#endif
