/* Attention, backward. With P = exp(scale q k - lse) formed again from what forward kept, and F the factors of dropout:
 *
 *     delta = sum_d do o        dP = F (do v^T)        dS = P (dP - delta)
 *     dv = (F P)^T do           dk = scale dS^T q      dq = scale dS k
 *
 * Three kernels, one after the other: delta into scratch; dk and dv, a block for each tile of keys, over all queries
 * that see it, of all query heads that read it in ascending order; dq, a block for each tile of queries. P and dS are
 * formed in both of the last two, so that no sum is shared by blocks and results have the same bits in every run. Where
 * scratch does not hold delta of all heads, they do some heads at a time.
 */
#include "kernels/cuda/attention_dropout.cuh"
#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/attention_plain.cuh"

namespace attention
{
namespace
{

/* ---- delta ---- */

constexpr int DELTA_THREADS = 256, DELTA_LANES = 8; /* of a row */

/* Sum over the columns of a head that a lane has: whole chunks of 16 bytes where rows are aligned, in turn. */
template <typename T>
__device__ __forceinline__ float part_of_delta(const T *o, const T *d_o, bool wide, int head_dim, int lane)
{
    constexpr int N = 16 / sizeof(T);
    float sum = 0.0f;
    if (!wide) {
        for (int c = lane; c < head_dim; c += DELTA_LANES)
            sum = fmaf(widen(o[c]), widen(d_o[c]), sum);
        return sum;
    }
    for (int c = lane * N; c < head_dim; c += DELTA_LANES * N) {
        struct alignas(16) chunk {
            T x[N];
        };
        const chunk left = *reinterpret_cast<const chunk *>(o + c), right = *reinterpret_cast<const chunk *>(d_o + c);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum = fmaf(widen(left.x[i]), widen(right.x[i]), sum);
    }
    return sum;
}

/* Of this launch, counted over all samples. */
__device__ __forceinline__ int64_t first_head(const arguments &a)
{
    return a.kv0 * (a.heads / a.kv_heads);
}

template <typename T> __global__ void __launch_bounds__(DELTA_THREADS) delta_of_rows(const arguments a, int64_t rows)
{
    const int64_t index = (static_cast<int64_t>(blockIdx.x) * DELTA_THREADS + threadIdx.x) / DELTA_LANES;
    const int lane = static_cast<int>(threadIdx.x) % DELTA_LANES;
    float sum = 0.0f;
    if (index < rows) {
        const place at = place_of(a, first_head(a) + index / a.seq);
        const int64_t t = index % a.seq;
        const head_rows<const T> o = rows_of<const T>(a, a.o, at.sample, at.head);
        const head_rows<const T> d_o = rows_of<const T>(a, a.d_o, at.sample, at.head);
        sum = part_of_delta(o.at + t * o.stride, d_o.at + t * d_o.stride, o.wide && d_o.wide, a.head_dim, lane);
    }
#pragma unroll
    for (int lanes = DELTA_LANES / 2; lanes > 0; lanes /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    if (lane == 0 && index < rows)
        a.delta[index] = sum;
}

/* ---- what is known of a query ---- */

/* Of a query: lse in powers of two, and delta. A query that does not exist has P = dS = 0. */
struct query_sums {
    float lse, delta;
};

__device__ __forceinline__ query_sums sums_of(const arguments &a, int64_t head_index, int query)
{
    if (query >= a.seq)
        return {INFINITY, 0.0f};
    return {a.lse[head_index * a.seq + query] * LOG2_E, a.delta[(head_index - first_head(a)) * a.seq + query]};
}

/* ---- dk and dv on tensor cores ---- */

/* Which sums a block has. Both at once where the registers of a warp hold them. */
enum { DK = 1, DV = 2 };

template <int DP> struct key_tiles {
    static constexpr int MT = 1, QUERIES = DP <= 64 ? 64 : 32;
    static constexpr int KEYS = WARPS * 16 * MT;
    static constexpr int WORDS = QUERIES * (KEYS / 32); /* of dropout */
    static constexpr int ELEMENTS = (2 * KEYS + 4 * QUERIES) * LD<DP>;
    static constexpr size_t BYTES = ELEMENTS * 2 + 2 * (QUERIES * sizeof(query_sums) + WORDS * sizeof(uint32_t));
};

/* Fixed are keys and values; q and do of the queries pass by, two tiles of each: one is used, the other under way. In
 * scores a row is a key and a column a query. */
template <typename T, int DP, int WHICH> __global__ void __launch_bounds__(THREADS, 2) key_value_mma(const arguments a)
{
    using tiles = key_tiles<DP>;
    constexpr int MT = tiles::MT, QUERIES = tiles::QUERIES, NT = QUERIES / 8, KEYS = tiles::KEYS;
    constexpr int MOVING = QUERIES * LD<DP>;
    PLAIT_DYNAMIC_SHARED(T, shared);
    T *k_tile = shared, *v_tile = k_tile + KEYS * LD<DP>, *q_tiles = v_tile + KEYS * LD<DP>;
    T *do_tiles = q_tiles + 2 * MOVING;
    query_sums *sums = reinterpret_cast<query_sums *>(do_tiles + 2 * MOVING);
    uint32_t *kept = reinterpret_cast<uint32_t *>(sums + 2 * QUERIES);

    const task block = task_of_block(ceil_div(a.seq, KEYS));
    const int64_t kv = a.kv0 + block.head, sample = kv / a.kv_heads;
    const int k0 = block.tile * KEYS, group = a.heads / a.kv_heads, kv_head = static_cast<int>(kv % a.kv_heads);
    const int row = warp_of_thread() * 16 * MT;
    T *k_warp = k_tile + row * LD<DP>, *v_warp = v_tile + row * LD<DP>;

    /* A tile of queries of the head `in_group`; the buffers it lies in. */
    struct step {
        int in_group, q0, buffer;
    };
    const auto of = [&](const step &to) {
        return place{kv * group + to.in_group, sample, kv_head * group + to.in_group, kv_head};
    };
    const auto load = [&](const step &to) {
        const place at = of(to);
        load_tile<QUERIES, DP>(q_tiles + to.buffer * MOVING, rows_of<const T>(a, a.q, at.sample, at.head), to.q0, a.seq,
                               a.head_dim);
        load_tile<QUERIES, DP>(do_tiles + to.buffer * MOVING, rows_of<const T>(a, a.d_o, at.sample, at.head), to.q0,
                               a.seq, a.head_dim);
        plait_cp_async_commit();
    };
    const auto load_sums = [&](const step &to) {
        query_sums of_query = sums_of(a, of(to).index, to.q0 + static_cast<int>(threadIdx.x) % QUERIES);
        of_query.lse -= LIFT<T>;
        return of_query;
    };
    /* What comes without cp.async, before the barrier that a step begins with. */
    const auto put = [&](const step &to, const query_sums &of_thread) {
        if (threadIdx.x < QUERIES)
            sums[to.buffer * QUERIES + threadIdx.x] = of_thread;
        if (a.drop.on)
            keep_tile<QUERIES, KEYS, THREADS>(kept + to.buffer * tiles::WORDS, a, of(to), to.q0, k0);
    };

    load_tile<KEYS, DP>(k_tile, rows_of<const T>(a, a.k, sample, kv_head), k0, a.seq, a.head_dim);
    if (WHICH & DK)
        load_tile<KEYS, DP>(v_tile, rows_of<const T>(a, a.v, sample, kv_head), k0, a.seq, a.head_dim);
    const int first = k0 / QUERIES * QUERIES; /* query that sees a key of the block */
    step now = {0, first, 0};
    load(now);
    put(now, load_sums(now));

    float dk[WHICH & DK ? MT : 1][DP / 8][4] = {}, dv[WHICH & DV ? MT : 1][DP / 8][4] = {};
    float unit[MT][2]; /* of dk, besides 2^LIFT */
#pragma unroll
    for (int m = 0; m < MT; m++)
        unit[m][0] = unit[m][1] = LIFT<T> != 0 ? MOST_UNIT : 1.0f;
    while (now.in_group < group) {
        step next = {now.in_group, now.q0 + QUERIES, 1 - now.buffer};
        if (next.q0 >= a.seq)
            next = {now.in_group + 1, first, 1 - now.buffer};
        const bool more = next.in_group < group;
        query_sums next_sums = {};
        plait_cp_async_wait<0>();
        __syncthreads(); /* this step's tiles are there, those of the one before are free */
        if (more) {
            load(next);
            next_sums = load_sums(next);
        }
        const T *q = q_tiles + now.buffer * MOVING, *d_o = do_tiles + now.buffer * MOVING;
        if (now.q0 + QUERIES > k0 + row) { /* some query sees a key of this warp */
            const query_sums *of_column = sums + now.buffer * QUERIES;
            const uint32_t *kept_now = kept + now.buffer * tiles::WORDS;
            const int before = k0 + row - now.q0; /* key r of the warp is not seen by columns below r + before */
            float s[MT][NT][4], dp[WHICH & DK ? MT : 1][NT][4];
            multiply_transposed<DP>(s, k_warp, q);
            for_each<MT, NT>([&](int m, int n, int e, int, int column) {
                s[m][n][e] = exp2f(fmaf(s[m][n][e], a.scale_log2, -of_column[column].lse));
            });
            if (16 * MT - 1 + before > 0)
                for_each<MT, NT>([&](int m, int n, int e, int key, int column) {
                    if (column < key + before)
                        s[m][n][e] = 0.0f;
                });
            if constexpr ((WHICH & DK) != 0) {
                multiply_transposed<DP>(dp, v_warp, d_o);
                if (a.drop.on)
                    for_each<MT, NT>([&](int m, int n, int e, int key, int column) {
                        if (!is_kept<KEYS>(kept_now, column, row + key))
                            dp[m][n][e] = 0.0f;
                    });
                const float keep = a.drop.on ? a.drop.keep : 1.0f;
                for_each<MT, NT>([&](int m, int n, int e, int, int column) {
                    dp[m][n][e] = s[m][n][e] * fmaf(dp[m][n][e], keep, -of_column[column].delta);
                });
                if (LIFT<T> != 0)
                    lift_rows<DP>(dk, dp, unit);
                multiply_add<DP>(dk, dp, q);
            }
            if constexpr ((WHICH & DV) != 0) {
                if (a.drop.on)
                    for_each<MT, NT>([&](int m, int n, int e, int key, int column) {
                        if (!is_kept<KEYS>(kept_now, column, row + key))
                            s[m][n][e] = 0.0f;
                    });
                multiply_add<DP>(dv, s, d_o);
            }
        }
        if (more)
            put(next, next_sums);
        now = next;
    }

    float scale[MT][2], keep[MT][2];
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            scale[m][half] = ldexpf(a.scale, -LIFT<T>) / unit[m][half];
            keep[m][half] = ldexpf(a.drop.on ? a.drop.keep : 1.0f, -LIFT<T>);
        }
    if constexpr ((WHICH & DK) != 0)
        store_rows<DP>(rows_of<T>(a, a.dk, sample, kv_head), k0 + row, a.seq, a.head_dim, k_warp, dk, scale);
    if constexpr ((WHICH & DV) != 0)
        store_rows<DP>(rows_of<T>(a, a.dv, sample, kv_head), k0 + row, a.seq, a.head_dim, k_warp, dv, keep);
}

/* ---- dq on tensor cores ---- */

template <int DP> struct query_tiles {
    static constexpr int MT = DP <= 64 ? 2 : 1, KEYS = 32;
    static constexpr int QUERIES = WARPS * 16 * MT;
    static constexpr int WORDS = QUERIES * (KEYS / 32);
    static constexpr int ELEMENTS = (2 * QUERIES + 4 * KEYS) * LD<DP>;
    static constexpr size_t BYTES = ELEMENTS * 2 + 2 * WORDS * sizeof(uint32_t);
};

/* Fixed are q and do; keys and values pass by, two tiles of each. */
template <typename T, int DP> __global__ void __launch_bounds__(THREADS, 2) query_mma(const arguments a)
{
    using tiles = query_tiles<DP>;
    constexpr int MT = tiles::MT, QUERIES = tiles::QUERIES, KEYS = tiles::KEYS, NT = KEYS / 8;
    constexpr int MOVING = KEYS * LD<DP>;
    PLAIT_DYNAMIC_SHARED(T, shared);
    T *q_tile = shared, *do_tile = q_tile + QUERIES * LD<DP>, *k_tiles = do_tile + QUERIES * LD<DP>;
    T *v_tiles = k_tiles + 2 * MOVING;
    uint32_t *kept = reinterpret_cast<uint32_t *>(v_tiles + 2 * MOVING);

    const int tiles_of_head = ceil_div(a.seq, QUERIES);
    const task block = task_of_block(tiles_of_head);
    const place at = place_of(a, first_head(a) + block.head);
    const int q0 = (tiles_of_head - 1 - block.tile) * QUERIES, steps = ceil_div(smaller(q0 + QUERIES, a.seq), KEYS);
    const head_rows<const T> k = rows_of<const T>(a, a.k, at.sample, at.kv_head);
    const head_rows<const T> v = rows_of<const T>(a, a.v, at.sample, at.kv_head);
    const int row = warp_of_thread() * 16 * MT, lane = lane_of_thread();
    T *q_warp = q_tile + row * LD<DP>, *do_warp = do_tile + row * LD<DP>;

    const auto load = [&](int i) {
        load_tile<KEYS, DP>(k_tiles + i % 2 * MOVING, k, i * KEYS, a.seq, a.head_dim);
        load_tile<KEYS, DP>(v_tiles + i % 2 * MOVING, v, i * KEYS, a.seq, a.head_dim);
        plait_cp_async_commit();
    };
    const auto put_kept = [&](int i) {
        if (a.drop.on)
            keep_tile<QUERIES, KEYS, THREADS>(kept + i % 2 * tiles::WORDS, a, at, q0, i * KEYS);
    };

    load_tile<QUERIES, DP>(q_tile, rows_of<const T>(a, a.q, at.sample, at.head), q0, a.seq, a.head_dim);
    load_tile<QUERIES, DP>(do_tile, rows_of<const T>(a, a.d_o, at.sample, at.head), q0, a.seq, a.head_dim);
    load(0);
    put_kept(0);
    query_sums sums[MT][2];
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            sums[m][half] = sums_of(a, at.index, q0 + row + 16 * m + 8 * half + lane / 4);

    float dq[MT][DP / 8][4] = {}, unit[MT][2];
#pragma unroll
    for (int m = 0; m < MT; m++)
        unit[m][0] = unit[m][1] = LIFT<T> != 0 ? MOST_UNIT : 1.0f;
    for (int i = 0; i < steps; i++) {
        plait_cp_async_wait<0>();
        __syncthreads(); /* step i is there, what step i - 1 used is free */
        if (i + 1 < steps) {
            load(i + 1);
            put_kept(i + 1);
        }
        if (i * KEYS >= q0 + row + 16 * MT)
            continue; /* no query of this warp sees these keys */
        const T *k_now = k_tiles + i % 2 * MOVING, *v_now = v_tiles + i % 2 * MOVING;
        const uint32_t *kept_now = kept + i % 2 * tiles::WORDS;
        const int after = q0 + row - i * KEYS; /* query r of the warp sees columns to r + after */
        float s[MT][NT][4], dp[MT][NT][4];
        multiply_transposed<DP>(s, q_warp, k_now);
        for_each<MT, NT>([&](int m, int n, int e, int, int) {
            s[m][n][e] = exp2f(fmaf(s[m][n][e], a.scale_log2, -sums[m][e / 2].lse));
        });
        if (after < KEYS - 1)
            for_each<MT, NT>([&](int m, int n, int e, int query, int column) {
                if (column > query + after)
                    s[m][n][e] = 0.0f;
            });
        multiply_transposed<DP>(dp, do_warp, v_now);
        if (a.drop.on)
            for_each<MT, NT>([&](int m, int n, int e, int query, int column) {
                if (!is_kept<KEYS>(kept_now, row + query, column))
                    dp[m][n][e] = 0.0f;
            });
        const float keep = a.drop.on ? a.drop.keep : 1.0f;
        for_each<MT, NT>([&](int m, int n, int e, int, int) {
            dp[m][n][e] = s[m][n][e] * fmaf(dp[m][n][e], keep, -sums[m][e / 2].delta);
        });
        if (LIFT<T> != 0)
            lift_rows<DP>(dq, dp, unit);
        multiply_add<DP>(dq, dp, k_now);
    }

    float scale[MT][2];
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            scale[m][half] = a.scale / unit[m][half];
    store_rows<DP>(rows_of<T>(a, a.dq, at.sample, at.head), q0 + row, a.seq, a.head_dim, q_warp, dq, scale);
}

/* ---- plain ---- */

/* From a score and do v to F P (without 1 / (1 - p), which dv is scaled by at the end) and dS. */
__device__ __forceinline__ void gradient_of_score(float &s, float &dp, const query_sums &query, float scale_log2,
                                                  float keep, bool seen, bool kept)
{
    const float p = seen ? exp2f(fmaf(s, scale_log2, -query.lse)) : 0.0f;
    dp = p * fmaf(kept ? dp : 0.0f, keep, -query.delta);
    s = kept ? p : 0.0f;
}

/* dk and dv of 64 keys, columns in parts. A row of scores is a key, a column a query. */
template <typename T, int PARTS> __global__ void __launch_bounds__(plain::THREADS, 1) key_value_plain(const arguments a)
{
    using namespace plain;
    PLAIT_DYNAMIC_SHARED(shared_tiles, shared);
    const task block = task_of_block(ceil_div(a.seq, TILE));
    const int64_t kv = a.kv0 + block.head, group = a.heads / a.kv_heads, sample = kv / a.kv_heads;
    const int kv_head = static_cast<int>(kv % a.kv_heads), k0 = block.tile * TILE;
    const int c0 = static_cast<int>(blockIdx.y) * (PARTS * TILE);
    const float keep = a.drop.on ? a.drop.keep : 1.0f;
    const span<T> k = {rows_of<const T>(a, a.k, sample, kv_head), k0, a.seq};
    const span<T> v = {rows_of<const T>(a, a.v, sample, kv_head), k0, a.seq};

    float dk[PARTS][4][4] = {}, dv[PARTS][4][4] = {};
    for (int64_t index = kv * group; index < (kv + 1) * group; index++) {
        const place at = place_of(a, index);
        span<T> q = {rows_of<const T>(a, a.q, at.sample, at.head), 0, a.seq};
        span<T> d_o = {rows_of<const T>(a, a.d_o, at.sample, at.head), 0, a.seq};
        for (int q0 = k0; q0 < a.seq; q0 += TILE) {
            q.t0 = d_o.t0 = q0;
            if (threadIdx.x < TILE) {
                const query_sums of_thread = sums_of(a, index, q0 + static_cast<int>(threadIdx.x));
                shared->lse[threadIdx.x] = of_thread.lse;
                shared->delta[threadIdx.x] = of_thread.delta;
            }
            if (a.drop.on)
                keep_tile<TILE, TILE, plain::THREADS>(shared->kept, a, at, q0, k0);
            float s[4][4], dp[4][4];
            scores(s, shared, k, q, a.head_dim);
            scores(dp, shared, v, d_o, a.head_dim);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int column = thread_x() + 16 * j;
                const query_sums query = {shared->lse[column], shared->delta[column]};
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int key = 4 * thread_y() + i;
                    const bool seen = q0 + column >= k0 + key;
                    const bool is = !a.drop.on || is_kept<TILE>(shared->kept, column, key);
                    gradient_of_score(s[i][j], dp[i][j], query, a.scale_log2, keep, seen, is);
                }
            }
            put(shared, s);
            add_moving(dv, shared, d_o, c0, a.head_dim);
            __syncthreads();
            put(shared, dp);
            add_moving(dk, shared, q, c0, a.head_dim);
        }
    }
    const float scales[4] = {a.scale, a.scale, a.scale, a.scale}, keeps[4] = {keep, keep, keep, keep};
    store_sums(rows_of<T>(a, a.dk, sample, kv_head), k0, a.seq, c0, a.head_dim, dk, scales);
    store_sums(rows_of<T>(a, a.dv, sample, kv_head), k0, a.seq, c0, a.head_dim, dv, keeps);
}

