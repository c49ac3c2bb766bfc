#include "core/json_out.h"
#include "launcher/plan_print.h"

static void next(FILE *out, const char **separator)
{
    fputs(*separator, out);
    *separator = ",";
}

static void named(FILE *out, const char *name, double value)
{
    fprintf(out, ",\"%s\":", name);
    plait_json_number(out, value);
}

/* ---- what a class holds, sends and does ---- */

static void print_memory(const plait_planned *p, const plait_rank_class *c, FILE *out)
{
    fputs("\"memory\":{\"device\":{", out);
    for (int kind = 0; kind < PLAIT_MEM_KINDS; kind++)
        fprintf(out, "\"%s\":%zu,", plait_mem_kind_name((plait_mem_kind)kind), c->bytes[kind]);
    fprintf(out, "\"total\":%zu},\"host\":", c->total);
    if (p->host_bytes < 0 && c->host_staging == 0) {
        fputs("null}", out);
        return;
    }
    fprintf(out, "{\"%s\":", plait_mem_kind_name(PLAIT_MEM_WORK));
    if (p->host_bytes < 0)
        fputs("null", out);
    else
        fprintf(out, "%lld", (long long)p->host_bytes + (long long)c->host_bytes);
    if (c->host_staging > 0)
        fprintf(out, ",\"%s\":%zu", plait_mem_kind_name(PLAIT_MEM_COMM), c->host_staging);
    fputs("}}", out);
}

static void print_peaks(const plait_rank_class *c, FILE *out)
{
    fprintf(out,
            ",\"peaks\":{\"in_flight\":%d,\"from\":{\"chunk\":%d,\"micro_batch\":%d},\"gathered_units\":%d,"
            "\"workspace\":{\"part\":\"%s\",\"chunk\":%d}}",
            c->in_flight, c->full_chunk, c->full_micro, c->gathered, plait_step_part_name(c->workspace_part),
            c->workspace_chunk);
}

static void print_traffic(const plait_rank_class *c, FILE *out)
{
    const char *separator = "";
    fputs(",\"communication\":[", out);
    for (int g = 0; g < PLAIT_GROUPS; g++)
        for (int k = 0; k < PLAIT_COMM_KINDS; k++) {
            if (c->traffic[g].calls[k] == 0)
                continue;
            next(out, &separator);
            fprintf(out, "{\"group\":\"%s\",\"op\":\"%s\",\"calls\":%lld,\"bytes\":%lld}",
                    plait_group_name((plait_group)g), plait_comm_kind_name((plait_comm_kind)k),
                    (long long)c->traffic[g].calls[k], (long long)c->traffic[g].bytes[k]);
        }
    fputs("]", out);
}

static void print_operations(const plait_rank_class *c, bool predicted, FILE *out)
{
    const char *separator = "";
    fputs(",\"operations\":[", out);
    for (int op = 0; op < PLAIT_OPS; op++) {
        if (c->ops[op].calls == 0)
            continue;
        next(out, &separator);
        fprintf(out, "{\"op\":\"%s\",\"calls\":%lld", plait_op_name((plait_op)op), (long long)c->ops[op].calls);
        named(out, "flops", c->ops[op].flops);
        named(out, "bytes", c->ops[op].bytes);
        if (predicted && c->first.t == 0 && c->first.d == 0)
            named(out, "seconds", c->ops[op].seconds);
        fputs("}", out);
    }
    fputs("]", out);
}

static void print_class(const plait_planned *p, const plait_rank_class *c, FILE *out)
{
    fprintf(out, "{\"ranks\":%d,\"first\":%d,\"elements\":%lld,", c->num_ranks, c->first.rank, (long long)c->elements);
    print_memory(p, c, out);
    print_peaks(c, out);
    print_traffic(c, out);
    print_operations(c, p->plan.predicted, out);
    fputs("}", out);
}

/* ---- time ---- */

static void print_stage(const plait_stage_time *s, double host, FILE *out)
{
    const char *separator = "";
    fputs("{\"compute\":", out);
    plait_json_number(out, s->compute);
    named(out, "idle", s->idle);
    named(out, "host", host);
    fputs(",\"exposed\":{", out);
    for (int g = 0; g < PLAIT_GROUPS; g++) {
        next(out, &separator);
        fprintf(out, "\"%s\":", plait_group_name((plait_group)g));
        plait_json_number(out, plait_stage_exposed(s, (plait_group)g));
    }
    fputs("}}", out);
}

static void print_time(const plait_planned *p, FILE *out)
{
    const plait_prediction *t = &p->plan.prediction;
    const char *separator = "";
    if (!p->plan.predicted) {
        fputs("null", out);
        return;
    }
    fputs("{\"machine\":", out);
    plait_json_string(out, p->machine->name);
    fputs(",\"source\":", out);
    plait_json_string(out, p->machine->source);
    named(out, "step_seconds", t->step_seconds);
    named(out, "tokens_per_second", (double)plait_planned_tokens(p) / t->step_seconds);
    named(out, "bubble", plait_prediction_bubble(t));
    fputs(",\"mfu\":", out);
    const double mfu = plait_planned_mfu(p);
    if (mfu > 0)
        plait_json_number(out, mfu);
    else
        fputs("null", out);
    fputs(",\"stages\":[", out);
    for (int i = 0; i < t->num_stages; i++) {
        next(out, &separator);
        print_stage(&t->stages[i], t->host_seconds, out);
    }
    fputs("]}", out);
}

/* ---- all ---- */

static void print_ranks(const plait_planned *p, FILE *out)
{
    const char *separator = "";
    fputs("\"ranks\":[", out);
    for (int rank = 0; rank < p->world; rank++) {
        const plait_topology t = plait_topology_at(&p->plan.topo, rank);
        next(out, &separator);
        fprintf(out, "{\"rank\":%d,\"coords\":{\"d\":%d,\"p\":%d,\"t\":%d},\"class\":%d}", rank, t.d, t.p, t.t,
                p->plan.class_of[rank]);
    }
    fputs("]", out);
}

void plait_plan_print_json(const plait_planned *p, FILE *out)
{
    const plait_topology *t = &p->plan.topo;
    const size_t limit = (size_t)p->cfg.device.memory_limit;
    const char *separator = "";
    fprintf(out,
            "{\"version\":1,\"topology\":{\"world\":%d,\"tp\":%d,\"pp\":%d,\"dp\":%d},\"zero_stage\":%lld,"
            "\"dtype\":\"%s\",\"backend\":\"%s\",\"tokens_per_step\":%lld,",
            t->world, t->tp, t->pp, t->dp, (long long)p->cfg.zero.stage, plait_dtype_name(p->cfg.precision.dtype),
            p->cfg.device.backend == PLAIT_BACKEND_CUDA ? "cuda" : "cpu", (long long)plait_planned_tokens(p));
    print_ranks(p, out);
    fputs(",\"classes\":[", out);
    for (int i = 0; i < p->plan.num_classes; i++) {
        next(out, &separator);
        print_class(p, &p->plan.classes[i], out);
    }
    if (limit == 0)
        fputs("],\"memory_limit\":null,\"fits\":null", out);
    else
        fprintf(out, "],\"memory_limit\":%zu,\"fits\":%s", limit, plait_planned_fits(p) ? "true" : "false");
    fputs(",\"estimators\":", out);
    if (p->estimated)
        fprintf(out, "{\"deepspeed\":{\"device\":%lld,\"host\":%lld}}", (long long)p->estimate.device_bytes,
                (long long)p->estimate.host_bytes);
    else
        fputs("null", out);
    fputs(",\"predicted\":", out);
    print_time(p, out);
    fputs("}", out);
}
