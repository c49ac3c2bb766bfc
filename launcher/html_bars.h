/* launcher/html_bars.h: stacked bars on one scale, each a row of name, value and bar.
 *
 * The words are HTML and only the bars are SVG, stretched over the width that is left: a narrow page has shorter bars
 * and no smaller letters.
 */
#ifndef PLAIT_LAUNCHER_HTML_BARS_H
#define PLAIT_LAUNCHER_HTML_BARS_H

#include <stdbool.h>
#include <stdio.h>

#include "core/status.h"

PLAIT_BEGIN_DECLS

typedef struct plait_html_part {
    const char *css, *name; /* as in the legend (plait_html_key) */
    double value;
} plait_html_part;

typedef struct plait_html_bars {
    FILE *out;
    double most;  /* the largest sum of a bar */
    double limit; /* 0: none */
    int rows;     /* about: many are drawn closer together */
    bool binary;  /* ticks at powers of two */
    const char *(*say)(double value);
    double end, step; /* of the scale; set by begin */
} plait_html_bars;

void plait_html_bars_begin(plait_html_bars *b);
/* note: beside the name, small. value: at the end, small after the first '|'. Parts of 0 are not drawn. */
void plait_html_bars_row(const plait_html_bars *b, const char *name, const char *note, const char *value,
                         const plait_html_part *parts, int num);
/* In the place of so many rows. */
void plait_html_bars_gap(const plait_html_bars *b, int left_out);
void plait_html_bars_end(const plait_html_bars *b);

/* Whether item i of num is drawn where at most `most` are: the first and the last ones. */
bool plait_html_is_drawn(int i, int num, int most);

/* 1, 2 or 5 times a power of ten, or a power of two: the least such that `most` is at most `ticks` of it. */
double plait_html_tick(double most, int ticks, bool binary);

PLAIT_END_DECLS
#endif
