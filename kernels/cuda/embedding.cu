/* Token and position embeddings. */
#include "kernels/cuda/map.cuh"

namespace plait_cuda
{
namespace
{

/* ---- tokens ---- */

template <typename T> struct Lookup {
    T *y;
    const int32_t *tokens;
    const T *table;
    int64_t row0, rows, C;

    struct Row {
        T *y;
        const T *from; /* NULL: the token is not in this part of the table */
        template <int W> __device__ __forceinline__ void at(int64_t c) const
        {
            if (from)
                store_packed<W>(y + c, load_packed<W>(from + c));
        }
    };
    __device__ __forceinline__ Row row(int64_t r) const
    {
        const int64_t row = tokens[r] - row0;
        return {y + r * C, row >= 0 && row < rows ? table + row * C : nullptr};
    }
};

template <typename T>
plait_status embedding_fwd(const plait_exec *ex, void *y, const int32_t *tokens, const void *table, int64_t row0,
                           int64_t rows, int64_t N, int64_t C)
{
    constexpr int W = kWide<T>;
    const Lookup<T> op = {static_cast<T *>(y), tokens, static_cast<const T *>(table), row0, rows, C};
    return map_rows<W>(ex, is_aligned<W>(op.y, op.table), N, C, op);
}

/* The gradient. A token may be in many rows, whose sum has to be in their order. A block has one row of dy at a time:
 * if an earlier row has the same token, that row's block does the work; else it looks for the token in the rows that
 * follow, and adds them up. A token that comes often is soon found before, and one that does not has little to add; the
 * tokens themselves stay in cache. */

constexpr int kLookBack = 4; /* tokens that a thread looks at before the block agrees */

__device__ __forceinline__ bool is_first(const int32_t *tokens, int64_t r)
{
    const int32_t token = tokens[r];
    for (int64_t end = r; end > 0; end -= kThreads * kLookBack) {
        bool same = false;
#pragma unroll
        for (int i = 0; i < kLookBack; i++) {
            const int64_t at = end - 1 - i * kThreads - static_cast<int64_t>(threadIdx.x);
            same |= at >= 0 && tokens[at] == token;
        }
        if (__syncthreads_or(same))
            return false;
    }
    return true;
}

/* into += from, C columns; each thread has its own */
template <typename T, int W> __device__ __forceinline__ void add_row(float *into, const T *from, int64_t C)
{
#pragma unroll 1
    for (int64_t c = static_cast<int64_t>(threadIdx.x) * W; c < C; c += kThreads * W) {
        const Floats<W> d = load<W>(from + c);
#pragma unroll
        for (int j = 0; j < W; j++)
            into[c + j] += d.v[j];
    }
}

/* dtable[row] += dy[r] + the later rows of the same token, in their order */
template <typename T, int W>
__global__ void __launch_bounds__(kThreads) embedding_bwd_kernel(float *dtable, const int32_t *tokens, const T *dy,
                                                                 int64_t row0, int64_t rows, int64_t N, int64_t C)
{
    __shared__ uint32_t found[kThreads / 32];
    for (int64_t r = blockIdx.x; r < N; r += gridDim.x) {
        const int32_t token = tokens[r];
        const int64_t row = token - row0;
        if (row < 0 || row >= rows || !is_first(tokens, r))
            continue;
        float *into = dtable + row * C;
        add_row<T, W>(into, dy + r * C, C);
        for (int64_t begin = r + 1; begin < N; begin += kThreads) {
            const int64_t at = begin + threadIdx.x;
            const bool same = at < N && tokens[at] == token;
            if (!__syncthreads_or(same))
                continue;
            const uint32_t lanes = __ballot_sync(0xffffffffu, same);
            if (threadIdx.x % 32 == 0)
                found[threadIdx.x / 32] = lanes;
            __syncthreads();
            for (int warp = 0; warp < kThreads / 32; warp++)
                for (uint32_t left = found[warp]; left != 0; left &= left - 1)
                    add_row<T, W>(into, dy + (begin + warp * 32 + __ffs(static_cast<int>(left)) - 1) * C, C);
            __syncthreads();
        }
    }
}

template <typename T>
plait_status embedding_bwd(const plait_exec *ex, void *dtable, const int32_t *tokens, const void *dy_, int64_t row0,
                           int64_t rows, int64_t N, int64_t C)
{
    constexpr int W = kWide<T>;
    float *to = static_cast<float *>(dtable);
    const T *dy = static_cast<const T *>(dy_);
    if (N <= 0 || C <= 0)
        return PLAIT_OK;
    if (C % W == 0 && is_aligned<W>(dy))
        PLAIT_LAUNCH((embedding_bwd_kernel<T, W>), grid_for(N), kThreads, 0, plait_cuda_stream_of(ex), to, tokens, dy,
                     row0, rows, N, C);
    else
        PLAIT_LAUNCH((embedding_bwd_kernel<T, 1>), grid_for(N), kThreads, 0, plait_cuda_stream_of(ex), to, tokens, dy,
                     row0, rows, N, C);
    PLAIT_CUDA_LAUNCHED();
    return PLAIT_OK;
}

/* ---- positions ---- */

template <typename T> struct AddPosition {
    T *y;
    const T *pos;
    int64_t batch, C;

    struct Row {
        T *y;
        const T *pos;
        template <int W> __device__ __forceinline__ void at(int64_t c) const
        {
            Floats<W> f = load<W>(y + c);
            const Floats<W> p = load<W>(pos + c);
#pragma unroll
            for (int j = 0; j < W; j++)
                f.v[j] += p.v[j];
            store(y + c, f);
        }
    };
    __device__ __forceinline__ Row row(int64_t r) const
    {
        return {y + r * C, pos + r / batch * C};
    }
};

template <typename T>
plait_status position_fwd(const plait_exec *ex, void *y, const void *pos, int64_t seq, int64_t batch, int64_t C)
{
    constexpr int W = kWide<T>;
    const AddPosition<T> op = {static_cast<T *>(y), static_cast<const T *>(pos), batch, C};
    return map_rows<W>(ex, is_aligned<W>(op.y, op.pos), seq * batch, C, op);
}

/* A row here is a position: its samples are added up in their order. */
template <typename T> struct SumSamples {
    float *dpos;
    const T *dy;
    int64_t batch, C;

    struct Row {
        float *dpos;
        const T *dy;
        int64_t batch, C;
        template <int W> __device__ __forceinline__ void at(int64_t c) const
        {
            Floats<W> sum = {};
            for (int64_t b = 0; b < batch; b++) {
                const Floats<W> d = load<W>(dy + b * C + c);
#pragma unroll
                for (int j = 0; j < W; j++)
                    sum.v[j] += d.v[j];
            }
#pragma unroll
            for (int j = 0; j < W; j++)
                dpos[c + j] += sum.v[j];
        }
    };
    __device__ __forceinline__ Row row(int64_t t) const
    {
        return {dpos + t * C, dy + t * batch * C, batch, C};
    }
};

template <typename T>
plait_status position_bwd(const plait_exec *ex, void *dpos, const void *dy, int64_t seq, int64_t batch, int64_t C)
{
    constexpr int W = kWide<T>;
    const SumSamples<T> op = {static_cast<float *>(dpos), static_cast<const T *>(dy), batch, C};
    return map_rows<W>(ex, is_aligned<W>(op.dy), seq, C, op);
}

} // namespace
} // namespace plait_cuda

void plait_cuda_fill_embedding(plait_kernels *k)
{
    plait_cuda::with_type_of(k->dtype, [k](auto element) {
        using T = decltype(element);
        k->embedding_fwd = plait_cuda::embedding_fwd<T>;
        k->embedding_bwd = plait_cuda::embedding_bwd<T>;
        k->position_fwd = plait_cuda::position_fwd<T>;
        k->position_bwd = plait_cuda::position_bwd<T>;
    });
}
