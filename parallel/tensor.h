/* parallel/tensor.h: tensor parallelism (Shoeybi et al. 2019, section 3) and sequence parallelism (Korthikanti et al.
 * 2022, section 4.2.2): linear layers whose matrix is split over the tensor group.
 *
 * Between the split layers an activation is either whole on every rank, or, with sequence parallelism, split by rows:
 * rank t has rows [t N / tp, (t + 1) N / tp). `rows` below is always N, the rows of the whole micro-batch; local rows
 * are those of this rank. In the drawing f and g are the conjugate operations at the borders:
 *
 *            forward                        backward
 *   f     identity   (sp: all-gather)     all-reduce (sp: reduce-scatter)    into a column-parallel layer
 *   g     all-reduce (sp: reduce-scatter) identity   (sp: all-gather)        out of a row-parallel layer
 *
 * A rank may have several slices of a matrix, one behind the other, and then has as many blocks of each split
 * activation. Their products are alike on any number of ranks; in `exact` mode (numerics.reduction invariant) partial
 * sums are formed and travel in A, in one binary tree over the slices of all ranks, and are rounded once. Else there is
 * one slice, and partial sums travel in T.
 *
 * Temporaries come from ex->work and are given back.
 */
#ifndef PLAIT_PARALLEL_TENSOR_H
#define PLAIT_PARALLEL_TENSOR_H

#include "parallel/comm.h"

PLAIT_BEGIN_DECLS

typedef struct plait_tp {
    plait_comm *comm;
    int rank, size;
    bool sequence_parallel; /* false when size is 1 */
    plait_dtype dtype;
    int slices; /* of this rank */
    bool exact;
} plait_tp;

plait_tp plait_tp_make(plait_comm *tensor, bool sequence_parallel, plait_dtype dtype);

/* Takes a temporary of n elements of `dtype` from ex->work. */
PLAIT_MUST_USE plait_status plait_temp(const plait_exec *ex, plait_dtype dtype, int64_t n, void **out);

/* ---- borders ---- */

/* All rows of x: x itself, or gathered into a temporary (sp). `req` is waited for before *whole is read; NULL when
 * there is nothing to wait for. x: T (local rows, C) */
PLAIT_MUST_USE plait_status plait_tp_gather_start(const plait_tp *tp, const plait_exec *ex, const void *x, int64_t rows,
                                                  int64_t C, const void **whole, plait_request **req);
/* Sums partial (rows, C), T or A (`dtype`; exact: A), over the group into y: T, all rows, or this rank's (sp). With one
 * rank and equal types and partial == y nothing is done. */
PLAIT_MUST_USE plait_status plait_tp_reduce_start(const plait_tp *tp, const plait_exec *ex, const void *partial,
                                                  plait_dtype dtype, void *y, int64_t rows, int64_t C,
                                                  plait_request **req);

/* sum = terms [first, first + n), n a power of two, added in a binary tree: A (numel). The temporaries of all levels
 * come from ex->work. */
typedef plait_status (*plait_tp_term)(const void *self, const plait_exec *ex, int i, void *out);
PLAIT_MUST_USE plait_status plait_tp_add_tree(const plait_exec *ex, plait_dtype acc, int64_t numel, plait_tp_term term,
                                              const void *self, int first, int n, void *sum);

/* ---- layers ---- */

typedef struct plait_linear {
    int64_t rows, in, out; /* in and out of a slice */
    int64_t stride;        /* elements from what belongs to one slice to that of the next: weight, bias, gradients */
    const void *weight;    /* T (out, in) */
    const void
        *bias; /* T (out) or NULL; column-parallel only: a row-parallel bias is added after the sum, by the caller */
    void *grad_weight; /* A, added to; backward only */
    void *grad_bias;   /* A or NULL */
    /* Where products take GELU along (plait_kernels.epilogues), or NULL: */
    void *gelu;        /* column-parallel, forward: T (slices, rows, out) = GELU(y) */
    const void *dgelu; /* row-parallel, backward: dx is multiplied by GELU' of it; T (slices, rows, in) */
} plait_linear;

/* y = x W^T + b. x: T (local rows, in), y: T (slices, rows, out) */
PLAIT_MUST_USE plait_status plait_col_linear_fwd(const plait_tp *tp, const plait_exec *ex, const plait_linear *l,
                                                 const void *x, void *y);
/* dx: T (local rows, in) from dy: T (slices, rows, out); grads from x as it was given to forward. The exchange of dx
 * runs beside the weight gradient. */
PLAIT_MUST_USE plait_status plait_col_linear_bwd(const plait_tp *tp, const plait_exec *ex, const plait_linear *l,
                                                 const void *dy, const void *x, void *dx);
/* y = sum over slices and ranks of x W^T. x: T (slices, rows, in), y: T (local rows, out) */
PLAIT_MUST_USE plait_status plait_row_linear_fwd(const plait_tp *tp, const plait_exec *ex, const plait_linear *l,
                                                 const void *x, void *y);
/* dx: T (slices, rows, in) from dy: T (local rows, out) */
PLAIT_MUST_USE plait_status plait_row_linear_bwd(const plait_tp *tp, const plait_exec *ex, const plait_linear *l,
                                                 const void *dy, const void *x, void *dx);

PLAIT_END_DECLS
#endif
