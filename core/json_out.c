#include "core/json_out.h"

#include <math.h>

void plait_json_number(FILE *out, double x)
{
    if (isfinite(x))
        fprintf(out, "%.17g", x);
    else
        fputs("null", out);
}

void plait_json_hex(FILE *out, double x)
{
    if (isnan(x)) /* the sign of a NaN says nothing */
        fputs("\"nan\"", out);
    else
        fprintf(out, "\"%a\"", x);
}

/* Bytes of the character at s, 0 if it is not one: neither overlong forms nor surrogates nor beyond U+10FFFF. A NUL is
 * no continuation byte, so nothing is read past the end. */
static int utf8_length(const unsigned char *s)
{
    static const struct {
        unsigned char first, last, low, high; /* range of the first byte, range of the second */
        int length;
    } rows[] = {
        {0x00, 0x7f, 0x00, 0x00, 1}, {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        if (s[0] < rows[r].first || s[0] > rows[r].last)
            continue;
        for (int i = 1; i < rows[r].length; i++) {
            unsigned char low = i == 1 ? rows[r].low : 0x80, high = i == 1 ? rows[r].high : 0xbf;
            if (s[i] < low || s[i] > high)
                return 0;
        }
        return rows[r].length;
    }
    return 0;
}

void plait_json_string(FILE *out, const char *s)
{
    fputc('"', out);
    for (const unsigned char *p = (const unsigned char *)s; *p != '\0';) {
        int length = utf8_length(p);
        if (length == 0) {
            fputs("\\ufffd", out);
            length = 1;
        } else if (*p == '"' || *p == '\\') {
            fprintf(out, "\\%c", *p);
        } else if (*p < 0x20) {
            fprintf(out, "\\u%04x", *p);
        } else {
            fwrite(p, 1, (size_t)length, out);
        }
        p += length;
    }
    fputc('"', out);
}
