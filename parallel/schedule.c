#include "parallel/schedule_impl.h"

#include <limits.h>
#include <stdlib.h>

/* ---- text ---- */

const char *plait_act_text(const plait_schedule *s, plait_act a, char buf[32])
{
    static const char *const names[] = {"rx", "F", "sy", "ry", "B", "sx"};
    if (s->chunks > 1)
        snprintf(buf, 32, "%s%d.%d", names[a.kind], a.chunk, a.micro);
    else
        snprintf(buf, 32, "%s%d", names[a.kind], a.micro);
    return buf;
}

void plait_schedule_text(const plait_schedule *s, char *buf, size_t size)
{
    char one[32];
    size_t used = 0;
    if (size > 0)
        buf[0] = '\0';
    for (int i = 0; i < s->num_acts && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%s", i ? " " : "", plait_act_text(s, s->acts[i], one));
}

/* ---- the order of forwards and backwards ---- */

typedef struct order {
    plait_act *acts;
    int num;
    int micros; /* actions of micro-batches from here on are left out */
} order;

static void push(order *o, plait_act_kind kind, int chunk, int micro)
{
    if (micro < o->micros)
        o->acts[o->num++] = (plait_act){kind, (int16_t)chunk, micro};
}

/* The k-th forward or backward of a rank: groups of `stages` micro-batches go through all chunks of the rank before the
 * next group comes. One chunk: simply micro-batch k. */
static void push_nth(order *o, int dir, int k, int stages, int chunks)
{
    int in_group = k % (stages * chunks), chunk = in_group / stages;
    int micro = k / (stages * chunks) * stages + in_group % stages;
    push(o, plait_act_kind_of(dir, PLAIT_ROLE_COMPUTE), dir == PLAIT_DIR_FWD ? chunk : chunks - 1 - chunk, micro);
}

/* Warm-up of forwards alone, then one forward and one backward in turn, then the rest of the backwards. All three
 * schedules are this list; `total` counts (chunk, micro). */
static void fill(order *o, int warmup, int total, int stages, int chunks)
{
    if (warmup > total)
        warmup = total;
    for (int k = 0; k < warmup; k++)
        push_nth(o, PLAIT_DIR_FWD, k, stages, chunks);
    for (int k = warmup; k < total; k++) {
        push_nth(o, PLAIT_DIR_FWD, k, stages, chunks);
        push_nth(o, PLAIT_DIR_BWD, k - warmup, stages, chunks);
    }
    for (int k = total - warmup; k < total; k++)
        push_nth(o, PLAIT_DIR_BWD, k, stages, chunks);
}

/* ---- messages ---- */

/* The next action of the same kind after position i, or NULL. */
static const plait_act *next_of_kind(const order *o, int i)
{
    for (int j = i + 1; j < o->num; j++)
        if (o->acts[j].kind == o->acts[i].kind)
            return &o->acts[j];
    return NULL;
}

static void post(plait_schedule *s, plait_act a, int role)
{
    s->acts[s->num_acts++] = (plait_act){plait_act_kind_of(plait_act_dir(a), role), a.chunk, a.micro};
}

/* After each forward (backward) its send and the receive of the next forward (backward) are posted together; before the
 * first of a kind stands its receive. A receive is so never posted later than the send before it completes, and never
 * before its slot is needed: naive orders (each receive right before its use) hang where queues are in order. */
static void post_messages(plait_schedule *s, const order *o)
{
    bool begun[PLAIT_DIRS] = {false, false};
    int in_flight = 0;
    for (int i = 0; i < o->num; i++) {
        plait_act a = o->acts[i];
        int dir = plait_act_dir(a);
        if (!begun[dir] && plait_schedule_receives(s, dir, a.chunk))
            post(s, a, PLAIT_ROLE_RECV);
        begun[dir] = true;
        s->acts[s->num_acts++] = a;
        if (plait_schedule_sends(s, dir, a.chunk))
            post(s, a, PLAIT_ROLE_SEND);
        const plait_act *next = next_of_kind(o, i);
        if (next && plait_schedule_receives(s, dir, next->chunk))
            post(s, *next, PLAIT_ROLE_RECV);

        in_flight += dir == PLAIT_DIR_FWD ? 1 : -1;
        if (in_flight > s->max_in_flight)
            s->max_in_flight = in_flight;
    }
    if (s->forward_only)
        s->max_in_flight = 1; /* nothing is kept: only what the running forward holds */
}

/* ---- generators ---- */

static plait_status check_sizes(int stage, int stages, int chunks, int micros)
{
    if (stages < 1 || stage < 0 || stage >= stages)
        PLAIT_FAIL(USAGE, "pipeline stage %d of %d stages does not exist", stage, stages);
    if (micros < 1)
        PLAIT_FAIL(USAGE, "a pipeline schedule needs at least 1 micro-batch, not %d", micros);
    if (chunks < 1 || chunks > PLAIT_MAX_STAGES / stages)
        PLAIT_FAIL(USAGE, "%d model chunks on each of %d pipeline stages: between 1 and %d virtual stages are possible",
                   chunks, stages, PLAIT_MAX_STAGES);
    /* Up to six actions each; the padded list is at most `stages` micro-batches longer. */
    if (((int64_t)micros + stages) * chunks > INT_MAX / 6)
        PLAIT_FAIL(USAGE, "%d micro-batches through %d chunks are too many for one pipeline step", micros, chunks);
    return PLAIT_OK;
}

static int padded_micros(int micros, int stages)
{
    return (micros + stages - 1) / stages * stages;
}

static plait_status generate(plait_schedule *s, int stage, int stages, int chunks, int micros, bool forward_only,
                             int warmup)
{
    plait_status st = PLAIT_OK;
    *s = (plait_schedule){
        .stage = stage, .stages = stages, .chunks = chunks, .micros = micros, .forward_only = forward_only};
    /* One chunk needs no whole groups of micro-batches; more do, and what was added is left out again. */
    int total = chunks * (chunks > 1 ? padded_micros(micros, stages) : micros);
    size_t computes = (size_t)chunks * (size_t)micros * 2;
    order o = {malloc(computes * sizeof *o.acts), 0, micros};
    s->acts = malloc(computes * PLAIT_ROLES * sizeof *s->acts);
    if (!o.acts || !s->acts)
        PLAIT_FAIL_TO(done, st, OUT_OF_MEMORY, "no memory for a pipeline schedule of %d micro-batches", micros);

    if (forward_only) {
        for (int k = 0; k < total; k++)
            push_nth(&o, PLAIT_DIR_FWD, k, stages, chunks);
    } else {
        fill(&o, warmup, total, stages, chunks);
    }
    post_messages(s, &o);
done:
    free(o.acts);
    if (st != PLAIT_OK)
        plait_schedule_deinit(s);
    return st;
}

plait_status plait_schedule_init(plait_schedule *s, plait_pipe_schedule kind, int stage, int stages, int chunks,
                                 int micros)
{
    *s = (plait_schedule){0};
    PLAIT_TRY(check_sizes(stage, stages, chunks, micros));
    if (chunks > 1 && kind != PLAIT_PIPE_INTERLEAVED)
        PLAIT_FAIL(USAGE, "%d model chunks a stage need the interleaved schedule", chunks);
    int to_end = stages - 1 - stage;
    switch (kind) {
    case PLAIT_PIPE_GPIPE:
        return generate(s, stage, stages, chunks, micros, false, micros);
    case PLAIT_PIPE_1F1B:
        return generate(s, stage, stages, chunks, micros, false, to_end);
    case PLAIT_PIPE_INTERLEAVED:
        return generate(s, stage, stages, chunks, micros, false, 2 * to_end + (chunks - 1) * stages);
    case PLAIT_PIPE_AUTO:
        break;
    }
    PLAIT_FAIL(USAGE, "pipeline schedule %d is not one of gpipe, 1f1b, interleaved", (int)kind);
}

plait_status plait_schedule_init_forward(plait_schedule *s, int stage, int stages, int chunks, int micros)
{
    *s = (plait_schedule){0};
    PLAIT_TRY(check_sizes(stage, stages, chunks, micros));
    return generate(s, stage, stages, chunks, micros, true, 0);
}

void plait_schedule_deinit(plait_schedule *s)
{
    free(s->acts);
    *s = (plait_schedule){0};
}

int plait_schedule_expected_in_flight(plait_pipe_schedule kind, int stage, int stages, int chunks, int micros)
{
    int to_end = stages - 1 - stage, limit = micros * chunks;
    if (kind == PLAIT_PIPE_1F1B)
        limit = to_end + 1;
    else if (kind == PLAIT_PIPE_INTERLEAVED)
        limit = 2 * to_end + (chunks - 1) * stages + 1;
    return limit < micros * chunks ? limit : micros * chunks;
}
