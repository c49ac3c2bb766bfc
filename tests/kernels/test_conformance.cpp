// Every table against the reference in double. A table that this machine lacks is not there, and the program says so.
#include <algorithm>
#include <cstdlib>
#include <gtest/gtest.h>

#include "kernels/cpu/blas.h"
#include "tests/kernels/conformance.h"
#include "tests/kernels/tables.h"

namespace
{

struct Case {
    Table table;
    const conformance::Row *row;
    bool odd; // at odd addresses: kernels for a device move several elements at a time where addresses allow
};

void PrintTo(const Case &c, std::ostream *os)
{
    *os << c.table.name << " " << c.row->name << (c.odd ? " at odd addresses" : "");
}

std::vector<Case> cases()
{
    std::vector<Case> list;
    for (const Table &table : tables())
        for (const conformance::Row &row : conformance::rows())
            for (bool odd : {false, true})
                if (!odd || table.backend != plait_backend_cpu())
                    list.push_back({table, &row, odd});
    return list;
}

class Conformance : public testing::TestWithParam<Case>
{
};

TEST_P(Conformance, AgreesWithTheReferenceInDouble)
{
    const Case &c = GetParam();
    conformance::Setting setting = {c.table.backend};
    setting.odd = c.odd;
    for (const std::string &failure : conformance::run(*c.row, *c.table.kernels, setting))
        ADD_FAILURE() << failure;
}

INSTANTIATE_TEST_SUITE_P(, Conformance, testing::ValuesIn(cases()), [](const auto &i) {
    return i.param.table.name + "_" + i.param.row->name + (i.param.odd ? "_odd" : "");
});

// A table without rows would pass.
TEST(Tables, AreComplete)
{
    for (const Table &table : tables()) {
        ASSERT_NE(table.kernels, nullptr) << table.name;
#define FILLED(op) EXPECT_NE(table.kernels->op, nullptr) << table.name << " " << #op;
        PLAIT_KERNELS_OPS(FILLED)
#undef FILLED
    }
}

// What a run uses has been tested above.
TEST(Tables, IncludeTheChoiceOfAuto)
{
    for (plait_dtype dtype : {PLAIT_FP32, PLAIT_BF16, PLAIT_FP16, PLAIT_FP64}) {
        const plait_kernels *chosen;
        ASSERT_EQ(plait_kernels_find(PLAIT_KERNELS_AUTO, PLAIT_ISA_AUTO, dtype, &chosen), PLAIT_OK)
            << plait_error_text();
        EXPECT_TRUE(std::any_of(tables().begin(), tables().end(), [&](const Table &t) { return t.kernels == chosen; }))
            << chosen->name << " " << plait_dtype_name(dtype);
    }
}

TEST(Tables, EveryOperationHasARow)
{
    for (int op = 0; op < PLAIT_OPS; op++) {
        int count = 0;
        for (const conformance::Row &row : conformance::rows())
            count += row.op == op;
        EXPECT_GT(count, 0) << plait_op_name(static_cast<plait_op>(op));
    }
}

// What the bf16 rows of this process have been through: instructions of the processor wherever it has them, but in the
// process of cpu_avx2.
TEST(OwnProcess, LibraryMultipliesBf16ByInstructionsWhereItMay)
{
    bool native = false;
#if defined(__x86_64__) && defined(PLAIT_TEST_ONEDNN)
    const char *group = std::getenv("PLAIT_TEST_TABLES");
    native = __builtin_cpu_supports("avx512bf16") && group && std::string(group) != "cpu_avx2";
#endif
    tables();
    plait_exec ex = {};
    ex.threads = 1;
    plait_gemm g = {};
    g.m = g.n = g.k = g.lda = g.ldb = g.ldc = 64;
    plait_blas_tile *tile = nullptr;
    size_t scratch;
    ASSERT_EQ(plait_blas_tile_open(&ex, PLAIT_BF16, &g, 1 << 20, &tile, &scratch), PLAIT_OK) << plait_error_text();
    EXPECT_EQ(tile != nullptr, native);
}

// The tiles of one product are open together: what is in use stays, however many other shapes come and go.
TEST(BlasTiles, OneInUseIsNotReplaced)
{
    tables();
    plait_exec ex = {};
    ex.threads = 1;
    const auto open = [&](int64_t m, int64_t n) {
        plait_gemm g = {};
        g.m = m;
        g.n = n;
        g.k = g.lda = 8;
        g.ldb = g.ldc = n;
        plait_blas_tile *tile = nullptr;
        size_t scratch;
        EXPECT_EQ(plait_blas_tile_open(&ex, PLAIT_FP32, &g, 1 << 20, &tile, &scratch), PLAIT_OK) << plait_error_text();
        return tile;
    };
    const plait_blas_tile *kept = open(8, 8);
    if (!kept)
        GTEST_SKIP() << "the library has no tiles of its own here";
    for (int64_t m = 1; m <= 40; m++)
        for (int64_t n = 9; n <= 40; n++) {
            open(m, n);
            ASSERT_EQ(open(8, 8), kept) << m << " x " << n;
        }
}

} // namespace