/* dq of 64 queries, columns in parts. */
template <typename T, int PARTS> __global__ void __launch_bounds__(plain::THREADS, 1) query_plain(const arguments a)
{
    using namespace plain;
    PLAIT_DYNAMIC_SHARED(shared_tiles, shared);
    const int tiles_of_head = ceil_div(a.seq, TILE);
    const task block = task_of_block(tiles_of_head);
    const place at = place_of(a, first_head(a) + block.head);
    const int q0 = (tiles_of_head - 1 - block.tile) * TILE, c0 = static_cast<int>(blockIdx.y) * (PARTS * TILE);
    const float keep = a.drop.on ? a.drop.keep : 1.0f;
    const span<T> q = {rows_of<const T>(a, a.q, at.sample, at.head), q0, smaller(q0 + TILE, a.seq)};
    const span<T> d_o = {rows_of<const T>(a, a.d_o, at.sample, at.head), q0, q.end};
    span<T> k = {rows_of<const T>(a, a.k, at.sample, at.kv_head), 0, a.seq};
    span<T> v = {rows_of<const T>(a, a.v, at.sample, at.kv_head), 0, a.seq};
    query_sums sums[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        sums[i] = sums_of(a, at.index, q0 + 4 * thread_y() + i);

    float dq[PARTS][4][4] = {};
    for (int k0 = 0; k0 < q.end; k0 += TILE) {
        k.t0 = v.t0 = k0;
        if (a.drop.on)
            keep_tile<TILE, TILE, plain::THREADS>(shared->kept, a, at, q0, k0);
        float s[4][4], dp[4][4];
        scores(s, shared, q, k, a.head_dim);
        scores(dp, shared, d_o, v, a.head_dim);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int query = 4 * thread_y() + i, column = thread_x() + 16 * j;
                const bool is = !a.drop.on || is_kept<TILE>(shared->kept, query, column);
                gradient_of_score(s[i][j], dp[i][j], sums[i], a.scale_log2, keep, k0 + column <= q0 + query, is);
            }
        put(shared, dp);
        add_moving(dq, shared, k, c0, a.head_dim);
    }
    const float scales[4] = {a.scale, a.scale, a.scale, a.scale};
    store_sums(rows_of<T>(a, a.dq, at.sample, at.head), q0, q.end, c0, a.head_dim, dq, scales);
}

