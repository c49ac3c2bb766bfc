/* parallel/engine_impl.h: the parts of a rank, built once over counting arenas (layout.c) and once over real ones
 * (engine.c). */
#ifndef PLAIT_PARALLEL_ENGINE_IMPL_H
#define PLAIT_PARALLEL_ENGINE_IMPL_H

#include "kernels/backend.h"
#include "parallel/engine.h"
#include "parallel/tensor_hashes.h"

/* Scalars of a step. In exact mode (numerics.reduction invariant, on the host alone) losses are apart. */
typedef struct plait_scalars {
    double loss, sum_squares;
    int32_t found_inf;
} plait_scalars;

/* What the host reads and writes of a step: the tensors of the same names themselves where these are in its memory,
 * else their copies in memory that travels fast. */
typedef struct plait_host_side {
    int32_t *tokens, *targets;
    plait_scalars *scalars;
    void *logits_row;
} plait_host_side;

typedef struct plait_parts {
    plait_arena *arena[PLAIT_MEM_KINDS];
    plait_arena *staging; /* of the host side; arena[PLAIT_MEM_WORK] where tensors are in the host's memory */
    plait_host_side host;
    plait_exec ex, copies; /* copies: of a device, with a stream of its own for what is staged */
    void *bounce;          /* of comm.backend staged */
    plait_zero_options zero_options;
    plait_zero *zero;
    const plait_model_ops *model;
    plait_stage stage;
    plait_pipeline *pipeline;
    int32_t *tokens, *targets; /* (max_micros, rows) */
    plait_scalars *scalars;
    double *losses;       /* exact mode: (data ranks, max_micros), in the order of the global batch */
    plait_hashes *hashes; /* debug.tensor_hashes */
    void *logits;         /* A (rows, padded vocabulary / tp), with shape.logits */
    void *logits_row;     /* A (padded vocabulary): one row, gathered */
} plait_parts;

/* Every communicator of a rank with the kind of its group; the pipeline's has two. */
enum { PLAIT_GROUP_COMMS = PLAIT_GROUPS + 1 };
typedef struct plait_group_comm {
    plait_comm *comm;
    plait_group kind;
} plait_group_comm;
void plait_group_comms(const plait_groups *groups, plait_group_comm out[PLAIT_GROUP_COMMS]);

/* Builds over p->arena and p->staging with table, backend and stream of p->ex, which are there already. The gather
 * buffer of stage 3 is the caller's to plan afterwards. */
plait_status plait_parts_build(plait_parts *p, const plait_config *cfg, const plait_topology *topo,
                               const plait_groups *groups, const plait_model_ops *model, const plait_param_list *list,
                               const plait_schedule_set *schedules, const plait_run_shape *shape);
/* Destroys what was built, the arenas and the stream. */
void plait_parts_deinit(plait_parts *p);

struct plait_engine {
    const plait_config *cfg;
    const plait_model_ops *model;
    plait_topology topo;
    plait_run_shape shape;
    plait_groups groups;
    plait_param_list list;
    plait_schedule_set schedules;
    plait_layout layout;
    plait_ledger ledger;
    plait_parts parts;
    plait_zero_order *orders;   /* one for each schedule; NULL below stage 3 */
    plait_micro_batch *batches; /* [max_micros] */
    plait_loss_scaler scaler;
    int64_t updates;
    plait_traffic traffic[PLAIT_GROUPS];
    const plait_pipeline_observer *observer; /* of training steps; NULL: nobody */
    void *dry_memory;                        /* of an engine that is dry: what the host reads and writes in a step */
};

/* What the world adds up at the end of a step, and in exact mode besides: the squared norm in limbs, found-inf. */
enum { PLAIT_STEP_LOSS, PLAIT_STEP_SQUARES, PLAIT_STEP_FOUND_INF, PLAIT_STEP_SUMS };
enum { PLAIT_STEP_LIMBS = 5 };

/* The parts of the creation that a dry engine has too: schedules, parameters and layout; then the parts over the arenas
 * that are there. */
plait_status plait_engine_plan(plait_engine *e, const plait_engine_options *o);
plait_status plait_engine_build(plait_engine *e, const plait_engine_options *o);
/* Counting arenas, and the exec of a table that computes nothing. */
plait_status plait_parts_plan(plait_parts *p, const plait_config *cfg);
/* The record of an engine of which nothing is there yet; plait_engine_destroy. NULL: no memory. */
plait_engine *plait_engine_alloc(const plait_engine_options *o);

#endif
