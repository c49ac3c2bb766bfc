/* parallel/schedule_impl.h: what the parts of the schedule and the pipeline share.
 *
 * The links say what each action of a list waits for. The simulator and pipeline.c both follow them, so what has been
 * simulated is what runs.
 */
#ifndef PLAIT_PARALLEL_SCHEDULE_IMPL_H
#define PLAIT_PARALLEL_SCHEDULE_IMPL_H

#include "parallel/schedule.h"

PLAIT_BEGIN_DECLS

/* A kind is a direction (forward: activations, backward: gradients; a communicator each) and a role in it. */
enum { PLAIT_DIR_FWD, PLAIT_DIR_BWD, PLAIT_DIRS };
enum { PLAIT_ROLE_RECV, PLAIT_ROLE_COMPUTE, PLAIT_ROLE_SEND, PLAIT_ROLES };

static inline int plait_act_dir(plait_act a)
{
    return (int)a.kind / PLAIT_ROLES;
}

static inline int plait_act_role(plait_act a)
{
    return (int)a.kind % PLAIT_ROLES;
}

static inline plait_act_kind plait_act_kind_of(int dir, int role)
{
    return (plait_act_kind)(dir * PLAIT_ROLES + role);
}

static inline int64_t plait_schedule_id(const plait_schedule *s, plait_act a)
{
    return (int64_t)a.chunk * s->micros + a.micro;
}

/* Whether the chunk receives an input (forward) or a gradient (backward), that is, whether it has a predecessor. */
static inline bool plait_schedule_receives(const plait_schedule *s, int dir, int chunk)
{
    return dir == PLAIT_DIR_FWD ? chunk > 0 || s->stage > 0 : chunk < s->chunks - 1 || s->stage < s->stages - 1;
}

/* Whether the chunk sends an output (forward) or an input gradient (backward). */
static inline bool plait_schedule_sends(const plait_schedule *s, int dir, int chunk)
{
    return plait_schedule_receives(s, dir == PLAIT_DIR_FWD ? PLAIT_DIR_BWD : PLAIT_DIR_FWD, chunk);
}

/* The stage that gets what `stage` sends in a direction; what it receives comes from plait_schedule_peer(other dir). */
static inline int plait_schedule_peer(int stage, int stages, int dir)
{
    return dir == PLAIT_DIR_FWD ? (stage + 1) % stages : (stage + stages - 1) % stages;
}

/* Positions in the list, -1 where there is nothing. */
typedef struct plait_act_link {
    int group;  /* SEND, RECV: first action of the group that is posted at once (itself, or the neighbour before) */
    int recv;   /* FWD, BWD: the RECV of its input; its group is waited for */
    int reuse;  /* FWD, BWD: the SEND that used the output buffer before; its group is waited for */
    int buffer; /* FWD, BWD, SEND: which of the PLAIT_SEND_BUFFERS of its direction */
} plait_act_link;

/* Fills links[num_acts] and checks the list of this one stage: every (chunk, micro) once forward and once backward
 * (forward-only: never), after its receive and before its send, no output overwritten before it is sent.
 * PLAIT_INTERNAL with stage, action and reason. */
PLAIT_MUST_USE plait_status plait_schedule_link(const plait_schedule *s, plait_act_link *links);

/* Number of actions in the group that begins at position `first`: a send and the receive next to it, or one alone. */
int plait_schedule_group_length(const plait_schedule *s, const plait_act_link *links, int first);

/* "ry3", or "ry1.3" when there are several chunks. */
const char *plait_act_text(const plait_schedule *s, plait_act a, char buf[32]);

/* plait_schedule_simulate that also says when each action began: begin[stage][position], or NULL. */
PLAIT_MUST_USE plait_status plait_schedule_simulate_times(const plait_schedule *schedules, int stages,
                                                          plait_simulation *sim, double **begin);

PLAIT_END_DECLS
#endif
