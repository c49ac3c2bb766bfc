/* kernels/cuda/map.cuh: an operation on every element, W of them at a time.
 *
 * map_flat   an array:  op.at<W>(i) for the elements i to i + W - 1
 * map_rows   a matrix:  op.row(r).at<W>(c) for the columns c to c + W - 1 of row r
 *
 * A grid fills the device once and strides over the rest. All of a thread's loads come before its stores, and with all
 * threads of a multiprocessor a load of 16 bytes each is enough under way.
 */
#ifndef PLAIT_KERNELS_CUDA_MAP_CUH
#define PLAIT_KERNELS_CUDA_MAP_CUH

#include "kernels/cuda/vector.cuh"

namespace plait_cuda
{

/* Threads of a block, and blocks that a multiprocessor has at once (2048 threads). */
constexpr int kThreads = 256;
constexpr int kResident = 8;

__host__ __device__ constexpr int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Blocks for `pieces` of work, one a block or several. */
inline unsigned grid_for(int64_t pieces, int resident = kResident)
{
    const int64_t most = static_cast<int64_t>(plait_cuda_device_of()->sms) * resident;
    return static_cast<unsigned>(pieces < most ? pieces : most);
}

template <int W, typename Op> __global__ void __launch_bounds__(kThreads) flat_kernel(const Op op, int64_t n)
{
    const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads, vectors = n / W;
    for (int64_t i = first; i < vectors; i += stride)
        op.template at<W>(i * W);
    if (W > 1 && first < n - vectors * W)
        op.template at<1>(vectors * W + first);
}

/* `wide`: every pointer of op allows W elements at a time. */
template <int W, typename Op> plait_status map_flat(const plait_exec *ex, bool wide, int64_t n, const Op &op)
{
    if (n <= 0)
        return PLAIT_OK;
    if (wide)
        PLAIT_LAUNCH((flat_kernel<W, Op>), grid_for(ceil_div(n, kThreads * W)), kThreads, 0, plait_cuda_stream_of(ex),
                     op, n);
    else
        PLAIT_LAUNCH((flat_kernel<1, Op>), grid_for(ceil_div(n, kThreads)), kThreads, 0, plait_cuda_stream_of(ex), op,
                     n);
    PLAIT_CUDA_LAUNCHED();
    return PLAIT_OK;
}

/* A block has kThreads threads, x for the columns and y for the rows. */
template <int W, typename Op>
__global__ void __launch_bounds__(kThreads) rows_kernel(const Op op, int64_t rows, int64_t cols)
{
    const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.y;
    for (int64_t r = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; r < rows; r += stride) {
        const auto row = op.row(r);
        for (int64_t c = static_cast<int64_t>(threadIdx.x) * W; c < cols; c += static_cast<int64_t>(blockDim.x) * W)
            row.template at<W>(c);
    }
}

template <int W, typename Op> plait_status launch_rows(const plait_exec *ex, int64_t rows, int64_t cols, const Op &op)
{
    const int64_t vectors = cols / W;
    unsigned x = 1;
    while (x < kThreads && x < vectors)
        x *= 2;
    const dim3 block(x, kThreads / x);
    PLAIT_LAUNCH((rows_kernel<W, Op>), grid_for(ceil_div(rows, block.y)), block, 0, plait_cuda_stream_of(ex), op, rows,
                 cols);
    PLAIT_CUDA_LAUNCHED();
    return PLAIT_OK;
}

/* `wide`: every pointer of op, and every row of it, allows W elements at a time. */
template <int W, typename Op>
plait_status map_rows(const plait_exec *ex, bool wide, int64_t rows, int64_t cols, const Op &op)
{
    if (rows <= 0 || cols <= 0)
        return PLAIT_OK;
    return wide && cols % W == 0 ? launch_rows<W>(ex, rows, cols, op) : launch_rows<1>(ex, rows, cols, op);
}

} // namespace plait_cuda
#endif
