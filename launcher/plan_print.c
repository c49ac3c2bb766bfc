#include "launcher/plan_print.h"

#include "launcher/banner.h"

/* "d0   p1   t0" */
static void print_coords(const plait_topology *t, FILE *out)
{
    fprintf(out, "d%-3d p%-3d t%-3d", t->d, t->p, t->t);
}

/* ---- memory ---- */

static void print_class(const plait_rank_class *c, FILE *out)
{
    fprintf(out, "  %-6d %5d ", c->num_ranks, c->first.rank);
    print_coords(&c->first, out);
    fprintf(out, " %13s", plait_grouped(c->elements));
    for (int kind = 0; kind < PLAIT_MEM_KINDS; kind++)
        fprintf(out, " %15s", plait_grouped((int64_t)c->bytes[kind]));
    fprintf(out, " %17s\n", plait_grouped((int64_t)c->total));
}

int64_t plait_plan_beside_gpu(const plait_rank_plan *p)
{
    size_t most = 0;
    for (int i = 0; i < p->num_classes; i++) {
        const size_t beside = p->classes[i].host_bytes + p->classes[i].host_staging;
        most = beside > most ? beside : most;
    }
    return (int64_t)most;
}

void plait_plan_print_memory(const plait_rank_plan *p, int64_t host_bytes, FILE *out)
{
    fprintf(out, "bytes of each rank:\n  ranks      first         %15s", "computes with");
    for (int kind = 0; kind < PLAIT_MEM_KINDS; kind++)
        fprintf(out, " %15s", plait_mem_kind_name((plait_mem_kind)kind));
    fprintf(out, " %17s\n", "all");
    for (int i = 0; i < p->num_classes; i++)
        print_class(&p->classes[i], out);
    if (host_bytes >= 0)
        fprintf(out, "  on the host, each: %s (the text)\n", plait_grouped(host_bytes));
    const int64_t beside = plait_plan_beside_gpu(p);
    if (beside > 0)
        fprintf(out, "  on the host, at most: %s (what goes to and from a GPU)\n", plait_grouped(beside));
}

/* Of the class that holds most: the others differ by what their stage has in flight. */
void plait_plan_print_peaks(const plait_planned *p, FILE *out)
{
    const plait_rank_class *c = plait_rank_plan_largest(&p->plan);
    const bool chunks = p->cfg.parallelism.num_chunks > 1;
    fprintf(out, "at their highest there: activations of %d forward%s without backward, from micro-batch %d",
            c->in_flight, c->in_flight == 1 ? "" : "s", c->full_micro);
    if (chunks)
        fprintf(out, " of chunk %d", c->full_chunk);
    fprintf(out, " on; workspace in %s", plait_step_part_name(c->workspace_part));
    if (chunks && (c->workspace_part == PLAIT_PART_FORWARD || c->workspace_part == PLAIT_PART_BACKWARD))
        fprintf(out, " of chunk %d", c->workspace_chunk);
    if (c->gathered > 0)
        fprintf(out, "; %d gathered unit%s", c->gathered, c->gathered == 1 ? "" : "s");
    fputs("; the rest always\n", out);
}

/* ---- communication ---- */

static void print_traffic(const plait_rank_class *c, FILE *out)
{
    for (int g = 0; g < PLAIT_GROUPS; g++)
        for (int k = 0; k < PLAIT_COMM_KINDS; k++)
            if (c->traffic[g].calls[k] > 0) {
                fprintf(out, "  %5d ", c->first.rank);
                print_coords(&c->first, out);
                fprintf(out, " %-10s %-15s %9s %21s\n", plait_group_name((plait_group)g),
                        plait_comm_kind_name((plait_comm_kind)k), plait_grouped(c->traffic[g].calls[k]),
                        plait_grouped(c->traffic[g].bytes[k]));
            }
}

static void print_communication(const plait_planned *p, FILE *out)
{
    if (p->world == 1)
        return;
    fputs("communication of a step, of the first rank of each kind:\n"
          "  rank                  group      operation           calls                 bytes\n",
          out);
    for (int i = 0; i < p->plan.num_classes; i++)
        if (!plait_planned_sends_as_before(p, i))
            print_traffic(&p->plan.classes[i], out);
}

/* ---- time ---- */

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

static void print_stages(const plait_prediction *t, FILE *out)
{
    fputs("  stage    computes        idle", out);
    for (int g = 0; g < PLAIT_GROUPS; g++)
        fprintf(out, " %11s", plait_group_name((plait_group)g));
    fputs("        host  (ms)\n", out);
    for (int i = 0; i < t->num_stages; i++) {
        fprintf(out, "  %-5d %11.3f %11.3f", i, 1e3 * t->stages[i].compute, 1e3 * t->stages[i].idle);
        for (int g = 0; g < PLAIT_GROUPS; g++)
            fprintf(out, " %11.3f", 1e3 * plait_stage_exposed(&t->stages[i], (plait_group)g));
        fprintf(out, " %11.3f\n", 1e3 * t->host_seconds);
    }
}

