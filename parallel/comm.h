/* parallel/comm.h: communication inside groups of ranks.
 *
 * Everything is a request: start says what is to happen, wait makes sure that it has. Backends: `self` (a group of one:
 * copies), `mpi` (host buffers: a shared window inside a node, point to point between nodes), `staged` (buffers of a
 * GPU: as mpi, through pinned host memory; ranks may share a GPU), `nccl` (buffers of a GPU, a GPU a rank), `plan`
 * (counts, no ranks, no memory is touched). All members of a group start the same operations in the same order, and
 * groups that share ranks in one order too.
 *
 * MPI makes no progress by itself and a blocking MPI call starves other ranks of the core: every wait is non-blocking +
 * test + yield or nap and moves all open requests of the process, so waiting for one group cannot block another.
 *
 * Reductions: every rank's contribution is rounded to the wire type, sums are formed in fp32 (fp64 for fp64), and
 * rounded once to the output type. They are added in pairs of neighbours, then in pairs of pairs: one binary tree over
 * the ranks, below which each rank may go on with a tree of its own. So all ranks get the same bits, the same in every
 * run. A maximum keeps NaN; int32 takes part in maxima, int64 in sums (exact, so in no order). Messages and integers
 * have one type throughout.
 *
 * Failures: a peer that does not answer within the time-out is a PLAIT_PEER that names group, operation and how long.
 */
#ifndef PLAIT_PARALLEL_COMM_H
#define PLAIT_PARALLEL_COMM_H

#include "kernels/kernels.h"
#include "parallel/topology.h"

PLAIT_BEGIN_DECLS

typedef struct plait_comm plait_comm;
typedef struct plait_request plait_request;

typedef enum plait_comm_kind {
    PLAIT_COMM_ALL_REDUCE,     /* out[count] = sum of in[count] */
    PLAIT_COMM_REDUCE_SCATTER, /* out[own part] = sum of in[own part]; in has count elements, out the own part's */
    PLAIT_COMM_ALL_GATHER,     /* out[count] = all parts; in is the own part */
    PLAIT_COMM_REDUCE,         /* all-reduce whose result only the root gets (out NULL elsewhere) */
    PLAIT_COMM_BROADCAST,      /* out[count] of everybody = in[count] of the root (in NULL elsewhere) */
    PLAIT_COMM_SEND,           /* in[count] to peer; sends to one peer arrive in the order they were started */
    PLAIT_COMM_RECV,           /* out[count] from peer */
    PLAIT_COMM_BARRIER,
    PLAIT_COMM_KINDS
} plait_comm_kind;

typedef enum plait_reduction { PLAIT_SUM, PLAIT_MAX } plait_reduction;

typedef struct plait_comm_op {
    plait_comm_kind kind;
    plait_reduction reduction;
    const void *in;
    void *out; /* may equal in where sizes agree; all-gather: in may be the own part inside out, likewise reduce-scatter
                */
    int64_t count;
    plait_dtype dtype;      /* of in */
    plait_dtype wire;       /* of what travels */
    plait_dtype result;     /* of out */
    const int64_t *offsets; /* parts: rank r has [offsets[r], offsets[r + 1]) of count (uneven or empty ones are legal);
                               NULL: count / size each, which must divide. Must live until the wait. */
    int peer;               /* root or partner, as a rank of the group */
    bool accumulate;        /* reduce-scatter, all-reduce: the rounded sum is added to out instead of written */
} plait_comm_op;

/* An operation of one type throughout. */
static inline plait_comm_op plait_comm_make(plait_comm_kind kind, const void *in, void *out, int64_t count,
                                            plait_dtype dtype)
{
    plait_comm_op op = {kind, PLAIT_SUM, in, out, count, dtype, dtype, dtype, 0, 0, false};
    return op;
}

const char *plait_comm_kind_name(plait_comm_kind kind); /* "all_reduce", ... */

/* Starts n operations as one group (batched point to point). The buffers belong to the request until it has been waited
 * for. `after`: the exec in whose backend's memory the buffers are; the operations come after what its stream has been
 * given so far. NULL: they are in the host's memory, whatever tensors are in. */
PLAIT_MUST_USE plait_status plait_comm_start(plait_comm *c, const plait_comm_op *ops, int n, const plait_exec *after,
                                             plait_request **out);
