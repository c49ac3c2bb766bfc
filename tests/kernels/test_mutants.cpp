// The conformance rows can fail: each output of each operation of each table is changed in one element by a few
// percent of its usual size, and the rows of that operation must notice.
#include <algorithm>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>

#include "tests/kernels/bounds.h"
#include "tests/kernels/conformance.h"
#include "tests/kernels/tables.h"

namespace
{

const plait_kernels *inner; // what the mutant calls

// Changes element i. 16-bit types: their own rounding is a visible part of a small change.
void bump(void *p, plait_dtype dtype, int64_t i = 0)
{
    const double value = conformance::load(p, dtype, i);
    const double part = plait_dtype_size(dtype) == 2 ? 0.5 : 1.0 / 16;
    conformance::store(p, dtype, i, value + part * std::fmax(1, std::fabs(value)));
}

// Replaces slot `S` of a table by one that calls the inner table and then `spoil`s with the arguments.
template <auto S> struct Slot;
template <typename... Args, plait_status (*plait_kernels::*S)(const plait_exec *, Args...)> struct Slot<S> {
    static inline std::function<void(Args...)> spoil;

    static plait_status call(const plait_exec *ex, Args... args)
    {
        const plait_status st = (inner->*S)(ex, args...);
        spoil(args...);
        return st;
    }
};

struct Mutant {
    const char *output; // "operation.argument" as in the bounds
    plait_op op;
    std::function<void(plait_kernels &)> mutate;
};

void PrintTo(const Mutant &m, std::ostream *os)
{
    *os << m.output;
}

// MUTANT(op, argument, parameters, statement): the statement sees the named parameters.
#define MUTANT(op, argument, parameters, statement)                                                                    \
    {                                                                                                                  \
#op "." #argument, PLAIT_OP_##op, [](plait_kernels &k) {                                                       \
            Slot<&plait_kernels::op>::spoil = [] parameters { statement; };                                            \
            k.op = Slot<&plait_kernels::op>::call;                                                                     \
        }       \
    }

plait_dtype T()
{
    return inner->dtype;
}

plait_dtype A()
{
    return inner->acc;
}

void bump_if(void *p, plait_dtype dtype)
{
    if (p)
        bump(p, dtype);
}

