#define _GNU_SOURCE /* posix_spawn, mkdtemp, environ */
#include "launcher/measure.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "launcher/line_reader.h"
#include "launcher/stop.h"

enum { WARM_UP = 2, FILES = 3 };

/* A directory for what a run leaves. */
typedef struct workspace {
    char directory[128], metrics[160], errors[160], output[160];
} workspace;

static plait_status make_workspace(workspace *w)
{
    const char *base = getenv("TMPDIR");
    snprintf(w->directory, sizeof w->directory, "%s/plait-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(w->directory))
        PLAIT_FAIL(IO, "%s: no directory for the metrics of a run: %s", w->directory, strerror(errno));
    snprintf(w->metrics, sizeof w->metrics, "%s/metrics", w->directory);
    snprintf(w->errors, sizeof w->errors, "%s/errors", w->directory);
    snprintf(w->output, sizeof w->output, "%s/output", w->directory);
    return PLAIT_OK;
}

static void remove_workspace(const workspace *w)
{
    const char *files[FILES] = {w->metrics, w->errors, w->output};
    for (int i = 0; i < FILES; i++)
        unlink(files[i]);
    rmdir(w->directory);
}

/* ---- the run ---- */

/* The environment without what an MPI process manager has put there: the run has one of its own. Strings are borrowed.
 */
static char **clean_environment(void)
{
    static const char *const managers[] = {"PMI_", "PMIX_", "HYDI_", "HYDRA_", "MPI_LOCAL", "MPIR_"};
    size_t count = 0, kept = 0;
    while (environ[count])
        count++;
    char **clean = (char **)calloc(count + 1, sizeof *clean);
    for (size_t i = 0; clean && i < count; i++) {
        bool of_manager = false;
        for (size_t k = 0; k < sizeof managers / sizeof *managers; k++)
            of_manager |= strncmp(environ[i], managers[k], strlen(managers[k])) == 0;
        if (!of_manager)
            clean[kept++] = environ[i];
    }
    return clean;
}

/* In a process group of its own, so that all of it can be ended. */
static plait_status spawn(char *const *argv, const workspace *w, pid_t *pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none;
    char **clean = clean_environment();
    if (!clean)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for an environment");
    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, w->output, O_WRONLY | O_CREAT, 0600);
    posix_spawn_file_actions_addopen(&files, 2, w->errors, O_WRONLY | O_CREAT, 0600);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    const int error = posix_spawnp(pid, argv[0], &files, &attributes, argv, clean);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    free((void *)clean);
    if (error != 0)
        PLAIT_FAIL(IO, "%s: cannot be started: %s", argv[0], strerror(error));
    return PLAIT_OK;
}

/* Why a run is ended from here. */
typedef enum ending { BY_ITSELF, TOO_LONG, STOPPED } ending;

