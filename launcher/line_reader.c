#include "launcher/line_reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/file.h"

plait_status plait_line_reader_open(plait_line_reader *r, const char *path)
{
    int fd;
    int64_t size;
    *r = (plait_line_reader){.path = path};
    PLAIT_TRY(plait_file_open(path, &fd, &size));
    r->in = fdopen(fd, "r");
    if (!r->in) {
        close(fd);
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory to read %s", path);
    }
    return PLAIT_OK;
}

void plait_line_reader_close(plait_line_reader *r)
{
    if (r->in)
        fclose(r->in);
    free(r->text);
    *r = (plait_line_reader){0};
}

plait_status plait_line_reader_next(plait_line_reader *r, size_t *length)
{
    errno = 0;
    const ssize_t n = getline(&r->text, &r->room, r->in);
    if (n < 0 && errno != 0)
        PLAIT_FAIL(IO, "read %s: %s", r->path, strerror(errno));
    *length = n > 0 ? (size_t)n : 0;
    r->number += n > 0;
    return PLAIT_OK;
}

void plait_line_reader_print_missing(const plait_line_reader *r, FILE *out)
{
    if (r->cut)
        fprintf(out, "%s: line %lld is cut off and was left out\n", r->path, (long long)r->number);
    else if (!r->ended)
        fprintf(out, "%s: the last line is missing: the run did not come to its end, or the file was cut\n", r->path);
}
