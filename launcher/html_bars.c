#include "launcher/html_bars.h"

#include <math.h>
#include <string.h>

#include "launcher/html.h"

enum { WIDTH = 1000, HEIGHT = 20, INSET = 4, TICKS = 5, CLOSE = 20 };

bool plait_html_is_drawn(int i, int num, int most)
{
    return num <= most || i < (most + 1) / 2 || i >= num - most / 2;
}

double plait_html_tick(double most, int ticks, bool binary)
{
    const double least = most / ticks;
    if (!(least > 0))
        return 1;
    if (binary)
        return exp2(ceil(log2(least) - 1e-9));
    const double ten = pow(10, floor(log10(least) + 1e-9)), times = least / ten - 1e-9;
    return ten * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
}

static double at(const plait_html_bars *b, double value)
{
    return WIDTH * value / b->end;
}

/* A limit far beyond all bars would make them invisible. */
static bool limit_is_drawn(const plait_html_bars *b)
{
    return b->limit > 0 && b->limit <= b->end;
}

/* "first" and "last": words that would reach over the border otherwise. */
static const char *place(double percent)
{
    return percent < 8 ? "first" : percent > 92 ? "last" : "middle";
}

/* The row of a scale: no name and no value. */
static void begin_scale(const plait_html_bars *b)
{
    fputs("<div class=\"name\"></div><div class=\"value\"></div><div class=\"scale\" aria-hidden=\"true\">", b->out);
}

void plait_html_bars_begin(plait_html_bars *b)
{
    const double beyond = 4 * b->most;
    b->end = b->limit > b->most && b->limit <= beyond ? b->limit : b->most;
    b->end = b->end > 0 ? 1.01 * b->end : 1;
    b->step = plait_html_tick(b->end, TICKS, b->binary);
    fprintf(b->out, "<div class=\"bars%s\">\n", b->rows > CLOSE ? " dense" : "");
    if (b->limit <= 0)
        return;
    const double percent = limit_is_drawn(b) ? 100 * b->limit / b->end : 100;
    begin_scale(b);
    fprintf(b->out, "<span class=\"bad %s\" style=\"left:%.2f%%\">", place(percent), percent);
    plait_html_format(b->out, "limit %s%s", b->say(b->limit), limit_is_drawn(b) ? "" : ", beyond the right border");
    fputs("</span></div>\n", b->out);
}

static void print_small(FILE *out, const char *text)
{
    if (text[0] == '\0')
        return;
    fputs(" <small>", out);
    plait_html_text(out, text);
    fputs("</small>", out);
}

static void print_value(FILE *out, const char *value)
{
    const size_t length = strcspn(value, "|");
    plait_html_format(out, "%.*s", (int)length, value);
    print_small(out, value + length + (value[length] == '|'));
}

static void print_lines(const plait_html_bars *b)
{
    for (int i = 0; i * b->step <= b->end; i++)
        fprintf(b->out, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"0\" y2=\"%d\"/>", at(b, i * b->step), at(b, i * b->step),
                HEIGHT);
}

void plait_html_bars_row(const plait_html_bars *b, const char *name, const char *note, const char *value,
                         const plait_html_part *parts, int num)
{
    double sum = 0;
    fputs("<div class=\"name\">", b->out);
    plait_html_text(b->out, name);
    print_small(b->out, note);
    fputs("</div><div class=\"value\">", b->out);
    print_value(b->out, value);
    fprintf(b->out, "</div><svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"", WIDTH,
            HEIGHT);
    for (int i = 0; i < num; i++)
        if (parts[i].value > 0)
            plait_html_format(b->out, "%s %s; ", parts[i].name, b->say(parts[i].value));
    fputs("\">", b->out);
    print_lines(b);
    for (int i = 0; i < num; i++) {
        if (!(parts[i].value > 0))
            continue;
        fprintf(b->out, "<rect class=\"%s\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\"><title>", parts[i].css,
                at(b, sum), INSET, at(b, parts[i].value), HEIGHT - 2 * INSET);
        plait_html_format(b->out, "%s: %s", parts[i].name, b->say(parts[i].value));
        fputs("</title></rect>", b->out);
        sum += parts[i].value;
    }
    if (limit_is_drawn(b))
        fprintf(b->out, "<line class=\"limit\" x1=\"%.1f\" x2=\"%.1f\" y1=\"0\" y2=\"%d\"/>", at(b, b->limit),
                at(b, b->limit), HEIGHT);
    fputs("</svg>\n", b->out);
}

void plait_html_bars_gap(const plait_html_bars *b, int left_out)
{
    fprintf(b->out, "<div class=\"gap\">%d more between these</div>\n", left_out);
}

void plait_html_bars_end(const plait_html_bars *b)
{
    begin_scale(b);
    for (int i = 0; i * b->step <= b->end; i++) {
        const double percent = 100 * i * b->step / b->end;
        fprintf(b->out, "<span class=\"%s\" style=\"left:%.2f%%\">", place(percent), percent);
        plait_html_text(b->out, i == 0 ? "0" : b->say(i * b->step));
        fputs("</span>", b->out);
    }
    fputs("</div>\n</div>\n", b->out);
}
