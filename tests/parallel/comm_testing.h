/* tests/parallel/comm_testing.h: numbers of every type, and what the collectives have to make of them. */
#ifndef PLAIT_TESTS_COMM_TESTING_H
#define PLAIT_TESTS_COMM_TESTING_H

#include "kernels/kernels.h"
#include "parallel/comm.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

inline double load(plait_dtype dtype, const void *base, int64_t i)
{
    const void *p = plait_at(base, dtype, i);
    switch (dtype) {
    case PLAIT_BF16:
    case PLAIT_FP16: {
        uint16_t h;
        std::memcpy(&h, p, sizeof h);
        return dtype == PLAIT_BF16 ? plait_bf16_to_float(h) : plait_fp16_to_float(h);
    }
    case PLAIT_FP64: {
        double d;
        std::memcpy(&d, p, sizeof d);
        return d;
    }
    case PLAIT_INT64: {
        int64_t n;
        std::memcpy(&n, p, sizeof n);
        return (double)n;
    }
    case PLAIT_INT32: {
        int32_t n;
        std::memcpy(&n, p, sizeof n);
        return n;
    }
    default: {
        float f;
        std::memcpy(&f, p, sizeof f);
        return f;
    }
    }
}

inline void store(plait_dtype dtype, void *base, int64_t i, double v)
{
    void *p = plait_at(base, dtype, i);
    float f = (float)v;
    uint16_t h = dtype == PLAIT_BF16 ? plait_float_to_bf16(f) : plait_float_to_fp16(f);
    int32_t n = (int32_t)v;
    int64_t wide = (int64_t)v;
    if (dtype == PLAIT_FP64)
        std::memcpy(p, &v, sizeof v);
    else if (dtype == PLAIT_INT32)
        std::memcpy(p, &n, sizeof n);
    else if (dtype == PLAIT_INT64)
        std::memcpy(p, &wide, sizeof wide);
    else if (dtype == PLAIT_FP32)
        std::memcpy(p, &f, sizeof f);
    else
        std::memcpy(p, &h, sizeof h);
}

inline double rounded(plait_dtype dtype, double v)
{
    double cell;
    store(dtype, &cell, 0, v);
    return load(dtype, &cell, 0);
}

/* Sum or maximum of what the ranks gave (already of the input's type), as the contract says: rounded to the wire type,
 * added in a tree in fp32 (fp64 for fp64), rounded once. */
inline double reduced(const plait_comm_op &op, std::vector<double> given)
{
    for (double &x : given)
        x = rounded(op.wire, x);
    for (; given.size() > 1; given.resize((given.size() + 1) / 2))
        for (size_t i = 0; i < given.size(); i += 2) {
            const double a = given[i];
            if (i + 1 == given.size())
                given[i / 2] = a;
            else if (op.reduction == PLAIT_MAX)
                given[i / 2] = std::fmax(a, given[i + 1]);
            else if (op.wire == PLAIT_FP64 || op.wire == PLAIT_INT64)
                given[i / 2] = a + given[i + 1];
            else
                given[i / 2] = (float)a + (float)given[i + 1];
        }
    return rounded(op.result, given[0]);
}

/* An irregular number of rank r at place i: mixed signs and sizes, so that order and rounding show. */
inline double number(int r, int64_t i, int salt)
{
    uint32_t h = (uint32_t)(i * 2654435761u) ^ (uint32_t)((r + 1) * 40503u) ^ (uint32_t)(salt * 97u);
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    return ((int)(h % 20001u) - 10000) / 700.0 * ((h >> 20) % 5 == 0 ? 8.0 : 1.0);
}

inline const plait_exec *testing_exec()
{
    static plait_exec ex = {};
    if (!ex.k && plait_kernels_find(PLAIT_KERNELS_REF, PLAIT_ISA_AUTO, PLAIT_FP32, &ex.k) != PLAIT_OK)
        return nullptr;
    ex.threads = 1;
    return &ex;
}

#endif
