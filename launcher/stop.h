/* launcher/stop.h: SIGINT and SIGTERM ask for an end after the step. A second one ends the process at once. */
#ifndef PLAIT_LAUNCHER_STOP_H
#define PLAIT_LAUNCHER_STOP_H

#include "core/status.h"

PLAIT_BEGIN_DECLS

void plait_stop_install(void);
/* The signal's number, 0: none so far. */
int plait_stop_requested(void);

PLAIT_END_DECLS
#endif
