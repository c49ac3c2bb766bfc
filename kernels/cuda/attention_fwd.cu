/* Attention, forward. A block has one tile of queries of one head and takes the tiles of keys that it sees in ascending
 * order, with the online softmax: what was summed under an older maximum is scaled down to the new one. Key 0 is seen
 * by every query, so a maximum is a number from the first tile on.
 *
 * Of a head the last tile of queries, which sees most keys, comes first: at the end only light tiles are left. Tiles of
 * one head follow each other, since they read the same keys.
 */
#include "kernels/cuda/attention_dropout.cuh"
#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/attention_plain.cuh"

namespace attention
{
namespace
{

/* ---- on tensor cores ---- */

/* Extents of tiles for heads of DP columns: as many as registers hold (queries), and as let two blocks share the memory
 * of a multiprocessor with 164 KB. */
template <int DP> struct forward_tiles {
    static constexpr int MT = DP <= 128 ? 2 : 1, KEYS = DP <= 96 ? 64 : 32;
    static constexpr int QUERIES = WARPS * 16 * MT;
    static constexpr int ELEMENTS = (QUERIES + 2 * KEYS) * LD<DP>;
    static constexpr size_t BYTES = ELEMENTS * 2 + QUERIES * (KEYS / 32) * sizeof(uint32_t);
};

/* Scores of a warp to powers of two, 2^LIFT for the maximum of their rows so far; the sums and o follow. The first row
 * is query `after` of the tile of keys: later keys are not seen. */
template <int DP, int LIFT, int MT, int NT>
__device__ __forceinline__ void online_softmax(float (&s)[MT][NT][4], float (&o)[MT][DP / 8][4], float (&max)[MT][2],
                                               float (&sum)[MT][2], float scale, int after)
{
    for_each<MT, NT>([&](int m, int n, int e, int, int) { s[m][n][e] *= scale; });
    if (after < 8 * NT - 1)
        for_each<MT, NT>([&](int m, int n, int e, int row, int column) {
            if (column > row + after)
                s[m][n][e] = -INFINITY;
        });
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float top = max[m][half], part = 0.0f;
#pragma unroll
            for (int n = 0; n < NT; n++)
                top = fmaxf(top, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
            const float shrink = exp2f(max[m][half] - top);
            max[m][half] = top;
            top -= LIFT;
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float &x = s[m][n][2 * half + e];
                    x = exp2f(x - top);
                    part += x;
                }
            sum[m][half] = fmaf(sum[m][half], shrink, part);
#pragma unroll
            for (int n = 0; n < DP / 8; n++) {
                o[m][n][2 * half] *= shrink;
                o[m][n][2 * half + 1] *= shrink;
            }
        }
}

/* Keys and values have a tile each: while one is used the other is under way. */
template <typename T, int DP> __global__ void __launch_bounds__(THREADS, 2) forward_mma(const arguments a)
{
    using tiles = forward_tiles<DP>;
    constexpr int MT = tiles::MT, NT = tiles::KEYS / 8, KEYS = tiles::KEYS, QUERIES = tiles::QUERIES;
    PLAIT_DYNAMIC_SHARED(T, shared);
    T *q_tile = shared, *k_tile = q_tile + QUERIES * LD<DP>, *v_tile = k_tile + KEYS * LD<DP>;
    uint32_t *kept = reinterpret_cast<uint32_t *>(v_tile + KEYS * LD<DP>);

    const int query_tiles = ceil_div(a.seq, QUERIES);
    const task block = task_of_block(query_tiles);
    const place at = place_of(a, block.head);
    const int q0 = (query_tiles - 1 - block.tile) * QUERIES, end = smaller(q0 + QUERIES, a.seq);
    const head_rows<const T> q = rows_of<const T>(a, a.q, at.sample, at.head);
    const head_rows<const T> k = rows_of<const T>(a, a.k, at.sample, at.kv_head);
    const head_rows<const T> v = rows_of<const T>(a, a.v, at.sample, at.kv_head);
    const int row = warp_of_thread() * 16 * MT; /* of the tile, the warp's first */
    T *q_warp = q_tile + row * LD<DP>;

    load_tile<QUERIES, DP>(q_tile, q, q0, a.seq, a.head_dim);
    load_tile<KEYS, DP>(k_tile, k, 0, a.seq, a.head_dim);
    plait_cp_async_commit();

    float o[MT][DP / 8][4] = {}, max[MT][2], sum[MT][2] = {};
#pragma unroll
    for (int m = 0; m < MT; m++)
        max[m][0] = max[m][1] = -INFINITY;
    for (int k0 = 0; k0 < end; k0 += KEYS) {
        const bool seen = k0 < q0 + row + 16 * MT; /* by some query of the warp */
        float s[MT][NT][4];
        plait_cp_async_wait<0>();
        __syncthreads(); /* keys are there, values no longer used */
        load_tile<KEYS, DP>(v_tile, v, k0, a.seq, a.head_dim);
        plait_cp_async_commit();
        if (a.drop.on)
            keep_tile<QUERIES, KEYS, THREADS>(kept, a, at, q0, k0);
        if (seen)
            multiply_transposed<DP>(s, q_warp, k_tile);
        plait_cp_async_wait<0>();
        __syncthreads(); /* values are there, keys no longer used */
        if (k0 + KEYS < end) {
            load_tile<KEYS, DP>(k_tile, k, k0 + KEYS, a.seq, a.head_dim);
            plait_cp_async_commit();
        }
        if (!seen)
            continue;
        online_softmax<DP, LIFT<T>>(s, o, max, sum, a.scale_log2, q0 + row - k0);
        if (a.drop.on) /* what is kept is scaled at the end */
            for_each<MT, NT>([&](int m, int n, int e, int query, int key) {
                if (!is_kept<KEYS>(kept, row + query, key))
                    s[m][n][e] = 0.0f;
            });
        multiply_add<DP>(o, s, v_tile);
    }

    float factor[MT][2];
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float whole = sum[m][half];
            whole += __shfl_xor_sync(0xffffffffu, whole, 1);
            whole += __shfl_xor_sync(0xffffffffu, whole, 2);
            factor[m][half] = (a.drop.on ? a.drop.keep : 1.0f) / whole;
            const int query = q0 + row + 16 * m + 8 * half + lane_of_thread() / 4;
            if (lane_of_thread() % 4 == 0 && query < end)
                a.lse[at.index * a.seq + query] = (max[m][half] + log2f(ldexpf(whole, -LIFT<T>))) * LN_2;
        }
    store_rows<DP>(rows_of<T>(a, a.o, at.sample, at.head), q0 + row, end, a.head_dim, q_warp, o, factor);
}

