// How far a table may be from the reference in double, given the same rounded inputs.
//
//   |got - want| <= c (u(out) + u(acc) sqrt(K)) scale
//
// u is the unit roundoff of the output's type and of the table's accumulation type, K the number of terms of the
// output's longest sum (1: none), scale the size of what is added up. So the output is rounded once, and 16-bit types
// do not excuse a sum in 16 bits. c is at most 4 and 0 for what is exact.
#ifndef PLAIT_TESTS_KERNELS_BOUNDS_H
#define PLAIT_TESTS_KERNELS_BOUNDS_H

#include <cmath>
#include <cstring>

#include "core/dtype.h"

struct Bound {
    const char *output; // "operation.argument"
    double c;
};

constexpr Bound kBounds[] = {
    {"gemm.c", 2},
    {"gemm.gelu", 4},
    {"gemm.bias_grad", 2},
    {"embedding_fwd.y", 0},
    {"embedding_bwd.dtable", 2},
    {"position_fwd.y", 1},
    {"position_bwd.dpos", 2},
    {"layernorm_fwd.y", 4},
    {"layernorm_fwd.mean", 2},
    {"layernorm_fwd.rstd", 4},
    {"layernorm_bwd.dx", 4},
    {"layernorm_bwd.dw", 4},
    {"layernorm_bwd.db", 2},
    {"rmsnorm_fwd.y", 4},
    {"rmsnorm_fwd.rstd", 4},
    {"rmsnorm_bwd.dx", 4},
    {"rmsnorm_bwd.dw", 4},
    {"rope_table.table", 2},
    {"rope.x", 2},
    {"attention_fwd.o", 4},
    {"attention_fwd.lse", 4},
    {"attention_bwd.dq", 4},
    {"attention_bwd.dk", 4},
    {"attention_bwd.dv", 4},
    {"gelu_fwd.y", 4},
    {"gelu_bwd.dx", 4},
    {"swiglu_fwd.y", 4},
    {"swiglu_bwd.d_gate_up", 4},
    {"bias_dropout_add_fwd.y", 2},
    {"bias_dropout_add_bwd.dx", 2},
    {"bias_dropout_add_bwd.dbias", 2},
    {"bias_grad.db", 2},
    {"cross_entropy_max.row_max", 0},
    {"cross_entropy_sum.row_sum", 4},
    {"cross_entropy_sum.row_target", 1},
    {"cross_entropy_loss.loss", 4}, // in double, whatever the table
    {"cross_entropy_grad.dlogits", 4},
    {"fixed_add.sum", 0},
    {"fixed_add.overflow", 0},
    {"fixed_read.y", 0},
    {"fixed_squares.total", 0},
    {"hash.out", 0},
    {"adamw.master", 4},
    {"adamw.param", 4},
    {"adamw.m", 2},
    {"adamw.v", 4},
    {"sgd.master", 4},
    {"sgd.param", 4},
    {"sgd.buf", 4},
    {"unscale.x", 1},
    {"sum_squares.sum", 4}, // in double, whatever the table
    {"cast.dst", 0},
    {"add.y", 0},
    {"zero.p", 0},
    {"copy.dst", 0},
};

constexpr bool bounds_are_tight()
{
    for (const Bound &b : kBounds)
        if (!(b.c >= 0 && b.c <= 4))
            return false;
    return true;
}
static_assert(bounds_are_tight(), "c is from 0 to 4");

// Half the distance from 1 to the next number.
inline double unit_roundoff(plait_dtype dtype)
{
    switch (dtype) {
    case PLAIT_BF16:
        return std::ldexp(1, -8);
    case PLAIT_FP16:
        return std::ldexp(1, -11);
    case PLAIT_FP32:
        return std::ldexp(1, -24);
    default:
        return std::ldexp(1, -53);
    }
}

// Below the normal numbers rounding is no longer relative. The other types' exponents go where no row goes.
inline double half_subnormal(plait_dtype dtype)
{
    return dtype == PLAIT_FP16 ? std::ldexp(1, -25) : 0;
}

// NaN, which nothing satisfies, for an output that is not in the table.
inline double bound_of(const char *output, plait_dtype out, plait_dtype acc, double K)
{
    for (const Bound &b : kBounds)
        if (!std::strcmp(b.output, output))
            return b.c * (unit_roundoff(out) + unit_roundoff(acc) * std::sqrt(K));
    return std::nan("");
}

#endif
