#include "launcher/line_file.h"

#include <errno.h>
#include <stdio_ext.h>
#include <string.h>
#include <unistd.h>

plait_status plait_line_file_open(plait_line_file *f, const char *key, const char *path)
{
    *f = (plait_line_file){.key = key};
    snprintf(f->path, sizeof f->path, "%s", path);
    f->out = fopen(path, "w");
    if (!f->out)
        PLAIT_FAIL(IO, "%s %s: %s", key, path, strerror(errno));
    return PLAIT_OK;
}

void plait_line_file_close(plait_line_file *f)
{
    if (f->out)
        fclose(f->out);
    f->out = NULL;
}

plait_status plait_line_file_flush(plait_line_file *f)
{
    errno = 0;
    if (fflush(f->out) == 0 && !ferror(f->out)) {
        f->whole = ftello(f->out);
        return PLAIT_OK;
    }
    const int error = errno;
    __fpurge(f->out);
    const bool cut = f->whole >= 0 && ftruncate(fileno(f->out), f->whole) == 0;
    (void)cut; /* or not: a device has nothing to take back */
    plait_line_file_close(f);
    PLAIT_FAIL(IO, "%s %s: %s", f->key, f->path, error ? strerror(error) : "an earlier write failed");
}
