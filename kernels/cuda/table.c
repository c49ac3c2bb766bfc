/* The tables of the three types, put together at the first call. */
#include "kernels/cuda/cuda_impl.h"

static void fill(plait_kernels *k)
{
    k->epilogues = true;
    plait_cuda_fill_gemm(k);
    plait_cuda_fill_embedding(k);
    plait_cuda_fill_norm(k);
    plait_cuda_fill_rope(k);
    plait_cuda_fill_attention(k);
    plait_cuda_fill_activation(k);
    plait_cuda_fill_bias(k);
    plait_cuda_fill_cross_entropy(k);
    plait_cuda_fill_optim(k);
    plait_cuda_fill_fixed(k);
    plait_cuda_fill_memory(k);
}

const plait_kernels *plait_kernels_cuda(plait_dtype dtype)
{
    static plait_kernels tables[] = {{.name = "cuda", .dtype = PLAIT_FP32, .acc = PLAIT_FP32},
                                     {.name = "cuda", .dtype = PLAIT_BF16, .acc = PLAIT_FP32},
                                     {.name = "cuda", .dtype = PLAIT_FP16, .acc = PLAIT_FP32}};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        if (tables[i].dtype != dtype)
            continue;
        if (!tables[i].gemm)
            fill(&tables[i]);
        return &tables[i];
    }
    return NULL;
}
