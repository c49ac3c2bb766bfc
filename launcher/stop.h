/* launcher/stop.h: what ends a command early: SIGINT, SIGTERM or SIGHUP, or, in a run, a failure that can wait until
 * the weights are saved. A run ends after its step (a second signal ends the process at once); what has no steps ends
 * at once, with a sentence. */
#ifndef PLAIT_LAUNCHER_STOP_H
#define PLAIT_LAUNCHER_STOP_H

#include <stdbool.h>

#include "parallel/comm.h"

PLAIT_BEGIN_DECLS

/* Keeps these signals away from all threads that compute, now and later: a thread that does nothing else receives them.
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

/* ---- commands without steps ---- */

/* From now on a signal ends the process, or all ranks, as it would by itself (130 or 143 in a shell), but not without a
 * word: rank 0 says which it was and then `left`, what became of files ("" or "; m.yaml is as it was"). Until
 * plait_stop_install. */
void plait_stop_report(plait_world *world, const char *left);
/* While a file takes its place a signal waits (a second one does not): no half of it is left, and what is said is true.
 * Then `left` is what is said from now on. Not nested; nothing happens without plait_stop_report. */
void plait_stop_hold(void);
void plait_stop_release(const char *left);

PLAIT_END_DECLS
#endif
