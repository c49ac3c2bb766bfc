/* models/decoder_impl.h: the frame's state, shared by decoder.c, embedding.c, block.c and head.c. */
#ifndef PLAIT_MODELS_DECODER_IMPL_H
#define PLAIT_MODELS_DECODER_IMPL_H

#include "models/decoder.h"

/* What a layer keeps for its backward. NULL: recomputed there (recompute.modules). */
typedef struct plait_layer_saved {
    const void *x;               /* its input, T (local rows, hidden); somebody else's memory */
    void *norm1, *mean1, *rstd1; /* T (local rows, hidden); A (local rows), mean for LayerNorm alone */
    void *qkv, *attn, *lse;      /* T (rows, qkv), T (rows, heads * head_dim), A (batch, heads, seq) */
    void *mid;                   /* T (local rows, hidden): after attention */
    void *norm2, *mean2, *rstd2;
    void *up, *act; /* T (rows, up), T (rows, ffn) */
} plait_layer_saved;

typedef struct plait_head_saved {
    const void *x;
    void *norm, *mean, *rstd;
    void *logits; /* A (rows, vocab_rows), turned into their gradient in place */
} plait_head_saved;

/* One micro-batch's place in a chunk. */
typedef struct plait_slot {
    void **hidden;             /* hidden[i]: input of layer i, hidden[num_layers]: of the head; NULL: not kept here */
    plait_layer_saved *layers; /* of layers that are not replayed */
    plait_head_saved head;
} plait_slot;

typedef struct plait_chunk {
    int64_t first_layer;
    int num_layers;
    bool first, last; /* has the embedding, the head */
    plait_slot **slots;
    int num_slots;
} plait_chunk;

/* The units of the token matrix or the head: blocks of rows. */
typedef struct plait_row_blocks {
    int first_unit, count;
    int64_t rows; /* of each block but the last */
} plait_row_blocks;

/* Where everything that is not a layer lies in the list. */
typedef struct plait_decoder_units {
    plait_layer_params *layers; /* of this rank's layers, chunk after chunk */
    plait_row_blocks tokens, head;
    int position, final_norm; /* units, -1: not on this rank */
    int64_t final_norm_bias;  /* offset, -1: none */
} plait_decoder_units;

typedef struct plait_decoder {
    const plait_architecture *arch;
    plait_model_args a;
    plait_tp tp;
    plait_decoder_dims dims;
    plait_decoder_units units;
    plait_chunk *chunks;
    int num_chunks;
    void *rope; /* A (seq, head_dim / 2, 2), NULL without rotation */

    /* Full recomputation: layers are replayed in groups; a group's sets and inner inputs are shared by all slots. */
    int group;    /* layers a group; 0: none */
    int replayed; /* uniform: all; block: the first so many layers of a chunk */
    plait_layer_saved *replay;
    void **replay_hidden; /* input of the group's layer 1, 2, ... */
} plait_decoder;

/* Building a list (decoder_params.c); fills `units` when it is not NULL, whose layers the caller frees. */
plait_status plait_decoder_build(const plait_architecture *arch, const plait_config *cfg, const plait_topology *topo,
                                 plait_param_list *list, plait_decoder_units *units);
void plait_decoder_dims_init(plait_decoder_dims *d, const plait_config *cfg, const plait_topology *topo);

/* Address of parameter or gradient element `offset` of an acquired unit; NULL for offset -1. */
const void *plait_weight(const plait_decoder *m, const plait_unit_view *v, int64_t offset);
void *plait_grad(const plait_decoder *m, const plait_unit_view *v, int64_t offset);
/* The mask of `use` in this call; NULL when nothing is dropped. `storage` holds it. */
const plait_dropout *plait_drop(const plait_decoder *m, const plait_call *c, plait_rng_use use, int64_t layer, double p,
                                plait_dropout *storage);

/* Either norm; mean and bias are NULL for RMSNorm. */
plait_status plait_norm_fwd(const plait_decoder *m, const plait_exec *ex, void *y, void *mean, void *rstd,
                            const void *x, const void *w, const void *b);
plait_status plait_norm_bwd(const plait_decoder *m, const plait_exec *ex, void *dx, void *dw, void *db, const void *dy,
                            const void *dres, const void *x, const void *w, const void *mean, const void *rstd);

/* Takes what a layer keeps from an arena, less what is recomputed. */
plait_status plait_block_bind(const plait_decoder *m, plait_arena *mem, plait_layer_saved *s);
/* out NULL: only what backward needs is computed (a replay). x, out: T (local rows, hidden) */
plait_status plait_block_fwd(const plait_decoder *m, const plait_call *c, int64_t layer, const plait_layer_params *p,
                             const plait_unit_view *v, plait_layer_saved *s, const void *x, void *out);
plait_status plait_block_bwd(const plait_decoder *m, const plait_call *c, int64_t layer, const plait_layer_params *p,
                             const plait_unit_view *v, plait_layer_saved *s, const void *dy, void *dx);

/* out: T (local rows, hidden) */
plait_status plait_embedding_forward(const plait_decoder *m, const plait_call *c, void *out);
plait_status plait_embedding_backward(const plait_decoder *m, const plait_call *c, const void *dy);

plait_status plait_head_bind(const plait_decoder *m, plait_arena *mem, plait_head_saved *s);
/* x: T (local rows, hidden); logits: A (rows, vocab_rows) in LOGITS mode, else NULL */
plait_status plait_head_forward(const plait_decoder *m, const plait_call *c, plait_head_saved *s, const void *x,
                                void *logits);
plait_status plait_head_backward(const plait_decoder *m, const plait_call *c, plait_head_saved *s, void *dx);

#endif
