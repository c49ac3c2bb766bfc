/* Vocabulary-parallel cross-entropy: a block for a row of logits. */
#include "kernels/cuda/map.cuh"
#include "kernels/cuda/reduce.cuh"

namespace plait_cuda
{
namespace
{

constexpr int kMostThreads = 512;

unsigned threads_for(int64_t cols)
{
    const int64_t threads = ceil_div(ceil_div(cols, 16), kWarp) * kWarp; /* 16 columns a thread, or more */
    return static_cast<unsigned>(threads < kMostThreads ? threads : kMostThreads);
}

unsigned grid_of(int64_t rows, unsigned threads)
{
    return grid_for(rows, 2048 / static_cast<int>(threads));
}

/* f(logit) for this thread's part of n logits. */
template <int W, typename F> __device__ __forceinline__ void each_logit(const float *z, int64_t n, F f)
{
    const int64_t step = static_cast<int64_t>(blockDim.x) * W, vectors = n / W * W;
#pragma unroll 4
    for (int64_t c = static_cast<int64_t>(threadIdx.x) * W; c < vectors; c += step) {
        const Floats<W> x = load<W>(z + c);
#pragma unroll
        for (int j = 0; j < W; j++)
            f(x.v[j]);
    }
    if (W > 1 && threadIdx.x < n - vectors)
        f(z[vectors + threadIdx.x]);
}

template <int W> __global__ void __launch_bounds__(kMostThreads) max_kernel(const plait_cross_entropy c)
{
    float *row_max = static_cast<float *>(c.row_max);
    for (int64_t r = blockIdx.x; r < c.rows; r += gridDim.x) {
        float max = -INFINITY;
        each_logit<W>(static_cast<const float *>(c.logits) + r * c.cols, c.valid,
                      [&](float z) { max = Max::join(z, max); });
        max = block_reduce<Max>(max);
        if (threadIdx.x == 0)
            row_max[r] = c.raise ? Max::join(max, row_max[r]) : max;
    }
}

template <int W> __global__ void __launch_bounds__(kMostThreads) sum_kernel(const plait_cross_entropy c)
{
    for (int64_t r = blockIdx.x; r < c.rows; r += gridDim.x) {
        const float *z = static_cast<const float *>(c.logits) + r * c.cols;
        const float max = static_cast<const float *>(c.row_max)[r];
        float sum = 0.0f;
        each_logit<W>(z, c.valid, [&](float x) { sum += expf(x - max); });
        sum = block_reduce<Sum>(sum);
        if (threadIdx.x == 0) {
            const int64_t target = c.targets[r] - c.v0;
            const bool here = c.targets[r] >= 0 && target >= 0 && target < c.valid;
            static_cast<float *>(c.row_sum)[r] = sum;
            static_cast<float *>(c.row_target)[r] = here ? z[target] - max : 0.0f;
        }
    }
}

/* The logarithms side by side, their sum in row order by one thread. */
__global__ void __launch_bounds__(kMostThreads) loss_kernel(double *loss, const plait_cross_entropy c)
{
    __shared__ double terms[kMostThreads];
    double sum = *loss;
    for (int64_t begin = 0; begin < c.rows; begin += kMostThreads) {
        const int64_t r = begin + threadIdx.x;
        double term = 0.0;
        if (r < c.rows && c.targets[r] >= 0)
            term = log(static_cast<double>(static_cast<const float *>(c.row_sum)[r])) -
                   static_cast<double>(static_cast<const float *>(c.row_target)[r]);
        terms[threadIdx.x] = term;
        __syncthreads();
        if (threadIdx.x == 0)
#pragma unroll 8
            for (int i = 0; i < kMostThreads; i++)
                sum += terms[i];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        *loss = sum;
}

/* The gradient, as T, over the logits. A row of T begins where its logits do: what a block writes of a piece of a row
 * lies over logits of this piece or of earlier ones, never of later ones. So it has all of a piece in registers before
 * it writes any. */
constexpr int kPiece = 4; /* vectors of a thread */

template <typename T, int W>
__global__ void __launch_bounds__(kMostThreads) grad_kernel(const plait_cross_entropy c, float scale)
{
    const int64_t step = static_cast<int64_t>(blockDim.x) * W, first = static_cast<int64_t>(threadIdx.x) * W;
    for (int64_t r = blockIdx.x; r < c.rows; r += gridDim.x) {
        const float *z = static_cast<const float *>(c.logits) + r * c.cols;
        T *dz = reinterpret_cast<T *>(static_cast<float *>(c.logits) + r * c.cols);
        const bool counted = c.targets[r] >= 0;
        const int64_t valid = counted ? c.valid : 0, target = c.targets[r] - c.v0;
        const float max = static_cast<const float *>(c.row_max)[r], sum = static_cast<const float *>(c.row_sum)[r];
        const float factor = scale / sum;
        for (int64_t begin = first; begin - first < c.cols; begin += kPiece * step) {
            Floats<W> x[kPiece];
#pragma unroll
            for (int i = 0; i < kPiece; i++)
                if (begin + i * step < valid)
                    x[i] = load<W>(z + begin + i * step);
            if (sizeof(T) < sizeof(float))
                __syncthreads();
#pragma unroll
            for (int i = 0; i < kPiece; i++) {
                const int64_t k = begin + i * step;
                if (k >= c.cols)
                    break;
                Floats<W> d = {};
#pragma unroll
                for (int j = 0; j < W; j++)
                    if (k + j < valid) {
                        const float e = expf(x[i].v[j] - max);
                        /* p - 1 rounds once */
                        d.v[j] = k + j == target ? (e / sum - 1.0f) * scale : e * factor;
                    }
                store(dz + k, d);
            }
        }
    }
}

bool is_wide(const plait_cross_entropy *c)
{
    return c->cols % 4 == 0 && is_aligned<4>(static_cast<const float *>(c->logits));
}

plait_status cross_entropy_max(const plait_exec *ex, const plait_cross_entropy *c)
{
    const unsigned threads = threads_for(c->cols);
    if (c->rows <= 0 || c->cols <= 0)
        return PLAIT_OK;
    if (is_wide(c))
        PLAIT_LAUNCH((max_kernel<4>), grid_of(c->rows, threads), threads, 0, plait_cuda_stream_of(ex), *c);
    else
        PLAIT_LAUNCH((max_kernel<1>), grid_of(c->rows, threads), threads, 0, plait_cuda_stream_of(ex), *c);
    PLAIT_CUDA_LAUNCHED();
    return PLAIT_OK;
}

plait_status cross_entropy_sum(const plait_exec *ex, const plait_cross_entropy *c)
{
    const unsigned threads = threads_for(c->cols);
    if (c->rows <= 0 || c->cols <= 0)
        return PLAIT_OK;
    if (is_wide(c))
        PLAIT_LAUNCH((sum_kernel<4>), grid_of(c->rows, threads), threads, 0, plait_cuda_stream_of(ex), *c);
    else
        PLAIT_LAUNCH((sum_kernel<1>), grid_of(c->rows, threads), threads, 0, plait_cuda_stream_of(ex), *c);
    PLAIT_CUDA_LAUNCHED();
    return PLAIT_OK;
}

plait_status cross_entropy_loss(const plait_exec *ex, double *loss, const plait_cross_entropy *c)
{
    if (c->rows <= 0)
        return PLAIT_OK;
    PLAIT_LAUNCH(loss_kernel, 1, kMostThreads, 0, plait_cuda_stream_of(ex), loss, *c);
    PLAIT_CUDA_LAUNCHED();
    return PLAIT_OK;
}

template <typename T> plait_status cross_entropy_grad(const plait_exec *ex, const plait_cross_entropy *c, double scale)
{
    const unsigned threads = threads_for(c->cols);
    const float s = static_cast<float>(scale);
    if (c->rows <= 0 || c->cols <= 0)
        return PLAIT_OK;
    if (is_wide(c))
        PLAIT_LAUNCH((grad_kernel<T, 4>), grid_of(c->rows, threads), threads, 0, plait_cuda_stream_of(ex), *c, s);
    else
        PLAIT_LAUNCH((grad_kernel<T, 1>), grid_of(c->rows, threads), threads, 0, plait_cuda_stream_of(ex), *c, s);
    PLAIT_CUDA_LAUNCHED();
    return PLAIT_OK;
}

} // namespace
} // namespace plait_cuda

void plait_cuda_fill_cross_entropy(plait_kernels *k)
{
    k->cross_entropy_max = plait_cuda::cross_entropy_max;
    k->cross_entropy_sum = plait_cuda::cross_entropy_sum;
    k->cross_entropy_loss = plait_cuda::cross_entropy_loss;
    plait_cuda::with_type_of(
        k->dtype, [k](auto element) { k->cross_entropy_grad = plait_cuda::cross_entropy_grad<decltype(element)>; });
}
