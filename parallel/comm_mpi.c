/* The world, its groups, and what set-up needs: agreement and broadcast of bytes. */
#include "core/log.h"
#include "parallel/comm_impl.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The largest piece of a set-up broadcast. */
#define BROADCAST_BYTES ((size_t)1 << 20)

static int world_size = 1;

plait_status plait_comm_mpi_fail(const char *file, int line, const char *call, int error)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int len = 0;
    MPI_Error_string(error, text, &len);
    return plait_error_set(PLAIT_PEER, file, line, "%.*s: %s", (int)strcspn(call, "("), call, text);
}

/* ---- the world ---- */

static long number_in(const char *variable)
{
    const char *text = getenv(variable);
    return text ? strtol(text, NULL, 10) : 0;
}

const char *plait_comm_foreign_launcher(int mpi_size, long *ranks)
{
    /* Slurm's variables are those of the whole step, so they count only where no process manager of MPI speaks: a job
     * of one rank under mpiexec, inside a step with several tasks, is what it seems. */
    static const char *const variables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE", "MPI_LOCALNRANKS",
                                            "MV2_COMM_WORLD_SIZE"};
    if (mpi_size > 1)
        return NULL;
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        *ranks = number_in(variables[i]);
        if (*ranks > 1)
            return variables[i];
    }
    if (getenv("PMI_SIZE") || getenv("OMPI_COMM_WORLD_SIZE"))
        return NULL;
    if (number_in("PMIX_RANK") > 0) {
        *ranks = number_in("PMIX_RANK") + 1;
        return "PMIX_RANK";
    }
    *ranks = number_in("SLURM_STEP_NUM_TASKS");
    if (*ranks > 1)
        return "SLURM_STEP_NUM_TASKS";
    *ranks = number_in("SLURM_NTASKS");
    return *ranks > 1 && getenv("SLURM_PROCID") && getenv("SLURM_STEP_ID") ? "SLURM_NTASKS" : NULL;
}

bool plait_world_is_launched(void)
{
    /* Those that a process manager gives each process, not settings that users keep in their shells. */
    static const char *const variables[] = {"PMI_RANK",           "PMI_SIZE",        "PMI_FD",
                                            "PMI_PORT",           "PMIX_RANK",       "PMIX_NAMESPACE",
                                            "MPI_LOCALRANKID",    "MPI_LOCALNRANKS", "OMPI_COMM_WORLD_SIZE",
                                            "MV2_COMM_WORLD_SIZE"};
    long ranks;
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        if (getenv(variables[i]))
            return true;
    return plait_comm_foreign_launcher(1, &ranks) != NULL;
}

bool plait_comm_finalize_may_hang(const char *library_version)
{
    int major, minor;
    return sscanf(library_version, "MPICH Version: %d.%d", &major, &minor) == 2 &&
           (major < 4 || (major == 4 && minor < 2));
}

static void warn_of_finalize(const plait_world *w)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    if (w->nodes == 1 || w->rank != 0 || MPI_Get_library_version(version, &length) != MPI_SUCCESS ||
        !plait_comm_finalize_may_hang(version))
        return;
    plait_log(PLAIT_LOG_WARN,
              "%d nodes with %.*s: before 4.2 MPICH can hang when the run is over (everything is written by then); "
              "start with the mpiexec and libraries of a later one",
              w->nodes, (int)strcspn(version, "\n"), version);
}

static plait_status find_nodes(plait_world *w)
{
    MPI_Comm node;
    MPI_Group node_group, world_group;
    MPI_Comm mpi = w->comm->mpi;
    PLAIT_TRY_MPI(MPI_Comm_split_type(mpi, MPI_COMM_TYPE_SHARED, w->rank, MPI_INFO_NULL, &node));
    PLAIT_TRY_MPI(MPI_Comm_rank(node, &w->local_rank));
    PLAIT_TRY_MPI(MPI_Comm_size(node, &w->local_size));
    PLAIT_TRY_MPI(MPI_Comm_group(node, &node_group));
    PLAIT_TRY_MPI(MPI_Comm_group(mpi, &world_group));
    int first = 0, leader = 0;
    PLAIT_TRY_MPI(MPI_Group_translate_ranks(node_group, 1, &first, world_group, &leader));
    MPI_Group_free(&node_group);
    MPI_Group_free(&world_group);
    MPI_Comm_free(&node);

    w->node_of = calloc((size_t)w->size, sizeof *w->node_of);
    if (!w->node_of)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for a list of %d ranks", w->size);
    MPI_Request req;
    PLAIT_TRY_MPI(MPI_Iallgather(&leader, 1, MPI_INT, w->node_of, 1, MPI_INT, mpi, &req));
    PLAIT_TRY(plait_comm_wait_mpi(w->comm, &req, "exchange of node names", sizeof leader));
    w->nodes = 0;
    for (int q = 0; q < w->size; q++)
        w->nodes += w->node_of[q] == q;
    return PLAIT_OK;
}

