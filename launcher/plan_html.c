#include "launcher/plan_html.h"

#include "core/file.h"
#include "launcher/banner.h"
#include "launcher/html.h"
#include "launcher/html_parts.h"
#include "launcher/html_timeline.h"
#include "launcher/plan_print.h"

/* Bars and boxes that are drawn; tables have everything. */
enum { MOST_BARS = 96, MOST_BOXES = 6000 };

typedef struct page {
    const plait_planned *p;
    const char *title;
} page;

static void print_topology(const void *p, FILE *out)
{
    plait_plan_print_topology(p, out);
}

static void print_verdict(const void *p, FILE *out)
{
    plait_plan_print_verdict(p, out);
}

static void print_peaks(const void *p, FILE *out)
{
    plait_plan_print_peaks(p, out);
}

/* ---- what the page is read for ---- */

static void put_time_facts(const plait_planned *p, FILE *out)
{
    const plait_prediction *t = &p->plan.prediction;
    const double mfu = plait_planned_mfu(p);
    plait_html_fact(out, "a step, predicted", "%s", plait_short_seconds(t->step_seconds));
    plait_html_fact(out, "tokens/s", "%s", plait_short_count((double)plait_planned_tokens(p) / t->step_seconds));
    if (mfu > 0)
        plait_html_fact(out, "MFU", "%.1f %%", 100 * mfu);
    plait_html_fact(out, "idle", "%.1f %%", 100 * plait_prediction_bubble(t));
}

static void put_facts(const plait_planned *p, FILE *out)
{
    const size_t limit = (size_t)p->cfg.device.memory_limit;
    plait_html_printed(out, "lead", print_topology, p);
    plait_html_facts_begin(out);
    plait_html_fact(out, "largest rank", "%s", plait_short_bytes((double)plait_planned_bytes(p)));
    if (limit > 0)
        plait_html_fact(out, "limit", "%s, %s", plait_short_bytes((double)limit),
                        plait_planned_fits(p) ? "fits" : "does not fit");
    plait_html_fact(out, "tokens a step", "%s", plait_grouped(plait_planned_tokens(p)));
    if (p->plan.predicted)
        put_time_facts(p, out);
    plait_html_facts_end(out);
}

/* ---- memory ---- */

static void put_memory_table(const plait_planned *p, FILE *out)
{
    const char *heads[4 + PLAIT_MEM_KINDS + 2] = {"ranks", "first rank", "<coordinates", "computes with"};
    const plait_rank_class *largest = plait_rank_plan_largest(&p->plan);
    for (int k = 0; k < PLAIT_MEM_KINDS; k++)
        heads[4 + k] = plait_mem_kind_name((plait_mem_kind)k);
    heads[4 + PLAIT_MEM_KINDS] = "all";
    heads[5 + PLAIT_MEM_KINDS] = "in flight";
    plait_html_table_begin(out, "bytes of each rank", heads, sizeof heads / sizeof *heads);
    for (int i = 0; i < p->plan.num_classes; i++) {
        const plait_rank_class *c = &p->plan.classes[i];
        plait_html_row_begin(out, c == largest ? "largest" : "class");
        plait_html_cell(out, "%s", plait_grouped(c->num_ranks));
        plait_html_cell(out, "%s", plait_grouped(c->first.rank));
        plait_html_cell_text(out, "d%d p%d t%d", c->first.d, c->first.p, c->first.t);
        plait_html_cell(out, "%s", plait_grouped(c->elements));
        for (int k = 0; k < PLAIT_MEM_KINDS; k++)
            plait_html_cell(out, "%s", plait_grouped((int64_t)c->bytes[k]));
        plait_html_cell(out, "%s", plait_grouped((int64_t)c->total));
        plait_html_cell(out, "%d", c->in_flight);
        plait_html_row_end(out);
    }
    plait_html_table_end(out);
}

