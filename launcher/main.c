/* plait: where there may be other ranks, MPI first and then arguments, so that a rank with bad ones cannot leave the
 * others waiting. A process that nobody launched starts MPI only for what communicates. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "launcher/commands.h"
#include "launcher/output.h"
#include "launcher/stop.h"
#include "launcher/usage.h"

enum { WITHOUT_MPI, WITH_MPI }; /* when no process manager has started it; with one there is always MPI */

static const struct command {
    const char *name;
    int mpi;
    plait_status (*run)(plait_world *world, int argc, char **argv);
    const char *usage;
    const char *valued[8]; /* options whose next argument is a value, whatever it is; NULL at the end */
} commands[] = {
    {"train", WITH_MPI, plait_command_train, plait_usage_train, {0}},
    {"config", WITHOUT_MPI, plait_command_config, plait_usage_config, {"--ranks"}},
    {"diff", WITHOUT_MPI, plait_command_diff, plait_usage_diff, {0}},
    {"generate",
     WITH_MPI,
     plait_command_generate,
     plait_usage_generate,
     {"--prompt", "--bytes", "--temperature", "--seed"}},
    {"plan",
     WITHOUT_MPI,
     plait_command_plan,
     plait_usage_plan,
     {"--ranks", "--device-memory", "--machine", "--estimator", "--html"}},
    {"compare",
     WITHOUT_MPI,
     plait_command_compare,
     plait_usage_compare,
     {"--ranks", "--machine", "--steps", "--limit", "--mpiexec", "--json", "--html"}},
    {"bench", WITH_MPI, plait_command_bench, plait_usage_bench, {"--machine", "--dtypes"}},
    {"version", WITHOUT_MPI, plait_command_version, plait_usage_version, {0}},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

/* What is to be done: a command, or its usage. */
typedef struct task {
    size_t command; /* COMMANDS: none, with usage only */
    bool usage;
} task;

static bool is_help(const char *s)
{
    return strcmp(s, "--help") == 0 || strcmp(s, "-h") == 0;
}

/* Whether help is asked for among the arguments of a command. */
static bool asks_for_help(const struct command *c, int argc, char **argv)
{
    for (int i = 2; i < argc; i++) {
        if (is_help(argv[i]))
            return true;
        for (const char *const *v = c->valued; *v; v++)
            if (strcmp(argv[i], *v) == 0) {
                i++;
                break;
            }
    }
    return false;
}

static plait_status find_task(int argc, char **argv, task *found)
{
    if (argc < 2)
        PLAIT_FAIL(USAGE, "no command\n%s", plait_usage);
    const bool help = strcmp(argv[1], "help") == 0 || is_help(argv[1]);
    const char *name = help ? argc > 2 ? argv[2] : "" : argv[1];
    for (found->command = 0; found->command < COMMANDS; found->command++)
        if (strcmp(name, commands[found->command].name) == 0)
            break;
    if (found->command == COMMANDS && !(help && (!*name || is_help(name) || strcmp(name, "help") == 0)))
        PLAIT_FAIL(USAGE, "unknown command '%s'\n%s", name, plait_usage);
    found->usage = help || asks_for_help(&commands[found->command], argc, argv);
    return PLAIT_OK;
}

/* A usage, also for a mistake, needs no MPI. */
static bool needs_mpi(int argc, char **argv)
{
    task t = {0};
    return find_task(argc, argv, &t) == PLAIT_OK && !t.usage && commands[t.command].mpi == WITH_MPI;
}

static const char *task_name(task t)
{
    return t.usage ? "help" : commands[t.command].name;
}

/* mpiexec can start ranks with different arguments: those of another command would be waited for in vain. */
static plait_status same_as_root(plait_world *world, task mine)
{
    task root = mine;
    PLAIT_TRY(plait_comm_broadcast_bytes(world->comm, &root, sizeof root, 0));
    if (root.usage != mine.usage || (!mine.usage && root.command != mine.command))
        PLAIT_FAIL(USAGE, "this rank was started with the command '%s', rank 0 with '%s'", task_name(mine),
                   task_name(root));
    return PLAIT_OK;
}

static plait_status dispatch(plait_world *world, int argc, char **argv)
{
    task t = {0};
    PLAIT_TRY(plait_comm_agree(world->comm, find_task(argc, argv, &t)));
    PLAIT_TRY(plait_comm_agree(world->comm, same_as_root(world, t)));
    if (!t.usage)
        return commands[t.command].run(world, argc - 1, argv + 1);
    if (world->rank == 0)
        fputs(t.command == COMMANDS ? plait_usage : commands[t.command].usage, stdout);
    return PLAIT_OK;
}

/* The first cause: by all ranks together (one prints), or by this rank alone, which then ends the job. */
static int fail(plait_world *world, plait_status st)
{
    int code = plait_status_exit_code(st);
    bool agreed = plait_comm_agreed();
    if (!agreed || world->rank == 0) {
        fflush(stdout);
        fprintf(stderr, "%splait: %s: ", agreed ? "" : plait_log_prefix(), plait_status_text(st));
        plait_output_text(stderr, plait_error_text());
        fputc('\n', stderr);
        if (st == PLAIT_INTERNAL)
            fprintf(stderr, "plait: passed through %s\n", plait_error_trace_text());
        fflush(stderr);
    }
    /* hydra's proxy forgets the codes of ranks that end in the same moment, and mpiexec then returns 0: one rank hands
     * the code over by aborting, and when all have agreed, the others wait for that in plait_world_finalize. */
    if (world->size > 1 && (!agreed || world->rank == 0))
        plait_world_abort(world, code);
    return code;
}

int main(int argc, char **argv)
{
    plait_world world;
    plait_output_guard();
    /* A reader that left and a file beyond its limit are write errors, said as such. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    plait_status st = plait_stop_guard(); /* before MPI has threads */
    if (st == PLAIT_OK && (plait_world_is_launched() || needs_mpi(argc, argv)))
        st = plait_world_init(&world, &argc, &argv);
    else if (st == PLAIT_OK)
        st = plait_world_init_alone(&world);
    if (st != PLAIT_OK) {
        fprintf(stderr, "plait: %s: %s\n", plait_status_text(st), plait_error_text());
        return plait_status_exit_code(st);
    }
    st = dispatch(&world, argc, argv);
    if (st == PLAIT_OK && world.rank == 0) /* only rank 0 prints */
        st = plait_output_flush();
    int code = st == PLAIT_OK ? 0 : fail(&world, st);
    plait_world_finalize(&world);
    return code;
}