/* What `before`'s stream is given from now on comes after the request. Frees it, sets *req NULL; NULL is waited for.
 * After a PLAIT_PEER (nothing of the group moved for the time-out) the request is still open and may be waited for
 * again. */
PLAIT_MUST_USE plait_status plait_request_wait(plait_request **req, const plait_exec *before);
/* Moves all open requests a little; cheap. Called between kernels. */
PLAIT_MUST_USE plait_status plait_comm_progress(void);

/* Waits until the exec's stream has done what it was given, moving all open requests and keeping the time-out. */
PLAIT_MUST_USE plait_status plait_comm_finish(plait_comm *c, const plait_exec *ex);

/* start and wait in one; after a PLAIT_PEER the buffers still belong to the operation: the process has to end */
PLAIT_MUST_USE plait_status plait_comm_run(plait_comm *c, const plait_comm_op *op, const plait_exec *ex);

int plait_comm_rank(const plait_comm *c);
int plait_comm_size(const plait_comm *c);
const char *plait_comm_name(const plait_comm *c);

/* Calls and buffer bytes, counted where an operation is started: an op's bytes are count * size of `dtype` for
 * whole-buffer kinds (all-reduce, reduce, broadcast, reduce-scatter's input, all-gather's output), and count for send
 * and receive. Groups of one count nothing. */
typedef struct plait_traffic {
    int64_t calls[PLAIT_COMM_KINDS], bytes[PLAIT_COMM_KINDS];
    int64_t wire[PLAIT_COMM_KINDS]; /* bytes at the width in which the elements travel */
    /* Bytes of the largest collective so far as it travels, at the output's width where that is larger and the sum
     * travels on (all-reduce, reduce): what staging has to hold to do it in one round. */
    size_t largest;
    size_t largest_host; /* of operations of host memory alone, whatever tensors are in */
    size_t converted;    /* most bytes that one operation needs where the library of a device does not convert or add */
} plait_traffic;
plait_traffic plait_comm_traffic(const plait_comm *c);
void plait_comm_traffic_reset(plait_comm *c);

/* Staging memory (windows, receive panels): none until it is reserved, so that the plan knows it first. Collective.
 * bytes_for says what reserve will take of this rank for operations up to `largest` wire bytes in chunks of
 * `chunk_bytes`; it is written into the ledger as communication. An operation larger than the reservation goes in
 * several rounds; with largest 0 nothing is taken, and messages and barriers alone are possible. Once for a
 * communicator, the same on all its ranks (PLAIT_INTERNAL otherwise). Whether /dev/shm has room for the
 * windows is asked before, by plait_world_check_room. */
size_t plait_comm_staging_bytes(const plait_comm *c, size_t largest, size_t chunk_bytes);
/* Whether the group's ranks are on one node and use a shared window. */
bool plait_comm_is_shared(const plait_comm *c);
PLAIT_MUST_USE plait_status plait_comm_reserve(plait_comm *c, size_t largest, size_t chunk_bytes, plait_tier tier,
                                               plait_ledger *ledger);
/* Device bytes for operations of NCCL that convert or add (plait_traffic.converted), written into the ledger as
 * communication. Once, after plait_groups_attach. */
PLAIT_MUST_USE plait_status plait_comm_reserve_device(plait_comm *c, size_t bytes, plait_ledger *ledger);

/* ---- the world ---- */

typedef struct plait_world {
    plait_comm *comm; /* all ranks */
    int rank, size;
    int local_rank, local_size; /* on this node */
    int nodes;
    int *node_of; /* [size]: the lowest rank on each rank's node; NULL in a world of one */
    bool mpi;     /* plait_world_init started MPI, which runs under mpiexec or not */
} plait_world;

/* MPI_Init_thread (funneled). A foreign launcher that started several single ranks (its
 * variables say N > 1, MPI says 1) is a PLAIT_USAGE that says so. `host` is the exec whose table adds and casts host
 * buffers (cpu or ref; set later with plait_comm_set_exec, needed before the first reduction). `timeout` in seconds. */
PLAIT_MUST_USE plait_status plait_world_init(plait_world *w, int *argc, char ***argv);
/* A world of this process alone, without MPI: what breaks MPI_Init does not matter. */
PLAIT_MUST_USE plait_status plait_world_init_alone(plait_world *w);
/* Whether a process manager (mpiexec, srun, of whichever MPI) has started this process, by its variables: then other
 * ranks may be there, which only MPI finds. */
