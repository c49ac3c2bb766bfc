/* core/fixed.h: numbers with a fixed point, whose sums do not depend on the order of their terms
 * (docs/design/0003-invariant-sums.md).
 *
 * An int64 k stands for k 2^-43. Whether a term is too large is asked of each term alone, so that the answer too is the
 * same in any order.
 */
#ifndef PLAIT_CORE_FIXED_H
#define PLAIT_CORE_FIXED_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/status.h"

PLAIT_BEGIN_DECLS

#define PLAIT_FIXED_ONE   0x1p43
#define PLAIT_FIXED_LIMIT 0x1p8 /* what a term must be below at the most: the conversion has 52 bits */

/* What each of n terms must be below, so that no sum of some of them, in any order, leaves int64. */
static inline double plait_fixed_limit(int64_t n)
{
    double limit = PLAIT_FIXED_LIMIT;
    while (limit * (double)n > 0x1p20)
        limit /= 2;
    return limit;
}

/* x to the nearest k, ties to even; false (and k 0) when |x| is not below the limit, or x is not a number. */
PLAIT_HOST_DEVICE static inline bool plait_fixed_from(double x, double limit, int64_t *k)
{
    /* Adding 1.5 2^52 leaves the rounded integer in the low bits: what vectors without a conversion to int64 do too. */
    const double magic = 0x1.8p52, shifted = x * PLAIT_FIXED_ONE + magic;
    int64_t bits, zero;
    *k = 0;
    if (!(x < limit && x > -limit))
        return false;
    memcpy(&bits, &shifted, sizeof bits);
    memcpy(&zero, &magic, sizeof zero);
    *k = bits - zero;
    return true;
}

/* k 2^-43 as fp32, rounded once. */
PLAIT_HOST_DEVICE static inline float plait_fixed_to_float(int64_t k)
{
    return (float)k * (float)(1 / PLAIT_FIXED_ONE);
}

/* Sums of squares of such numbers, in units of 2^-86. */
__extension__ typedef unsigned __int128 plait_fixed_squares;

/* Magnitudes below this may be squared. A sum has to stay below 2^126 of its units: a norm of 2^20. */
#define PLAIT_FIXED_MOST_SQUARED ((int64_t)1 << 55)

PLAIT_HOST_DEVICE static inline bool plait_fixed_squares_fit(plait_fixed_squares sum)
{
    return sum >> 126 == 0;
}

/* In limbs of 32 bits, which may be added over up to 2^31 ranks as int64, in any order; and the sum back, false when it
 * does not fit. */
static inline void plait_fixed_squares_split(plait_fixed_squares sum, int64_t limb[4])
{
    for (int i = 0; i < 4; i++)
        limb[i] = (int64_t)(uint32_t)(sum >> 32 * i);
}
static inline bool plait_fixed_squares_join(const int64_t limb[4], plait_fixed_squares *sum)
{
    uint64_t carry = 0;
    *sum = 0;
    for (int i = 0; i < 4; i++) {
        carry += (uint64_t)limb[i];
        *sum |= (plait_fixed_squares)(uint32_t)carry << 32 * i;
        carry >>= 32;
    }
    return carry == 0 && plait_fixed_squares_fit(*sum);
}

static inline double plait_fixed_squares_value(plait_fixed_squares sum)
{
    return ((double)(uint64_t)(sum >> 64) * 0x1p64 + (double)(uint64_t)sum) * (1 / (PLAIT_FIXED_ONE * PLAIT_FIXED_ONE));
}

PLAIT_END_DECLS
#endif
