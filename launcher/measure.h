/* launcher/measure.h: runs a variant for a few steps under mpiexec and sets what came of it beside its plan.
 */
#ifndef PLAIT_LAUNCHER_MEASURE_H
#define PLAIT_LAUNCHER_MEASURE_H

#include "launcher/variants.h"

PLAIT_BEGIN_DECLS

typedef struct plait_measure_options {
    const char *mpiexec; /* looked up in PATH; arguments behind it, with blanks between */
    int steps;           /* at least 3: times are the median of all but the first two */
    double limit;        /* seconds; a run that takes longer is killed */
} plait_measure_options;

/* Fills one->measured. A signal ends the run and is PLAIT_STOPPED (after plait_stop_install). A run that fails is no
 * failure of this: its exit code and last words are in `failure`. PLAIT_IO: no temporary directory, no mpiexec. */
PLAIT_MUST_USE plait_status plait_measure(plait_variant *one, const plait_plan_request *request, int ranks,
                                          const plait_measure_options *o);

PLAIT_END_DECLS
#endif
