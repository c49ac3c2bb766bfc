#include "launcher/compare_html.h"

#include "core/file.h"
#include "launcher/banner.h"
#include "launcher/compare_words.h"
#include "launcher/html.h"
#include "launcher/html_parts.h"
#include "launcher/html_timeline.h"

/* Bars of a chart, bars of all charts by rank, boxes of all pipelines; tables have everything. */
enum { MOST_BARS = 96, MOST_RANK_BARS = 600, MOST_BOXES = 9000 };

typedef struct page {
    const plait_variants *v;
    const char *title;
    bool predicted, measured; /* whether any variant is */
    double limit;             /* device.memory_limit; 0: none */
} page;

/* How far the prediction is from the measurement, in percent; both are there. */
static double difference(const plait_variant *one)
{
    return 100 * (plait_variant_seconds(one, false) / plait_variant_seconds(one, true) - 1);
}

static page page_of(const plait_variants *v, const char *title)
{
    page the = {.v = v, .title = title};
    for (int i = 0; i < v->num; i++) {
        the.predicted |= plait_variant_seconds(&v->all[i], false) > 0;
        the.measured |= v->all[i].measured.done || v->all[i].measured.failure[0];
        if (v->all[i].legal)
            the.limit = (double)v->all[i].plan.cfg.device.memory_limit;
    }
    return the;
}

/* ---- what the page is read for ---- */

static void put_best(FILE *out, const char *what, const char *number, const plait_variant *best)
{
    char name[80];
    snprintf(name, sizeof name, "%s: %s", what, number);
    plait_html_fact(out, name, "%s", best->name);
}

static void put_facts(const page *the, FILE *out)
{
    const plait_variants *v = the->v;
    const plait_variant *first = plait_variants_first(v), *smallest = plait_variants_smallest(v),
                        *fastest = plait_variants_fastest(v, false), *measured = plait_variants_fastest(v, true);
    fputs("<p class=\"lead\">", out);
    plait_html_format(out,
                      "One model, %d rank%s, %lld samples of %lld tokens a step, in %d ways; %d more are not "
                      "possible.",
                      v->ranks, v->ranks == 1 ? "" : "s", (long long)v->global_batch, (long long)v->seq_length,
                      v->num - v->num_illegal, v->num_illegal);
    if (first)
        plait_html_format(out, " Planned for %s.", plait_planned_ranks_are(&first->plan));
    fputs("</p>\n", out);
    plait_html_facts_begin(out);
    if (smallest)
        put_best(out, "smallest", plait_short_bytes((double)plait_planned_bytes(&smallest->plan)), smallest);
    if (fastest)
        put_best(out, "fastest, predicted", plait_short_seconds(plait_variant_seconds(fastest, false)), fastest);
    if (measured)
        put_best(out, "fastest, measured", plait_short_seconds(plait_variant_seconds(measured, true)), measured);
    plait_html_facts_end(out);
}

static void print_words(const void *v, FILE *out)
{
    plait_compare_words(v, out);
}

static void put_words(const page *the, FILE *out)
{
    plait_html_section_begin(out, "In words");
    plait_html_printed(out, "word", print_words, the->v);
    plait_html_section_end(out);
}

/* ---- a chart with a bar or two a variant ---- */

enum { MOST_PARTS = PLAIT_TIME_PARTS + 1 };

typedef struct chart {
    const page *the;
    plait_html_bars bars;
    int num_parts;
    void (*parts)(const plait_variant *one, plait_html_part *out);
    void (*row)(const struct chart *c, const plait_variant *one);
} chart;

static void put_legend(const chart *c)
{
    plait_html_part all[MOST_PARTS] = {0}, parts[MOST_PARTS] = {0};
    for (int i = 0; i < c->the->v->num; i++) {
        if (!c->the->v->all[i].legal)
            continue;
        c->parts(&c->the->v->all[i], parts);
        plait_html_parts_add(all, parts, c->num_parts);
    }
    plait_html_parts_legend(c->bars.out, all, c->num_parts);
}

