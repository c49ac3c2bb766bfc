#include <stdlib.h>

#include "kernels/backend.h"
#include "launcher/bench.h"
#include "launcher/progress.h"

plait_status plait_bench_slowest(plait_bench *b, double *seconds)
{
    if (b->world->size == 1)
        return PLAIT_OK;
    plait_comm_op op = plait_comm_make(PLAIT_COMM_ALL_REDUCE, seconds, seconds, 1, PLAIT_FP64);
    op.reduction = PLAIT_MAX;
    return plait_comm_run(b->world->comm, &op, NULL);
}

/* A batch is long enough that ranks that share a core have all had their turn in it. */
static double batch_seconds(const plait_bench *b)
{
    return (b->quick ? 0.5e-3 : 6e-3) / b->share;
}

/* Long calls are their own average. */
static int batches_for(const plait_bench *b, double seconds)
{
    return b->quick || seconds > 10 * batch_seconds(b) ? 3 : 5;
}

static int64_t calls_for(const plait_bench *b, double seconds)
{
    const double calls = batch_seconds(b) / seconds;
    return calls < 1 ? 1 : calls > 1e6 ? (int64_t)1e6 : (int64_t)calls + 1;
}

double plait_bench_time_cost(const plait_bench *b, double seconds)
{
    return seconds * (2 + (double)calls_for(b, seconds) * batches_for(b, seconds));
}

static plait_status run_calls(const plait_bench *b, plait_status (*call)(void *), void *self, int64_t calls,
                              double *seconds)
{
    const double started = plait_seconds();
    for (int64_t i = 0; i < calls; i++)
        PLAIT_TRY(call(self));
    if (b->ex)
        PLAIT_TRY(plait_finish(b->ex));
    *seconds = (plait_seconds() - started) / (double)calls;
    return PLAIT_OK;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static plait_status median_of_batches(const plait_bench *b, plait_status (*call)(void *), void *self, int64_t calls,
                                      int batches, double *seconds)
{
    double times[5];
    for (int i = 0; i < batches; i++)
        PLAIT_TRY(run_calls(b, call, self, calls, &times[i]));
    qsort(times, (size_t)batches, sizeof *times, ascending);
    *seconds = times[batches / 2];
    return PLAIT_OK;
}

plait_status plait_bench_time(plait_bench *b, plait_status (*call)(void *self), void *self, double *seconds)
{
    plait_comm *world = b->world->comm;
    double once = 0;
    plait_status st = run_calls(b, call, self, 1, &once);
    if (st == PLAIT_OK)
        st = run_calls(b, call, self, 1, &once);
    PLAIT_TRY(plait_comm_agree(world, st));
    PLAIT_TRY(plait_bench_slowest(b, &once)); /* all make as many calls, and begin together */
    if (once <= 0)
        once = 1e-9; /* below the clock */
    st = median_of_batches(b, call, self, calls_for(b, once), batches_for(b, once), seconds);
    PLAIT_TRY(plait_comm_agree(world, st));
    return plait_bench_slowest(b, seconds);
}
