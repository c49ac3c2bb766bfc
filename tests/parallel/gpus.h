// tests/parallel/gpus.h: what this machine's GPUs, or the emulated ones, can take of a test.
#ifndef PLAIT_TESTS_GPUS_H
#define PLAIT_TESTS_GPUS_H

#include "mpi_world.h"
#include "parallel/device.h"

// Whether tensors of all ranks of the test's world can go that way: NCCL wants a GPU for each.
inline bool gpus_take(plait_comm_choice carrier)
{
    const plait_device_room room = plait_device_room_here(test_world.local_size);
    return carrier == PLAIT_COMM_NCCL ? room.each : room.some;
}

#endif
