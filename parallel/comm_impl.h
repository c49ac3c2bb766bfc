/* parallel/comm_impl.h: what the parts of communication share.
 *
 * comm.c       the front: checks, counts, queues, waits
 * comm_self.c  a group of one
 * comm_plan.c  groups of ranks that do not exist
 * comm_mpi.c   the world, groups, agreement
 * comm_message.c  send and receive
 * comm_window.c   collectives of a group inside one node, through shared memory
 * comm_p2p.c      the same collectives over messages, for groups that span nodes
 * comm_buffer.c   where the buffers of these are read and written
 * comm_math.c     conversion and summation of host buffers
 * comm_nccl.c     operations on a GPU's buffers by NCCL
 *
 * A started operation is a task. Collectives of a group stand in one queue and only its head moves; messages stand in a
 * list and all of them move. A request counts its unfinished tasks. Tasks and requests come from fixed pools: nothing
 * is allocated after start-up.
 */
#ifndef PLAIT_PARALLEL_COMM_IMPL_H
#define PLAIT_PARALLEL_COMM_IMPL_H

#include "parallel/comm.h"

/* MPI's own C++ interface is not wanted, also when a test includes this. */
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#include <mpi.h>

PLAIT_BEGIN_DECLS

#define PLAIT_COMM_CHUNK_BYTES ((size_t)4 << 20) /* until plait_comm_reserve says otherwise */
#define PLAIT_COMM_PIECES      2                 /* of one message, under way at once */

typedef enum plait_comm_path {
    PLAIT_COMM_PATH_SELF,
    PLAIT_COMM_PATH_WINDOW,
    PLAIT_COMM_PATH_P2P,
    PLAIT_COMM_PATH_PLAN
} plait_comm_path;

/* Messages of one kind between two ranks arrive in order; the tag keeps the kinds apart. */
enum { PLAIT_COMM_TAG_MESSAGE, PLAIT_COMM_TAG_PARTS, PLAIT_COMM_TAG_RESULTS, PLAIT_COMM_TAG_BARRIER };

typedef struct plait_comm_task {
    plait_comm_op op;
    plait_request *request;
    struct plait_comm_task *next;
    bool device; /* its buffers are in a device's memory */
    /* a collective: done in rounds, each of a few phases */
    int64_t round, rounds;
    int phase;
    /* a message: the first `posted` bytes have been handed to MPI */
    int64_t posted;
    int under_way;
    MPI_Request pieces[PLAIT_COMM_PIECES];
} plait_comm_task;

typedef struct plait_comm_queue {
    plait_comm_task *first, *last;
} plait_comm_queue;

struct plait_request {
    plait_comm *comm;
    plait_comm_kind kind; /* of its first task, and the bytes of all: for the message when it is late */
    int64_t bytes;
    int open;    /* unfinished tasks */
    int planned; /* of a plan: the number of its start */
    void *event; /* of NCCL: made when it is first needed, kept with the record */
    plait_request *next_free;
};

/* How the bytes of a reservation are used: both collective paths take the same number of bytes, so that a plan need not
 * know which ranks share a node. */
typedef struct plait_comm_staging {
    size_t slot, result, total; /* bytes; total 0: nothing is reserved */
} plait_comm_staging;
plait_comm_staging plait_comm_staging_make(int size, size_t largest, size_t chunk_bytes);

struct plait_comm_window;
struct plait_comm_panels;
struct plait_comm_carrier;

struct plait_comm {
    char name[32];
    plait_comm_path path;
    int rank, size;
    int *world_ranks; /* [size] */
    plait_topology topo;
    bool has_topo;
    plait_traffic traffic;
    size_t chunk_bytes;
    plait_comm_staging staging;
    bool reserved;

    /* not in groups of one and plans */
    MPI_Comm mpi;
    plait_comm_queue collectives, messages;
    uint64_t moves; /* grows with everything that happens to a task: a wait that sees it grow is not stalled */
    uint64_t walk;  /* number of walks through the messages */
    uint64_t
        *held_back; /* [2][size]: last walk in which an earlier message to (0) or from (1) a peer was not all posted */
    const void **sources; /* [size], scratch for sums */
    struct plait_comm_window *window;
    struct plait_comm_panels *panels;

    /* where tensors are in a device's memory */
    const struct plait_comm_carrier *carrier; /* NULL: the host */
    struct plait_comm_nccl *nccl;             /* of that carrier */
    const plait_exec *copies;
    void *bounce;            /* for collectives; the process has one */
    char *message_bounce[2]; /* for a message out, and one in: groups of the pipeline alone have them */
    plait_comm_task *message_in_bounce[2];
    plait_comm *next; /* all groups over MPI of this process */
};

