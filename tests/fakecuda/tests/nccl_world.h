// tests/fakecuda/tests/nccl_world.h: the ranks of a test program under mpiexec, each with a device of its own.
#ifndef PLAIT_TESTS_FAKECUDA_NCCL_WORLD_H
#define PLAIT_TESTS_FAKECUDA_NCCL_WORLD_H

#include <mpi.h>
#include <nccl.h>

struct World {
    int rank = 0, size = 1;

    World()
    {
        MPI_Init(nullptr, nullptr);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &size);
        cudaSetDevice(rank);
    }
    ~World() { MPI_Finalize(); }
    World(const World &) = delete;
};

// The id that rank 0 makes, on all ranks.
inline ncclUniqueId shared_id()
{
    int rank;
    ncclUniqueId id = {};
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        ncclGetUniqueId(&id);
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    return id;
}

#endif
