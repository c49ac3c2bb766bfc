/* parallel/tensor_hashes.h: 64 bits of each result of a training step, the same for every topology that computes the
 * same bits (debug.tensor_hashes).
 *
 * A result is recorded in as many slices as split matrices have (numerics.tensor_slices): what is split over the tensor
 * group slice by slice, anything else by rows, in equal parts of the micro-batch's positions. The tensor rank that has
 * slice i of a matrix records slice i of either kind. So every topology has the same records, each of them once, and of
 * replicas each gives a part: one that went its own way is found.
 *
 * A record is a hash and its number in the canonical order, which is that of a step on one rank:
 *
 *   each micro-batch of the global batch: forward from the embedding to the loss, then backward the same way back
 *   the gradient of each logical tensor, reduced, before clipping
 *   the weights of each logical tensor after the update
 *
 * The backward record of an operation is the gradient of its result, so it has the same slices. Replayed forwards are
 * not recorded again. Ranks write down what they compute; at the end of a step rank 0 collects.
 */
#ifndef PLAIT_PARALLEL_TENSOR_HASHES_H
#define PLAIT_PARALLEL_TENSOR_HASHES_H

#include "parallel/comm.h"
#include "parallel/model.h"

PLAIT_BEGIN_DECLS

/* In the order of forward. */
typedef enum plait_hash_op {
    PLAIT_HASH_EMBEDDING, /* with positions and dropout */
    PLAIT_HASH_INPUT_LAYERNORM,
    PLAIT_HASH_QKV,
    PLAIT_HASH_ROPE, /* models that rotate alone */
    PLAIT_HASH_CORE_ATTN,
    PLAIT_HASH_PROJ,          /* before its bias */
    PLAIT_HASH_ATTN_RESIDUAL, /* after bias, dropout and addition */
    PLAIT_HASH_POST_ATTENTION_LAYERNORM,
    PLAIT_HASH_UP,
    PLAIT_HASH_ACT,
    PLAIT_HASH_DOWN,
    PLAIT_HASH_MLP_RESIDUAL, /* the layer's output */
    PLAIT_HASH_FINAL_LAYERNORM,
    PLAIT_HASH_LOGITS,
    PLAIT_HASH_LOSS,     /* forward alone, whole: the sum over the micro-batch's tokens, a double */
    PLAIT_HASH_GRADIENT, /* of a logical tensor, likewise the next */
    PLAIT_HASH_WEIGHT,
    PLAIT_HASH_OPS
} plait_hash_op;

/* "embedding", "input_layernorm", ... */
const char *plait_hash_op_name(plait_hash_op op);
/* Operations of a layer, as opposed to those of embedding, head and step. */
bool plait_hash_op_of_layer(plait_hash_op op);
/* Those of a step: a hash of a whole tensor, to which several ranks have added. */
bool plait_hash_op_of_step(plait_hash_op op);

typedef struct plait_hash_record {
    int64_t step;
    int64_t micro; /* among those of the global batch; -1: gradients, weights */
    int64_t layer; /* of layers' operations; -1: others */
    plait_hash_op op;
    bool backward;
    int slice;          /* -1: whole */
    const char *tensor; /* gradients, weights: its name; "": others */
    uint64_t hash;
    int rank; /* that computed it; -1: several have added to it */
} plait_hash_record;

/* Below, at or above 0: a comes before b in the canonical order, is of the same place, comes after it. */
int plait_hash_compare_place(const plait_hash_record *a, const plait_hash_record *b);

typedef struct plait_hashes plait_hashes;
struct plait_engine;

/* Takes the buffers of a rank from `arena`: `micros` is the most micro-batches of a training step on a data rank. list:
 * the rank's parameters. Rank 0 has room for the records of all. */
PLAIT_MUST_USE plait_status plait_hashes_create(const plait_config *cfg, const plait_topology *topo,
                                                const plait_model_ops *model, const plait_param_list *list, int micros,
                                                plait_arena *arena, plait_hashes **out);
void plait_hashes_destroy(plait_hashes *h);

/* ---- a step ---- */

/* Forgets the step before. This rank's micro-batches are `micros` from its data rank's first on. */
void plait_hashes_begin(plait_hashes *h, int micros);

/* What is recorded: micro is this rank's own number, slice one of all ranks' (whole: 0). */
typedef struct plait_hash_place {
    int micro;
    int64_t layer;
    plait_hash_op op;
    bool backward;
    int64_t slice;
} plait_hash_place;
/* x: `rows` rows of row_bytes bytes, one every `stride` bytes. */
PLAIT_MUST_USE plait_status plait_hashes_add(plait_hashes *h, const plait_exec *ex, const plait_hash_place *place,
                                             const void *x, int64_t rows, size_t row_bytes, size_t stride);
/* Adds what this rank holds and counts of the gradients or the weights (GRADIENT or WEIGHT). */
PLAIT_MUST_USE plait_status plait_hashes_add_tensors(plait_hashes *h, struct plait_engine *e, plait_hash_op which);
/* Brings all ranks' records to rank 0. Collective. */
PLAIT_MUST_USE plait_status plait_hashes_collect(plait_hashes *h, plait_comm *world);

/* Rank 0, after collecting: calls visit for each record in order; the visitor knows which step it was. A place without
 * a record is left out. */
typedef void (*plait_hash_visit)(void *self, const plait_hash_record *r);
void plait_hashes_visit(const plait_hashes *h, plait_hash_visit visit, void *self);

PLAIT_END_DECLS
#endif
