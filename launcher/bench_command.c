/* plait bench: measures this machine and adds what it found to a machine file. */
#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/file.h"
#include "launcher/bench_kernels.h"
#include "launcher/bench_links.h"
#include "launcher/bench_ops.h"
#include "launcher/commands.h"
#include "launcher/machine_file.h"
#include "launcher/progress.h"
#include "launcher/run_config.h"
#include "launcher/stop.h"
#include "launcher/usage.h"

typedef struct options {
    const char *path;
    plait_bench_dtypes dtypes;
    bool quick;
} options;

static plait_status parse(int argc, char **argv, options *o)
{
    *o = (options){.dtypes = plait_bench_dtypes_all};
    for (int i = 1; i < argc; i++) {
        const bool valued = strcmp(argv[i], "--machine") == 0 || strcmp(argv[i], "--dtypes") == 0;
        if (valued && i + 1 == argc)
            PLAIT_FAIL(USAGE, "%s: nothing stands behind the option\n%s", argv[i], plait_usage_bench);
        if (strcmp(argv[i], "--quick") == 0)
            o->quick = true;
        else if (!valued)
            PLAIT_FAIL(USAGE, "plait bench: unknown argument %s\n%s", argv[i], plait_usage_bench);
        else if (strcmp(argv[i], "--machine") == 0)
            o->path = argv[++i];
        else
            PLAIT_TRY(plait_bench_dtypes_parse(argv[++i], &o->dtypes));
    }
    if (!o->path)
        PLAIT_FAIL(USAGE, "plait bench: --machine is missing\n%s", plait_usage_bench);
    return PLAIT_OK;
}

/* Ranks with other arguments would measure something else, and wait for each other in vain. */
static plait_status same_arguments(plait_world *world, const options *o)
{
    char text[8192];
    int n = snprintf(text, sizeof text, "machine %.4000s\nquick %d\ndtypes", o->path, o->quick);
    for (int i = 0; i < o->dtypes.num; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, " %s", plait_dtype_name(o->dtypes.all[i]));
    return plait_run_compare(world, "arguments", text);
}

/* ---- the file, on rank 0 ---- */

/* A broken or unwritable file is found before and not after minutes of measuring. *name is what it has. */
static plait_status check_file(const char *path, char name[128])
{
    plait_machine m;
    PLAIT_TRY(plait_file_check_writable(path));
    if (access(path, F_OK) != 0)
        return PLAIT_OK;
    PLAIT_TRY(plait_machine_read(path, &m));
    memcpy(name, m.name, sizeof m.name);
    plait_machine_deinit(&m);
    return PLAIT_OK;
}

static plait_status add_to_file(const plait_machine *measured, const char *path, double started)
{
    plait_machine all;
    PLAIT_TRY(plait_machine_add(measured, path, &all));
    printf("written: %s, %d tables of rates and %d of links, after %.0f s\n", path, all.num_rates, all.num_links,
           plait_seconds() - started);
    plait_machine_deinit(&all);
    return PLAIT_OK;
}

static void name_machine(plait_machine *m, const char *kernels, int cores)
{
    char host[64] = "";
    const time_t now = time(NULL);
    struct tm today;
    gethostname(host, sizeof host - 1);
    if (!m->name[0])
        snprintf(m->name, sizeof m->name, "%.63s, %d cores, %.30s", host, cores, kernels);
    strftime(m->source, sizeof m->source, "measured %Y-%m-%d", localtime_r(&now, &today));
}

/* ---- the measurement ---- */

/* Sums of links are formed by a table of kernels; numbers of all ranks by a little staging. */
static plait_status prepare_comm(plait_world *world, const plait_kernels **k)
{
    static plait_ledger ledger;
    enum { NUMBERS = 64 };
    PLAIT_TRY(plait_comm_agree(world->comm, plait_kernels_find(PLAIT_KERNELS_AUTO, PLAIT_ISA_AUTO, PLAIT_FP32, k)));
    const plait_exec host = {.k = *k, .threads = 1};
    plait_comm_set_exec(&host);
    return plait_comm_agree(world->comm, plait_comm_reserve(world->comm, NUMBERS, NUMBERS, PLAIT_TIER_HOST, &ledger));
}

/* Nodes with different numbers of ranks would give times of neither. */
static plait_status same_nodes(plait_bench *b)
{
    double most = b->world->local_size, least = -most;
    PLAIT_TRY(plait_bench_slowest(b, &most));
    PLAIT_TRY(plait_bench_slowest(b, &least));
    if (most != -least)
        return plait_comm_agree(b->world->comm,
                                plait_error_set(PLAIT_USAGE, __FILE__, __LINE__,
                                                "nodes have %.0f to %.0f ranks: plait bench wants as many on each",
                                                -least, most));
    return PLAIT_OK;
}

static plait_status measure(plait_bench *b, const options *o)
{
    PLAIT_TRY(same_nodes(b));
    PLAIT_TRY(plait_bench_ops(b, o->dtypes.all, o->dtypes.num));
    return plait_bench_links(b, o->dtypes.all, o->dtypes.num);
}

static plait_status bench(plait_world *world, const options *o)
{
    const double started = plait_seconds();
    const int cores = omp_get_num_procs(); /* before this rank is bound to some of them */
    plait_bench b = {.world = world, .quick = o->quick, .ranks = world->local_size};
    const plait_kernels *k = NULL;
    int64_t threads = PLAIT_AUTO;
    plait_status st = world->rank == 0 ? check_file(o->path, b.machine.name) : PLAIT_OK;
    PLAIT_TRY_TO(done, st, plait_comm_agree(world->comm, st));
    PLAIT_TRY_TO(done, st, plait_run_threads(world, &threads));
    PLAIT_TRY_TO(done, st, prepare_comm(world, &k));
    b.threads = (int)threads;
    b.share = b.threads * b.ranks > cores ? (double)cores / (b.threads * b.ranks) : 1;
    if (world->nodes > 1) /* which groups of a run are on several */
        b.machine.ranks_per_node = b.ranks;
    if (world->rank == 0) {
        name_machine(&b.machine, k->name, cores);
        printf("machine: %s; %d rank%s a node, %d thread%s each, %s\n", b.machine.name, b.ranks,
               b.ranks == 1 ? "" : "s", b.threads, b.threads == 1 ? "" : "s", k->name);
    }
    PLAIT_TRY_TO(done, st, measure(&b, o));
    if (world->rank == 0)
        st = add_to_file(&b.machine, o->path, started);
    PLAIT_TRY_TO(done, st, plait_comm_agree(world->comm, st));
done:
    plait_machine_deinit(&b.machine);
    return st;
}

plait_status plait_command_bench(plait_world *world, int argc, char **argv)
{
    options o;
    char left[600]; /* by a signal */
    if (argc > 1 && strcmp(argv[1], "kernels") == 0)
        return plait_bench_kernels(world, argc - 1, argv + 1);
    PLAIT_TRY(plait_comm_agree(world->comm, parse(argc, argv, &o)));
    PLAIT_TRY(same_arguments(world, &o));
    snprintf(left, sizeof left, ", nothing was written to %.500s", o.path);
    plait_stop_report(world, left);
    return bench(world, &o);
}
