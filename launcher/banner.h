/* launcher/banner.h: what is about to run: the grid of ranks, nodes, every group, the schedule, parameters and bytes.
 */
#ifndef PLAIT_LAUNCHER_BANNER_H
#define PLAIT_LAUNCHER_BANNER_H

#include <stdio.h>

#include "parallel/engine.h"

PLAIT_BEGIN_DECLS

/* Rank 0 prints to `out`. resident_before: bytes that this rank's process held before the engine was made. Collective:
 * bytes and parameters are those of every rank. */
PLAIT_MUST_USE plait_status plait_banner_print(const plait_world *on, plait_engine *e, size_t resident_before,
                                               FILE *out);

/* The grid and the groups alone. Of more than 64 ranks, or groups of a kind, the rest is counted. */
void plait_banner_print_places(const plait_topology *topo, const plait_config *cfg, FILE *out);

/* "1,234,567" into a static ring of four. */
const char *plait_grouped(int64_t n);

PLAIT_END_DECLS
#endif
