// What is particular to matrix products on a GPU, and what no row of conformance sees: how often the library is asked,
// what happens without room or alignment, and what a failure says.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/cuda/gemm_small.h"
#include "tests/fakecuda/fakecuda.h"
#include "tests/kernels/cuda_case.h"

namespace
{

template <typename T> struct Storage;
template <> struct Storage<float> {
    static constexpr plait_dtype dtype = PLAIT_FP32;
    static constexpr double unit = 0x1p-24;
};
template <> struct Storage<__nv_bfloat16> {
    static constexpr plait_dtype dtype = PLAIT_BF16;
    static constexpr double unit = 0x1p-8;
};
template <> struct Storage<__half> {
    static constexpr plait_dtype dtype = PLAIT_FP16;
    static constexpr double unit = 0x1p-11;
};

// A product, and where its matrices lie: `skip` elements after an allocation's begin, `gap` between lines.
struct Shape {
    const char *name;
    int64_t m, n, k;
    bool trans_a = false, trans_b = false;
    int64_t gap = 0;
    size_t skip_a = 0, skip_b = 0, skip_c = 0, skip_bias = 0;
    bool accumulate = false, bias = false;
    size_t scratch = 1 << 20, skip_scratch = 0; // bytes
};

void PrintTo(const Shape &s, std::ostream *os)
{
    *os << s.name;
}

class CudaGemm : public CudaCase
{
  protected:
    template <typename T> static plait_kernels table()
    {
        plait_kernels k = {};
        k.name = "cuda";
        k.dtype = Storage<T>::dtype;
        k.acc = PLAIT_FP32;
        plait_cuda_fill_gemm(&k);
        return k;
    }

