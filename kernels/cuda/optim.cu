/* Optimizers: one pass over master, moments and gradient, and the copy of the parameter in its storage type. Passes
 * over gradients: scaling with a check for finiteness, and the sum of squares. */
#include "kernels/cuda/map.cuh"
#include "kernels/cuda/reduce.cuh"

namespace plait_cuda
{
namespace
{

constexpr int W = kWide<float>;

/* AdamW (Loshchilov and Hutter 2019, algorithm 2); see kernels.h. */
template <typename T> struct AdamW {
    T *param; /* or NULL */
    float *master, *m, *v;
    const float *grad;
    float b1, c1, b2, c2, inv1, inv2, eps, lr, decay, scale;

    template <int N> __device__ __forceinline__ void at(int64_t i) const
    {
        const Floats<N> g = load<N>(grad + i);
        Floats<N> w = load<N>(master + i), m1 = load<N>(m + i), m2 = load<N>(v + i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float gj = g.v[j] * scale;
            m1.v[j] = b1 * m1.v[j] + c1 * gj;
            m2.v[j] = b2 * m2.v[j] + c2 * gj * gj;
            w.v[j] -= lr * (m1.v[j] * inv1 / (sqrtf(m2.v[j] * inv2) + eps) + decay * w.v[j]);
        }
        store(m + i, m1);
        store(v + i, m2);
        store(master + i, w);
        if (param)
            store(param + i, w);
    }
};

template <typename T>
plait_status adamw(const plait_exec *ex, void *param, void *master, void *m, void *v, const void *grad, int64_t n,
                   const plait_adamw *h)
{
    const AdamW<T> op = {static_cast<T *>(param),
                         static_cast<float *>(master),
                         static_cast<float *>(m),
                         static_cast<float *>(v),
                         static_cast<const float *>(grad),
                         static_cast<float>(h->beta1),
                         static_cast<float>(1.0 - h->beta1),
                         static_cast<float>(h->beta2),
                         static_cast<float>(1.0 - h->beta2),
                         static_cast<float>(1.0 / h->bias1),
                         static_cast<float>(1.0 / h->bias2),
                         static_cast<float>(h->eps),
                         static_cast<float>(h->lr),
                         static_cast<float>(h->weight_decay),
                         static_cast<float>(h->grad_scale)};
    return map_flat<W>(ex, is_aligned<W>(op.param, op.master, op.m, op.v, op.grad), n, op);
}

template <typename T> struct Sgd {
    T *param;            /* or NULL */
    float *master, *buf; /* buf NULL: no momentum */
    const float *grad;
    float lr, momentum, decay, scale;

    template <int N> __device__ __forceinline__ void at(int64_t i) const
    {
        Floats<N> g = load<N>(grad + i), w = load<N>(master + i), b = {};
        if (buf)
            b = load<N>(buf + i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            g.v[j] = g.v[j] * scale + decay * w.v[j];
            if (buf)
                g.v[j] += momentum * b.v[j];
            w.v[j] -= lr * g.v[j];
        }
        if (buf)
            store(buf + i, g);
        store(master + i, w);
        if (param)
            store(param + i, w);
    }
};

template <typename T>
plait_status sgd(const plait_exec *ex, void *param, void *master, void *buf, const void *grad, int64_t n,
                 const plait_sgd *h)
{
    const Sgd<T> op = {static_cast<T *>(param),
                       static_cast<float *>(master),
                       static_cast<float *>(buf),
                       static_cast<const float *>(grad),
                       static_cast<float>(h->lr),
                       static_cast<float>(h->momentum),
                       static_cast<float>(h->weight_decay),
                       static_cast<float>(h->grad_scale)};
    return map_flat<W>(ex, is_aligned<W>(op.param, op.master, op.buf, op.grad), n, op);
}

struct Unscale {
    float *x;
    float scale;
    int32_t *found_inf;