/* ---- launches, for the `kv` key/value heads from a.kv0 on ---- */

template <typename T> plait_status launch_delta(const plait_exec *ex, const arguments &a, int64_t kv)
{
    const int64_t rows = kv * (a.heads / a.kv_heads) * a.seq;
    PLAIT_LAUNCH(delta_of_rows<T>, blocks(ceil_div(rows * DELTA_LANES, DELTA_THREADS)), dim3(DELTA_THREADS), 0,
                 plait_cuda_stream_of(ex), a, rows);
    PLAIT_CUDA_LAUNCHED();
    return PLAIT_OK;
}

template <typename T, int DP, int WHICH>
plait_status launch_key_value(const plait_exec *ex, const arguments &a, int64_t kv)
{
    using tiles = key_tiles<DP>;
    PLAIT_TRY(allow_shared(key_value_mma<T, DP, WHICH>, tiles::BYTES));
    PLAIT_LAUNCH((key_value_mma<T, DP, WHICH>), blocks(kv * ceil_div(a.seq, tiles::KEYS)), dim3(THREADS), tiles::BYTES,
                 plait_cuda_stream_of(ex), a);
    PLAIT_CUDA_LAUNCHED();
    return PLAIT_OK;
}

template <typename T, int DP> plait_status launch_mma(const plait_exec *ex, const arguments &a, int64_t kv)
{
    using tiles = query_tiles<DP>;
    if constexpr (DP <= 128) {
        PLAIT_TRY((launch_key_value<T, DP, DK | DV>(ex, a, kv)));
    } else {
        PLAIT_TRY((launch_key_value<T, DP, DK>(ex, a, kv)));
        PLAIT_TRY((launch_key_value<T, DP, DV>(ex, a, kv)));
    }
    PLAIT_TRY(allow_shared(query_mma<T, DP>, tiles::BYTES));
    PLAIT_LAUNCH((query_mma<T, DP>), blocks(kv * (a.heads / a.kv_heads) * ceil_div(a.seq, tiles::QUERIES)),
                 dim3(THREADS), tiles::BYTES, plait_cuda_stream_of(ex), a);
    PLAIT_CUDA_LAUNCHED();
    return PLAIT_OK;
}

