// A host that waits in MPI, or naps until a peer comes: its device runs on meanwhile.
//
// On a machine with a GPU the streams of a rank run whatever its host does. Here they run when the host calls, so each
// function that waits is replaced in the program (-Wl,--wrap): by one that asks MPI and runs operations in turn.
// Without that two ranks wait for each other for ever, one in MPI, the other in NCCL.
#define MPICH_SKIP_MPICXX
#include "tests/fakecuda/streams_impl.h"

#include <ctime>
#include <mpi.h>
#include <sched.h>

using fakecuda::host_polls;

namespace
{

// Between two questions of a host that waits.
void breathe(double *since, const char *what)
{
    if (fakecuda::progress())
        *since = fakecuda::seconds();
    else
        fakecuda::nap(*since, what);
}

// Asks `done`, which returns an error of MPI, until it has set the flag.
template <class F> int until(const char *what, F &&done)
{
    double since = fakecuda::seconds();
    for (;;) {
        int flag = 0;
        const int error = done(&flag);
        if (error != MPI_SUCCESS || flag)
            return error;
        breathe(&since, what);
    }
}

int finish(int error, MPI_Request *request, MPI_Status *status, const char *what)
{
    if (error != MPI_SUCCESS)
        return error;
    return until(what, [&](int *flag) { return PMPI_Test(request, flag, status); });
}

// All have come: what is called next does not wait long.
int meet(MPI_Comm comm, const char *what)
{
    MPI_Request request;
    const int error = PMPI_Ibarrier(comm, &request);
    return finish(error, &request, MPI_STATUS_IGNORE, what);
}

// What the host asked for is not there.
int asked(int error, const int *flag)
{
    if (error == MPI_SUCCESS && !*flag)
        host_polls();
    return error;
}

} // namespace

extern "C" {

// ---- naps ----

int __real_sched_yield(void);
int __wrap_sched_yield(void)
{
    host_polls();
    return __real_sched_yield();
}

int __real_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    host_polls();
    return __real_nanosleep(time, left);
}

// ---- questions ----

int __wrap_MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    return asked(PMPI_Test(request, flag, status), flag);
}

int __wrap_MPI_Testall(int n, MPI_Request *requests, int *flag, MPI_Status *statuses)
{
    return asked(PMPI_Testall(n, requests, flag, statuses), flag);
}

int __wrap_MPI_Testany(int n, MPI_Request *requests, int *index, int *flag, MPI_Status *status)
{
    return asked(PMPI_Testany(n, requests, index, flag, status), flag);
}

int __wrap_MPI_Testsome(int n, MPI_Request *requests, int *done, int *indices, MPI_Status *statuses)
{
    return asked(PMPI_Testsome(n, requests, done, indices, statuses), done);
}

int __wrap_MPI_Iprobe(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status)
{
    return asked(PMPI_Iprobe(source, tag, comm, flag, status), flag);
}

// ---- waits ----

int __wrap_MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    return until("MPI_Wait", [&](int *flag) { return PMPI_Test(request, flag, status); });
}

int __wrap_MPI_Waitall(int n, MPI_Request *requests, MPI_Status *statuses)
{
    return until("MPI_Waitall", [&](int *flag) { return PMPI_Testall(n, requests, flag, statuses); });
}

int __wrap_MPI_Waitany(int n, MPI_Request *requests, int *index, MPI_Status *status)
{
    return until("MPI_Waitany", [&](int *flag) { return PMPI_Testany(n, requests, index, flag, status); });
}

int __wrap_MPI_Waitsome(int n, MPI_Request *requests, int *done, int *indices, MPI_Status *statuses)
{
    return until("MPI_Waitsome", [&](int *flag) {
        const int error = PMPI_Testsome(n, requests, done, indices, statuses);
        *flag = *done != 0; // also MPI_UNDEFINED: nothing to wait for
        return error;
    });
}

int __wrap_MPI_Probe(int source, int tag, MPI_Comm comm, MPI_Status *status)
{
    return until("MPI_Probe", [&](int *flag) { return PMPI_Iprobe(source, tag, comm, flag, status); });
}

// ---- messages ----

int __wrap_MPI_Send(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
    MPI_Request request;
    const int error = PMPI_Isend(data, n, type, to, tag, comm, &request);
    return finish(error, &request, MPI_STATUS_IGNORE, "MPI_Send");
}

int __wrap_MPI_Ssend(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
    MPI_Request request;
    const int error = PMPI_Issend(data, n, type, to, tag, comm, &request);
    return finish(error, &request, MPI_STATUS_IGNORE, "MPI_Ssend");
}

int __wrap_MPI_Recv(void *data, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status)
{
    MPI_Request request;
    const int error = PMPI_Irecv(data, n, type, from, tag, comm, &request);
    return finish(error, &request, status, "MPI_Recv");
}

