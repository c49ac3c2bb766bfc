#include "launcher/compare_words.h"

#include <string.h>

#include "launcher/banner.h"

static const plait_rank_class *largest(const plait_variant *one)
{
    return plait_rank_plan_largest(&one->plan.plan);
}

static const plait_variant *find(const plait_variants *v, int tp, int pp, int dp, int stage)
{
    for (int i = 0; i < v->num; i++) {
        const plait_variant *one = &v->all[i];
        const plait_config *cfg = &one->plan.cfg;
        if (one->legal && one->tp == tp && one->pp == pp && one->dp == dp && cfg->zero.stage == stage &&
            !cfg->parallelism.sequence_parallel && cfg->parallelism.dp_algorithm == PLAIT_DP_ALL_REDUCE)
            return one;
    }
    return NULL;
}

/* Tensor parallelism as far as the model goes: over all ranks, else with pipeline stages. NULL: none at all. */
static const plait_variant *most_tensor(const plait_variants *v)
{
    const plait_variant *best = find(v, v->ranks, 1, 1, 0);
    for (int i = 0; i < v->num && (!best || best->tp < v->ranks); i++) {
        const plait_variant *one = &v->all[i];
        const bool counts = one->dp == 1 && one->tp > 1 && one == find(v, one->tp, one->pp, 1, 0);
        if (counts && (!best || one->tp > best->tp))
            best = one;
    }
    return best;
}

static void say_machine(const plait_variants *v, FILE *out)
{
    const plait_variant *first = plait_variants_first(v);
    if (first && first->plan.plan.predicted)
        fprintf(out, "Times are predicted on %s (%s).\n", first->plan.machine->name, first->plan.machine->source);
}

/* ---- memory ---- */

/* With a limit: how many keep to it, of which alone the fastest is looked for. */
static void say_limit(const plait_variants *v, bool timed, FILE *out)
{
    int legal = 0, fit = 0;
    int64_t limit = 0;
    for (int i = 0; i < v->num; i++) {
        const plait_variant *one = &v->all[i];
        if (!one->legal)
            continue;
        limit = one->plan.cfg.device.memory_limit;
        legal++;
        fit += plait_planned_fits(&one->plan);
    }
    if (limit > 0)
        fprintf(out, "%d of %d fit in device.memory_limit %s%s.\n", fit, legal, plait_grouped(limit),
                fit > 0 || !timed ? "" : ": the fastest would need more memory than there is");
}

/* The category by which `more` exceeds `less` most. */
static plait_mem_kind largest_difference(const plait_variant *less, const plait_variant *more)
{
    const size_t *a = largest(less)->bytes, *b = largest(more)->bytes;
    int kind = 0;
    for (int i = 1; i < PLAIT_MEM_KINDS; i++)
        if ((int64_t)b[i] - (int64_t)a[i] > (int64_t)b[kind] - (int64_t)a[kind])
            kind = i;
    return (plait_mem_kind)kind;
}

static void say_memory(const plait_variants *v, FILE *out)
{
    const plait_variant *least = plait_variants_smallest(v), *most = NULL;
    for (int i = 0; i < v->num; i++)
        if (v->all[i].legal && (!most || largest(&v->all[i])->total > largest(most)->total))
            most = &v->all[i];
    if (!least || least == most)
        return;
    const plait_mem_kind kind = largest_difference(least, most);
    fprintf(
        out,
        "Smallest of all: %s, %s bytes on its largest rank. %s takes most, %s bytes, above all for its %s: %s against "
        "%s.\n",
        least->name, plait_grouped((int64_t)largest(least)->total), most->name,
        plait_grouped((int64_t)largest(most)->total), plait_mem_kind_name(kind),
        plait_grouped((int64_t)largest(most)->bytes[kind]), plait_grouped((int64_t)largest(least)->bytes[kind]));
}

/* Stage 3 has a shard of every unit and those that are gathered at one time. */
static void say_zero_3(const plait_variant *one, FILE *out)
{
    const plait_rank_class *c = largest(one);
    const int64_t all = c->elements * (int64_t)plait_dtype_size(one->plan.cfg.precision.dtype);
    const int64_t row = (int64_t)c->bytes[PLAIT_MEM_PARAM];
    fprintf(out,
            "%s: of %s bytes of parameters a rank keeps one in %d (%s), and gathers at most %d units at a time (%s "
            "bytes with rounding of shards).\n",
            one->name, plait_grouped(all), one->dp, plait_grouped(all / one->dp), c->gathered,
            plait_grouped(row - all / one->dp));
}

/* ---- time ---- */

static bool any_measured(const plait_variants *v)
{
    for (int i = 0; i < v->num; i++)
        if (v->all[i].measured.done)
            return true;
    return false;
}

/* Seconds that a stage computes, waits for communication and idles, on average over the stages. */
typedef struct parts {
    double compute, exposed, idle;
} parts;

static parts parts_of(const plait_variant *one)
{
    const plait_prediction *t = &one->plan.plan.prediction;
    parts p = {0};
    for (int i = 0; i < t->num_stages; i++) {
        const plait_stage_time *s = &t->stages[i];
        p.compute += s->compute / t->num_stages;
        p.idle += s->idle / t->num_stages;
        p.exposed += (plait_stage_seconds(s) - s->compute - s->idle) / t->num_stages;
    }
    return p;
}

