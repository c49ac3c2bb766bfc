// The emulated cuBLASLt: products against plain sums, and what is refused. Linked with the real library on a GPU, the
// first half says whether the emulation computes what the library does.
#include <cublasLt.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <ostream>
#include <string>

#include "tests/fakecuda/settings.h"
#include "tests/fakecuda/tests/device_array.h"

namespace
{

const size_t kWorkspace = 4 << 20;

// One product: descriptors, made from a few numbers, and pointers.
struct Matmul {
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t a, b, c, d;
    cublasLtMatmulPreferenceOpaque_t pref;
    const void *A = nullptr, *B = nullptr, *C = nullptr;
    void *D = nullptr;
    float alpha = 1, beta = 0;
    void *workspace = nullptr;
    size_t workspace_bytes = 0;

    // Column-major and dense: op(A) (m, k), op(B) (k, n), D (m, n).
    Matmul(uint64_t m, uint64_t n, uint64_t k, cudaDataType in, cudaDataType out, bool trans_a = false,
           bool trans_b = false)
    {
        const int32_t ta = trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, tb = trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
        cublasLtMatmulDescInit(&op, CUBLAS_COMPUTE_32F, CUDA_R_32F);
        set(CUBLASLT_MATMUL_DESC_TRANSA, ta);
        set(CUBLASLT_MATMUL_DESC_TRANSB, tb);
        init(&a, in, trans_a ? k : m, trans_a ? m : k);
        init(&b, in, trans_b ? n : k, trans_b ? k : n);
        init(&c, out, m, n);
        init(&d, out, m, n);
        cublasLtMatmulPreferenceInit(&pref);
    }
    static void init(cublasLtMatrixLayout_t l, cudaDataType type, uint64_t rows, uint64_t cols)
    {
        cublasLtMatrixLayoutInit(l, type, rows, cols, static_cast<int64_t>(rows));
    }
    template <typename T> cublasStatus_t set(cublasLtMatmulDescAttributes_t what, T value)
    {
        return cublasLtMatmulDescSetAttribute(&op, what, &value, sizeof value);
    }
    template <typename T>
    static cublasStatus_t set(cublasLtMatrixLayoutOpaque_t &l, cublasLtMatrixLayoutAttribute_t what, T value)
    {
        return cublasLtMatrixLayoutSetAttribute(&l, what, &value, sizeof value);
    }
    template <typename T> cublasStatus_t prefer(cublasLtMatmulPreferenceAttributes_t what, T value)
    {
        return cublasLtMatmulPreferenceSetAttribute(&pref, what, &value, sizeof value);
    }
};

class FakeCublasLt : public testing::Test
{
  protected:
    void SetUp() override { ASSERT_EQ(cublasLtCreate(&lt_), CUBLAS_STATUS_SUCCESS); }
    void TearDown() override
    {
        cudaDeviceSynchronize();
        EXPECT_EQ(cublasLtDestroy(lt_), CUBLAS_STATUS_SUCCESS);
    }

    // The choices for a product, best first.
    std::vector<cublasLtMatmulHeuristicResult_t> ask(Matmul &x, cublasStatus_t want = CUBLAS_STATUS_SUCCESS)
    {
        std::vector<cublasLtMatmulHeuristicResult_t> results(4);
        int count = -1;
        EXPECT_EQ(
            cublasLtMatmulAlgoGetHeuristic(lt_, &x.op, &x.a, &x.b, &x.c, &x.d, &x.pref, 4, results.data(), &count),
            want);
        results.resize(count > 0 ? static_cast<size_t>(count) : 0);
        return results;
    }

    cublasStatus_t run(Matmul &x, const cublasLtMatmulAlgo_t *algo)
    {
        return cublasLtMatmul(lt_, &x.op, &x.alpha, x.A, &x.a, x.B, &x.b, &x.beta, x.C, &x.c, x.D, &x.d, algo,
                              x.workspace, x.workspace_bytes, nullptr);
    }

    // Asks and runs.
    void run_best(Matmul &x)
    {
        const auto found = ask(x);
        ASSERT_GT(found.size(), 0u);
        ASSERT_EQ(run(x, &found[0].algo), CUBLAS_STATUS_SUCCESS);
    }

