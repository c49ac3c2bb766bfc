#include "launcher/knobs.h"

#include <stdarg.h>
#include <string.h>

#include "launcher/banner.h"

enum { MAX_KNOBS = 24, MAX_KEYS = 3, KEY_MAX = 96, MAX_TOGETHER = 12 };

/* Keys that are changed together. */
typedef struct knob {
    char keys[MAX_KEYS][KEY_MAX];
    int num_keys;
    /* as planned: */
    bool possible;
    char reason[256]; /* why not; why the time is not known */
    size_t bytes;     /* of the largest rank */
    double seconds;   /* of a step; 0: not predicted */
} knob;

/* What can be changed from where a plan stands: of what is asked for, or of that with some keys changed. */
typedef struct knobs {
    const plait_planned *plan; /* what was asked for */
    const plait_plan_request *request;
    const plait_config *cfg; /* where it stands */
    const plait_topology *topo;
    char keys[MAX_TOGETHER * MAX_KEYS][KEY_MAX]; /* which led there, each once */
    int num_keys;
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
    knob *k = &n->all[n->num++];
    *k = (knob){0};
    return k;
}

static void add_recomputation(knobs *n)
{
    const plait_config *cfg = n->cfg;
    if (cfg->recompute.granularity == PLAIT_RECOMPUTE_NONE)
        add_key(add(n), "recompute.granularity=selective");
    if (cfg->recompute.granularity != PLAIT_RECOMPUTE_FULL)
        add_key(add(n), "recompute.granularity=full");
}

static void add_zero(knobs *n)
{
    const plait_config *cfg = n->cfg;
    for (int stage = (int)cfg->zero.stage + 1; stage <= 3 && n->topo->dp > 1; stage++)
        add_key(add(n), "zero_optimization.stage=%d", stage);
    if (cfg->zero.stage > 0 && n->topo->dp == 1) /* nobody is left to share with, and gathered units are copies */
        add_key(add(n), "zero_optimization.stage=0");
    if (cfg->zero.stage == 3 && cfg->zero.prefetch_units > 0)
        add_key(add(n), "zero_optimization.prefetch_units=0");
}

/* The global batch stays: more micro-batches. */
static void add_micro_batch(knobs *n)
{
    const plait_config *cfg = n->cfg;
    if (cfg->batch.micro_batch_size < 2)
        return;
    knob *k = add(n);
    add_key(k, "batch.micro_batch_size=%lld", (long long)cfg->batch.micro_batch_size / 2);
    add_key(k, "batch.gradient_accumulation_steps=null");
    add_key(k, "batch.global_batch_size=%lld", (long long)cfg->batch.global_batch_size);
}

static int smallest_factor(int n)
{
    int f = 2;
    while (n % f != 0)
        f++;
    return f;
}

/* A degree twice as large takes half of the data ranks; of a number of them that is odd, a third, ... */
static void add_degree(knobs *n, const char *degree, int now)
{
    if (n->topo->dp == 1)
        return;
    const int factor = smallest_factor(n->topo->dp);
    knob *k = add(n);
    add_key(k, "parallelism.%s=%d", degree, factor * now);
    add_key(k, "parallelism.data_parallel_size=%d", n->topo->dp / factor);
    add_key(k, "batch.gradient_accumulation_steps=%lld", (long long)n->cfg->batch.accumulation * factor);
}

