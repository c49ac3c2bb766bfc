/* Conversions, sums of communication buffers, plain memory, and the hash of a matrix. */
#include <stdlib.h>
#include <string.h>
#include <type_traits>
#include <xxhash.h>

#include "kernels/cuda/map.cuh"

namespace plait_cuda
{
namespace
{

/* ---- cast: bit for bit as core/dtype.h. The processor's conversions round as that does, but make one NaN of all. ----
 */

template <typename To, typename From> __device__ __forceinline__ To bits_as(From x)
{
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To y;
    memcpy(&y, &x, sizeof y);
    return y;
}

__device__ __forceinline__ float to_float(float x)
{
    return x;
}
__device__ __forceinline__ float to_float(__nv_bfloat16 x)
{
    const uint32_t bits = static_cast<uint32_t>(bits_as<uint16_t>(x)) << 16;
    return bits_as<float>((bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x00400000u : bits);
}
__device__ __forceinline__ float to_float(__half x)
{
    const uint32_t bits = bits_as<uint16_t>(x);
    const uint32_t nan = (bits & 0x8000u) << 16 | 0x7fc00000u | (bits & 0x3ffu) << 13;
    return (bits & 0x7fffu) > 0x7c00u ? bits_as<float>(nan) : __half2float(x);
}
__device__ __forceinline__ float to_float(double x)
{
    const uint64_t bits = bits_as<uint64_t>(x);
    const uint32_t sign = static_cast<uint32_t>(bits >> 32) & 0x80000000u;
    const uint32_t nan = sign | 0x7fc00000u | (static_cast<uint32_t>(bits >> 29) & 0x003fffffu);
    return x != x ? bits_as<float>(nan) : static_cast<float>(x);
}

template <typename To> __device__ __forceinline__ To from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x)
{
    const uint32_t bits = bits_as<uint32_t>(x);
    return x != x ? bits_as<__nv_bfloat16>(static_cast<uint16_t>(bits >> 16 | 0x0040u)) : __float2bfloat16_rn(x);
}
template <> __device__ __forceinline__ __half from_float<__half>(float x)
{
    const uint32_t bits = bits_as<uint32_t>(x);
    const uint32_t nan = (bits >> 16 & 0x8000u) | 0x7e00u | (bits >> 13 & 0x3ffu);
    return x != x ? bits_as<__half>(static_cast<uint16_t>(nan)) : __float2half_rn(x);
}
template <> __device__ __forceinline__ double from_float<double>(float x)
{
    const uint64_t bits = bits_as<uint32_t>(x);
    const uint64_t nan = (bits & 0x80000000u) << 32 | 0x7ff8000000000000u | (bits & 0x003fffffu) << 29;
    return x != x ? bits_as<double>(nan) : static_cast<double>(x);
}

/* dst may be src where both types have one size. */
template <typename To, typename From> struct Cast {
    To *dst;
    const From *src;

    template <int W> __device__ __forceinline__ void at(int64_t i) const
    {
        const Packed<From, W> x = load_packed<W>(src + i);
        Packed<To, W> y;
#pragma unroll
        for (int j = 0; j < W; j++)
            y.e[j] = from_float<To>(to_float(x.e[j]));
        store_packed<W>(dst + i, y);
    }
};

/* The wider type moves 16 bytes at a time. */
template <typename To, typename From> plait_status cast_as(const plait_exec *ex, void *dst, const void *src, int64_t n)
{
    constexpr int W = kWide<To> < kWide<From> ? kWide<To> : kWide<From>;
    if constexpr (std::is_same<To, From>::value)
        PLAIT_FAIL(INTERNAL, "a type to itself is a copy");
    else {
        const Cast<To, From> op = {static_cast<To *>(dst), static_cast<const From *>(src)};
        return map_flat<W>(ex, is_aligned<W>(op.dst, op.src), n, op);
    }
}

template <typename To>
plait_status cast_to(const plait_exec *ex, void *dst, const void *src, plait_dtype from, int64_t n)
{
    switch (from) {
    case PLAIT_BF16:
        return cast_as<To, __nv_bfloat16>(ex, dst, src, n);
    case PLAIT_FP16:
        return cast_as<To, __half>(ex, dst, src, n);
    case PLAIT_FP64:
        return cast_as<To, double>(ex, dst, src, n);
    default:
        return cast_as<To, float>(ex, dst, src, n);
    }
}

plait_status copy(const plait_exec *ex, void *dst, const void *src, size_t bytes)
{
    if (bytes > 0 && dst != src)
        PLAIT_TRY_CUDA(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, plait_cuda_stream_of(ex)));
    return PLAIT_OK;
}

/* One type to itself is a copy, which keeps the bits of every NaN. */
plait_status cast(const plait_exec *ex, void *dst, plait_dtype to, const void *src, plait_dtype from, int64_t n)
{
    if (to == from)
        return copy(ex, dst, src, static_cast<size_t>(n) * plait_dtype_size(to));
    switch (to) {
    case PLAIT_BF16:
        return cast_to<__nv_bfloat16>(ex, dst, src, from, n);
    case PLAIT_FP16:
        return cast_to<__half>(ex, dst, src, from, n);
    case PLAIT_FP64:
        return cast_to<double>(ex, dst, src, from, n);
    default:
        return cast_to<float>(ex, dst, src, from, n);
    }
}

/* ---- add ---- */

__device__ __forceinline__ double sum_of(double a, double b)
{
    return a + b;
}
template <typename T> __device__ __forceinline__ T sum_of(T a, T b)
{
    return narrow<T>(widen(a) + widen(b));
}

template <typename T> struct Add {
    T *y;
    const T *x;

    template <int W> __device__ __forceinline__ void at(int64_t i) const
    {
        Packed<T, W> a = load_packed<W>(y + i);
        const Packed<T, W> b = load_packed<W>(x + i);
#pragma unroll
        for (int j = 0; j < W; j++)
            a.e[j] = sum_of(a.e[j], b.e[j]);
        store_packed<W>(y + i, a);
    }
};

template <typename T> plait_status add_as(const plait_exec *ex, void *y, const void *x, int64_t n)
{
    constexpr int W = kWide<T>;
    const Add<T> op = {static_cast<T *>(y), static_cast<const T *>(x)};
    return map_flat<W>(ex, is_aligned<W>(op.y, op.x), n, op);
}

plait_status add(const plait_exec *ex, void *y, const void *x, plait_dtype dtype, int64_t n)
{
    switch (dtype) {
    case PLAIT_BF16:
        return add_as<__nv_bfloat16>(ex, y, x, n);
    case PLAIT_FP16:
        return add_as<__half>(ex, y, x, n);
    case PLAIT_FP64:
        return add_as<double>(ex, y, x, n);
    default:
        return add_as<float>(ex, y, x, n);
    }
}

plait_status zero(const plait_exec *ex, void *p, size_t bytes)
{
    if (bytes > 0)
        PLAIT_TRY_CUDA(cudaMemsetAsync(p, 0, bytes, plait_cuda_stream_of(ex)));
    return PLAIT_OK;
}

/* ---- hash: on the host, of as many rows, or as much of a row, at a time as `room` holds. For people, not for speed.
 */

constexpr size_t kRoom = size_t{4} << 20;

plait_status fetch(const plait_exec *ex, char *room, const char *from, size_t width, size_t stride, size_t rows)
{
    const bool dense = stride == width;
    for (size_t r = 0; r < (dense ? 1 : rows); r++)
        PLAIT_TRY_CUDA(cudaMemcpyAsync(room + r * width, from + r * stride, dense ? rows * width : width,
                                       cudaMemcpyDeviceToHost, plait_cuda_stream_of(ex)));
    PLAIT_TRY_CUDA(cudaStreamSynchronize(plait_cuda_stream_of(ex)));
    return PLAIT_OK;
}

plait_status hash_whole_rows(const plait_exec *ex, uint64_t *out, char *room, const char *x, int64_t rows, size_t width,
                             size_t stride)
{
    const int64_t most = static_cast<int64_t>(kRoom / width);
    for (int64_t r = 0; r < rows; r += most) {
        const int64_t n = rows - r < most ? rows - r : most;
        PLAIT_TRY(fetch(ex, room, x + static_cast<size_t>(r) * stride, width, stride, static_cast<size_t>(n)));
        for (int64_t i = 0; i < n; i++)
            *out = XXH3_64bits_withSeed(room + static_cast<size_t>(i) * width, width, *out);
    }
    return PLAIT_OK;
}

plait_status hash_row_in_pieces(const plait_exec *ex, uint64_t *out, char *room, const char *row, size_t width,
                                XXH3_state_t *state)
{
    (void)XXH3_64bits_reset_withSeed(state, *out);
    for (size_t done = 0; done < width; done += kRoom) {
        const size_t n = width - done < kRoom ? width - done : kRoom;
        PLAIT_TRY(fetch(ex, room, row + done, n, n, 1));
        (void)XXH3_64bits_update(state, room, n);
    }
    *out = XXH3_64bits_digest(state);
    return PLAIT_OK;
}

plait_status hash_rows(const plait_exec *ex, uint64_t *out, char *room, XXH3_state_t *state, const char *x,
                       int64_t rows, size_t width, size_t stride)
{
    if (width == 0)
        for (int64_t r = 0; r < rows; r++)
            *out = XXH3_64bits_withSeed(room, 0, *out);
    else if (width <= kRoom)
        PLAIT_TRY(hash_whole_rows(ex, out, room, x, rows, width, stride));
    else
        for (int64_t r = 0; r < rows; r++)
            PLAIT_TRY(hash_row_in_pieces(ex, out, room, x + static_cast<size_t>(r) * stride, width, state));
    return PLAIT_OK;
}

plait_status hash(const plait_exec *ex, uint64_t *out, const void *x, int64_t rows, size_t row_bytes, size_t stride)
{
    char *room = static_cast<char *>(malloc(kRoom));
    XXH3_state_t *state = XXH3_createState();
    plait_status st = PLAIT_OK;
    *out = 0;
    if (!room || !state)
        PLAIT_FAIL_TO(done, st, OUT_OF_MEMORY, "no memory for %zu bytes of a matrix on the host", kRoom);
    PLAIT_TRY_TO(done, st, hash_rows(ex, out, room, state, static_cast<const char *>(x), rows, row_bytes, stride));
done:
    free(room);
    (void)XXH3_freeState(state);
    return st;
}

} // namespace
} // namespace plait_cuda

void plait_cuda_fill_memory(plait_kernels *k)
{
    k->hash = plait_cuda::hash;
    k->cast = plait_cuda::cast;
    k->add = plait_cuda::add;
    k->zero = plait_cuda::zero;
    k->copy = plait_cuda::copy;
}
