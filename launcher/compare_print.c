#include "launcher/compare_print.h"

#include "core/json_out.h"
#include "launcher/banner.h"
#include "launcher/compare_words.h"
#include "launcher/plan_print.h"

/* ---- text ---- */

static void print_header(FILE *out)
{
    fprintf(out, "%-42s %6s", "bytes of the largest rank", "micro");
    for (int kind = 0; kind < PLAIT_MEM_KINDS; kind++)
        fprintf(out, " %13s", plait_mem_kind_name((plait_mem_kind)kind));
    fprintf(out, " %15s %15s %11s %11s\n", "all", "sent a step", "predicted", "measured");
}

static void print_seconds(double seconds, FILE *out)
{
    if (seconds > 0)
        fprintf(out, " %9.4g s", seconds);
    else
        fprintf(out, " %11s", "-");
}

static void print_variant(const plait_variant *one, FILE *out)
{
    const plait_rank_class *c = plait_rank_plan_largest(&one->plan.plan);
    const plait_measured *m = &one->measured;
    const double predicted = one->plan.plan.predicted ? one->plan.plan.prediction.step_seconds : 0;
    fprintf(out, "%-42s %2lldx%-3lld", one->name, (long long)one->plan.cfg.batch.accumulation,
            (long long)one->plan.cfg.batch.micro_batch_size);
    for (int kind = 0; kind < PLAIT_MEM_KINDS; kind++)
        fprintf(out, " %13s", plait_grouped((int64_t)c->bytes[kind]));
    fprintf(out, " %15s %15s", plait_grouped((int64_t)c->total), plait_grouped(one->volume));
    print_seconds(predicted, out);
    print_seconds(m->step_seconds, out);
    if (predicted > 0 && m->step_seconds > 0)
        fprintf(out, " (%+.0f %%)", 100 * (predicted / m->step_seconds - 1));
    fputs(plait_planned_fits(&one->plan) ? "\n" : "  does not fit\n", out);
    if (m->failure[0])
        fprintf(out, "    not measured: %s\n", m->failure);
    if (m->done && !m->memory_as_planned)
        fprintf(out, "    a rank held other bytes than planned: %s on the largest\n", plait_grouped(m->bytes));
    if (m->done && !m->communication_as_planned)
        fprintf(out, "    a rank sent other bytes than planned\n");
}

static void print_illegal(const plait_variants *v, FILE *out)
{
    if (v->num_illegal == 0)
        return;
    fputs("not possible:\n", out);
    for (int i = 0; i < v->num; i++)
        if (!v->all[i].legal)
            fprintf(out, "  %s: %s\n", v->all[i].name, v->all[i].reason);
}

void plait_compare_print(const plait_variants *v, FILE *out)
{
    const plait_variant *first = plait_variants_first(v);
    fprintf(out, "%d rank%s, %lld sample%s of %lld tokens a step%s%s\n", v->ranks, v->ranks == 1 ? "" : "s",
            (long long)v->global_batch, v->global_batch == 1 ? "" : "s", (long long)v->seq_length, first ? "; " : "",
            first ? plait_planned_ranks_are(&first->plan) : "");
    print_header(out);
    for (int i = 0; i < v->num; i++)
        if (v->all[i].legal)
            print_variant(&v->all[i], out);
    print_illegal(v, out);
    plait_compare_words(v, out);
}

/* ---- JSON ---- */

static void print_measured(const plait_measured *m, FILE *out)
{
    fputs(",\"measured\":", out);
    if (m->failure[0]) {
        fputs("{\"failure\":", out);
        plait_json_string(out, m->failure);
        fputs("}", out);
    } else if (m->done) {
        fputs("{\"step_seconds\":", out);
        plait_json_number(out, m->step_seconds);
        fprintf(out, ",\"bytes\":%lld,\"resident\":%lld,\"memory_as_planned\":%s,\"communication_as_planned\":%s}",
                (long long)m->bytes, (long long)m->resident, m->memory_as_planned ? "true" : "false",
                m->communication_as_planned ? "true" : "false");
    } else {
        fputs("null", out);
    }
}

static void json_variant(const plait_variant *one, FILE *out)
{
    fputs("{\"name\":", out);
    plait_json_string(out, one->name);
    fprintf(out, ",\"tp\":%d,\"pp\":%d,\"dp\":%d,\"overrides\":[", one->tp, one->pp, one->dp);
    for (int i = 0; i < one->num_keys; i++) {
        fputs(i ? "," : "", out);
        plait_json_string(out, one->keys[i]);
    }
    fputs("],\"reason\":", out);
    if (!one->legal) {
        plait_json_string(out, one->reason);
        fputs(",\"sent_bytes\":null,\"measured\":null,\"plan\":null}", out);
        return;
    }
    fprintf(out, "null,\"sent_bytes\":%lld", (long long)one->volume);
    print_measured(&one->measured, out);
    fputs(",\"plan\":", out);
    plait_plan_print_json(&one->plan, out);
    fputs("}", out);
}

void plait_compare_print_json(const plait_variants *v, FILE *out)
{
    fprintf(out, "{\"version\":1,\"ranks\":%d,\"global_batch_size\":%lld,\"seq_length\":%lld,\"variants\":[", v->ranks,
            (long long)v->global_batch, (long long)v->seq_length);
    for (int i = 0; i < v->num; i++) {
        fputs(i ? "," : "", out);
        json_variant(&v->all[i], out);
    }
    fputs("]}\n", out);
}
