/* parallel/replay.h: when everything happens in a step, from the traces of one rank a pipeline stage.
 *
 * A discrete-event replay. Data and tensor ranks of a stage do the same at the same time, so a stage is one lane; what
 * joins stages (messages, collectives of the world and of tied embeddings) begins when the last of them has come to
 * it. With overlap an operation runs from its start on, behind the others of its communicator, while the rank computes.
 * Without (CPU ranks: MPI needs the core) it takes the rank's time where it is waited for; only a message that is sent
 * waits for nothing.
 */
#ifndef PLAIT_PARALLEL_REPLAY_H
#define PLAIT_PARALLEL_REPLAY_H

#include "parallel/step_trace.h"

PLAIT_BEGIN_DECLS

/* Where the seconds of a stage go: step = compute + exposed + idle + the prediction's host_seconds. */
typedef struct plait_stage_time {
    double compute;
    double exposed[PLAIT_CHANNELS]; /* waiting for a communication that all have started */
    double idle;                    /* waiting for another stage: the pipeline's bubble, and uneven stages */
} plait_stage_time;

/* One forward or backward of a stage, seconds from the begin of the step. */
typedef struct plait_span {
    int16_t stage, chunk;
    bool backward;
    int micro;
    double begin, end;
} plait_span;

typedef struct plait_prediction {
    double step_seconds; /* of the slowest stage, with host_seconds */
    double host_seconds; /* what the host does beside a step, of every stage: the machine's step_seconds */
    int num_stages, num_spans;
    plait_stage_time *stages;
    plait_span *spans; /* by stage, then in time */
} plait_prediction;

/* traces: [num_stages], by stage, all with the same machine. PLAIT_INTERNAL where ranks would wait for each other for
 * ever. Owner: plait_prediction_deinit, also after a failure. */
PLAIT_MUST_USE plait_status plait_replay(const plait_step_trace *traces, int num_stages, const plait_machine *machine,
                                         plait_prediction *out);
void plait_prediction_deinit(plait_prediction *p);

/* Seconds of a stage: in communication of that group that nothing hides; in all but the host's. */
double plait_stage_exposed(const plait_stage_time *s, plait_group group);
double plait_stage_seconds(const plait_stage_time *s);
/* Idle time of all stages as a part of all their time but the host's. */
double plait_prediction_bubble(const plait_prediction *p);

PLAIT_END_DECLS
#endif