    cublasLtHandle_t lt_ = nullptr;
};

// ---- what is computed ----

struct Case {
    const char *name;
    int64_t m, n, k;
    bool trans_a, trans_b;
    int32_t order; // of all matrices
    int64_t gap;   // of leading dimensions
    int32_t batch;
    float alpha, beta;
};

void PrintTo(const Case &c, std::ostream *os)
{
    *os << c.name;
}

class FakeCublasLtProduct : public FakeCublasLt, public testing::WithParamInterface<Case>
{
  protected:
    // A (rows, cols) matrix of a batch, stored in the order of the case.
    struct Place {
        int64_t ld, row, col, stride;
    };
    Place place(int64_t rows, int64_t cols) const
    {
        const Case &c = GetParam();
        const bool by_rows = c.order == CUBLASLT_ORDER_ROW;
        const int64_t ld = (by_rows ? cols : rows) + c.gap;
        return {ld, by_rows ? ld : 1, by_rows ? 1 : ld, ld * (by_rows ? rows : cols) + 3};
    }

    void describe(cublasLtMatrixLayoutOpaque_t &l, const Place &p)
    {
        const Case &c = GetParam();
        Matmul::set(l, CUBLASLT_MATRIX_LAYOUT_ORDER, c.order);
        Matmul::set(l, CUBLASLT_MATRIX_LAYOUT_LD, p.ld);
        Matmul::set(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, c.batch);
        Matmul::set(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, p.stride);
    }

