// The conformance rows can fail: each output of each operation of each table is changed in one element by a few
// percent of its usual size, and the rows of that operation must notice. Once the first element, once the last.
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
const plait_backend *where; // it computes
const plait_exec *running;  // the call of now

// f changes bytes of a tensor, which come to the host for it.
template <typename F> void change(void *p, size_t bytes, F f)
{
    std::vector<char> host(bytes);
    const bool done = where->download(running, host.data(), p, bytes) == PLAIT_OK &&
                      where->finish(running) == PLAIT_OK && (f(host.data()), true) &&
                      where->upload(running, p, host.data(), bytes) == PLAIT_OK && where->finish(running) == PLAIT_OK;
    EXPECT_TRUE(done) << plait_error_text();
}

template <typename V, typename F> void change(V *p, F f)
{
    change(p, sizeof *p, [&](char *host) {
        V value;
        std::memcpy(&value, host, sizeof value);
        f(value);
        std::memcpy(host, &value, sizeof value);
    });
}

bool at_end; // which element it changes

// Changes the first element, or number `last`. 16-bit types: their own rounding is a visible part of a small change.
void bump_at(int64_t last, void *p, plait_dtype dtype)
{
    if (!p || (at_end && last == 0))
        return; // not asked for; of one element, the first is enough
    const int64_t i = at_end ? last : 0;
    const double part = plait_dtype_size(dtype) == 2 ? 0.5 : 1.0 / 16;
    change(plait_at(p, dtype, i), plait_dtype_size(dtype), [&](char *element) {
        const double value = conformance::load(element, dtype, 0);
        conformance::store(element, dtype, 0, value + part * std::fmax(1, std::fabs(value)));
    });
}

template <typename... Extents> int64_t product(Extents... extents)
{
    return (extents * ...);
}

// Of an array without gaps.
template <typename... Extents> void bump(void *p, plait_dtype dtype, Extents... extents)
{
    bump_at(product(extents...) - 1, p, dtype);
}

// The last element of a matrix.
int64_t end_of(int64_t rows, int64_t cols, int64_t ld)
{
    return (rows - 1) * ld + cols - 1;
}

void flip(void *p, size_t bytes)
{
    if (bytes > 0)
        change(static_cast<char *>(p) + (at_end ? bytes - 1 : 0), [](char &byte) { byte ^= 1; });
}

