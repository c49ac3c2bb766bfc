// What is particular to kernels of a GPU: arrays larger than a grid, little scratch, nothing to do. test_conformance
// compares all of them with the reference.
#include "kernels/cuda/cuda.h"

#include <cmath>
#include <gtest/gtest.h>

#include "tests/kernels/conformance.h"
#include "tests/kernels/tables.h"

namespace
{

using conformance::Array;
using conformance::Bench;
using conformance::Raw;
using conformance::Row;
using conformance::Setting;
using conformance::Side;

void expect_none(const std::vector<std::string> &failures)
{
    for (const std::string &failure : failures)
        ADD_FAILURE() << failure;
}

// More than 132 multiprocessors of 2048 threads, each with 16 bytes of T, have at once.
int64_t more_than_a_grid(plait_dtype T)
{
    return 132 * 2048 * static_cast<int64_t>(16 / plait_dtype_size(T)) + 12345;
}

void long_array(Bench &t)
{
    const int64_t n = more_than_a_grid(t.T);
    Array &x = t.values(1, n, t.T, 0, 3), &y = t.output(1, n, t.T);
    t.once([&](const plait_kernels &k, const plait_exec *ex, Side at) { return k.gelu_fwd(ex, at(y), at(x), n); });
    for (int64_t i = 0; i < n; i++)
        y.d[static_cast<size_t>(i)] = 0.5 * x.at(0, i) * std::erfc(-x.at(0, i) / std::sqrt(2.0));
    // The tanh form is within 0.0005 of this one: enough to tell one element from another.
    for (int64_t i = 0; i < n; i++)
        t.check("gelu_fwd.y", 0, i, y.got(0, i), y.at(0, i), 0.001 + 0.01 * std::fabs(x.at(0, i)));
}

void many_rows(Bench &t)
{
    const int64_t F = 2048, N = more_than_a_grid(t.T) / F;
    Array &gate_up = t.values(N, 2 * F, t.T), &y = t.output(N, F, t.T);
    t.once([&](const plait_kernels &k, const plait_exec *ex, Side at) {
        return k.swiglu_fwd(ex, at(y), at(gate_up), N, F);
    });
    for (int64_t r = 0; r < N; r++)
        for (int64_t c = 0; c < F; c++) {
            const double g = gate_up.at(r, c), u = gate_up.at(r, F + c), want = g / (1 + std::exp(-g)) * u;
            t.check("swiglu_fwd.y", r, c, y.got(r, c), want, 0.01 * std::fabs(want) + 1e-6);
        }
}

// Its rows are more than blocks.
void many_tokens(Bench &t)
{
    const int64_t N = 132 * 8 * 2 + 100, C = 3, rows = 50;
    std::vector<int32_t> tokens;
    for (int64_t r = 0; r < N; r++)
        tokens.push_back(static_cast<int32_t>(r * r % rows));
    const Raw &which = t.raw(tokens);
    Array &dtable = t.values(rows, C, t.A), &dy = t.values(N, C, t.T);
    std::vector<float> want;
    for (double d : dtable.d)
        want.push_back(static_cast<float>(d));
    for (int64_t r = 0; r < N; r++) // in fp32 and in this order, to the bit
        for (int64_t c = 0; c < C; c++)
            want[static_cast<size_t>(tokens[static_cast<size_t>(r)] * C + c)] += static_cast<float>(dy.at(r, c));
    t.once([&](const plait_kernels &k, const plait_exec *ex, Side at) {
        return k.embedding_bwd(ex, at(dtable), at.as<int32_t>(which), at(dy), 0, rows, N, C);
    });
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < C; c++)
            t.check("embedding_bwd.dtable", r, c, dtable.got(r, c), want[static_cast<size_t>(r * C + c)], 0);
}

class CudaKernels : public testing::TestWithParam<Table>
{
  protected:
    void expect_right(void (*row)(Bench &), plait_op op)
    {
        expect_none(conformance::run({"", op, row}, *GetParam().kernels, {GetParam().backend}));
    }
};

TEST_P(CudaKernels, StrideOverAnArrayLargerThanAGrid)
{
    expect_right(long_array, PLAIT_OP_gelu_fwd);
}

TEST_P(CudaKernels, StrideOverMoreRowsThanAGrid)
{
    expect_right(many_rows, PLAIT_OP_swiglu_fwd);
}

TEST_P(CudaKernels, AddRowsOfATokenInTheirOrder)
{
    expect_right(many_tokens, PLAIT_OP_embedding_bwd);
}

// Where there is no room for partial sums, one block does all.
TEST_P(CudaKernels, SumWithLittleScratch)
{
    for (size_t bytes : {0, 40, 2000})
        for (const Row &row : conformance::rows())
            for (plait_op op : {PLAIT_OP_layernorm_bwd, PLAIT_OP_rmsnorm_bwd, PLAIT_OP_bias_dropout_add_bwd,
                                PLAIT_OP_bias_grad, PLAIT_OP_sum_squares, PLAIT_OP_fixed_squares})
                if (row.op == op)
                    expect_none(conformance::run(row, *GetParam().kernels, {GetParam().backend, bytes}));
}