    template <typename T, typename O> void check(cudaDataType in, cudaDataType out, double unit)
    {
        const Case &c = GetParam();
        const Place pa = place(c.trans_a ? c.k : c.m, c.trans_a ? c.m : c.k),
                    pb = place(c.trans_b ? c.n : c.k, c.trans_b ? c.k : c.n), pd = place(c.m, c.n);
        const auto a = some_numbers<T>(static_cast<size_t>(pa.stride * c.batch), 1),
                   b = some_numbers<T>(static_cast<size_t>(pb.stride * c.batch), 2);
        const auto d = some_numbers<O>(static_cast<size_t>(pd.stride * c.batch), 3);
        const DeviceArray<T> da(a), db(b);
        const DeviceArray<O> dd(d);
        Matmul x(static_cast<uint64_t>(c.m), static_cast<uint64_t>(c.n), static_cast<uint64_t>(c.k), in, out, c.trans_a,
                 c.trans_b);
        describe(x.a, pa);
        describe(x.b, pb);
        describe(x.c, pd);
        describe(x.d, pd);
        x.A = da.data();
        x.B = db.data();
        x.C = x.D = dd.data();
        x.alpha = c.alpha;
        x.beta = c.beta;
        run_best(x);
        const auto got = dd.values();
        for (int64_t q = 0; q < c.batch; q++)
            for (int64_t i = 0; i < c.m; i++)
                for (int64_t j = 0; j < c.n; j++) {
                    double sum = 0;
                    for (int64_t l = 0; l < c.k; l++)
                        sum += static_cast<double>(to_float(a[static_cast<size_t>(
                                   q * pa.stride + (c.trans_a ? l * pa.row + i * pa.col : i * pa.row + l * pa.col))])) *
                               static_cast<double>(to_float(b[static_cast<size_t>(
                                   q * pb.stride + (c.trans_b ? j * pb.row + l * pb.col : l * pb.row + j * pb.col))]));
                    const size_t at = static_cast<size_t>(q * pd.stride + i * pd.row + j * pd.col);
                    const double want = c.alpha * sum + (c.beta != 0 ? c.beta * to_float(d[at]) : 0);
                    ASSERT_NEAR(to_float(got[at]), want,
                                unit * (std::fabs(want) + 1) + 0x1p-22 * static_cast<double>(c.k))
                        << "product " << q << " row " << i << " column " << j;
                }
        // What lies between the lines is somebody else's.
        for (size_t at = 0; at < d.size(); at++) {
            const int64_t in_one = static_cast<int64_t>(at) % pd.stride;
            const bool by_rows = c.order == CUBLASLT_ORDER_ROW;
            if (in_one % pd.ld >= (by_rows ? c.n : c.m) || in_one / pd.ld >= (by_rows ? c.m : c.n)) {
                ASSERT_EQ(to_float(got[at]), to_float(d[at])) << "element " << at << " is in no line";
            }
        }
    }
};

TEST_P(FakeCublasLtProduct, InFp32)
{
    check<float, float>(CUDA_R_32F, CUDA_R_32F, 0x1p-24);
}
TEST_P(FakeCublasLtProduct, InBf16)
{
    check<__nv_bfloat16, __nv_bfloat16>(CUDA_R_16BF, CUDA_R_16BF, 0x1p-8);
}
TEST_P(FakeCublasLtProduct, InFp16)
{
    check<__half, __half>(CUDA_R_16F, CUDA_R_16F, 0x1p-11);
}
TEST_P(FakeCublasLtProduct, OfBf16InFp32)
{
    check<__nv_bfloat16, float>(CUDA_R_16BF, CUDA_R_32F, 0x1p-24);
}

const Case kProducts[] = {
    {"one", 1, 1, 1, false, false, CUBLASLT_ORDER_COL, 0, 1, 1, 0},
    {"plain", 64, 48, 32, false, false, CUBLASLT_ORDER_COL, 0, 1, 1, 0},
    {"odd", 37, 23, 65, false, false, CUBLASLT_ORDER_COL, 3, 1, 1, 0},
    {"trans_a", 37, 23, 65, true, false, CUBLASLT_ORDER_COL, 3, 1, 1, 0},
    {"trans_b", 37, 23, 65, false, true, CUBLASLT_ORDER_COL, 3, 1, 1, 0},
    {"trans_both", 37, 23, 65, true, true, CUBLASLT_ORDER_COL, 3, 1, 1, 0},
    {"scaled_and_added", 19, 33, 7, false, false, CUBLASLT_ORDER_COL, 1, 1, 0.5f, 2},
    {"rows", 37, 23, 65, false, true, CUBLASLT_ORDER_ROW, 3, 1, 1, 1},
    {"batch", 17, 5, 9, true, false, CUBLASLT_ORDER_COL, 2, 3, 1, 1},
};
INSTANTIATE_TEST_SUITE_P(, FakeCublasLtProduct, testing::ValuesIn(kProducts),
                         [](const auto &i) { return std::string(i.param.name); });

TEST_F(FakeCublasLt, RoundsInputsToTf32WhenAsked)
{
    const DeviceArray<float> a(std::vector<float>{1.0f + 0x1p-11f + 0x1p-20f}), b(std::vector<float>{1.0f}), d(1);
    Matmul x(1, 1, 1, CUDA_R_32F, CUDA_R_32F);
    x.set(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, int32_t{CUBLAS_COMPUTE_32F_FAST_TF32});
    x.A = a.data();
    x.B = b.data();
    x.C = x.D = d.data();
    run_best(x);
    EXPECT_EQ(d.values()[0], 1.0f + 0x1p-10f);
}

// ---- epilogues ----

double gelu(double x)
{
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double gelu_slope(double x)
{
    return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5;
}

// D (M, N) = op(A) B with an epilogue; A (M, K), B (K, N), bias and aux in fp32.
class FakeCublasLtEpilogue : public FakeCublasLt
{
  protected:
    static constexpr int64_t M = 21, N = 13, K = 18, AUX_LD = 24;

    FakeCublasLtEpilogue()
        : a_(some_numbers<float>(M * K, 1)), b_(some_numbers<float>(K * N, 2)), bias_(some_numbers<float>(M, 3)),
          aux_(some_numbers<float>(AUX_LD * N, 4)), da_(a_), db_(b_), dd_(M * N), dbias_(bias_), daux_(aux_),
          x_(M, N, K, CUDA_R_32F, CUDA_R_32F)
    {
        x_.A = da_.data();
        x_.B = db_.data();
        x_.C = x_.D = dd_.data();
    }

    double product(int64_t i, int64_t j) const
    {
        double sum = 0;
        for (int64_t l = 0; l < K; l++)
            sum += static_cast<double>(a_[static_cast<size_t>(l * M + i)]) * b_[static_cast<size_t>(j * K + l)];
        return sum;
    }
    void run_with(cublasLtEpilogue_t epilogue)
    {
        x_.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
        x_.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, dbias_.data());
        x_.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, daux_.data());
        x_.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t{AUX_LD});
        run_best(x_);
    }
    void expect_d(const std::function<double(int64_t, int64_t)> &want)
    {
        const auto d = dd_.values();
        for (int64_t i = 0; i < M; i++)
            for (int64_t j = 0; j < N; j++)
                ASSERT_NEAR(d[static_cast<size_t>(j * M + i)], want(i, j), 1e-5) << "row " << i << " column " << j;
    }
    void expect_aux(const std::function<double(int64_t, int64_t)> &want)
    {
        const auto aux = daux_.values();
        for (int64_t i = 0; i < AUX_LD; i++)
            for (int64_t j = 0; j < N; j++) {
                const size_t at = static_cast<size_t>(j * AUX_LD + i);
                ASSERT_NEAR(aux[at], i < M ? want(i, j) : aux_[at], 1e-5) << "row " << i << " column " << j;
            }
    }
    double bias(int64_t i) const { return bias_[static_cast<size_t>(i)]; }
    double aux(int64_t i, int64_t j) const { return aux_[static_cast<size_t>(j * AUX_LD + i)]; }

    std::vector<float> a_, b_, bias_, aux_;
    DeviceArray<float> da_, db_, dd_, dbias_, daux_;
    Matmul x_;
};