/* What every group over MPI has before its first operation. `mpi` is owned from here. */
static plait_status make_over_mpi(const char *name, plait_comm_path path, int rank, int size, const int *ranks,
                                  MPI_Comm mpi, plait_comm **out)
{
    PLAIT_TRY(plait_comm_alloc(name, path, rank, size, ranks, out));
    (*out)->mpi = mpi;
    PLAIT_TRY_MPI(MPI_Comm_set_errhandler(mpi, MPI_ERRORS_RETURN));
    PLAIT_TRY(plait_comm_p2p_create(*out));
    return PLAIT_OK;
}

/* Communicator and nodes of a world whose rank and size are set. `mpi` is owned from here; none in a world of one. */
static plait_status make_world(plait_world *w, MPI_Comm mpi)
{
    if (w->size == 1)
        return plait_comm_alloc("world", PLAIT_COMM_PATH_SELF, 0, 1, NULL, &w->comm);
    PLAIT_TRY(make_over_mpi("world", PLAIT_COMM_PATH_P2P, w->rank, w->size, NULL, mpi, &w->comm));
    PLAIT_TRY(find_nodes(w));
    if (w->nodes == 1)
        w->comm->path = PLAIT_COMM_PATH_WINDOW;
    return PLAIT_OK;
}

plait_status plait_world_init_alone(plait_world *w)
{
    *w = (plait_world){.size = 1, .local_size = 1, .nodes = 1};
    return make_world(w, MPI_COMM_NULL);
}

plait_status plait_world_init(plait_world *w, int *argc, char ***argv)
{
    int provided = 0;
    *w = (plait_world){.size = 1, .local_size = 1, .nodes = 1};
    PLAIT_TRY_MPI(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided));
    w->mpi = true;
    PLAIT_TRY_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &w->rank));
    PLAIT_TRY_MPI(MPI_Comm_size(MPI_COMM_WORLD, &w->size));
    world_size = w->size;
    if (provided < MPI_THREAD_FUNNELED)
        PLAIT_FAIL(UNSUPPORTED, "this MPI provides thread level %d, %d (funneled) is needed", provided,
                   MPI_THREAD_FUNNELED);
    long ranks = 0;
    const char *variable = plait_comm_foreign_launcher(w->size, &ranks);
    if (variable) {
        /* Nobody else is here: MPI ends in order and adds no words of its own. */
        MPI_Finalize();
        w->mpi = false;
        PLAIT_FAIL(
            USAGE,
            "the launcher started %ld ranks (%s), but MPI counts %d: it belongs to another MPI than this program; "
            "use the mpiexec of the MPI that Plait was built with",
            ranks, variable, w->size);
    }
    MPI_Comm mpi = MPI_COMM_NULL;
    if (w->size > 1)
        PLAIT_TRY_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &mpi));
    PLAIT_TRY(make_world(w, mpi));
    warn_of_finalize(w);
    return PLAIT_OK;
}

plait_status plait_world_split(plait_world *w, int ranks, plait_world *out)
{
    *out = (plait_world){0};
    if (ranks < 1)
        PLAIT_FAIL(INTERNAL, "a world of %d ranks is cut into worlds of %d", w->size, ranks);
    const int part = w->rank / ranks, first = part * ranks;
    const bool member = first + ranks <= w->size;
    MPI_Comm mpi = MPI_COMM_NULL;
    if (w->size > 1 && ranks > 1) {
        /* Waiting here yields the core; waiting inside MPI_Comm_split would not. */
        MPI_Request all_here;
        PLAIT_TRY_MPI(MPI_Ibarrier(w->comm->mpi, &all_here));
        PLAIT_TRY(plait_comm_wait_mpi(w->comm, &all_here, "cutting the world", 0));
        PLAIT_TRY_MPI(MPI_Comm_split(w->comm->mpi, member ? part : MPI_UNDEFINED, w->rank, &mpi));
    }
    if (!member)
        return PLAIT_OK;
    *out = (plait_world){.rank = w->rank - first, .size = ranks, .local_size = 1, .nodes = 1};
    PLAIT_TRY(make_world(out, mpi));
    return PLAIT_OK;
}

void plait_world_close(plait_world *w)
{
    plait_comm_destroy(w->comm);
    free(w->node_of);
    *w = (plait_world){0};
}

