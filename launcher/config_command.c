/* plait config: the resolved configuration with the origin of each value, and what the ranks would hold of the model.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/banner.h"
#include "launcher/commands.h"
#include "launcher/stop.h"
#include "launcher/usage.h"
#include "models/registry.h"

typedef struct options {
    const char *path;
    const char **overrides;
    int num_overrides, ranks; /* ranks 0: what the file says */
    bool json, reference;
} options;

static plait_status parse(int argc, char **argv, options *o)
{
    *o = (options){.overrides = calloc((size_t)argc, sizeof *o->overrides)};
    if (!o->overrides)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for %d arguments", argc);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            o->json = true;
        } else if (strcmp(argv[i], "--reference") == 0) {
            o->reference = true;
        } else if (strcmp(argv[i], "--ranks") == 0) {
            int64_t ranks;
            PLAIT_TRY(plait_option_whole("--ranks", i + 1 < argc ? argv[i + 1] : NULL, 1, 1 << 24, &ranks));
            o->ranks = (int)ranks;
            i++;
        } else if (argv[i][0] == '-') {
            PLAIT_FAIL(USAGE, "plait config: unknown option %s\n%s", argv[i], plait_usage_config);
        } else if (!o->path) {
            o->path = argv[i];
        } else {
            o->overrides[o->num_overrides++] = argv[i];
        }
    }
    if (!o->path && !o->reference)
        PLAIT_FAIL(USAGE, "%s", plait_usage_config);
    return PLAIT_OK;
}

/* Counts from the parameter lists of the model itself: each stage over its tensor ranks. */
static plait_status print_parameters(const plait_config *cfg, int world)
{
    const plait_model_ops *model = plait_model_find(cfg->model.arch);
    int64_t total = 0;
    plait_topology topo;
    PLAIT_TRY(plait_topology_of(cfg, world, 0, &topo));
    printf("\nparameters on %d rank%s = tensor %d x pipeline %d x data %d\n", world, world == 1 ? "" : "s", topo.tp,
           topo.pp, topo.dp);
    for (int p = 0; p < topo.pp; p++) {
        int64_t stage = 0, held = 0;
        for (int t = 0; t < topo.tp; t++) {
            plait_topology there = plait_topology_at(&topo, plait_topology_rank_of(&topo, 0, p, t));
            plait_param_list list;
            PLAIT_TRY(model->params(cfg, &there, &list));
            stage += plait_param_list_counted(&list);
            held = plait_param_list_numel(&list) > held ? plait_param_list_numel(&list) : held;
            plait_param_list_deinit(&list);
        }
        total += stage;
        printf("  stage %-4d %20s   at most %s on a rank, padding and copies included\n", p, plait_grouped(stage),
               plait_grouped(held));
    }
    printf("  in all     %20s\n", plait_grouped(total));
    return PLAIT_OK;
}

static plait_status show(const options *o)
{
    plait_config cfg = {0};
    plait_status st = PLAIT_OK;
    int world = o->ranks;
    if (o->reference) {
        plait_config_print_reference(stdout);
        return PLAIT_OK;
    }
    PLAIT_TRY(plait_config_load(&cfg, o->path, o->overrides, o->num_overrides));
    if (world == 0)
        PLAIT_TRY_TO(done, st, plait_config_natural_world(&cfg, &world));
    PLAIT_TRY_TO(done, st, plait_config_resolve(&cfg, world));
    PLAIT_TRY_TO(done, st, plait_config_check_files(&cfg));
    plait_config_print_idle(&cfg, stderr);
    plait_config_print(&cfg, stdout, o->json);
    if (!o->json)
        PLAIT_TRY_TO(done, st, print_parameters(&cfg, world));
done:
    plait_config_deinit(&cfg);
    return st;
}

plait_status plait_command_config(plait_world *world, int argc, char **argv)
{
    options o;
    plait_stop_report(world, "");
    plait_status st = parse(argc, argv, &o);
    if (st == PLAIT_OK && world->rank == 0)
        st = show(&o);
    free(o.overrides);
    return plait_comm_agree(world->comm, st);
}
