#include "core/json_out.h"

#include <math.h>

#include "core/utf8.h"

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

void plait_json_string(FILE *out, const char *s)
{
    fputc('"', out);
    for (const char *p = s; *p != '\0';) {
        int length = plait_utf8_length(p);
        if (length == 0) {
            fputs("\\ufffd", out);
            length = 1;
        } else if (*p == '"' || *p == '\\') {
            fprintf(out, "\\%c", *p);
        } else if ((unsigned char)*p < 0x20) {
            fprintf(out, "\\u%04x", (unsigned char)*p);
        } else {
            fwrite(p, 1, (size_t)length, out);
        }
        p += length;
    }
    fputc('"', out);
}
