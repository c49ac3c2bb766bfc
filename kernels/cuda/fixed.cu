/* Sums in fixed point (core/fixed.h): integers, so that no order matters. */
#include "kernels/cuda/map.cuh"

namespace plait_cuda
{
namespace
{

constexpr int W = 2; /* int64 */

struct Add {
    int64_t *sum;
    const float *x;
    double scale, limit;
    int32_t *overflow;

    template <int N> __device__ __forceinline__ void at(int64_t i) const
    {
        Packed<int64_t, N> s = load_packed<N>(sum + i);
        const Floats<N> f = load<N>(x + i);
        bool fits = true;
#pragma unroll
        for (int j = 0; j < N; j++) {
            int64_t term;
            fits &= plait_fixed_from(static_cast<double>(f.v[j]) * scale, limit, &term);
            s.e[j] += term;
        }
        store_packed<N>(sum + i, s);
        if (!fits)
            atomicExch(overflow, 1);
    }
};

plait_status fixed_add(const plait_exec *ex, int64_t *sum, const void *x, double scale, double limit, int64_t n,
                       int32_t *overflow)
{
    const Add op = {sum, static_cast<const float *>(x), scale, limit, overflow};
    return map_flat<W>(ex, is_aligned<W>(op.sum, op.x), n, op);
}

struct Read {
    float *y;
    const int64_t *sum;

    template <int N> __device__ __forceinline__ void at(int64_t i) const
    {
        const Packed<int64_t, N> s = load_packed<N>(sum + i);
        Floats<N> f;
#pragma unroll
        for (int j = 0; j < N; j++)
            f.v[j] = plait_fixed_to_float(s.e[j]);
        store(y + i, f);
    }
};

plait_status fixed_read(const plait_exec *ex, void *y, const int64_t *sum, int64_t n)
{
    const Read op = {static_cast<float *>(y), sum};
    return map_flat<W>(ex, is_aligned<W>(op.y, op.sum), n, op);
}

/* ---- squares: a sum of 128 bits for each of some parts of the array, then the sum of these ---- */

constexpr int64_t kPart = 16384, kMostParts = 1024;

/* A sum that has become too large stays marked: a term is below 2^110, so a sum that fits does not wrap with the next.
 */
struct Squares {
    plait_fixed_squares sum;
    bool fits;

    __device__ __forceinline__ void add(plait_fixed_squares term)
    {
        sum += term;
        fits = fits && plait_fixed_squares_fit(sum);
    }
};

/* out[blockIdx.x] = the block's sum, or += */
__device__ __forceinline__ void finish(Squares mine, plait_fixed_squares *out, bool add, int32_t *overflow)
{
    __shared__ plait_fixed_squares sums[kThreads];
    sums[threadIdx.x] = mine.sum;
    for (int half = kThreads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < static_cast<unsigned>(half)) {
            mine.add(sums[threadIdx.x + half]);
            sums[threadIdx.x] = mine.sum;
        }
    }
    if (threadIdx.x == 0) {
        if (add)
            mine.add(out[blockIdx.x]);
        out[blockIdx.x] = mine.sum;
    }
    if (!mine.fits)
        atomicExch(overflow, 1);
}

__global__ void __launch_bounds__(kThreads)
    squares_kernel(plait_fixed_squares *out, bool add, const float *x, int64_t n, int64_t part, int32_t *overflow)
{
    const int64_t begin = blockIdx.x * part, end = begin + part < n ? begin + part : n;
    Squares mine = {0, true};
#pragma unroll 4
    for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
        const double scaled = fabs(static_cast<double>(x[i])) * PLAIT_FIXED_ONE;
        const bool small = scaled < static_cast<double>(PLAIT_FIXED_MOST_SQUARED);
        const uint64_t k = small ? static_cast<uint64_t>(scaled) : 0;
        mine.add(static_cast<plait_fixed_squares>(k) * k);
        mine.fits = mine.fits && small;
    }
    finish(mine, out, add, overflow);
}

__global__ void __launch_bounds__(kThreads)
    sum_parts_kernel(plait_fixed_squares *total, const plait_fixed_squares *part, int64_t parts, int32_t *overflow)
{
    Squares mine = {0, true};
    for (int64_t i = threadIdx.x; i < parts; i += kThreads)
        mine.add(part[i]);
    finish(mine, total, true, overflow);
}

plait_status fixed_squares(const plait_exec *ex, plait_fixed_squares *total, const void *x, int64_t n,
                           int32_t *overflow)
{
    const int64_t fit = static_cast<int64_t>(ex->scratch_bytes / sizeof(plait_fixed_squares));
    int64_t parts = ceil_div(n, kPart);
    if (n <= 0)
        return PLAIT_OK;
    parts = parts < kMostParts ? parts : kMostParts;
    parts = parts < fit ? parts : fit < 1 ? 1 : fit;
    const int64_t part = ceil_div(n, parts);
    parts = ceil_div(n, part);
    plait_fixed_squares *out = parts > 1 ? static_cast<plait_fixed_squares *>(ex->scratch) : total;
    PLAIT_LAUNCH(squares_kernel, static_cast<unsigned>(parts), kThreads, 0, plait_cuda_stream_of(ex), out, parts == 1,
                 static_cast<const float *>(x), n, part, overflow);
    PLAIT_CUDA_LAUNCHED();
    if (parts > 1)
        PLAIT_LAUNCH(sum_parts_kernel, 1, kThreads, 0, plait_cuda_stream_of(ex), total, out, parts, overflow);
    PLAIT_CUDA_LAUNCHED();
    return PLAIT_OK;
}

} // namespace
} // namespace plait_cuda

void plait_cuda_fill_fixed(plait_kernels *k)
{
    k->fixed_add = plait_cuda::fixed_add;
    k->fixed_read = plait_cuda::fixed_read;
    k->fixed_squares = plait_cuda::fixed_squares;
}