    // Runs a product with C of type O and compares all of C, and what lies around it. `plain`: by the kernel for what
    // the library does not take.
    template <typename T, typename O> void check(const Shape &s, bool plain = false)
    {
        const int64_t lda = (s.trans_a ? s.m : s.k) + s.gap, ldb = (s.trans_b ? s.k : s.n) + s.gap, ldc = s.n + s.gap;
        const auto count = [](int64_t rows, int64_t ld, size_t skip) {
            return skip + static_cast<size_t>(rows * ld) + 8;
        };
        const auto a = some_numbers<T>(count(s.trans_a ? s.k : s.m, lda, s.skip_a), 1),
                   b = some_numbers<T>(count(s.trans_b ? s.n : s.k, ldb, s.skip_b), 2),
                   bias = some_numbers<T>(static_cast<size_t>(s.n) + s.skip_bias, 3);
        const auto before = some_numbers<O>(count(s.m, ldc, s.skip_c), 4);
        const DeviceArray<T> da(a), db(b), dbias(bias);
        const DeviceArray<O> dc(before);
        const DeviceBytes scratch(s.scratch);
        const plait_kernels k = table<T>();
        const plait_exec ex = exec_of(k, scratch, s.skip_scratch);
        plait_gemm g = {};
        g.trans_a = s.trans_a;
        g.trans_b = s.trans_b;
        g.m = s.m;
        g.n = s.n;
        g.k = s.k;
        g.a = da.data() + s.skip_a;
        g.lda = lda;
        g.b = db.data() + s.skip_b;
        g.ldb = ldb;
        g.c = dc.data() + s.skip_c;
        g.ldc = ldc;
        g.c_acc = !std::is_same<T, O>::value;
        g.accumulate = s.accumulate;
        g.bias = s.bias ? dbias.data() + s.skip_bias : nullptr;
        ASSERT_EQ(plain ? plait_cuda_small_gemm(&ex, k.dtype, &g) : k.gemm(&ex, &g), PLAIT_OK) << plait_error_text();

        std::vector<O> got = dc.values();
        for (int64_t i = 0; i < s.m; i++)
            for (int64_t j = 0; j < s.n; j++) {
                const size_t at = s.skip_c + static_cast<size_t>(i * ldc + j);
                double want = 0, squares = 0;
                for (int64_t l = 0; l < s.k; l++) {
                    const double x = to_float(a[s.skip_a + static_cast<size_t>(s.trans_a ? l * lda + i : i * lda + l)]),
                                 y = to_float(b[s.skip_b + static_cast<size_t>(s.trans_b ? j * ldb + l : l * ldb + j)]);
                    want += x * y;
                    squares += x * x * y * y;
                }
                double scale = std::sqrt(squares);
                for (const double x : {s.bias ? to_float(bias[s.skip_bias + static_cast<size_t>(j)]) : 0.0,
                                       s.accumulate ? to_float(before[at]) : 0.0}) {
                    want += x;
                    scale += std::fabs(x);
                }
                scale += std::fabs(want);
                // As tests/kernels/bounds.h has it.
                const double bound = 2 * (Storage<O>::unit + 0x1p-24 * std::sqrt(static_cast<double>(s.k))) * scale;
                ASSERT_NEAR(to_float(got[at]), want, bound) << "row " << i << " column " << j;
                got[at] = before[at];
            }
        ASSERT_EQ(std::memcmp(got.data(), before.data(), before.size() * sizeof(O)), 0) << "wrote outside of C";
    }
};

class CudaGemmShape : public CudaGemm, public testing::WithParamInterface<Shape>
{
};

TEST_P(CudaGemmShape, InFp32)
{
    check<float, float>(GetParam());
}
TEST_P(CudaGemmShape, InBf16)
{
    check<__nv_bfloat16, __nv_bfloat16>(GetParam());
}
TEST_P(CudaGemmShape, InFp16)
{
    check<__half, __half>(GetParam());
}
TEST_P(CudaGemmShape, OfBf16InFp32)
{
    check<__nv_bfloat16, float>(GetParam());
}
TEST_P(CudaGemmShape, OfFp16InFp32)
{
    check<__half, float>(GetParam());
}

std::vector<Shape> shapes()
{
    std::vector<Shape> all;
    const auto add = [&all](const char *name, int64_t m, int64_t n, int64_t k) -> Shape & {
        Shape s = {};
        s.name = name;
        s.m = m;
        s.n = n;
        s.k = k;
        all.push_back(s);
        return all.back();
    };
    add("no_depth", 5, 7, 0);
    add("no_depth_added", 5, 7, 0).accumulate = true;
    add("no_depth_bias", 67, 130, 0).bias = true;
    add("long_sums", 16, 24, 500);
    Shape &both = add("bias_added", 33, 20, 70);
    both.accumulate = both.bias = true;
    both.trans_b = true;
    // Each pointer at the least alignment that its type has.
    add("a_not_aligned", 31, 33, 64).skip_a = 1;
    add("b_not_aligned", 31, 33, 64).skip_b = 1;
    add("c_not_aligned", 31, 33, 64).skip_c = 1;
    Shape &anywhere = add("nothing_aligned", 31, 33, 65);
    anywhere.skip_a = 3;
    anywhere.skip_b = anywhere.skip_c = anywhere.skip_bias = 1;
    anywhere.bias = anywhere.accumulate = true;
    anywhere.gap = 5;
    Shape &bias = add("bias_not_aligned", 31, 33, 64);
    bias.bias = true;
    bias.skip_bias = 1;
    Shape &no_room = add("bias_not_aligned_without_scratch", 31, 33, 64);
    no_room.bias = true;
    no_room.skip_bias = 1;
    no_room.scratch = 0;
    add("wide_gaps", 9, 10, 11).gap = 10007;
    add("no_scratch", 40, 40, 300).scratch = 0;
    Shape &little = add("little_scratch", 40, 40, 300);
    little.scratch = 600;
    little.skip_scratch = 24;
    Shape &crooked = add("scratch_not_aligned", 40, 40, 300);
    crooked.scratch = 40000;
    crooked.skip_scratch = 40;
    return all;
}
INSTANTIATE_TEST_SUITE_P(, CudaGemmShape, testing::ValuesIn(shapes()),
                         [](const auto &i) { return std::string(i.param.name); });

TEST_P(CudaGemmShape, ByThePlainKernel)
{
    Shape s = GetParam();
    for (const bool trans_a : {false, true})
        for (const bool trans_b : {false, true}) {
            s.trans_a = trans_a;
            s.trans_b = trans_b;
            check<float, float>(s, true);
            check<__nv_bfloat16, __nv_bfloat16>(s, true);
            check<__half, float>(s, true);
        }
}

TEST_F(CudaGemm, LeavesEmptyProductsAlone)
{
    const plait_kernels k = table<float>();
    const DeviceBytes scratch(0);
    const plait_exec ex = exec_of(k, scratch);
    plait_gemm g = {};
    g.k = g.lda = g.ldb = g.ldc = 7;
    for (const int64_t m : {0, 5}) {
        g.m = m;
        g.n = 5 - m;
        EXPECT_EQ(k.gemm(&ex, &g), PLAIT_OK) << plait_error_text();
    }
    EXPECT_EQ(plait_backend_cuda()->finish(&ex), PLAIT_OK) << plait_error_text();
}

// C (m, n) = A (m, k) B (k, n), rows without gaps.
plait_gemm product_of(int64_t m, int64_t n, int64_t k, const DeviceArray<float> &a, const DeviceArray<float> &b,
                      const DeviceArray<float> &c)
{
    plait_gemm g = {};
    g.m = m;
    g.n = g.ldb = g.ldc = n;
    g.k = g.lda = k;
    g.a = a.data();
    g.b = b.data();
    g.c = c.data();
    return g;
}

// 11 bits of 1 + 2^-12 are 1; a product without TF32 that was asked for before is another one.
TEST_F(CudaGemm, RoundsToTf32WhereItMay)
{
    constexpr int64_t M = 3, N = 5, K = 8;
    const plait_kernels k = table<float>();
    const DeviceBytes scratch(1 << 12);
    const DeviceArray<float> a(std::vector<float>(M * K, 1 + 0x1p-12f)), b(std::vector<float>(K * N, 1));
    for (const bool tf32 : {false, true, false}) {
        DeviceArray<float> c(std::vector<float>(M * N, 0));
        plait_exec ex = exec_of(k, scratch);
        ex.allow_tf32 = tf32;
        const plait_gemm g = product_of(M, N, K, a, b, c);
        ASSERT_EQ(k.gemm(&ex, &g), PLAIT_OK) << plait_error_text();
        for (const float x : c.values())
            EXPECT_EQ(x, tf32 ? 8 : 8 + 0x1p-9f);
    }
}

// ---- the library is asked once ----

Shape shape_of(int64_t m, int64_t n, int64_t k)
{
    Shape s = {};
    s.name = "";
    s.m = m;
    s.n = n;
    s.k = k;
    s.scratch = 4096;
    return s;
}

TEST_F(CudaGemm, AsksOnceForAShape)
{
    // The second question is answered with "not supported": then a kernel runs.
    fakecuda::settings().fault = {"cublasLtMatmulAlgoGetHeuristic", 2};
    const long before = fakecuda_kernels();
    for (int i = 0; i < 3; i++)
        check<float, float>(shape_of(5, 7, 9));
    EXPECT_EQ(fakecuda_kernels(), before) << "asked again";
    for (int i = 1; i <= 3; i++) {
        check<float, float>(shape_of(5, 7, 10));
        EXPECT_EQ(fakecuda_kernels(), before + i) << "what was answered is not kept";
    }
    check<float, float>(shape_of(5, 7, 9));
    EXPECT_EQ(fakecuda_kernels(), before + 3);
}

// A product of one shape for each depth k, so that a mistaken one shows.
class CudaGemmShapes : public CudaGemm
{
  protected:
    static constexpr int64_t M = 2, N = 3, MOST = 600; // more than are kept (512)

