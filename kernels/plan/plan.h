/* kernels/plan/plan.h: the table that computes nothing.
 *
 * The code that trains runs under it unchanged, with counting arenas: it follows no pointer to tensor data. Whoever
 * listens is told of every call: which operation, on which shapes, how much arithmetic, how many bytes. The listener
 * belongs to the calling thread.
 */
#ifndef PLAIT_KERNELS_PLAN_PLAN_H
#define PLAIT_KERNELS_PLAN_PLAN_H

#include "kernels/kernels.h"

PLAIT_BEGIN_DECLS

#define PLAIT_OP_ENUM(op) PLAIT_OP_##op,
typedef enum plait_op { PLAIT_KERNELS_OPS(PLAIT_OP_ENUM) PLAIT_OPS } plait_op;
#undef PLAIT_OP_ENUM

/* "gemm", "embedding_fwd", ... */
const char *plait_op_name(plait_op op);
/* The operation of that name, PLAIT_OPS if there is none. */
plait_op plait_op_find(const char *name);

/* One call. What bounds it: arithmetic if flops > 0 (products: gemm and attention), else its bytes. */
typedef struct plait_op_record {
    plait_op op;
    plait_dtype dtype;     /* T of the table; of add: of its operands; of cast: of the result */
    int64_t m, n, k;       /* gemm: of the product; attention: batch x heads, seq, head_dim; else rows, columns, 1 */
    bool trans_a, trans_b; /* gemm */
    double flops;          /* 2 m n k; attention: the causal half of its products, 2 forward and 5 backward */
    double bytes_read, bytes_written; /* of the operands, each once; what is added to is read and written */
} plait_op_record;

typedef void (*plait_op_listener)(void *self, const plait_op_record *r);
/* From now on every call in this thread is reported to `listener`; NULL: to nobody. */
void plait_plan_listen(plait_op_listener listener, void *self);

PLAIT_END_DECLS
#endif
