/* Bias, dropout and residual in one pass; the gradient of a bias. */
#include "kernels/cuda/colsum.cuh"
#include "kernels/cuda/dropout.cuh"

namespace plait_cuda
{
namespace
{

/* Dropout on rows: row r is sample r % batch at position t0 + r / batch. */
struct RowDropout {
    Dropout drop;
    int64_t t0, batch, C;

    struct Row {
        Dropout drop;
        uint32_t sample;
        uint64_t first;
        /* f *= factors of columns c to c + W - 1 */
        template <int W> __device__ __forceinline__ void apply(Floats<W> &f, int64_t c) const
        {
            if (!drop.on)
                return;
            const Floats<W> factor = dropout_factors<W>(drop, sample, first + static_cast<uint64_t>(c));
#pragma unroll
            for (int j = 0; j < W; j++)
                f.v[j] *= factor.v[j];
        }
    };
    __device__ __forceinline__ Row row(int64_t r) const
    {
        if (!drop.on)
            return {drop, 0, 0};
        const int64_t t = r / batch;
        return {drop, static_cast<uint32_t>(r - t * batch), static_cast<uint64_t>((t0 + t) * C)};
    }
};

RowDropout row_dropout_of(const plait_dropout *d, int64_t C)
{
    const Dropout drop = dropout_of(d);
    return {drop, drop.on ? d->t0 : 0, drop.on ? d->batch : 1, C};
}

/* f += p[0] to p[W - 1], unless p is NULL */
template <int W, typename T> __device__ __forceinline__ void add_if(Floats<W> &f, const T *p, int64_t at)
{
    if (!p)
        return;
    const Floats<W> x = load<W>(p + at);
#pragma unroll
    for (int j = 0; j < W; j++)
        f.v[j] += x.v[j];
}

/* y = residual + factor (x + bias), each of the three optional; y may be x or residual. */
template <typename T> struct Forward {
    T *y;
    const T *x, *bias, *residual;
    RowDropout drop;

    struct Row {
        T *y;
        const T *x, *bias, *residual;
        int64_t begin;
        RowDropout::Row drop;
        template <int W> __device__ __forceinline__ void at(int64_t c) const
        {
            Floats<W> f = load<W>(x + begin + c);
            add_if<W>(f, bias, c);
            drop.apply<W>(f, c);
            add_if<W>(f, residual, begin + c);
            store(y + begin + c, f);
        }
    };
    __device__ __forceinline__ Row row(int64_t r) const { return {y, x, bias, residual, r * drop.C, drop.row(r)}; }
};

/* dx = factor dy: written where there is a dx (which may be dy), and given on before it is rounded to T, for the sum
 * over rows. */
template <typename T> struct Backward {
    T *dx;
    const T *dy;
    RowDropout drop;

    struct Row {
        T *dx;
        const T *dy;
        int64_t begin;
        RowDropout::Row drop;
        template <int W> __device__ __forceinline__ Floats<W> grad(int64_t c) const
        {
            Floats<W> d = load<W>(dy + begin + c);
            drop.apply<W>(d, c);
            if (dx)
                store(dx + begin + c, d);
            return d;
        }
        template <int W> __device__ __forceinline__ void at(int64_t c) const { grad<W>(c); }
    };
    __device__ __forceinline__ Row row(int64_t r) const { return {dx, dy, r * drop.C, drop.row(r)}; }
    template <int W> __device__ __forceinline__ Floats<W> at(int64_t r, int64_t c) const
    {
        return row(r).template grad<W>(c);
    }
};

/* Without dropout and dx: nothing is written between the loads of several rows. */
template <typename T> struct Plain {
    const T *dy;
    int64_t C;
    template <int W> __device__ __forceinline__ Floats<W> at(int64_t r, int64_t c) const
    {
        return load<W>(dy + r * C + c);
    }
};

/* A wide access begins a block of four random numbers where columns do. */
template <int W> bool is_wide(int64_t C)
{
    static_assert(W % 4 == 0, "a block of Philox is four elements");
    return C % W == 0;
}

template <typename T>
plait_status bias_dropout_add_fwd(const plait_exec *ex, void *y, const void *x, const void *bias, const void *residual,
                                  const plait_dropout *drop, int64_t N, int64_t C)
{
    constexpr int W = kWide<T>;
    const Forward<T> op = {static_cast<T *>(y), static_cast<const T *>(x), static_cast<const T *>(bias),
                           static_cast<const T *>(residual), row_dropout_of(drop, C)};
    return map_rows<W>(ex, is_wide<W>(C) && is_aligned<W>(op.y, op.x, op.bias, op.residual), N, C, op);
}

template <typename T>
plait_status bias_dropout_add_bwd(const plait_exec *ex, void *dx, void *dbias, const void *dy,
                                  const plait_dropout *drop, int64_t N, int64_t C)
{
    constexpr int W = kWide<T>;
    const Backward<T> op = {static_cast<T *>(dx), static_cast<const T *>(dy), row_dropout_of(drop, C)};
    float *sum = static_cast<float *>(dbias);
    const bool wide = is_wide<W>(C) && is_aligned<W>(op.dx, op.dy);
    if (N <= 0 || C <= 0 || (!dx && !dbias))
        return PLAIT_OK;
    if (!dbias)
        return map_rows<W>(ex, wide, N, C, op);
    if (dx || op.drop.drop.on)
        return wide ? column_sums<W>(ex, sum, op, N, C) : column_sums<1>(ex, sum, op, N, C);
    const Plain<T> plain = {op.dy, C};
    return wide ? column_sums<W>(ex, sum, plain, N, C) : column_sums<1>(ex, sum, plain, N, C);
}

template <typename T> plait_status bias_grad(const plait_exec *ex, void *db, const void *dy, int64_t N, int64_t C)
{
    return bias_dropout_add_bwd<T>(ex, nullptr, db, dy, nullptr, N, C);
}

} // namespace
} // namespace plait_cuda

void plait_cuda_fill_bias(plait_kernels *k)
{
    plait_cuda::with_type_of(k->dtype, [k](auto element) {
        using T = decltype(element);
        k->bias_dropout_add_fwd = plait_cuda::bias_dropout_add_fwd<T>;
        k->bias_dropout_add_bwd = plait_cuda::bias_dropout_add_bwd<T>;
        k->bias_grad = plait_cuda::bias_grad<T>;
    });
}
