#include "launcher/variants.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum sharing { ZERO_0, ZERO_1, ZERO_2, ZERO_3, TO_ROOT } sharing;

/* What is listed, and from what. */
typedef struct lister {
    plait_variants *v;
    const plait_plan_request *request;
    int64_t micro_batch; /* of the configuration */
    int cap;
} lister;

/* ---- one variant ---- */

static void add_key(plait_variant *one, const char *format, ...) PLAIT_PRINTF(2, 3);

static void add_key(plait_variant *one, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(one->keys[one->num_keys++], PLAIT_VARIANT_KEY_MAX, format, args);
    va_end(args);
}

static plait_status add(lister *l, plait_variant **out)
{
    plait_variants *v = l->v;
    if (v->num == l->cap) {
        const int cap = l->cap ? 2 * l->cap : 16;
        plait_variant *bigger = realloc(v->all, (size_t)cap * sizeof *bigger);
        if (!bigger)
            PLAIT_FAIL(OUT_OF_MEMORY, "no memory for %d variants", cap);
        v->all = bigger;
        l->cap = cap;
    }
    *out = &v->all[v->num++];
    memset(*out, 0, sizeof **out);
    return PLAIT_OK;
}

/* "tensor 2 x data 2, ZeRO-3" */
static void name(plait_variant *one, sharing s, const char *addition)
{
    const struct {
        const char *axis;
        int degree;
    } axes[] = {{"tensor", one->tp}, {"pipeline", one->pp}, {"data", one->dp}};
    char *to = one->name;
    const char *end = one->name + sizeof one->name, *separator = "";
    for (int i = 0; i < 3; i++)
        if (axes[i].degree > 1) {
            to += snprintf(to, (size_t)(end - to), "%s%s %d", separator, axes[i].axis, axes[i].degree);
            separator = " x ";
        }
    if (to == one->name)
        to += snprintf(to, (size_t)(end - to), "one rank");
    if (s == TO_ROOT)
        to += snprintf(to, (size_t)(end - to), ", gather to root");
    else if (one->dp > 1)
        to += snprintf(to, (size_t)(end - to), ", ZeRO-%d", (int)s);
    snprintf(to, (size_t)(end - to), "%s", addition);
}

/* The largest divisor of `samples` that is at most `most`. */
static int64_t divisor(int64_t samples, int64_t most)
{
    while (most > 1 && samples % most != 0)
        most--;
    return most > 1 ? most : 1;
}

/* Samples of a micro-batch; naive: as many as the configuration allows, else so few that every stage has work. */
static int64_t micro_batch_of(const lister *l, const plait_variant *one, bool naive)
{
    const int64_t samples = l->v->global_batch / one->dp;
    int64_t most = l->micro_batch;
    if (!naive && samples / one->pp < most)
        most = samples / one->pp;
    return divisor(samples, most < samples ? most : samples);
}

/* Everything that the degrees touch; a file may have set any of it for its own topology. */
static plait_status list(lister *l, int tp, int pp, sharing s, bool sequence_parallel, bool naive)
{
    plait_variant *one;
    PLAIT_TRY(add(l, &one));
    one->tp = tp;
    one->pp = pp;
    one->dp = l->v->ranks / (tp * pp);
    name(one, s, sequence_parallel ? ", sequence parallel" : naive ? ", naive" : "");
    add_key(one, "parallelism.tensor_model_parallel_size=%d", tp);
    add_key(one, "parallelism.pipeline_model_parallel_size=%d", pp);
    add_key(one, "parallelism.data_parallel_size=%d", one->dp);
    add_key(one, "parallelism.virtual_pipeline_model_parallel_size=1");
    add_key(one, "parallelism.pipeline_layout=null");
    add_key(one, "parallelism.pipeline_schedule=%s", pp > 1 ? "1f1b" : "auto");
    add_key(one, "parallelism.sequence_parallel=%s", sequence_parallel ? "true" : "false");
    add_key(one, "parallelism.data_parallel_algorithm=%s", s == TO_ROOT ? "gather_to_root" : "all_reduce");
    add_key(one, "zero_optimization.stage=%d", s == TO_ROOT ? 0 : (int)s);
    add_key(one, "batch.global_batch_size=%lld", (long long)l->v->global_batch);
    add_key(one, "batch.gradient_accumulation_steps=null");
    add_key(one, "batch.micro_batch_size=%lld", (long long)micro_batch_of(l, one, naive));
    return PLAIT_OK;
}