static void put_memory(const plait_planned *p, FILE *out)
{
    plait_html_section_begin(out, "Memory of each rank");
    plait_html_printed(out, plait_planned_fits(p) ? "lead" : "lead bad", print_verdict, p);
    plait_html_bars b = {.out = out,
                         .most = (double)plait_planned_bytes(p),
                         .limit = (double)p->cfg.device.memory_limit,
                         .binary = true,
                         .say = plait_short_bytes};
    plait_html_classes_legend(out, &p->plan);
    plait_html_classes_bars(&b, &p->plan, MOST_BARS);
    plait_html_printed(out, "note", print_peaks, p);
    if (p->host_bytes >= 0) {
        fputs("<p class=\"note\">", out);
        plait_html_format(out, "On the host, each: %s bytes (the text).", plait_grouped(p->host_bytes));
        fputs("</p>\n", out);
    }
    if (plait_plan_beside_gpu(&p->plan) > 0) {
        fputs("<p class=\"note\">", out);
        plait_html_format(out, "On the host, at most: %s bytes (what goes to and from a GPU).",
                          plait_grouped(plait_plan_beside_gpu(&p->plan)));
        fputs("</p>\n", out);
    }
    put_memory_table(p, out);
    fputs(
        "<p class=\"note\">Bytes, to the last one as a run takes them; ranks that hold the same share a row. Computes "
        "with: parameters of the rank, copies and padding included. In flight: the most forwards without "
        "backward.</p>\n",
        out);
    plait_html_section_end(out);
}

/* ---- communication ---- */

static void put_traffic(const plait_rank_class *c, FILE *out)
{
    for (int g = 0; g < PLAIT_GROUPS; g++)
        for (int k = 0; k < PLAIT_COMM_KINDS; k++) {
            if (c->traffic[g].calls[k] == 0)
                continue;
            plait_html_row_begin(out, "traffic");
            plait_html_cell(out, "%s", plait_grouped(c->first.rank));
            plait_html_cell_text(out, "d%d p%d t%d", c->first.d, c->first.p, c->first.t);
            plait_html_cell_text(out, "%s", plait_group_name((plait_group)g));
            plait_html_cell_text(out, "%s", plait_comm_kind_name((plait_comm_kind)k));
            plait_html_cell(out, "%s", plait_grouped(c->traffic[g].calls[k]));
            plait_html_cell(out, "%s", plait_grouped(c->traffic[g].bytes[k]));
            plait_html_cell(out, "%s", plait_short_bytes((double)c->traffic[g].bytes[k]));
            plait_html_row_end(out);
        }
}

static void put_communication(const plait_planned *p, FILE *out)
{
    static const char *const heads[] = {"rank", "<coordinates", "<group", "<operation", "calls", "bytes", "about"};
    if (p->world == 1)
        return;
    plait_html_section_begin(out, "Communication of a step");
    fputs("<p class=\"note\">Of the first rank of each kind: the others send the same.</p>\n", out);
    plait_html_table_begin(out, "communication", heads, sizeof heads / sizeof *heads);
    for (int i = 0; i < p->plan.num_classes; i++)
        if (!plait_planned_sends_as_before(p, i))
            put_traffic(&p->plan.classes[i], out);
    plait_html_table_end(out);
    plait_html_section_end(out);
}

/* ---- time ---- */

static void put_stage_bars(const plait_prediction *t, FILE *out)
{
    plait_html_part all[PLAIT_TIME_PARTS] = {0}, parts[PLAIT_TIME_PARTS];
    plait_html_bars b = {.out = out, .most = t->step_seconds, .rows = t->num_stages, .say = plait_short_seconds};
    for (int i = 0; i < t->num_stages; i++) {
        plait_html_time_parts(t, i, parts);
        plait_html_parts_add(all, parts, PLAIT_TIME_PARTS);
    }
    plait_html_parts_legend(out, all, PLAIT_TIME_PARTS);
    plait_html_bars_begin(&b);
    for (int i = 0; i < t->num_stages; i++) {
        char name[32], value[64];
        if (!plait_html_is_drawn(i, t->num_stages, MOST_BARS)) {
            if (plait_html_is_drawn(i - 1, t->num_stages, MOST_BARS))
                plait_html_bars_gap(&b, t->num_stages - MOST_BARS);
            continue;
        }
        plait_html_time_parts(t, i, parts);
        snprintf(name, sizeof name, "stage %d", i);
        snprintf(value, sizeof value, "%.0f %%| computing", 100 * t->stages[i].compute / t->step_seconds);
        plait_html_bars_row(&b, name, "", value, parts, PLAIT_TIME_PARTS);
    }
    plait_html_bars_end(&b);
}

