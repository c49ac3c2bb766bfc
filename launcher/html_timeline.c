#include "launcher/html_timeline.h"

#include "launcher/html.h"
#include "launcher/html_bars.h"
#include "launcher/planned.h"

/* In units of the drawing, which are pixels on a wide page. */
enum { WIDTH = 1160, LEFT = 40, GAP = 26, ROW_GAP = 14, BOTTOM = 22, DIGIT = 6 };
enum { MOST_ROWS = 64, FEW_ROWS = 16 };

/* Two windows of the time: from the begin and up to the end, or one of everything. */
typedef struct drawing {
    FILE *out;
    const plait_prediction *p;
    double end;    /* of the step, without the host's part, seconds */
    double part;   /* of each window, seconds */
    bool whole;    /* one window */
    int rows, row; /* stages drawn; height of a row */
} drawing;

static double scale(const drawing *d)
{
    return d->whole ? (WIDTH - LEFT) / d->end : (WIDTH - LEFT - GAP) / (2 * d->part);
}

/* Where a window begins. */
static double from(const drawing *d, bool second)
{
    return second ? d->end - d->part : 0;
}

static double left(bool second)
{
    return second ? LEFT + (WIDTH - LEFT + GAP) / 2. : LEFT;
}

static int top(const drawing *d, int stage)
{
    const int before = (d->rows + 1) / 2, num = d->p->num_stages;
    return stage < before || num == d->rows ? stage * d->row : (stage - num + d->rows) * d->row + ROW_GAP;
}

static int height(const drawing *d)
{
    return d->rows * d->row + (d->rows < d->p->num_stages ? ROW_GAP : 0);
}

/* ---- what is drawn ---- */

static bool is_in(const drawing *d, const plait_span *s, bool second)
{
    if (!plait_html_is_drawn(s->stage, d->p->num_stages, d->rows))
        return false;
    return second ? s->end > from(d, true) : s->begin < d->part;
}

static int boxes(const drawing *d)
{
    int n = 0;
    for (int i = 0; i < d->p->num_spans; i++)
        n += is_in(d, &d->p->spans[i], false) + (!d->whole && is_in(d, &d->p->spans[i], true));
    return n;
}

static void fit(drawing *d, int most)
{
    const plait_prediction *p = d->p;
    for (int i = 0; i < p->num_stages; i++) {
        const double end = plait_stage_seconds(&p->stages[i]);
        d->end = end > d->end ? end : d->end;
    }
    const int most_rows = most < 16 * MOST_ROWS ? FEW_ROWS : MOST_ROWS;
    d->rows = p->num_stages < most_rows ? p->num_stages : most_rows;
    d->row = d->rows <= 8 ? 28 : d->rows <= 16 ? 22 : 13;
    d->part = d->end;
    d->whole = true;
    if (boxes(d) <= most)
        return;
    d->whole = false;
    for (d->part = d->end / 3; boxes(d) > most;)
        d->part *= 0.9;
}

/* ---- boxes ---- */

static void draw_box(const drawing *d, const plait_span *s, bool second, int chunks)
{
    const double begin = from(d, second), end = begin + d->part;
    const double x0 = left(second) + scale(d) * ((s->begin > begin ? s->begin : begin) - begin);
    const double x1 = left(second) + scale(d) * ((s->end < end ? s->end : end) - begin);
    const int y = top(d, s->stage), digits = s->micro < 10 ? 1 : s->micro < 100 ? 2 : s->micro < 1000 ? 3 : 5;
    const double width = x1 - x0 - (x1 - x0 > 3 ? 0.6 : 0.2 * (x1 - x0)); /* a seam to the next one */
    fprintf(d->out, "<rect class=\"%s%d\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"><title>",
            s->backward ? "b" : "f", s->chunk % 2, x0, y + 1, width, d->row - 2);
    fprintf(d->out, "%s %d", s->backward ? "backward" : "forward", s->micro);
    if (chunks > 1)
        fprintf(d->out, " of chunk %d", s->chunk);
    fprintf(d->out, ", %s to %s</title></rect>", plait_short_seconds(s->begin), plait_short_seconds(s->end));
    if (x1 - x0 >= DIGIT * digits + 4)
        fprintf(d->out, "<text class=\"in%s\" x=\"%.1f\" y=\"%d\">%d</text>", s->backward ? " on" : "", (x0 + x1) / 2,
                y + d->row / 2 + 4, s->micro);
    fputc('\n', d->out);
}

