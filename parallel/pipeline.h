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
 * communication. Both may be counting arenas, then nothing can be run. The schedules, the groups and `ex` are borrowed
 * and must outlive the pipeline. Each chunk's slot 0 is first bound to a counting arena, to learn its size, and then
 * every slot to its memory. */
PLAIT_MUST_USE plait_status plait_pipeline_create(const plait_pipeline_options *o, plait_arena *acts,
                                                  plait_arena *comms, plait_pipeline **out);
void plait_pipeline_destroy(plait_pipeline *p);

/* Told when a forward or backward begins, its input being there, and when it has ended. */
typedef struct plait_pipeline_observer {
    void *self;
    void (*act)(void *self, plait_act act, bool begins);
} plait_pipeline_observer;

typedef struct plait_pipeline_step {
    const plait_schedule *schedule; /* one of those given at creation */
    plait_mode mode;
    uint32_t step;
    double grad_scale;
    double *loss;
    const plait_micro_batch *batches; /* [micros], on every stage, also one without embedding or head */
    void *logits;                     /* LOGITS mode (a schedule of one micro-batch), last stage: where it writes */
    int loss_stride;                  /* doubles from one micro-batch's loss to the next; 0: all are added in one */
    struct plait_hashes *hashes;      /* where results are recorded; NULL: nowhere */
    const plait_pipeline_observer *observer; /* NULL: nobody */
} plait_pipeline_step;

/* Runs all actions and waits for all messages. A FWD or BWD waits for the message that brings its input, and for the
 * one that still leaves from its output buffer; nothing else waits. A failure's text is prefixed "step 12 micro-batch
 * 3: "; messages that were open then stay open, so the job has to end. */
PLAIT_MUST_USE plait_status plait_pipeline_run(plait_pipeline *p, const plait_pipeline_step *s);

/* Largest number of (chunk, micro) between forward and backward in the last run: what was executed, not what was
 * listed. */
int plait_pipeline_in_flight(const plait_pipeline *p);

PLAIT_END_DECLS
#endif