static ending wait_for(pid_t pid, double limit, int *code)
{
    ending why = BY_ITSELF;
    int status = 0;
    for (double waited = 0; waitpid(pid, &status, WNOHANG) != pid; waited += 0.01) {
        why = plait_stop_requested() ? STOPPED : waited > limit ? TOO_LONG : BY_ITSELF;
        if (why != BY_ITSELF) {
            kill(-pid, SIGKILL);
            waitpid(pid, &status, 0);
            break;
        }
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return why;
}

static plait_status run(plait_variant *one, const plait_plan_request *request, int ranks,
                        const plait_measure_options *o, const workspace *w, int *code)
{
    enum { FIXED = 12 };
    char program[4096], number[16], steps[48], metrics[200], launcher[1024], *rest = launcher;
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0)
        PLAIT_FAIL(IO, "/proc/self/exe: %s", strerror(errno));
    program[length] = '\0';
    snprintf(number, sizeof number, "%d", ranks);
    snprintf(steps, sizeof steps, "train.train_iters=%d", o->steps);
    snprintf(metrics, sizeof metrics, "logging.metrics_file=%s", w->metrics);

    if (snprintf(launcher, sizeof launcher, "%s", o->mpiexec) >= (int)sizeof launcher)
        PLAIT_FAIL(USAGE, "--mpiexec: a command of more than %zu bytes", sizeof launcher - 1);

    const char **argv =
        calloc(FIXED + sizeof launcher / 2 + (size_t)request->num_overrides + (size_t)one->num_keys, sizeof *argv);
    if (!argv)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for a command");
    int argc = 0;
    for (char *word; (word = strtok_r(rest, " ", &rest));)
        argv[argc++] = word;
    argv[argc++] = "-n";
    argv[argc++] = number;
    argv[argc++] = program;
    argv[argc++] = "train";
    argv[argc++] = request->path;
    for (int i = 0; i < request->num_overrides; i++)
        argv[argc++] = request->overrides[i];
    for (int i = 0; i < one->num_keys; i++)
        argv[argc++] = one->keys[i];
    argv[argc++] = steps;
    argv[argc++] = metrics;
    argv[argc++] = "checkpoint.save_weights=null";
    argv[argc++] = "debug.tensor_hashes=null";
    pid_t pid;
    plait_status st = spawn((char *const *)argv, w, &pid);
    const ending why = st == PLAIT_OK ? wait_for(pid, o->limit, code) : BY_ITSELF;
    if (why == TOO_LONG)
        snprintf(one->measured.failure, sizeof one->measured.failure, "it took longer than %.0f s", o->limit);
    free(argv);
    if (why == STOPPED)
        PLAIT_FAIL(STOPPED, "signal %d while %s was measured", plait_stop_requested(), one->name);
    return st;
}

/* The last line of what the run said. */
static void read_last_words(const workspace *w, int code, char *text, size_t size)
{
    char line[512], last[512] = "";
    FILE *in = fopen(w->errors, "r");
    while (in && fgets(line, sizeof line, in))
        if (strncmp(line, "plait", 5) == 0)
            snprintf(last, sizeof last, "%s", line);
    if (in)
        fclose(in);
    last[strcspn(last, "\n")] = '\0';
    if (last[0])
        snprintf(text, size, "it ended with %d: %s", code, last);
    else
        snprintf(text, size, "it ended with %d and said nothing", code);
}

/* ---- what it said ---- */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int64_t whole(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static int kind_of(const char *category)
{
    int kind = 0;
    while (kind < PLAIT_MEM_KINDS && strcmp(plait_mem_kind_name((plait_mem_kind)kind), category) != 0)
        kind++;
    return kind;
}

static const plait_rank_class *class_of(const plait_variant *one, const json_t *row)
{
    const plait_rank_plan *p = &one->plan.plan;
    const int64_t rank = whole(row, "rank");
    return rank >= 0 && rank < p->topo.world ? &p->classes[p->class_of[rank]] : NULL;
}

/* The ledgers of all ranks: rows of one rank stand together. */
static void read_memory(plait_variant *one, const json_t *rows)
{
    size_t i;
    json_t *row;
    int64_t sum = 0, rank = -1;
    plait_measured *m = &one->measured;
    m->memory_as_planned = json_array_size(rows) > 0;
    json_array_foreach(rows, i, row)
    {
        const char *tier = json_string_value(json_object_get(row, "tier"));
        const char *category = json_string_value(json_object_get(row, "category"));
        const plait_rank_class *c = class_of(one, row);
        if (!tier || !category || !c || strcmp(tier, plait_tier_name(PLAIT_TIER_DEVICE)) != 0)
            continue;
        const int kind = kind_of(category);
        const int64_t high_water = whole(row, "high_water");
        m->memory_as_planned &= kind < PLAIT_MEM_KINDS && (int64_t)c->bytes[kind] == high_water;
        sum = whole(row, "rank") == rank ? sum + high_water : high_water;
        rank = whole(row, "rank");
        m->bytes = sum > m->bytes ? sum : m->bytes;
    }
}

static void read_resident(plait_measured *m, const json_t *rows)
{
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        const int64_t grown = whole(row, "peak") - whole(row, "before");
        m->resident = grown > m->resident ? grown : m->resident;
    }
}