    CudaGemmShapes() : a_(some_numbers<float>(M * MOST, 1)), b_(some_numbers<float>(MOST * N, 2)), da_(a_), db_(b_) {}

    void run(int64_t k)
    {
        const plait_exec ex = exec_of(table_, scratch_);
        const plait_gemm g = product_of(M, N, k, da_, db_, dc_);
        ASSERT_EQ(table_.gemm(&ex, &g), PLAIT_OK) << plait_error_text();
        const auto c = dc_.values();
        for (size_t i = 0; i < M; i++)
            for (size_t j = 0; j < N; j++) {
                double want = 0;
                for (size_t l = 0; l < static_cast<size_t>(k); l++)
                    want += static_cast<double>(a_[i * static_cast<size_t>(k) + l]) * b_[l * N + j];
                ASSERT_NEAR(c[i * N + j], want, 1e-4) << "k " << k << " row " << i << " column " << j;
            }
    }

    const plait_kernels table_ = table<float>();
    const DeviceBytes scratch_{0};
    const std::vector<float> a_, b_;
    const DeviceArray<float> da_, db_, dc_{M * N};
};

// What was forgotten is asked again.
TEST_F(CudaGemmShapes, MoreThanAreKept)
{
    for (int64_t i = 0; i < 2 * MOST; i++)
        run(1 + i % MOST);
}

TEST_F(CudaGemmShapes, WhatIsUsedIsKept)
{
    const int64_t kept = 1;
    // Were one asked for again, a kernel would run.
    fakecuda::settings().fault = {"cublasLtMatmulAlgoGetHeuristic", MOST + 1};
    const long before = fakecuda_kernels();
    for (int64_t k = 1; k <= MOST; k++) {
        run(k);
        run(kept);
    }
    EXPECT_EQ(fakecuda_kernels(), before);
}

// One shape, and a bias that lies elsewhere each time.
TEST_F(CudaGemm, AddsTheBiasThatItIsGiven)
{
    const plait_kernels k = table<float>();
    const DeviceArray<float> a(some_numbers<float>(64, 1)), c(64);
    const std::vector<float> bias = some_numbers<float>(64, 2);
    const DeviceArray<float> dbias(bias);
    const DeviceBytes scratch(4096);
    const plait_exec ex = exec_of(k, scratch);
    std::vector<float> plain;
    for (size_t at : {size_t{64}, size_t{0}, size_t{8}, size_t{1}, size_t{10}}) { // 64: none
        plait_gemm g = {};
        g.m = g.n = g.k = g.lda = g.ldb = g.ldc = 8;
        g.a = g.b = a.data();
        g.c = c.data();
        g.bias = at < 64 ? dbias.data() + at : nullptr;
        ASSERT_EQ(k.gemm(&ex, &g), PLAIT_OK) << plait_error_text();
        const auto got = c.values();
        if (at == 64)
            plain = got;
        for (size_t i = 0; i < 64 && at < 64; i++)
            ASSERT_NEAR(got[i], plain[i] + bias[at + i % 8], 1e-6) << "bias at " << at << ", element " << i;
    }
}

TEST_F(CudaGemm, TakesNoMemoryOfTheDevice)
{
    const plait_kernels k = table<float>();
    const DeviceArray<float> a(some_numbers<float>(64 * 64, 1)), c(64 * 64);
    const DeviceBytes scratch(1 << 16);
    const plait_exec ex = exec_of(k, scratch);
    const long before = fakecuda_allocations();
    for (int64_t n = 1; n <= 64; n++) {
        plait_gemm g = {};
        g.m = g.k = 64;
        g.n = n;
        g.lda = g.ldb = g.ldc = 64;
        g.a = g.b = a.data();
        g.c = c.data();
        g.bias = a.data() + 1;
        ASSERT_EQ(k.gemm(&ex, &g), PLAIT_OK) << plait_error_text();
    }
    EXPECT_EQ(fakecuda_allocations(), before);
    EXPECT_EQ(plait_backend_cuda()->finish(&ex), PLAIT_OK) << plait_error_text();
}

// ---- failures ----

TEST_F(CudaGemm, SaysWhichProductFailed)
{
    fakecuda::settings().fault = {"cublasLtMatmul", 1};
    const plait_kernels k = table<__nv_bfloat16>();
    const DeviceArray<__nv_bfloat16> a(some_numbers<__nv_bfloat16>(64, 1));
    const DeviceArray<float> c(35);
    const DeviceBytes scratch(512);
    const plait_exec ex = exec_of(k, scratch);
    plait_gemm g = {};
    g.trans_b = g.c_acc = true;
    g.m = 5;
    g.n = 7;
    g.k = g.lda = g.ldb = 9;
    g.ldc = 7;
    g.a = g.b = a.data();
    g.c = c.data();
    ASSERT_EQ(k.gemm(&ex, &g), PLAIT_INTERNAL);
    EXPECT_STREQ(plait_error_text(), "product of m 5, n 7, k 9 in bf16 (NT, ld 9 9 7, fp32 result, workspace 512): "
                                     "cublasLtMatmul: the function failed to launch on the GPU");
    EXPECT_EQ(k.gemm(&ex, &g), PLAIT_OK) << plait_error_text();
}

TEST_F(CudaGemm, WarnsOfLargeProductsWithoutTheLibrary)
{
    fakecuda::settings().fault = {"cublasLtMatmulAlgoGetHeuristic", 1};
    testing::internal::CaptureStderr();
    check<float, float>(shape_of(256, 256, 256));
    EXPECT_NE(testing::internal::GetCapturedStderr().find("m 256, n 256, k 256 in fp32"), std::string::npos);
    fakecuda::settings().fault = {"cublasLtMatmulAlgoGetHeuristic", 1};
    testing::internal::CaptureStderr();
    check<float, float>(shape_of(8, 8, 8));
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

} // namespace
