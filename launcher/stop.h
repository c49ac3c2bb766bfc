/* launcher/stop.h: what ends a run before its last step: SIGINT or SIGTERM, after the step (a second one ends the
 * process at once), or a failure that can wait until the weights are saved. */
#ifndef PLAIT_LAUNCHER_STOP_H
#define PLAIT_LAUNCHER_STOP_H

#include "parallel/comm.h"

PLAIT_BEGIN_DECLS

/* Keeps both signals away from all threads that compute, now and later: a thread that does nothing else receives them.
 * The code that oneDNN generates for a matrix product has its stack pointer in the heap while it runs, and a handler's
 * frame would be written over what lies there. Once, before the first parallel region. */
PLAIT_MUST_USE plait_status plait_stop_guard(void);
/* Until then a signal ends the process at once. */
void plait_stop_install(void);
/* The signal that has come since, or 0. */
int plait_stop_requested(void);
/* A signal on any rank is one for all, and so is a failure that one rank has met and kept for later. *reason: the
 * signal's number, PLAIT_STOP_FAILURE, or 0. Collective. */
enum { PLAIT_STOP_FAILURE = 1000 };
PLAIT_MUST_USE plait_status plait_stop_agree(plait_comm *world, bool failed, int *reason);

PLAIT_END_DECLS
#endif
