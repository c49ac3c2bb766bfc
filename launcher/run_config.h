/* launcher/run_config.h: from arguments to a resolved configuration that all ranks share. */
#ifndef PLAIT_LAUNCHER_RUN_CONFIG_H
#define PLAIT_LAUNCHER_RUN_CONFIG_H

#include "core/config.h"
#include "parallel/comm.h"

PLAIT_BEGIN_DECLS

/* Every rank reads its own copy; ranks whose copies differ are refused with the first key that does. Then: resolved for
 * the world, threads settled, cores bound, time-out set. Collective; every rank returns the same status. */
PLAIT_MUST_USE plait_status plait_run_config(plait_world *world, plait_config *cfg, const char *path,
                                             const char *const *overrides, int num_overrides);

/* device.threads if it is not PLAIT_AUTO, else OMP_NUM_THREADS, else the cores of the node shared by its ranks; the
 * threads of this process are then so many, on cores of their own where they are enough. Collective; every rank returns
 * the same status. */
PLAIT_MUST_USE plait_status plait_run_threads(plait_world *world, int64_t *threads);

/* This rank's lines against rank 0's: PLAIT_USAGE "the ranks' WHAT differ: ..." with the first line that does. mine
 * NULL: there was no memory to make them. Collective; every rank returns the same status. */
PLAIT_MUST_USE plait_status plait_run_compare(plait_world *world, const char *what, const char *mine);

PLAIT_END_DECLS
#endif
