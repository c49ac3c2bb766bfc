/* Cores of this process's threads. */
#define _GNU_SOURCE 1 /* CPU sets */
#include "parallel/comm.h"

#include <sched.h>

void plait_bind_cores(int local_rank, int local_size, int threads)
{
    cpu_set_t allowed, mine;
    /* A launcher may have given each rank its own cores already: then their number does not fit, and they stay. */
    if (local_size < 2 || threads < 1 || sched_getaffinity(0, sizeof allowed, &allowed) != 0 ||
        CPU_COUNT(&allowed) != local_size * threads)
        return;
    CPU_ZERO(&mine);
    int nth = 0;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed))
            continue;
        if (nth / threads == local_rank)
            CPU_SET(cpu, &mine);
        nth++;
    }
    sched_setaffinity(0, sizeof mine, &mine);
}
