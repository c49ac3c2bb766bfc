/* parallel/engine.h: one rank of a training run: everything is allocated at creation, then steps are run.
 *
 *   counted tokens -> pipeline (forward, backward, reductions begin) -> rest of the reductions -> unscale, norm, clip
 *   -> optimizer -> parameters whole again
 */
#ifndef PLAIT_PARALLEL_ENGINE_H
#define PLAIT_PARALLEL_ENGINE_H

#include "parallel/layout.h"
#include "parallel/loss_scaler.h"

PLAIT_BEGIN_DECLS

typedef struct plait_engine plait_engine;
struct plait_hashes;

typedef struct plait_engine_options {
    const plait_config *cfg; /* resolved, threads settled; outlives the engine */
    const plait_model_ops *model;
    plait_run_shape shape;
} plait_engine_options;

/* Collective over the world. PLAIT_OUT_OF_MEMORY before anything is allocated when the plan exceeds
 * device.memory_limit. Parameters are undefined until plait_engine_init_weights or a weight file fills them. */
PLAIT_MUST_USE plait_status plait_engine_create(plait_world *world, const plait_engine_options *o, plait_engine **out);
/* The engine of a rank that does not exist: counting arenas, groups that only tell (plait_comm_plan_listen), kernels
 * that compute nothing (plait_plan_listen). It runs plait_engine_train_step as it is; losses and norms are 0. Debugging
 * output (debug.tensor_hashes) is planned for and not run. cfg: resolved for `world` ranks. Not collective. */
PLAIT_MUST_USE plait_status plait_engine_create_dry(const plait_engine_options *o, int world, int rank,
                                                    plait_engine **out);
void plait_engine_destroy(plait_engine *e);

/* Initial values from train.seed, the same model for every topology. */
PLAIT_MUST_USE plait_status plait_engine_init_weights(plait_engine *e);

/* Buffers of this data rank's micro-batch i (i < micros of the step): int32 (seq * batch), row t * batch + b. */
void plait_engine_tokens(plait_engine *e, int i, int32_t **tokens, int32_t **targets);
/* Position in the global batch of `micros` micro-batches a data rank of the first sample of this rank's micro-batch i.
 * Data rank d has a contiguous block. */
int64_t plait_engine_first_sample(const plait_engine *e, int micros, int i);

typedef struct plait_step_result {
    double loss;       /* summed token losses over counted tokens of the global batch */
    double grad_norm;  /* L2 of the averaged global gradient before clipping; not finite when the step overflowed */
    double loss_scale; /* that the step was run with */
    bool skipped;
    int64_t counted_tokens;
} plait_step_result;

/* One optimizer step over the filled micro-batches. `step` counts from 1 and keys dropout. All ranks get the same
 * result. PLAIT_NUMERIC: the loss is not finite, or gradients overflow and nothing helps. */
PLAIT_MUST_USE plait_status plait_engine_train_step(plait_engine *e, uint32_t step, int micros, double lr,
                                                    plait_step_result *out);
/* Mean loss over the filled eval_micros micro-batches of all data ranks. */
PLAIT_MUST_USE plait_status plait_engine_evaluate(plait_engine *e, double *loss);
/* Logits (vocab_size doubles, on every rank) of position `t` of the first sample of micro-batch 0. Engines with
 * shape.logits. */
PLAIT_MUST_USE plait_status plait_engine_logits(plait_engine *e, int64_t t, double *out);

/* Tells `observer` of the forwards and backwards of training steps from now on; NULL: nobody. Borrowed. */
void plait_engine_observe(plait_engine *e, const plait_pipeline_observer *observer);

/* Updates applied so far: the optimizer's t and the schedule's clock. */
int64_t plait_engine_updates(const plait_engine *e);

/* ---- to look at ---- */
const plait_config *plait_engine_config(const plait_engine *e);
const plait_model_ops *plait_engine_model(const plait_engine *e);
const plait_topology *plait_engine_topology(const plait_engine *e);
const plait_groups *plait_engine_groups(const plait_engine *e);
const plait_param_list *plait_engine_params(const plait_engine *e);
const plait_schedule_set *plait_engine_schedules(const plait_engine *e);
const plait_layout *plait_engine_layout(const plait_engine *e);
const plait_loss_scaler *plait_engine_loss_scaler(const plait_engine *e);
plait_zero *plait_engine_zero(plait_engine *e);
const plait_zero_options *plait_engine_zero_options(const plait_engine *e);
plait_pipeline *plait_engine_pipeline(plait_engine *e);
/* debug.tensor_hashes: the records of the last training step, on rank 0 those of all ranks; NULL without. */
const struct plait_hashes *plait_engine_hashes(const plait_engine *e);
const plait_exec *plait_engine_exec(const plait_engine *e);
plait_ledger *plait_engine_ledger(plait_engine *e);
/* Traffic of the last training step, by kind of group (the two of the pipeline added). */
const plait_traffic *plait_engine_traffic(const plait_engine *e);

PLAIT_END_DECLS
#endif
