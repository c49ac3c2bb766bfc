#include "core/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LINE_BYTES 20480

static char rank_prefix[64];

void plait_log_set_prefix(const char *prefix)
{
    snprintf(rank_prefix, sizeof rank_prefix, "%s", prefix);
}

const char *plait_log_prefix(void)
{
    return rank_prefix;
}

void plait_log(plait_log_level level, const char *format, ...)
{
    static const char *const words[] = {"error: ", "warning: ", ""};
    char line[LINE_BYTES];
    int used = snprintf(line, sizeof line - 1, "%s%s", rank_prefix, words[level]);
    va_list args;
    va_start(args, format);
    vsnprintf(line + used, sizeof line - 1 - (size_t)used, format, args);
    va_end(args);

    size_t len = strlen(line);
    line[len] = '\n';
    fwrite(line, 1, len + 1, stderr); /* stderr is unbuffered: one write */
    fflush(stderr);
}
