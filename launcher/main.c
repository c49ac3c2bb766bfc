/* plait: MPI first, then arguments, so that a rank with bad ones cannot leave the others waiting. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "launcher/commands.h"

static const char usage[] =
    "usage: plait COMMAND\n"
    "  train CONFIG [key=value ...]        trains; under mpiexec on its ranks, else on one\n"
    "  config CONFIG [key=value ...] [--ranks N] [--json]\n"
    "                                      prints every value, where it came from, and the parameters\n"
    "  generate WEIGHTS CONFIG --prompt TEXT --bytes N [--temperature T] [--seed S] [key=value ...]\n"
    "                                      continues a text\n"
    "  version                             prints versions and what this build can do\n";

static plait_status print_usage(plait_world *world, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    if (world->rank == 0)
        fputs(usage, stdout);
    return PLAIT_OK;
}

static const struct command {
    const char *name;
    plait_status (*run)(plait_world *world, int argc, char **argv);
} commands[] = {
    {"train", plait_command_train},
    {"config", plait_command_config},
    {"generate", plait_command_generate},
    {"version", plait_command_version},
    {"help", print_usage},
    {"--help", print_usage},
    {"-h", print_usage},
};

static plait_status find_command(int argc, char **argv, size_t *found)
{
    if (argc < 2)
        PLAIT_FAIL(USAGE, "no command\n%s", usage);
    for (*found = 0; *found < sizeof commands / sizeof *commands; ++*found)
        if (strcmp(argv[1], commands[*found].name) == 0)
            return PLAIT_OK;
    PLAIT_FAIL(USAGE, "unknown command '%s'\n%s", argv[1], usage);
}

/* mpiexec can start ranks with different arguments: those of another command would be waited for in vain. */
static plait_status same_as_root(plait_world *world, size_t mine)
{
    size_t root = mine;
    PLAIT_TRY(plait_comm_broadcast_bytes(world->comm, &root, sizeof root, 0));
    if (root != mine)
        PLAIT_FAIL(USAGE, "this rank was started with the command '%s', rank 0 with '%s'", commands[mine].name,
                   commands[root].name);
    return PLAIT_OK;
}

static plait_status dispatch(plait_world *world, int argc, char **argv)
{
    size_t command = 0;
    PLAIT_TRY(plait_comm_agree(world->comm, find_command(argc, argv, &command)));
    PLAIT_TRY(plait_comm_agree(world->comm, same_as_root(world, command)));
    return commands[command].run(world, argc - 1, argv + 1);
}

/* What a command printed may still be on its way. Only rank 0 prints. */
static plait_status flush_output(const plait_world *world)
{
    errno = 0;
    if (world->rank == 0 && (fflush(stdout) != 0 || ferror(stdout)))
        PLAIT_FAIL(IO, "standard output: %s", errno ? strerror(errno) : "not all of it could be written");
    return PLAIT_OK;
}

/* The first cause: by all ranks together (one prints), or by this rank alone, which then ends the job. */
static int fail(plait_world *world, plait_status st)
{
    int code = plait_status_exit_code(st);
    bool agreed = plait_comm_agreed();
    if (!agreed || world->rank == 0) {
        fflush(stdout);
        fprintf(stderr, "%splait: %s: %s\n", agreed ? "" : plait_log_prefix(), plait_status_text(st),
                plait_error_text());
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
    /* A reader that left and a file beyond its limit are write errors, said as such. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    plait_status st = plait_world_init(&world, &argc, &argv);
    if (st != PLAIT_OK) {
        fprintf(stderr, "plait: %s: %s\n", plait_status_text(st), plait_error_text());
        return plait_status_exit_code(st);
    }
    st = dispatch(&world, argc, argv);
    if (st == PLAIT_OK)
        st = flush_output(&world);
    int code = st == PLAIT_OK ? 0 : fail(&world, st);
    plait_world_finalize(&world);
    return code;
}