int __wrap_MPI_Sendrecv(const void *out, int out_n, MPI_Datatype out_type, int to, int out_tag, void *in, int in_n,
                        MPI_Datatype in_type, int from, int in_tag, MPI_Comm comm, MPI_Status *status)
{
    MPI_Request receive, send;
    int error = PMPI_Irecv(in, in_n, in_type, from, in_tag, comm, &receive);
    if (error != MPI_SUCCESS)
        return error;
    error = PMPI_Isend(out, out_n, out_type, to, out_tag, comm, &send);
    error = finish(error, &send, MPI_STATUS_IGNORE, "MPI_Sendrecv");
    return finish(error, &receive, status, "MPI_Sendrecv");
}

// ---- collectives ----

int __wrap_MPI_Barrier(MPI_Comm comm)
{
    return meet(comm, "MPI_Barrier");
}

int __wrap_MPI_Bcast(void *data, int n, MPI_Datatype type, int root, MPI_Comm comm)
{
    MPI_Request request;
    const int error = PMPI_Ibcast(data, n, type, root, comm, &request);
    return finish(error, &request, MPI_STATUS_IGNORE, "MPI_Bcast");
}

int __wrap_MPI_Allreduce(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    MPI_Request request;
    const int error = PMPI_Iallreduce(in, out, n, type, op, comm, &request);
    return finish(error, &request, MPI_STATUS_IGNORE, "MPI_Allreduce");
}

int __wrap_MPI_Reduce(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm)
{
    MPI_Request request;
    const int error = PMPI_Ireduce(in, out, n, type, op, root, comm, &request);
    return finish(error, &request, MPI_STATUS_IGNORE, "MPI_Reduce");
}

int __wrap_MPI_Allgather(const void *in, int in_n, MPI_Datatype in_type, void *out, int out_n, MPI_Datatype out_type,
                         MPI_Comm comm)
{
    MPI_Request request;
    const int error = PMPI_Iallgather(in, in_n, in_type, out, out_n, out_type, comm, &request);
    return finish(error, &request, MPI_STATUS_IGNORE, "MPI_Allgather");
}

int __wrap_MPI_Allgatherv(const void *in, int in_n, MPI_Datatype in_type, void *out, const int *counts,
                          const int *places, MPI_Datatype out_type, MPI_Comm comm)
{
    MPI_Request request;
    const int error = PMPI_Iallgatherv(in, in_n, in_type, out, counts, places, out_type, comm, &request);
    return finish(error, &request, MPI_STATUS_IGNORE, "MPI_Allgatherv");
}

int __wrap_MPI_Gather(const void *in, int in_n, MPI_Datatype in_type, void *out, int out_n, MPI_Datatype out_type,
                      int root, MPI_Comm comm)
{
    MPI_Request request;
    const int error = PMPI_Igather(in, in_n, in_type, out, out_n, out_type, root, comm, &request);
    return finish(error, &request, MPI_STATUS_IGNORE, "MPI_Gather");
}

int __wrap_MPI_Scatter(const void *in, int in_n, MPI_Datatype in_type, void *out, int out_n, MPI_Datatype out_type,
                       int root, MPI_Comm comm)
{
    MPI_Request request;
    const int error = PMPI_Iscatter(in, in_n, in_type, out, out_n, out_type, root, comm, &request);
    return finish(error, &request, MPI_STATUS_IGNORE, "MPI_Scatter");
}

int __wrap_MPI_Alltoall(const void *in, int in_n, MPI_Datatype in_type, void *out, int out_n, MPI_Datatype out_type,
                        MPI_Comm comm)
{
    MPI_Request request;
    const int error = PMPI_Ialltoall(in, in_n, in_type, out, out_n, out_type, comm, &request);
    return finish(error, &request, MPI_STATUS_IGNORE, "MPI_Alltoall");
}

// ---- set-up and end: only after all have come ----

int __wrap_MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *out)
{
    const int error = meet(comm, "MPI_Comm_split");
    return error != MPI_SUCCESS ? error : PMPI_Comm_split(comm, color, key, out);
}

int __wrap_MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *out)
{
    const int error = meet(comm, "MPI_Comm_split_type");
    return error != MPI_SUCCESS ? error : PMPI_Comm_split_type(comm, type, key, info, out);
}

int __wrap_MPI_Comm_dup(MPI_Comm comm, MPI_Comm *out)
{
    const int error = meet(comm, "MPI_Comm_dup");
    return error != MPI_SUCCESS ? error : PMPI_Comm_dup(comm, out);
}

int __wrap_MPI_Win_allocate_shared(MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *window)
{
    const int error = meet(comm, "MPI_Win_allocate_shared");
    return error != MPI_SUCCESS ? error : PMPI_Win_allocate_shared(size, unit, info, comm, base, window);
}

// A window does not tell its communicator. What this rank's streams were given before, the others were too.
int __wrap_MPI_Win_free(MPI_Win *window)
{
    for (double since = fakecuda::seconds(); !fakecuda::all_empty();)
        breathe(&since, "MPI_Win_free");
    return PMPI_Win_free(window);
}

int __wrap_MPI_Finalize(void)
{
    const int error = meet(MPI_COMM_WORLD, "MPI_Finalize");
    return error != MPI_SUCCESS ? error : PMPI_Finalize();
}

} // extern "C"
