/* launcher/diff_number.h: a number as the bits of its type: how it is printed, and how far it is from another.
 *
 * A unit in the last place (ULP) is a step to the next number of the type. Sign and magnitude order the numbers as
 * whole numbers do, so the distance is a difference of two of these; both zeros are one place.
 */
#ifndef PLAIT_LAUNCHER_DIFF_NUMBER_H
#define PLAIT_LAUNCHER_DIFF_NUMBER_H

#include <stdio.h>

#include "core/dtype.h"

PLAIT_BEGIN_DECLS

/* A distance from what is no number: more than any other. */
#define PLAIT_ULPS_NAN UINT64_MAX

/* a, b: bits of fp32, bf16, fp16 or fp64. Two NaNs of the same bits are 0 apart. */
uint64_t plait_ulps(plait_dtype dtype, uint64_t a, uint64_t b);
uint64_t plait_double_bits(double x);

/* All digits and the exact hexadecimal form, "0.100000001 (0x1.99999ap-4)"; a NaN with its bits. */
void plait_number_print(FILE *out, plait_dtype dtype, uint64_t bits);
/* "3 ULPs", or why that says nothing. */
void plait_ulps_print(FILE *out, uint64_t ulps);

PLAIT_END_DECLS
#endif
