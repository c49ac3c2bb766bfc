/* launcher/bench_ops.h: rates of all operations of the table of kernels, on this rank beside the others. */
#ifndef PLAIT_LAUNCHER_BENCH_OPS_H
#define PLAIT_LAUNCHER_BENCH_OPS_H

#include "launcher/bench.h"

PLAIT_BEGIN_DECLS

/* Puts the rates of every operation of these types, and launch_seconds, into b->machine; says on rank 0 what it does.
 * Collective; every rank returns the same status. */
PLAIT_MUST_USE plait_status plait_bench_ops(plait_bench *b, const plait_dtype *dtypes, int num);

PLAIT_END_DECLS
#endif
