#include "launcher/diff_number.h"

#include <inttypes.h>
#include <math.h>

static const struct {
    int bits, digits; /* digits that give the same number back */
    uint64_t infinity;
} forms[PLAIT_DTYPES] = {
    [PLAIT_FP32] = {32, 9, UINT64_C(0x7f800000)},
    [PLAIT_BF16] = {16, 9, UINT64_C(0x7f80)},
    [PLAIT_FP16] = {16, 9, UINT64_C(0x7c00)},
    [PLAIT_FP64] = {64, 17, UINT64_C(0x7ff0000000000000)},
};

static uint64_t magnitude(plait_dtype dtype, uint64_t bits)
{
    return bits & ~(UINT64_C(1) << (forms[dtype].bits - 1));
}

/* Where the number stands in the order of all: 0 for both zeros. */
static int64_t place(plait_dtype dtype, uint64_t bits)
{
    const int64_t m = (int64_t)magnitude(dtype, bits);
    return bits >> (forms[dtype].bits - 1) & 1 ? -m : m;
}

static bool is_nan(plait_dtype dtype, uint64_t bits)
{
    return magnitude(dtype, bits) > forms[dtype].infinity;
}

uint64_t plait_ulps(plait_dtype dtype, uint64_t a, uint64_t b)
{
    if (a == b)
        return 0;
    if (is_nan(dtype, a) || is_nan(dtype, b))
        return PLAIT_ULPS_NAN;
    /* Not in int64_t: from -inf to inf is more. */
    const int64_t x = place(dtype, a), y = place(dtype, b);
    return x > y ? (uint64_t)x - (uint64_t)y : (uint64_t)y - (uint64_t)x;
}

uint64_t plait_double_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double value(plait_dtype dtype, uint64_t bits)
{
    const uint32_t low = (uint32_t)bits;
    float single;
    double x;
    switch (dtype) {
    case PLAIT_FP64:
        memcpy(&x, &bits, sizeof x);
        return x;
    case PLAIT_FP32:
        memcpy(&single, &low, sizeof single);
        return (double)single;
    case PLAIT_BF16:
        return (double)plait_bf16_to_float((uint16_t)bits);
    default:
        return (double)plait_fp16_to_float((uint16_t)bits);
    }
}

void plait_number_print(FILE *out, plait_dtype dtype, uint64_t bits)
{
    const double x = value(dtype, bits);
    if (is_nan(dtype, bits))
        fprintf(out, "nan (bits 0x%0*" PRIx64 ")", forms[dtype].bits / 4, bits);
    else
        fprintf(out, "%.*g (%a)", forms[dtype].digits, x, x);
}

void plait_ulps_print(FILE *out, uint64_t ulps)
{
    if (ulps == PLAIT_ULPS_NAN)
        fputs("no distance in ULPs: not both are numbers", out);
    else if (ulps == 0)
        fputs("0 ULPs: the sign of zero", out);
    else
        fprintf(out, "%" PRIu64 " ULP%s", ulps, ulps == 1 ? "" : "s");
}
