/* parallel/rank_plan.h: what every rank of a run will hold, do and send, without a run: no MPI, no memory, no kernels.
 *
 * Ranks that hold the same are planned once. What a rank holds depends on its stage; on its shards, where data ranks
 * share states (ZeRO, gather_to_root), which differ by the rounding of their borders and by the norms and biases that
 * lie in them; and on whether it is rank 0, which collects. So thousands of ranks are a few classes, of each of which
 * one is created as a dry engine and runs a step: the plan is that of the run itself.
 */
#ifndef PLAIT_PARALLEL_RANK_PLAN_H
#define PLAIT_PARALLEL_RANK_PLAN_H

#include "parallel/replay.h"

PLAIT_BEGIN_DECLS

typedef struct plait_rank_class {
    plait_topology first; /* the lowest rank of the class */
    int num_ranks;
    int64_t elements;              /* of its parameter list: what it computes with, copies and padding included */
    int64_t largest_unit;          /* elements of its largest unit */
    size_t bytes[PLAIT_MEM_KINDS]; /* device tier; communication with its staging */
    size_t total;
    size_t host_bytes, host_staging; /* host tier, where tensors are a GPU's: workspace and communication */
    /* When what is shared over time is at its highest: (chunk, micro-batch) between forward and backward and from which
     * forward on there are so many; units gathered at once (stage 3); the part of a step that needs most workspace. */
    int in_flight, full_chunk, full_micro;
    int gathered;
    plait_step_part workspace_part;
    int workspace_chunk;
    plait_op_totals ops[PLAIT_OPS];      /* of a training step */
    plait_traffic traffic[PLAIT_GROUPS]; /* likewise */
} plait_rank_class;

typedef struct plait_rank_plan {
    plait_topology topo; /* of rank 0 */
    int num_classes;
    plait_rank_class *classes; /* by lowest rank */
    int *class_of;             /* [world] */
    bool predicted;            /* with a machine: */
    plait_machine_use use;
    plait_prediction prediction; /* of a training step */
} plait_rank_plan;

/* cfg: resolved for `world` ranks. machine: NULL, then nothing is predicted. Deinit also after a failure. */
PLAIT_MUST_USE plait_status plait_rank_plan_init(plait_rank_plan *p, const plait_config *cfg, int world,
                                                 const plait_model_ops *model, const plait_run_shape *shape,
                                                 const plait_machine *machine);
void plait_rank_plan_deinit(plait_rank_plan *p);
/* The class that holds most in all. */
const plait_rank_class *plait_rank_plan_largest(const plait_rank_plan *p);

PLAIT_END_DECLS
#endif
