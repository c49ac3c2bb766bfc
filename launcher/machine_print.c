/* Writing a machine file. */
#include "launcher/machine_file.h"

#include "core/file.h"
#include "core/json_out.h"

/* A list in brackets; `row`: numbers of a line, 0: all in one. %.9g: whole numbers as they are. */
static void print_numbers(FILE *out, const char *name, const double *x, int num, double unit, int digits, int row)
{
    fprintf(out, "    %s: [", name);
    for (int i = 0; i < num; i++) {
        if (row > 0 && row < num && i % row == 0)
            fprintf(out, "\n      ");
        fprintf(out, "%.*g%s", digits, x[i] / unit, i + 1 < num ? row > 0 && (i + 1) % row == 0 ? "," : ", " : "");
    }
    fprintf(out, "]\n");
}

static void print_rates(FILE *out, const plait_rate_table *t)
{
    const char *names[PLAIT_RATE_AXES];
    const int axes = plait_rate_axes(t->op, names);
    fprintf(out, "  - op: %s\n    dtype: %s\n", t->op == PLAIT_OPS ? "memory" : plait_op_name(t->op),
            plait_dtype_name(t->dtype));
    if (t->op == PLAIT_OP_gemm)
        fprintf(out, "    trans_a: %s\n    trans_b: %s\n", t->trans_a ? "true" : "false",
                t->trans_b ? "true" : "false");
    fprintf(out, "    threads: %d\n    ranks: %d\n", t->threads, t->ranks);
    if (t->launch_seconds > 0)
        fprintf(out, "    launch_microseconds: %.5g\n", t->launch_seconds / 1e-6);
    for (int a = 0; a < axes; a++)
        print_numbers(out, names[a], t->at[a], t->num[a], 1, 15, 0);
    print_numbers(out, plait_rate_is_flops(t->op) ? "gflops" : "gbytes", t->rate, plait_rate_points(t), 1e9, 5,
                  t->num[axes - 1]);
}

static void print_links(FILE *out, const plait_link_table *t)
{
    fprintf(out, "  - kind: %s\n    size: %d\n    ranks: %d\n", plait_comm_kind_name(t->kind), t->size, t->ranks);
    fprintf(out, "    spans: %s\n    dtype: %s\n", t->spans ? "true" : "false", plait_dtype_name(t->dtype));
    print_numbers(out, "bytes", t->bytes, t->num, 1, 15, 0);
    print_numbers(out, "microseconds", t->seconds, t->num, 1e-6, 5, 0);
}

static void print_link(FILE *out, const char *name, const plait_link *l)
{
    if (l->bandwidth > 0)
        fprintf(out, "%s: {microseconds: %.5g, gbytes: %.5g}\n", name, l->latency / 1e-6, l->bandwidth / 1e9);
}

void plait_machine_print(const plait_machine *m, FILE *out)
{
    fprintf(out, "# A machine as plait plan and plait compare see it: docs/machines.md\n");
    fprintf(out, "version: 1\nname: ");
    plait_json_string(out, m->name);
    fprintf(out, "\nsource: ");
    plait_json_string(out, m->source);
    fprintf(out, "\nranks_per_node: %d\noverlap: %s\n", m->ranks_per_node, m->overlap ? "true" : "false");
    fprintf(out, "launch_microseconds: %.5g\nstep_microseconds: %.5g\n", m->launch_seconds / 1e-6,
            m->step_seconds / 1e-6);
    const char *before = "peak_gflops: {";
    for (int i = 0; i < PLAIT_DTYPES; i++) {
        if (m->peak[i] <= 0)
            continue;
        fprintf(out, "%s%s: %.5g", before, plait_dtype_name((plait_dtype)i), m->peak[i] / 1e9);
        before = ", ";
    }
    if (before[0] == ',')
        fprintf(out, "}\n");
    print_link(out, "node", &m->node);
    print_link(out, "network", &m->network);
    if (m->num_rates > 0)
        fprintf(out, "rates:\n");
    for (int i = 0; i < m->num_rates; i++)
        print_rates(out, &m->rates[i]);
    if (m->num_links > 0)
        fprintf(out, "links:\n");
    for (int i = 0; i < m->num_links; i++)
        print_links(out, &m->links[i]);
}

static void print_machine(const void *self, FILE *out)
{
    plait_machine_print(self, out);
}

plait_status plait_machine_write(const plait_machine *m, const char *path)
{
    return plait_file_write_text(path, print_machine, m);
}
