/* core/resident.h: what the kernel says this process holds, to set beside the ledger. */
#ifndef PLAIT_CORE_RESIDENT_H
#define PLAIT_CORE_RESIDENT_H

#include "core/status.h"

#include <stddef.h>

PLAIT_BEGIN_DECLS

/* Bytes in memory, of the program, its libraries and everything allocated; pages shared with other processes count in
 * each that has touched them. 0 where /proc/self does not tell. */
typedef struct plait_resident {
    size_t now, peak; /* VmRSS, VmHWM: the peak is that of the whole life of the process */
    /* Of `now`, what shared memory counts beyond this process's share of it (RssShmem less Pss_Shmem): in windows that
     * all ranks of a group read alike, the parts of the others. */
    size_t others;
} plait_resident;

plait_resident plait_resident_memory(void);

PLAIT_END_DECLS
#endif
