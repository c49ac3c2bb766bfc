/* A rank that does not exist, whose step can be run. */
#include <stdlib.h>

#include "parallel/engine_impl.h"

/* Counting arenas hand out addresses that nobody may follow. A step of the host follows four: of tokens, targets (it
 * counts them), the sums of the step, and in exact mode the losses. */
static plait_status give_host_memory(plait_engine *e)
{
    const plait_config *cfg = e->cfg;
    plait_parts *p = &e->parts;
    const size_t tokens = (size_t)(e->schedules.max_micros * cfg->model.seq_length * cfg->batch.micro_batch_size);
    const size_t losses = (size_t)e->schedules.max_micros * (size_t)e->topo.dp;
    struct host {
        plait_scalars scalars;
        double losses[];
    } *host = calloc(1, sizeof *host + losses * sizeof(double) + 2 * tokens * sizeof(int32_t));
    if (!host)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the samples of a planned step");
    e->dry_memory = host;
    p->host.scalars = &host->scalars;
    if (p->losses)
        p->losses = host->losses;
    p->host.tokens = (int32_t *)(void *)(host->losses + losses);
    p->host.targets = p->host.tokens + tokens;
    return PLAIT_OK;
}

static plait_status create(plait_engine *e, const plait_engine_options *o, int world, int rank)
{
    PLAIT_TRY(plait_topology_of(o->cfg, world, rank, &e->topo));
    PLAIT_TRY(plait_groups_create_plan(&e->topo, &e->groups));
    PLAIT_TRY(plait_engine_plan(e, o));
    PLAIT_TRY(plait_parts_plan(&e->parts, o->cfg));
    PLAIT_TRY(plait_engine_build(e, o));
    plait_hashes_destroy(e->parts.hashes);
    e->parts.hashes = NULL;
    return give_host_memory(e);
}

plait_status plait_engine_create_dry(const plait_engine_options *o, int world, int rank, plait_engine **out)
{
    plait_engine *e = plait_engine_alloc(o);
    if (!e)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the record of the engine");
    const plait_status st = create(e, o, world, rank);
    if (st != PLAIT_OK) {
        plait_engine_destroy(e);
        return st;
    }
    *out = e;
    return PLAIT_OK;
}
