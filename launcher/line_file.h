/* launcher/line_file.h: a text file that grows with the run, of which a run that is killed leaves whole lines.
 */
#ifndef PLAIT_LAUNCHER_LINE_FILE_H
#define PLAIT_LAUNCHER_LINE_FILE_H

#include <stdio.h>
#include <sys/types.h>

#include "core/config.h"

PLAIT_BEGIN_DECLS

typedef struct plait_line_file {
    FILE *out;       /* NULL: none, or not rank 0, or writing has failed */
    off_t whole;     /* bytes that are known to be there */
    const char *key; /* of the configuration, for messages */
    char path[PLAIT_PATH_MAX];
} plait_line_file;

/* Empties the file or makes it; an unwritable one is refused. */
PLAIT_MUST_USE plait_status plait_line_file_open(plait_line_file *f, const char *key, const char *path);
/* Closing a zeroed one is fine. */
void plait_line_file_close(plait_line_file *f);
/* What has been printed since the last flush ends with a line; it is written now. After a failure what there is of it
 * is taken back, and the file is closed. */
PLAIT_MUST_USE plait_status plait_line_file_flush(plait_line_file *f);

PLAIT_END_DECLS
#endif
