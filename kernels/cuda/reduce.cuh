/* kernels/cuda/reduce.cuh: one value out of those of a warp or of a block, the same bits in every thread.
 *
 * The order is that of the lanes, so equal inputs give equal bits in every run. Blocks are whole warps in one
 * dimension.
 */
#ifndef PLAIT_KERNELS_CUDA_REDUCE_CUH
#define PLAIT_KERNELS_CUDA_REDUCE_CUH

#include "kernels/cuda/device.cuh"

namespace plait_cuda
{

constexpr int kWarp = 32;

/* Each operation: its neutral element, and two values made one. */
struct Sum {
    static __device__ __forceinline__ float none(float) { return 0.0f; }
    static __device__ __forceinline__ double none(double) { return 0.0; }
    static __device__ __forceinline__ float2 none(float2) { return make_float2(0.0f, 0.0f); }
    static __device__ __forceinline__ float join(float a, float b) { return a + b; }
    static __device__ __forceinline__ double join(double a, double b) { return a + b; }
    static __device__ __forceinline__ float2 join(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }
};

/* A NaN stays, so that the loss shows it (fmaxf would drop it). */
struct Max {
    static __device__ __forceinline__ float none(float) { return -INFINITY; }
    static __device__ __forceinline__ float join(float a, float b) { return a > b || a != a ? a : b; }
};

template <typename V> __device__ __forceinline__ V from_lane_xor(V v, int mask)
{
    return __shfl_xor_sync(0xffffffffu, v, mask);
}
__device__ __forceinline__ float2 from_lane_xor(float2 v, int mask)
{
    return make_float2(from_lane_xor(v.x, mask), from_lane_xor(v.y, mask));
}

template <typename Op, typename V> __device__ __forceinline__ V warp_reduce(V v)
{
#pragma unroll
    for (int half = kWarp / 2; half > 0; half /= 2)
        v = Op::join(v, from_lane_xor(v, half));
    return v;
}

/* Every thread of the block calls it. */
template <typename Op, typename V> __device__ __forceinline__ V block_reduce(V v)
{
    __shared__ V parts[kWarp];
    const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
    v = warp_reduce<Op>(v);
    if (warps == 1)
        return v;
    __syncthreads(); /* the parts of the call before have been read */
    if (lane == 0)
        parts[warp] = v;
    __syncthreads();
    return warp_reduce<Op>(lane < warps ? parts[lane] : Op::none(v));
}

} // namespace plait_cuda
#endif
