/* Matrix products for what cuBLASLt does not take: k 0, matrices it finds no algorithm for. Right for everything, fast
 * for nothing: fp32 arithmetic, no tensor cores. */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/gemm_small.h"
#include "kernels/cuda/vector.cuh"

namespace
{

using plait_cuda::narrow;
using plait_cuda::widen;

/* A block has a TILE x TILE tile of C, a thread every THREADS-th row and column of it: PART x PART elements. */
constexpr int TILE = 64, DEPTH = 16, THREADS = 16, PART = TILE / THREADS;
constexpr int BLOCK = THREADS * THREADS;
/* Leaves the columns of a transposing store in different banks. */
constexpr int PITCH = TILE + 1;

/* A tile of op(A) or op(B), element (i, l) at p + i * row + l * col. */
template <typename T> struct operand {
    const T *p;
    int64_t row, col, rows;
};

template <typename T, typename C> struct product {
    operand<T> a, b; /* b: the columns of op(B) are its rows */
    int64_t k;
    C *c;
    int64_t ldc;
    bool accumulate;
    const T *bias;
};

/* to[l][i] = rows i0 + i and depths l0 + l of `from`, 0 beyond its ends. Neighbouring threads read neighbouring
 * elements. */
template <typename T>
__device__ void load_tile(float (*to)[PITCH], const operand<T> &from, int64_t k, int64_t i0, int64_t l0)
{
    const bool along_k = from.col == 1;
    for (int e = static_cast<int>(threadIdx.x); e < TILE * DEPTH; e += BLOCK) {
        const int i = along_k ? e / DEPTH : e % TILE, l = along_k ? e % DEPTH : e / TILE;
        float x = 0.0f;
        if (i0 + i < from.rows && l0 + l < k)
            x = widen(from.p[(i0 + i) * from.row + (l0 + l) * from.col]);
        to[l][i] = x;
    }
}

/* C[i,j] = sum_l op(A)[i,l] op(B)[l,j] + bias[j] + beta C[i,j], l ascending. */
template <typename T, typename C>
__device__ void store_part(const product<T, C> &p, const float (&sum)[PART][PART], int64_t i0, int64_t j0)
{
    for (int r = 0; r < PART; r++) {
        const int64_t i = i0 + static_cast<int64_t>(threadIdx.x) / THREADS + r * THREADS;
        if (i >= p.a.rows)
            return;
        for (int s = 0; s < PART; s++) {
            const int64_t j = j0 + static_cast<int64_t>(threadIdx.x) % THREADS + s * THREADS;
            if (j >= p.b.rows)
                break;
            C *c = p.c + i * p.ldc + j;
            float x = sum[r][s];
            if (p.bias)
                x += widen(p.bias[j]);
            if (p.accumulate)
                x += widen(*c);
            *c = narrow<C>(x);
        }
    }
}

template <typename T, typename C> __global__ void small_gemm(product<T, C> p)
{
    __shared__ float a[DEPTH][PITCH], b[DEPTH][PITCH];
    const int row = static_cast<int>(threadIdx.x) / THREADS, col = static_cast<int>(threadIdx.x) % THREADS;
    const int64_t j0 = static_cast<int64_t>(blockIdx.x) * TILE;
    for (int64_t i0 = static_cast<int64_t>(blockIdx.y) * TILE; i0 < p.a.rows;
         i0 += static_cast<int64_t>(gridDim.y) * TILE) {
        float sum[PART][PART] = {};
        for (int64_t l0 = 0; l0 < p.k; l0 += DEPTH) {
            __syncthreads(); /* the tiles before are read */
            load_tile(a, p.a, p.k, i0, l0);
            load_tile(b, p.b, p.k, j0, l0);
            __syncthreads();
            for (int l = 0; l < DEPTH; l++)
                for (int r = 0; r < PART; r++)
                    for (int s = 0; s < PART; s++)
                        sum[r][s] += a[l][row + r * THREADS] * b[l][col + s * THREADS];
        }
        store_part(p, sum, i0, j0);
    }
}

template <typename T>
__global__ void bias_rows(float *c, int64_t ldc, const T *bias, int64_t m, int64_t n, bool accumulate)
{
    const int64_t j = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (j >= n)
        return;
    const float x = widen(bias[j]);
    for (int64_t i = blockIdx.y; i < m; i += gridDim.y)
        c[i * ldc + j] = accumulate ? c[i * ldc + j] + x : x;
}

/* Blocks along columns in x, which has 31 bits, along rows in y, where a block takes every so many. */
plait_status grid_of(dim3 *grid, int64_t m, int64_t n, int64_t rows, int64_t cols)
{
    const int64_t x = (n + cols - 1) / cols, y = (m + rows - 1) / rows;
    if (x > INT32_MAX)
        PLAIT_FAIL(UNSUPPORTED, "a product of %lld columns is wider than a grid of CUDA", static_cast<long long>(n));
    *grid = dim3(static_cast<unsigned>(x), static_cast<unsigned>(y < 65535 ? y : 65535));
    return PLAIT_OK;
}

template <typename T, typename C> plait_status run(const plait_exec *ex, const plait_gemm *g)
{
    product<T, C> p;
    p.a = {static_cast<const T *>(g->a), g->trans_a ? 1 : g->lda, g->trans_a ? g->lda : 1, g->m};
    p.b = {static_cast<const T *>(g->b), g->trans_b ? g->ldb : 1, g->trans_b ? 1 : g->ldb, g->n};
    p.k = g->k;
    p.c = static_cast<C *>(g->c);
    p.ldc = g->ldc;
    p.accumulate = g->accumulate;
    p.bias = static_cast<const T *>(g->bias);
    dim3 grid;
    PLAIT_TRY(grid_of(&grid, g->m, g->n, TILE, TILE));
    PLAIT_LAUNCH((small_gemm<T, C>), grid, BLOCK, 0, plait_cuda_stream_of(ex), p);
    PLAIT_CUDA_LAUNCHED();
    return PLAIT_OK;
}

template <typename T> plait_status run_bias(const plait_exec *ex, const plait_gemm *g)
{
    dim3 grid;
    PLAIT_TRY(grid_of(&grid, g->m, g->n, 1, BLOCK));
    PLAIT_LAUNCH((bias_rows<T>), grid, BLOCK, 0, plait_cuda_stream_of(ex), static_cast<float *>(g->c), g->ldc,
                 static_cast<const T *>(g->bias), g->m, g->n, g->accumulate);
    PLAIT_CUDA_LAUNCHED();
    return PLAIT_OK;
}

} // namespace

plait_status plait_cuda_small_gemm(const plait_exec *ex, plait_dtype dtype, const plait_gemm *g)
{
    if (dtype == PLAIT_FP32)
        return run<float, float>(ex, g);
    if (dtype == PLAIT_BF16)
        return g->c_acc ? run<__nv_bfloat16, float>(ex, g) : run<__nv_bfloat16, __nv_bfloat16>(ex, g);
    return g->c_acc ? run<__half, float>(ex, g) : run<__half, __half>(ex, g);
}

plait_status plait_cuda_bias_rows(const plait_exec *ex, plait_dtype dtype, const plait_gemm *g)
{
    if (dtype == PLAIT_FP32)
        return run_bias<float>(ex, g);
    return dtype == PLAIT_BF16 ? run_bias<__nv_bfloat16>(ex, g) : run_bias<__half>(ex, g);
}
