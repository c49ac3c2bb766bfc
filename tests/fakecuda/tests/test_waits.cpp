// A rank whose host waits in MPI still runs its streams: on 2 ranks, an operation of each waits for the other's, as one
// of NCCL does, while the hosts wait for each other in every way.
#include "tests/fakecuda/streams.h"
#include "tests/fakecuda/tests/buffers.h"
#include "tests/fakecuda/tests/kernels.h"

#include <ctime>
#include <functional>
#include <memory>
#include <mpi.h>
#include <sched.h>

namespace
{

int rank;

// An operation that is done when the other rank has begun its own.
void meet_in_stream(cudaStream_t stream, MPI_Comm comm)
{
    struct Meeting {
        bool begun = false;
        MPI_Request request;
    };
    auto m = std::make_shared<Meeting>();
    fakecuda::enqueue(stream, "a meeting", [m, comm] {
        if (!m->begun)
            PMPI_Ibarrier(comm, &m->request);
        m->begun = true;
        int done = 0;
        PMPI_Test(&m->request, &done, MPI_STATUS_IGNORE);
        return done != 0;
    });
}

struct Case {
    const char *name;
    std::function<void()> wait; // called by rank 0, while rank 1 waits for its stream and then calls it
};

void exchange()
{
    int mine = rank, other = -1;
    MPI_Sendrecv(&mine, 1, MPI_INT, 1 - rank, 5, &other, 1, MPI_INT, 1 - rank, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EXPECT_EQ(other, 1 - rank);
}

void message()
{
    int value = 7;
    if (rank == 0) {
        MPI_Recv(&value, 1, MPI_INT, 1, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        EXPECT_EQ(value, 8);
    } else {
        value = 8;
        MPI_Send(&value, 1, MPI_INT, 0, 6, MPI_COMM_WORLD);
    }
}

void probe()
{
    int value = 8;
    if (rank == 0) {
        MPI_Probe(1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(&value, 1, MPI_INT, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Ssend(&value, 1, MPI_INT, 0, 7, MPI_COMM_WORLD);
    }
}

void sum()
{
    int one = 1, all = 0;
    MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    EXPECT_EQ(all, 2);
}

void broadcast()
{
    int value = rank == 1 ? 9 : 0;
    MPI_Bcast(&value, 1, MPI_INT, 1, MPI_COMM_WORLD);
    EXPECT_EQ(value, 9);
}

void gather()
{
    int all[2] = {-1, -1};
    MPI_Allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
    EXPECT_EQ(all[0], 0);
    EXPECT_EQ(all[1], 1);
}

void split()
{
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &half);
    MPI_Comm_free(&half);
}

void requests(bool one_by_one)
{
    int in = -1;
    MPI_Request both[2];
    MPI_Irecv(&in, 1, MPI_INT, 1 - rank, 8, MPI_COMM_WORLD, &both[0]);
    MPI_Isend(&rank, 1, MPI_INT, 1 - rank, 8, MPI_COMM_WORLD, &both[1]);
    if (one_by_one)
        for (MPI_Request &r : both)
            MPI_Wait(&r, MPI_STATUS_IGNORE);
    else
        MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
    EXPECT_EQ(in, 1 - rank);
}

void questions()
{
    MPI_Request r;
    MPI_Ibarrier(MPI_COMM_WORLD, &r);
    for (int done = 0; !done;)
        MPI_Test(&r, &done, MPI_STATUS_IGNORE);
}

// No function of MPI is called: shared memory would tell, as in windows.
void naps(bool yields)
{
    MPI_Request r;
    MPI_Ibarrier(MPI_COMM_WORLD, &r);
    for (int done = 0; !done;) {
        if (yields) {
            sched_yield();
        } else {
            const struct timespec nap = {0, 20000};
            nanosleep(&nap, nullptr);
        }
        PMPI_Test(&r, &done, MPI_STATUS_IGNORE);
    }
}

const Case kCases[] = {
    {"barrier", [] { MPI_Barrier(MPI_COMM_WORLD); }},
    {"exchange", exchange},
    {"message", message},
    {"probe", probe},
    {"sum", sum},
    {"broadcast", broadcast},
    {"gather", gather},
    {"split", split},
    {"wait", [] { requests(true); }},
    {"wait_all", [] { requests(false); }},
    {"questions", questions},
    {"yields", [] { naps(true); }},
    {"naps", [] { naps(false); }},
};

TEST(Waits, StreamsRunMeanwhile)
{
    MPI_Comm streams;
    MPI_Comm_dup(MPI_COMM_WORLD, &streams);
    cudaStream_t stream;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    for (const Case &c : kCases) {
        SCOPED_TRACE(c.name);
        meet_in_stream(stream, streams);
        if (rank == 1)
            EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
        c.wait();
        EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    }
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    MPI_Comm_free(&streams);
}

} // namespace

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    testing::InitGoogleTest(&argc, argv);
    int failed = RUN_ALL_TESTS(), any = 0;
    MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    return any;
}
