// When does cuBLASLt compute the epilogue of a product on a GPU, and what happens when it does not? Their values are
// rows of conformance.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/fakecuda/fakecuda.h"
#include "tests/kernels/cuda_case.h"

namespace
{

constexpr int64_t M = 24, N = 16, K = 1000; // sums of so many rows take two kernels
constexpr size_t SCRATCH = 1 << 16;

enum class Epilogue { gelu, bias_gelu, dgelu, bias_grad };

// As sentences have it.
const char *name_of(Epilogue e)
{
    const char *const names[] = {"GELU", "bias and GELU", "slope of GELU", "gradient of a bias"};
    return names[static_cast<int>(e)];
}

// Kernels that run beside the library: of an epilogue that it computes itself, and of one that it does not. The
// gradient of a bias is added to what is there.
long kernels_of(Epilogue e, bool by_library)
{
    return by_library ? e == Epilogue::bias_grad : e == Epilogue::bias_grad ? 2 : 1;
}

// Where operands lie: elements, or bytes of scratch, after an aligned address.
struct Places {
    size_t x = 0, bias = 0, scratch_bytes = SCRATCH;
    int64_t n = N;
};

class CudaEpilogues : public CudaCase, public testing::WithParamInterface<Epilogue>
{
  protected:
    // C (M, n) of a product whose epilogue reads or writes x, bias and y, or the sums in `wide`.
    static plait_gemm product(int64_t n, const void *factor, void *x, const void *bias, void *y, float *wide)
    {
        plait_gemm g = {};
        g.m = M;
        g.n = g.ldb = g.ldc = n;
        g.k = g.lda = K;
        g.a = g.b = factor;
        g.c = x;
        switch (GetParam()) {
        case Epilogue::bias_gelu:
            g.bias = bias;
            [[fallthrough]];
        case Epilogue::gelu:
            g.gelu = y;
            break;
        case Epilogue::dgelu:
            g.c = y;
            g.dgelu = x;
            break;
        case Epilogue::bias_grad:
            g.trans_a = g.c_acc = g.accumulate = true;
            g.lda = M;
            g.c = wide;
            g.bias_grad = wide + M * n;
        }
        return g;
    }

    // Runs the product, and says how many kernels that took.
    template <typename T> long kernels(plait_dtype dtype, const Places &at)
    {
        const size_t all = (M + N) * K + M * N;
        const DeviceArray<T> factor(some_numbers<T>(all, 1)), x(some_numbers<T>(all, 2)), bias(some_numbers<T>(all, 3)),
            y(all);
        const DeviceArray<float> wide(some_numbers<float>(all, 4));
        const DeviceBytes scratch(at.scratch_bytes);
        const plait_exec ex = exec_of(*plait_kernels_cuda(dtype), scratch);
        const plait_gemm g =
            product(at.n, factor.data(), x.data() + at.x, bias.data() + at.bias, y.data(), wide.data());
        const long before = fakecuda_kernels();
        EXPECT_EQ(ex.k->gemm(&ex, &g), PLAIT_OK) << plait_error_text();
        EXPECT_EQ(plait_backend_cuda()->finish(&ex), PLAIT_OK) << plait_error_text();
        return fakecuda_kernels() - before;
    }
    long kernels(const Places &at) { return kernels<__nv_bfloat16>(PLAIT_BF16, at); }
};

TEST_P(CudaEpilogues, AreComputedByTheLibrary)
{
    EXPECT_EQ(kernels({}), kernels_of(GetParam(), true));
    EXPECT_EQ(kernels<float>(PLAIT_FP32, {}), kernels_of(GetParam(), true));
    EXPECT_EQ(kernels<__half>(PLAIT_FP16, {}), kernels_of(GetParam(), true));
}

// The product alone still goes to the library, and what it answered is kept.
TEST_P(CudaEpilogues, FollowTheProductWhereTheLibraryRefuses)
{
    fakecuda::settings().fault = {"cublasLtMatmulAlgoGetHeuristic", 1};
    for (int i = 0; i < 2; i++)
        EXPECT_EQ(kernels({}), kernels_of(GetParam(), false));
}

// But the gradient of a bias, which is one kernel too then.
TEST_P(CudaEpilogues, NeedNoScratch)
{
    Places at;
    at.scratch_bytes = 0;
    EXPECT_EQ(kernels(at), kernels_of(GetParam(), true));
}

TEST_P(CudaEpilogues, FollowTheProductWhereTheLibraryHasNoFormOfTheMatrix)
{
    const bool has_matrix = GetParam() != Epilogue::bias_grad;
    Places at;
    at.x = 1;
    EXPECT_EQ(kernels(at), kernels_of(GetParam(), !has_matrix)) << "not aligned";
    at.x = 0;
    at.n = N - 1;
    EXPECT_EQ(kernels(at), kernels_of(GetParam(), !has_matrix)) << "lines of 15 elements";
}

TEST_P(CudaEpilogues, TakeABiasFromAnywhere)
{
    Places at;
    at.bias = 1;
    EXPECT_EQ(kernels(at), kernels_of(GetParam(), true));
}

TEST_P(CudaEpilogues, SayWhatFailed)
{
    const std::string name = std::string(", ") + name_of(GetParam()) + ", workspace";
    const DeviceArray<float> factor((M + N) * K), x(M * N), bias(N), y(M * N), wide(M * N + M);
    const DeviceBytes scratch(SCRATCH);
    const plait_exec ex = exec_of(*plait_kernels_cuda(PLAIT_FP32), scratch);
    const plait_gemm g = product(N, factor.data(), x.data(), bias.data(), y.data(), wide.data());
    fakecuda::settings().fault = {"cublasLtMatmul", 1};
    EXPECT_EQ(ex.k->gemm(&ex, &g), PLAIT_INTERNAL);
    EXPECT_NE(std::string(plait_error_text()).find(name), std::string::npos) << plait_error_text();
}

INSTANTIATE_TEST_SUITE_P(, CudaEpilogues,
                         testing::Values(Epilogue::gelu, Epilogue::bias_gelu, Epilogue::dgelu, Epilogue::bias_grad),
                         [](const auto &i) {
                             std::string name = name_of(i.param);
                             std::replace(name.begin(), name.end(), ' ', '_');
                             return name;
                         });

} // namespace