/* ---- comm.c ---- */

/* Seconds of a clock that only goes on. */
double plait_comm_now(void);
/* A group record with everything but the MPI communicator. `world_ranks` is copied; NULL: 0, 1, ... */
PLAIT_MUST_USE plait_status plait_comm_alloc(const char *name, plait_comm_path path, int rank, int size,
                                             const int *world_ranks, plait_comm **out);
void plait_comm_free(plait_comm *c);
/* Waits for one request of MPI itself (set-up calls), moving all others and keeping the time-out. */
PLAIT_MUST_USE plait_status plait_comm_wait_mpi(plait_comm *c, MPI_Request *req, const char *what, size_t bytes);
/* "[d0 p1 t0] (rank 3)", or "rank 3" */
void plait_comm_rank_text(const plait_comm *c, int rank, char *text, size_t size);

/* Elements of one round: those of part q that belong to round `t->round`. Every part advances in every round. */
void plait_comm_piece_of(const plait_comm *c, const plait_comm_task *t, int q, int64_t *begin, int64_t *end);
int64_t plait_comm_part_begin(const plait_comm *c, const plait_comm_op *op, int q);
int64_t plait_comm_largest_part(const plait_comm *c, const plait_comm_op *op);
/* Bytes that an operation needs beside its buffers where what carries it neither converts nor adds: its input and its
 * output as they travel, each if that is not how they are. */
size_t plait_comm_converted_bytes(const plait_comm *c, const plait_comm_op *op);
/* Of n elements in them, aligned. */
size_t plait_comm_converted_part(int64_t n, plait_dtype dtype);
/* Elements that go in and come out of an operation on this rank. */
void plait_comm_own_counts(const plait_comm *c, const plait_comm_op *op, int64_t *in, int64_t *out);
/* Bytes an element takes in staging memory: what travels to the owner and, for a reduction whose result travels on,
 * what travels back. */
size_t plait_comm_staged_size(const plait_comm_op *op);

/* ---- comm_self.c ---- */

PLAIT_MUST_USE plait_status plait_comm_self_run(const plait_comm_op *op);
/* On tensors of a device, in the order of the exec's stream. */
PLAIT_MUST_USE plait_status plait_comm_self_run_device(const plait_comm_op *op, const plait_exec *ex);

/* ---- comm_plan.c ---- */

/* Tells the listener; *heard: there is one, and the request has a number of its own. */
int plait_comm_plan_start(const plait_comm *c, const plait_comm_op *ops, int n, bool *heard);
void plait_comm_plan_wait(int request);

/* ---- comm_message.c ---- */

PLAIT_MUST_USE plait_status plait_comm_messages_advance(plait_comm *c);

/* ---- comm_window.c and comm_p2p.c: the same three functions ---- */

/* create is collective and blocks. advance moves a task as far as it goes and says whether it is finished. rounds says
 * in how many rounds an operation goes; lags whether the task waits for rank q. */
PLAIT_MUST_USE plait_status plait_comm_window_create(plait_comm *c, const plait_comm_staging *s);
void plait_comm_window_destroy(plait_comm *c);
int64_t plait_comm_window_rounds(const plait_comm *c, const plait_comm_op *op);
PLAIT_MUST_USE plait_status plait_comm_window_advance(plait_comm *c, plait_comm_task *t, bool *finished);
bool plait_comm_window_lags(const plait_comm *c, const plait_comm_task *t, int q);

/* Panels without a reservation serve barriers only. */
PLAIT_MUST_USE plait_status plait_comm_p2p_create(plait_comm *c);
PLAIT_MUST_USE plait_status plait_comm_p2p_reserve(plait_comm *c, const plait_comm_staging *s);
void plait_comm_p2p_destroy(plait_comm *c);
int64_t plait_comm_p2p_rounds(const plait_comm *c, const plait_comm_op *op);
PLAIT_MUST_USE plait_status plait_comm_p2p_advance(plait_comm *c, plait_comm_task *t, bool *finished);
bool plait_comm_p2p_lags(const plait_comm *c, const plait_comm_task *t, int q);

/* ---- comm_buffer.c ---- */

/* dst[n], of the wire type and in the host's memory, = in[at, at + n). */
PLAIT_MUST_USE plait_status plait_comm_read(const plait_comm *c, const plait_comm_task *t, void *dst, int64_t at,
                                            int64_t n);
