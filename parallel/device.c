#include "parallel/device.h"

plait_device_room plait_device_room_here(int ranks)
{
    const int devices = plait_device_count();
    return (plait_device_room){devices > 0, devices >= ranks};
}

plait_status plait_device_room_of(const plait_world *w, plait_device_room *out)
{
    const plait_device_room here = plait_device_room_here(w->local_size);
    int64_t least;
    PLAIT_TRY(plait_comm_least(w->comm, here.some + here.each, &least));
    *out = (plait_device_room){least > 0, least > 1};
    return PLAIT_OK;
}

/* What the keys say does not keep the tensors on the host. */
static bool fits_gpu(const plait_config *cfg)
{
    return cfg->precision.dtype != PLAIT_FP64 && cfg->numerics.reduction == PLAIT_REDUCTION_FAST &&
           cfg->device.kernels == PLAIT_KERNELS_AUTO && cfg->comm.backend != PLAIT_COMM_MPI;
}

static plait_status settle_comm(plait_config *cfg, plait_device_room room)
{
    plait_comm_choice *choice = &cfg->comm.backend;
    if (cfg->device.backend == PLAIT_BACKEND_CPU) {
        if (*choice > PLAIT_COMM_MPI)
            PLAIT_FAIL(UNSUPPORTED, "comm.backend nccl and staged carry tensors of GPUs, and this run is on the host "
                                    "(device.backend auto): not every node has a GPU that this build can use");
        *choice = PLAIT_COMM_MPI;
        return PLAIT_OK;
    }
    if (*choice == PLAIT_COMM_AUTO)
        *choice = room.each ? PLAIT_COMM_NCCL : PLAIT_COMM_STAGED;
    if (*choice == PLAIT_COMM_NCCL && room.some && !room.each)
        PLAIT_FAIL(UNSUPPORTED,
                   "comm.backend nccl: a node has more ranks than GPUs, and NCCL takes one rank for each; start fewer "
                   "ranks a node, or take comm.backend staged");
    return PLAIT_OK;
}

plait_status plait_device_settle(plait_config *cfg, plait_device_room room)
{
    if (cfg->device.backend == PLAIT_BACKEND_AUTO)
        cfg->device.backend = room.some && fits_gpu(cfg) ? PLAIT_BACKEND_CUDA : PLAIT_BACKEND_CPU;
    if (cfg->precision.allow_tf32 && cfg->precision.dtype == PLAIT_FP32 && cfg->device.backend == PLAIT_BACKEND_CPU)
        PLAIT_FAIL(UNSUPPORTED, "precision.allow_tf32 is of products on GPUs, and this run is on the host "
                                "(device.backend auto): not every node has a GPU that this build can use");
    return settle_comm(cfg, room);
}
