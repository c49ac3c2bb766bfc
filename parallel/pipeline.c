#include "parallel/pipeline.h"

#include "parallel/schedule_impl.h"

#include <stdlib.h>

/* A schedule with everything that is known before it runs. Indexed by position, or by chunk * micros + micro. */
typedef struct program {
    const plait_schedule *s;
    plait_act_link *links;
    int *input[PLAIT_DIRS]; /* received buffer: among `inputs` of the direction; -1 none */
    int *body;              /* slot of the stage, among those bound for the chunk */
} program;

/* Places of a chunk's body slots in the pool, in the order of their numbers. */
typedef struct places {
    size_t *offsets;
    int num;
} places;

struct plait_pipeline {
    plait_stage stage;
    plait_comm *comm[PLAIT_DIRS];
    int index, stages, chunks; /* index: of this stage */
    int64_t count;             /* elements of a message */
    plait_dtype dtype;
    const plait_exec *ex;
    program *programs;
    int num_programs;
    void **inputs[PLAIT_DIRS];                     /* X, DY: received */
    int num_inputs[PLAIT_DIRS];                    /* their number */
    void *outputs[PLAIT_DIRS][PLAIT_SEND_BUFFERS]; /* Y, DX: sent */
    places *bodies;                                /* [chunks] */
    plait_request **requests;                      /* of a run, at the position of the first action of each group */
    int in_flight, max_in_flight;                  /* of the last run */
};

/* ---- creation ---- */

static void program_deinit(program *g)
{
    free(g->links);
    free(g->input[PLAIT_DIR_FWD]);
    free(g->input[PLAIT_DIR_BWD]);
    free(g->body);
}

static plait_status program_init(program *g, const plait_pipeline *p, const plait_schedule *s)
{
    g->s = s;
    if (s->stage != p->index || s->stages != p->stages || s->chunks != p->chunks)
        PLAIT_FAIL(INTERNAL,
                   "a schedule of stage %d of %d with %d chunks was given to the pipeline of stage %d of %d with %d",
                   s->stage, s->stages, s->chunks, p->index, p->stages, p->chunks);
    size_t ids = (size_t)s->chunks * (size_t)s->micros;
    g->links = malloc(((size_t)s->num_acts + 1) * sizeof *g->links);
    g->input[PLAIT_DIR_FWD] = malloc(ids * sizeof **g->input);
    g->input[PLAIT_DIR_BWD] = malloc(ids * sizeof **g->input);
    g->body = calloc(ids, sizeof *g->body);
    if (!g->links || !g->input[PLAIT_DIR_FWD] || !g->input[PLAIT_DIR_BWD] || !g->body)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for a pipeline of %d micro-batches", s->micros);
    PLAIT_TRY(plait_schedule_link(s, g->links));
    return PLAIT_OK;
}

/* Bytes that each chunk saves: its slot 0 is bound to an arena that only counts. A chunk that saves nothing gets a
 * byte, so that its slots stay apart and each micro-batch in flight has one of its own. */
static plait_status measure(plait_pipeline *p, int chunk, size_t *bytes)
{
    plait_arena *counting;
    PLAIT_TRY(plait_arena_create_counting(PLAIT_TIER_DEVICE, PLAIT_MEM_ACT, &counting));
    plait_status st = p->stage.ops->bind(p->stage.self, chunk, 0, counting);
    size_t used = plait_arena_high_water(counting);
    plait_arena_destroy(counting);
    PLAIT_TRY(st);
    *bytes = used > 0 ? used : 1;
    return PLAIT_OK;
}

/* The chunk's slot at an offset; a new number if it has none there. */
static plait_status slot_at(places *b, size_t offset, int *slot)
{
    for (*slot = 0; *slot < b->num; (*slot)++)
        if (b->offsets[*slot] == offset)
            return PLAIT_OK;
    size_t *grown = realloc(b->offsets, ((size_t)b->num + 1) * sizeof *grown);
    if (!grown)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for %d pipeline slots", b->num + 1);
    b->offsets = grown;
    b->offsets[b->num++] = offset;
    return PLAIT_OK;
}

/* Places the bodies of one schedule; *pool grows to what it needs. */
static plait_status place_bodies(plait_pipeline *p, program *g, const size_t *bytes, size_t *pool)
{
    plait_status st = PLAIT_OK;
    const plait_schedule *s = g->s;
    size_t ids = (size_t)s->chunks * (size_t)s->micros, need = 0;
    size_t *offsets = malloc(ids * sizeof *offsets);
    if (!offsets)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory to place %zu pipeline slots", ids);
    PLAIT_TRY_TO(done, st, plait_schedule_pack(s, PLAIT_SEG_BODY, bytes, offsets, &need));
    for (size_t id = 0; id < ids; id++) {
        places *b = &p->bodies[id / (size_t)s->micros];
        /* Forward-only: nothing outlives its forward, so slot 0 does wherever another schedule has put it. */
        if (s->forward_only && b->num > 0)
            g->body[id] = 0;
        else
            PLAIT_TRY_TO(done, st, slot_at(b, offsets[id], &g->body[id]));
    }
    if (need > *pool)
        *pool = need;
done:
    free(offsets);
    return st;
}