// Replaces slot `S` of a table by one that calls the inner table and then `spoil`s with the arguments.
template <auto S> struct Slot;
template <typename... Args, plait_status (*plait_kernels::*S)(const plait_exec *, Args...)> struct Slot<S> {
    static inline std::function<void(Args...)> spoil;

    static plait_status call(const plait_exec *ex, Args... args)
    {
        const plait_status st = (inner->*S)(ex, args...);
        running = ex;
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

using P = void *;
using CP = const void *;
using Tokens = const int32_t *;
using Drop = const plait_dropout *;
using Attention = const plait_attention *;
using Loss = const plait_cross_entropy *;
using I = int64_t;

// Of a matrix of attention: rows of all tokens, columns of all heads.
int64_t end_of(Attention a, int64_t heads, int64_t ld)
{
    return end_of(a->seq * a->batch, heads * a->head_dim, ld);
}

// Of cross_entropy_grad: elements of T in rows of A.
int64_t end_of_gradient(Loss c)
{
    const I ratio = static_cast<I>(plait_dtype_size(A()) / plait_dtype_size(T()));
    return end_of(c->rows, c->cols, product(c->cols, ratio));
}

const Mutant kMutants[] = {
    MUTANT(gemm, c, (const plait_gemm *g), bump_at(end_of(g->m, g->n, g->ldc), g->c, g->c_acc ? A() : T())),
    MUTANT(gemm, gelu, (const plait_gemm *g), bump(g->gelu, T(), g->m, g->n)),
    MUTANT(gemm, bias_grad, (const plait_gemm *g), bump(g->bias_grad, A(), g->m)),
    MUTANT(embedding_fwd, y, (P y, Tokens, CP, I, I, I N, I C), bump(y, T(), N, C)),
    MUTANT(embedding_bwd, dtable, (P dtable, Tokens, CP, I, I rows, I, I C), bump(dtable, A(), rows, C)),
    MUTANT(position_fwd, y, (P y, CP, I seq, I batch, I C), bump(y, T(), seq, batch, C)),
    MUTANT(position_bwd, dpos, (P dpos, CP, I seq, I, I C), bump(dpos, A(), seq, C)),
    MUTANT(layernorm_fwd, y, (P y, P, P, CP, CP, CP, I N, I C, double), bump(y, T(), N, C)),
    MUTANT(layernorm_fwd, mean, (P, P mean, P, CP, CP, CP, I N, I, double), bump(mean, A(), N)),
    MUTANT(layernorm_fwd, rstd, (P, P, P rstd, CP, CP, CP, I N, I, double), bump(rstd, A(), N)),
    MUTANT(layernorm_bwd, dx, (P dx, P, P, CP, CP, CP, CP, CP, CP, I N, I C), bump(dx, T(), N, C)),
    MUTANT(layernorm_bwd, dw, (P, P dw, P, CP, CP, CP, CP, CP, CP, I, I C), bump(dw, A(), C)),
    MUTANT(layernorm_bwd, db, (P, P, P db, CP, CP, CP, CP, CP, CP, I, I C), bump(db, A(), C)),
    MUTANT(rmsnorm_fwd, y, (P y, P, CP, CP, I N, I C, double), bump(y, T(), N, C)),
    MUTANT(rmsnorm_fwd, rstd, (P, P rstd, CP, CP, I N, I, double), bump(rstd, A(), N)),
    MUTANT(rmsnorm_bwd, dx, (P dx, P, CP, CP, CP, CP, CP, I N, I C), bump(dx, T(), N, C)),
    MUTANT(rmsnorm_bwd, dw, (P, P dw, CP, CP, CP, CP, CP, I, I C), bump(dw, A(), C)),
    MUTANT(rope_table, table, (P table, I seq, I D, double), bump(table, A(), seq, D)),
    MUTANT(rope, x, (P x, I ldx, CP, I seq, I batch, I heads, I D, bool),
           bump_at(end_of(product(seq, batch), product(heads, D), ldx), x, T())),
    MUTANT(attention_fwd, o, (Attention a), bump_at(end_of(a, a->heads, a->ldo), a->o, T())),
    MUTANT(attention_fwd, lse, (Attention a), bump(a->lse, A(), a->batch, a->heads, a->seq)),
    MUTANT(attention_bwd, dq, (Attention a), bump_at(end_of(a, a->heads, a->lddq), a->dq, T())),
    MUTANT(attention_bwd, dk, (Attention a), bump_at(end_of(a, a->kv_heads, a->lddk), a->dk, T())),
    MUTANT(attention_bwd, dv, (Attention a), bump_at(end_of(a, a->kv_heads, a->lddv), a->dv, T())),
    MUTANT(gelu_fwd, y, (P y, CP, I n), bump(y, T(), n)),
    MUTANT(gelu_bwd, dx, (P dx, CP, CP, I n), bump(dx, T(), n)),
    MUTANT(swiglu_fwd, y, (P y, CP, I N, I F), bump(y, T(), N, F)),
    MUTANT(swiglu_bwd, d_gate_up, (P d, CP, CP, I N, I F), bump(d, T(), 2, N, F)),
    MUTANT(bias_dropout_add_fwd, y, (P y, CP, CP, CP, Drop, I N, I C), bump(y, T(), N, C)),
    MUTANT(bias_dropout_add_bwd, dx, (P dx, P, CP, Drop, I N, I C), bump(dx, T(), N, C)),
    MUTANT(bias_dropout_add_bwd, dbias, (P, P dbias, CP, Drop, I, I C), bump(dbias, A(), C)),
    MUTANT(bias_grad, db, (P db, CP, I, I C), bump(db, A(), C)),
    MUTANT(cross_entropy_max, row_max, (Loss c), bump(c->row_max, A(), c->rows)),
    MUTANT(cross_entropy_sum, row_sum, (Loss c), bump(c->row_sum, A(), c->rows)),
    MUTANT(cross_entropy_sum, row_target, (Loss c), bump(c->row_target, A(), c->rows)),
    MUTANT(cross_entropy_loss, loss, (double *loss, Loss),
           change(loss, [](double &x) { x *= 1 + 0x1p-20; })), // a sum in float would pass 2^-24
    MUTANT(cross_entropy_grad, dlogits, (Loss c, double), bump_at(end_of_gradient(c), c->logits, T())),
    MUTANT(adamw, param, (P param, P, P, P, CP, I n, const plait_adamw *), bump(param, T(), n)),
    MUTANT(adamw, master, (P, P master, P, P, CP, I n, const plait_adamw *), bump(master, A(), n)),
    MUTANT(adamw, m, (P, P, P m, P, CP, I n, const plait_adamw *), bump(m, A(), n)),
    MUTANT(adamw, v, (P, P, P, P v, CP, I n, const plait_adamw *), bump(v, A(), n)),
    MUTANT(sgd, param, (P param, P, P, CP, I n, const plait_sgd *), bump(param, T(), n)),
    MUTANT(sgd, master, (P, P master, P, CP, I n, const plait_sgd *), bump(master, A(), n)),
    MUTANT(sgd, buf, (P, P, P buf, CP, I n, const plait_sgd *), bump(buf, A(), n)),
    MUTANT(unscale, x, (P x, double, I n, int32_t *), bump(x, A(), n)),
    MUTANT(unscale, found_inf, (P, double, I, int32_t *found), change(found, [](int32_t &x) { x = 0; })),
    MUTANT(sum_squares, sum, (double *sum, CP, I), change(sum, [](double &x) { x *= 1 + 0x1p-20; })),
    MUTANT(fixed_add, sum, (int64_t * sum, CP, double, double, I n, int32_t *),
           change(sum + (at_end ? n - 1 : 0), [](int64_t &x) { x++; })),
    MUTANT(fixed_add, overflow, (int64_t *, CP, double, double, I, int32_t *overflow),
           change(overflow, [](int32_t &x) { x = 0; })),
    MUTANT(fixed_read, y, (P y, const int64_t *, I n), bump(y, A(), n)),
    MUTANT(fixed_squares, total, (plait_fixed_squares * total, CP, I, int32_t *),
           change(total, [](plait_fixed_squares &x) { ++x; })),
    MUTANT(hash, out, (uint64_t * out, CP, I, size_t, size_t), ++*out),
    MUTANT(cast, dst, (P dst, plait_dtype to, CP, plait_dtype, I n), bump(dst, to, n)),
    MUTANT(add, y, (P y, CP, plait_dtype dtype, I n), bump(y, dtype, n)),
    MUTANT(zero, p, (P p, size_t n), flip(p, n)),
    MUTANT(copy, dst, (P dst, CP, size_t n), flip(dst, n)),
};

bool is_noticed(const Mutant &m, const plait_kernels &mutant)
{
    const conformance::Setting setting = {where};
    for (const conformance::Row &row : conformance::rows())
        if (row.op == m.op)
            for (const std::string &failure : conformance::run(row, mutant, setting))
                if (failure.find(m.output) != std::string::npos)
                    return true;
    return false;
}

class Mutants : public testing::TestWithParam<Mutant>
{
};

TEST_P(Mutants, AreNoticed)
{
    const Mutant &m = GetParam();
    const std::string output = m.output;
    for (const Table &table : tables()) {
        inner = table.kernels;
        where = table.backend;
        const bool own_master = inner->dtype == inner->acc;
        if (own_master && (output == "adamw.param" || output == "sgd.param"))
            continue; // there is no such output
        plait_kernels mutant = *inner;
        m.mutate(mutant);
        for (bool end : {false, true}) {
            at_end = end;
            EXPECT_TRUE(is_noticed(m, mutant)) << table.name << (end ? ", last element" : ", first element");
        }
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