TEST_F(FakeCublasLtEpilogue, Bias)
{
    run_with(CUBLASLT_EPILOGUE_BIAS);
    expect_d([this](int64_t i, int64_t j) { return product(i, j) + bias(i); });
}

TEST_F(FakeCublasLtEpilogue, BiasIsAddedToWhatIsThere)
{
    run_with(CUBLASLT_EPILOGUE_BIAS);
    x_.beta = 1;
    run_best(x_);
    expect_d([this](int64_t i, int64_t j) { return 2 * (product(i, j) + bias(i)); });
}

TEST_F(FakeCublasLtEpilogue, GeluAux)
{
    run_with(CUBLASLT_EPILOGUE_GELU_AUX);
    expect_d([this](int64_t i, int64_t j) { return gelu(product(i, j)); });
    expect_aux([this](int64_t i, int64_t j) { return product(i, j); });
}

TEST_F(FakeCublasLtEpilogue, GeluAuxBias)
{
    run_with(CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
    expect_d([this](int64_t i, int64_t j) { return gelu(product(i, j) + bias(i)); });
    expect_aux([this](int64_t i, int64_t j) { return product(i, j) + bias(i); });
}

TEST_F(FakeCublasLtEpilogue, Dgelu)
{
    run_with(CUBLASLT_EPILOGUE_DGELU);
    expect_d([this](int64_t i, int64_t j) { return product(i, j) * gelu_slope(aux(i, j)); });
    expect_aux([this](int64_t i, int64_t j) { return aux(i, j); });
}

TEST_F(FakeCublasLtEpilogue, DgeluBgrad)
{
    run_with(CUBLASLT_EPILOGUE_DGELU_BGRAD);
    expect_d([this](int64_t i, int64_t j) { return product(i, j) * gelu_slope(aux(i, j)); });
    const auto got = dbias_.values();
    for (int64_t i = 0; i < M; i++) {
        double want = 0;
        for (int64_t j = 0; j < N; j++)
            want += product(i, j) * gelu_slope(aux(i, j));
        EXPECT_NEAR(got[static_cast<size_t>(i)], want, 1e-4) << "row " << i;
    }
}

TEST_F(FakeCublasLtEpilogue, Bgrada)
{
    run_with(CUBLASLT_EPILOGUE_BGRADA);
    expect_d([this](int64_t i, int64_t j) { return product(i, j); });
    const auto got = dbias_.values();
    for (int64_t i = 0; i < M; i++) {
        double want = 0;
        for (int64_t l = 0; l < K; l++)
            want += a_[static_cast<size_t>(l * M + i)];
        EXPECT_NEAR(got[static_cast<size_t>(i)], want, 1e-5) << "row " << i;
    }
}

TEST_F(FakeCublasLtEpilogue, Bgradb)
{
    run_with(CUBLASLT_EPILOGUE_BGRADB);
    expect_d([this](int64_t i, int64_t j) { return product(i, j); });
    const auto got = dbias_.values();
    for (int64_t j = 0; j < M; j++) {
        double want = 0;
        for (int64_t l = 0; j < N && l < K; l++)
            want += b_[static_cast<size_t>(j * K + l)];
        EXPECT_NEAR(got[static_cast<size_t>(j)], j < N ? want : bias(j), 1e-5) << "column " << j;
    }
}

// ---- the choice of algorithms ----

TEST_F(FakeCublasLt, SplitsSumsOnlyWithRoomAndLeave)
{
    const auto needs = [this](uint64_t workspace, uint32_t sums) {
        Matmul x(32, 32, 256, CUDA_R_16BF, CUDA_R_16BF);
        x.prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
        x.prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, sums);
        return ask(x)[0].workspaceSize;
    };
    EXPECT_EQ(needs(0, CUBLASLT_REDUCTION_SCHEME_MASK), 0u);
    EXPECT_EQ(needs(kWorkspace, CUBLASLT_REDUCTION_SCHEME_NONE), 0u);
    EXPECT_EQ(needs(kWorkspace, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE), 2u * 32 * 32 * 4);
    EXPECT_EQ(needs(2 * 32 * 32 * 4 - 1, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE), 0u);
}