static plait_status bind_bodies(plait_pipeline *p, const size_t *bytes, void *pool, const plait_arena *acts)
{
    for (int chunk = 0; chunk < p->chunks; chunk++)
        for (int slot = 0; slot < p->bodies[chunk].num; slot++) {
            plait_arena *view;
            char *begin = (char *)((uintptr_t)pool + p->bodies[chunk].offsets[slot]);
            PLAIT_TRY(plait_arena_create_view(acts, begin, bytes[chunk], &view));
            plait_status st = p->stage.ops->bind(p->stage.self, chunk, slot, view);
            plait_arena_destroy(view);
            PLAIT_TRY(st);
        }
    return PLAIT_OK;
}

static plait_status create_bodies(plait_pipeline *p, plait_arena *acts)
{
    plait_status st = PLAIT_OK;
    size_t pool_bytes = 0;
    void *pool;
    size_t *bytes = calloc((size_t)p->chunks, sizeof *bytes);
    if (!bytes)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for %d model chunks", p->chunks);
    for (int chunk = 0; chunk < p->chunks; chunk++)
        PLAIT_TRY_TO(done, st, measure(p, chunk, &bytes[chunk]));
    /* Schedules with backward first: the forward-only ones reuse their slots. */
    for (int forward_only = 0; forward_only < 2; forward_only++)
        for (int i = 0; i < p->num_programs; i++)
            if (p->programs[i].s->forward_only == (forward_only == 1))
                PLAIT_TRY_TO(done, st, place_bodies(p, &p->programs[i], bytes, &pool_bytes));
    PLAIT_TRY_TO(done, st, plait_arena_take(acts, pool_bytes, &pool));
    PLAIT_TRY_TO(done, st, bind_bodies(p, bytes, pool, acts));
done:
    free(bytes);
    return st;
}

/* Receive buffers of one direction: as many as the schedule that needs most. */
static plait_status create_inputs(plait_pipeline *p, int dir, plait_arena *mem)
{
    plait_segment segment = dir == PLAIT_DIR_FWD ? PLAIT_SEG_X : PLAIT_SEG_DY;
    for (int i = 0; i < p->num_programs; i++) {
        int num = plait_schedule_colour(p->programs[i].s, segment, p->programs[i].input[dir]);
        if (num > p->num_inputs[dir])
            p->num_inputs[dir] = num;
    }
    p->inputs[dir] = calloc((size_t)p->num_inputs[dir] + 1, sizeof *p->inputs[dir]);
    if (!p->inputs[dir])
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for %d pipeline buffers", p->num_inputs[dir]);
    for (int i = 0; i < p->num_inputs[dir]; i++)
        PLAIT_TRY(plait_arena_take(mem, (size_t)p->count * plait_dtype_size(p->dtype), &p->inputs[dir][i]));
    return PLAIT_OK;
}

/* Send buffers of one direction: those that some schedule uses. */
static plait_status create_outputs(plait_pipeline *p, int dir, plait_arena *mem)
{
    int num = 0;
    for (int i = 0; i < p->num_programs; i++)
        for (int j = 0; j < p->programs[i].s->num_acts; j++)
            if (p->programs[i].s->acts[j].kind == plait_act_kind_of(dir, PLAIT_ROLE_SEND) &&
                p->programs[i].links[j].buffer >= num)
                num = p->programs[i].links[j].buffer + 1;
    for (int i = 0; i < num; i++)
        PLAIT_TRY(plait_arena_take(mem, (size_t)p->count * plait_dtype_size(p->dtype), &p->outputs[dir][i]));
    return PLAIT_OK;
}

