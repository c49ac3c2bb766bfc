/* launcher/output.h: standard output as a file that can fail like others. */
#ifndef PLAIT_LAUNCHER_OUTPUT_H
#define PLAIT_LAUNCHER_OUTPUT_H

#include <stdio.h>

#include "core/status.h"

PLAIT_BEGIN_DECLS

/* Before anything is opened: a stream that the program was started without (>&-) must not become the number of some
 * socket or file. What is written to standard output then fails. */
void plait_output_guard(void);
/* What was printed may still be on its way, or lost already. */
PLAIT_MUST_USE plait_status plait_output_flush(void);
/* Text with names in it that others have chosen: control characters but ends of lines and tabs are shown as \x1b, so
 * that no terminal obeys them. */
void plait_output_text(FILE *out, const char *text);

PLAIT_END_DECLS
#endif