/* ---- all of them ---- */

static plait_status list_pipeline(lister *l, int pp)
{
    const plait_variant one = {.tp = 1, .pp = pp, .dp = 1};
    PLAIT_TRY(list(l, 1, pp, ZERO_0, false, false));
    if (micro_batch_of(l, &one, true) > micro_batch_of(l, &one, false))
        PLAIT_TRY(list(l, 1, pp, ZERO_0, false, true));
    return PLAIT_OK;
}

static plait_status list_data(lister *l)
{
    for (int s = ZERO_0; s <= TO_ROOT; s++)
        PLAIT_TRY(list(l, 1, 1, (sharing)s, false, false));
    return PLAIT_OK;
}

/* Degrees that are several: all that have at least two. */
static plait_status list_products(lister *l)
{
    const int n = l->v->ranks;
    for (int tp = 1; tp <= n; tp++)
        for (int pp = 1; n % tp == 0 && pp <= n / tp; pp++) {
            if ((n / tp) % pp != 0)
                continue;
            const int dp = n / tp / pp;
            if ((tp > 1) + (pp > 1) + (dp > 1) < 2)
                continue;
            PLAIT_TRY(list(l, tp, pp, dp == 1 ? ZERO_0 : pp == 1 ? ZERO_3 : ZERO_1, false, false));
        }
    return PLAIT_OK;
}

static plait_status list_all(lister *l)
{
    const int n = l->v->ranks;
    if (n == 1)
        return list(l, 1, 1, ZERO_0, false, false);
    PLAIT_TRY(list(l, n, 1, ZERO_0, false, false));
    PLAIT_TRY(list(l, n, 1, ZERO_0, true, false));
    PLAIT_TRY(list_pipeline(l, n));
    PLAIT_TRY(list_data(l));
    return list_products(l);
}

/* ---- their plans ---- */

/* Of a buffer of so many bytes, by rings (launcher/variants.h). */
static double sent(plait_comm_kind kind, int size, double bytes)
{
    switch (kind) {
    case PLAIT_COMM_ALL_REDUCE:
        return 2 * bytes * (size - 1) / size;
    case PLAIT_COMM_REDUCE_SCATTER:
    case PLAIT_COMM_ALL_GATHER:
        return bytes * (size - 1) / size;
    case PLAIT_COMM_REDUCE:
    case PLAIT_COMM_BROADCAST:
    case PLAIT_COMM_SEND:
        return bytes;
    case PLAIT_COMM_RECV:
    case PLAIT_COMM_BARRIER:
    case PLAIT_COMM_KINDS:
        break;
    }
    return 0;
}

double plait_class_sent(const plait_rank_class *c, double by_group[PLAIT_GROUPS])
{
    double sum = 0;
    int *ranks = calloc((size_t)c->first.world, sizeof *ranks);
    for (int g = 0; g < PLAIT_GROUPS; g++) {
        const int size = ranks ? plait_topology_group(&c->first, (plait_group)g, ranks) : 1;
        by_group[g] = 0;
        for (int k = 0; k < PLAIT_COMM_KINDS && size > 1; k++)
            by_group[g] += sent((plait_comm_kind)k, size, (double)c->traffic[g].wire[k]);
        sum += by_group[g];
    }
    free(ranks);
    return sum;
}

static int64_t most_sent(const plait_planned *p)
{
    double most = 0, by_group[PLAIT_GROUPS];
    for (int i = 0; i < p->plan.num_classes; i++) {
        const double sum = plait_class_sent(&p->plan.classes[i], by_group);
        most = sum > most ? sum : most;
    }
    return (int64_t)most;
}

