#include "launcher/knobs.h"

#include <stdarg.h>
#include <string.h>

#include "launcher/banner.h"

enum { MAX_KNOBS = 24, MAX_KEYS = 3, KEY_MAX = 96, MAX_TOGETHER = 6 };

/* Keys that are changed together. */
typedef struct knob {
    char keys[MAX_KEYS][KEY_MAX];
    int num_keys;
    /* as planned: */
    bool possible;
    char reason[256]; /* why not; why the time is not known */
    size_t bytes;     /* of the largest rank */
    double seconds;   /* of a step; 0: not predicted */
    bool used;        /* among those together */
} knob;

typedef struct knobs {
    const plait_planned *plan;
    const plait_plan_request *request;
    knob all[MAX_KNOBS];
    int num;
} knobs;

/* ---- which there are ---- */

static void add_key(knob *k, const char *format, ...) PLAIT_PRINTF(2, 3);

static void add_key(knob *k, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(k->keys[k->num_keys++], KEY_MAX, format, args);
    va_end(args);
}

static knob *add(knobs *n)
{
    return &n->all[n->num++];
}

static void add_recomputation(knobs *n)
{
    const plait_config *cfg = &n->plan->cfg;
    if (cfg->recompute.granularity == PLAIT_RECOMPUTE_NONE)
        add_key(add(n), "recompute.granularity=selective");
    if (cfg->recompute.granularity != PLAIT_RECOMPUTE_FULL)
        add_key(add(n), "recompute.granularity=full");
}

static void add_zero(knobs *n)
{
    const plait_config *cfg = &n->plan->cfg;
    for (int stage = (int)cfg->zero.stage + 1; stage <= 3 && n->plan->plan.topo.dp > 1; stage++)
        add_key(add(n), "zero_optimization.stage=%d", stage);
    if (cfg->zero.stage == 3 && cfg->zero.prefetch_units > 0)
        add_key(add(n), "zero_optimization.prefetch_units=0");
}

/* The global batch stays: more micro-batches. */
static void add_micro_batch(knobs *n)
{
    const plait_config *cfg = &n->plan->cfg;
    if (cfg->batch.micro_batch_size < 2)
        return;
    knob *k = add(n);
    add_key(k, "batch.micro_batch_size=%lld", (long long)cfg->batch.micro_batch_size / 2);
    add_key(k, "batch.gradient_accumulation_steps=null");
    add_key(k, "batch.global_batch_size=%lld", (long long)cfg->batch.global_batch_size);
}

/* A degree twice as large takes half of the data ranks. */
static void add_degree(knobs *n, const char *degree, int now)
{
    const plait_config *cfg = &n->plan->cfg;
    if (n->plan->plan.topo.dp % 2 != 0)
        return;
    knob *k = add(n);
    add_key(k, "parallelism.%s=%d", degree, 2 * now);
    add_key(k, "parallelism.data_parallel_size=%d", n->plan->plan.topo.dp / 2);
    add_key(k, "batch.gradient_accumulation_steps=%lld", (long long)cfg->batch.accumulation * 2);
}

static void add_all(knobs *n)
{
    const plait_config *cfg = &n->plan->cfg;
    const plait_topology *topo = &n->plan->plan.topo;
    add_recomputation(n);
    add_zero(n);
    if (topo->tp > 1 && !cfg->parallelism.sequence_parallel)
        add_key(add(n), "parallelism.sequence_parallel=true");
    if (cfg->parallelism.schedule == PLAIT_PIPE_GPIPE && topo->pp > 1)
        add_key(add(n), "parallelism.pipeline_schedule=1f1b");
    add_micro_batch(n);
    if (cfg->precision.dtype == PLAIT_FP32 || cfg->precision.dtype == PLAIT_FP64)
        add_key(add(n), "precision.dtype=bf16");
    add_degree(n, "tensor_model_parallel_size", topo->tp);
    add_degree(n, "pipeline_model_parallel_size", topo->pp);
}

/* ---- what each does ---- */

static void keep_reason(knob *k)
{
    snprintf(k->reason, sizeof k->reason, "%.*s", (int)strcspn(plait_error_text(), "\n"), plait_error_text());
}

