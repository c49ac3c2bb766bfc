#include "launcher/planned.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/flops.h"
#include "launcher/training.h"
#include "models/registry.h"
#include "parallel/device.h"

static plait_status load(plait_planned *p, const plait_plan_request *r, const char *const *more, int num_more)
{
    const int num = r->num_overrides + num_more;
    const char **all = calloc((size_t)num + 1, sizeof *all);
    if (!all)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for %d overrides", num);
    for (int i = 0; i < num; i++)
        all[i] = i < r->num_overrides ? r->overrides[i] : more[i - r->num_overrides];
    const plait_status st = plait_config_load(&p->cfg, r->path, all, num);
    free(all);
    return st;
}

/* A plan is of use before there is a text; how many micro-batches an evaluation has is in it alone. */
static plait_status look_at_text(plait_planned *p, plait_run_shape *shape)
{
    const char *path = p->cfg.data.path;
    size_t bytes;
    *shape = (plait_run_shape){0};
    p->host_bytes = -1;
    p->without_evaluations = false;
    if (!path[0] || access(path, R_OK) != 0) {
        p->without_evaluations = p->cfg.train.eval_interval > 0;
        return PLAIT_OK;
    }
    PLAIT_TRY(plait_training_look(&p->cfg, shape, &bytes));
    p->host_bytes = (int64_t)bytes;
    return PLAIT_OK;
}

plait_status plait_planned_init(plait_planned *p, const plait_plan_request *r, const char *const *more, int num_more)
{
    plait_run_shape shape;
    *p = (plait_planned){.world = r->ranks, .machine = r->machine};
    PLAIT_TRY(load(p, r, more, num_more));
    if (p->world == 0)
        PLAIT_TRY(plait_config_natural_world(&p->cfg, &p->world));
    PLAIT_TRY(plait_config_resolve(&p->cfg, p->world));
    /* auto as a run on this machine has it; each rank with a GPU of its own, wherever that is. */
    PLAIT_TRY(plait_device_settle(&p->cfg, (plait_device_room){plait_device_count() > 0, true}));
    PLAIT_TRY(look_at_text(p, &shape));
    return plait_rank_plan_init(&p->plan, &p->cfg, p->world, plait_model_find(p->cfg.model.arch), &shape, r->machine);
}

void plait_planned_deinit(plait_planned *p)
{
    plait_rank_plan_deinit(&p->plan);
    plait_config_deinit(&p->cfg);
}

/* Data ranks of a node, where the machine says how large one is; else all. */
static int data_ranks_of_node(const plait_planned *p)
{
    const plait_topology *t = &p->plan.topo;
    const int node = p->machine ? p->machine->ranks_per_node : 0;
    if (node == 0 || node >= t->tp * t->dp)
        return t->dp;
    return node > t->tp ? node / t->tp : 1;
}

plait_status plait_planned_estimate(plait_planned *p)
{
    const plait_rank_class *c = plait_rank_plan_largest(&p->plan);
    const int per_node = data_ranks_of_node(p);
    const plait_estimate_request r = {.params = c->elements,
                                      .largest_layer_params = c->largest_unit,
                                      .gpus_per_node = per_node,
                                      .nodes = (p->plan.topo.dp + per_node - 1) / per_node,
                                      .stage = (int)p->cfg.zero.stage,
                                      .zero_init = true};
    PLAIT_TRY(plait_estimate_states(&r, &p->estimate));
    p->estimated = true;
    return PLAIT_OK;
}

const char *plait_planned_ranks_are(const plait_planned *p)
{
    if (p->cfg.device.backend != PLAIT_BACKEND_CUDA)
        return "CPU ranks";
    return p->cfg.comm.backend == PLAIT_COMM_NCCL ? "GPUs over NCCL" : "GPUs over host memory and MPI";
}

void plait_planned_refusal(char *text, size_t size)
{
    static const char from[] = "override: ";
    const char *error = plait_error_text();
    if (strncmp(error, from, sizeof from - 1) == 0)
        error += sizeof from - 1;
    snprintf(text, size, "%.*s", (int)strcspn(error, "\n"), error);
}

size_t plait_planned_bytes(const plait_planned *p)
{
    return plait_rank_plan_largest(&p->plan)->total;
}

bool plait_planned_fits(const plait_planned *p)
{
    const size_t limit = (size_t)p->cfg.device.memory_limit;
    return limit == 0 || plait_planned_bytes(p) <= limit;
}

int64_t plait_planned_tokens(const plait_planned *p)
{
    return p->cfg.batch.global_batch_size * p->cfg.model.seq_length;
}

double plait_planned_mfu(const plait_planned *p)
{
    if (!p->plan.predicted)
        return 0;
    const double peak = plait_machine_peak(p->machine, &p->plan.use, p->cfg.precision.dtype);
    const double done = plait_model_flops_per_token(&p->cfg) * (double)plait_planned_tokens(p);
    return peak > 0 ? done / (peak * p->world * p->plan.prediction.step_seconds) : 0;
}

static bool same_traffic(const plait_rank_class *a, const plait_rank_class *b)
{
    for (int g = 0; g < PLAIT_GROUPS; g++)
        for (int k = 0; k < PLAIT_COMM_KINDS; k++)
            if (a->traffic[g].bytes[k] != b->traffic[g].bytes[k] || a->traffic[g].calls[k] != b->traffic[g].calls[k])
                return false;
    return true;
}

bool plait_planned_sends_as_before(const plait_planned *p, int class_index)
{
    for (int i = 0; i < class_index; i++)
        if (same_traffic(&p->plan.classes[i], &p->plan.classes[class_index]))
            return true;
    return false;
}
