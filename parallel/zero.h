/* parallel/zero.h: the model states of one rank (parameters, gradients, optimizer states) and how data ranks share
 * them.
 *
 * ZeRO (Rajbhandari et al. 2020) is one mechanism over units: stages 0 to 3 are the same code that differs in what is
 * kept.
 *
 *   stage | parameters              | gradients              | optimizer | per unit over the data ranks
 *   0     | whole                   | whole                  | whole     | all-reduce
 *   0 (*) | whole                   | whole                  | root only | reduce, update on the root, broadcast
 *   1     | whole                   | whole                  | 1/dp      | reduce-scatter, all-gather
 *   2     | whole                   | 1/dp and two scratches | 1/dp      | M reduce-scatters, all-gather
 *   3     | 1/dp and gathered units | 1/dp and two scratches | 1/dp      | 2 M all-gathers, M reduce-scatters
 *
 * In exact mode gradients are int64: backward adds to a leaf, A, as large as the unit, and what is complete there is
 * added to the integers as a term.
 *
 * (*) gather_to_root. M: micro-batches. A layer brackets its use of a unit with acquire and release; it never sees a
 * stage. Brackets do not nest. Storage: parameters T; gradients, masters and moments A. Where T = A the parameter is
 * its own master.
 */
#ifndef PLAIT_PARALLEL_ZERO_H
#define PLAIT_PARALLEL_ZERO_H

#include "core/pack.h"
#include "parallel/comm.h"
#include "parallel/param.h"

PLAIT_BEGIN_DECLS

typedef struct plait_zero plait_zero;

typedef struct plait_zero_options {
    int stage;
    bool gather_to_root, keep_full_gradients;
    bool exact;    /* gradients are sums of terms in fixed point (core/fixed.h), in any order (reduction invariant) */
    int64_t terms; /* exact: the most that a micro-batch adds to an element, over the ranks that share it */
    bool forward_only; /* parameters alone are kept: no gradients, masters or moments */
    int prefetch_units;
    plait_dtype dtype, wire; /* wire: communication_data_type of gradients */
    plait_optimizer_type optimizer;
    double beta1, beta2, eps, momentum;
    const plait_param_list *list; /* outlives the zero */
    const plait_groups *groups;   /* likewise */
    const plait_exec *ex;
} plait_zero_options;

/* Where the states lie; real arenas, or counting ones for a plan. */
typedef struct plait_zero_arenas {
    plait_arena *param, *grad, *optim;
} plait_zero_arenas;

PLAIT_MUST_USE plait_status plait_zero_create(const plait_zero_options *o, const plait_zero_arenas *arenas,
                                              plait_zero **out);
void plait_zero_destroy(plait_zero *z);

/* ---- orders of acquires: what prefetch follows ---- */

/* A sequence of unit indices, in the order in which a run of a schedule acquires them for reading. */
typedef struct plait_zero_order {
    int *units;
    int length;
    plait_interval *buffers; /* stage 3: where each lies in the gather buffer; plait_zero_plan_gathers fills it */
} plait_zero_order;

void plait_zero_order_deinit(plait_zero_order *order);
/* From now on every acquire for reading is appended to `into` (NULL: stop). For the dry pass that finds the order. */
void plait_zero_record(plait_zero *z, plait_zero_order *into);
/* Takes the gather buffer, large enough for each order with prefetch, from the parameter arena. Stage 3 only. */
PLAIT_MUST_USE plait_status plait_zero_plan_gathers(plait_zero *z, plait_zero_order *const *orders, int num_orders);

/* ---- one run of a schedule ---- */

/* Begins a run that acquires in `order`. train: gradients are zeroed; each unit will be released `micros` times its
 * uses. loss_scale: what the gradients will be too large by; exact mode divides each term by it. */
PLAIT_MUST_USE plait_status plait_zero_begin(plait_zero *z, const plait_zero_order *order, bool train, int micros,
                                             double loss_scale);

typedef struct plait_unit_view {
    const void *param; /* T (numel) */
    void *grad;        /* A (numel), to be added to; NULL without PLAIT_ACQUIRE_GRAD */
} plait_unit_view;

enum { PLAIT_ACQUIRE_PARAM = 1, PLAIT_ACQUIRE_GRAD = 2 };

