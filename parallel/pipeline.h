/* parallel/pipeline.h: walks a schedule: one loop with one switch.
 *
 * It owns no memory of its own: buffers come from arenas, from counting ones when a plan is made. Received inputs (X)
 * are kept for backward: category activations. y, dy, dx are communication.
 */
#ifndef PLAIT_PARALLEL_PIPELINE_H
#define PLAIT_PARALLEL_PIPELINE_H

#include "parallel/comm.h"
#include "parallel/schedule.h"
#include "parallel/stage.h"

PLAIT_BEGIN_DECLS

typedef struct plait_pipeline plait_pipeline;

typedef struct plait_pipeline_options {
    plait_stage stage;
    plait_comm *act, *grad; /* of the pipeline group, ranked by stage */
    int chunks;
    int64_t rows, hidden; /* of x, y, dx, dy on this tensor rank */
    plait_dtype dtype;
    /* The schedules that will run: the buffers suffice for each of them. */
    const plait_schedule *const *schedules;
    int num_schedules;
    const plait_exec *ex;
} plait_pipeline_options;

/* Takes buffers and binds the stage's slots: body slots of all chunks in one pool. acts: activations, comms:
 * communication. */
PLAIT_MUST_USE plait_status plait_pipeline_create(const plait_pipeline_options *o, plait_arena *acts,
                                                  plait_arena *comms, plait_pipeline **out);
void plait_pipeline_destroy(plait_pipeline *p);

typedef struct plait_pipeline_step {
    const plait_schedule *schedule; /* one of those given at creation */
    plait_mode mode;
    uint32_t step;
    double grad_scale;
    double *loss;
    const plait_micro_batch
        *batches; /* [micros]; NULL on stages without embedding or head is not allowed: all have them */
    void *logits; /* LOGITS mode, last stage: where micro 0 writes */
} plait_pipeline_step;

/* Runs all actions and waits for all messages. A failure's text is prefixed "step 12 micro-batch 3: ". */
PLAIT_MUST_USE plait_status plait_pipeline_run(plait_pipeline *p, const plait_pipeline_step *s);

/* Largest number of (chunk, micro) between forward and backward in the last run: what was executed, not what was
 * listed. */
int plait_pipeline_in_flight(const plait_pipeline *p);

PLAIT_END_DECLS
#endif
