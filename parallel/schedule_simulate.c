#include "parallel/schedule_impl.h"

#include <stdlib.h>

#define NEVER (-1.0)

/* One stage while it runs. Per action: `partner` is the position of the other end of a message in the list of the other
 * stage; `begin` is when a compute action started, or when a group was able to start (at its first action). */
typedef struct lane {
    const plait_schedule *s;
    plait_act_link *links;
    int *partner;
    double *begin;
    double *posted;                /* groups, at their first action: when the stage came to it */
    int pos;                       /* next action */
    double clock;                  /* when the one before ended */
    int queue[PLAIT_DIRS];         /* in order: next position to look at for a group that has not completed */
    double queue_free[PLAIT_DIRS]; /* in order: when the last completed group did */
    int in_flight;
} lane;

typedef struct pipeline {
    lane *lanes;
    int stages;
    bool in_order;
} pipeline;

static bool is_message(plait_act a)
{
    return plait_act_role(a) != PLAIT_ROLE_COMPUTE;
}

/* The stage at the other end of a message. */
static int other_end(int stage, int stages, plait_act a)
{
    int dir = plait_act_dir(a);
    if (plait_act_role(a) == PLAIT_ROLE_RECV)
        dir = dir == PLAIT_DIR_FWD ? PLAIT_DIR_BWD : PLAIT_DIR_FWD;
    return plait_schedule_peer(stage, stages, dir);
}

/* The chunk of the receiver that needs what `chunk` of the sender made: another one where the message wraps around. */
static int receiving_chunk(int sender, int stages, int dir, int chunk)
{
    if (dir == PLAIT_DIR_FWD)
        return sender == stages - 1 ? chunk + 1 : chunk;
    return sender == 0 ? chunk - 1 : chunk;
}

static int next_of(const plait_schedule *s, plait_act_kind kind, int from)
{
    while (from < s->num_acts && s->acts[from].kind != kind)
        from++;
    return from;
}

/* The k-th send of a stage meets the k-th receive of the other. */
static plait_status match_messages(pipeline *p, int sender, int dir)
{
    int receiver = plait_schedule_peer(sender, p->stages, dir);
    lane *a = &p->lanes[sender], *b = &p->lanes[receiver];
    plait_act_kind send = plait_act_kind_of(dir, PLAIT_ROLE_SEND), recv = plait_act_kind_of(dir, PLAIT_ROLE_RECV);
    char text_a[32], text_b[32];
    int i = next_of(a->s, send, 0), j = next_of(b->s, recv, 0);
    while (i < a->s->num_acts && j < b->s->num_acts) {
        plait_act out = a->s->acts[i], in = b->s->acts[j];
        if (in.micro != out.micro || in.chunk != receiving_chunk(sender, p->stages, dir, out.chunk))
            PLAIT_FAIL(INTERNAL, "pipeline stage %d, action %d: %s would receive %s of stage %d", receiver, j,
                       plait_act_text(b->s, in, text_b), plait_act_text(a->s, out, text_a), sender);
        a->partner[i] = j;
        b->partner[j] = i;
        i = next_of(a->s, send, i + 1);
        j = next_of(b->s, recv, j + 1);
    }
    if (i < a->s->num_acts)
        PLAIT_FAIL(INTERNAL, "pipeline stage %d, action %d: %s is never received by stage %d", sender, i,
                   plait_act_text(a->s, a->s->acts[i], text_a), receiver);
    if (j < b->s->num_acts)
        PLAIT_FAIL(INTERNAL, "pipeline stage %d, action %d: %s is never sent by stage %d", receiver, j,
                   plait_act_text(b->s, b->s->acts[j], text_b), sender);
    return PLAIT_OK;
}

/* When the group that begins at `first` is complete: once all its messages have begun at both ends. NEVER: not yet. */
static double completion(const pipeline *p, int stage, int first)
{
    const lane *l = &p->lanes[stage];
    double time = l->begin[first];
    int end = first + plait_schedule_group_length(l->s, l->links, first);
    for (int i = first; i < end && time != NEVER; i++) {
        const lane *o = &p->lanes[other_end(stage, p->stages, l->s->acts[i])];
        double there = o->begin[o->links[l->partner[i]].group];
        time = there == NEVER ? NEVER : there > time ? there : time;
    }
    return time;
}