static void put_chart(chart *c)
{
    const plait_variants *v = c->the->v;
    const int num = v->num - v->num_illegal;
    put_legend(c);
    c->bars.rows = num;
    plait_html_bars_begin(&c->bars);
    for (int i = 0, n = 0; i < v->num; i++) {
        if (!v->all[i].legal)
            continue;
        if (plait_html_is_drawn(n, num, MOST_BARS))
            c->row(c, &v->all[i]);
        else if (plait_html_is_drawn(n - 1, num, MOST_BARS))
            plait_html_bars_gap(&c->bars, num - MOST_BARS);
        n++;
    }
    plait_html_bars_end(&c->bars);
}

/* ---- memory ---- */

static void memory_parts(const plait_variant *one, plait_html_part *out)
{
    plait_html_memory_parts(plait_rank_plan_largest(&one->plan.plan), out);
}

static void put_memory_row(const chart *c, const plait_variant *one)
{
    plait_html_part parts[PLAIT_MEM_KINDS];
    char value[64];
    memory_parts(one, parts);
    snprintf(value, sizeof value, "%s%s", plait_short_bytes((double)plait_planned_bytes(&one->plan)),
             plait_planned_fits(&one->plan) ? "" : "| does not fit");
    plait_html_bars_row(&c->bars, one->name, one == plait_variants_smallest(c->the->v) ? "smallest" : "", value, parts,
                        PLAIT_MEM_KINDS);
}

static double most_bytes(const plait_variants *v)
{
    double most = 0;
    for (int i = 0; i < v->num; i++)
        if (v->all[i].legal && (double)plait_planned_bytes(&v->all[i].plan) > most)
            most = (double)plait_planned_bytes(&v->all[i].plan);
    return most;
}

static void put_memory(const page *the, FILE *out)
{
    chart c = {
        .the = the,
        .bars = {.out = out, .most = most_bytes(the->v), .limit = the->limit, .binary = true, .say = plait_short_bytes},
        .num_parts = PLAIT_MEM_KINDS,
        .parts = memory_parts,
        .row = put_memory_row};
    plait_html_section_begin(out, "Memory of the largest rank");
    put_chart(&c);
    plait_html_section_end(out);
}

/* ---- memory by rank ---- */

/* Whether ranks differ by more than the rounding of shards. */
static bool ranks_differ(const plait_variant *one)
{
    size_t least = plait_planned_bytes(&one->plan);
    for (int i = 0; i < one->plan.plan.num_classes; i++)
        if (one->plan.plan.classes[i].total < least)
            least = one->plan.plan.classes[i].total;
    return (double)plait_planned_bytes(&one->plan) > 1.01 * (double)least;
}

static void put_memory_by_rank(const page *the, FILE *out)
{
    const plait_variants *v = the->v;
    plait_html_bars b = {
        .out = out, .most = most_bytes(v), .limit = the->limit, .binary = true, .say = plait_short_bytes};
    int num = 0;
    for (int i = 0; i < v->num; i++)
        num += v->all[i].legal && ranks_differ(&v->all[i]);
    if (num == 0)
        return;
    const int most = MOST_RANK_BARS / num > 4 ? MOST_RANK_BARS / num : 4;
    plait_html_section_begin(out, "Where ranks differ");
    fputs("<p class=\"note\">The first rank of each kind, in the colours above and all on the scale of the "
          "largest.</p>\n",
          out);
    for (int i = 0; i < v->num; i++) {
        const plait_variant *one = &v->all[i];
        if (!one->legal || !ranks_differ(one))
            continue;
        plait_html_heading(out, one->name);
        plait_html_classes_bars(&b, &one->plan.plan, most);
    }
    plait_html_section_end(out);
}

/* ---- communication ---- */

/* Of the rank that sends most. */
static void volume_parts(const plait_variant *one, plait_html_part *out)
{
    const plait_rank_plan *p = &one->plan.plan;
    plait_html_part parts[PLAIT_GROUPS];
    double most = -1;
    for (int i = 0; i < p->num_classes; i++) {
        const double sum = plait_html_volume_parts(&p->classes[i], parts);
        if (sum <= most)
            continue;
        most = sum;
        for (int g = 0; g < PLAIT_GROUPS; g++)
            out[g] = parts[g];
    }
}

