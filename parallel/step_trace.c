#include "parallel/step_trace.h"

#include <stdlib.h>
#include <string.h>

#include "parallel/engine_impl.h"
#include "parallel/lr_schedule.h"

/* What listens while the step runs. */
typedef struct recorder {
    plait_step_trace *t;
    const plait_machine *machine;
    const plait_machine_use *use;
    plait_comm *comm[PLAIT_CHANNELS];
    int size[PLAIT_CHANNELS];
    int nodes[PLAIT_CHANNELS]; /* that the group is on */
    double computing;          /* seconds since the last event */
    plait_status status;       /* the first failure: listeners return nothing */
} recorder;

plait_group plait_channel_group(plait_channel channel)
{
    static const plait_group groups[PLAIT_CHANNELS] = {
        [PLAIT_CHANNEL_WORLD] = PLAIT_GROUP_WORLD,
        [PLAIT_CHANNEL_TENSOR] = PLAIT_GROUP_TENSOR,
        [PLAIT_CHANNEL_DATA] = PLAIT_GROUP_DATA,
        [PLAIT_CHANNEL_ACTIVATIONS] = PLAIT_GROUP_PIPELINE,
        [PLAIT_CHANNEL_GRADIENTS] = PLAIT_GROUP_PIPELINE,
        [PLAIT_CHANNEL_EMBEDDING] = PLAIT_GROUP_EMBEDDING,
        [PLAIT_CHANNEL_KV] = PLAIT_GROUP_KV,
    };
    return groups[channel];
}

/* ---- the list grows ---- */

static plait_status grow(void **array, int *cap, int num, size_t size)
{
    if (num < *cap)
        return PLAIT_OK;
    const int cap_new = *cap ? 2 * *cap : 256;
    void *bigger = realloc(*array, (size_t)cap_new * size);
    if (!bigger)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for a step of %d events", cap_new);
    *array = bigger;
    *cap = cap_new;
    return PLAIT_OK;
}

static plait_status add_event(recorder *r, const plait_trace_event *event)
{
    plait_step_trace *t = r->t;
    void *events = t->events;
    PLAIT_TRY(grow(&events, &t->cap_events, t->num_events, sizeof *t->events));
    t->events = events;
    t->events[t->num_events++] = *event;
    return PLAIT_OK;
}

/* What was computed since the last event is an event. */
static plait_status end_computing(recorder *r)
{
    const plait_trace_event event = {.kind = PLAIT_TRACE_COMPUTE, .seconds = r->computing};
    if (r->computing > 0)
        PLAIT_TRY(add_event(r, &event));
    r->computing = 0;
    return PLAIT_OK;
}

static plait_status add_act(recorder *r, plait_act act, bool begins)
{
    const plait_trace_event event = {
        .kind = begins ? PLAIT_TRACE_BEGIN : PLAIT_TRACE_END,
        .act = {.chunk = act.chunk, .backward = act.kind == PLAIT_ACT_BWD, .micro = act.micro}};
    PLAIT_TRY(end_computing(r));
    return add_event(r, &event);
}

static plait_status add_wait(recorder *r, int request)
{
    const plait_trace_event event = {.kind = PLAIT_TRACE_WAIT, .comm = {.request = request}};
    PLAIT_TRY(end_computing(r));
    return add_event(r, &event);
}

/* ---- communication ---- */

static plait_channel channel_of(const recorder *r, const plait_comm *c)
{
    int channel = 0;
    while (r->comm[channel] != c)
        channel++;
    return (plait_channel)channel;
}

/* Whether a and b, ranks of the world, are on different nodes. */
static bool are_apart(const recorder *r, int a, int b)
{
    const int node = r->machine ? r->machine->ranks_per_node : 0;
    return node > 0 && a / node != b / node;
}

static int nodes_of_message(const recorder *r, int stage)
{
    const plait_topology *t = &r->t->topo;
    return are_apart(r, t->rank, plait_topology_rank_of(t, t->d, stage, t->t)) ? 2 : 1;
}

static plait_status add_op(recorder *r, plait_channel channel, const plait_comm_op *op)
{
    plait_step_trace *t = r->t;
    const bool message = op->kind == PLAIT_COMM_SEND || op->kind == PLAIT_COMM_RECV;
    const int nodes = message ? nodes_of_message(r, op->peer) : r->nodes[channel];
    /* What travels: rates are measured with one type throughout. */
    const double bytes = (double)op->count * (double)plait_dtype_size(op->wire);
    plait_trace_op o = {.channel = channel, .kind = op->kind, .peer = op->peer};
    PLAIT_TRY(plait_machine_comm_seconds(r->machine, r->use, message ? PLAIT_COMM_SEND : op->kind, r->size[channel],
                                         nodes, op->wire, bytes, &o.seconds));
    void *ops = t->ops;
    PLAIT_TRY(grow(&ops, &t->cap_ops, t->num_ops, sizeof *t->ops));
    t->ops = ops;
    t->ops[t->num_ops++] = o;
    return PLAIT_OK;
}