// A product with matrices on the device, for what is refused when it is run.
class FakeCublasLtCall : public FakeCublasLt
{
  protected:
    FakeCublasLtCall()
        : a_(some_numbers<float>(32 * 256 + 8, 1)), b_(some_numbers<float>(32 * 256 + 8, 2)), d_(32 * 32 + 8),
          workspace_(kWorkspace), x_(32, 32, 256, CUDA_R_32F, CUDA_R_32F)
    {
        x_.A = a_.data();
        x_.B = b_.data();
        x_.C = x_.D = d_.data();
        x_.workspace = workspace_.at();
        x_.workspace_bytes = kWorkspace;
        x_.prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspace});
    }
    cublasStatus_t run_best_of_ask() { return run(x_, &ask(x_)[0].algo); }

    DeviceArray<float> a_, b_, d_;
    DeviceBytes workspace_;
    Matmul x_;
};

TEST_F(FakeCublasLtCall, LeavesNothingInTheWorkspace)
{
    const std::vector<char> zeros(kWorkspace);
    cudaMemcpy(workspace_.at(), zeros.data(), kWorkspace, cudaMemcpyHostToDevice);
    const auto found = ask(x_);
    ASSERT_GT(found[0].workspaceSize, 0u);
    ASSERT_EQ(run(x_, &found[0].algo), CUBLAS_STATUS_SUCCESS);
    cudaDeviceSynchronize();
    std::vector<float> left(kWorkspace / sizeof(float));
    cudaMemcpy(left.data(), workspace_.at(), kWorkspace, cudaMemcpyDeviceToHost);
    for (size_t i = 0; i < left.size(); i++)
        ASSERT_EQ(std::isnan(left[i]), i * sizeof(float) < found[0].workspaceSize) << i;
}

TEST_F(FakeCublasLtCall, RunsWithoutAnAlgorithm)
{
    EXPECT_EQ(run(x_, nullptr), CUBLAS_STATUS_SUCCESS);
}

