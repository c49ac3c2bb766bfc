/* Layer normalisation (Ba et al. 2016) and root mean square normalisation (Zhang and Sennrich 2019), which is the first
 * with mean 0 and without db.
 *
 * A block has one row at a time, as many threads as its columns ask for, and keeps it in registers: a row is read once.
 * What is beyond kMostThreads * kKept columns is read again, from cache. The variance is of the centred row. */
#include "kernels/cuda/colsum.cuh"

namespace plait_cuda
{
namespace
{

/* Columns of a row that a thread keeps; one by one they take more registers. */
template <int W> constexpr int kKept = W == 1 ? 8 : 16;
constexpr int kMostThreads = 512;

template <int W> unsigned threads_for(int64_t C)
{
    const int64_t threads = ceil_div(ceil_div(C, kKept<W>), kWarp) * kWarp;
    return static_cast<unsigned>(threads < kMostThreads ? threads : kMostThreads);
}

/* Where a thread's columns are: vector i of those it keeps, and the first beyond. */
template <int W> struct Columns {
    static constexpr int kVectors = kKept<W> / W;
    int64_t first, step, C;

    __device__ __forceinline__ explicit Columns(int64_t C_)
        : first(static_cast<int64_t>(threadIdx.x) * W), step(static_cast<int64_t>(blockDim.x) * W), C(C_)
    {
    }
    __device__ __forceinline__ int64_t kept(int i) const { return first + i * step; }
    __device__ __forceinline__ int64_t beyond() const { return first + kVectors * step; }
};

/* This thread's columns of one row. */
template <int W, typename T> struct RowPart {
    const Columns<W> &at;
    const T *p;
    Packed<T, W> x[Columns<W>::kVectors];

    __device__ __forceinline__ RowPart(const Columns<W> &at_, const T *p_) : at(at_), p(p_)
    {
#pragma unroll
        for (int i = 0; i < Columns<W>::kVectors; i++)
            if (at.kept(i) < at.C)
                x[i] = load_packed<W>(p + at.kept(i));
    }
    /* f(column, W values) for each of its vectors */
    template <typename F> __device__ __forceinline__ void each(F f) const
    {
#pragma unroll
        for (int i = 0; i < Columns<W>::kVectors; i++)
            if (at.kept(i) < at.C)
                f(at.kept(i), widen(x[i]));
        for (int64_t c = at.beyond(); c < at.C; c += at.step)
            f(c, load<W>(p + c));
    }
};

/* y = (x - mean) rstd w + b; without mean and b when RMS. */
template <typename T> struct Forward {
    T *y;
    float *mean, *rstd;
    const T *x, *w, *b;
    int64_t N, C;
    float eps;
};

template <typename T, int W, bool RMS> __global__ void __launch_bounds__(kMostThreads, 2) norm_fwd(const Forward<T> a)
{
    const Columns<W> columns(a.C);
    for (int64_t r = blockIdx.x; r < a.N; r += gridDim.x) {
        const RowPart<W, T> row(columns, a.x + r * a.C);
        float mean = 0.0f, squares = 0.0f;
        if (!RMS) {
            float sum = 0.0f;
            row.each([&](int64_t, const Floats<W> &x) {
#pragma unroll
                for (int j = 0; j < W; j++)
                    sum += x.v[j];
            });
            mean = block_reduce<Sum>(sum) / static_cast<float>(a.C);
        }
        row.each([&](int64_t, const Floats<W> &x) {
#pragma unroll
            for (int j = 0; j < W; j++)
                squares += (x.v[j] - mean) * (x.v[j] - mean);
        });
        const float rstd = 1.0f / sqrtf(block_reduce<Sum>(squares) / static_cast<float>(a.C) + a.eps);
        row.each([&](int64_t c, const Floats<W> &x) {
            const Floats<W> w = load<W>(a.w + c);
            Floats<W> y;
#pragma unroll
            for (int j = 0; j < W; j++)
                y.v[j] = (x.v[j] - mean) * rstd * w.v[j];
            if (!RMS) {
                const Floats<W> b = load<W>(a.b + c);
#pragma unroll
                for (int j = 0; j < W; j++)
                    y.v[j] += b.v[j];
            }
            store(a.y + r * a.C + c, y);
        });
        if (threadIdx.x == 0) {
            if (!RMS)
                a.mean[r] = mean;
            a.rstd[r] = rstd;
        }
    }
}

/* With xhat = (x - mean) rstd:
 *   dx = dres + rstd (w dy - mean_c(w dy) - xhat mean_c(w dy xhat)),  dw += sum dy xhat,  db += sum dy
 * dx may be dy or dres; RMS has no mean_c(w dy) and no db. A block adds up dw and db of its rows. */
template <typename T> struct Backward {
    T *dx;
    const T *dy, *dres, *x, *w;
    const float *mean, *rstd;
    float *dw, *db; /* row blockIdx.x of each, one every `ld`; NULL: not asked for */
    int64_t ld;
    bool add; /* to what is there, instead of writing it */
    int64_t N, C;
};

template <typename T, int W, bool RMS> __global__ void __launch_bounds__(kMostThreads) norm_bwd(const Backward<T> a)
{
    constexpr int V = Columns<W>::kVectors;
    const Columns<W> at(a.C);
    float *dw = a.dw ? a.dw + blockIdx.x * a.ld : nullptr, *db = RMS || !a.dw ? nullptr : a.db + blockIdx.x * a.ld;
    Floats<W> dw_sum[V] = {}, db_sum[V] = {};
    if (dw && !a.add)
        for (int64_t c = at.beyond(); c < a.C; c += at.step)
            for (int j = 0; j < W; j++) {
                dw[c + j] = 0.0f;
                if (!RMS)
                    db[c + j] = 0.0f;
            }

    for (int64_t r = blockIdx.x; r < a.N; r += gridDim.x) {
        const int64_t begin = r * a.C;
        const float mean = RMS ? 0.0f : a.mean[r], rstd = a.rstd[r];
        const RowPart<W, T> x(at, a.x + begin), dy(at, a.dy + begin);
        float2 sums = make_float2(0.0f, 0.0f); /* of w dy, of w dy xhat */
        const auto add_up = [&](int64_t c, const Floats<W> &xs, const Floats<W> &ds, Floats<W> &dw_c, Floats<W> &db_c) {
            const Floats<W> w = load<W>(a.w + c);
#pragma unroll
            for (int j = 0; j < W; j++) {
                const float xhat = (xs.v[j] - mean) * rstd, wd = w.v[j] * ds.v[j];
                sums.x += wd;
                sums.y += wd * xhat;
                dw_c.v[j] += ds.v[j] * xhat;
                db_c.v[j] += ds.v[j];
            }
        };
#pragma unroll
        for (int i = 0; i < V; i++)
            if (at.kept(i) < a.C)
                add_up(at.kept(i), widen(x.x[i]), widen(dy.x[i]), dw_sum[i], db_sum[i]);
        for (int64_t c = at.beyond(); c < a.C; c += at.step) {
            Floats<W> dw_c = {}, db_c = {};
            add_up(c, load<W>(x.p + c), load<W>(dy.p + c), dw_c, db_c);
            for (int j = 0; dw && j < W; j++) {
                dw[c + j] += dw_c.v[j];
                if (!RMS)
                    db[c + j] += db_c.v[j];
            }
        }
        if (!a.dx)
            continue;

        sums = block_reduce<Sum>(sums);
        const float of_wd = RMS ? 0.0f : sums.x / static_cast<float>(a.C), of_xhat = sums.y / static_cast<float>(a.C);
        const auto write = [&](int64_t c, const Floats<W> &xs, const Floats<W> &ds) {
            const Floats<W> w = load<W>(a.w + c);
            Floats<W> dx;
#pragma unroll
            for (int j = 0; j < W; j++)
                dx.v[j] = (w.v[j] * ds.v[j] - of_wd - (xs.v[j] - mean) * rstd * of_xhat) * rstd;
            if (a.dres) {
                const Floats<W> res = load<W>(a.dres + begin + c);
#pragma unroll
                for (int j = 0; j < W; j++)
                    dx.v[j] += res.v[j];
            }
            store(a.dx + begin + c, dx);
        };
#pragma unroll
        for (int i = 0; i < V; i++)
            if (at.kept(i) < a.C)
                write(at.kept(i), widen(x.x[i]), widen(dy.x[i]));
        for (int64_t c = at.beyond(); c < a.C; c += at.step)
            write(c, load<W>(x.p + c), load<W>(dy.p + c));
    }

    if (!dw)
        return;
#pragma unroll
    for (int i = 0; i < V; i++)
        if (at.kept(i) < a.C) {
#pragma unroll
            for (int j = 0; j < W; j++) {
                const int64_t c = at.kept(i) + j;
                dw[c] = a.add ? dw[c] + dw_sum[i].v[j] : dw_sum[i].v[j];
                if (!RMS)
                    db[c] = a.add ? db[c] + db_sum[i].v[j] : db_sum[i].v[j];
            }
        }
}

template <typename T, int W, bool RMS> plait_status launch_fwd(const plait_exec *ex, const Forward<T> &a)
{
    const unsigned threads = threads_for<W>(a.C);
    PLAIT_LAUNCH((norm_fwd<T, W, RMS>), grid_for(a.N, 2048 / static_cast<int>(threads)), threads, 0,
                 plait_cuda_stream_of(ex), a);
    PLAIT_CUDA_LAUNCHED();
    return PLAIT_OK;
}

template <typename T, bool RMS> plait_status forward(const plait_exec *ex, const Forward<T> &a)
{
    constexpr int W = kWide<T>;
    if (a.N <= 0 || a.C <= 0)
        return PLAIT_OK;
    if (a.C % W == 0 && is_aligned<W>(a.y, a.x, a.w, a.b))
        return launch_fwd<T, W, RMS>(ex, a);
    return launch_fwd<T, 1, RMS>(ex, a);
}

/* Blocks, each with its partial sums: about 16 warps for each multiprocessor of a large device, and 16 rows or more
 * each, so that the partial sums stay few beside what is read. */
int64_t parts_for(const plait_exec *ex, unsigned threads, int64_t N, int64_t sums)
{
    const int64_t full = 2048 / (threads / kWarp), by_rows = ceil_div(N, 16);
    return parts_in_scratch(ex, full < by_rows ? full : by_rows, sums);
}

template <typename T, int W, bool RMS> plait_status launch_bwd(const plait_exec *ex, Backward<T> a)
{
    const unsigned threads = threads_for<W>(a.C);
    float *const dw = a.dw, *const db = a.db, *const partial = static_cast<float *>(ex->scratch);
    unsigned grid = grid_for(a.N, 1024 / static_cast<int>(threads));
    if (dw) {
        a.ld = (RMS ? 1 : 2) * a.C;
        grid = static_cast<unsigned>(parts_for(ex, threads, a.N, a.ld));
        a.add = grid == 1;
        if (!a.add) {
            a.dw = partial;
            a.db = partial + a.C;
        }
    }
    PLAIT_LAUNCH((norm_bwd<T, W, RMS>), grid, threads, 0, plait_cuda_stream_of(ex), a);
    PLAIT_CUDA_LAUNCHED();
    if (!dw || a.add)
        return PLAIT_OK;
    PLAIT_TRY(add_parts(ex, dw, partial, a.ld, grid, a.C));
    return RMS ? PLAIT_OK : add_parts(ex, db, partial + a.C, a.ld, grid, a.C);
}

template <typename T, bool RMS> plait_status backward(const plait_exec *ex, const Backward<T> &a)
{
    constexpr int W = kWide<T>;
    if (a.N <= 0 || a.C <= 0 || (!a.dx && !a.dw))
        return PLAIT_OK;
    if (a.C % W == 0 && is_aligned<W>(a.dx, a.dy, a.dres, a.x, a.w))
        return launch_bwd<T, W, RMS>(ex, a);
    return launch_bwd<T, 1, RMS>(ex, a);
}

template <typename T>
plait_status layernorm_fwd(const plait_exec *ex, void *y, void *mean, void *rstd, const void *x, const void *w,
                           const void *b, int64_t N, int64_t C, double eps)
{
    return forward<T, false>(ex, {static_cast<T *>(y), static_cast<float *>(mean), static_cast<float *>(rstd),
                                  static_cast<const T *>(x), static_cast<const T *>(w), static_cast<const T *>(b), N, C,
                                  static_cast<float>(eps)});
}

template <typename T>
plait_status rmsnorm_fwd(const plait_exec *ex, void *y, void *rstd, const void *x, const void *w, int64_t N, int64_t C,
                         double eps)
{
    return forward<T, true>(ex, {static_cast<T *>(y), nullptr, static_cast<float *>(rstd), static_cast<const T *>(x),
                                 static_cast<const T *>(w), nullptr, N, C, static_cast<float>(eps)});
}

template <typename T>
plait_status layernorm_bwd(const plait_exec *ex, void *dx, void *dw, void *db, const void *dy, const void *dres,
                           const void *x, const void *w, const void *mean, const void *rstd, int64_t N, int64_t C)
{
    return backward<T, false>(ex, {static_cast<T *>(dx), static_cast<const T *>(dy), static_cast<const T *>(dres),
                                   static_cast<const T *>(x), static_cast<const T *>(w),
                                   static_cast<const float *>(mean), static_cast<const float *>(rstd),
                                   static_cast<float *>(dw), static_cast<float *>(db), 0, false, N, C});
}

template <typename T>
plait_status rmsnorm_bwd(const plait_exec *ex, void *dx, void *dw, const void *dy, const void *dres, const void *x,
                         const void *w, const void *rstd, int64_t N, int64_t C)
{
    return backward<T, true>(ex, {static_cast<T *>(dx), static_cast<const T *>(dy), static_cast<const T *>(dres),
                                  static_cast<const T *>(x), static_cast<const T *>(w), nullptr,
                                  static_cast<const float *>(rstd), static_cast<float *>(dw), nullptr, 0, false, N, C});
}

} // namespace
} // namespace plait_cuda

void plait_cuda_fill_norm(plait_kernels *k)
{
    plait_cuda::with_type_of(k->dtype, [k](auto element) {
        using T = decltype(element);
        k->layernorm_fwd = plait_cuda::layernorm_fwd<T>;
        k->layernorm_bwd = plait_cuda::layernorm_bwd<T>;
        k->rmsnorm_fwd = plait_cuda::rmsnorm_fwd<T>;
        k->rmsnorm_bwd = plait_cuda::rmsnorm_bwd<T>;
    });
}
