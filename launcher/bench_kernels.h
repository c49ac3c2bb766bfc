/* launcher/bench_kernels.h: how fast each operation is at the sizes of a real model, on the host or on a GPU. */
#ifndef PLAIT_LAUNCHER_BENCH_KERNELS_H
#define PLAIT_LAUNCHER_BENCH_KERNELS_H

#include "parallel/comm.h"

PLAIT_BEGIN_DECLS

/* plait bench kernels: a table on standard output, and JSON where --json says. argv[0] is "kernels". One rank. */
PLAIT_MUST_USE plait_status plait_bench_kernels(plait_world *world, int argc, char **argv);

PLAIT_END_DECLS
#endif