/* Every row is in the plan, and the plan has no more. */
static void read_traffic(plait_variant *one, const json_t *rows)
{
    size_t i;
    json_t *row;
    int64_t planned = 0, found = 0;
    const plait_rank_plan *p = &one->plan.plan;
    for (int rank = 0; rank < p->topo.world; rank++)
        for (int g = 0; g < PLAIT_GROUPS; g++)
            for (int k = 0; k < PLAIT_COMM_KINDS; k++)
                planned += p->classes[p->class_of[rank]].traffic[g].calls[k] > 0;
    json_array_foreach(rows, i, row)
    {
        const char *group = json_string_value(json_object_get(row, "group"));
        const char *op = json_string_value(json_object_get(row, "op"));
        const plait_rank_class *c = class_of(one, row);
        for (int g = 0; group && op && c && g < PLAIT_GROUPS; g++)
            for (int k = 0; k < PLAIT_COMM_KINDS; k++)
                found += strcmp(plait_group_name((plait_group)g), group) == 0 &&
                         strcmp(plait_comm_kind_name((plait_comm_kind)k), op) == 0 &&
                         c->traffic[g].calls[k] == whole(row, "calls") && c->traffic[g].bytes[k] == whole(row, "bytes");
    }
    one->measured.communication_as_planned = found == planned && (int64_t)json_array_size(rows) == planned;
}

static plait_status read_metrics(plait_variant *one, const workspace *w, int steps)
{
    plait_status st = PLAIT_OK;
    plait_line_reader lines = {0};
    double *seconds = calloc((size_t)steps + 1, sizeof *seconds);
    size_t length = 0;
    int num = 0;
    if (!seconds)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the times of %d steps", steps);
    PLAIT_TRY_TO(done, st, plait_line_reader_open(&lines, w->metrics));
    for (;;) {
        PLAIT_TRY_TO(done, st, plait_line_reader_next(&lines, &length));
        if (length == 0)
            break;
        json_t *line = json_loads(lines.text, 0, NULL);
        if (!line)
            PLAIT_FAIL_TO(done, st, IO, "%s:%lld: no line of metrics", w->metrics, (long long)lines.number);
        const json_t *time = json_object_get(line, "step_seconds");
        if (json_object_get(line, "memory")) {
            read_memory(one, json_object_get(line, "memory"));
            read_traffic(one, json_object_get(line, "communication"));
            read_resident(&one->measured, json_object_get(line, "resident"));
        } else if (time && num < steps) {
            seconds[num++] = json_number_value(time);
        }
        json_decref(line);
    }
    if (num != steps)
        PLAIT_FAIL_TO(done, st, IO, "%s: %d steps instead of %d", w->metrics, num, steps);
    qsort(seconds + WARM_UP, (size_t)(num - WARM_UP), sizeof *seconds, by_value);
    one->measured.step_seconds = seconds[WARM_UP + (num - WARM_UP) / 2];
    one->measured.done = true;
done:
    plait_line_reader_close(&lines);
    free(seconds);
    return st;
}

plait_status plait_measure(plait_variant *one, const plait_plan_request *request, int ranks,
                           const plait_measure_options *o)
{
    workspace w;
    plait_status st = PLAIT_OK;
    int code = 0;
    one->measured = (plait_measured){0};
    PLAIT_TRY(make_workspace(&w));
    PLAIT_TRY_TO(done, st, run(one, request, ranks, o, &w, &code));
    if (code == 0)
        st = read_metrics(one, &w, o->steps);
    else if (!one->measured.failure[0])
        read_last_words(&w, code, one->measured.failure, sizeof one->measured.failure);
done:
    remove_workspace(&w);
    return st;
}
