/* parallel/device.h: which of the host's and the GPUs' backends a run takes. */
#ifndef PLAIT_PARALLEL_DEVICE_H
#define PLAIT_PARALLEL_DEVICE_H

#include "parallel/comm.h"

PLAIT_BEGIN_DECLS

/* What the nodes of a run have: a GPU each; a GPU for each of their ranks. */
typedef struct plait_device_room {
    bool some, each;
} plait_device_room;

/* Of the node of this process alone, for `ranks` ranks on it; of all nodes of a world (collective). */
plait_device_room plait_device_room_here(int ranks);
PLAIT_MUST_USE plait_status plait_device_room_of(const plait_world *w, plait_device_room *out);

/* Settles device.backend and comm.backend. PLAIT_UNSUPPORTED: GPUs are asked for and missing, or NCCL is and ranks
 * share one. */
PLAIT_MUST_USE plait_status plait_device_settle(plait_config *cfg, plait_device_room room);

PLAIT_END_DECLS
#endif