template <typename T, int DP> plait_status launch_mma(const plait_exec *ex, const arguments &a)
{
    using tiles = forward_tiles<DP>;
    PLAIT_TRY(allow_shared(forward_mma<T, DP>, tiles::BYTES));
    PLAIT_LAUNCH((forward_mma<T, DP>), blocks(a.batch * a.heads * ceil_div(a.seq, tiles::QUERIES)), dim3(THREADS),
                 tiles::BYTES, plait_cuda_stream_of(ex), a);
    PLAIT_CUDA_LAUNCHED();
    return PLAIT_OK;
}

/* ---- plain ---- */

/* As above, for 64 queries, the values' columns in parts of PARTS * 64: a block has one part, and scores are computed
 * again for each. */
template <typename T, int PARTS> __global__ void __launch_bounds__(plain::THREADS, 1) forward_plain(const arguments a)
{
    using namespace plain;
    PLAIT_DYNAMIC_SHARED(shared_tiles, shared);
    const int query_tiles = ceil_div(a.seq, TILE);
    const task block = task_of_block(query_tiles);
    const place at = place_of(a, block.head);
    const int q0 = (query_tiles - 1 - block.tile) * TILE, c0 = static_cast<int>(blockIdx.y) * (PARTS * TILE);
    const span<T> q = {rows_of<const T>(a, a.q, at.sample, at.head), q0, smaller(q0 + TILE, a.seq)};
    span<T> k = {rows_of<const T>(a, a.k, at.sample, at.kv_head), 0, a.seq};
    span<T> v = {rows_of<const T>(a, a.v, at.sample, at.kv_head), 0, a.seq};

    float o[PARTS][4][4] = {}, max[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, sum[4] = {};
    for (int k0 = 0; k0 < q.end; k0 += TILE) {
        k.t0 = v.t0 = k0;
        if (a.drop.on)
            keep_tile<TILE, TILE, plain::THREADS>(shared->kept, a, at, q0, k0);
        float s[4][4];
        scores(s, shared, q, k, a.head_dim);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int query = 4 * thread_y() + i;
            float top = max[i], part = 0.0f;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const bool seen = k0 + thread_x() + 16 * j <= q0 + query;
                s[i][j] = seen ? s[i][j] * a.scale_log2 : -INFINITY;
                top = fmaxf(top, s[i][j]);
            }
            top = row_max(top);
            const float shrink = exp2f(max[i] - top);
            max[i] = top;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                s[i][j] = exp2f(s[i][j] - top);
                part += s[i][j];
                if (a.drop.on && !is_kept<TILE>(shared->kept, query, thread_x() + 16 * j))
                    s[i][j] = 0.0f;
            }
            sum[i] = fmaf(sum[i], shrink, row_sum(part));
#pragma unroll
            for (int n = 0; n < PARTS; n++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    o[n][i][j] *= shrink;
        }
        put(shared, s);
        add_moving(o, shared, v, c0, a.head_dim);
    }

    float factor[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int query = q0 + 4 * thread_y() + i;
        factor[i] = (a.drop.on ? a.drop.keep : 1.0f) / sum[i];
        if (thread_x() == 0 && blockIdx.y == 0 && query < q.end)
            a.lse[at.index * a.seq + query] = (max[i] + log2f(sum[i])) * LN_2;
    }
    store_sums(rows_of<T>(a, a.o, at.sample, at.head), q0, q.end, c0, a.head_dim, o, factor);
}

