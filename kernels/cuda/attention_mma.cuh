/* kernels/cuda/attention_mma.cuh: tiles of attention on tensor cores, for T = bf16 and fp16.
 *
 * A tile is rows of one head in shared memory, DP columns of T: head_dim filled up with zeros to one of a few widths,
 * so that every loop over columns is unrolled. Rows are 16 bytes apart from a power of two, which lets the eight rows
 * of an ldmatrix fall into different banks. Each of the four warps owns 16 MT rows of a block's fixed tile and, in
 * registers, the scores and sums of these rows; what it computes goes from accumulators straight to the operand of the
 * next product (both have the same layout, plait_mma), rounded to T on the way.
 *
 * Lane l of a warp has, with g = l / 4 and t = l % 4, in x[m][n][e] the element at row 16 m + g + 8 (e / 2) and column
 * 8 n + 2 t + e % 2.
 */
#ifndef PLAIT_KERNELS_CUDA_ATTENTION_MMA_CUH
#define PLAIT_KERNELS_CUDA_ATTENTION_MMA_CUH

#include <cstring>
#include <type_traits>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/ptx.cuh"

namespace attention
{

constexpr int WARPS = 4, THREADS = 32 * WARPS;
constexpr int CHUNK = 8; /* elements of 16 bytes */
constexpr int MAX_COLUMNS = 256;

/* Elements from one row of a tile to the next. */
template <int DP> constexpr int LD = DP + CHUNK;

__device__ __forceinline__ int lane_of_thread()
{
    return static_cast<int>(threadIdx.x) % 32;
}

__device__ __forceinline__ int warp_of_thread()
{
    return static_cast<int>(threadIdx.x) / 32;
}

/* What becomes an operand in fp16 would lose its small numbers (below 2^-14 bits go, below 2^-25 all): probabilities
 * are 2^LIFT times as large until the end, and other rows get a power of two each (lift_rows). */
template <typename T> constexpr int LIFT = std::is_same_v<T, __half> ? 13 : 0;

/* f(m, n, e, row, column) for each element that this thread has of 16 MT rows and 8 NT columns. */
template <int MT, int NT, typename F> __device__ __forceinline__ void for_each(F f)
{
    const int lane = lane_of_thread();
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                f(m, n, e, 16 * m + e / 2 * 8 + lane / 4, 8 * n + lane % 4 * 2 + e % 2);
}

/* Two numbers as T; the first one in the lower half. */
__device__ __forceinline__ uint32_t pack(float x, float y, __nv_bfloat16)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}
__device__ __forceinline__ uint32_t pack(float x, float y, __half)
{
    const __half2 pair = __floats2half2_rn(x, y);
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

/* Begins to load rows t0 to t0 + ROWS - 1 of `from` into a tile; rows from `end` on and columns from head_dim on become
 * zero. The block together. What is loaded is there after a commit, a wait and a barrier. */
template <int ROWS, int DP, typename T>
__device__ __forceinline__ void load_tile(T *tile, const head_rows<const T> &from, int t0, int end, int head_dim)
{
    constexpr int CHUNKS = DP / CHUNK, STEP = THREADS / CHUNKS; /* of a row; rows at a time */
    const int column = static_cast<int>(threadIdx.x) % CHUNKS * CHUNK;
    const int rows = column < head_dim ? smaller(end - t0, ROWS) : 0;
    int row = static_cast<int>(threadIdx.x) / CHUNKS;
    const T *source = from.at + static_cast<int64_t>(t0 + row) * from.stride + column;
    T *to = tile + row * LD<DP> + column;
    if (row >= STEP)
        return; /* more threads than whole rows */
    for (; row < ROWS; row += STEP, source += STEP * from.stride, to += STEP * LD<DP>) {
        if (from.wide) {
            plait_cp_async_16(to, row < rows ? source : from.at, row < rows ? 16 : 0);
        } else {
#pragma unroll
            for (int e = 0; e < CHUNK; e++)
                to[e] = row < rows && column + e < head_dim ? source[e] : narrow<T>(0.0f);
        }
    }
}

/* s = a b^T. a: 16 MT rows, of this warp; b: 8 NT rows. */
template <int DP, int MT, int NT, typename T>
__device__ __forceinline__ void multiply_transposed(float (&s)[MT][NT][4], const T *a, const T *b)
{
    const int lane = lane_of_thread();
    a += lane % 16 * LD<DP> + lane / 16 * 8;
    b += (lane % 8 + lane / 16 * 8) * LD<DP> + lane / 8 % 2 * 8;
    for_each<MT, NT>([&](int m, int n, int e, int, int) { s[m][n][e] = 0.0f; });
#pragma unroll
    for (int d = 0; d < DP; d += 16) {
        uint32_t left[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++)
            plait_ldmatrix_x4(left[m], a + m * 16 * LD<DP> + d);
#pragma unroll
        for (int n = 0; n < NT; n += 2) {
            uint32_t right[4];
            plait_ldmatrix_x4(right, b + n * 8 * LD<DP> + d);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                plait_mma(s[m][n], left[m], right, T());
                plait_mma(s[m][n + 1], left[m], right + 2, T());
            }
        }
    }
}

