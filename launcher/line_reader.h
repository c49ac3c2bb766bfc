/* launcher/line_reader.h: a text file that grew with a run (launcher/line_file.h), a line at a time.
 */
#ifndef PLAIT_LAUNCHER_LINE_READER_H
#define PLAIT_LAUNCHER_LINE_READER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/status.h"

PLAIT_BEGIN_DECLS

typedef struct plait_line_reader {
    const char *path; /* the caller's */
    FILE *in;
    char *text; /* of the line that was read last */
    size_t room;
    int64_t number; /* of that line, from 1 */
    bool ended;     /* the last line of a whole file was there; set by who knows it */
    bool cut;       /* line `number` is no whole one; likewise */
} plait_line_reader;

/* Closed with plait_line_reader_close also after a failure. */
PLAIT_MUST_USE plait_status plait_line_reader_open(plait_line_reader *r, const char *path);
/* Closing a zeroed one is fine. */
void plait_line_reader_close(plait_line_reader *r);
/* The next line in r->text; *length 0: there is none. */
PLAIT_MUST_USE plait_status plait_line_reader_next(plait_line_reader *r, size_t *length);
/* Says what was not there to be read; nothing of a whole file. */
void plait_line_reader_print_missing(const plait_line_reader *r, FILE *out);

PLAIT_END_DECLS
#endif