static void put_volume_row(const chart *c, const plait_variant *one)
{
    plait_html_part parts[PLAIT_GROUPS];
    volume_parts(one, parts);
    plait_html_bars_row(&c->bars, one->name, "", plait_short_bytes((double)one->volume), parts, PLAIT_GROUPS);
}

static void put_communication(const page *the, FILE *out)
{
    chart c = {.the = the,
               .bars = {.out = out, .binary = true, .say = plait_short_bytes},
               .num_parts = PLAIT_GROUPS,
               .parts = volume_parts,
               .row = put_volume_row};
    for (int i = 0; i < the->v->num; i++)
        if (the->v->all[i].legal && (double)the->v->all[i].volume > c.bars.most)
            c.bars.most = (double)the->v->all[i].volume;
    if (c.bars.most == 0)
        return;
    plait_html_section_begin(out, "Bytes that a rank sends in a step");
    put_chart(&c);
    fputs("<p class=\"note\">Of the rank that sends most, by ring algorithms: for an all-reduce among N ranks "
          "2 (N - 1) / N of its bytes as they travel, for a reduce-scatter or all-gather (N - 1) / N, for a reduce, "
          "a broadcast or a message all.</p>\n",
          out);
    plait_html_section_end(out);
}

/* ---- time ---- */

static void time_parts(const plait_variant *one, plait_html_part *out)
{
    for (int k = 0; k < PLAIT_TIME_PARTS; k++)
        out[k] = (plait_html_part){"idle", "idle", 0};
    if (plait_variant_seconds(one, false) > 0)
        plait_html_time_parts(&one->plan.plan.prediction, -1, out);
    out[PLAIT_TIME_PARTS] = (plait_html_part){"measured", "measured", plait_variant_seconds(one, true)};
}

static void put_time_row(const chart *c, const plait_variant *one)
{
    plait_html_part parts[MOST_PARTS];
    char value[64];
    const double predicted = plait_variant_seconds(one, false), measured = plait_variant_seconds(one, true);
    const char *name = one->name;
    time_parts(one, parts);
    if (predicted > 0) {
        snprintf(value, sizeof value, "%s%s", plait_short_seconds(predicted),
                 one->measured.failure[0] ? "| not measured" : "");
        plait_html_bars_row(&c->bars, name, c->the->measured ? "predicted" : "", value, parts, PLAIT_TIME_PARTS);
        name = "";
    }
    if (measured > 0) {
        snprintf(value, sizeof value, "%s", plait_short_seconds(measured));
        if (predicted > 0)
            snprintf(value, sizeof value, "%s| predicted %+.1f %%", plait_short_seconds(measured), difference(one));
        plait_html_bars_row(&c->bars, name, "measured", value, &parts[PLAIT_TIME_PARTS], 1);
    }
}

static void put_time(const page *the, FILE *out)
{
    chart c = {.the = the,
               .bars = {.out = out, .say = plait_short_seconds},
               .num_parts = MOST_PARTS,
               .parts = time_parts,
               .row = put_time_row};
    for (int i = 0; i < the->v->num; i++) {
        const double predicted = plait_variant_seconds(&the->v->all[i], false),
                     measured = plait_variant_seconds(&the->v->all[i], true);
        c.bars.most = predicted > c.bars.most ? predicted : c.bars.most;
        c.bars.most = measured > c.bars.most ? measured : c.bars.most;
    }
    if (c.bars.most == 0)
        return;
    plait_html_section_begin(out, "Time of a step");
    put_chart(&c);
    if (the->predicted)
        fputs("<p class=\"note\">Predicted: the mean over the stages. Communication is the part that no computing "
              "hides; idle is waiting for another stage.</p>\n",
              out);
    plait_html_section_end(out);
}