/* In order: lets the groups of a communicator begin one after the other. Returns whether anything changed. */
static bool move_queue(pipeline *p, int stage, int dir)
{
    lane *l = &p->lanes[stage];
    bool moved = false;
    for (; l->queue[dir] < l->pos; l->queue[dir]++) {
        int i = l->queue[dir];
        plait_act a = l->s->acts[i];
        if (!is_message(a) || plait_act_dir(a) != dir || l->links[i].group != i)
            continue;
        if (l->begin[i] == NEVER) {
            l->begin[i] = l->posted[i] > l->queue_free[dir] ? l->posted[i] : l->queue_free[dir];
            moved = true;
        }
        double done = completion(p, stage, i);
        if (done == NEVER)
            break;
        l->queue_free[dir] = done;
        moved = true;
    }
    return moved;
}

/* A group that the action at the stage's position still waits for, or -1; *ready grows to when the others completed. */
static int blocked_by(const pipeline *p, int stage, double *ready)
{
    const lane *l = &p->lanes[stage];
    const int needs[2] = {l->links[l->pos].recv, l->links[l->pos].reuse};
    for (int k = 0; k < 2; k++) {
        if (needs[k] < 0)
            continue;
        double done = completion(p, stage, l->links[needs[k]].group);
        if (done == NEVER)
            return needs[k];
        if (done > *ready)
            *ready = done;
    }
    return -1;
}

static void compute(pipeline *p, int stage, double ready, plait_simulation *sim)
{
    lane *l = &p->lanes[stage];
    bool forward = l->s->acts[l->pos].kind == PLAIT_ACT_FWD;
    l->begin[l->pos] = ready;
    l->clock = ready + (forward ? sim->forward_time : sim->backward_time);
    if (forward && ++l->in_flight > sim->in_flight[stage])
        sim->in_flight[stage] = l->in_flight;
    if (!forward || l->s->forward_only)
        l->in_flight--;
    l->pos++;
}

/* Runs one stage as far as it gets. Returns whether it got anywhere. */
static bool move_stage(pipeline *p, int stage, plait_simulation *sim)
{
    lane *l = &p->lanes[stage];
    bool moved = false;
    while (l->pos < l->s->num_acts) {
        if (is_message(l->s->acts[l->pos])) {
            l->posted[l->pos] = l->clock;
            if (!p->in_order)
                l->begin[l->pos] = l->clock;
            l->pos += plait_schedule_group_length(l->s, l->links, l->pos);
        } else {
            double ready = l->clock;
            if (blocked_by(p, stage, &ready) >= 0)
                break;
            compute(p, stage, ready, sim);
        }
        moved = true;
    }
    for (int dir = 0; p->in_order && dir < PLAIT_DIRS; dir++)
        moved |= move_queue(p, stage, dir);
    return moved;
}

/* Nothing moves any more: every stage is at its end and every group is complete, or it is a deadlock. */
static plait_status check_end(const pipeline *p, plait_simulation *sim)
{
    char at[32], needs[32];
    for (int stage = 0; stage < p->stages; stage++) {
        const lane *l = &p->lanes[stage];
        if (l->pos < l->s->num_acts) {
            double ready = 0.0;
            int need = blocked_by(p, stage, &ready);
            PLAIT_FAIL(INTERNAL, "pipeline stage %d, action %d: %s waits for %s, and no stage can move", stage, l->pos,
                       plait_act_text(l->s, l->s->acts[l->pos], at), plait_act_text(l->s, l->s->acts[need], needs));
        }
        if (l->clock > sim->makespan)
            sim->makespan = l->clock;
    }
    for (int stage = 0; stage < p->stages; stage++) {
        const lane *l = &p->lanes[stage];
        for (int i = 0; i < l->s->num_acts; i++)
            if (l->links[i].group == i && completion(p, stage, i) == NEVER)
                PLAIT_FAIL(INTERNAL, "pipeline stage %d, action %d: %s never completes", stage, i,
                           plait_act_text(l->s, l->s->acts[i], at));
    }
    return PLAIT_OK;
}

