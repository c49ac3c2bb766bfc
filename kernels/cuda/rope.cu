/* Rotary embeddings (Su et al. 2021). */
#include "kernels/cuda/map.cuh"

namespace plait_cuda
{
namespace
{

/* table[t, j] = cos and sin of t base^(-2 j / D): once a run, so in double. */
struct Angles {
    float *table;
    int64_t pairs;
    double base;

    template <int W> __device__ __forceinline__ void at(int64_t i) const
    {
        const int64_t t = i / pairs, j = i - t * pairs;
        const double angle = static_cast<double>(t) * pow(base, -static_cast<double>(j) / static_cast<double>(pairs));
        table[2 * i] = static_cast<float>(cos(angle));
        table[2 * i + 1] = static_cast<float>(sin(angle));
    }
};

plait_status rope_table(const plait_exec *ex, void *table, int64_t seq, int64_t D, double base)
{
    const Angles op = {static_cast<float *>(table), D / 2, base};
    return map_flat<1>(ex, true, seq * (D / 2), op);
}

/* (x[j], x[j + D/2]) of each head turns by the angle of (t, j). The columns of a row are the pairs of all its heads. */
template <typename T> struct Turn {
    T *x;
    int64_t ldx;
    const float *table;
    int64_t batch;
    int pairs; /* D / 2 */
    float sign;

    struct Row {
        T *x;
        const float *turn;
        int pairs;
        float sign;
        template <int W> __device__ __forceinline__ void at(int64_t c) const
        {
            const int head = static_cast<int>(c) / pairs, j = static_cast<int>(c) - head * pairs;
            T *at = x + static_cast<int64_t>(head) * 2 * pairs + j;
            Floats<W> u = load<W>(at), v = load<W>(at + pairs);
            constexpr int few = W > 1 ? 4 : 1; /* floats of the table that are loaded together */
            Floats<2 * W> cos_sin;
#pragma unroll
            for (int i = 0; i < 2 * W; i += few) {
                const Floats<few> part = load<few>(turn + 2 * j + i);
#pragma unroll
                for (int m = 0; m < few; m++)
                    cos_sin.v[i + m] = part.v[m];
            }
#pragma unroll
            for (int i = 0; i < W; i++) {
                const float cosine = cos_sin.v[2 * i], sine = sign * cos_sin.v[2 * i + 1], a = u.v[i], b = v.v[i];
                u.v[i] = a * cosine - b * sine;
                v.v[i] = b * cosine + a * sine;
            }
            store(at, u);
            store(at + pairs, v);
        }
    };
    __device__ __forceinline__ Row row(int64_t r) const
    {
        return {x + r * ldx, table + r / batch * 2 * pairs, pairs, sign};
    }
};

template <typename T>
plait_status rope(const plait_exec *ex, void *x, int64_t ldx, const void *table, int64_t seq, int64_t batch,
                  int64_t heads, int64_t D, bool inverse)
{
    constexpr int W = kWide<T>;
    const int64_t pairs = D / 2;
    const Turn<T> op = {static_cast<T *>(x),   ldx, static_cast<const float *>(table), batch, static_cast<int>(pairs),
                        inverse ? -1.0f : 1.0f};
    const bool wide = pairs % W == 0 && ldx % W == 0 && is_aligned<W>(op.x) && is_aligned<4>(op.table);
    return map_rows<W>(ex, wide, seq * batch, heads * pairs, op);
}

} // namespace
} // namespace plait_cuda

void plait_cuda_fill_rope(plait_kernels *k)
{
    plait_cuda::with_type_of(k->dtype, [k](auto element) { k->rope = plait_cuda::rope<decltype(element)>; });
    k->rope_table = plait_cuda::rope_table;
}
