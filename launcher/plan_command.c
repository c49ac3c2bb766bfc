/* plait plan: what each rank of a run will hold, by category, and whether it fits. Nothing is run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/commands.h"
#include "launcher/knobs.h"
#include "launcher/machine_file.h"
#include "launcher/options.h"
#include "launcher/output.h"
#include "launcher/outputs.h"
#include "launcher/plan_html.h"
#include "launcher/plan_print.h"
#include "launcher/stop.h"
#include "launcher/usage.h"

typedef struct options {
    const char **words; /* the file, then overrides */
    int num_words;
    int64_t ranks;         /* 0: what the file says */
    const char *machine;   /* NULL: nothing is predicted */
    const char *html;      /* NULL: no page */
    const char *estimator; /* NULL: none */
    bool json;
    plait_option_key limit;
} options;

static plait_status parse(int argc, char **argv, options *o)
{
    *o = (options){.words = calloc((size_t)argc, sizeof *o->words), .limit.key = "device.memory_limit"};
    const plait_option table[] = {
        {"--ranks", PLAIT_OPTION_WHOLE, &o->ranks, 1, 1 << 24},  {"--device-memory", PLAIT_OPTION_KEY, &o->limit, 0, 0},
        {"--machine", PLAIT_OPTION_TEXT, &o->machine, 0, 0},     {"--html", PLAIT_OPTION_TEXT, &o->html, 0, 0},
        {"--estimator", PLAIT_OPTION_TEXT, &o->estimator, 0, 0}, {"--json", PLAIT_OPTION_FLAG, &o->json, 0, 0},
    };
    if (!o->words)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for %d arguments", argc);
    PLAIT_TRY(plait_options_parse(table, sizeof table / sizeof *table, plait_usage_plan, argc, argv, o->words,
                                  &o->num_words));
    PLAIT_TRY(plait_options_file_first(o->words, o->num_words, o->limit.word, plait_usage_plan));
    if (o->estimator && strcmp(o->estimator, "deepspeed") != 0)
        PLAIT_FAIL(USAGE, "--estimator: deepspeed is known, '%s' is not", o->estimator);
    return PLAIT_OK;
}

static plait_status print(const plait_planned *plan, const plait_plan_request *request, bool json)
{
    if (json) {
        plait_plan_print_json(plan, stdout);
        putchar('\n');
        return PLAIT_OK;
    }
    plait_plan_print(plan, stdout);
    return plait_planned_fits(plan) ? PLAIT_OK : plait_knobs_print(plan, request, stdout);
}

/* All has been said by then: for scripts there is the code of a run that does not fit. */
static plait_status check_fits(const plait_planned *plan)
{
    const plait_rank_class *largest = plait_rank_plan_largest(&plan->plan);
    if (plait_planned_fits(plan))
        return PLAIT_OK;
    PLAIT_TRY(plait_output_flush());
    PLAIT_FAIL(OUT_OF_MEMORY, "the plan does not fit: rank %d needs %zu bytes, device.memory_limit is %lld",
               largest->first.rank, largest->total, (long long)plan->cfg.device.memory_limit);
}

static plait_status write_page(const plait_planned *plan, const char *title, const char *path)
{
    plait_stop_hold();
    const plait_status st = plait_plan_html_write(plan, title, path);
    plait_stop_release("");
    return st;
}

static plait_status show(const options *o)
{
    plait_status st = PLAIT_OK;
    plait_machine machine = {0};
    plait_planned plan = {0};
    char title[1024]; /* of the page: the configuration and what changes it */
    plait_options_join(o->words, o->num_words, title, sizeof title);
    const plait_named_file page = {"--html", o->html};
    plait_named_file read[2 + PLAIT_CONFIG_FILES] = {{"the configuration", o->words[0]}, {"--machine", o->machine}};
    PLAIT_TRY(plait_outputs_check(&page, 1, read, 2));
    if (o->machine)
        PLAIT_TRY(plait_machine_read(o->machine, &machine));
    const plait_plan_request request = {.path = o->words[0],
                                        .overrides = o->words + 1,
                                        .num_overrides = o->num_words - 1,
                                        .ranks = (int)o->ranks,
                                        .machine = o->machine ? &machine : NULL};
    PLAIT_TRY_TO(done, st, plait_planned_init(&plan, &request, NULL, 0));
    if (o->estimator)
        PLAIT_TRY_TO(done, st, plait_planned_estimate(&plan));
    plait_outputs_of_config(&plan.cfg, read + 2);
    PLAIT_TRY_TO(done, st, plait_outputs_check(&page, 1, read, 2 + PLAIT_CONFIG_FILES));
    if (o->html)
        PLAIT_TRY_TO(done, st, write_page(&plan, title, o->html));
    PLAIT_TRY_TO(done, st, print(&plan, &request, o->json));
    st = check_fits(&plan);
done:
    plait_planned_deinit(&plan);
    plait_machine_deinit(&machine);
    return st;
}

plait_status plait_command_plan(plait_world *world, int argc, char **argv)
{
    options o;
    plait_stop_report(world, "");
    plait_status st = parse(argc, argv, &o);
    if (o.ranks == 0 && world->size > 1) /* mpiexec -n N: of N ranks */
        o.ranks = world->size;
    if (st == PLAIT_OK && world->rank == 0)
        st = show(&o);
    free(o.words);
    return plait_comm_agree(world->comm, st);
}
