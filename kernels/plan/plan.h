/* kernels/plan/plan.h: the table that computes nothing.
 *
 * The code that trains runs under it unchanged, with counting arenas: it follows no pointer to tensor data and only
 * counts. The counters belong to the calling thread.
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

typedef struct plait_plan_counts {
    int64_t calls[PLAIT_OPS];
    double gemm_flops; /* 2 m n k a product; bias and beta are not counted */
} plait_plan_counts;

/* What the calling thread has counted since its start or its last reset, over the tables of all types. */
plait_plan_counts plait_plan_read(void);
void plait_plan_reset(void);

PLAIT_END_DECLS
#endif