static plait_status create(plait_pipeline *p, const plait_pipeline_options *o, plait_arena *acts, plait_arena *comms)
{
    if (o->num_schedules < 1 || o->chunks < 1 || o->rows < 0 || o->hidden < 0)
        PLAIT_FAIL(INTERNAL, "a pipeline of %d schedules, %d chunks, messages of (%lld, %lld)", o->num_schedules,
                   o->chunks, (long long)o->rows, (long long)o->hidden);
    if (plait_comm_size(o->grad) != p->stages || plait_comm_rank(o->grad) != p->index)
        PLAIT_FAIL(INTERNAL, "pipeline groups differ: rank %d of %d for activations, %d of %d for gradients", p->index,
                   p->stages, plait_comm_rank(o->grad), plait_comm_size(o->grad));
    p->programs = calloc((size_t)o->num_schedules, sizeof *p->programs);
    p->bodies = calloc((size_t)o->chunks, sizeof *p->bodies);
    if (!p->programs || !p->bodies)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for a pipeline of %d schedules", o->num_schedules);
    int longest = 0;
    for (int i = 0; i < o->num_schedules; i++) {
        p->num_programs++; /* also one that fails half-way is let go */
        PLAIT_TRY(program_init(&p->programs[i], p, o->schedules[i]));
        if (o->schedules[i]->num_acts > longest)
            longest = o->schedules[i]->num_acts;
    }
    p->requests = calloc((size_t)longest + 1, sizeof *p->requests);
    if (!p->requests)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the messages of %d actions", longest);
    PLAIT_TRY(create_inputs(p, PLAIT_DIR_FWD, acts));
    PLAIT_TRY(create_bodies(p, acts));
    PLAIT_TRY(create_inputs(p, PLAIT_DIR_BWD, comms));
    PLAIT_TRY(create_outputs(p, PLAIT_DIR_FWD, comms));
    PLAIT_TRY(create_outputs(p, PLAIT_DIR_BWD, comms));
    return PLAIT_OK;
}

plait_status plait_pipeline_create(const plait_pipeline_options *o, plait_arena *acts, plait_arena *comms,
                                   plait_pipeline **out)
{
    plait_pipeline *p = calloc(1, sizeof *p);
    if (!p)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the record of a pipeline");
    *p = (plait_pipeline){.stage = o->stage,
                          .comm = {o->act, o->grad},
                          .index = plait_comm_rank(o->act),
                          .stages = plait_comm_size(o->act),
                          .chunks = o->chunks,
                          .count = o->rows * o->hidden,
                          .dtype = o->dtype,
                          .ex = o->ex};
    plait_status st = create(p, o, acts, comms);
    if (st != PLAIT_OK) {
        plait_pipeline_destroy(p);
        PLAIT_TRY(st);
    }
    *out = p;
    return PLAIT_OK;
}

void plait_pipeline_destroy(plait_pipeline *p)
{
    if (!p)
        return;
    for (int i = 0; p->programs && i < p->num_programs; i++)
        program_deinit(&p->programs[i]);
    for (int chunk = 0; p->bodies && chunk < p->chunks; chunk++)
        free(p->bodies[chunk].offsets);
    free(p->programs);
    free(p->bodies);
    free(p->requests);
    free(p->inputs[PLAIT_DIR_FWD]);
    free(p->inputs[PLAIT_DIR_BWD]);
    free(p);
}

int plait_pipeline_in_flight(const plait_pipeline *p)
{
    return p->max_in_flight;
}

/* ---- one step ---- */

static void *input_of(const plait_pipeline *p, const program *g, int dir, plait_act a)
{
    int slot = g->input[dir][plait_schedule_id(g->s, a)];
    return slot < 0 ? NULL : p->inputs[dir][slot];
}

static void *output_of(const plait_pipeline *p, const program *g, int position)
{
    int buffer = g->links[position].buffer;
    return buffer < 0 ? NULL : p->outputs[plait_act_dir(g->s->acts[position])][buffer];
}

/* Posts the group of messages that begins at `first`: neighbours of one communicator start at once. */
static plait_status start_group(plait_pipeline *p, const program *g, int first, int length)
{
    plait_comm_op ops[2];
    int dir = plait_act_dir(g->s->acts[first]);
    int next = plait_schedule_peer(p->index, p->stages, dir);
    int previous = plait_schedule_peer(p->index, p->stages, dir == PLAIT_DIR_FWD ? PLAIT_DIR_BWD : PLAIT_DIR_FWD);
    for (int i = 0; i < length; i++) {
        plait_act a = g->s->acts[first + i];
        bool sends = plait_act_role(a) == PLAIT_ROLE_SEND;
        void *buffer = sends ? output_of(p, g, first + i) : input_of(p, g, dir, a);
        ops[i] = sends ? plait_comm_make(PLAIT_COMM_SEND, buffer, NULL, p->count, p->dtype)
                       : plait_comm_make(PLAIT_COMM_RECV, NULL, buffer, p->count, p->dtype);
        ops[i].peer = sends ? next : previous;
    }
    /* Chunks of a single stage: what is sent is received in the same group, by the same rank. A broadcast in a group of
     * one is that copy. */
    if (p->stages == 1) {
        ops[0] = plait_comm_make(PLAIT_COMM_BROADCAST, ops[0].in, ops[length - 1].out, p->count, p->dtype);
        length = 1;
    }
    PLAIT_TRY(plait_comm_start(p->comm[dir], ops, length, p->ex, &p->requests[first]));
    return PLAIT_OK;
}

