/* models/decoder_impl.h: the frame's state, shared by decoder.c, embedding.c, block.c and head.c. */
#ifndef PLAIT_MODELS_DECODER_IMPL_H
#define PLAIT_MODELS_DECODER_IMPL_H

#include "models/decoder.h"
#include "parallel/tensor_hashes.h"

/* What a layer keeps for its backward. NULL: recomputed there (recompute.modules). */
typedef struct plait_layer_saved {
    const void *x;               /* its input, T (local rows, hidden); somebody else's memory */
    void *norm1, *mean1, *rstd1; /* T (local rows, hidden); A (local rows), mean for LayerNorm alone */
    void *qkv, *attn, *lse;      /* of each slice: T (rows, qkv), T (rows, heads * head_dim), A (batch, heads, seq) */
    void *mid;                   /* T (local rows, hidden): after attention */
    void *norm2, *mean2, *rstd2;
    void *up, *act; /* of each slice: T (rows, up), T (rows, ffn) */
} plait_layer_saved;

typedef struct plait_head_saved {
    const void *x;
    void *norm, *mean, *rstd;
    void *logits; /* A (slices, rows, vocab_rows), turned into their gradient in place */
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

/* The units of the token matrix or the head: blocks of rows, `count` for each slice. */
typedef struct plait_row_blocks {
    int first_unit, count;
    int64_t rows; /* of each block but a slice's last */
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
/* The mask of `use` in this call, from the first local row and, of attention, the rank's first slice on; NULL when
 * nothing is dropped. `storage` holds it. */
const plait_dropout *plait_drop(const plait_decoder *m, const plait_call *c, plait_rng_use use, int64_t layer, double p,
                                plait_dropout *storage);

/* Rows [begin, begin + n) of the local ones, from position t0 on. What rows add to a parameter that is not cut is added
 * up piece by piece: in exact mode the positions of a micro-batch are cut into as many pieces as there are slices, of
 * which sequence parallelism gives each rank whole ones; else there is one piece. */
typedef struct plait_piece {
    int64_t t0, begin, n;
} plait_piece;
int plait_num_pieces(const plait_decoder *m);
plait_piece plait_piece_at(const plait_decoder *m, int i);

/* Records a result (parallel/tensor_hashes.h) of layer and operation `p`; nothing when the call has no record. What all
 * tensor ranks have, or share by rows: x: T (local rows, hidden). */
plait_status plait_hash_rows(const plait_decoder *m, const plait_call *c, plait_hash_place p, const void *x);
/* Of each slice: x: T (slices, rows, columns) */
plait_status plait_hash_blocks(const plait_decoder *m, const plait_call *c, plait_hash_place p, const void *x,
                               int64_t columns);
/* Likewise with rows of `row_bytes` bytes, one every `stride` bytes. */
plait_status plait_hash_slices(const plait_decoder *m, const plait_call *c, plait_hash_place p, const void *x,
                               size_t row_bytes, size_t stride);
plait_status plait_hash_loss(const plait_decoder *m, const plait_call *c);

/* Either norm; mean and bias are NULL for RMSNorm. */
plait_status plait_norm_fwd(const plait_decoder *m, const plait_exec *ex, void *y, void *mean, void *rstd,
                            const void *x, const void *w, const void *b);
/* Weight and bias lie at these offsets of the unit; bias -1: none. */
plait_status plait_norm_bwd(const plait_decoder *m, const plait_exec *ex, const plait_unit_view *v, int64_t weight,
                            int64_t bias, void *dx, const void *dy, const void *dres, const void *x, const void *mean,
                            const void *rstd);

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
