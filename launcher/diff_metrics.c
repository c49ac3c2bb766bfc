/* plait diff of two metrics files: both are read in step, since their lines are in the order of the run. */
#include <math.h>

#include "launcher/diff.h"
#include "launcher/diff_number.h"
#include "launcher/metrics_reader.h"

enum { KINDS = PLAIT_METRICS_END };
static const char *const kind_names[KINDS] = {"step", "evaluation"};

/* Where two values differ. */
typedef struct difference {
    bool is; /* false: nowhere yet */
    plait_metrics_field field;
    plait_metrics_kind kind;
    int64_t step;
    double value[2];
    uint64_t ulps;
} difference;

typedef struct comparison {
    FILE *out;
    const char *const *path;
    plait_metrics_reader reader[2];
    plait_metrics_line line[2]; /* the next of each */

    int64_t both[KINDS], differing[KINDS]; /* lines */
    int64_t by_field[PLAIT_METRICS_FIELDS];
    struct {
        int64_t count, first, last;
    } only[2][KINDS];
    difference largest;
    bool differ; /* the first difference has been printed */
} comparison;

/* ---- words ---- */

/* "step 3", "evaluation after step 3" */
static void print_place(FILE *out, plait_metrics_kind kind, int64_t step)
{
    fprintf(out, "%s %lld", kind == PLAIT_METRICS_EVAL ? "evaluation after step" : "step", (long long)step);
}

static void print_value(FILE *out, plait_metrics_field f, double x)
{
    if (plait_metrics_field_is_whole(f))
        fprintf(out, "%.0f", x);
    else if (isnan(x))
        fputs("not finite", out); /* null; the bits are not in the file */
    else
        plait_number_print(out, PLAIT_FP64, plait_double_bits(x));
}

static void print_difference(const comparison *c, const char *what, const difference *d)
{
    fprintf(c->out, "%s difference: ", what);
    print_place(c->out, d->kind, d->step);
    fprintf(c->out, ", %s", plait_metrics_field_name(d->field));
    if (!plait_metrics_field_is_whole(d->field)) {
        fputs(", ", c->out);
        plait_ulps_print(c->out, d->ulps);
    }
    fputc('\n', c->out);
    for (int i = 0; i < 2; i++) {
        fprintf(c->out, "  %s: ", c->path[i]);
        print_value(c->out, d->field, d->value[i]);
        fputc('\n', c->out);
    }
}

/* "1 step", "5 evaluations" */
static void print_count(FILE *out, int64_t n, int kind)
{
    fprintf(out, "%lld %s%s", (long long)n, kind_names[kind], n == 1 ? "" : "s");
}

/* ---- comparing ---- */

static void note_value(comparison *c, const difference *d)
{
    c->by_field[d->field]++;
    if (!c->differ)
        print_difference(c, "first", d);
    c->differ = true;
    if (!plait_metrics_field_is_whole(d->field) && (!c->largest.is || d->ulps > c->largest.ulps))
        c->largest = *d;
}

/* Two lines of one place. */
static void compare_lines(comparison *c)
{
    const plait_metrics_line *a = &c->line[0], *b = &c->line[1];
    bool same = true;
    for (plait_metrics_field f = 0; f < PLAIT_METRICS_FIELDS; f++) {
        const uint64_t x = plait_double_bits(a->value[f]), y = plait_double_bits(b->value[f]);
        if (!plait_metrics_field_of(f, a->kind) || x == y || (isnan(a->value[f]) && isnan(b->value[f])))
            continue;
        const difference d = {true, f, a->kind, a->step, {a->value[f], b->value[f]}, plait_ulps(PLAIT_FP64, x, y)};
        note_value(c, &d);
        same = false;
    }
    c->both[a->kind]++;
    c->differing[a->kind] += !same;
}

static void note_only(comparison *c, int which)
{
    const plait_metrics_line *l = &c->line[which];
    if (c->only[which][l->kind].count++ == 0)
        c->only[which][l->kind].first = l->step;
    c->only[which][l->kind].last = l->step;
    if (!c->differ) {
        fputs("first difference: ", c->out);
        print_place(c->out, l->kind, l->step);
        fprintf(c->out, " is only in %s\n", c->path[which]);
    }
    c->differ = true;
}

static plait_status compare_files(comparison *c)
{
    for (int i = 0; i < 2; i++)
        PLAIT_TRY(plait_metrics_reader_next(&c->reader[i], &c->line[i]));
    while (c->line[0].kind != PLAIT_METRICS_END || c->line[1].kind != PLAIT_METRICS_END) {
        const int order = plait_metrics_compare_place(&c->line[0], &c->line[1]);
        if (order == 0)
            compare_lines(c);
        else
            note_only(c, order > 0);
        if (order <= 0)
            PLAIT_TRY(plait_metrics_reader_next(&c->reader[0], &c->line[0]));
        if (order >= 0)
            PLAIT_TRY(plait_metrics_reader_next(&c->reader[1], &c->line[1]));
    }
    return PLAIT_OK;
}

/* ---- the summary ---- */

/* " (loss 3, grad_norm 2)": in how many lines each field differs. */
static void print_fields(const comparison *c, plait_metrics_kind kind)
{
    const char *separator = " (";
    for (plait_metrics_field f = 0; f < PLAIT_METRICS_FIELDS; f++)
        if (plait_metrics_field_of(f, kind) && c->by_field[f] > 0) {
            fprintf(c->out, "%s%s %lld", separator, plait_metrics_field_name(f), (long long)c->by_field[f]);
            separator = ", ";
        }
    fputs(separator[0] == ',' ? ")" : "", c->out);
}

static void print_only(const comparison *c, int which)
{
    for (int kind = 0; kind < KINDS; kind++) {
        if (c->only[which][kind].count == 0)
            continue;
        fprintf(c->out, "only in %s: ", c->path[which]);
        print_count(c->out, c->only[which][kind].count, kind);
        fprintf(c->out, ", %lld", (long long)c->only[which][kind].first);
        if (c->only[which][kind].count > 1)
            fprintf(c->out, " to %lld", (long long)c->only[which][kind].last);
        fputc('\n', c->out);
    }
}

static void print_summary(const comparison *c)
{
    fputs(c->differ ? "in both: " : "equal to the last bit: ", c->out);
    for (int kind = 0; kind < KINDS; kind++) {
        if (kind != PLAIT_METRICS_STEP && c->both[kind] == 0)
            continue;
        fputs(kind ? "; " : "", c->out);
        print_count(c->out, c->both[kind], kind);
        if (!c->differ)
            continue;
        fprintf(c->out, ", of which %lld differ", (long long)c->differing[kind]);
        print_fields(c, (plait_metrics_kind)kind);
    }
    fputc('\n', c->out);
    for (int i = 0; i < 2; i++)
        print_only(c, i);
    if (c->largest.is)
        print_difference(c, "largest", &c->largest);
    for (int i = 0; i < 2; i++)
        plait_line_reader_print_missing(&c->reader[i].lines, c->out);
}

plait_status plait_diff_metrics(const char *const path[2], FILE *out, bool *differ)
{
    comparison c = {.out = out, .path = path};
    plait_status st = PLAIT_OK;
    for (int i = 0; i < 2 && st == PLAIT_OK; i++)
        st = plait_metrics_reader_open(&c.reader[i], path[i]);
    if (st == PLAIT_OK)
        st = compare_files(&c);
    if (st == PLAIT_OK)
        print_summary(&c);
    *differ = c.differ;
    for (int i = 0; i < 2; i++)
        plait_metrics_reader_close(&c.reader[i]);
    return st;
}
