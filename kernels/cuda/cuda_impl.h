/* kernels/cuda/cuda_impl.h: what the files of kernels/cuda share.
 *
 * runtime.c   device, memory, streams, errors: the backend
 * gemm.c      matrix products; gemm_library.c: those that cuBLASLt computes
 * table.c     puts the tables together
 * *.cu        kernels, a file for each kind of operation; each fills the slots of what it computes
 */
#ifndef PLAIT_KERNELS_CUDA_CUDA_IMPL_H
#define PLAIT_KERNELS_CUDA_CUDA_IMPL_H

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/stream.h"

PLAIT_BEGIN_DECLS

struct plait_cuda_gemms;

plait_status plait_cuda_gemms_create(struct plait_cuda_gemms **out);
void plait_cuda_gemms_destroy(struct plait_cuda_gemms *g);

/* Streaming multiprocessors of the device, and bytes of shared memory that a block may have. Known after open. */
typedef struct plait_cuda_device {
    int sms;
    int shared_bytes;
} plait_cuda_device;
const plait_cuda_device *plait_cuda_device_of(void);

/* ---- slots ---- */

/* Each fills the slots of its file, for k->dtype. */
void plait_cuda_fill_gemm(plait_kernels *k);          /* gemm.c: gemm */
void plait_cuda_fill_embedding(plait_kernels *k);     /* embedding.cu: embedding, position */
void plait_cuda_fill_norm(plait_kernels *k);          /* norm.cu: layernorm, rmsnorm */
void plait_cuda_fill_rope(plait_kernels *k);          /* rope.cu: rope_table, rope */
void plait_cuda_fill_attention(plait_kernels *k);     /* attention_fwd.cu, attention_bwd.cu */
void plait_cuda_fill_activation(plait_kernels *k);    /* activation.cu: gelu, swiglu */
void plait_cuda_fill_bias(plait_kernels *k);          /* bias_dropout.cu: bias_dropout_add, bias_grad */
void plait_cuda_fill_cross_entropy(plait_kernels *k); /* cross_entropy.cu */
void plait_cuda_fill_optim(plait_kernels *k);         /* optim.cu: adamw, sgd, unscale, sum_squares */
void plait_cuda_fill_fixed(plait_kernels *k);         /* fixed.cu: fixed_add, fixed_read, fixed_squares */
void plait_cuda_fill_memory(plait_kernels *k);        /* memory.cu: hash, cast, add, zero, copy */

PLAIT_END_DECLS
#endif