void plait_world_finalize(plait_world *w)
{
    fflush(NULL);
    if (w->comm && w->comm->mpi != MPI_COMM_NULL) {
        /* Waiting here yields the core; waiting inside MPI_Finalize would not. What fails now changes nothing. */
        MPI_Request all_here;
        if (MPI_Ibarrier(w->comm->mpi, &all_here) == MPI_SUCCESS &&
            plait_comm_wait_mpi(w->comm, &all_here, "finalize", 0) != PLAIT_OK)
            plait_world_abort(w, plait_status_exit_code(PLAIT_PEER));
    }
    const bool started_mpi = w->mpi;
    plait_world_close(w);
    if (started_mpi)
        MPI_Finalize();
}

void plait_world_abort(plait_world *w, int exit_code)
{
    fflush(NULL);
    if (w->mpi) {
        struct timespec while_the_record_gets_out = {0, 200000000};
        nanosleep(&while_the_record_gets_out, NULL);
        MPI_Abort(MPI_COMM_WORLD, exit_code);
    }
    _exit(exit_code);
}

/* ---- set-up calls ---- */

plait_status plait_comm_least(plait_comm *c, int64_t mine, int64_t *least)
{
    *least = mine;
    if (c->mpi == MPI_COMM_NULL)
        return PLAIT_OK;
    MPI_Request req;
    PLAIT_TRY_MPI(MPI_Iallreduce(&mine, least, 1, MPI_INT64_T, MPI_MIN, c->mpi, &req));
    return plait_comm_wait_mpi(c, &req, "minimum", sizeof mine);
}

plait_status plait_comm_broadcast_bytes(plait_comm *c, void *bytes, size_t n, int root)
{
    if (root < 0 || root >= c->size)
        PLAIT_FAIL(INTERNAL, "group %s: broadcast from rank %d of %d", c->name, root, c->size);
    if (c->mpi == MPI_COMM_NULL)
        return PLAIT_OK;
    for (size_t at = 0; at < n; at += BROADCAST_BYTES) {
        size_t len = n - at < BROADCAST_BYTES ? n - at : BROADCAST_BYTES;
        MPI_Request req;
        PLAIT_TRY_MPI(MPI_Ibcast((char *)bytes + at, (int)len, MPI_BYTE, root, c->mpi, &req));
        PLAIT_TRY(plait_comm_wait_mpi(c, &req, "broadcast", n));
    }
    return PLAIT_OK;
}

/* Where an agreement made its record: what begins a trace is where the failure was written down. */
static char agreed_at[64];

bool plait_comm_agreed(void)
{
    if (world_size == 1)
        return true;
    return agreed_at[0] && strncmp(plait_error_trace_text(), agreed_at, strlen(agreed_at)) == 0;
}

static uint64_t hash_of(plait_status st, const char *text)
{
    uint64_t h = 1469598103934665603u + (uint64_t)st; /* FNV-1a */
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 1099511628211u;
    return h >> 1;
}

plait_status plait_comm_agree(plait_comm *c, plait_status mine)
{
    if (c->mpi == MPI_COMM_NULL)
        return mine;
    bool failed = mine != PLAIT_OK;
    /* Minima of: the failing rank, the sentence, the sentence negated: where the last two tell that all have the same,
     * it is nobody's own. */
    int64_t own = failed ? (int64_t)hash_of(mine, plait_error_text()) : 0;
    int64_t in[3] = {failed ? c->rank : INT_MAX, own, -own}, all[3];
    MPI_Request req;
    PLAIT_TRY_MPI(MPI_Iallreduce(in, all, 3, MPI_INT64_T, MPI_MIN, c->mpi, &req));
    PLAIT_TRY(plait_comm_wait_mpi(c, &req, "agreement", sizeof in));
    if (all[0] == INT_MAX)
        return PLAIT_OK;

    int first = (int)all[0];
    struct {
        int status, everybody;
        size_t len;
    } head = {(int)mine, all[1] == -all[2], strlen(plait_error_text())};
    PLAIT_TRY(plait_comm_broadcast_bytes(c, &head, sizeof head, first));
    char *text = malloc(head.len + 1), who[64];
    if (!text)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the %zu bytes of another rank's error", head.len);
    if (first == c->rank)
        memcpy(text, plait_error_text(), head.len);
    text[head.len] = '\0';
    plait_status st = plait_comm_broadcast_bytes(c, text, head.len, first);
    if (st == PLAIT_OK) {
        plait_comm_rank_text(c, first, who, sizeof who);
        st = plait_error_set((plait_status)head.status, __FILE__, __LINE__, "%s%s%s", head.everybody ? "" : who,
                             head.everybody ? "" : ": ", text);
        snprintf(agreed_at, sizeof agreed_at, "%s", plait_error_trace_text());
    }
    free(text);
    return st;
}