static void put_pipelines(const page *the, FILE *out)
{
    const plait_variants *v = the->v;
    int num = 0;
    for (int i = 0; i < v->num; i++)
        num += v->all[i].pp > 1 && plait_variant_seconds(&v->all[i], false) > 0;
    if (num == 0)
        return;
    plait_html_section_begin(out, "The pipelines in time");
    plait_html_timeline_legend(out, 1); /* variants have one chunk a stage */
    for (int i = 0; i < v->num; i++) {
        const plait_variant *one = &v->all[i];
        if (one->pp == 1 || plait_variant_seconds(one, false) == 0)
            continue;
        plait_html_heading(out, one->name);
        plait_html_timeline(out, &one->plan.plan.prediction, 1, MOST_BOXES / num);
    }
    fputs("<p class=\"note\">A row is a stage, a box the forward or backward of a micro-batch, whose number is in it "
          "where there is room; with the communication that it waits for. Each has a scale of its own.</p>\n",
          out);
    plait_html_section_end(out);
}

/* ---- all numbers ---- */

static void put_prediction(const plait_variant *one, FILE *out)
{
    const double seconds = plait_variant_seconds(one, false), mfu = seconds > 0 ? plait_planned_mfu(&one->plan) : 0;
    if (seconds > 0) {
        plait_html_cell(out, "%.4g", seconds);
        plait_html_cell(out, "%s", plait_short_count((double)plait_planned_tokens(&one->plan) / seconds));
        plait_html_cell(out, "%.1f", 100 * plait_prediction_bubble(&one->plan.plan.prediction));
    } else {
        for (int k = 0; k < 3; k++)
            plait_html_cell(out, "%s", "");
    }
    if (mfu > 0)
        plait_html_cell(out, "%.1f", 100 * mfu);
    else
        plait_html_cell(out, "%s", "");
}

static void put_measurement(const plait_variant *one, FILE *out)
{
    const plait_measured *m = &one->measured;
    if (!m->done) {
        for (int k = 0; k < 4; k++)
            plait_html_cell(out, "%s", "");
        plait_html_cell_sentence(out, m->failure);
        return;
    }
    plait_html_cell(out, "%.4g", m->step_seconds);
    if (plait_variant_seconds(one, false) > 0)
        plait_html_cell(out, "%+.1f", difference(one));
    else
        plait_html_cell(out, "%s", "");
    plait_html_cell(out, "%s", plait_grouped(m->bytes));
    plait_html_cell(out, "%s", plait_grouped(m->resident));
    plait_html_cell_sentence(out, m->memory_as_planned && m->communication_as_planned ? "yes"
                                  : m->memory_as_planned                              ? "not communication"
                                  : m->communication_as_planned                       ? "not memory"
                                                                                      : "no");
}

static bool is_best(const page *the, const plait_variant *one)
{
    return one == plait_variants_smallest(the->v) || one == plait_variants_fastest(the->v, the->measured);
}

static void put_memory_table(const page *the, FILE *out)
{
    const char *heads[4 + PLAIT_MEM_KINDS] = {"<variant", "micro-batches", "all", "sent a step"};
    for (int k = 0; k < PLAIT_MEM_KINDS; k++)
        heads[4 + k] = plait_mem_kind_name((plait_mem_kind)k);
    plait_html_table_begin(out, "bytes", heads, sizeof heads / sizeof *heads);
    for (int i = 0; i < the->v->num; i++) {
        const plait_variant *one = &the->v->all[i];
        if (!one->legal)
            continue;
        const plait_rank_class *c = plait_rank_plan_largest(&one->plan.plan);
        plait_html_row_begin(out, is_best(the, one) ? "best" : "variant");
        plait_html_cell_text(out, "%s", one->name);
        plait_html_cell(out, "%lld x %lld", (long long)one->plan.cfg.batch.accumulation,
                        (long long)one->plan.cfg.batch.micro_batch_size);
        plait_html_cell(out, "%s", plait_grouped((int64_t)c->total));
        plait_html_cell(out, "%s", plait_grouped(one->volume));
        for (int k = 0; k < PLAIT_MEM_KINDS; k++)
            plait_html_cell(out, "%s", plait_grouped((int64_t)c->bytes[k]));
        plait_html_row_end(out);
    }
    plait_html_table_end(out);
}

