/* launcher/output.h: standard output as a file that can fail like others. */
#ifndef PLAIT_LAUNCHER_OUTPUT_H
#define PLAIT_LAUNCHER_OUTPUT_H

#include "core/status.h"

PLAIT_BEGIN_DECLS

/* Before anything is opened: a stream that the program was started without (>&-) must not become the number of some
 * socket or file. What is written to standard output then fails. */
void plait_output_guard(void);
/* What was printed may still be on its way, or lost already. */
PLAIT_MUST_USE plait_status plait_output_flush(void);

PLAIT_END_DECLS
#endif
