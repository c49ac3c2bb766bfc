/* parallel/stage.h: what a pipeline needs of a model. parallel/ calls it, models/ fills it; a schedule never sees a
 * model. */
#ifndef PLAIT_PARALLEL_STAGE_H
#define PLAIT_PARALLEL_STAGE_H

#include "core/mem.h"
#include "kernels/kernels.h"

PLAIT_BEGIN_DECLS

/* One micro-batch of this data rank. tokens and targets: int32 (seq * batch), row t * batch + b; a target below 0 is
 * not counted. Rows may hold samples past the end of an evaluation: all their targets are -1. */
typedef struct plait_micro_batch {
    const int32_t *tokens, *targets;
    uint32_t sample0; /* of the global batch: sample sample0 + b, the key of dropout */
} plait_micro_batch;

typedef enum plait_mode {
    PLAIT_MODE_TRAIN,
    PLAIT_MODE_EVAL,  /* forward and loss, nothing is kept */
    PLAIT_MODE_LOGITS /* forward; the last stage writes its logits to y: A (seq * batch, padded vocabulary / tp) */
} plait_mode;

typedef struct plait_call {
    int chunk, micro;
    int slot; /* among the slots that were bound for the chunk */
    plait_mode mode;
    uint32_t step;
    plait_micro_batch batch;
    double grad_scale; /* d(loss to minimise) / d(token loss): loss scale / counted tokens of the global batch */
    double *loss;      /* sum of token losses is added here by the last stage; device memory, read once a step */
    struct plait_hashes *hashes; /* parallel/tensor_hashes.h: where results are recorded; NULL: nowhere */
    const plait_exec *ex;
} plait_call;

typedef struct plait_stage_ops {
    /* First stage: x is NULL, it reads c's tokens. Last stage: y is NULL (except in LOGITS), it adds to *c->loss.
     * x, y: T (rows of this tensor rank, hidden). x stays untouched until the backward of the same micro-batch has run.
     */
    plait_status (*forward)(void *self, const plait_call *c, const void *x, void *y);
    /* Last stage: dy is NULL. First stage: dx is NULL. */
    plait_status (*backward)(void *self, const plait_call *c, const void *dy, const void *x, void *dx);
    /* Takes every tensor that `chunk` saves for backward once, for slot number `slot`, from a counting arena or a real
     * one. A chunk's slots are numbered 0, 1, ... in the order of their first binding; slot 0 is bound more than once
     * (to be measured, then for real): the last binding holds. All slots of a chunk take the same bytes. */
    plait_status (*bind)(void *self, int chunk, int slot, plait_arena *mem);
} plait_stage_ops;

typedef struct plait_stage {
    const plait_stage_ops *ops;
    void *self;
} plait_stage;

PLAIT_END_DECLS
#endif