/* In the unit of the step. */
static void put_stage_table(const plait_prediction *t, FILE *out)
{
    const char *unit = t->step_seconds < 1e-3 ? "us" : t->step_seconds < 1 ? "ms" : "s";
    const double per_second = t->step_seconds < 1e-3 ? 1e6 : t->step_seconds < 1 ? 1e3 : 1;
    const char *heads[4 + PLAIT_GROUPS] = {"stage"};
    char names[3 + PLAIT_GROUPS][32];
    for (int k = 0; k < 3 + PLAIT_GROUPS; k++) {
        snprintf(names[k], sizeof names[k], "%s, %s",
                 k == 0                  ? "computing"
                 : k == 1                ? "idle"
                 : k == 2 + PLAIT_GROUPS ? "host"
                                         : plait_group_name((plait_group)(k - 2)),
                 unit);
        heads[1 + k] = names[k];
    }
    plait_html_table_begin(out, "time of each stage", heads, sizeof heads / sizeof *heads);
    for (int i = 0; i < t->num_stages; i++) {
        plait_html_row_begin(out, "stage");
        plait_html_cell(out, "%d", i);
        plait_html_cell(out, "%.3f", per_second * t->stages[i].compute);
        plait_html_cell(out, "%.3f", per_second * t->stages[i].idle);
        for (int g = 0; g < PLAIT_GROUPS; g++)
            plait_html_cell(out, "%.3f", per_second * plait_stage_exposed(&t->stages[i], (plait_group)g));
        plait_html_cell(out, "%.3f", per_second * t->host_seconds);
        plait_html_row_end(out);
    }
    plait_html_table_end(out);
}

static void put_time(const plait_planned *p, FILE *out)
{
    const plait_prediction *t = &p->plan.prediction;
    plait_html_section_begin(out, "Where the time goes");
    fputs("<p class=\"lead\">", out);
    plait_html_format(out, "Predicted on %s (%s): %s a step.", p->machine->name, p->machine->source,
                      plait_short_seconds(t->step_seconds));
    fputs("</p>\n", out);
    put_stage_bars(t, out);
    fputs("<p class=\"note\">Communication is the part that no computing hides. Idle: waiting for another stage. Host: "
          "samples and metrics, for each step the same.</p>\n",
          out);
    put_stage_table(t, out);
    plait_html_section_end(out);
    plait_html_section_begin(out, t->num_stages > 1 ? "The pipeline in time" : "The step in time");
    plait_html_timeline_legend(out, (int)p->cfg.parallelism.num_chunks);
    plait_html_timeline(out, t, (int)p->cfg.parallelism.num_chunks, MOST_BOXES);
    fputs("<p class=\"note\">A row is a stage, a box the forward or backward of a micro-batch, whose number is in it "
          "where there is room; with the communication that it waits for.</p>\n",
          out);
    plait_html_section_end(out);
}

/* ---- all ---- */

void plait_plan_html(const plait_planned *p, const char *title, FILE *out)
{
    plait_html_begin(out, "plait plan", title);
    put_facts(p, out);
    put_memory(p, out);
    put_communication(p, out);
    if (p->plan.predicted)
        put_time(p, out);
    plait_html_end(out);
}

static void print_page(const void *what, FILE *out)
{
    const page *the = what;
    plait_plan_html(the->p, the->title, out);
}

plait_status plait_plan_html_write(const plait_planned *p, const char *title, const char *path)
{
    const page what = {.p = p, .title = title};
    return plait_file_write_text(path, print_page, &what);
}