    template <int N> __device__ __forceinline__ void at(int64_t i) const
    {
        constexpr float largest = 3.402823466e38f;
        Floats<N> f = load<N>(x + i);
        bool finite = true;
#pragma unroll
        for (int j = 0; j < N; j++) {
            f.v[j] *= scale;
            finite &= fabsf(f.v[j]) <= largest;
        }
        store(x + i, f);
        if (!finite)
            atomicExch(found_inf, 1);
    }
};

plait_status unscale(const plait_exec *ex, void *x, double scale, int64_t n, int32_t *found_inf)
{
    const Unscale op = {static_cast<float *>(x), static_cast<float>(scale), found_inf};
    return map_flat<W>(ex, is_aligned<W>(op.x), n, op);
}

/* ---- sum of squares: parts of the array, decided by its length, then the sum of their sums ---- */

constexpr int64_t kPart = 16384, kMostParts = 1024;

/* out[part], or += */
template <int V>
__global__ void __launch_bounds__(kThreads)
    squares_kernel(double *out, bool add, const float *x, int64_t n, int64_t part)
{
    const int64_t begin = blockIdx.x * part, left = n - begin, count = left < part ? left : part, whole = count / V * V;
    double sum = 0.0;
    x += begin;
#pragma unroll 4
    for (int64_t i = static_cast<int64_t>(threadIdx.x) * V; i < whole; i += kThreads * V) {
        const Floats<V> f = load<V>(x + i);
#pragma unroll
        for (int j = 0; j < V; j++)
            sum += static_cast<double>(f.v[j]) * static_cast<double>(f.v[j]);
    }
    if (V > 1 && threadIdx.x < count - whole)
        sum += static_cast<double>(x[whole + threadIdx.x]) * static_cast<double>(x[whole + threadIdx.x]);
    sum = block_reduce<Sum>(sum);
    if (threadIdx.x == 0)
        out[blockIdx.x] = add ? out[blockIdx.x] + sum : sum;
}

/* *sum += all of part */
__global__ void __launch_bounds__(kThreads) sum_parts_kernel(double *sum, const double *part, int64_t parts)
{
    double mine = 0.0;
    for (int64_t i = threadIdx.x; i < parts; i += kThreads)
        mine += part[i];
    mine = block_reduce<Sum>(mine);
    if (threadIdx.x == 0)
        *sum += mine;
}

plait_status sum_squares(const plait_exec *ex, double *sum, const void *x_, int64_t n)
{
    const float *x = static_cast<const float *>(x_);
    const int64_t fit = static_cast<int64_t>(ex->scratch_bytes / sizeof(double));
    int64_t parts = ceil_div(n, kPart);
    if (n <= 0)
        return PLAIT_OK;
    parts = parts < kMostParts ? parts : kMostParts;
    parts = parts < fit ? parts : fit < 1 ? 1 : fit;
    const int64_t part = ceil_div(ceil_div(n, parts), W) * W;
    parts = ceil_div(n, part);
    double *out = parts > 1 ? static_cast<double *>(ex->scratch) : sum;
    if (is_aligned<W>(x))
        PLAIT_LAUNCH((squares_kernel<W>), static_cast<unsigned>(parts), kThreads, 0, plait_cuda_stream_of(ex), out,
                     parts == 1, x, n, part);
    else
        PLAIT_LAUNCH((squares_kernel<1>), static_cast<unsigned>(parts), kThreads, 0, plait_cuda_stream_of(ex), out,
                     parts == 1, x, n, part);
    PLAIT_CUDA_LAUNCHED();
    if (parts > 1)
        PLAIT_LAUNCH(sum_parts_kernel, 1, kThreads, 0, plait_cuda_stream_of(ex), sum, out, parts);
    PLAIT_CUDA_LAUNCHED();
    return PLAIT_OK;
}

} // namespace
} // namespace plait_cuda

void plait_cuda_fill_optim(plait_kernels *k)
{
    plait_cuda::with_type_of(k->dtype, [k](auto element) {
        using T = decltype(element);
        k->adamw = plait_cuda::adamw<T>;
        k->sgd = plait_cuda::sgd<T>;
    });
    k->unscale = plait_cuda::unscale;
    k->sum_squares = plait_cuda::sum_squares;
}