bool plait_world_is_launched(void);
void plait_comm_set_exec(const plait_exec *host);
void plait_comm_set_timeout(double seconds);
double plait_comm_timeout(void);
/* After all output: own non-blocking barrier, then MPI_Finalize. */
void plait_world_finalize(plait_world *w);
/* Cuts w into worlds of `ranks` neighbours: several topologies run in one job, side by side. Ranks that are left over
 * are members of none: their *out has size 0. Collective over w; staging is reserved once in a world, so each run needs
 * one of its own. Owner: plait_world_close (collective over *out). */
PLAIT_MUST_USE plait_status plait_world_split(plait_world *w, int ranks, plait_world *out);
void plait_world_close(plait_world *w);
/* PLAIT_OUT_OF_MEMORY when a node's /dev/shm is smaller than the windows of its ranks together; `bytes` are those of
 * this rank: plait_comm_staging_bytes of its groups that plait_comm_is_shared. Collective; all return the same. */
PLAIT_MUST_USE plait_status plait_world_check_room(const plait_world *w, size_t bytes);
/* For a failing rank: flushes, waits 200 ms so that the record gets out, MPI_Abort(exit_code). Does not return. */
void plait_world_abort(plait_world *w, int exit_code) __attribute__((noreturn));

/* Several ranks may have failed differently: all return the status of the lowest failing rank, with its text (prefixed
 * with its rank, unless all failed alike) in their record. */
PLAIT_MUST_USE plait_status plait_comm_agree(plait_comm *c, plait_status mine);
/* Whether this rank's last failure came from an agreement: then every rank has the same record and leaves in order. */
bool plait_comm_agreed(void);
/* The least `mine` of all ranks; blocking. For set-up. */
PLAIT_MUST_USE plait_status plait_comm_least(plait_comm *c, int64_t mine, int64_t *least);
/* Host bytes from root to all; blocking. For set-up. */
PLAIT_MUST_USE plait_status plait_comm_broadcast_bytes(plait_comm *c, void *bytes, size_t n, int root);

/* ---- groups ---- */

/* Pinned memory through which tensors of a device are staged: a block for collectives, and two for the messages of each
 * of a pipeline's two groups. */
#define PLAIT_COMM_BOUNCE   ((size_t)1 << 20)
#define PLAIT_GROUPS_BOUNCE (5 * PLAIT_COMM_BOUNCE)

typedef struct plait_groups {
    plait_comm *world, *tensor, *data;
    plait_comm *pipe_act, *pipe_grad; /* two communicators of the pipeline group: activations and gradients */
    plait_comm *embedding, *kv;
} plait_groups;

/* Collective over the world. The world's communicator is borrowed, the rest is owned. */
PLAIT_MUST_USE plait_status plait_groups_create(plait_world *w, const plait_topology *topo, plait_groups *out);
/* The same groups of a rank that does not exist, over the `plan` backend. */
PLAIT_MUST_USE plait_status plait_groups_create_plan(const plait_topology *topo, plait_groups *out);
/* The library that carries them between GPUs, for people: "NCCL 2.27.7", or "none". */
void plait_comm_device_versions(char *text, size_t size);
/* Tensors are in the memory of a GPU from now on: what carries them, nccl or staged. copies: an exec of that backend
 * with a stream of its own; bounce (staged): PLAIT_GROUPS_BOUNCE bytes of pinned memory; few_bytes (nccl):
 * PLAIT_MEM_ALIGN bytes of the device, for the first contact. All but few_bytes outlive the groups. Collective over the
 * world. */
PLAIT_MUST_USE plait_status plait_groups_attach(plait_groups *g, plait_comm_choice carrier, const plait_exec *copies,
                                                void *bounce, void *few_bytes);
void plait_groups_destroy(plait_groups *g);

/* Who hears what groups of a plan do, in this thread: the groups of one say nothing. `request` is the number of the
 * start, from 0. */
typedef struct plait_comm_listener {
    void *self;
    void (*start)(void *self, const plait_comm *c, const plait_comm_op *ops, int n, int request);
    void (*wait)(void *self, int request);
} plait_comm_listener;
/* Borrowed, until the next call; NULL: nobody. */
void plait_comm_plan_listen(const plait_comm_listener *listener);

/* Binds the process's threads to cores [local_rank * threads, ...) when local_size * threads = cores and local_size
 * > 1. */
void plait_bind_cores(int local_rank, int local_size, int threads);

PLAIT_END_DECLS
#endif
