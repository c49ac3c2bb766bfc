// Which table a configuration gets, and what the planning table tells.
#include <gtest/gtest.h>
#include <string>
#include <vector>

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

namespace
{

/* Listens while it lives. */
struct Heard {
    std::vector<plait_op_record> all;

    Heard()
    {
        plait_plan_listen([](void *self, const plait_op_record *r) { static_cast<Heard *>(self)->all.push_back(*r); },
                          this);
    }
    Heard(const Heard &) = delete;
    Heard &operator=(const Heard &) = delete;
    ~Heard() { plait_plan_listen(nullptr, nullptr); }
};

} // namespace

TEST(Plan, TellsOfEachCallWithoutFollowingPointers)
{
    void *nowhere = reinterpret_cast<void *>(16);
    for (plait_dtype dtype : {PLAIT_FP32, PLAIT_BF16, PLAIT_FP16, PLAIT_FP64}) {
        const plait_kernels *k = plait_kernels_plan(dtype, PLAIT_BACKEND_AUTO);
        const double T = static_cast<double>(plait_dtype_size(dtype)),
                     A = static_cast<double>(plait_dtype_size(k->acc));
        plait_exec ex = {};
        ex.k = k;
        EXPECT_STREQ(k->name, "plan");
        EXPECT_EQ(k->dtype, dtype);
        EXPECT_EQ(k->acc, plait_dtype_acc(dtype));
#define FILLED(op) EXPECT_NE(k->op, nullptr) << #op;
        PLAIT_KERNELS_OPS(FILLED)
#undef FILLED
        plait_gemm g = {};
        g.m = 3;
        g.n = 5;
        g.k = 7;
        g.trans_b = g.c_acc = g.accumulate = true;
        g.a = g.b = g.c = nowhere;
        plait_attention a = {};
        a.batch = 2;
        a.seq = 4;
        a.heads = 6;
        a.kv_heads = 3;
        a.head_dim = 8;

        Heard heard;
        ASSERT_EQ(k->gemm(&ex, &g), PLAIT_OK);
        ASSERT_EQ(k->attention_fwd(&ex, &a), PLAIT_OK);
        ASSERT_EQ(k->attention_bwd(&ex, &a), PLAIT_OK);
        ASSERT_EQ(k->gelu_bwd(&ex, nowhere, nowhere, nowhere, int64_t{1} << 40), PLAIT_OK);
        ASSERT_EQ(k->layernorm_bwd(&ex, nowhere, nullptr, nullptr, nowhere, nullptr, nowhere, nowhere, nowhere, nowhere,
                                   10, 100),
                  PLAIT_OK);
        ASSERT_EQ(heard.all.size(), 5U);

        const plait_op_record &gemm = heard.all[0];
        EXPECT_EQ(gemm.op, PLAIT_OP_gemm);
        EXPECT_EQ(gemm.dtype, dtype);
        EXPECT_EQ(gemm.m, 3);
        EXPECT_EQ(gemm.n, 5);
        EXPECT_EQ(gemm.k, 7);
        EXPECT_TRUE(gemm.trans_b);
        EXPECT_FALSE(gemm.trans_a);
        EXPECT_EQ(gemm.flops, 2 * 3 * 5 * 7);
        EXPECT_EQ(gemm.bytes_read, (3 * 7 + 7 * 5) * T + 3 * 5 * A) << "what is added to is read";
        EXPECT_EQ(gemm.bytes_written, 3 * 5 * A);

        const plait_op_record &forward = heard.all[1], &backward = heard.all[2];
        EXPECT_EQ(forward.m, 12);
        EXPECT_EQ(forward.n, 4);
        EXPECT_EQ(forward.k, 8);
        EXPECT_EQ(forward.flops, 2 * 12 * 4 * 4 * 8) << "two products of 2 s s d flops, of which half is masked";
        EXPECT_EQ(backward.flops, 5 * 12 * 4 * 4 * 8);
        EXPECT_EQ(forward.bytes_read, 2 * 4 * (6 + 3 + 3) * 8 * T);
        EXPECT_EQ(forward.bytes_written, 2 * 4 * 6 * (8 * T + A));
        EXPECT_EQ(backward.bytes_read, 2 * 4 * ((3 * 6 + 3 + 3) * 8 * T + 6 * A)) << "q, o, do, k, v";
        EXPECT_EQ(backward.bytes_written, 2 * 4 * (6 + 3 + 3) * 8 * T);

        EXPECT_EQ(heard.all[3].bytes_read, 2 * T * static_cast<double>(int64_t{1} << 40));
        EXPECT_EQ(heard.all[3].flops, 0);
        EXPECT_EQ(heard.all[4].bytes_read, (2 * 1000 + 100) * T + 20 * A) << "no residual, no weight gradient";
        EXPECT_EQ(heard.all[4].bytes_written, 1000 * T);
    }
}

TEST(Plan, CountsEpiloguesWithTheirProduct)
{
    void *nowhere = reinterpret_cast<void *>(16);
    plait_exec ex = {};
    ex.k = plait_kernels_plan(PLAIT_BF16, PLAIT_BACKEND_CUDA);
    EXPECT_TRUE(ex.k->epilogues);
    EXPECT_FALSE(plait_kernels_plan(PLAIT_BF16, PLAIT_BACKEND_CPU)->epilogues);
    plait_gemm plain = {};
    plain.m = 3;
    plain.n = 5;
    plain.k = 7;
    plait_gemm gelu = plain, dgelu = plain, bias_grad = plain;
    gelu.gelu = nowhere;
    dgelu.dgelu = nowhere;
    bias_grad.bias_grad = nowhere;

    Heard heard;
    for (const plait_gemm *g : {&plain, &gelu, &dgelu, &bias_grad})
        ASSERT_EQ(ex.k->gemm(&ex, g), PLAIT_OK);
    ASSERT_EQ(heard.all.size(), 4U) << "one operation each";
    const plait_op_record &without = heard.all[0];
    const struct {
        double read, written;
    } more[] = {{0, 0}, {0, 2 * 3 * 5}, {2 * 3 * 5, 0}, {4 * 3, 4 * 3}};
    for (size_t i = 0; i < heard.all.size(); i++) {
        EXPECT_EQ(heard.all[i].flops, without.flops) << i;
        EXPECT_EQ(heard.all[i].bytes_read - without.bytes_read, more[i].read) << i;
        EXPECT_EQ(heard.all[i].bytes_written - without.bytes_written, more[i].written) << i;
    }
}

TEST(Plan, NobodyHasToListen)
{
    plait_exec ex = {};
    ex.k = plait_kernels_plan(PLAIT_FP32, PLAIT_BACKEND_AUTO);
    EXPECT_EQ(ex.k->zero(&ex, nullptr, 10), PLAIT_OK);
}

TEST(Plan, NamesOperations)
{
    for (int op = 0; op < PLAIT_OPS; op++)
        EXPECT_EQ(plait_op_find(plait_op_name(static_cast<plait_op>(op))), op);
    EXPECT_EQ(plait_op_find("nothing"), PLAIT_OPS);
    EXPECT_STREQ(plait_op_name(PLAIT_OP_gemm), "gemm");
    EXPECT_STREQ(plait_op_name(PLAIT_OP_copy), "copy");
    EXPECT_STREQ(plait_op_name(PLAIT_OPS), "?");
}

} // namespace