/* A variant that the configuration does not allow is no failure. */
static plait_status plan(plait_variants *v, plait_variant *one, const plait_plan_request *request)
{
    const char *keys[PLAIT_VARIANT_KEYS];
    for (int i = 0; i < one->num_keys; i++)
        keys[i] = one->keys[i];
    plait_plan_request here = *request;
    here.ranks = v->ranks;
    const plait_status st = plait_planned_init(&one->plan, &here, keys, one->num_keys);
    one->legal = st == PLAIT_OK;
    if (one->legal) {
        one->volume = most_sent(&one->plan);
        return PLAIT_OK;
    }
    if (st != PLAIT_USAGE)
        return st;
    v->num_illegal++;
    plait_planned_refusal(one->reason, sizeof one->reason);
    return PLAIT_OK;
}

/* What stays the same in all of them. */
static plait_status read_model(lister *l)
{
    plait_config cfg = {0};
    plait_status st = PLAIT_OK;
    int world = 0;
    PLAIT_TRY(plait_config_load(&cfg, l->request->path, l->request->overrides, l->request->num_overrides));
    PLAIT_TRY_TO(done, st, plait_config_natural_world(&cfg, &world));
    PLAIT_TRY_TO(done, st, plait_config_resolve(&cfg, world));
    l->v->global_batch = cfg.batch.global_batch_size;
    l->v->seq_length = cfg.model.seq_length;
    l->micro_batch = cfg.batch.micro_batch_size;
    if (l->v->ranks == 0)
        l->v->ranks = world;
done:
    plait_config_deinit(&cfg);
    return st;
}

plait_status plait_variants_init(plait_variants *v, const plait_plan_request *request, FILE *progress)
{
    *v = (plait_variants){.ranks = request->ranks};
    lister l = {.v = v, .request = request};
    PLAIT_TRY(read_model(&l));
    PLAIT_TRY(list_all(&l));
    for (int i = 0; i < v->num; i++) {
        if (progress)
            fprintf(progress, "\rplanning %d of %d", i + 1, v->num);
        PLAIT_TRY(plan(v, &v->all[i], request));
    }
    if (progress)
        fputs("\r\33[K", progress);
    return PLAIT_OK;
}

void plait_variants_deinit(plait_variants *v)
{
    for (int i = 0; i < v->num; i++)
        plait_planned_deinit(&v->all[i].plan);
    free(v->all);
    *v = (plait_variants){0};
}

/* ---- the best ---- */

bool plait_variants_some_fit(const plait_variants *v)
{
    for (int i = 0; i < v->num; i++)
        if (v->all[i].legal && plait_planned_fits(&v->all[i].plan))
            return true;
    return false;
}

const plait_variant *plait_variants_first(const plait_variants *v)
{
    for (int i = 0; i < v->num; i++)
        if (v->all[i].legal)
            return &v->all[i];
    return NULL;
}

const plait_variant *plait_variants_smallest(const plait_variants *v)
{
    const plait_variant *best = NULL;
    for (int i = 0; i < v->num; i++) {
        const plait_variant *one = &v->all[i];
        if (one->legal && (!best || plait_planned_bytes(&one->plan) < plait_planned_bytes(&best->plan)))
            best = one;
    }
    return best;
}

double plait_variant_seconds(const plait_variant *one, bool measured)
{
    if (measured)
        return one->measured.step_seconds;
    return one->legal && one->plan.plan.predicted ? one->plan.plan.prediction.step_seconds : 0;
}

const plait_variant *plait_variants_fastest(const plait_variants *v, bool measured)
{
    const plait_variant *best = NULL;
    const bool some_fit = plait_variants_some_fit(v);
    for (int i = 0; i < v->num; i++) {
        const double seconds = plait_variant_seconds(&v->all[i], measured);
        if (some_fit && v->all[i].legal && !plait_planned_fits(&v->all[i].plan))
            continue;
        if (seconds > 0 && (!best || seconds < plait_variant_seconds(best, measured)))
            best = &v->all[i];
    }
    return best;
}
