/* launcher/knobs.h: what would make a plan smaller. Every answer is a plan of its own, none is a guess.
 */
#ifndef PLAIT_LAUNCHER_KNOBS_H
#define PLAIT_LAUNCHER_KNOBS_H

#include <stdio.h>

#include "launcher/planned.h"

PLAIT_BEGIN_DECLS

/* Plans again with one key changed at a time, on the same ranks and with the same global batch: recomputation, ZeRO
 * stages, sequence parallelism, micro-batch, prefetch, schedule, type, degrees. Prints what each saves on the largest
 * rank, with a machine also what it does to the time of a step, and the keys that are not possible here with the
 * reason; then which of them together, the best one first, make it fit. `plan` is of `request`. */
PLAIT_MUST_USE plait_status plait_knobs_print(const plait_planned *plan, const plait_plan_request *request, FILE *out);

PLAIT_END_DECLS
#endif
