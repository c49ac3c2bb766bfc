// The communicator of MPI that NCCL's messages go by: made when MPI is, since later not all ranks may be there at once.
#include "tests/fakecuda/nccl_impl.h"
#include "tests/fakecuda/streams.h"

namespace fakecuda::nccl
{

namespace
{

MPI_Comm own_world = MPI_COMM_NULL;

int free_own_world(MPI_Comm, int, void *, void *)
{
    return PMPI_Comm_free(&own_world);
}

// Freed with the first attribute of MPI_COMM_SELF, which is what MPI_Finalize begins with.
void make_own_world()
{
    int key;
    PMPI_Comm_dup(MPI_COMM_WORLD, &own_world);
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, free_own_world, &key, nullptr);
    PMPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);
}

} // namespace

MPI_Comm wire()
{
    if (own_world == MPI_COMM_NULL)
        die("NCCL between ranks is emulated by MPI, which is not initialized");
    return own_world;
}

int world_rank()
{
    int rank = 0;
    if (own_world != MPI_COMM_NULL)
        PMPI_Comm_rank(own_world, &rank);
    return rank;
}

} // namespace fakecuda::nccl

// In the program itself, these go before MPI's own.
extern "C" int MPI_Init(int *argc, char ***argv)
{
    const int error = PMPI_Init(argc, argv);
    if (error == MPI_SUCCESS)
        fakecuda::nccl::make_own_world();
    return error;
}

extern "C" int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    const int error = PMPI_Init_thread(argc, argv, required, provided);
    if (error == MPI_SUCCESS)
        fakecuda::nccl::make_own_world();
    return error;
}
