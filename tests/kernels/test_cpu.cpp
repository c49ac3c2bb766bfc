// What is particular to the fast tables: which one is chosen, and results that must not depend on threads or on how
// much scratch there is. test_conformance compares all of them with the reference.
#include "kernels/cpu/cpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <random>

#include "tests/kernels/conformance.h"

namespace
{

TEST(CpuTables, AreNullForOtherTypes)
{
    EXPECT_EQ(plait_kernels_cpu(PLAIT_FP64, PLAIT_ISA_AUTO), nullptr);
    EXPECT_EQ(plait_kernels_cpu(PLAIT_INT32, PLAIT_ISA_AUTO), nullptr);
    EXPECT_EQ(plait_kernels_cpu_portable(PLAIT_FP64), nullptr);
}

TEST(CpuTables, SayWhatTheyAre)
{
    for (plait_dtype dtype : {PLAIT_FP32, PLAIT_BF16, PLAIT_FP16}) {
        const plait_kernels *k = plait_kernels_cpu_portable(dtype);
        ASSERT_NE(k, nullptr);
        EXPECT_STREQ(k->name, "cpu-portable");
        EXPECT_EQ(k->dtype, dtype);
        EXPECT_EQ(k->acc, PLAIT_FP32);
    }
}

#if defined __x86_64__
TEST(CpuTables, AreNullWithoutTheInstructions)
{
    EXPECT_EQ(plait_kernels_cpu(PLAIT_FP32, PLAIT_ISA_AVX512) != nullptr,
              __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"));
    EXPECT_EQ(plait_kernels_cpu(PLAIT_FP32, PLAIT_ISA_AVX2) != nullptr, __builtin_cpu_supports("avx2") != 0);
}
#endif

// Bytes of `n` elements that hold random numbers in [-1, 1).
std::vector<char> random_elements(plait_dtype dtype, int64_t n, unsigned seed)
{
    std::mt19937 gen(seed);
    std::vector<char> bytes(static_cast<size_t>(n) * plait_dtype_size(dtype));
    for (int64_t i = 0; i < n; i++)
        conformance::store(bytes.data(), dtype, i, static_cast<double>(gen()) / 2147483648.0 - 1.0);
    return bytes;
}

plait_exec exec_of(const plait_kernels *k, std::vector<float> &scratch, int threads)
{
    plait_exec ex = {};
    ex.k = k;
    ex.scratch = scratch.data();
    ex.scratch_bytes = scratch.size() * sizeof(float);
    ex.threads = threads;
    return ex;
}

// C = A B^T + bias, twice over (the second time added), against sums in double.
struct Product {
    const char *name;
    plait_dtype dtype;
    int64_t m, n, k;
    size_t scratch_bytes;
    bool c_acc;
};

void PrintTo(const Product &c, std::ostream *os)
{
    *os << c.name;
}

class CpuGemm : public testing::TestWithParam<Product>
{
};

TEST_P(CpuGemm, CutsUpWithoutChangingTheProduct)
{
    const Product &c = GetParam();
    const plait_dtype out = c.c_acc ? PLAIT_FP32 : c.dtype;
    const plait_kernels *k = plait_kernels_cpu(c.dtype, PLAIT_ISA_AUTO);
    std::vector<char> a = random_elements(c.dtype, c.m * c.k, 1), b = random_elements(c.dtype, c.n * c.k, 2),
                      bias = random_elements(c.dtype, c.n, 3), first;
    for (int threads = 1; threads <= 3; threads++) {
        std::vector<char> y(static_cast<size_t>(c.m * c.n) * plait_dtype_size(out));
        std::vector<float> scratch(c.scratch_bytes / sizeof(float));
        plait_exec ex = exec_of(k, scratch, threads);
        plait_gemm g = {};
        g.trans_b = true;
        g.m = c.m;
        g.n = c.n;
        g.k = c.k;
        g.a = a.data();
        g.lda = c.k;
        g.b = b.data();
        g.ldb = c.k;
        g.c = y.data();
        g.ldc = c.n;
        g.c_acc = c.c_acc;
        g.bias = bias.data();
        ASSERT_EQ(k->gemm(&ex, &g), PLAIT_OK) << plait_error_text();
        g.bias = nullptr;
        g.accumulate = true;
        ASSERT_EQ(k->gemm(&ex, &g), PLAIT_OK) << plait_error_text();
        if (threads == 1)
            first = y;
        ASSERT_TRUE(y == first) << threads << " threads give different bits";
    }
    const double unit = out == PLAIT_FP32 ? 0x1p-24 : out == PLAIT_BF16 ? 0x1p-8 : 0x1p-11;
    for (int64_t i = 0; i < c.m * c.n; i += 1 + c.m * c.n / 997) {
        double sum = 0;
        for (int64_t j = 0; j < c.k; j++)
            sum += conformance::load(a.data(), c.dtype, i / c.n * c.k + j) *
                   conformance::load(b.data(), c.dtype, i % c.n * c.k + j);
        double want = 2 * sum + conformance::load(bias.data(), c.dtype, i % c.n);
        double bound = 4 * (unit * (std::fabs(want) + 1) + 0x1p-24 * static_cast<double>(c.k));
        ASSERT_NEAR(conformance::load(first.data(), out, i), want, bound) << "row " << i / c.n << " column " << i % c.n;
    }
}

const Product kProducts[] = {
    {"one_tile", PLAIT_FP32, 48, 96, 64, 1 << 20, false},
    {"ragged_tiles", PLAIT_FP32, 401, 783, 130, 1 << 20, false},
    {"no_scratch", PLAIT_FP32, 100, 70, 50, 0, false},
    {"bf16_whole_panels", PLAIT_BF16, 130, 200, 96, 1 << 20, false},
    {"bf16_cut_panels", PLAIT_BF16, 130, 200, 300, 1 << 16, false},
    {"bf16_cut_panels_fp32_out", PLAIT_BF16, 130, 200, 300, 1 << 16, true},
    {"fp16_cut_everything", PLAIT_FP16, 130, 200, 300, 1 << 13, false},
};
INSTANTIATE_TEST_SUITE_P(, CpuGemm, testing::ValuesIn(kProducts),
                         [](const auto &i) { return std::string(i.param.name); });

TEST(CpuGemmScratch, TooLittleIsAnErrorWithBothNumbers)
{
    const plait_kernels *k = plait_kernels_cpu_portable(PLAIT_FP16);
    std::vector<char> a = random_elements(PLAIT_FP16, 64 * 64, 1), y(64 * 64 * 2);
    std::vector<float> scratch(16);
    plait_exec ex = exec_of(k, scratch, 1);
    plait_gemm g = {};
    g.m = g.n = g.k = g.lda = g.ldb = g.ldc = 64;
    g.a = g.b = a.data();
    g.c = y.data();
    EXPECT_EQ(k->gemm(&ex, &g), PLAIT_OUT_OF_MEMORY);
    EXPECT_NE(std::strstr(plait_error_text(), "device.workspace 64 bytes"), nullptr) << plait_error_text();
}

// Backward has one pass where scratch suffices, else two; both with every number of threads give the same bits.
struct Attention {
    const char *name;
    plait_dtype dtype;
    int64_t batch, seq, heads, kv_heads, head_dim;
    double p;
};

void PrintTo(const Attention &c, std::ostream *os)
{
    *os << c.name;
}

class CpuAttention : public testing::TestWithParam<Attention>
{
};

// o, dq, dk, dv and lse in one array of bytes.
std::vector<char> run_attention(const Attention &c, size_t scratch_bytes, int threads)
{
    const plait_kernels *k = plait_kernels_cpu(c.dtype, PLAIT_ISA_AUTO);
    const int64_t N = c.batch * c.seq, ld = c.heads * c.head_dim, ld_kv = c.kv_heads * c.head_dim;
    const size_t size = plait_dtype_size(c.dtype);
    std::vector<char> q = random_elements(c.dtype, N * ld, 1), key = random_elements(c.dtype, N * ld_kv, 2),
                      v = random_elements(c.dtype, N * ld_kv, 3), d_o = random_elements(c.dtype, N * ld, 4);
    const size_t bytes = static_cast<size_t>(N * ld) * size, kv_bytes = static_cast<size_t>(N * ld_kv) * size;
    std::vector<char> all(2 * bytes + 2 * kv_bytes + static_cast<size_t>(N * c.heads) * sizeof(float));
    std::vector<float> scratch(scratch_bytes / sizeof(float), NAN);
    plait_exec ex = exec_of(k, scratch, threads);
    plait_dropout drop = {c.p, 7, PLAIT_RNG_DROPOUT_ATTN, 1, 2, 3, 0, c.batch, 1};
    plait_attention a = {};
    a.batch = c.batch;
    a.seq = c.seq;
    a.heads = c.heads;
    a.kv_heads = c.kv_heads;
    a.head_dim = c.head_dim;
    a.scale = 0.3;
    a.dropout = &drop;
    a.q = q.data();
    a.k = key.data();
    a.v = v.data();
    a.d_o = d_o.data();
    a.ldq = a.ldo = a.lddo = a.lddq = ld;
    a.ldk = a.ldv = a.lddk = a.lddv = ld_kv;
    a.o = all.data();
    a.dq = all.data() + bytes;
    a.dk = all.data() + 2 * bytes;
    a.dv = all.data() + 2 * bytes + kv_bytes;
    std::vector<float> lse(static_cast<size_t>(N * c.heads));
    a.lse = lse.data();
    EXPECT_EQ(k->attention_fwd(&ex, &a), PLAIT_OK) << plait_error_text();
    EXPECT_EQ(k->attention_bwd(&ex, &a), PLAIT_OK) << plait_error_text();
    std::memcpy(all.data() + 2 * bytes + 2 * kv_bytes, lse.data(), lse.size() * sizeof(float));
    return all;
}

TEST_P(CpuAttention, IsTheSameInOnePassOrTwo)
{
    const Attention &c = GetParam();
    const std::vector<char> want = run_attention(c, 8 << 20, 1);
    // Enough for tiles of full size (137 KiB), not for dK and dV of the whole sequence besides.
    EXPECT_TRUE(run_attention(c, 8 << 20, 2) == want) << "2 threads";
    EXPECT_TRUE(run_attention(c, 8 << 20, 16) == want) << "more threads than key/value heads";
    EXPECT_TRUE(run_attention(c, 150 << 10, 1) == want) << "little scratch";
    EXPECT_TRUE(run_attention(c, 290 << 10, 5) == want) << "scratch for fewer threads than there are";
}

const Attention kAttentions[] = {
    {"fp32", PLAIT_FP32, 2, 200, 2, 1, 64, 0},           {"bf16", PLAIT_BF16, 2, 200, 2, 2, 64, 0},
    {"fp16_odd", PLAIT_FP16, 1, 149, 3, 1, 60, 0},       {"dropout", PLAIT_FP32, 1, 200, 2, 1, 64, 0.25},
    {"dropout_odd", PLAIT_BF16, 1, 149, 2, 2, 64, 0.25},
};
INSTANTIATE_TEST_SUITE_P(, CpuAttention, testing::ValuesIn(kAttentions),
                         [](const auto &i) { return std::string(i.param.name); });

TEST(CpuAttentionScratch, TooLittleIsAnErrorWithBothNumbers)
{
    const plait_kernels *k = plait_kernels_cpu_portable(PLAIT_FP32);
    std::vector<float> x(8 * 64), lse(8), scratch(16);
    plait_exec ex = exec_of(k, scratch, 1);
    plait_attention a = {};
    a.batch = a.heads = a.kv_heads = 1;
    a.seq = 8;
    a.head_dim = a.ldq = a.ldk = a.ldv = a.ldo = 64;
    a.scale = 1;
    a.q = a.k = a.v = x.data();
    a.o = x.data();
    a.lse = lse.data();
    EXPECT_EQ(k->attention_fwd(&ex, &a), PLAIT_OUT_OF_MEMORY);
    EXPECT_NE(std::strstr(plait_error_text(), "device.workspace 64 bytes"), nullptr) << plait_error_text();
}

} // namespace
