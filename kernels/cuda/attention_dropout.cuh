/* kernels/cuda/attention_dropout.cuh: which probabilities of a tile dropout keeps, as bits in shared memory.
 *
 * An element's word is one of the four of a block of Philox, and neighbours in a block are keys of one query. No layout
 * of scores in registers has all four in one thread, so bits are drawn in the order of the blocks and then looked up.
 */
#ifndef PLAIT_KERNELS_CUDA_ATTENTION_DROPOUT_CUH
#define PLAIT_KERNELS_CUDA_ATTENTION_DROPOUT_CUH

#include "kernels/cuda/attention.cuh"

namespace attention
{

/* Bit i: element first + i is kept. */
__device__ __forceinline__ uint32_t kept_32(const plait_rng &rng, uint32_t threshold, uint64_t first)
{
    const int skip = static_cast<int>(first % 4);
    const int blocks = skip ? 9 : 8;
    uint64_t bits = 0;
#pragma unroll 1
    for (int i = 0; i < blocks; i++) {
        uint32_t word[4];
        plait_rng_block(&rng, first / 4 + static_cast<uint64_t>(i), word);
#pragma unroll
        for (int w = 0; w < 4; w++)
            bits |= static_cast<uint64_t>(word[w] >= threshold) << (4 * i + w);
    }
    return static_cast<uint32_t>(bits >> skip);
}

/* kept (QUERIES, KEYS / 32): bits of queries from q0 and keys from k0 of a head, by THREADS threads. What is drawn past
 * the end of the sequence is not looked up. */
template <int QUERIES, int KEYS, int THREADS>
__device__ __forceinline__ void keep_tile(uint32_t *kept, const arguments &a, const place &at, int q0, int k0)
{
    constexpr int WORDS = KEYS / 32;
    plait_rng rng = a.drop.rng;
    rng.minor += static_cast<uint32_t>(at.sample);
    for (int i = threadIdx.x; i < QUERIES * WORDS; i += THREADS) {
        const int64_t row = (a.drop.head0 + at.head) * a.seq + q0 + i / WORDS;
        kept[i] = kept_32(rng, a.drop.threshold, static_cast<uint64_t>(row * a.seq + k0 + i % WORDS * 32));
    }
}

/* Looks one up: query and key of the tile. */
template <int KEYS> __device__ __forceinline__ bool is_kept(const uint32_t *kept, int query, int key)
{
    return kept[query * (KEYS / 32) + key / 32] >> key % 32 & 1;
}

} // namespace attention
#endif