// A grid of no blocks would be an error of the launch.
TEST_P(CudaKernels, HaveNothingToDo)
{
    const plait_kernels &k = *GetParam().kernels;
    const plait_dropout drop = {};
    const plait_cross_entropy loss = {};
    const plait_adamw adamw = {};
    const plait_sgd sgd = {};
    uint64_t hash = 1;
    plait_exec ex = {};
    ex.k = &k;
    ASSERT_EQ(GetParam().backend->open(0, 1), PLAIT_OK) << plait_error_text();
    ASSERT_EQ(GetParam().backend->stream_create(&ex.stream), PLAIT_OK) << plait_error_text();
#define NOTHING(op, ...) EXPECT_EQ(k.op(&ex, __VA_ARGS__), PLAIT_OK) << #op << ": " << plait_error_text()
    NOTHING(embedding_fwd, nullptr, nullptr, nullptr, 0, 0, 0, 8);
    NOTHING(embedding_bwd, nullptr, nullptr, nullptr, 0, 0, 0, 8);
    NOTHING(position_fwd, nullptr, nullptr, 0, 1, 8);
    NOTHING(position_bwd, nullptr, nullptr, 0, 1, 8);
    NOTHING(layernorm_fwd, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 0, 8, 1e-5);
    NOTHING(layernorm_bwd, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 0, 8);
    NOTHING(rmsnorm_fwd, nullptr, nullptr, nullptr, nullptr, 0, 8, 1e-5);
    NOTHING(rmsnorm_bwd, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 0, 8);
    NOTHING(rope_table, nullptr, 0, 8, 10000.0);
    NOTHING(rope, nullptr, 8, nullptr, 0, 1, 1, 8, false);
    NOTHING(gelu_fwd, nullptr, nullptr, 0);
    NOTHING(gelu_bwd, nullptr, nullptr, nullptr, 0);
    NOTHING(swiglu_fwd, nullptr, nullptr, 0, 8);
    NOTHING(swiglu_bwd, nullptr, nullptr, nullptr, 0, 8);
    NOTHING(bias_dropout_add_fwd, nullptr, nullptr, nullptr, nullptr, &drop, 0, 8);
    NOTHING(bias_dropout_add_bwd, nullptr, nullptr, nullptr, &drop, 0, 8);
    NOTHING(bias_grad, nullptr, nullptr, 0, 8);
    NOTHING(cross_entropy_max, &loss);
    NOTHING(cross_entropy_sum, &loss);
    NOTHING(cross_entropy_loss, nullptr, &loss);
    NOTHING(cross_entropy_grad, &loss, 1.0);
    NOTHING(adamw, nullptr, nullptr, nullptr, nullptr, nullptr, 0, &adamw);
    NOTHING(sgd, nullptr, nullptr, nullptr, nullptr, 0, &sgd);
    NOTHING(unscale, nullptr, 1.0, 0, nullptr);
    NOTHING(sum_squares, nullptr, nullptr, 0);
    NOTHING(fixed_add, nullptr, nullptr, 1.0, 1.0, 0, nullptr);
    NOTHING(fixed_read, nullptr, nullptr, 0);
    NOTHING(fixed_squares, nullptr, nullptr, 0, nullptr);
    NOTHING(hash, &hash, nullptr, 0, 8, 8);
    NOTHING(cast, nullptr, PLAIT_FP32, nullptr, PLAIT_BF16, 0);
    NOTHING(add, nullptr, nullptr, PLAIT_FP32, 0);
    NOTHING(zero, nullptr, 0);
    NOTHING(copy, nullptr, nullptr, 0);
#undef NOTHING
    EXPECT_EQ(hash, 0u);
    EXPECT_EQ(GetParam().backend->finish(&ex), PLAIT_OK) << plait_error_text();
    GetParam().backend->stream_destroy(ex.stream);
}

// A plan has the operations of a run.
TEST_P(CudaKernels, ArePlannedWithTheirEpilogues)
{
    const plait_kernels &k = *GetParam().kernels;
    EXPECT_TRUE(k.epilogues);
    EXPECT_EQ(k.epilogues, plait_kernels_plan(k.dtype, PLAIT_BACKEND_CUDA)->epilogues);
}

std::vector<Table> cuda_tables()
{
    std::vector<Table> list;
    for (const Table &table : tables())
        if (table.backend == plait_backend_cuda())
            list.push_back(table);
    return list;
}
INSTANTIATE_TEST_SUITE_P(, CudaKernels, testing::ValuesIn(cuda_tables()), [](const auto &i) { return i.param.name; });

} // namespace
