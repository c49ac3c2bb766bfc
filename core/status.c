#include "core/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Long enough for every error of a configuration file at once. */
#define TEXT_BYTES  16384
#define TRACE_BYTES 2048

static _Thread_local struct {
    plait_status status;
    char text[TEXT_BYTES];
    char trace[TRACE_BYTES];
} record;

const char *plait_status_text(plait_status st)
{
#define TEXT_OF(name, exit_code, text) [PLAIT_##name] = (text),
    static const char *const texts[] = {PLAIT_STATUS_LIST(TEXT_OF)};
#undef TEXT_OF
    return (unsigned)st < PLAIT_STATUS_COUNT ? texts[st] : "unknown status";
}

int plait_status_exit_code(plait_status st)
{
#define CODE_OF(name, exit_code, text) [PLAIT_##name] = (exit_code),
    static const int codes[] = {PLAIT_STATUS_LIST(CODE_OF)};
#undef CODE_OF
    return (unsigned)st < PLAIT_STATUS_COUNT ? codes[st] : 1;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

plait_status plait_error_set(plait_status st, const char *file, int line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(record.text, sizeof record.text, format, args);
    va_end(args);
    snprintf(record.trace, sizeof record.trace, "%s:%d", base_name(file), line);
    record.status = st;
    return st;
}

void plait_error_trace(const char *file, int line, const char *function)
{
    size_t used = strlen(record.trace);
    if (used + 1 < sizeof record.trace)
        snprintf(record.trace + used, sizeof record.trace - used, " < %s:%d (%s)", base_name(file), line, function);
}

void plait_error_prefix(const char *format, ...)
{
    char prefix[256];
    va_list args;
    va_start(args, format);
    vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    size_t n = strlen(prefix), old = strlen(record.text);
    if (old > TEXT_BYTES - 1 - n)
        old = TEXT_BYTES - 1 - n;
    memmove(record.text + n, record.text, old);
    record.text[n + old] = '\0';
    memcpy(record.text, prefix, n);
}

const char *plait_error_text(void)
{
    return record.text;
}

const char *plait_error_trace_text(void)
{
    return record.trace;
}

plait_status plait_error_status(void)
{
    return record.status;
}
