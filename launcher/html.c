#include "launcher/html.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"
#include "launcher/banner.h"
#include "launcher/html_style.h"

enum { FORMATTED = 1001 };

/* ---- text ---- */

void plait_html_text(FILE *out, const char *text)
{
    for (const char *p = text; *p != '\0';) {
        const int length = plait_utf8_length(p);
        const unsigned char first = (unsigned char)p[0], second = length == 2 ? (unsigned char)p[1] : 0;
        const bool control =
            (first < 0x20 && first != '\t' && first != '\n') || first == 0x7f || (first == 0xc2 && second < 0xa0);
        if (*p == '&')
            fputs("&amp;", out);
        else if (*p == '<')
            fputs("&lt;", out);
        else if (*p == '>')
            fputs("&gt;", out);
        else if (*p == '"')
            fputs("&quot;", out);
        else if (*p == '\'')
            fputs("&#39;", out);
        else if (length == 0 || control)
            fputs("\xef\xbf\xbd", out);
        else
            fwrite(p, 1, (size_t)length, out);
        p += length > 0 ? length : 1;
    }
}

static void format_text(FILE *out, const char *format, va_list args) __attribute__((format(printf, 2, 0)));

static void format_text(FILE *out, const char *format, va_list args)
{
    char text[FORMATTED];
    vsnprintf(text, sizeof text, format, args);
    plait_html_text(out, text);
}

void plait_html_format(FILE *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    format_text(out, format, args);
    va_end(args);
}

void plait_html_lines(FILE *out, const char *text, const char *css)
{
    while (*text != '\0') {
        const size_t length = strcspn(text, "\n");
        char *line = strndup(text, length);
        if (line && length > 0) {
            fprintf(out, "<p class=\"%s\">", css);
            plait_html_text(out, line);
            fputs("</p>\n", out);
        }
        free(line);
        text += length + (text[length] == '\n');
    }
}

void plait_html_printed(FILE *out, const char *css, void (*print)(const void *what, FILE *out), const void *what)
{
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);
    if (!memory)
        return;
    print(what, memory);
    if (fclose(memory) == 0)
        plait_html_lines(out, text, css);
    free(text);
}

/* ---- the page ---- */

void plait_html_begin(FILE *out, const char *kind, const char *title)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
          out);
    plait_html_format(out, "%s: ", kind);
    plait_html_text(out, title);
    fputs("</title>\n<style>\n", out);
    plait_html_style(out);
    fputs("</style>\n</head>\n<body>\n<main>\n<header>\n<p class=\"kind\">", out);
    plait_html_text(out, kind);
    fputs("</p>\n<h1>", out);
    plait_html_text(out, title);
    fputs("</h1>\n</header>\n", out);
}

void plait_html_end(FILE *out)
{
    fputs("</main>\n</body>\n</html>\n", out);
}

void plait_html_section_begin(FILE *out, const char *heading)
{
    fputs("<section>\n<h2>", out);
    plait_html_text(out, heading);
    fputs("</h2>\n", out);
}

void plait_html_section_end(FILE *out)
{
    fputs("</section>\n", out);
}

void plait_html_heading(FILE *out, const char *text)
{
    fputs("<h3>", out);
    plait_html_text(out, text);
    fputs("</h3>\n", out);
}

/* ---- facts and legends ---- */

void plait_html_facts_begin(FILE *out)
{
    fputs("<dl class=\"facts\">\n", out);
}

void plait_html_fact(FILE *out, const char *name, const char *format, ...)
{
    va_list args;
    fputs("<div><dt>", out);
    plait_html_text(out, name);
    fputs("</dt><dd>", out);
    va_start(args, format);
    format_text(out, format, args);
    va_end(args);
    fputs("</dd></div>\n", out);
}

void plait_html_facts_end(FILE *out)
{
    fputs("</dl>\n", out);
}

void plait_html_legend(FILE *out, const plait_html_key *keys, int num)
{
    fputs("<ul class=\"legend\">\n", out);
    for (int i = 0; i < num; i++) {
        fprintf(out, "<li><span class=\"swatch %s\"></span>", keys[i].css);
        plait_html_text(out, keys[i].name);
        fputs("</li>\n", out);
    }
    fputs("</ul>\n", out);
}

/* ---- tables ---- */

void plait_html_table_begin(FILE *out, const char *label, const char *const *heads, int num)
{
    fputs("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"", out);
    plait_html_text(out, label);
    fputs("\">\n<table>\n<thead><tr>", out);
    for (int i = 0; i < num; i++) {
        const bool text = heads[i][0] == '<';
        fputs(text ? "<th scope=\"col\" class=\"text\">" : "<th scope=\"col\">", out);
        plait_html_text(out, heads[i] + text);
        fputs("</th>", out);
    }
    fputs("</tr></thead>\n<tbody>\n", out);
}

void plait_html_table_end(FILE *out)
{
    fputs("</tbody>\n</table>\n</div>\n", out);
}

void plait_html_row_begin(FILE *out, const char *css)
{
    fprintf(out, "<tr class=\"%s\">", css);
}

void plait_html_row_end(FILE *out)
{
    fputs("</tr>\n", out);
}

void plait_html_cell(FILE *out, const char *format, ...)
{
    va_list args;
    fputs("<td>", out);
    va_start(args, format);
    format_text(out, format, args);
    va_end(args);
    fputs("</td>", out);
}

void plait_html_cell_text(FILE *out, const char *format, ...)
{
    va_list args;
    fputs("<td class=\"text\">", out);
    va_start(args, format);
    format_text(out, format, args);
    va_end(args);
    fputs("</td>", out);
}

void plait_html_cell_sentence(FILE *out, const char *text)
{
    fputs("<td class=\"text wrap\">", out);
    plait_html_text(out, text);
    fputs("</td>", out);
}

/* ---- numbers ---- */

/* Room for one more number. */
static char *next_short(size_t *size)
{
    static _Thread_local char ring[8][32];
    static _Thread_local unsigned next;
    *size = sizeof ring[0];
    return ring[next = (next + 1) % 8];
}

typedef struct unit {
    double size;
    const char *name;
} unit;

/* In the largest unit that it reaches one of; units ascend. */
static const char *shortened(double x, const unit *units, int num)
{
    size_t size;
    char *out = next_short(&size);
    int u = 0;
    while (u + 1 < num && x >= 0.9995 * units[u + 1].size) /* 999.5 of one would be printed as 1000 */
        u++;
    const double y = x / units[u].size;
    snprintf(out, size, y < 99.95 ? "%.3g %s" : "%.0f %s", y, units[u].name);
    return out;
}

const char *plait_short_bytes(double bytes)
{
    static const unit units[] = {{1, "bytes"},         {1024., "KiB"},          {1048576., "MiB"},
                                 {1073741824., "GiB"}, {1099511627776., "TiB"}, {1125899906842624., "PiB"}};
    return shortened(bytes, units, sizeof units / sizeof *units);
}

const char *plait_short_seconds(double seconds)
{
    static const unit units[] = {{1e-6, "\xc2\xb5s"}, {1e-3, "ms"}, {1, "s"}};
    return seconds == 0 ? "0" : shortened(seconds, units, sizeof units / sizeof *units);
}

const char *plait_short_count(double count)
{
    if (count >= 1000 && count < 1e18)
        return plait_grouped((int64_t)(count + 0.5));
    size_t size;
    char *out = next_short(&size);
    snprintf(out, size, "%.3g", count);
    return out;
}