TEST_F(FakeCublasLtCall, RefusesTheAlgorithmOfAnotherProduct)
{
    Matmul other(32, 32, 255, CUDA_R_32F, CUDA_R_32F);
    const auto found = ask(other);
    EXPECT_EQ(run(x_, &found[0].algo), CUBLAS_STATUS_INVALID_VALUE);
    const cublasLtMatmulAlgo_t nothing = {};
    EXPECT_EQ(run(x_, &nothing), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(FakeCublasLtCall, RefusesPointersLessAlignedThanWasSaid)
{
    x_.A = a_.data() + 1;
    EXPECT_EQ(run_best_of_ask(), CUBLAS_STATUS_INVALID_VALUE);
    x_.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t{4});
    EXPECT_EQ(run_best_of_ask(), CUBLAS_STATUS_SUCCESS);
    x_.C = x_.D = d_.data() + 2;
    EXPECT_EQ(run_best_of_ask(), CUBLAS_STATUS_INVALID_VALUE);
    x_.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t{8});
    EXPECT_EQ(run_best_of_ask(), CUBLAS_STATUS_SUCCESS) << "C is not read";
    x_.beta = 1;
    EXPECT_EQ(run_best_of_ask(), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(FakeCublasLtCall, RefusesABiasLessAlignedThanWhenAsked)
{
    x_.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    x_.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, a_.data());
    const auto found = ask(x_);
    x_.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, a_.data() + 1);
    EXPECT_EQ(run(x_, &found[0].algo), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(run_best_of_ask(), CUBLAS_STATUS_SUCCESS);
    x_.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void *>(nullptr));
    EXPECT_EQ(run_best_of_ask(), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(FakeCublasLtCall, RefusesWorkspacesThatAreSmallOrNotAligned)
{
    x_.workspace_bytes = 256;
    EXPECT_EQ(run_best_of_ask(), CUBLAS_STATUS_INVALID_VALUE);
    x_.workspace = workspace_.at(128);
    x_.workspace_bytes = kWorkspace - 128;
    EXPECT_EQ(run_best_of_ask(), CUBLAS_STATUS_INVALID_VALUE);
    x_.workspace = nullptr;
    EXPECT_EQ(run_best_of_ask(), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(FakeCublasLtCall, RefusesOneMatrixWithTwoLayouts)
{
    Matmul::init(&x_.c, CUDA_R_32F, 32, 32);
    Matmul::set(x_.c, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{33});
    EXPECT_EQ(run_best_of_ask(), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(FakeCublasLtCall, FailsWhenTheTestAsks)
{
    fakecuda::settings().fault = {"cublasLtMatmul", 2};
    EXPECT_EQ(run_best_of_ask(), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(run_best_of_ask(), CUBLAS_STATUS_EXECUTION_FAILED);
    fakecuda::settings().fault = {"cublasLtMatmulAlgoGetHeuristic", 1};
    EXPECT_EQ(ask(x_, CUBLAS_STATUS_NOT_SUPPORTED).size(), 0u);
    fakecuda::settings().fault = {};
}

typedef FakeCublasLtCall FakeCublasLtCallDeathTest;

TEST_F(FakeCublasLtCallDeathTest, EndsWhenMatricesOverlap)
{
    const auto found = ask(x_);
    x_.C = x_.D = a_.data();
    EXPECT_EXIT(run(x_, &found[0].algo), testing::ExitedWithCode(97), "D overlaps A or B");
}

TEST_F(FakeCublasLtCallDeathTest, EndsWithMemoryOfTheHost)
{
    std::vector<float> host(32 * 256);
    const auto found = ask(x_);
    x_.A = host.data();
    for (; reinterpret_cast<uintptr_t>(x_.A) % 16 != 0;)
        x_.A = static_cast<const float *>(x_.A) + 1;
    EXPECT_EXIT(run(x_, &found[0].algo), testing::ExitedWithCode(97), "is not memory of the device");
}

TEST_F(FakeCublasLtCallDeathTest, EndsWhereAMatrixRunsPastItsMemory)
{
    Matmul big(64, 64, 256, CUDA_R_32F, CUDA_R_32F);
    big.A = a_.data();
    big.B = b_.data();
    big.C = big.D = d_.data();
    const auto found = ask(big);
    EXPECT_EXIT(
        {
            run(big, &found[0].algo);
            cudaDeviceSynchronize();
        },
        testing::ExitedWithCode(97), "cublasLtMatmul");
}

TEST_F(FakeCublasLtCallDeathTest, EndsWithWhatIsNotEmulated)
{
    const void *p = nullptr;
    EXPECT_EXIT(x_.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p), testing::ExitedWithCode(97),
                "attribute 17 is not emulated");
    x_.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU);
    EXPECT_EXIT(ask(x_), testing::ExitedWithCode(97), "epilogue 2 is not emulated");
    x_.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
    x_.set(CUBLASLT_MATMUL_DESC_POINTER_MODE, int32_t{CUBLASLT_POINTER_MODE_DEVICE});
    EXPECT_EXIT(ask(x_), testing::ExitedWithCode(97), "alpha on the device");
}

TEST_F(FakeCublasLtCallDeathTest, EndsWithADescriptorThatIsNone)
{
    x_.op.data[0] = 0;
    EXPECT_EXIT(ask(x_), testing::ExitedWithCode(97), "is not initialized, destroyed, or of another kind");
}

// ---- problems that are refused ----

struct Refusal {
    const char *name;
    cublasStatus_t want;
    std::function<void(Matmul &)> spoil;
};

void PrintTo(const Refusal &r, std::ostream *os)
{
    *os << r.name;
}

class FakeCublasLtRefusal : public FakeCublasLt, public testing::WithParamInterface<Refusal>
{
};

TEST_P(FakeCublasLtRefusal, WithTheStatusOfTheLibrary)
{
    Matmul good(32, 16, 8, CUDA_R_16BF, CUDA_R_16BF), bad = good;
    EXPECT_GT(ask(good).size(), 0u);
    GetParam().spoil(bad);
    EXPECT_EQ(ask(bad, GetParam().want).size(), 0u);
}

void set_row_major(Matmul &x)
{
    for (cublasLtMatrixLayoutOpaque_t *l : {&x.a, &x.b, &x.c, &x.d}) {
        Matmul::set(*l, CUBLASLT_MATRIX_LAYOUT_ORDER, int32_t{CUBLASLT_ORDER_ROW});
        Matmul::set(*l, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{64});
    }
}

void set_aux(Matmul &x, int64_t ld)
{
    x.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU_AUX);
    x.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, reinterpret_cast<void *>(uintptr_t{256}));
    x.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, ld);
}

const Refusal kRefusals[] = {
    {"shapes", CUBLAS_STATUS_INVALID_VALUE, [](Matmul &x) { Matmul::init(&x.b, CUDA_R_16BF, 9, 16); }},
    {"empty", CUBLAS_STATUS_INVALID_VALUE, [](Matmul &x) { x = Matmul(32, 16, 0, CUDA_R_16BF, CUDA_R_16BF); }},
    {"huge", CUBLAS_STATUS_NOT_SUPPORTED,
     [](Matmul &x) { x = Matmul(uint64_t{1} << 31, 16, 8, CUDA_R_16BF, CUDA_R_16BF); }},
    {"leading_dimension", CUBLAS_STATUS_INVALID_VALUE,
     [](Matmul &x) { Matmul::set(x.a, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{31}); }},
    {"mixed_inputs", CUBLAS_STATUS_NOT_SUPPORTED, [](Matmul &x) { Matmul::init(&x.b, CUDA_R_16F, 8, 16); }},
    {"mixed_output", CUBLAS_STATUS_NOT_SUPPORTED, [](Matmul &x) { x = Matmul(32, 16, 8, CUDA_R_16BF, CUDA_R_16F); }},
    {"narrow_output", CUBLAS_STATUS_NOT_SUPPORTED, [](Matmul &x) { x = Matmul(32, 16, 8, CUDA_R_32F, CUDA_R_16BF); }},
    {"tf32_of_bf16", CUBLAS_STATUS_NOT_SUPPORTED,
     [](Matmul &x) { x.set(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, int32_t{CUBLAS_COMPUTE_32F_FAST_TF32}); }},
    {"bf16_bias_of_fp32", CUBLAS_STATUS_INVALID_VALUE,
     [](Matmul &x) {
         x = Matmul(32, 16, 8, CUDA_R_16BF, CUDA_R_32F);
         x.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
         x.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t{CUDA_R_16BF});
     }},
    {"row_major_epilogue", CUBLAS_STATUS_NOT_SUPPORTED,
     [](Matmul &x) {
         set_row_major(x);
         x.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
     }},
    {"orders_of_c_and_d", CUBLAS_STATUS_NOT_SUPPORTED,
     [](Matmul &x) { Matmul::set(x.c, CUBLASLT_MATRIX_LAYOUT_ORDER, int32_t{CUBLASLT_ORDER_ROW}); }},
    {"aux_below_rows", CUBLAS_STATUS_INVALID_VALUE, [](Matmul &x) { set_aux(x, 24); }},
    {"aux_no_multiple_of_8", CUBLAS_STATUS_INVALID_VALUE, [](Matmul &x) { set_aux(x, 36); }},
    {"batches", CUBLAS_STATUS_INVALID_VALUE,
     [](Matmul &x) { Matmul::set(x.a, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t{2}); }},
};
INSTANTIATE_TEST_SUITE_P(, FakeCublasLtRefusal, testing::ValuesIn(kRefusals),
                         [](const auto &i) { return std::string(i.param.name); });

TEST_F(FakeCublasLt, RefusesAttributesOfTheWrongSize)
{
    Matmul x(32, 16, 8, CUDA_R_16BF, CUDA_R_16BF);
    EXPECT_EQ(x.set(CUBLASLT_MATMUL_DESC_EPILOGUE, int64_t{1}), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(Matmul::set(x.a, CUBLASLT_MATRIX_LAYOUT_LD, int32_t{32}), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(x.prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint32_t{0}), CUBLAS_STATUS_INVALID_VALUE);
}

} // namespace