/* sum += T(p) b. p: (16 MT, 8 NT) as multiply_transposed leaves it; b: 8 NT rows. */
template <int DP, int MT, int NT, typename T>
__device__ __forceinline__ void multiply_add(float (&sum)[MT][DP / 8][4], const float (&p)[MT][NT][4], const T *b)
{
    const int lane = lane_of_thread();
    b += lane % 16 * LD<DP> + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < NT; k += 2) {
        uint32_t left[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++) {
            left[m][0] = pack(p[m][k][0], p[m][k][1], T());
            left[m][1] = pack(p[m][k][2], p[m][k][3], T());
            left[m][2] = pack(p[m][k + 1][0], p[m][k + 1][1], T());
            left[m][3] = pack(p[m][k + 1][2], p[m][k + 1][3], T());
        }
#pragma unroll
        for (int n = 0; n < DP / 8; n += 2) {
            uint32_t right[4];
            plait_ldmatrix_x4_trans(right, b + k * 8 * LD<DP> + n * 8);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                plait_mma(sum[m][n], left[m], right, T());
                plait_mma(sum[m][n + 1], left[m], right + 2, T());
            }
        }
    }
}

/* To be called before sum += T(x) b. unit: a power of two for each row that x is multiplied with, such that fp16 holds
 * it; it only falls, and sum, which has unit already, with it. At the end sum is to be divided by unit. A row of zeros
 * has MOST_UNIT. */
constexpr float MOST_UNIT = 0x1p100f;

template <int DP, int MT, int NT>
__device__ __forceinline__ void lift_rows(float (&sum)[MT][DP / 8][4], float (&x)[MT][NT][4], float (&unit)[MT][2])
{
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float top = 0.0f;
#pragma unroll
            for (int n = 0; n < NT; n++)
                top = fmaxf(top, fmaxf(fabsf(x[m][n][2 * half]), fabsf(x[m][n][2 * half + 1])));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
            /* 2^(LIFT - e) for top in [2^e, 2^(e + 1)) */
            const uint32_t exponent = __float_as_uint(fmaxf(top, 0x1p-80f)) >> 23;
            const float fitting = __uint_as_float((254 + LIFT<__half> - exponent) << 23);
            if (fitting < unit[m][half]) {
                const float fall = fitting / unit[m][half];
                unit[m][half] = fitting;
#pragma unroll
                for (int n = 0; n < DP / 8; n++) {
                    sum[m][n][2 * half] *= fall;
                    sum[m][n][2 * half + 1] *= fall;
                }
            }
#pragma unroll
            for (int n = 0; n < NT; n++) {
                x[m][n][2 * half] *= unit[m][half];
                x[m][n][2 * half + 1] *= unit[m][half];
            }
        }
}

/* Rows t0 to min(t0 + 16 MT, end) - 1 of `to` = T(x factor), with a factor for each half (e / 2) of each m. `room`: 16
 * MT rows of a tile that nobody but this warp uses any more. The warp together. */
template <int DP, int MT, typename T>
__device__ __forceinline__ void store_rows(const head_rows<T> &to, int t0, int end, int head_dim, T *room,
                                           const float (&x)[MT][DP / 8][4], const float (&factor)[MT][2])
{
    constexpr int CHUNKS = DP / CHUNK;
    const int lane = lane_of_thread(), rows = smaller(end - t0, 16 * MT);
    __syncwarp();
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < DP / 8; n++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float f = factor[m][half];
                const uint32_t pair = pack(x[m][n][2 * half] * f, x[m][n][2 * half + 1] * f, T());
                T *at = room + (m * 16 + half * 8 + lane / 4) * LD<DP> + n * 8 + lane % 4 * 2;
                *reinterpret_cast<uint32_t *>(at) = pair;
            }
    __syncwarp();
    T *first = to.at + static_cast<int64_t>(t0) * to.stride;
    for (int i = lane; i < 16 * MT * CHUNKS; i += 32) {
        const int row = i / CHUNKS, column = i % CHUNKS * CHUNK;
        const T *from = room + row * LD<DP> + column;
        if (row >= rows || column >= head_dim)
            continue;
        if (to.wide) {
            *reinterpret_cast<uint4 *>(first + row * to.stride + column) = *reinterpret_cast<const uint4 *>(from);
        } else {
#pragma unroll
            for (int e = 0; e < CHUNK; e++)
                if (column + e < head_dim)
                    first[row * to.stride + column + e] = from[e];
        }
    }
}

} // namespace attention
#endif
