/* models/decoder.h: a decoder-only transformer, the frame that GPT-2 and Llama share.
 *
 *   tokens -> embedding (+ positions) -> layers -> final norm -> head -> cross-entropy
 *
 * An architecture says which norm, activation and positions it has and what its tensors are called (gpt/, llama/);
 * decoder.c walks the chunks of a rank, embedding.c, block.c and head.c hold the layers, forward and backward side by
 * side.
 */
#ifndef PLAIT_MODELS_DECODER_H
#define PLAIT_MODELS_DECODER_H

#include "parallel/model.h"
#include "parallel/tensor.h"

PLAIT_BEGIN_DECLS

/* Where the parameters of one layer lie in its unit, in elements; -1: the architecture has none. Matrices are [out, in]
 * of one slice; those of the next slice lie `stride` behind. qkv is q, k and v one below the other, likewise up is gate
 * then up for SwiGLU. */
typedef struct plait_layer_params {
    int unit;
    int64_t stride;
    int64_t norm1, norm1_bias, qkv, qkv_bias, proj, proj_bias;
    int64_t norm2, norm2_bias, up, up_bias, down, down_bias;
} plait_layer_params;

/* Extents on one rank. A slice is what a tensor rank would have if there were as many ranks as slices (with reduction
 * fast there are): every product, attention and softmax is of one slice. */
typedef struct plait_decoder_dims {
    int64_t batch, seq, rows, local_rows; /* rows = seq * batch; local_rows: / tp with sequence parallelism */
    int64_t local_t0, local_seq;          /* positions of the local rows */
    int64_t slices;                       /* on this rank */
    int64_t slice0;                       /* the first of them, among those of all ranks */
    int64_t hidden, head_dim, heads, kv_heads, qkv, ffn, up; /* heads, qkv width, ffn, up width: of a slice */
    int64_t vocab, vocab_rows; /* real words in all; rows of the token matrix in a slice, padding included */
} plait_decoder_dims;

/* A builder's view of a rank, for the architectures' parameter lists. An architecture names all its tensors each time;
 * one pass takes those that are cut, for each slice, another those that are not. */
typedef struct plait_param_builder {
    const plait_config *cfg;
    plait_param_list *list;
    bool sequence_parallel;
    bool cut;            /* the pass: tensors that are cut, or the others */
    int slices, slice;   /* of all ranks; the slice of this pass */
    int replicas;        /* slices that share a key/value head: max(1, slices / num_query_groups) */
    int local_replicas;  /* those of them on this rank */
    plait_group partial; /* of replicas: PLAIT_GROUP_KV when other ranks have some too, else PLAIT_GROUPS */
} plait_param_builder;

typedef struct plait_architecture {
    bool rms_norm, rope, swiglu;
    const char *token_name, *head_name, *final_norm_name, *final_norm_bias_name, *position_name; /* NULL: none */
    /* Adds the parameters of one layer, matrices first, and says where they are. */
    plait_status (*layer)(const plait_param_builder *b, int64_t layer, plait_layer_params *out);
} plait_architecture;

/* How a layer's tensor is cut over the tensor group. */
typedef enum plait_cut {
    PLAIT_CUT_NONE, /* replicated */
    PLAIT_CUT_ROWS, /* column-parallel: outputs are split */
    PLAIT_CUT_KV,   /* the same by key/value heads, replicated when there are fewer heads than slices */
    PLAIT_CUT_COLS  /* row-parallel: inputs are split */
} plait_cut;

/* One tensor, or one named part of a fused one, of the whole model. */
typedef struct plait_tensor_spec {
    plait_cut cut;
    int64_t out, in;   /* of the part; in = 0 for a vector */
    int64_t file_row0; /* where the part begins in the file's tensor (rows of [out, in]) */
    int64_t file_rows; /* rows of the file's tensor; 0: out */
    bool transposed;
    plait_init init;
    double std;
    uint32_t rng_tensor;
    int64_t layer; /* -1: not of a layer */
} plait_tensor_spec;

/* Adds this rank's block of the tensor to the open unit; *offset is where it begins there. */
PLAIT_MUST_USE plait_status plait_build_tensor(const plait_param_builder *b, const plait_tensor_spec *spec,
                                               int64_t *offset, const char *name, ...) PLAIT_PRINTF(4, 5);

extern const plait_architecture plait_gpt2;
extern const plait_architecture plait_llama;

/* The operations of parallel/model.h for an architecture. */
PLAIT_MUST_USE plait_status plait_decoder_params(const plait_architecture *arch, const plait_config *cfg,
                                                 const plait_topology *topo, plait_param_list *out);
PLAIT_MUST_USE plait_status plait_decoder_create(const plait_architecture *arch, const plait_model_args *args,
                                                 plait_stage *out);
void plait_decoder_destroy(plait_stage *stage);

PLAIT_END_DECLS
#endif