/* Waits for the group that the message at a position belongs to; -1: nothing to wait for. */
static plait_status wait_for(plait_pipeline *p, const program *g, int position)
{
    if (position >= 0)
        PLAIT_TRY(plait_request_wait(&p->requests[g->links[position].group], p->ex));
    return PLAIT_OK;
}

/* A forward or backward whose input is there and whose output buffer is free. */
static plait_status run_act(plait_pipeline *p, const program *g, int position, const plait_pipeline_step *step)
{
    plait_act a = g->s->acts[position];
    const plait_call call = {.chunk = a.chunk,
                             .micro = a.micro,
                             .slot = g->body[plait_schedule_id(g->s, a)],
                             .mode = step->mode,
                             .step = step->step,
                             .batch = step->batches[a.micro],
                             .grad_scale = step->grad_scale,
                             .loss = step->loss ? step->loss + a.micro * step->loss_stride : NULL,
                             .hashes = step->hashes,
                             .ex = p->ex};
    const plait_stage_ops *ops = p->stage.ops;
    const void *x = input_of(p, g, PLAIT_DIR_FWD, a);
    void *out = output_of(p, g, position);
    if (a.kind == PLAIT_ACT_BWD) {
        PLAIT_TRY(ops->backward(p->stage.self, &call, input_of(p, g, PLAIT_DIR_BWD, a), x, out));
        p->in_flight--;
        return PLAIT_OK;
    }
    if (!plait_schedule_sends(g->s, PLAIT_DIR_FWD, a.chunk) && step->mode == PLAIT_MODE_LOGITS)
        out = step->logits;
    if (++p->in_flight > p->max_in_flight)
        p->max_in_flight = p->in_flight;
    PLAIT_TRY(ops->forward(p->stage.self, &call, x, out));
    if (g->s->forward_only)
        p->in_flight--;
    return PLAIT_OK;
}

static plait_status compute(plait_pipeline *p, const program *g, int position, const plait_pipeline_step *step)
{
    const plait_pipeline_observer *o = step->observer;
    PLAIT_TRY(wait_for(p, g, g->links[position].recv));
    PLAIT_TRY(wait_for(p, g, g->links[position].reuse));
    if (o)
        o->act(o->self, g->s->acts[position], true);
    PLAIT_TRY(run_act(p, g, position, step));
    if (o)
        o->act(o->self, g->s->acts[position], false);
    return PLAIT_OK;
}

static plait_status check_step(const plait_pipeline *p, const plait_pipeline_step *step, const program **out)
{
    const plait_schedule *s = step->schedule;
    const program *g = NULL;
    for (int i = 0; i < p->num_programs; i++)
        if (p->programs[i].s == s)
            g = &p->programs[i];
    if (!g)
        PLAIT_FAIL(INTERNAL, "the schedule of step %u is not one of the %d given to the pipeline", step->step,
                   p->num_programs);
    if (s->forward_only != (step->mode != PLAIT_MODE_TRAIN))
        PLAIT_FAIL(INTERNAL, "step %u: a schedule with%s backward, but mode %d", step->step,
                   s->forward_only ? "out" : "", (int)step->mode);
    if (!step->batches)
        PLAIT_FAIL(INTERNAL, "step %u: no micro-batches", step->step);
    bool last = p->index == p->stages - 1;
    if (step->mode != PLAIT_MODE_LOGITS && last && !step->loss)
        PLAIT_FAIL(INTERNAL, "step %u: the last stage has no place for the loss", step->step);
    if (step->mode == PLAIT_MODE_LOGITS && (s->micros != 1 || (last && !step->logits)))
        PLAIT_FAIL(INTERNAL, "step %u: logits of %d micro-batches; there is a place for %d", step->step, s->micros,
                   last && !step->logits ? 0 : 1);
    *out = g;
    return PLAIT_OK;
}

plait_status plait_pipeline_run(plait_pipeline *p, const plait_pipeline_step *step)
{
    plait_status st = PLAIT_OK;
    const program *g = NULL;
    PLAIT_TRY(check_step(p, step, &g));
    p->in_flight = p->max_in_flight = 0;
    int i = 0;
    for (int length; i < g->s->num_acts; i += length) {
        length = 1;
        if (plait_act_role(g->s->acts[i]) == PLAIT_ROLE_COMPUTE) {
            PLAIT_TRY_TO(failed, st, compute(p, g, i, step));
        } else {
            length = plait_schedule_group_length(g->s, g->links, i);
            PLAIT_TRY_TO(failed, st, start_group(p, g, i, length));
        }
        PLAIT_TRY_TO(failed, st, plait_comm_progress());
    }
    for (i = 0; i < g->s->num_acts; i++)
        if (g->links[i].group == i)
            PLAIT_TRY_TO(failed, st, wait_for(p, g, i));
    return PLAIT_OK;
failed:
    plait_error_prefix("step %u micro-batch %d: ", step->step, g->s->acts[i].micro);
    return st;
}