static void lane_deinit(lane *l)
{
    free(l->links);
    free(l->partner);
    free(l->begin);
    free(l->posted);
}

static plait_status lane_init(lane *l, const plait_schedule *schedules, int stages, int stage)
{
    const plait_schedule *s = &schedules[stage];
    l->s = s;
    if (s->stage != stage || s->stages != stages || s->chunks != schedules[0].chunks ||
        s->micros != schedules[0].micros || s->forward_only != schedules[0].forward_only)
        PLAIT_FAIL(INTERNAL,
                   "pipeline stage %d: its schedule is of stage %d of %d, %d chunks, %d micro-batches; that of stage 0 "
                   "has %d and %d",
                   stage, s->stage, s->stages, s->chunks, s->micros, schedules[0].chunks, schedules[0].micros);
    size_t n = (size_t)s->num_acts + 1; /* never zero */
    l->links = malloc(n * sizeof *l->links);
    l->partner = malloc(n * sizeof *l->partner);
    l->begin = malloc(n * sizeof *l->begin);
    l->posted = malloc(n * sizeof *l->posted);
    if (!l->links || !l->partner || !l->begin || !l->posted)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory to simulate a pipeline schedule of %d actions", s->num_acts);
    for (int i = 0; i < s->num_acts; i++)
        l->begin[i] = l->posted[i] = NEVER;
    PLAIT_TRY(plait_schedule_link(s, l->links));
    return PLAIT_OK;
}

static plait_status run(pipeline *p, const plait_schedule *schedules, plait_simulation *sim)
{
    for (int stage = 0; stage < p->stages; stage++)
        PLAIT_TRY(lane_init(&p->lanes[stage], schedules, p->stages, stage));
    for (int stage = 0; stage < p->stages; stage++) {
        PLAIT_TRY(match_messages(p, stage, PLAIT_DIR_FWD));
        PLAIT_TRY(match_messages(p, stage, PLAIT_DIR_BWD));
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int stage = 0; stage < p->stages; stage++)
            moved |= move_stage(p, stage, sim);
    }
    PLAIT_TRY(check_end(p, sim));
    return PLAIT_OK;
}

plait_status plait_schedule_simulate_times(const plait_schedule *schedules, int stages, plait_simulation *sim,
                                           double **begin)
{
    plait_status st = PLAIT_OK;
    if (stages < 1 || stages > PLAIT_MAX_STAGES)
        PLAIT_FAIL(INTERNAL, "%d pipeline stages cannot be simulated: between 1 and %d", stages, PLAIT_MAX_STAGES);
    pipeline p = {calloc((size_t)stages, sizeof *p.lanes), stages, sim->in_order};
    if (!p.lanes)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory to simulate %d pipeline stages", stages);
    sim->makespan = 0.0;
    for (int stage = 0; stage < stages; stage++)
        sim->in_flight[stage] = 0;

    PLAIT_TRY_TO(done, st, run(&p, schedules, sim));
    const plait_schedule *s = &schedules[0];
    sim->ideal = (double)s->chunks * s->micros * (sim->forward_time + (s->forward_only ? 0.0 : sim->backward_time));
    for (int stage = 0; begin && stage < stages; stage++)
        for (int i = 0; i < schedules[stage].num_acts; i++)
            begin[stage][i] = p.lanes[stage].begin[i];
done:
    for (int stage = 0; stage < stages; stage++)
        lane_deinit(&p.lanes[stage]);
    free(p.lanes);
    return st;
}

plait_status plait_schedule_simulate(const plait_schedule *schedules, int stages, plait_simulation *sim)
{
    return plait_schedule_simulate_times(schedules, stages, sim, NULL);
}
