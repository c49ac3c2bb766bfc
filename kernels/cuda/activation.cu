/* GELU (Hendrycks and Gimpel 2016, section 2) and SwiGLU (Shazeer 2020). */
#include "kernels/cuda/map.cuh"

namespace plait_cuda
{
namespace
{

__device__ __forceinline__ float sigmoid(float x)
{
    return __fdividef(1.0f, 1.0f + expf(-x));
}

/* ---- GELU: gelu(x) = x / 2 (1 + tanh(u)) = x sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3) ---- */

constexpr float kTwoSqrt2Pi = 1.59576912160573071f, kCubic = 0.044715f;

template <typename T> struct GeluForward {
    T *y;
    const T *x;

    template <int W> __device__ __forceinline__ void at(int64_t i) const
    {
        Floats<W> f = load<W>(x + i);
#pragma unroll
        for (int j = 0; j < W; j++)
            f.v[j] *= sigmoid(kTwoSqrt2Pi * f.v[j] * (1.0f + kCubic * f.v[j] * f.v[j]));
        store(y + i, f);
    }
};

/* s + x s (1 - s) d(2u)/dx with s = sigmoid(2 u) and 1 - s = exp(-2 u) s, which does not cancel. Beyond |x| = 10 it is
 * 0 or 1 in fp32, and exp(-2 u) could overflow. */
__device__ __forceinline__ float gelu_slope(float x)
{
    x = x > 10.0f ? 10.0f : x < -10.0f ? -10.0f : x;
    const float x2 = x * x, e = expf(-kTwoSqrt2Pi * x * (1.0f + kCubic * x2)), s = __fdividef(1.0f, 1.0f + e);
    return s + x * s * (e * s) * (kTwoSqrt2Pi * (1.0f + 3.0f * kCubic * x2));
}

/* dx may be dy. */
template <typename T> struct GeluBackward {
    T *dx;
    const T *dy, *x;

    template <int W> __device__ __forceinline__ void at(int64_t i) const
    {
        Floats<W> d = load<W>(dy + i);
        const Floats<W> f = load<W>(x + i);
#pragma unroll
        for (int j = 0; j < W; j++)
            d.v[j] *= gelu_slope(f.v[j]);
        store(dx + i, d);
    }
};

template <typename T> plait_status gelu_fwd(const plait_exec *ex, void *y, const void *x, int64_t n)
{
    constexpr int W = kWide<T>;
    const GeluForward<T> op = {static_cast<T *>(y), static_cast<const T *>(x)};
    return map_flat<W>(ex, is_aligned<W>(op.y, op.x), n, op);
}

template <typename T> plait_status gelu_bwd(const plait_exec *ex, void *dx, const void *dy, const void *x, int64_t n)
{
    constexpr int W = kWide<T>;
    const GeluBackward<T> op = {static_cast<T *>(dx), static_cast<const T *>(dy), static_cast<const T *>(x)};
    return map_flat<W>(ex, is_aligned<W>(op.dx, op.dy, op.x), n, op);
}

/* ---- SwiGLU: y = g sigmoid(g) u ---- */

template <typename T> struct SwigluForward {
    T *y;
    const T *gate_up;
    int64_t F;

    struct Row {
        T *y;
        const T *gate, *up;
        template <int W> __device__ __forceinline__ void at(int64_t c) const
        {
            Floats<W> g = load<W>(gate + c);
            const Floats<W> u = load<W>(up + c);
#pragma unroll
            for (int j = 0; j < W; j++)
                g.v[j] *= sigmoid(g.v[j]) * u.v[j];
            store(y + c, g);
        }
    };
    __device__ __forceinline__ Row row(int64_t r) const
    {
        return {y + r * F, gate_up + r * 2 * F, gate_up + (r * 2 + 1) * F};
    }
};

/* dg = dy u s (1 + g (1 - s)), du = dy g s, s = sigmoid(g); d_gate_up may be gate_up. */
template <typename T> struct SwigluBackward {
    T *d_gate_up;
    const T *dy, *gate_up;
    int64_t F;

    struct Row {
        T *d_gate, *d_up;
        const T *dy, *gate, *up;
        template <int W> __device__ __forceinline__ void at(int64_t c) const
        {
            const Floats<W> d = load<W>(dy + c);
            Floats<W> g = load<W>(gate + c), u = load<W>(up + c);
#pragma unroll
            for (int j = 0; j < W; j++) {
                const float s = sigmoid(g.v[j]), ds = d.v[j] * s, gate_j = g.v[j];
                g.v[j] = ds * u.v[j] * (1.0f + gate_j * (1.0f - s));
                u.v[j] = ds * gate_j;
            }
            store(d_gate + c, g);
            store(d_up + c, u);
        }
    };
    __device__ __forceinline__ Row row(int64_t r) const
    {
        const int64_t gate = r * 2 * F, up = gate + F;
        return {d_gate_up + gate, d_gate_up + up, dy + r * F, gate_up + gate, gate_up + up};
    }
};

template <typename T> plait_status swiglu_fwd(const plait_exec *ex, void *y, const void *gate_up, int64_t N, int64_t F)
{
    constexpr int W = kWide<T>;
    const SwigluForward<T> op = {static_cast<T *>(y), static_cast<const T *>(gate_up), F};
    return map_rows<W>(ex, is_aligned<W>(op.y, op.gate_up), N, F, op);
}

template <typename T>
plait_status swiglu_bwd(const plait_exec *ex, void *d_gate_up, const void *dy, const void *gate_up, int64_t N,
                        int64_t F)
{
    constexpr int W = kWide<T>;
    const SwigluBackward<T> op = {static_cast<T *>(d_gate_up), static_cast<const T *>(dy),
                                  static_cast<const T *>(gate_up), F};
    return map_rows<W>(ex, is_aligned<W>(op.d_gate_up, op.dy, op.gate_up), N, F, op);
}

} // namespace
} // namespace plait_cuda

void plait_cuda_fill_activation(plait_kernels *k)
{
    plait_cuda::with_type_of(k->dtype, [k](auto element) {
        using T = decltype(element);
        k->gelu_fwd = plait_cuda::gelu_fwd<T>;
        k->gelu_bwd = plait_cuda::gelu_bwd<T>;
        k->swiglu_fwd = plait_cuda::swiglu_fwd<T>;
        k->swiglu_bwd = plait_cuda::swiglu_bwd<T>;
    });
}