static plait_status add_start(recorder *r, const plait_comm *c, const plait_comm_op *ops, int n, int request)
{
    const plait_trace_event event = {.kind = PLAIT_TRACE_START,
                                     .comm = {.request = request, .first_op = r->t->num_ops, .num_ops = n}};
    PLAIT_TRY(end_computing(r));
    for (int i = 0; i < n; i++)
        PLAIT_TRY(add_op(r, channel_of(r, c), &ops[i]));
    r->t->num_requests = request + 1;
    return add_event(r, &event);
}

/* ---- listeners ---- */

static void note(recorder *r, plait_status st)
{
    if (r->status == PLAIT_OK)
        r->status = st;
}

static void hear_op(void *self, const plait_op_record *op)
{
    recorder *r = self;
    plait_op_totals *total = &r->t->totals[op->op];
    total->calls++;
    total->flops += op->flops;
    total->bytes += op->bytes_read + op->bytes_written;
    if (!r->machine || r->status != PLAIT_OK)
        return;
    double seconds = 0;
    note(r, plait_machine_op_seconds(r->machine, r->use, op, &seconds));
    total->seconds += seconds;
    r->computing += seconds;
}

static void hear_start(void *self, const plait_comm *c, const plait_comm_op *ops, int n, int request)
{
    recorder *r = self;
    if (r->machine && r->status == PLAIT_OK)
        note(r, add_start(r, c, ops, n, request));
}

static void hear_wait(void *self, int request)
{
    recorder *r = self;
    if (r->machine && r->status == PLAIT_OK)
        note(r, add_wait(r, request));
}

static void hear_act(void *self, plait_act act, bool begins)
{
    recorder *r = self;
    if (r->machine && r->status == PLAIT_OK)
        note(r, add_act(r, act, begins));
}

/* ---- one step ---- */

static plait_status find_channels(recorder *r, const plait_engine *e)
{
    plait_group_comm all[PLAIT_GROUP_COMMS];
    _Static_assert((int)PLAIT_CHANNELS == (int)PLAIT_GROUP_COMMS, "a channel a communicator");
    int *ranks = calloc((size_t)e->topo.world, sizeof *ranks);
    if (!ranks)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for a list of %d ranks", e->topo.world);
    plait_group_comms(&e->groups, all);
    for (int i = 0; i < PLAIT_CHANNELS; i++) {
        r->comm[i] = all[i].comm;
        r->size[i] = plait_topology_group(&e->topo, all[i].kind, ranks);
        r->nodes[i] = 1;
        for (int k = 1; k < r->size[i]; k++) /* ranks ascend, and so do nodes */
            r->nodes[i] += are_apart(r, ranks[k - 1], ranks[k]);
    }
    free(ranks);
    return PLAIT_OK;
}

static plait_status run_step(plait_engine *dry)
{
    const plait_config *cfg = dry->cfg;
    plait_step_result result;
    return plait_engine_train_step(
        dry, 1, (int)plait_num_micro_batches(cfg->batch.global_batch_size, cfg->batch.micro_batch_size, dry->topo.dp),
        cfg->optimizer.lr, &result);
}

plait_status plait_step_trace_init(plait_step_trace *t, plait_engine *dry, const plait_machine *machine,
                                   const plait_machine_use *use)
{
    *t = (plait_step_trace){.topo = dry->topo};
    recorder r = {.t = t, .machine = machine, .use = use};
    const plait_comm_listener comms = {&r, hear_start, hear_wait};
    const plait_pipeline_observer acts = {&r, hear_act};
    PLAIT_TRY(find_channels(&r, dry));
    plait_plan_listen(hear_op, &r);
    plait_comm_plan_listen(&comms);
    plait_engine_observe(dry, &acts);
    const plait_status st = run_step(dry);
    plait_engine_observe(dry, NULL);
    plait_comm_plan_listen(NULL);
    plait_plan_listen(NULL, NULL);
    PLAIT_TRY(st);
    PLAIT_TRY(r.status);
    memcpy(t->traffic, plait_engine_traffic(dry), sizeof t->traffic);
    return machine ? end_computing(&r) : PLAIT_OK;
}

void plait_step_trace_deinit(plait_step_trace *t)
{
    free(t->events);
    free(t->ops);
    *t = (plait_step_trace){0};
}
