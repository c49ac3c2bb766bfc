/* kernels/cuda/colsum.cuh: sums over rows (dw, db), in an order that only the shapes and the scratch decide.
 *
 * The rows are cut into parts. Each part's sums go to a row of partial sums in scratch; then the partial sums are added
 * to the result, in a fixed order. Where scratch has no place for two parts there is one, and it adds to the result.
 */
#ifndef PLAIT_KERNELS_CUDA_COLSUM_CUH
#define PLAIT_KERNELS_CUDA_COLSUM_CUH

#include "kernels/cuda/map.cuh"
#include "kernels/cuda/reduce.cuh"

namespace plait_cuda
{

/* Parts, at most `wanted`, whose partial sums of `columns` columns have a place in scratch. */
inline int64_t parts_in_scratch(const plait_exec *ex, int64_t wanted, int64_t columns)
{
    const int64_t fit = static_cast<int64_t>(ex->scratch_bytes / sizeof(float)) / (columns > 0 ? columns : 1);
    const int64_t parts = wanted < fit ? wanted : fit;
    return parts < 2 ? 1 : parts;
}

/* out[c] = sum_r source(r, c), or += with `add`, over the rows of part blockIdx.y; its sums are row blockIdx.y of out.
 * A warp has 32 W neighbouring columns, each of the ROWS warps of a block every ROWS-th row.
 * source.at<W>(r, c) gives W columns as floats; it is called once for each place. */
template <int W, int ROWS, typename Source>
__global__ void __launch_bounds__(kWarp *ROWS)
    column_sums_kernel(float *out, bool add, const Source source, int64_t N, int64_t C, int64_t part_rows)
{
    __shared__ float sums[ROWS][kWarp * W];
    const int64_t c = (static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x) * W;
    const int64_t begin = blockIdx.y * part_rows, end = begin + part_rows < N ? begin + part_rows : N;
    Floats<W> sum = {};
    if (c < C) {
#pragma unroll 4
        for (int64_t r = begin + threadIdx.y; r < end; r += ROWS) {
            const Floats<W> x = source.template at<W>(r, c);
#pragma unroll
            for (int j = 0; j < W; j++)
                sum.v[j] += x.v[j];
        }
    }
#pragma unroll
    for (int j = 0; j < W; j++)
        sums[threadIdx.y][j * kWarp + threadIdx.x] = sum.v[j];
    __syncthreads();
    out += blockIdx.y * C;
    for (int i = threadIdx.y; i < W; i += ROWS) { /* one warp for each of a vector's columns */
        float total = 0.0f;
#pragma unroll
        for (int row = 0; row < ROWS; row++)
            total += sums[row][i * kWarp + threadIdx.x];
        if (c + i < C)
            out[c + i] = add ? out[c + i] + total : total;
    }
}

/* Rows of partial sums. */
struct Partial {
    const float *p;
    int64_t ld;
    template <int W> __device__ __forceinline__ Floats<W> at(int64_t r, int64_t c) const
    {
        return load<W>(p + r * ld + c);
    }
};

/* result[c] += sum of `parts` rows of C partial sums, one every ld. */
inline plait_status add_parts(const plait_exec *ex, float *result, const float *partial, int64_t ld, int64_t parts,
                              int64_t C)
{
    constexpr int rows = 32;
    const Partial source = {partial, ld};
    PLAIT_LAUNCH((column_sums_kernel<1, rows, Partial>), static_cast<unsigned>(ceil_div(C, kWarp)), dim3(kWarp, rows),
                 0, plait_cuda_stream_of(ex), result, true, source, parts, C, parts);
    PLAIT_CUDA_LAUNCHED();
    return PLAIT_OK;
}

/* result[c] += sum_r source(r, c) over N rows. */
template <int W, typename Source>
plait_status column_sums(const plait_exec *ex, float *result, const Source &source, int64_t N, int64_t C)
{
    constexpr int rows = kThreads / kWarp;
    constexpr int64_t blocks = 1024, least_rows = 64; /* a full device; few partial sums beside what is read */
    const int64_t stripes = ceil_div(C, kWarp * W), wanted = blocks / stripes;
    int64_t parts = ceil_div(N, least_rows);
    parts = parts_in_scratch(ex, wanted < parts ? wanted : parts, C);
    const int64_t part_rows = ceil_div(N, parts);
    parts = ceil_div(N, part_rows);
    float *out = parts > 1 ? static_cast<float *>(ex->scratch) : result;
    PLAIT_LAUNCH((column_sums_kernel<W, rows, Source>),
                 dim3(static_cast<unsigned>(stripes), static_cast<unsigned>(parts)), dim3(kWarp, rows), 0,
                 plait_cuda_stream_of(ex), out, parts == 1, source, N, C, part_rows);
    PLAIT_CUDA_LAUNCHED();
    return parts > 1 ? add_parts(ex, result, out, C, parts, C) : PLAIT_OK;
}

} // namespace plait_cuda
#endif