PLAIT_MUST_USE plait_status plait_zero_acquire(plait_zero *z, int unit, unsigned what, plait_unit_view *view);
/* In exact mode what has been added to elements [begin, begin + n) of an acquired gradient is one term of their sum,
 * and what is added from now on belongs to the next. Else nothing: all of a bracket is one term. */
PLAIT_MUST_USE plait_status plait_zero_end_term(plait_zero *z, const plait_unit_view *view, int64_t begin, int64_t n);
/* With PLAIT_ACQUIRE_GRAD: the unit's gradient of this micro-batch is complete. Starts its reduction when it is due
 * (stages 2 and 3: always; stages 0 and 1: with the step's last release), and does not wait for it. */
PLAIT_MUST_USE plait_status plait_zero_release(plait_zero *z, int unit, unsigned what);

/* ---- the end of a step ---- */

/* Waits for all reductions, then sums partial gradients over their groups and tied copies over the embedding group. */
PLAIT_MUST_USE plait_status plait_zero_reduce_rest(plait_zero *z);
/* Multiplies held gradients by `scale` and sets *found_inf on an infinity or NaN (fp16). Not in exact mode. */
PLAIT_MUST_USE plait_status plait_zero_unscale(plait_zero *z, double scale, int32_t *found_inf);
/* Adds the sum of squares of the gradients that this rank counts: summed over the world it is the squared L2 norm of
 * the global gradient, each parameter once. */
PLAIT_MUST_USE plait_status plait_zero_sum_squares(plait_zero *z, double *sum);
/* The same in exact mode. *overflow = 1 if a term, a gradient or its square was too large. */
PLAIT_MUST_USE plait_status plait_zero_sum_squares_exact(plait_zero *z, plait_fixed_squares *sum, int32_t *overflow);

typedef struct plait_update {
    double lr, weight_decay;
    double grad_scale; /* clipping */
    int64_t t;         /* number of this update, from 1: skipped steps do not count */
} plait_update;
/* Optimizer step on what this rank holds, then makes parameters whole again (stages 0 to 2). */
PLAIT_MUST_USE plait_status plait_zero_update(plait_zero *z, const plait_update *u);

/* ---- values in and out (initial weights, weight files) ---- */

/* Gives the values of elements [begin, begin + n) of a parameter's local block. */
typedef plait_status (*plait_value_source)(void *self, const plait_param *p, int64_t begin, int64_t n, double *out);
/* Fills masters and parameters shard by shard: the peak is the plan's. Optimizer moments are zeroed. Local: no
 * communication. */
PLAIT_MUST_USE plait_status plait_zero_fill(plait_zero *z, plait_value_source source, void *self);
/* The elements of a unit whose masters this rank has: the whole unit (stage 0), a shard, or nothing (gather_to_root).
 */
void plait_zero_held(const plait_zero *z, int unit, int64_t *begin, int64_t *end);
/* Masters of elements [begin, begin + n) of a unit, inside the held range, as A, to host memory. */
PLAIT_MUST_USE plait_status plait_zero_read(const plait_zero *z, int unit, int64_t begin, int64_t n, void *out);
/* The held range as a pure function, for asking about other ranks. */
void plait_zero_held_of(const plait_zero_options *o, int data_rank, int data_size, int64_t numel, int64_t *begin,
                        int64_t *end);
/* Gradients of elements [begin, begin + n) of a unit, likewise; between plait_zero_reduce_rest and the next run. */
PLAIT_MUST_USE plait_status plait_zero_read_gradient(const plait_zero *z, int unit, int64_t begin, int64_t n,
                                                     void *out);
/* T of a unit, whole (not at stage 3); for tests of replicas and twins. */
const void *plait_zero_param(const plait_zero *z, int unit);

/* ---- what tests ask ---- */
typedef struct plait_zero_stats {
    int max_gathered;     /* largest number of gathered units at any acquire */
    int early_reductions; /* gradient requests started before the step's last release */
    int open_reductions;  /* acquires for a gradient while the request of the one before had not been waited for */
} plait_zero_stats;
plait_zero_stats plait_zero_get_stats(const plait_zero *z);

PLAIT_END_DECLS
#endif
