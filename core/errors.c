#include "core/errors.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void plait_errors_add(plait_errors *e, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    int wanted = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    size_t len = wanted < 0 ? 0 : (size_t)wanted < sizeof line ? (size_t)wanted : sizeof line - 1;
    e->count++;
    if (e->len + len + 2 > sizeof e->text) {
        e->hidden++;
        return;
    }
    if (e->len > 0)
        e->text[e->len++] = '\n';
    memcpy(e->text + e->len, line, len + 1);
    e->len += len;
}

plait_status plait_errors_status(plait_errors *e)
{
    if (e->count == 0)
        return PLAIT_OK;
    if (e->hidden > 0)
        PLAIT_FAIL(USAGE, "%s\n... and %d more", e->text, e->hidden);
    PLAIT_FAIL(USAGE, "%s", e->text);
}
