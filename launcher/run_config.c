#define _GNU_SOURCE /* CPU_COUNT */
#include "launcher/run_config.h"

#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "launcher/usage.h"
#include "parallel/device.h"

/* The line of rank 0's text that this rank's lacks, in `line`; false when the texts are equal. */
static bool first_difference(const char *root, const char *mine, char *line, size_t size)
{
    for (; *root && *mine;
         root += strcspn(root, "\n"), root += *root == '\n', mine += strcspn(mine, "\n"), mine += *mine == '\n') {
        int n = (int)strcspn(root, "\n"), m = (int)strcspn(mine, "\n");
        if (n != m || memcmp(root, mine, (size_t)n) != 0) {
            snprintf(line, size, "rank 0 has '%.*s', this rank '%.*s'", n, root, m, mine);
            return true;
        }
    }
    snprintf(line, size, "one has more lines");
    return *root != *mine;
}

plait_status plait_run_compare(plait_world *world, const char *what, const char *mine)
{
    char line[512];
    PLAIT_TRY(plait_comm_agree(
        world->comm,
        mine ? PLAIT_OK : plait_error_set(PLAIT_OUT_OF_MEMORY, __FILE__, __LINE__, "no memory to compare %s", what)));
    size_t length = strlen(mine) + 1;
    PLAIT_TRY(plait_comm_broadcast_bytes(world->comm, &length, sizeof length, 0));
    char *root = calloc(1, length);
    plait_status st = plait_comm_agree(
        world->comm,
        root ? PLAIT_OK : plait_error_set(PLAIT_OUT_OF_MEMORY, __FILE__, __LINE__, "no memory to compare %s", what));
    if (st == PLAIT_OK) {
        if (world->rank == 0)
            memcpy(root, mine, length);
        st = plait_comm_broadcast_bytes(world->comm, root, length, 0);
        if (st == PLAIT_OK && first_difference(root, mine, line, sizeof line))
            st = plait_error_set(PLAIT_USAGE, __FILE__, __LINE__, "the ranks' %s differ: %s", what, line);
        st = plait_comm_agree(world->comm, st);
    }
    free(root);
    return st;
}

/* The key, else OMP_NUM_THREADS, else ceil(cores / local ranks). */
static plait_status settle_threads(int64_t *threads, int local_ranks)
{
    enum { MOST = 4096 }; /* as the key */
    if (*threads != PLAIT_AUTO)
        return PLAIT_OK;
    const char *omp = getenv("OMP_NUM_THREADS");
    if (omp && *omp) {
        char first[32]; /* of a list: threads of the regions inside others follow, of which there are none */
        omp += strspn(omp, " \t");
        snprintf(first, sizeof first, "%.*s", (int)strcspn(omp, ", \t"), omp);
        return plait_option_whole("OMP_NUM_THREADS", first, 1, MOST, threads);
    }
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    *threads = (cores + local_ranks - 1) / local_ranks;
    return PLAIT_OK;
}

plait_status plait_run_threads(plait_world *world, int64_t *threads)
{
    PLAIT_TRY(plait_comm_agree(world->comm, settle_threads(threads, world->local_size)));
    omp_set_num_threads((int)*threads);
    plait_bind_cores(world->local_rank, world->local_size, (int)*threads);
    return PLAIT_OK;
}

static plait_status settle_device(plait_world *world, plait_config *cfg)
{
    plait_device_room room;
    PLAIT_TRY(plait_device_room_of(world, &room));
    return plait_comm_agree(world->comm, plait_device_settle(cfg, room));
}

plait_status plait_run_config(plait_world *world, plait_config *cfg, const char *path, const char *const *overrides,
                              int num_overrides)
{
    *cfg = (plait_config){0};
    PLAIT_TRY(plait_comm_agree(world->comm, plait_config_load(cfg, path, overrides, num_overrides)));

    /* Before anything is derived: the first difference is one that somebody wrote. */
    char *text = plait_config_dump(cfg);
    plait_status st = plait_run_compare(world, "configurations", text);
    free(text);
    PLAIT_TRY(st);
    PLAIT_TRY(plait_comm_agree(world->comm, plait_config_resolve(cfg, world->size)));
    if (world->rank == 0)
        plait_config_print_idle(cfg, stderr);

    PLAIT_TRY(settle_device(world, cfg));
    PLAIT_TRY(plait_run_threads(world, &cfg->device.threads));
    plait_comm_set_timeout(cfg->comm.timeout_minutes * 60);

    plait_topology topo;
    char prefix[64];
    PLAIT_TRY(plait_topology_of(cfg, world->size, world->rank, &topo));
    snprintf(prefix, sizeof prefix, "[d%d p%d t%d] ", topo.d, topo.p, topo.t);
    plait_log_set_prefix(world->size > 1 ? prefix : "");
    return PLAIT_OK;
}
