/* kernels/cuda/attention.cuh: what the kernels of attention share: their arguments, and where the rows of a head lie.
 *
 * Two ways to compute: on tensor cores (attention_mma.cuh), for 16-bit types and heads of at most 256 columns, and
 * plain (attention_plain.cuh), for everything else. Both take tiles of queries and keys as Dao et al. 2022 and Dao 2023
 * ("FlashAttention-2"), skip tiles whose keys are all later than their queries, and use powers of two instead of e:
 * exp(scale s) = 2^(scale log2(e) s).
 */
#ifndef PLAIT_KERNELS_CUDA_ATTENTION_CUH
#define PLAIT_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/vector.cuh"

namespace attention
{

constexpr float LOG2_E = 1.44269504088896340736f, LN_2 = 0.693147180559945309417f;

/* One of q, k, v, o and their gradients. */
struct matrix {
    void *at;
    int64_t ld;
    bool wide; /* each row of each head begins at a multiple of 16 bytes and is one long */
};

/* plait_dropout, as far as attention needs it. */
struct dropout {
    plait_rng rng; /* of sample 0 */
    int64_t head0;
    uint32_t threshold;
    float keep; /* 1 / (1 - p) */
    bool on;
};

/* Positions, heads and columns are int: their products with strides are not. */
struct arguments {
    int64_t batch;
    int seq, heads, kv_heads, head_dim;
    matrix q, k, v, o, d_o, dq, dk, dv;
    dropout drop;
    float *lse;              /* (batch, heads, seq) */
    float *delta;            /* backward: sum_d do o, (heads of this launch, seq) */
    int64_t kv0;             /* backward: the first key/value head of this launch, counted over all samples */
    float scale, scale_log2; /* of scores; times log2(e) */
};

/* A block: which head (or key/value head) of its launch, and which tile of it. */
struct task {
    int head, tile;
};

__device__ __forceinline__ task task_of_block(int tiles)
{
    return {static_cast<int>(blockIdx.x) / tiles, static_cast<int>(blockIdx.x) % tiles};
}

/* Rows of one head of one sample: position t begins at `at` + t * stride. */
template <typename T> struct head_rows {
    T *at;
    int64_t stride;
    bool wide;
};

template <typename T>
__device__ __forceinline__ head_rows<T> rows_of(const arguments &a, const matrix &m, int64_t sample, int head)
{
    return {static_cast<T *>(m.at) + sample * m.ld + static_cast<int64_t>(head) * a.head_dim, a.batch * m.ld, m.wide};
}

/* A query head and what it reads; `index` counts query heads over all samples. */
struct place {
    int64_t index, sample;
    int head, kv_head;
};

__device__ __forceinline__ place place_of(const arguments &a, int64_t index)
{
    const int head = static_cast<int>(index % a.heads);
    return {index, index / a.heads, head, head / (a.heads / a.kv_heads)};
}

__host__ __device__ __forceinline__ int ceil_div(int a, int b)
{
    return a / b + (a % b != 0);
}

__device__ __forceinline__ int smaller(int a, int b)
{
    return a < b ? a : b;
}

using plait_cuda::narrow;
using plait_cuda::widen;

/* ---- host ---- */

inline matrix matrix_of(const void *at, int64_t ld, int64_t head_dim, size_t element)
{
    const uint64_t together = reinterpret_cast<uintptr_t>(at) | static_cast<uint64_t>(ld) * element |
                              static_cast<uint64_t>(head_dim) * element;
    return {const_cast<void *>(at), ld, together % 16 == 0};
}

inline dropout dropout_of(const plait_dropout *d)
{
    dropout drop = {};
    if (d && d->p > 0.0) {
        drop.rng = plait_rng_make(d->seed, d->use, d->layer, d->step, d->sample0);
        drop.head0 = d->head0;
        drop.threshold = plait_dropout_threshold(d->p);
        drop.keep = static_cast<float>(1.0 / (1.0 - d->p));
        drop.on = true;
    }
    return drop;
}

template <typename T> arguments arguments_of(const plait_attention *p)
{
    const auto m = [p](const void *at, int64_t ld) { return matrix_of(at, ld, p->head_dim, sizeof(T)); };
    arguments a = {};
    a.batch = p->batch;
    a.seq = static_cast<int>(p->seq);
    a.heads = static_cast<int>(p->heads);
    a.kv_heads = static_cast<int>(p->kv_heads);
    a.head_dim = static_cast<int>(p->head_dim);
    a.q = m(p->q, p->ldq);
    a.k = m(p->k, p->ldk);
    a.v = m(p->v, p->ldv);
    a.o = m(p->o, p->ldo);
    a.d_o = m(p->d_o, p->lddo);
    a.dq = m(p->dq, p->lddq);
    a.dk = m(p->dk, p->lddk);
    a.dv = m(p->dv, p->lddv);
    a.drop = dropout_of(p->dropout);
    a.lse = static_cast<float *>(p->lse);
    a.scale = static_cast<float>(p->scale);
    a.scale_log2 = static_cast<float>(p->scale * 1.44269504088896340736);
    return a;
}

/* Whether a block may have `bytes` of shared memory here. */
inline bool fits(size_t bytes)
{
    return bytes <= static_cast<size_t>(plait_cuda_device_of()->shared_bytes);
}

/* More than 48 KB must be asked for. It belongs to the kernel on the current device; asking again costs nothing that
 * shows. */
template <typename... A> plait_status allow_shared(void (*kernel)(A...), size_t bytes)
{
    if (bytes > 48 << 10)
        PLAIT_TRY_CUDA(cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                            cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
    return PLAIT_OK;
}

inline dim3 blocks(int64_t n)
{
    return dim3(static_cast<unsigned>(n));
}

} // namespace attention

PLAIT_BEGIN_DECLS
void plait_cuda_fill_attention_bwd(plait_kernels *k); /* attention_bwd.cu: one of the two slots */
PLAIT_END_DECLS

#endif