static void put_time_table(const page *the, FILE *out)
{
    const char *heads[10] = {"<variant"};
    int n = 1;
    if (the->predicted) {
        heads[n++] = "predicted, s";
        heads[n++] = "tokens/s";
        heads[n++] = "idle, %";
        heads[n++] = "MFU, %";
    }
    if (the->measured) {
        heads[n++] = "measured, s";
        heads[n++] = "difference, %";
        heads[n++] = "bytes held";
        heads[n++] = "resident";
        heads[n++] = "<as planned";
    }
    if (n == 1)
        return;
    plait_html_table_begin(out, "times", heads, n);
    for (int i = 0; i < the->v->num; i++) {
        const plait_variant *one = &the->v->all[i];
        if (!one->legal)
            continue;
        plait_html_row_begin(out, is_best(the, one) ? "best" : "variant");
        plait_html_cell_text(out, "%s", one->name);
        if (the->predicted)
            put_prediction(one, out);
        if (the->measured)
            put_measurement(one, out);
        plait_html_row_end(out);
    }
    plait_html_table_end(out);
    if (the->measured)
        fputs("<p class=\"note\">Difference: of the prediction from the measurement. Held: the most of a rank. "
              "Resident: by "
              "how much the process grew that grew most.</p>\n",
              out);
}

static void put_numbers(const page *the, FILE *out)
{
    plait_html_section_begin(out, "All numbers");
    put_memory_table(the, out);
    fputs("<p class=\"note\">Bytes of the largest rank by category, exact. Bold: the smallest and the fastest.</p>\n",
          out);
    put_time_table(the, out);
    plait_html_section_end(out);
}

/* ---- what is not possible; what makes a variant ---- */

static void put_illegal(const page *the, FILE *out)
{
    static const char *const heads[] = {"<variant", "<why not"};
    if (the->v->num_illegal == 0)
        return;
    plait_html_section_begin(out, "Not possible");
    plait_html_table_begin(out, "not possible", heads, 2);
    for (int i = 0; i < the->v->num; i++) {
        if (the->v->all[i].legal)
            continue;
        plait_html_row_begin(out, "illegal");
        plait_html_cell_text(out, "%s", the->v->all[i].name);
        plait_html_cell_sentence(out, the->v->all[i].reason);
        plait_html_row_end(out);
    }
    plait_html_table_end(out);
    plait_html_section_end(out);
}

static void put_keys(const page *the, FILE *out)
{
    plait_html_section_begin(out, "Keys of each variant");
    fputs("<details open=\"\">\n<summary>What to add to plait train or plait plan</summary>\n", out);
    for (int i = 0; i < the->v->num; i++) {
        const plait_variant *one = &the->v->all[i];
        if (!one->legal)
            continue;
        plait_html_heading(out, one->name);
        fputs("<p><code>", out);
        for (int k = 0; k < one->num_keys; k++)
            plait_html_format(out, "%s%s", k > 0 ? " " : "", one->keys[k]);
        fputs("</code></p>\n", out);
    }
    fputs("</details>\n", out);
    plait_html_section_end(out);
}

/* ---- all ---- */

static void print_page(const void *self, FILE *out)
{
    const page *the = self;
    plait_html_begin(out, "plait compare", the->title);
    put_facts(the, out);
    if (the->v->num - the->v->num_illegal > 1)
        put_words(the, out);
    if (the->v->num > the->v->num_illegal) {
        put_memory(the, out);
        put_memory_by_rank(the, out);
        put_communication(the, out);
        put_time(the, out);
        put_pipelines(the, out);
        put_numbers(the, out);
        put_keys(the, out);
    }
    put_illegal(the, out);
    plait_html_end(out);
}

void plait_compare_html(const plait_variants *v, const char *title, FILE *out)
{
    const page the = page_of(v, title);
    print_page(&the, out);
}

plait_status plait_compare_html_write(const plait_variants *v, const char *title, const char *path)
{
    const page the = page_of(v, title);
    return plait_file_write_text(path, print_page, &the);
}
