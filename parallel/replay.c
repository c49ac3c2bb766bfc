#include "parallel/replay.h"

#include <math.h>
#include <stdlib.h>

#define NEVER (-1.0)

/* An operation that joins stages: the k-th on its channel (messages: that a stage sends). */
typedef struct meeting {
    int missing;      /* stages that have not come to it */
    double came, end; /* came: when the last one came (so far); end NEVER: some are missing */
} meeting;

typedef struct meetings {
    int num, cap;
    meeting *all;
} meetings;

/* One stage while it is replayed. */
typedef struct lane {
    const plait_step_trace *t;
    int pos;
    double clock;
    double channel_free[PLAIT_CHANNELS]; /* overlap: when the last of this stage's own collectives has ended */
    int num_met[PLAIT_CHANNELS];         /* joint collectives begun so far */
    int num_sent[PLAIT_CHANNELS], num_received[PLAIT_CHANNELS];
    int *meeting_of;         /* [num_ops]: of an operation that joins stages */
    double *came, *end;      /* [num_ops]: of the others, when they were started and ended; NEVER: not yet */
    int *first_op, *last_op; /* [num_requests] */
    bool waiting;            /* has come to the wait at its position */
    plait_span *open;        /* the forward or backward that it is in */
} lane;

typedef struct replay {
    const plait_machine *machine;
    int num_lanes;
    lane *lanes;
    meetings joint[PLAIT_CHANNELS]; /* collectives over stages */
    meetings *sent[PLAIT_CHANNELS]; /* [lane]: messages by sender */
    plait_prediction *out;
} replay;

static double later(double a, double b)
{
    return a > b ? a : b;
}

static bool is_message(const plait_trace_op *op)
{
    return op->kind == PLAIT_COMM_SEND || op->kind == PLAIT_COMM_RECV;
}

/* Whether an operation of a channel has members on several stages. */
static bool joins_stages(const plait_trace_op *op)
{
    return is_message(op) || op->channel == PLAIT_CHANNEL_WORLD || op->channel == PLAIT_CHANNEL_EMBEDDING;
}

/* ---- meetings ---- */

static plait_status meeting_at(meetings *m, int index, int members)
{
    if (index < m->num)
        return PLAIT_OK;
    if (m->num == m->cap) {
        const int cap = m->cap ? 2 * m->cap : 64;
        meeting *bigger = realloc(m->all, (size_t)cap * sizeof *bigger);
        if (!bigger)
            PLAIT_FAIL(OUT_OF_MEMORY, "no memory to replay %d operations of communication", cap);
        m->all = bigger;
        m->cap = cap;
    }
    m->all[m->num++] = (meeting){.missing = members, .end = NEVER};
    return PLAIT_OK;
}

static meetings *meetings_of(const replay *r, int stage, const plait_trace_op *op)
{
    if (!is_message(op))
        return (meetings *)&r->joint[op->channel];
    return &r->sent[op->channel][op->kind == PLAIT_COMM_SEND ? stage : op->peer];
}

/* Gives the operation its number among those that it has to meet. */
static plait_status number(replay *r, int stage, int index)
{
    lane *l = &r->lanes[stage];
    const plait_trace_op *op = &l->t->ops[index];
    int *next = op->kind == PLAIT_COMM_SEND   ? &l->num_sent[op->channel]
                : op->kind == PLAIT_COMM_RECV ? &l->num_received[op->channel]
                                              : &l->num_met[op->channel];
    const int members = is_message(op) || op->channel == PLAIT_CHANNEL_EMBEDDING ? 2 : r->num_lanes;
    l->meeting_of[index] = (*next)++;
    return meeting_at(meetings_of(r, stage, op), l->meeting_of[index], members);
}

/* The stage has come to the operation; with the last one it runs, behind the one before it. */
static void come(replay *r, int stage, int index)
{
    lane *l = &r->lanes[stage];
    const plait_trace_op *op = &l->t->ops[index];
    meetings *m = meetings_of(r, stage, op);
    const int k = l->meeting_of[index];
    meeting *here = &m->all[k];
    here->came = later(here->came, l->clock);
    if (--here->missing > 0)
        return;
    const bool queues = r->machine->overlap && k > 0;
    here->end = (queues ? later(here->came, m->all[k - 1].end) : here->came) + op->seconds;
}

/* ---- one operation ---- */

/* A collective of ranks that all do the same: begins as soon as its communicator is free. */
static void run_alone(replay *r, lane *l, int index)
{
    const plait_trace_op *op = &l->t->ops[index];
    double *free_at = &l->channel_free[op->channel];
    l->came[index] = l->clock;
    l->end[index] = *free_at = (r->machine->overlap ? later(l->clock, *free_at) : l->clock) + op->seconds;
}

