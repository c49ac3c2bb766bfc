/* launcher/html.h: a page that can be read anywhere: one file of HTML, nothing from elsewhere, no script.
 *
 * Text goes through plait_html_text or plait_html_format, which escape it; whoever prints markup knows it by heart. The
 * charts are in launcher/html_bars.h and launcher/html_timeline.h.
 */
#ifndef PLAIT_LAUNCHER_HTML_H
#define PLAIT_LAUNCHER_HTML_H

#include <stdint.h>
#include <stdio.h>

#include "core/status.h"

PLAIT_BEGIN_DECLS

/* Also right inside quoted attributes. Bytes that are not UTF-8 and control characters, which HTML does not have,
 * become U+FFFD. */
void plait_html_text(FILE *out, const char *text);
/* As printf, up to 1000 bytes, then escaped. */
void plait_html_format(FILE *out, const char *format, ...) PLAIT_PRINTF(2, 3);
/* A paragraph a line of the text. `css`: its class. */
void plait_html_lines(FILE *out, const char *text, const char *css);
/* ... of what `print` prints. */
void plait_html_printed(FILE *out, const char *css, void (*print)(const void *what, FILE *out), const void *what);

/* `kind` stands above the title. */
void plait_html_begin(FILE *out, const char *kind, const char *title);
void plait_html_end(FILE *out);
void plait_html_section_begin(FILE *out, const char *heading);
void plait_html_section_end(FILE *out);
void plait_html_heading(FILE *out, const char *text); /* within a section */

/* A number that the page is read for: a row of them between begin and end. */
void plait_html_facts_begin(FILE *out);
void plait_html_fact(FILE *out, const char *name, const char *format, ...) PLAIT_PRINTF(3, 4);
void plait_html_facts_end(FILE *out);

/* What the colours of a chart mean. css: a class of the page's style, also of the chart's parts. */
typedef struct plait_html_key {
    const char *css, *name;
} plait_html_key;
void plait_html_legend(FILE *out, const plait_html_key *keys, int num);

/* A table that scrolls in a box of its own. heads: `num` of them, "<" first: a column of text, else of numbers. */
void plait_html_table_begin(FILE *out, const char *label, const char *const *heads, int num);
void plait_html_table_end(FILE *out);
void plait_html_row_begin(FILE *out, const char *css);
void plait_html_row_end(FILE *out);
void plait_html_cell(FILE *out, const char *format, ...) PLAIT_PRINTF(2, 3);      /* a number */
void plait_html_cell_text(FILE *out, const char *format, ...) PLAIT_PRINTF(2, 3); /* text on one line */
void plait_html_cell_sentence(FILE *out, const char *text);

/* "50.2 GiB", "12.3 ms" into a static ring of eight: three digits, the unit that suits the number. */
const char *plait_short_bytes(double bytes);
const char *plait_short_seconds(double seconds);
/* "140,307", "0.0123" */
const char *plait_short_count(double count);

PLAIT_END_DECLS
#endif