template <typename T, int PARTS> plait_status launch_plain(const plait_exec *ex, const arguments &a, int64_t kv)
{
    const int64_t tiles = ceil_div(a.seq, plain::TILE), queries = kv * (a.heads / a.kv_heads) * tiles;
    const unsigned parts = static_cast<unsigned>(ceil_div(a.head_dim, PARTS * plain::TILE));
    PLAIT_LAUNCH((key_value_plain<T, PARTS>), dim3(static_cast<unsigned>(kv * tiles), parts), dim3(plain::THREADS),
                 sizeof(plain::shared_tiles), plait_cuda_stream_of(ex), a);
    PLAIT_CUDA_LAUNCHED();
    PLAIT_LAUNCH((query_plain<T, PARTS>), dim3(static_cast<unsigned>(queries), parts), dim3(plain::THREADS),
                 sizeof(plain::shared_tiles), plait_cuda_stream_of(ex), a);
    PLAIT_CUDA_LAUNCHED();
    return PLAIT_OK;
}

/* ---- which ---- */

using launcher = plait_status (*)(const plait_exec *ex, const arguments &a, int64_t kv);

template <typename T, int DP> bool takes(const arguments &a)
{
    return a.head_dim <= DP && fits(key_tiles<DP>::BYTES) && fits(query_tiles<DP>::BYTES);
}

