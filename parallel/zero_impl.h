/* parallel/zero_impl.h: the state behind parallel/zero.h, for zero.c (states and brackets) and zero_step.c (end of a
 * step). */
#ifndef PLAIT_PARALLEL_ZERO_IMPL_H
#define PLAIT_PARALLEL_ZERO_IMPL_H

#include "parallel/zero.h"

/* Requests that a loop over units keeps open at once. */
#define PLAIT_ZERO_OPEN 16

/* A short queue of requests: pushing into a full one waits for the oldest. */
typedef struct plait_request_queue {
    plait_request *open[PLAIT_ZERO_OPEN];
    int first, count;
} plait_request_queue;

typedef struct plait_unit_state {
    int64_t *offsets;        /* shards of the data ranks, dp + 1 values */
    int64_t held, held_end;  /* elements whose reduced gradient, master and moments are here */
    void *param;             /* T: whole, or the shard (stage 3) */
    void *grad;              /* A or int64 (exact): whole, or the held range (shard_grads) */
    void *master;            /* A, the held range; NULL where T = A */
    void *moment1, *moment2; /* A, the held range; SGD: momentum or NULL, NULL */
    int releases;            /* still to come in this step */
} plait_unit_state;

struct plait_zero {
    plait_zero_options o;
    plait_dtype acc, grad_type; /* A; of gradients: A or int64 */
    int data_rank, data_size;
    bool shard_params, shard_grads;
    plait_zero_arenas arenas;
    plait_unit_state *units;
    int64_t *offsets; /* of all units */

    /* stages 2 and 3: where a unit's gradient is formed before it is reduced; two, so that one can be reduced meanwhile
     */
    struct {
        void *data;
        plait_request *reduction;
    } scratch[2];
    int next_scratch;

    /* exact mode: where backward adds, A, as large as the largest unit; what a term is added to; by which factor
     * it is multiplied, and what it must be below */
    void *leaf;
    int64_t *terms;
    double unscale, limit;
    int32_t overflow; /* of a term of this step */

    /* stage 3 */
    char *gather_buffer;
    const plait_zero_order *order;
    int position;            /* of the next acquire for reading in the order */
    int next_gather;         /* the first position whose gather has not been started */
    plait_request **gathers; /* by position modulo (1 + prefetch) */
    plait_zero_order *record;

    bool train;
    int releases_left; /* of all units in this step */
    plait_request_queue reductions;
    plait_zero_stats stats;
};

plait_status plait_request_queue_push(plait_request_queue *q, plait_request *r, const plait_exec *ex);
plait_status plait_request_queue_drain(plait_request_queue *q, const plait_exec *ex);

/* Address in the unit's parameter buffer of unit element i (which must be held there). */
void *plait_zero_param_at(const plait_zero *z, int unit, int64_t i);
/* Address in the gradient buffer, likewise. */
void *plait_zero_grad_at(const plait_zero *z, int unit, int64_t i);

#endif