/* When all had come to the operation, and when it ended; false: it has not. */
static bool has_ended(const replay *r, int stage, int index, double *came, double *end)
{
    const lane *l = &r->lanes[stage];
    const plait_trace_op *op = &l->t->ops[index];
    *came = l->came[index];
    *end = l->end[index];
    if (joins_stages(op)) {
        const meeting *m = &meetings_of(r, stage, op)->all[l->meeting_of[index]];
        *came = m->came;
        *end = m->end;
    }
    return *end != NEVER;
}

/* ---- events ---- */

static plait_status start(replay *r, int stage, const plait_trace_event *e)
{
    lane *l = &r->lanes[stage];
    l->first_op[e->comm.request] = e->comm.first_op;
    l->last_op[e->comm.request] = e->comm.first_op + e->comm.num_ops;
    for (int i = e->comm.first_op; i < e->comm.first_op + e->comm.num_ops; i++) {
        const plait_trace_op *op = &l->t->ops[i];
        if (joins_stages(op))
            PLAIT_TRY(number(r, stage, i));
        if (joins_stages(op) && (r->machine->overlap || op->kind == PLAIT_COMM_SEND))
            come(r, stage, i);
        else if (!joins_stages(op) && r->machine->overlap)
            run_alone(r, l, i);
    }
    return PLAIT_OK;
}

/* Without overlap an operation begins where it is waited for. */
static void begin_here(replay *r, int stage, int request)
{
    lane *l = &r->lanes[stage];
    for (int i = l->first_op[request]; i < l->last_op[request]; i++) {
        const plait_trace_op *op = &l->t->ops[i];
        if (joins_stages(op) && op->kind != PLAIT_COMM_SEND)
            come(r, stage, i);
    }
}

/* Time until `end`: idle until the last stage has come to the operation, exposed from then on, also where it queues
 * behind others of its communicator. */
static void spend(replay *r, int stage, plait_channel channel, double came, double end)
{
    lane *l = &r->lanes[stage];
    plait_stage_time *s = &r->out->stages[stage];
    if (came > l->clock) {
        s->idle += came - l->clock;
        l->clock = came;
    }
    if (end > l->clock) {
        s->exposed[channel] += end - l->clock;
        l->clock = end;
    }
}

/* Waits for all operations of a request; false: one of them cannot end yet. */
static bool wait_for(replay *r, int stage, int request)
{
    lane *l = &r->lanes[stage];
    double came, end;
    if (!l->waiting && !r->machine->overlap)
        begin_here(r, stage, request);
    l->waiting = true;
    for (int i = l->first_op[request]; i < l->last_op[request]; i++)
        if (joins_stages(&l->t->ops[i]) && !has_ended(r, stage, i, &came, &end))
            return false;
    for (int i = l->first_op[request]; i < l->last_op[request]; i++) {
        if (!joins_stages(&l->t->ops[i]) && !r->machine->overlap)
            run_alone(r, l, i);
        has_ended(r, stage, i, &came, &end);
        spend(r, stage, l->t->ops[i].channel, came, end);
    }
    l->waiting = false;
    return true;
}

static void begin_span(replay *r, int stage, const plait_trace_event *e)
{
    lane *l = &r->lanes[stage];
    l->open = &r->out->spans[r->out->num_spans++];
    *l->open = (plait_span){.stage = (int16_t)stage,
                            .chunk = e->act.chunk,
                            .backward = e->act.backward,
                            .micro = e->act.micro,
                            .begin = l->clock};
}

/* Replays one stage as far as it gets. Returns whether it got anywhere. */
static plait_status move(replay *r, int stage, bool *moved)
{
    lane *l = &r->lanes[stage];
    for (; l->pos < l->t->num_events; l->pos++) {
        const plait_trace_event *e = &l->t->events[l->pos];
        switch (e->kind) {
        case PLAIT_TRACE_COMPUTE:
            l->clock += e->seconds;
            r->out->stages[stage].compute += e->seconds;
            break;
        case PLAIT_TRACE_START:
            PLAIT_TRY(start(r, stage, e));
            break;
        case PLAIT_TRACE_WAIT:
            if (!wait_for(r, stage, e->comm.request))
                return PLAIT_OK;
            break;
        case PLAIT_TRACE_BEGIN:
            begin_span(r, stage, e);
            break;
        case PLAIT_TRACE_END:
            l->open->end = l->clock;
            break;
        }
        *moved = true;
    }
    return PLAIT_OK;
}

/* ---- the whole ---- */

static plait_status lane_init(lane *l, const plait_step_trace *t)
{
    l->t = t;
    l->meeting_of = calloc((size_t)t->num_ops + 1, sizeof *l->meeting_of);
    l->came = calloc((size_t)t->num_ops + 1, sizeof *l->came);
    l->end = calloc((size_t)t->num_ops + 1, sizeof *l->end);
    l->first_op = calloc((size_t)t->num_requests + 1, sizeof *l->first_op);
    l->last_op = calloc((size_t)t->num_requests + 1, sizeof *l->last_op);
    if (!l->meeting_of || !l->came || !l->end || !l->first_op || !l->last_op)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory to replay a step of %d events", t->num_events);
    for (int i = 0; i < t->num_ops; i++)
        l->end[i] = NEVER;
    return PLAIT_OK;
}

