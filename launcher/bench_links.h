/* launcher/bench_links.h: times of communication among ranks of this job, by kind, size of group and bytes. */
#ifndef PLAIT_LAUNCHER_BENCH_LINKS_H
#define PLAIT_LAUNCHER_BENCH_LINKS_H

#include "launcher/bench.h"

PLAIT_BEGIN_DECLS

/* Puts tables for groups of 2, 4, ... neighbours, and of all, into b->machine, all groups at work at the same time.
 * Messages and everything that only moves in fp32, sums in each of these types too. Nothing on one rank. Collective;
 * every rank returns the same status. */
PLAIT_MUST_USE plait_status plait_bench_links(plait_bench *b, const plait_dtype *dtypes, int num);

PLAIT_END_DECLS
#endif