static void add_all(knobs *n)
{
    const plait_config *cfg = n->cfg;
    const plait_topology *topo = n->topo;
    n->num = 0;
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

/* Plans with the keys so far and those of k. One that is refused says why in `reason`. *p is to be given back. `timed`:
 * predicts too, where there is a machine; of thousands of micro-batches that takes longest. */
static plait_status plan_with(const knobs *n, knob *k, bool timed, plait_planned *p)
{
    const char *more[(MAX_TOGETHER + 1) * MAX_KEYS];
    int num_more = 0;
    for (int i = 0; i < n->num_keys; i++)
        more[num_more++] = n->keys[i];
    for (int i = 0; i < k->num_keys; i++)
        more[num_more++] = k->keys[i];
    plait_plan_request request = *n->request;
    request.ranks = n->plan->world;
    if (!timed)
        request.machine = NULL;
    plait_status st = plait_planned_init(p, &request, more, num_more);
    if (st == PLAIT_UNSUPPORTED && request.machine) { /* whose file knows less than the plan needs */
        plait_planned_refusal(k->reason, sizeof k->reason);
        plait_planned_deinit(p);
        request.machine = NULL;
        st = plait_planned_init(p, &request, more, num_more);
    }
    k->possible = st == PLAIT_OK;
    if (st == PLAIT_OK) {
        k->bytes = plait_planned_bytes(p);
        k->seconds = p->plan.predicted ? p->plan.prediction.step_seconds : 0;
    } else if (st == PLAIT_USAGE) {
        plait_planned_refusal(k->reason, sizeof k->reason);
    }
    return st == PLAIT_USAGE ? PLAIT_OK : st;
}

static plait_status evaluate(const knobs *n, knob *k, bool timed)
{
    plait_planned p;
    const plait_status st = plan_with(n, k, timed, &p);
    plait_planned_deinit(&p);
    return st;
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
    fflush(out); /* the next one may take a second */
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

/* The knob that, with the keys so far, leaves least, and less than `now`; NULL: none does. */
static plait_status best_next(knobs *n, size_t now, knob **best)
{
    *best = NULL;
    for (int i = 0; i < n->num; i++) {
        knob *k = &n->all[i];
        PLAIT_TRY(evaluate(n, k, false));
        if (k->possible && k->bytes < now && (!*best || k->bytes < (*best)->bytes))
            *best = k;
    }
    return PLAIT_OK;
}

/* A key that was among them takes the new value. */
static void keep_key(knobs *n, const char *key)
{
    const size_t name = strcspn(key, "=") + 1;
    int i = 0;
    while (i < n->num_keys && strncmp(n->keys[i], key, name) != 0)
        i++;
    memcpy(n->keys[i], key, KEY_MAX);
    n->num_keys += i == n->num_keys;
}

/* Goes on from there: what is chosen may make others possible. */
static plait_status step_to(knobs *n, const knob *chosen, plait_planned *at)
{
    knob same = {0};
    for (int i = 0; i < chosen->num_keys; i++)
        keep_key(n, chosen->keys[i]);
    plait_planned_deinit(at);
    PLAIT_TRY(plan_with(n, &same, false, at));
    n->cfg = &at->cfg;
    n->topo = &at->plan.topo;
    add_all(n);
    return PLAIT_OK;
}

static void print_keys(const knobs *n, const knob *reached, FILE *out)
{
    fputs("together:\n ", out);
    for (int i = 0; i < n->num_keys; i++)
        fprintf(out, " %s", n->keys[i]);
    fputs("\n  ", out);
    print_change(n, reached, out);
}

static plait_status print_together(knobs *n, FILE *out)
{
    const size_t limit = (size_t)n->plan->cfg.device.memory_limit;
    plait_planned at = {0};
    plait_status st = PLAIT_OK;
    knob reached = {.bytes = plait_planned_bytes(n->plan)}, *best = NULL;
    int steps = 0;
    for (; steps < MAX_TOGETHER && reached.bytes > limit; steps++) {
        PLAIT_TRY_TO(done, st, best_next(n, reached.bytes, &best));
        if (!best)
            break;
        reached = *best;
        PLAIT_TRY_TO(done, st, step_to(n, &reached, &at));
    }
    if (steps > 0) {
        knob all = {0};
        PLAIT_TRY_TO(done, st, evaluate(n, &all, true));
        print_keys(n, &all, out);
    } else {
        fputs("none of them saves anything\n", out);
    }
    if (steps > 0 && reached.bytes > limit && !best)
        fputs("  and from there none of these keys saves more: more ranks or a smaller model would\n", out);
done:
    plait_planned_deinit(&at);
    return st;
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
    knobs n = {.plan = plan, .request = request, .cfg = &plan->cfg, .topo = &plan->plan.topo};
    add_all(&n);
    if (n.num == 0) {
        fputs("no key is left that saves memory: more ranks or a smaller model are needed\n", out);
        return PLAIT_OK;
    }
    fputs("what would help, one key at a time (bytes of the largest rank):\n", out);
    for (int i = 0; i < n.num; i++) {
        PLAIT_TRY(evaluate(&n, &n.all[i], true));
        print_knob(&n, &n.all[i], out);
    }
    return any_fits(&n) ? PLAIT_OK : print_together(&n, out);
}