static void draw_rows(const drawing *d)
{
    const int num = d->p->num_stages;
    for (int i = 0; i < num; i++) {
        if (!plait_html_is_drawn(i, num, d->rows))
            continue;
        fprintf(d->out, "<text class=\"stage\" x=\"%d\" y=\"%d\">p%d</text>", LEFT - 6, top(d, i) + d->row / 2 + 4, i);
        for (int second = 0; second < (d->whole ? 1 : 2); second++)
            fprintf(d->out, "<rect class=\"track\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>\n", left(second),
                    top(d, i) + 1, scale(d) * d->part, d->row - 2);
    }
}

/* ---- what is left out ---- */

static void draw_breaks(const drawing *d)
{
    const int bottom = height(d);
    const double x = left(true) - GAP / 2. - 3;
    if (!d->whole)
        for (int k = 0; k < 2; k++)
            fprintf(d->out, "<path class=\"break\" d=\"M%.1f 0l6 %.1fl-6 %.1fl6 %.1fl-6 %.1f\"/>", x - 3 + 6 * k,
                    bottom / 4., bottom / 4., bottom / 4., bottom / 4.);
    if (d->rows < d->p->num_stages) {
        const int y = (d->rows + 1) / 2 * d->row + ROW_GAP / 2;
        fprintf(d->out, "<path class=\"break\" stroke-dasharray=\"2 4\" d=\"M%d %dH%d\"/>", LEFT, y, WIDTH);
    }
    fputc('\n', d->out);
}

static void draw_scale(const drawing *d)
{
    const double step = plait_html_tick(d->part, d->whole ? 10 : 5, false);
    const int y = height(d);
    for (int second = 0; second < (d->whole ? 1 : 2); second++) {
        const double begin = from(d, second), end = begin + d->part;
        for (double t = step * (double)(int64_t)(begin / step + 0.999); t <= end; t += step) {
            const double x = left(second) + scale(d) * (t - begin);
            fprintf(d->out, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>", x, x, y, y + 5);
            if (x < WIDTH - 20)
                fprintf(d->out, "<text class=\"tick\" x=\"%.1f\" y=\"%d\">%s</text>\n", x, y + 17,
                        plait_short_seconds(t));
        }
    }
}

static void say_gaps(const drawing *d)
{
    const int num = d->p->num_stages;
    if (d->whole && d->rows == num)
        return;
    fputs("<p class=\"note\">Not drawn: ", d->out);
    if (!d->whole)
        fprintf(d->out, "%s between the first and the last %s", plait_short_seconds(d->end - 2 * d->part),
                plait_short_seconds(d->part));
    if (d->rows < num)
        fprintf(d->out, "%s%d stages between p%d and p%d", d->whole ? "" : "; ", num - d->rows, (d->rows + 1) / 2 - 1,
                num - d->rows / 2);
    fputs(".</p>\n", d->out);
}

void plait_html_timeline_legend(FILE *out, int chunks)
{
    static const plait_html_key keys[] = {{"track", "neither: waiting, sharing, the update"},
                                          {"f0", "forward"},
                                          {"b0", "backward"},
                                          {"f1", "forward, odd chunk"},
                                          {"b1", "backward, odd chunk"}};
    plait_html_legend(out, keys, chunks > 1 ? 5 : 3);
}

void plait_html_timeline(FILE *out, const plait_prediction *p, int chunks, int most)
{
    drawing d = {.out = out, .p = p};
    fit(&d, most);
    fputs("<div class=\"scroll time\" tabindex=\"0\" role=\"region\" aria-label=\"pipeline over time\">\n", out);
    fprintf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"forwards and backwards of %d stages\">\n", WIDTH,
            height(&d) + BOTTOM, p->num_stages);
    draw_rows(&d);
    for (int second = 0; second < (d.whole ? 1 : 2); second++)
        for (int i = 0; i < p->num_spans; i++)
            if (is_in(&d, &p->spans[i], second))
                draw_box(&d, &p->spans[i], second, chunks);
    draw_breaks(&d);
    draw_scale(&d);
    fputs("</svg>\n</div>\n", out);
    say_gaps(&d);
}