static void lane_deinit(lane *l)
{
    free(l->meeting_of);
    free(l->came);
    free(l->end);
    free(l->first_op);
    free(l->last_op);
}

static plait_status prepare(replay *r, const plait_step_trace *traces)
{
    size_t spans = 0;
    r->lanes = calloc((size_t)r->num_lanes, sizeof *r->lanes);
    r->out->stages = calloc((size_t)r->num_lanes, sizeof *r->out->stages);
    for (int c = 0; c < PLAIT_CHANNELS; c++)
        r->sent[c] = calloc((size_t)r->num_lanes, sizeof *r->sent[c]);
    for (int i = 0; i < r->num_lanes; i++)
        for (int k = 0; k < traces[i].num_events; k++)
            spans += traces[i].events[k].kind == PLAIT_TRACE_BEGIN;
    r->out->spans = calloc(spans + 1, sizeof *r->out->spans);
    if (!r->lanes || !r->out->stages || !r->out->spans)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory to replay %d stages", r->num_lanes);
    for (int c = 0; c < PLAIT_CHANNELS; c++)
        if (!r->sent[c])
            PLAIT_FAIL(OUT_OF_MEMORY, "no memory to replay the messages of %d stages", r->num_lanes);
    for (int i = 0; i < r->num_lanes; i++)
        PLAIT_TRY(lane_init(&r->lanes[i], &traces[i]));
    return PLAIT_OK;
}

static plait_status run(replay *r)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < r->num_lanes; i++)
            PLAIT_TRY(move(r, i, &moved));
    }
    for (int i = 0; i < r->num_lanes; i++)
        if (r->lanes[i].pos < r->lanes[i].t->num_events)
            PLAIT_FAIL(INTERNAL, "pipeline stage %d waits at event %d of %d, and no stage can move", i, r->lanes[i].pos,
                       r->lanes[i].t->num_events);
    return PLAIT_OK;
}

/* All stages end together: the next step begins with an exchange of the world. */
static void finish(replay *r)
{
    double end = 0;
    for (int i = 0; i < r->num_lanes; i++)
        end = later(end, r->lanes[i].clock);
    for (int i = 0; i < r->num_lanes; i++)
        r->out->stages[i].idle += end - r->lanes[i].clock;
    r->out->host_seconds = r->machine->step_seconds;
    r->out->step_seconds = end + r->out->host_seconds;
}

static int by_stage(const void *a, const void *b)
{
    const plait_span *x = a, *y = b;
    if (x->stage != y->stage)
        return x->stage < y->stage ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

plait_status plait_replay(const plait_step_trace *traces, int num_stages, const plait_machine *machine,
                          plait_prediction *out)
{
    *out = (plait_prediction){.num_stages = num_stages};
    replay r = {.machine = machine, .num_lanes = num_stages, .out = out};
    plait_status st = PLAIT_OK;
    PLAIT_TRY_TO(done, st, prepare(&r, traces));
    PLAIT_TRY_TO(done, st, run(&r));
    finish(&r);
    qsort(out->spans, (size_t)out->num_spans, sizeof *out->spans, by_stage);
done:
    for (int i = 0; r.lanes && i < num_stages; i++)
        lane_deinit(&r.lanes[i]);
    for (int c = 0; c < PLAIT_CHANNELS; c++) {
        for (int i = 0; r.sent[c] && i < num_stages; i++)
            free(r.sent[c][i].all);
        free(r.sent[c]);
        free(r.joint[c].all);
    }
    free(r.lanes);
    return st;
}

void plait_prediction_deinit(plait_prediction *p)
{
    free(p->stages);
    free(p->spans);
    *p = (plait_prediction){0};
}

double plait_stage_exposed(const plait_stage_time *s, plait_group group)
{
    double sum = 0;
    for (int c = 0; c < PLAIT_CHANNELS; c++)
        sum += plait_channel_group((plait_channel)c) == group ? s->exposed[c] : 0;
    return sum;
}

double plait_stage_seconds(const plait_stage_time *s)
{
    double sum = s->compute + s->idle;
    for (int c = 0; c < PLAIT_CHANNELS; c++)
        sum += s->exposed[c];
    return sum;
}

double plait_prediction_bubble(const plait_prediction *p)
{
    double idle = 0, all = 0;
    for (int i = 0; i < p->num_stages; i++) {
        idle += p->stages[i].idle;
        all += plait_stage_seconds(&p->stages[i]);
    }
    return all > 0 ? idle / all : 0;
}
