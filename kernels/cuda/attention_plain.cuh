/* kernels/cuda/attention_plain.cuh: tiles of attention in fp32 without tensor cores, for any T, any width of heads and
 * any alignment.
 *
 * A block of 256 threads takes 64 rows of one head ("fixed") past tiles of 64 rows ("moving"). Thread (y, x) of 16 x 16
 * has the 4 x 4 scores at rows 4 y + i and columns x + 16 j, and of each 64 columns of a sum 4 x 4 at rows 4 y + i and
 * columns 4 x + j: so the loads of a warp from shared memory (16 bytes a lane, rows 16 bytes off a power of two) fall
 * into different banks or are the same for all. Columns of head_dim pass through shared memory a few at a time.
 */
#ifndef PLAIT_KERNELS_CUDA_ATTENTION_PLAIN_CUH
#define PLAIT_KERNELS_CUDA_ATTENTION_PLAIN_CUH

#include "kernels/cuda/attention_dropout.cuh"

namespace attention
{
namespace plain
{

constexpr int TILE = 64, THREADS = 256, STEP = 32;

struct pair_of_steps {
    float fixed[TILE][STEP + 4], moving[TILE][STEP + 4];
};
/* Of moving rows what enters a sum. */
struct part {
    float rows[TILE][TILE + 4];
};

struct shared_tiles {
    union {
        pair_of_steps step;
        part sum;
    } staged;
    float p[TILE][TILE + 4]; /* (fixed, moving): probabilities, or gradients of scores */
    uint32_t kept[TILE * TILE / 32];
    float lse[TILE], delta[TILE]; /* of moving queries */
};

/* Rows t0 to end - 1 of a head. */
template <typename T> struct span {
    head_rows<const T> rows;
    int t0, end;
};

__device__ __forceinline__ int thread_y()
{
    return static_cast<int>(threadIdx.x) / 16;
}

__device__ __forceinline__ int thread_x()
{
    return static_cast<int>(threadIdx.x) % 16;
}

/* to = TILE rows and COLUMNS columns from column c0 on; zero where there are none. The block together. */
template <int COLUMNS, typename T>
__device__ __forceinline__ void stage(float (*to)[COLUMNS + 4], const span<T> &from, int c0, int head_dim)
{
#pragma unroll
    for (int i = threadIdx.x; i < TILE * COLUMNS; i += THREADS) {
        const int row = i / COLUMNS, column = i % COLUMNS;
        const bool there = from.t0 + row < from.end && c0 + column < head_dim;
        to[row][column] =
            there ? widen(from.rows.at[static_cast<int64_t>(from.t0 + row) * from.rows.stride + c0 + column]) : 0.0f;
    }
}

/* sum += x y, four terms in order. */
__device__ __forceinline__ void add_products(float &sum, const float4 &x, const float4 &y)
{
    sum = fmaf(x.x, y.x, sum);
    sum = fmaf(x.y, y.y, sum);
    sum = fmaf(x.z, y.z, sum);
    sum = fmaf(x.w, y.w, sum);
}

/* s = fixed moving^T. Begins with a barrier, and what was written to `shared` before is visible after. */
template <typename T>
__device__ __forceinline__ void scores(float (&s)[4][4], shared_tiles *shared, const span<T> &fixed,
                                       const span<T> &moving, int head_dim)
{
    const int y = thread_y(), x = thread_x();
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            s[i][j] = 0.0f;
    for (int d0 = 0; d0 < head_dim; d0 += STEP) {
        __syncthreads();
        stage<STEP>(shared->staged.step.fixed, fixed, d0, head_dim);
        stage<STEP>(shared->staged.step.moving, moving, d0, head_dim);
        __syncthreads();
#pragma unroll
        for (int d = 0; d < STEP; d += 4) {
            if (d0 + d >= head_dim || fixed.t0 + 4 * y >= fixed.end)
                break;
            float4 left[4], right[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                left[i] = *reinterpret_cast<const float4 *>(&shared->staged.step.fixed[4 * y + i][d]);
                right[i] = *reinterpret_cast<const float4 *>(&shared->staged.step.moving[x + 16 * i][d]);
            }
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    add_products(s[i][j], left[i], right[j]);
        }
    }
}

/* shared->p = s. Nobody may be reading it. */
__device__ __forceinline__ void put(shared_tiles *shared, const float (&s)[4][4])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            shared->p[4 * thread_y() + i][thread_x() + 16 * j] = s[i][j];
}

/* sum += shared->p moving, of columns c0 to c0 + 64 PARTS - 1. Begins with a barrier. */
template <int PARTS, typename T>
__device__ __forceinline__ void add_moving(float (&sum)[PARTS][4][4], shared_tiles *shared, const span<T> &moving,
                                           int c0, int head_dim)
{
    const int y = thread_y(), x = thread_x();
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        if (c0 + part * TILE >= head_dim)
            break;
        __syncthreads();
        stage<TILE>(shared->staged.sum.rows, moving, c0 + part * TILE, head_dim);
        __syncthreads();
#pragma unroll 2
        for (int k = 0; k < TILE && moving.t0 + k < moving.end; k += 4) {
            float4 left[4], right[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                left[i] = *reinterpret_cast<const float4 *>(&shared->p[4 * y + i][k]);
                right[i] = *reinterpret_cast<const float4 *>(&shared->staged.sum.rows[k + i][4 * x]);
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float(&to)[4] = sum[part][i];
                add_products(to[0], left[i], make_float4(right[0].x, right[1].x, right[2].x, right[3].x));
                add_products(to[1], left[i], make_float4(right[0].y, right[1].y, right[2].y, right[3].y));
                add_products(to[2], left[i], make_float4(right[0].z, right[1].z, right[2].z, right[3].z));
                add_products(to[3], left[i], make_float4(right[0].w, right[1].w, right[2].w, right[3].w));
            }
        }
    }
}

/* Rows t0 on of `to` = T(sum factor[row]), before row `end`. */
template <int PARTS, typename T>
__device__ __forceinline__ void store_sums(const head_rows<T> &to, int t0, int end, int c0, int head_dim,
                                           const float (&sum)[PARTS][4][4], const float (&factor)[4])
{
#pragma unroll
    for (int part = 0; part < PARTS; part++)
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int row = t0 + 4 * thread_y() + i, column = c0 + part * TILE + 4 * thread_x() + j;
                if (row < end && column < head_dim)
                    to.at[row * to.stride + column] = narrow<T>(sum[part][i][j] * factor[i]);
            }
}

/* Sum, or maximum, over the 16 threads that share rows. */
__device__ __forceinline__ float row_sum(float x)
{
#pragma unroll
    for (int lanes = 8; lanes > 0; lanes /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, lanes);
    return x;
}

__device__ __forceinline__ float row_max(float x)
{
#pragma unroll
    for (int lanes = 8; lanes > 0; lanes /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lanes));
    return x;
}

} // namespace plain
} // namespace attention
#endif
