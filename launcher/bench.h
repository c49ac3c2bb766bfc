/* launcher/bench.h: what plait bench measures with: ranks that do the same at the same time, and one clock.
 *
 * A measurement is what a training step would see: the wall clock, all ranks of the node at work, the slowest counts.
 */
#ifndef PLAIT_LAUNCHER_BENCH_H
#define PLAIT_LAUNCHER_BENCH_H

#include "kernels/kernels.h"
#include "parallel/machine.h"

PLAIT_BEGIN_DECLS

typedef struct plait_bench {
    plait_world *world;    /* its communicator has staging for what plait_bench_slowest sends */
    int threads;           /* of each rank */
    int ranks;             /* of each node */
    double share;          /* of the cores that a thread has: 1, or less where there are more threads than cores */
    bool quick;            /* two points an axis, little time */
    const plait_exec *ex;  /* whose work has to be done before the clock is read; NULL: calls do theirs at once */
    plait_machine machine; /* what has been measured; tables are the same on every rank */
} plait_bench;

/* Types to compute in, each once. */
typedef struct plait_bench_dtypes {
    plait_dtype all[3];
    int num;
} plait_bench_dtypes;

extern const plait_bench_dtypes plait_bench_dtypes_all;
/* "fp32,bf16". */
PLAIT_MUST_USE plait_status plait_bench_dtypes_parse(const char *list, plait_bench_dtypes *out);

/* The largest of the ranks' numbers. Collective: nobody returns before all have called. */
PLAIT_MUST_USE plait_status plait_bench_slowest(plait_bench *b, double *seconds);
/* Seconds of a call on the slowest rank: the median over batches of calls, each of some milliseconds. The first call
 * warms up. Collective; every rank returns the same status. */
PLAIT_MUST_USE plait_status plait_bench_time(plait_bench *b, plait_status (*call)(void *self), void *self,
                                             double *seconds);
/* About how long plait_bench_time takes for a call of `seconds`. */
double plait_bench_time_cost(const plait_bench *b, double seconds);

PLAIT_END_DECLS
#endif