template <typename T> launcher launcher_of(const arguments &a)
{
    if constexpr (sizeof(T) == sizeof(float))
        return a.head_dim <= 64 ? launch_plain<T, 1> : a.head_dim <= 128 ? launch_plain<T, 2> : launch_plain<T, 4>;
    else
        return takes<T, 32>(a)    ? launch_mma<T, 32>
               : takes<T, 64>(a)  ? launch_mma<T, 64>
               : takes<T, 96>(a)  ? launch_mma<T, 96>
               : takes<T, 128>(a) ? launch_mma<T, 128>
               : takes<T, 192>(a) ? launch_mma<T, 192>
               : takes<T, 256>(a) ? launch_mma<T, 256>
                                  : launch_plain<T, 4>;
}

template <typename T> plait_status backward(const plait_exec *ex, const plait_attention *p)
{
    arguments a = arguments_of<T>(p);
    const int64_t all = a.batch * a.kv_heads;
    if (all * a.seq == 0)
        return PLAIT_OK;
    const size_t bytes = static_cast<size_t>(a.heads / a.kv_heads) * static_cast<size_t>(a.seq) *
                         sizeof(float); /* of one key/value head */
    if (bytes > ex->scratch_bytes)
        PLAIT_FAIL(OUT_OF_MEMORY, "device.workspace %zu bytes: backward of attention over %lld tokens needs %zu",
                   ex->scratch_bytes, static_cast<long long>(a.seq), bytes);
    const int64_t room = static_cast<int64_t>(ex->scratch_bytes / bytes);
    const launcher launch = launcher_of<T>(a);
    a.delta = static_cast<float *>(ex->scratch);
    for (a.kv0 = 0; a.kv0 < all; a.kv0 += room) {
        const int64_t kv = room < all - a.kv0 ? room : all - a.kv0;
        PLAIT_TRY(launch_delta<T>(ex, a, kv));
        PLAIT_TRY(launch(ex, a, kv));
    }
    return PLAIT_OK;
}

} // namespace
} // namespace attention

void plait_cuda_fill_attention_bwd(plait_kernels *k)
{
    k->attention_bwd = k->dtype == PLAIT_FP32   ? attention::backward<float>
                       : k->dtype == PLAIT_BF16 ? attention::backward<__nv_bfloat16>
                                                : attention::backward<__half>;
}
