/* kernels/cuda/dropout.cuh: the factors of dropout, 0 or 1 / (1 - p): the same bits as every other table's. */
#ifndef PLAIT_KERNELS_CUDA_DROPOUT_CUH
#define PLAIT_KERNELS_CUDA_DROPOUT_CUH

#include "kernels/cuda/vector.cuh"

namespace plait_cuda
{

/* A plait_dropout as a kernel takes it. threshold 0 drops nothing: `on` says whether there is anything to do. */
struct Dropout {
    bool on;
    uint32_t threshold, sample0;
    float scale;
    plait_rng rng; /* of sample 0: `minor` is set for each sample */
};

inline Dropout dropout_of(const plait_dropout *d)
{
    Dropout out = {};
    if (!d || !(d->p > 0.0))
        return out;
    out.on = true;
    out.threshold = plait_dropout_threshold(d->p);
    out.sample0 = d->sample0;
    out.scale = static_cast<float>(1.0 / (1.0 - d->p));
    out.rng = plait_rng_make(d->seed, d->use, d->layer, d->step, 0);
    return out;
}

/* Of elements first to first + W - 1 of sample sample0 + `sample`. W is 1, or a multiple of 4, and then so is first. */
template <int W> __device__ __forceinline__ Floats<W> dropout_factors(const Dropout &d, uint32_t sample, uint64_t first)
{
    plait_rng rng = d.rng;
    rng.minor = d.sample0 + sample;
    Floats<W> f;
    uint32_t word[4];
    if constexpr (W == 1) {
        plait_rng_block(&rng, first / 4, word);
        const uint32_t low = first & 1 ? word[1] : word[0], high = first & 1 ? word[3] : word[2];
        f.v[0] = (first & 2 ? high : low) < d.threshold ? 0.0f : d.scale;
    } else {
#pragma unroll
        for (int j = 0; j < W; j += 4) {
            plait_rng_block(&rng, first / 4 + j / 4, word);
#pragma unroll
            for (int i = 0; i < 4; i++)
                f.v[j + i] = word[i] < d.threshold ? 0.0f : d.scale;
        }
    }
    return f;
}

} // namespace plait_cuda
#endif