/* out[at, at + n) = src[n], of `dtype` and in the host's memory, or += where the operation accumulates. */
PLAIT_MUST_USE plait_status plait_comm_write(const plait_comm *c, const plait_comm_task *t, int64_t at, const void *src,
                                             plait_dtype dtype, int64_t n);
/* out[at, at + n) = the sum over c->sources (which it may move on), or += */
PLAIT_MUST_USE plait_status plait_comm_write_sum(const plait_comm *c, const plait_comm_task *t, int64_t at, int64_t n);

/* ---- comm_nccl.c ---- */

/* What carries tensors of a device without the host. */
struct plait_comm_carrier {
    /* n operations as one group, after what `after` has been given. */
    plait_status (*start)(plait_comm *c, const plait_comm_op *ops, int n, const plait_exec *after, plait_request *req);
    /* What `before` is given from now on comes after the request. */
    plait_status (*wait)(const plait_request *req, const plait_exec *before);
    /* Whether an operation has failed since: then all communicators of the process are aborted. */
    plait_status (*check)(plait_comm *c);
    /* Device bytes for operations that it does not do as they are. */
    plait_status (*reserve)(plait_comm *c, size_t bytes, plait_ledger *ledger);
    void (*destroy)(plait_comm *c);
};

int plait_comm_nccl_version(void); /* 22707: 2.27.7 */
/* A communicator of NCCL with a stream, for the world (c->copies is set), then for groups of it; those of one rank get
 * none. Collective over the world. */
PLAIT_MUST_USE plait_status plait_comm_nccl_attach_world(plait_comm *world);
PLAIT_MUST_USE plait_status plait_comm_nccl_attach(plait_comm *c, plait_comm *world);
/* The first operation of a group; of a pipeline's also the first message each way. few_bytes: PLAIT_MEM_ALIGN bytes of
 * the device. Collective over the group. */
PLAIT_MUST_USE plait_status plait_comm_nccl_connect(plait_comm *c, bool messages, void *few_bytes);

/* ---- comm_math.c ---- */

/* PLAIT_INTERNAL when the operation needs a table and plait_comm_set_exec has not been called. */
PLAIT_MUST_USE plait_status plait_comm_math_ready(const plait_comm_op *op);
/* dst[n] (of type `to`) = src[n] (of type `from`); the same array is legal. */
PLAIT_MUST_USE plait_status plait_comm_convert(void *dst, plait_dtype to, const void *src, plait_dtype from, int64_t n);
/* dst[n] += src[n], both `dtype` */
PLAIT_MUST_USE plait_status plait_comm_accumulate(void *dst, const void *src, plait_dtype dtype, int64_t n);
/* dst[n] (result type of op) = sum or maximum over r of sources[r][n] (wire type), in the order of r; with accumulate
 * it is rounded and then added to dst. dst overlaps no source. */
PLAIT_MUST_USE plait_status plait_comm_reduce(const plait_comm_op *op, const void *const *sources, int num_sources,
                                              void *dst, int64_t n, bool accumulate);

/* ---- comm_mpi.c ---- */

#define PLAIT_TRY_MPI(call)                                                                                            \
    do {                                                                                                               \
        int try_mpi_ = (call);                                                                                         \
        if (try_mpi_ != MPI_SUCCESS)                                                                                   \
            return plait_comm_mpi_fail(__FILE__, __LINE__, #call, try_mpi_);                                           \
    } while (0)
/* PLAIT_PEER with the call and MPI's sentence. */
plait_status plait_comm_mpi_fail(const char *file, int line, const char *call, int error);

/* Collective over the world: every rank gives the ranks of its own group, and all groups are disjoint. */
PLAIT_MUST_USE plait_status plait_comm_create(plait_world *w, const char *name, const int *ranks, int num_ranks,
                                              plait_comm **out);
/* Collective over the group. NULL is fine. */
void plait_comm_destroy(plait_comm *c);
/* Before a reservation: collectives go over messages although the group shares a node. All ranks of the group alike. */
void plait_comm_use_p2p(plait_comm *c);

/* A launcher of another MPI starts single ranks that all believe to be rank 0 of 1. When MPI counts one rank: the
 * variable that says more and what it says, else NULL. */
const char *plait_comm_foreign_launcher(int mpi_size, long *ranks);

/* Whether the MPI of that text (MPI_Get_library_version) is an MPICH before 4.2, whose MPI_Finalize can hang when ranks
 * are joined by UCX over TCP (pmodels/mpich#6596). */
bool plait_comm_finalize_may_hang(const char *library_version);

PLAIT_END_DECLS
#endif