template <typename T, int PARTS> plait_status launch_plain(const plait_exec *ex, const arguments &a)
{
    const dim3 grid(static_cast<unsigned>(a.batch * a.heads * ceil_div(a.seq, plain::TILE)),
                    static_cast<unsigned>(ceil_div(a.head_dim, PARTS * plain::TILE)));
    PLAIT_LAUNCH((forward_plain<T, PARTS>), grid, dim3(plain::THREADS), sizeof(plain::shared_tiles),
                 plait_cuda_stream_of(ex), a);
    PLAIT_CUDA_LAUNCHED();
    return PLAIT_OK;
}

/* ---- which ---- */

plait_status forward_fp32(const plait_exec *ex, const plait_attention *p)
{
    const arguments a = arguments_of<float>(p);
    if (a.batch * a.heads * a.seq == 0)
        return PLAIT_OK;
    if (a.head_dim <= 64)
        return launch_plain<float, 1>(ex, a);
    if (a.head_dim <= 128)
        return launch_plain<float, 2>(ex, a);
    return launch_plain<float, 4>(ex, a);
}

template <typename T, int DP> bool takes(const arguments &a)
{
    return a.head_dim <= DP && fits(forward_tiles<DP>::BYTES);
}

template <typename T> plait_status forward_16(const plait_exec *ex, const plait_attention *p)
{
    const arguments a = arguments_of<T>(p);
    if (a.batch * a.heads * a.seq == 0)
        return PLAIT_OK;
    if (takes<T, 32>(a))
        return launch_mma<T, 32>(ex, a);
    if (takes<T, 64>(a))
        return launch_mma<T, 64>(ex, a);
    if (takes<T, 96>(a))
        return launch_mma<T, 96>(ex, a);
    if (takes<T, 128>(a))
        return launch_mma<T, 128>(ex, a);
    if (takes<T, 192>(a))
        return launch_mma<T, 192>(ex, a);
    if (takes<T, 256>(a))
        return launch_mma<T, 256>(ex, a);
    return launch_plain<T, 4>(ex, a);
}

} // namespace
} // namespace attention

void plait_cuda_fill_attention(plait_kernels *k)
{
    k->attention_fwd = k->dtype == PLAIT_FP32   ? attention::forward_fp32
                       : k->dtype == PLAIT_BF16 ? attention::forward_16<__nv_bfloat16>
                                                : attention::forward_16<__half>;
    plait_cuda_fill_attention_bwd(k);
}