/* ---- groups ---- */

static plait_status split(plait_world *w, const char *name, const int *ranks, int size, plait_comm **out)
{
    int mine = 0;
    bool one_node = true;
    while (ranks[mine] != w->rank)
        mine++;
    for (int i = 1; i < size; i++)
        one_node = one_node && w->node_of[ranks[i]] == w->node_of[ranks[0]];
    MPI_Comm mpi;
    PLAIT_TRY_MPI(MPI_Comm_split(w->comm->mpi, size > 1 ? ranks[0] : MPI_UNDEFINED, mine, &mpi));
    if (size == 1)
        PLAIT_TRY(plait_comm_alloc(name, PLAIT_COMM_PATH_SELF, 0, 1, ranks, out));
    else
        PLAIT_TRY(
            make_over_mpi(name, one_node ? PLAIT_COMM_PATH_WINDOW : PLAIT_COMM_PATH_P2P, mine, size, ranks, mpi, out));
    return PLAIT_OK;
}

plait_status plait_comm_create(plait_world *w, const char *name, const int *ranks, int num_ranks, plait_comm **out)
{
    if (w->size == 1)
        PLAIT_TRY(plait_comm_alloc(name, PLAIT_COMM_PATH_SELF, 0, 1, NULL, out));
    else
        PLAIT_TRY(split(w, name, ranks, num_ranks, out));
    return PLAIT_OK;
}

void plait_comm_destroy(plait_comm *c)
{
    if (!c)
        return;
    if (c->carrier)
        c->carrier->destroy(c);
    plait_comm_window_destroy(c);
    plait_comm_p2p_destroy(c);
    if (c->mpi != MPI_COMM_NULL)
        MPI_Comm_free(&c->mpi);
    plait_comm_free(c);
}

void plait_comm_use_p2p(plait_comm *c)
{
    if (c->path == PLAIT_COMM_PATH_WINDOW && !c->reserved)
        c->path = PLAIT_COMM_PATH_P2P;
}

typedef struct wanted {
    plait_group kind;
    const char *name;
    int largest; /* size of the largest group of the kind: 1 needs no ranks to meet */
    plait_comm **out;
} wanted;

static plait_status make_group(plait_world *w, const plait_topology *topo, const wanted *g, int *ranks)
{
    int size = plait_topology_group(topo, g->kind, ranks);
    if (g->largest == 1)
        PLAIT_TRY(plait_comm_alloc(g->name, PLAIT_COMM_PATH_SELF, 0, 1, ranks, g->out));
    else
        PLAIT_TRY(plait_comm_create(w, g->name, ranks, size, g->out));
    (*g->out)->topo = *topo;
    (*g->out)->has_topo = true;
    return PLAIT_OK;
}

plait_status plait_groups_create(plait_world *w, const plait_topology *topo, plait_groups *out)
{
    plait_status st = PLAIT_OK;
    *out = (plait_groups){.world = w->comm};
    if (topo->world != w->size || topo->rank != w->rank)
        PLAIT_FAIL(INTERNAL, "a topology of rank %d of %d on rank %d of %d", topo->rank, topo->world, w->rank, w->size);
    int *ranks = calloc((size_t)topo->world, sizeof *ranks);
    if (!ranks)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for a list of %d ranks", topo->world);
    const wanted groups[] = {
        {PLAIT_GROUP_TENSOR, "tensor", topo->tp, &out->tensor},
        {PLAIT_GROUP_DATA, "data", topo->dp, &out->data},
        {PLAIT_GROUP_PIPELINE, "pipeline activations", topo->pp, &out->pipe_act},
        {PLAIT_GROUP_PIPELINE, "pipeline gradients", topo->pp, &out->pipe_grad},
        {PLAIT_GROUP_EMBEDDING, "embedding", topo->pp, &out->embedding},
        {PLAIT_GROUP_KV, "key-value", topo->kv_replicas, &out->kv},
    };
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        PLAIT_TRY_TO(done, st, make_group(w, topo, &groups[i], ranks));
    w->comm->topo = *topo;
    w->comm->has_topo = true;
done:
    free(ranks);
    return st;
}

void plait_groups_destroy(plait_groups *g)
{
    plait_comm *owned[] = {g->kv, g->embedding, g->pipe_grad, g->pipe_act, g->data, g->tensor};
    if (g->world && g->world->carrier)
        g->world->carrier->destroy(g->world); /* the world's group goes on */
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        plait_comm_destroy(owned[i]);
    if (g->world && g->world->path == PLAIT_COMM_PATH_PLAN)
        plait_comm_destroy(g->world); /* that of a plan is its own */
    *g = (plait_groups){0};
}
