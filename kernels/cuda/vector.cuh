/* kernels/cuda/vector.cuh: elements of a storage type, several at once, widened to float.
 *
 * A thread loads and stores W neighbours together: 16 bytes where pointers and extents allow (W = kWide<T>), else one
 * (W = 1). Kernels are written for any W.
 */
#ifndef PLAIT_KERNELS_CUDA_VECTOR_CUH
#define PLAIT_KERNELS_CUDA_VECTOR_CUH

#include "kernels/cuda/device.cuh"

namespace plait_cuda
{

/* Elements in 16 bytes. */
template <typename T> constexpr int kWide = 16 / static_cast<int>(sizeof(T));

/* W elements as they lie in memory. */
template <typename T, int W> struct alignas(W * sizeof(T) < 16 ? W * sizeof(T) : 16) Packed {
    T e[W];
};

template <int W> struct Floats {
    float v[W];
};

__device__ __forceinline__ float widen(float x)
{
    return x;
}
__device__ __forceinline__ float widen(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
__device__ __forceinline__ float widen(__half x)
{
    return __half2float(x);
}

/* To nearest, ties to even. */
template <typename T> __device__ __forceinline__ T narrow(float x);
template <> __device__ __forceinline__ float narrow<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ __nv_bfloat16 narrow<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}
template <> __device__ __forceinline__ __half narrow<__half>(float x)
{
    return __float2half_rn(x);
}

template <int W, typename T> __device__ __forceinline__ Packed<T, W> load_packed(const T *p)
{
    return *reinterpret_cast<const Packed<T, W> *>(p);
}

template <int W, typename T> __device__ __forceinline__ void store_packed(T *p, const Packed<T, W> &x)
{
    *reinterpret_cast<Packed<T, W> *>(p) = x;
}

template <typename T, int W> __device__ __forceinline__ Floats<W> widen(const Packed<T, W> &x)
{
    Floats<W> f;
#pragma unroll
    for (int j = 0; j < W; j++)
        f.v[j] = widen(x.e[j]);
    return f;
}

template <int W, typename T> __device__ __forceinline__ Floats<W> load(const T *p)
{
    return widen(load_packed<W>(p));
}

template <int W, typename T> __device__ __forceinline__ void store(T *p, const Floats<W> &f)
{
    Packed<T, W> x;
#pragma unroll
    for (int j = 0; j < W; j++)
        x.e[j] = narrow<T>(f.v[j]);
    store_packed<W>(p, x);
}

/* Whether W elements at a time may be moved at each of these pointers; NULL may. */
template <int W> inline bool is_aligned(void)
{
    return true;
}
template <int W, typename T, typename... More> inline bool is_aligned(const T *p, More... more)
{
    return reinterpret_cast<uintptr_t>(p) % alignof(Packed<T, W>) == 0 && is_aligned<W>(more...);
}

/* Calls f with a value of the type that stands for dtype: fp32, bf16 or fp16. */
template <typename F> inline void with_type_of(plait_dtype dtype, F f)
{
    switch (dtype) {
    case PLAIT_BF16:
        f(__nv_bfloat16());
        break;
    case PLAIT_FP16:
        f(__half());
        break;
    default:
        f(float());
    }
}

} // namespace plait_cuda
#endif
