/* launcher/stop.h: SIGINT and SIGTERM ask for an end after the step. A second one ends the process at once. */
#ifndef PLAIT_LAUNCHER_STOP_H
#define PLAIT_LAUNCHER_STOP_H

#include "parallel/comm.h"

PLAIT_BEGIN_DECLS

void plait_stop_install(void);
/* The signal's number, 0: none so far. */
int plait_stop_requested(void);
/* A signal on any rank is one for all: *signal is its number or 0. Collective. */
PLAIT_MUST_USE plait_status plait_stop_agree(plait_comm *world, const plait_exec *ex, int *signal);

PLAIT_END_DECLS
#endif
