#include "parallel/rank_plan.h"

#include <stdlib.h>
#include <string.h>

#include "parallel/zero.h"

/* What distinguishes ranks of one stage: equal keys, equal layouts. */
typedef struct class_key {
    int p;
    bool collects;   /* rank 0, where hashes of all ranks are kept */
    uint64_t shards; /* of the data rank's shards of all units: their lengths, and what is treated apart in them */
} class_key;

typedef struct planner {
    plait_engine_options options;
    const plait_config *cfg;
    const plait_model_ops *model;
    const plait_machine *machine;
    plait_rank_plan *plan;
    plait_step_trace *traces; /* [pp]: of the first rank of each stage, with a machine */
    plait_param_list *lists;  /* [pp]: of tensor rank 0 */
    uint64_t *shards;         /* (pp, dp) */
    class_key *keys;          /* of the classes */
} planner;

/* FNV-1a over 64-bit words: a handful of lengths that differ by 8. */
static uint64_t mix(uint64_t hash, int64_t value)
{
    for (int i = 0; i < 8; i++)
        hash = (hash ^ ((uint64_t)value >> 8 * i & 0xff)) * UINT64_C(0x100000001b3);
    return hash;
}

/* What of a unit's elements [begin, end) is summed over a group of its own or not decayed: equal lengths of a shard may
 * have different ends of a unit in them. */
static uint64_t mix_apart(uint64_t hash, const plait_param_list *list, int unit, int64_t begin, int64_t end)
{
    const plait_unit *u = &list->units[unit];
    for (int i = u->first_param; i < u->first_param + u->num_params; i++) {
        const plait_param *p = &list->params[i];
        const int64_t first = p->offset > begin ? p->offset : begin, last = p->offset + plait_param_numel(p);
        const int64_t inside = (last < end ? last : end) - first;
        if (inside > 0 && (p->partial != PLAIT_GROUPS || !p->decay))
            hash = mix(mix(hash, i), inside);
    }
    return hash;
}

/* The shards of data rank d, where states are shared; the same for all where they are not. */
static uint64_t shards_of(const planner *w, const plait_param_list *list, int d)
{
    const bool to_root = w->cfg->parallelism.dp_algorithm == PLAIT_DP_GATHER_TO_ROOT;
    const plait_zero_options zero = {.stage = (int)w->cfg->zero.stage, .gather_to_root = to_root};
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int unit = 0; unit < list->num_units; unit++) {
        int64_t begin, end;
        plait_zero_held_of(&zero, d, w->plan->topo.dp, list->units[unit].numel, &begin, &end);
        hash = mix_apart(mix(hash, end - begin), list, unit, begin, end);
    }
    return hash;
}

static plait_status find_shards(planner *w)
{
    const plait_topology *topo = &w->plan->topo;
    w->lists = calloc((size_t)topo->pp, sizeof *w->lists);
    w->shards = calloc((size_t)topo->pp * (size_t)topo->dp, sizeof *w->shards);
    if (!w->lists || !w->shards)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory to plan %d stages", topo->pp);
    for (int p = 0; p < topo->pp; p++) {
        const plait_topology there = plait_topology_at(topo, plait_topology_rank_of(topo, 0, p, 0));
        PLAIT_TRY(w->model->params(w->cfg, &there, &w->lists[p]));
        for (int d = 0; d < topo->dp; d++)
            w->shards[p * topo->dp + d] = shards_of(w, &w->lists[p], d);
    }
    return PLAIT_OK;
}

/* What the first rank of a stage does is what the stage does: its other ranks do the same at the same time. */
static bool stands_for_stage(const planner *w, const plait_topology *there)
{
    return w->machine && there->t == 0 && there->d == 0;
}

/* After the step of `dry`. */
static void note_peaks(plait_rank_class *c, plait_engine *dry)
{
    const plait_layout *layout = plait_engine_layout(dry);
    const plait_schedule *s = &plait_engine_schedules(dry)->all[plait_engine_schedules(dry)->num_train - 1];
    c->workspace_part = layout->workspace_part;
    c->workspace_chunk = layout->workspace_chunk;
    c->gathered = plait_zero_get_stats(plait_engine_zero(dry)).max_gathered;
    c->in_flight = plait_pipeline_in_flight(plait_engine_pipeline(dry));
    for (int i = 0, now = 0; i < s->num_acts && now < c->in_flight; i++) {
        now += s->acts[i].kind == PLAIT_ACT_FWD ? 1 : s->acts[i].kind == PLAIT_ACT_BWD ? -1 : 0;
        c->full_chunk = s->acts[i].chunk;
        c->full_micro = s->acts[i].micro;
    }
}

