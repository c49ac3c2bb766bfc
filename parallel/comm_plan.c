/* Groups of ranks that do not exist: operations are checked, counted and told of, no memory is touched. */
#include "parallel/comm_impl.h"

#include <stdlib.h>

static _Thread_local const plait_comm_listener *ear;
static _Thread_local int starts;

void plait_comm_plan_listen(const plait_comm_listener *listener)
{
    ear = listener;
    starts = 0;
}

int plait_comm_plan_start(const plait_comm *c, const plait_comm_op *ops, int n, bool *heard)
{
    *heard = ear && n > 0 && c->size > 1;
    if (!*heard)
        return -1;
    ear->start(ear->self, c, ops, n, starts);
    return starts++;
}

void plait_comm_plan_wait(int request)
{
    if (ear)
        ear->wait(ear->self, request);
}

static plait_status make(const plait_topology *topo, plait_group kind, const char *name, int *ranks, plait_comm **out)
{
    int size = plait_topology_group(topo, kind, ranks), rank = 0;
    while (ranks[rank] != topo->rank)
        rank++;
    PLAIT_TRY(plait_comm_alloc(name, PLAIT_COMM_PATH_PLAN, rank, size, ranks, out));
    (*out)->topo = *topo;
    (*out)->has_topo = true;
    return PLAIT_OK;
}

plait_status plait_groups_create_plan(const plait_topology *topo, plait_groups *out)
{
    plait_status st = PLAIT_OK;
    *out = (plait_groups){0};
    int *ranks = calloc((size_t)topo->world, sizeof *ranks);
    if (!ranks)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for a list of %d ranks", topo->world);
    PLAIT_TRY_TO(done, st, make(topo, PLAIT_GROUP_WORLD, "world", ranks, &out->world));
    PLAIT_TRY_TO(done, st, make(topo, PLAIT_GROUP_TENSOR, "tensor", ranks, &out->tensor));
    PLAIT_TRY_TO(done, st, make(topo, PLAIT_GROUP_DATA, "data", ranks, &out->data));
    PLAIT_TRY_TO(done, st, make(topo, PLAIT_GROUP_PIPELINE, "pipeline activations", ranks, &out->pipe_act));
    PLAIT_TRY_TO(done, st, make(topo, PLAIT_GROUP_PIPELINE, "pipeline gradients", ranks, &out->pipe_grad));
    PLAIT_TRY_TO(done, st, make(topo, PLAIT_GROUP_EMBEDDING, "embedding", ranks, &out->embedding));
    PLAIT_TRY_TO(done, st, make(topo, PLAIT_GROUP_KV, "key-value", ranks, &out->kv));
done:
    free(ranks);
    if (st != PLAIT_OK)
        plait_groups_destroy(out);
    return st;
}
