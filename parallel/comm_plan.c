/* Groups of ranks that do not exist: operations are checked and counted, no memory is touched. */
#include "parallel/comm_impl.h"

#include <stdlib.h>

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