/* The operations that take most of the time of rank 0. */
static void print_operations(const plait_rank_class *c, FILE *out)
{
    enum { MOST = 5 };
    bool printed[PLAIT_OPS] = {false};
    double all = 0;
    for (int op = 0; op < PLAIT_OPS; op++)
        all += c->ops[op].seconds;
    fputs("  rank 0 computes:", out);
    for (int n = 0; n < MOST; n++) {
        int most = -1;
        for (int op = 0; op < PLAIT_OPS; op++)
            if (!printed[op] && c->ops[op].calls > 0 && (most < 0 || c->ops[op].seconds > c->ops[most].seconds))
                most = op;
        if (most < 0)
            break;
        printed[most] = true;
        fprintf(out, "%s %s %.1f %%", n ? "," : "", plait_op_name((plait_op)most), percent(c->ops[most].seconds, all));
    }
    fputc('\n', out);
}

static void print_time(const plait_planned *p, FILE *out)
{
    const plait_prediction *t = &p->plan.prediction;
    const double mfu = plait_planned_mfu(p);
    fprintf(out, "predicted on %s (%s): %.4g s a step, %.4g tokens/s, idle %.1f %%", p->machine->name,
            p->machine->source, t->step_seconds, (double)plait_planned_tokens(p) / t->step_seconds,
            100 * plait_prediction_bubble(t));
    if (mfu > 0)
        fprintf(out, ", MFU %.1f %%", 100 * mfu);
    fputc('\n', out);
    print_stages(t, out);
    print_operations(&p->plan.classes[0], out);
}

/* ---- all ---- */

/* Whether the largest class is within the limit, and by how much. */
void plait_plan_print_verdict(const plait_planned *p, FILE *out)
{
    const plait_rank_class *largest = plait_rank_plan_largest(&p->plan);
    const size_t limit = (size_t)p->cfg.device.memory_limit;
    fprintf(out, "largest: %s bytes on rank %d [d%d p%d t%d]", plait_grouped((int64_t)largest->total),
            largest->first.rank, largest->first.d, largest->first.p, largest->first.t);
    if (limit == 0)
        fputs("; device.memory_limit is not set\n", out);
    else if (largest->total <= limit)
        fprintf(out, ": fits, %s are left of device.memory_limit\n", plait_grouped((int64_t)(limit - largest->total)));
    else
        fprintf(out, ": does not fit, device.memory_limit lacks %s\n",
                plait_grouped((int64_t)(largest->total - limit)));
}

void plait_plan_print_topology(const plait_planned *p, FILE *out)
{
    const plait_topology *t = &p->plan.topo;
    fprintf(out, "ranks: %d = tensor %d x pipeline %d x data %d; ZeRO stage %lld; %s; %lld micro-batch%s of %lld; %s\n",
            t->world, t->tp, t->pp, t->dp, (long long)p->cfg.zero.stage, plait_dtype_name(p->cfg.precision.dtype),
            (long long)p->cfg.batch.accumulation, p->cfg.batch.accumulation == 1 ? "" : "es",
            (long long)p->cfg.batch.micro_batch_size, plait_planned_ranks_are(p));
}

static void print_estimate(const plait_planned *p, const plait_rank_class *largest, FILE *out)
{
    const size_t *b = largest->bytes;
    fprintf(
        out,
        "DeepSpeed's estimator says %s bytes of a GPU, without activations and buffers; planned are %s, of which model "
        "states %s\n",
        plait_grouped(p->estimate.device_bytes), plait_grouped((int64_t)largest->total),
        plait_grouped((int64_t)(b[PLAIT_MEM_PARAM] + b[PLAIT_MEM_GRAD] + b[PLAIT_MEM_OPTIM])));
}

void plait_plan_print(const plait_planned *p, FILE *out)
{
    plait_plan_print_topology(p, out);
    plait_plan_print_memory(&p->plan, p->host_bytes, out);
    if (p->without_evaluations)
        fputs("  without evaluations: how long they are is in the text, which is not there\n", out);
    plait_plan_print_verdict(p, out);
    plait_plan_print_peaks(p, out);
    if (p->estimated)
        print_estimate(p, plait_rank_plan_largest(&p->plan), out);
    print_communication(p, out);
    if (p->plan.predicted)
        print_time(p, out);
}