/* Why a is faster than b, by what is predicted. */
static void say_why(const plait_variant *a, const plait_variant *b, FILE *out)
{
    const parts x = parts_of(a), y = parts_of(b);
    const double differences[] = {y.compute - x.compute, y.exposed - x.exposed, y.idle - x.idle};
    static const char *const names[] = {"computes longer", "waits longer for communication", "idles longer"};
    int most = 0;
    for (int i = 1; i < 3; i++)
        if (differences[i] > differences[most])
            most = i;
    if (differences[most] > 0)
        fprintf(out, " By prediction the latter %s, by %.4g s; it sends %s bytes a rank, the former %s.", names[most],
                differences[most], plait_grouped(b->volume), plait_grouped(a->volume));
}

static void say_time(const plait_variants *v, bool measured, FILE *out)
{
    const plait_variant *fastest = plait_variants_fastest(v, measured), *slowest = fastest;
    const bool some_fit = plait_variants_some_fit(v);
    bool all_fit = true;
    for (int i = 0; i < v->num; i++) {
        const plait_variant *one = &v->all[i];
        if (!one->legal)
            continue;
        all_fit = all_fit && plait_planned_fits(&one->plan);
        if (slowest && (!some_fit || plait_planned_fits(&one->plan)) &&
            plait_variant_seconds(one, measured) > plait_variant_seconds(slowest, measured))
            slowest = one;
    }
    if (fastest == slowest)
        return;
    fprintf(out, "%s: %s, %.4g s a step (%s). Slowest: %s, %.4g s.",
            some_fit && !all_fit ? "Fastest of those that fit" : "Fastest", fastest->name,
            plait_variant_seconds(fastest, measured), measured ? "measured" : "predicted", slowest->name,
            plait_variant_seconds(slowest, measured));
    if (fastest->plan.plan.predicted)
        say_why(fastest, slowest, out);
    fputc('\n', out);
}

static void say_idle(const plait_variants *v, FILE *out)
{
    for (int i = 0; i < v->num; i++) {
        const plait_variant *one = &v->all[i];
        if (!one->legal || one->pp != v->ranks || one->pp == 1 || !one->plan.plan.predicted)
            continue;
        const int64_t m = one->plan.cfg.batch.accumulation;
        fprintf(out,
                "%s with %lld micro-batch%s: its stages idle %.1f %% of the time; with equal stages and free messages "
                "it would be %.1f %%.\n",
                one->name, (long long)m, m == 1 ? "" : "es", 100 * plait_prediction_bubble(&one->plan.plan.prediction),
                100.0 * (one->pp - 1) / (double)(m + one->pp - 1));
    }
}

/* ---- tensor parallelism or ZeRO-3 ---- */

static void say_pair(const plait_variant *tensor, const plait_variant *zero, bool measured, FILE *out)
{
    const size_t *a = largest(tensor)->bytes, *b = largest(zero)->bytes;
    fprintf(out, "%s against %s:", tensor->name, zero->name);
    for (int kind = 0; kind < PLAIT_MEM_KINDS; kind++)
        if (a[kind] != b[kind])
            fprintf(out, " %s %s against %s;", plait_mem_kind_name((plait_mem_kind)kind),
                    plait_grouped((int64_t)a[kind]), plait_grouped((int64_t)b[kind]));
    fprintf(out, " bytes in all %s against %s, sent in a step %s against %s",
            plait_grouped((int64_t)largest(tensor)->total), plait_grouped((int64_t)largest(zero)->total),
            plait_grouped(tensor->volume), plait_grouped(zero->volume));
    if (plait_variant_seconds(tensor, measured) > 0 && plait_variant_seconds(zero, measured) > 0)
        fprintf(out, "; %.4g s against %.4g s a step", plait_variant_seconds(tensor, measured),
                plait_variant_seconds(zero, measured));
    fputs(".\n", out);
}

/* ---- plan and run ---- */

static void say_agreement(const plait_variants *v, FILE *out)
{
    int done = 0, memory = 0, communication = 0;
    for (int i = 0; i < v->num; i++) {
        const plait_measured *m = &v->all[i].measured;
        done += m->done;
        memory += m->done && m->memory_as_planned;
        communication += m->done && m->communication_as_planned;
    }
    if (done > 0)
        fprintf(out, "Measured: %d run%s. Bytes held on every rank were as planned in %d of them, bytes sent in %d.\n",
                done, done == 1 ? "" : "s", memory, communication);
}

void plait_compare_words(const plait_variants *v, FILE *out)
{
    const bool measured = any_measured(v);
    const plait_variant *tensor = most_tensor(v), *zero = find(v, 1, 1, v->ranks, 3);
    say_machine(v, out);
    say_limit(v, plait_variants_fastest(v, measured) != NULL, out);
    say_memory(v, out);
    say_time(v, measured, out);
    if (v->ranks > 1 && tensor && zero)
        say_pair(tensor, zero, measured, out);
    if (v->ranks > 1 && zero)
        say_zero_3(zero, out);
    say_idle(v, out);
    say_agreement(v, out);
}