/* Plans with the keys of some knobs; those of the last come last. A plan that is refused says why in `reason`. */
static plait_status plan_with(const knobs *n, knob *const *some, int num, knob *result)
{
    const char *more[MAX_TOGETHER * MAX_KEYS];
    int num_more = 0;
    plait_planned p;
    for (int i = 0; i < num; i++)
        for (int key = 0; key < some[i]->num_keys; key++)
            more[num_more++] = some[i]->keys[key];
    plait_plan_request request = *n->request;
    request.ranks = n->plan->world;
    plait_status st = plait_planned_init(&p, &request, more, num_more);
    if (st == PLAIT_UNSUPPORTED && request.machine) { /* whose file knows less than the plan needs */
        keep_reason(result);
        plait_planned_deinit(&p);
        request.machine = NULL;
        st = plait_planned_init(&p, &request, more, num_more);
    }
    result->possible = st == PLAIT_OK;
    if (st == PLAIT_OK) {
        result->bytes = plait_planned_bytes(&p);
        result->seconds = p.plan.predicted ? p.plan.prediction.step_seconds : 0;
    } else if (st == PLAIT_USAGE) {
        keep_reason(result);
    }
    plait_planned_deinit(&p);
    return st == PLAIT_USAGE ? PLAIT_OK : st;
}

static void print_change(const knobs *n, const knob *k, FILE *out)
{
    const int64_t now = (int64_t)plait_planned_bytes(n->plan), then = (int64_t)k->bytes;
    const int64_t limit = n->plan->cfg.device.memory_limit;
    fprintf(out, "%17s  %s by %s", plait_grouped(then), then < now ? "smaller" : "larger",
            plait_grouped(then < now ? now - then : then - now));
    if (k->seconds > 0)
        fprintf(out, ", step time x %.3f", k->seconds / n->plan->plan.prediction.step_seconds);
    else if (k->reason[0])
        fprintf(out, ", step time not known: %s", k->reason);
    fputs(then <= limit ? ": fits\n" : "\n", out);
}

static void print_knob(const knobs *n, const knob *k, FILE *out)
{
    int width = fprintf(out, "  %s", k->keys[0]);
    for (int i = 1; i < k->num_keys; i++)
        width += fprintf(out, " %s", k->keys[i]);
    fprintf(out, "%*s", width < 46 ? 46 - width : 1, "");
    if (k->possible)
        print_change(n, k, out);
    else
        fprintf(out, "%17s  %s\n", "not possible:", k->reason);
}

/* ---- together ---- */

/* The knob that, with those before it, leaves least; NULL: none saves anything. */
static plait_status best_next(knobs *n, knob **chosen, int num, size_t now, knob **best, knob *result)
{
    *best = NULL;
    for (int i = 0; i < n->num; i++) {
        knob *k = &n->all[i], with = {0};
        if (!k->possible || k->used)
            continue;
        chosen[num] = k;
        PLAIT_TRY(plan_with(n, chosen, num + 1, &with));
        if (with.possible && with.bytes < now && (!*best || with.bytes < result->bytes)) {
            *best = k;
            *result = with;
        }
    }
    return PLAIT_OK;
}

static plait_status print_together(knobs *n, FILE *out)
{
    const size_t limit = (size_t)n->plan->cfg.device.memory_limit;
    size_t now = plait_planned_bytes(n->plan);
    knob *chosen[MAX_TOGETHER], result = {0};
    int num = 0;
    while (num < MAX_TOGETHER && now > limit) {
        knob *best;
        PLAIT_TRY(best_next(n, chosen, num, now, &best, &result));
        if (!best)
            break;
        best->used = true;
        chosen[num++] = best;
        now = result.bytes;
    }
    if (num == 0) {
        fputs("none of them saves anything\n", out);
        return PLAIT_OK;
    }
    fputs("together:\n ", out);
    for (int i = 0; i < num; i++)
        for (int key = 0; key < chosen[i]->num_keys; key++)
            fprintf(out, " %s", chosen[i]->keys[key]);
    fputs("\n  ", out);
    print_change(n, &result, out);
    if (now > limit)
        fputs("  and no other key of these saves more: more ranks or a smaller model are needed\n", out);
    return PLAIT_OK;
}

static bool any_fits(const knobs *n)
{
    const size_t limit = (size_t)n->plan->cfg.device.memory_limit;
    for (int i = 0; i < n->num; i++)
        if (n->all[i].possible && n->all[i].bytes <= limit)
            return true;
    return false;
}

plait_status plait_knobs_print(const plait_planned *plan, const plait_plan_request *request, FILE *out)
{
    knobs n = {.plan = plan, .request = request};
    add_all(&n);
    if (n.num == 0)
        return PLAIT_OK;
    fputs("what would help, one key at a time (bytes of the largest rank):\n", out);
    for (int i = 0; i < n.num; i++) {
        knob *one = &n.all[i];
        PLAIT_TRY(plan_with(&n, &one, 1, one));
        print_knob(&n, one, out);
    }
    return any_fits(&n) ? PLAIT_OK : print_together(&n, out);
}
