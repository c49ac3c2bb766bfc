// Which table a configuration gets, and what the counting table counts.
#include <gtest/gtest.h>
#include <string>

#include "kernels/plan/plan.h"
#include "kernels/ref/ref.h"

namespace
{

struct Refusal {
    const char *name;
    plait_kernels_choice choice;
    plait_isa isa;
    plait_dtype dtype;
    const char *table, *type; // named in the text
};

void PrintTo(const Refusal &r, std::ostream *os)
{
    *os << r.name;
}

class Refused : public testing::TestWithParam<Refusal>
{
};

TEST_P(Refused, NamesTableAndType)
{
    const Refusal &r = GetParam();
    const plait_kernels *k = plait_kernels_ref(PLAIT_FP32);
    EXPECT_EQ(plait_kernels_find(r.choice, r.isa, r.dtype, &k), PLAIT_UNSUPPORTED);
    EXPECT_EQ(k, nullptr);
    EXPECT_NE(std::string(plait_error_text()).find(r.table), std::string::npos) << plait_error_text();
    EXPECT_NE(std::string(plait_error_text()).find(r.type), std::string::npos) << plait_error_text();
}

const Refusal kRefusals[] = {
    {"ref_fp16", PLAIT_KERNELS_REF, PLAIT_ISA_AUTO, PLAIT_FP16, "ref", "fp16"},
    {"ref_bf16", PLAIT_KERNELS_REF, PLAIT_ISA_AUTO, PLAIT_BF16, "ref", "bf16"},
    {"cpu_fp64", PLAIT_KERNELS_CPU, PLAIT_ISA_AUTO, PLAIT_FP64, "cpu", "fp64"},
    {"auto_int32", PLAIT_KERNELS_AUTO, PLAIT_ISA_AUTO, PLAIT_INT32, "cpu", "int32"},
};
INSTANTIATE_TEST_SUITE_P(, Refused, testing::ValuesIn(kRefusals),
                         [](const auto &i) { return std::string(i.param.name); });

TEST(Find, Avx512NeedsTheProcessor)
{
    const plait_kernels *k;
    const plait_status st = plait_kernels_find(PLAIT_KERNELS_CPU, PLAIT_ISA_AVX512, PLAIT_FP32, &k);
    if (st == PLAIT_OK) {
        EXPECT_STREQ(k->name, "cpu-avx512");
    } else {
        EXPECT_EQ(st, PLAIT_UNSUPPORTED);
        EXPECT_NE(std::string(plait_error_text()).find("avx512"), std::string::npos) << plait_error_text();
    }
}

TEST(Find, AutoIsRefForFp64AndCpuOtherwise)
{
    const plait_kernels *k;
    ASSERT_EQ(plait_kernels_find(PLAIT_KERNELS_AUTO, PLAIT_ISA_AUTO, PLAIT_FP64, &k), PLAIT_OK);
    EXPECT_STREQ(k->name, "ref");
    EXPECT_EQ(k->dtype, PLAIT_FP64);
    EXPECT_EQ(k->acc, PLAIT_FP64);
    for (plait_dtype dtype : {PLAIT_FP32, PLAIT_BF16, PLAIT_FP16}) {
        ASSERT_EQ(plait_kernels_find(PLAIT_KERNELS_AUTO, PLAIT_ISA_AUTO, dtype, &k), PLAIT_OK);
        EXPECT_EQ(std::string(k->name).rfind("cpu-", 0), 0u) << k->name;
        EXPECT_EQ(k->dtype, dtype);
        EXPECT_EQ(k->acc, PLAIT_FP32);
    }
}

TEST(Plan, CountsCallsAndFlopsWithoutFollowingPointers)
{
    plait_plan_reset();
    const plait_exec ex = {};
    void *nowhere = reinterpret_cast<void *>(16);
    for (plait_dtype dtype : {PLAIT_FP32, PLAIT_BF16, PLAIT_FP16, PLAIT_FP64}) {
        const plait_kernels *k = plait_kernels_plan(dtype);
        EXPECT_STREQ(k->name, "plan");
        EXPECT_EQ(k->dtype, dtype);
        EXPECT_EQ(k->acc, plait_dtype_acc(dtype));
        plait_gemm g = {};
        g.m = 3;
        g.n = 5;
        g.k = 7;
        g.a = g.b = g.c = nowhere;
        ASSERT_EQ(k->gemm(&ex, &g), PLAIT_OK);
        ASSERT_EQ(k->gelu_fwd(&ex, nowhere, nowhere, 1 << 30), PLAIT_OK);
        ASSERT_EQ(k->zero(&ex, nowhere, 1 << 30), PLAIT_OK);
        ASSERT_EQ(k->gelu_fwd(&ex, nowhere, nowhere, 1), PLAIT_OK);
#define FILLED(op) EXPECT_NE(k->op, nullptr) << #op;
        PLAIT_KERNELS_OPS(FILLED)
#undef FILLED
    }
    const plait_plan_counts counts = plait_plan_read();
    EXPECT_EQ(counts.gemm_flops, 4 * 2.0 * 3 * 5 * 7);
    for (int op = 0; op < PLAIT_OPS; op++)
        EXPECT_EQ(counts.calls[op], op == PLAIT_OP_gemm || op == PLAIT_OP_zero ? 4
                                    : op == PLAIT_OP_gelu_fwd                  ? 8
                                                                               : 0)
            << plait_op_name(static_cast<plait_op>(op));
    plait_plan_reset();
    EXPECT_EQ(plait_plan_read().gemm_flops, 0);
}

TEST(Plan, NamesOperations)
{
    EXPECT_STREQ(plait_op_name(PLAIT_OP_gemm), "gemm");
    EXPECT_STREQ(plait_op_name(PLAIT_OP_copy), "copy");
    EXPECT_STREQ(plait_op_name(PLAIT_OPS), "?");
}

} // namespace