/* One rank of the class, whose layout is read and whose step is run. */
static plait_status plan_class(planner *w, plait_rank_class *c)
{
    plait_status st = PLAIT_OK;
    plait_engine *dry = NULL;
    const bool stands = stands_for_stage(w, &c->first);
    plait_step_trace here = {0}, *trace = stands ? &w->traces[c->first.p] : &here;
    PLAIT_TRY(plait_engine_create_dry(&w->options, w->plan->topo.world, c->first.rank, &dry));
    const plait_layout *layout = plait_engine_layout(dry);
    memcpy(c->bytes, layout->bytes, sizeof c->bytes);
    c->bytes[PLAIT_MEM_COMM] += plait_layout_total(layout);
    for (int i = 0; i < PLAIT_MEM_KINDS; i++)
        c->bytes[PLAIT_MEM_COMM] -= layout->bytes[i];
    c->total = plait_layout_total(layout);
    c->host_bytes = layout->host_bytes;
    c->host_staging = plait_layout_staging_tier(layout) == PLAIT_TIER_HOST ? layout->staging : 0;
    const plait_param_list *list = plait_engine_params(dry);
    c->elements = plait_param_list_numel(list);
    for (int unit = 0; unit < list->num_units; unit++)
        if (list->units[unit].numel > c->largest_unit)
            c->largest_unit = list->units[unit].numel;
    PLAIT_TRY_TO(done, st, plait_step_trace_init(trace, dry, stands ? w->machine : NULL, &w->plan->use));
    note_peaks(c, dry);
    memcpy(c->ops, trace->totals, sizeof c->ops);
    memcpy(c->traffic, trace->traffic, sizeof c->traffic);
done:
    plait_step_trace_deinit(&here);
    plait_engine_destroy(dry);
    return st;
}

/* The class of a rank, which is a new one if no rank before it holds the same. */
static plait_status classify(planner *w, int rank, int *out)
{
    plait_rank_plan *p = w->plan;
    const plait_topology there = plait_topology_at(&p->topo, rank);
    const class_key key = {.p = there.p,
                           .collects = rank == 0 && w->cfg->debug.tensor_hashes[0],
                           .shards = w->shards[there.p * there.dp + there.d]};
    for (*out = 0; *out < p->num_classes; ++*out) {
        const class_key *k = &w->keys[*out];
        if (k->p == key.p && k->collects == key.collects && k->shards == key.shards)
            break;
    }
    if (*out == p->num_classes) {
        w->keys[*out] = key;
        p->classes[*out] = (plait_rank_class){.first = there};
        p->num_classes++;
        PLAIT_TRY(plan_class(w, &p->classes[*out]));
    }
    p->classes[*out].num_ranks++;
    return PLAIT_OK;
}

static plait_status plan_all(planner *w, int world)
{
    plait_rank_plan *p = w->plan;
    p->classes = calloc((size_t)world, sizeof *p->classes);
    p->class_of = calloc((size_t)world, sizeof *p->class_of);
    w->keys = calloc((size_t)world, sizeof *w->keys);
    w->traces = calloc((size_t)p->topo.pp, sizeof *w->traces);
    if (!p->classes || !p->class_of || !w->keys || !w->traces)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory to plan %d ranks", world);
    PLAIT_TRY(find_shards(w));
    for (int rank = 0; rank < world; rank++)
        PLAIT_TRY(classify(w, rank, &p->class_of[rank]));
    if (!w->machine)
        return PLAIT_OK;
    p->predicted = true;
    return plait_replay(w->traces, p->topo.pp, w->machine, &p->prediction);
}

/* Threads of a rank when so many run on a node, where the configuration leaves them open: those that the machine was
 * measured with. */
static int measured_threads(const plait_machine *machine, int ranks)
{
    for (int i = 0; i < machine->num_rates; i++)
        if (machine->rates[i].ranks == ranks && machine->rates[i].threads > 0)
            return machine->rates[i].threads;
    return 1;
}

static plait_machine_use use_of(const plait_machine *machine, const plait_config *cfg, int world)
{
    const int node = machine->ranks_per_node, ranks = node > 0 && node < world ? node : world;
    return (plait_machine_use){.threads = cfg->device.threads == PLAIT_AUTO ? measured_threads(machine, ranks)
                                                                            : (int)cfg->device.threads,
                               .ranks = ranks};
}

plait_status plait_rank_plan_init(plait_rank_plan *p, const plait_config *cfg, int world, const plait_model_ops *model,
                                  const plait_run_shape *shape, const plait_machine *machine)
{
    *p = (plait_rank_plan){0};
    planner w = {.options = {.cfg = cfg, .model = model, .shape = *shape},
                 .cfg = cfg,
                 .model = model,
                 .machine = machine,
                 .plan = p};
    if (machine)
        p->use = use_of(machine, cfg, world);
    PLAIT_TRY(plait_topology_of(cfg, world, 0, &p->topo));
    const plait_status st = plan_all(&w, world);
    for (int i = 0; w.lists && i < p->topo.pp; i++)
        plait_param_list_deinit(&w.lists[i]);
    for (int i = 0; w.traces && i < p->topo.pp; i++)
        plait_step_trace_deinit(&w.traces[i]);
    free(w.lists);
    free(w.shards);
    free(w.keys);
    free(w.traces);
    return st;
}

void plait_rank_plan_deinit(plait_rank_plan *p)
{
    free(p->classes);
    free(p->class_of);
    plait_prediction_deinit(&p->prediction);
    *p = (plait_rank_plan){0};
}

const plait_rank_class *plait_rank_plan_largest(const plait_rank_plan *p)
{
    const plait_rank_class *largest = &p->classes[0];
    for (int i = 1; i < p->num_classes; i++)
        if (p->classes[i].total > largest->total)
            largest = &p->classes[i];
    return largest;
}
