/* plait compare: one model in every way that a number of ranks allows, planned and, if asked, run. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/file.h"
#include "launcher/commands.h"
#include "launcher/compare_html.h"
#include "launcher/compare_print.h"
#include "launcher/machine_file.h"
#include "launcher/measure.h"
#include "launcher/options.h"
#include "launcher/output.h"
#include "launcher/outputs.h"
#include "launcher/stop.h"
#include "launcher/usage.h"

typedef struct options {
    const char **words; /* the file, then overrides */
    int num_words;
    int64_t ranks; /* 0: what the file says */
    int64_t steps;
    const char *machine, *json, *html; /* NULL: none */
    bool measure;
    plait_option_key limit;
    plait_measure_options run;
} options;

enum { NOT_SAID = -1 };

/* How runs are made; without runs nobody should say. */
static plait_status settle_run(options *o)
{
    if (!o->measure && (o->steps != NOT_SAID || o->run.limit > 0 || o->run.mpiexec))
        PLAIT_FAIL(USAGE, "--steps, --limit and --mpiexec are of runs: they come with --measure");
    o->run.steps = o->steps == NOT_SAID ? 7 : (int)o->steps;
    if (o->run.limit < 0)
        o->run.limit = 600;
    if (!o->run.mpiexec)
        o->run.mpiexec = "mpiexec";
    if (o->run.mpiexec[strspn(o->run.mpiexec, " ")] == '\0')
        PLAIT_FAIL(USAGE, "--mpiexec: no command");
    return PLAIT_OK;
}

static plait_status parse(int argc, char **argv, options *o)
{
    *o = (options){.words = calloc((size_t)argc, sizeof *o->words),
                   .steps = NOT_SAID,
                   .limit.key = "device.memory_limit",
                   .run = {.limit = NOT_SAID}};
    const plait_option table[] = {
        {"--ranks", PLAIT_OPTION_WHOLE, &o->ranks, 1, 1 << 16},
        {"--device-memory", PLAIT_OPTION_KEY, &o->limit, 0, 0},
        {"--machine", PLAIT_OPTION_TEXT, &o->machine, 0, 0},
        {"--measure", PLAIT_OPTION_FLAG, &o->measure, 0, 0},
        {"--steps", PLAIT_OPTION_WHOLE, &o->steps, 3, 100000},
        {"--limit", PLAIT_OPTION_NUMBER, &o->run.limit, 1, 1e6},
        {"--mpiexec", PLAIT_OPTION_TEXT, &o->run.mpiexec, 0, 0},
        {"--json", PLAIT_OPTION_TEXT, &o->json, 0, 0},
        {"--html", PLAIT_OPTION_TEXT, &o->html, 0, 0},
    };
    if (!o->words)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for %d arguments", argc);
    PLAIT_TRY(plait_options_parse(table, sizeof table / sizeof *table, plait_usage_compare, argc, argv, o->words,
                                  &o->num_words));
    PLAIT_TRY(plait_options_file_first(o->words, o->num_words, o->limit.word, plait_usage_compare));
    return settle_run(o);
}

static plait_status measure(plait_variants *v, const plait_plan_request *request, const options *o)
{
    int num = 0;
    plait_stop_install();
    for (int i = 0; i < v->num; i++) {
        plait_variant *one = &v->all[i];
        if (!one->legal)
            continue;
        fprintf(stderr, "plait: measuring %d of %d: %s\n", ++num, v->num - v->num_illegal, one->name);
        PLAIT_TRY(plait_measure(one, request, v->ranks, &o->run));
    }
    return PLAIT_OK;
}

/* Files of the runs; the same for all variants. None when no variant is possible. */
static int files_of(const plait_variants *v, plait_named_file files[PLAIT_CONFIG_FILES])
{
    const plait_variant *first = plait_variants_first(v);
    if (!first)
        return 0;
    plait_outputs_of_config(&first->plan.cfg, files);
    return PLAIT_CONFIG_FILES;
}

/* A comparison whose runs all failed has compared nothing. */
static plait_status any_measured(const plait_variants *v)
{
    const char *failure = "";
    for (int i = 0; i < v->num; i++) {
        if (v->all[i].measured.done)
            return PLAIT_OK;
        if (!failure[0])
            failure = v->all[i].measured.failure;
    }
    PLAIT_FAIL(IO, "none of the runs could be measured; the first: %s", failure);
}

/* All has been said by then: for scripts there is the code of a run that does not fit. */
static plait_status any_fits(const plait_variants *v)
{
    const plait_variant *first = plait_variants_first(v);
    if (!first || plait_variants_some_fit(v)) /* none at all is no question of memory */
        return PLAIT_OK;
    PLAIT_TRY(plait_output_flush());
    PLAIT_FAIL(OUT_OF_MEMORY, "none of the %d variants fits device.memory_limit %lld", v->num - v->num_illegal,
               (long long)first->plan.cfg.device.memory_limit);
}

static void print_json(const void *self, FILE *out)
{
    plait_compare_print_json(self, out);
}

static plait_status write_files(const plait_variants *v, const char *title, const options *o)
{
    plait_status st = PLAIT_OK;
    plait_stop_hold();
    if (o->json)
        PLAIT_TRY_TO(done, st, plait_file_write_text(o->json, print_json, v));
    if (o->html)
        PLAIT_TRY_TO(done, st, plait_compare_html_write(v, title, o->html));
done:
    plait_stop_release("");
    return st;
}

static plait_status compare(const options *o)
{
    plait_status st = PLAIT_OK;
    plait_machine machine = {0};
    plait_variants v = {0};
    char title[1024]; /* of the page: the configuration and what changes it */
    plait_options_join(o->words, o->num_words, title, sizeof title);
    const plait_named_file written[] = {{"--json", o->json}, {"--html", o->html}};
    plait_named_file read[2 + PLAIT_CONFIG_FILES] = {{"the configuration", o->words[0]}, {"--machine", o->machine}};
    PLAIT_TRY(plait_outputs_check(written, 2, read, 2));
    if (o->machine)
        PLAIT_TRY(plait_machine_read(o->machine, &machine));
    const plait_plan_request request = {.path = o->words[0],
                                        .overrides = o->words + 1,
                                        .num_overrides = o->num_words - 1,
                                        .ranks = (int)o->ranks,
                                        .machine = o->machine ? &machine : NULL};
    PLAIT_TRY_TO(done, st, plait_variants_init(&v, &request, isatty(STDERR_FILENO) ? stderr : NULL));
    PLAIT_TRY_TO(done, st, plait_outputs_check(written, 2, read, 2 + files_of(&v, read + 2)));
    if (o->measure)
        PLAIT_TRY_TO(done, st, measure(&v, &request, o));
    plait_compare_print(&v, stdout);
    PLAIT_TRY_TO(done, st, write_files(&v, title, o));
    PLAIT_TRY_TO(done, st, any_fits(&v));
    if (o->measure)
        st = any_measured(&v);
done:
    plait_variants_deinit(&v);
    plait_machine_deinit(&machine);
    return st;
}

plait_status plait_command_compare(plait_world *world, int argc, char **argv)
{
    options o;
    plait_stop_report(world, "");
    plait_status st = parse(argc, argv, &o);
    if (st == PLAIT_OK && world->size > 1)
        st = plait_error_set(PLAIT_USAGE, __FILE__, __LINE__,
                             "plait compare starts its runs itself: it is not to be started under mpiexec");
    if (st == PLAIT_OK)
        st = compare(&o);
    free(o.words);
    return plait_comm_agree(world->comm, st);
}