const Mutant kMutants[] = {
    MUTANT(gemm, c, (const plait_gemm *g), bump(g->c, g->c_acc ? A() : T())),
    MUTANT(embedding_fwd, y, (void *y, auto...), bump(y, T())),
    MUTANT(embedding_bwd, dtable, (void *dtable, auto...), bump(dtable, A())),
    MUTANT(position_fwd, y, (void *y, auto...), bump(y, T())),
    MUTANT(position_bwd, dpos, (void *dpos, auto...), bump(dpos, A())),
    MUTANT(layernorm_fwd, y, (void *y, auto...), bump(y, T())),
    MUTANT(layernorm_fwd, mean, (void *, void *mean, auto...), bump(mean, A())),
    MUTANT(layernorm_fwd, rstd, (void *, void *, void *rstd, auto...), bump(rstd, A())),
    MUTANT(layernorm_bwd, dx, (void *dx, auto...), bump_if(dx, T())),
    MUTANT(layernorm_bwd, dw, (void *, void *dw, auto...), bump_if(dw, A())),
    MUTANT(layernorm_bwd, db, (void *, void *, void *db, auto...), bump_if(db, A())),
    MUTANT(rmsnorm_fwd, y, (void *y, auto...), bump(y, T())),
    MUTANT(rmsnorm_fwd, rstd, (void *, void *rstd, auto...), bump(rstd, A())),
    MUTANT(rmsnorm_bwd, dx, (void *dx, auto...), bump_if(dx, T())),
    MUTANT(rmsnorm_bwd, dw, (void *, void *dw, auto...), bump_if(dw, A())),
    MUTANT(rope_table, table, (void *table, auto...), bump(table, A())),
    MUTANT(rope, x, (void *x, auto...), bump(x, T())),
    MUTANT(attention_fwd, o, (const plait_attention *a), bump(a->o, T())),
    MUTANT(attention_fwd, lse, (const plait_attention *a), bump(a->lse, A())),
    MUTANT(attention_bwd, dq, (const plait_attention *a), bump(a->dq, T())),
    MUTANT(attention_bwd, dk, (const plait_attention *a), bump(a->dk, T())),
    MUTANT(attention_bwd, dv, (const plait_attention *a), bump(a->dv, T())),
    MUTANT(gelu_fwd, y, (void *y, auto...), bump(y, T())),
    MUTANT(gelu_bwd, dx, (void *dx, auto...), bump(dx, T())),
    MUTANT(swiglu_fwd, y, (void *y, auto...), bump(y, T())),
    MUTANT(swiglu_bwd, d_gate_up, (void *d, auto...), bump(d, T())),
    MUTANT(bias_dropout_add_fwd, y, (void *y, auto...), bump(y, T())),
    MUTANT(bias_dropout_add_bwd, dx, (void *dx, auto...), bump_if(dx, T())),
    MUTANT(bias_dropout_add_bwd, dbias, (void *, void *dbias, auto...), bump_if(dbias, A())),
    MUTANT(bias_grad, db, (void *db, auto...), bump(db, A())),
    MUTANT(cross_entropy_max, row_max, (const plait_cross_entropy *c), bump(c->row_max, A())),
    MUTANT(cross_entropy_sum, row_sum, (const plait_cross_entropy *c), bump(c->row_sum, A())),
    MUTANT(cross_entropy_sum, row_target, (const plait_cross_entropy *c), bump(c->row_target, A())),
    MUTANT(cross_entropy_loss, loss, (double *loss, auto...), *loss *= 1 + 0x1p-20), // a sum in float would pass 2^-24
    MUTANT(cross_entropy_grad, dlogits, (const plait_cross_entropy *c, double), bump(c->logits, T())),
    MUTANT(adamw, param, (void *param, auto...), bump_if(param, T())),
    MUTANT(adamw, master, (void *, void *master, auto...), bump(master, A())),
    MUTANT(adamw, m, (void *, void *, void *m, auto...), bump(m, A())),
    MUTANT(adamw, v, (void *, void *, void *, void *v, auto...), bump(v, A())),
    MUTANT(sgd, param, (void *param, auto...), bump_if(param, T())),
    MUTANT(sgd, master, (void *, void *master, auto...), bump(master, A())),
    MUTANT(sgd, buf, (void *, void *, void *buf, auto...), bump_if(buf, A())),
    MUTANT(unscale, x, (void *x, auto...), bump(x, A())),
    MUTANT(unscale, found_inf, (void *, double, int64_t, int32_t *found), *found = 0),
    MUTANT(sum_squares, sum, (double *sum, auto...), *sum *= 1 + 0x1p-20),
    MUTANT(cast, dst, (void *dst, plait_dtype to, auto...), bump(dst, to)),
    MUTANT(add, y, (void *y, const void *, plait_dtype dtype, int64_t), bump(y, dtype)),
    MUTANT(zero, p, (void *p, size_t n), if (n > 0) static_cast<char *>(p)[n - 1] ^= 1),
    MUTANT(copy, dst, (void *dst, const void *, size_t n), if (n > 0) static_cast<char *>(dst)[n - 1] ^= 1),
};

class Mutants : public testing::TestWithParam<Mutant>
{
};

TEST_P(Mutants, AreNoticed)
{
    const Mutant &m = GetParam();
    const std::string output = m.output;
    for (const Table &table : tables()) {
        inner = table.kernels;
        const bool own_master = inner->dtype == inner->acc;
        if (own_master && (output == "adamw.param" || output == "sgd.param"))
            continue; // there is no such output
        plait_kernels mutant = *inner;
        m.mutate(mutant);
        bool noticed = false;
        for (const conformance::Row &row : conformance::rows()) {
            if (row.op == m.op && !noticed)
                for (const std::string &failure : conformance::run(row, mutant))
                    noticed |= failure.find(output) != std::string::npos;
        }
        EXPECT_TRUE(noticed) << table.name;
    }
}
INSTANTIATE_TEST_SUITE_P(, Mutants, testing::ValuesIn(kMutants), [](const auto &i) {
    std::string name = i.param.output;
    std::replace(name.begin(), name.end(), '.', '_');
    return name;
});

TEST(MutantList, CoversEveryBound)
{
    for (const Bound &b : kBounds)
        EXPECT_TRUE(std::any_of(std::begin(kMutants), std::end(kMutants), [&](const Mutant &m) {
            return !std::strcmp(m.output, b.output);
        })) << b.output;
}

} // namespace
