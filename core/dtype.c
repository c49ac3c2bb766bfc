#include "core/dtype.h"

const char *plait_dtype_name(plait_dtype dtype)
{
    static const char *const names[PLAIT_DTYPES] = {"fp32", "bf16", "fp16", "fp64", "int32", "int64"};
    return (unsigned)dtype < PLAIT_DTYPES ? names[dtype] : "?";
}

float plait_fp16_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 0x1fu, mantissa = h & 0x3ffu, bits;

    if (exponent == 0x1fu) {
        bits = sign | 0x7f800000u | mantissa << 13 | (mantissa ? 0x00400000u : 0);
    } else if (exponent != 0) {
        bits = sign | (exponent + 112) << 23 | mantissa << 13;
    } else if (mantissa == 0) {
        bits = sign;
    } else { /* subnormal: mantissa 2^-24, exact as a float */
        float f = (float)mantissa * 0x1p-24f;
        memcpy(&bits, &f, sizeof bits);
        bits |= sign;
    }
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

uint16_t plait_float_to_fp16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    uint32_t magnitude = bits & 0x7fffffffu;

    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {
        /* Below 2^-14 the result is a multiple of 2^-24: adding 0.5 makes the float unit round to it. */
        float m;
        memcpy(&m, &magnitude, sizeof m);
        m += 0.5f;
        memcpy(&magnitude, &m, sizeof magnitude);
        return (uint16_t)(sign | (magnitude - 0x3f000000u));
    }
    uint32_t odd = magnitude >> 13 & 1u;
    return (uint16_t)(sign | (magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}
