/* parallel/comm_impl.h: what the parts of communication share.
 *
 * comm.c       the front: checks, counts, queues, waits
 * comm_self.c  a group of one
 * comm_plan.c  groups of ranks that do not exist
 * comm_mpi.c   the world, groups, agreement
 * comm_message.c  send and receive
 * comm_window.c   collectives of a group inside one node, through shared memory
 * comm_p2p.c      the same collectives over messages, for groups that span nodes
 * comm_math.c     conversion and summation of host buffers
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
    plait_comm *next; /* all groups over MPI of this process */
};

/* ---- comm.c ---- */

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
/* Bytes an element takes in staging memory: what travels to the owner and, for a reduction whose result travels on,
 * what travels back. */
size_t plait_comm_staged_size(const plait_comm_op *op);

/* ---- comm_self.c ---- */

PLAIT_MUST_USE plait_status plait_comm_self_run(const plait_comm_op *op);

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
