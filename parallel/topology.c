#include "parallel/topology.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct axis {
    const char *name;
    int degree;
    int *stride; /* NULL: an axis of degree 1 that Plait does not have (context, expert) */
    bool seen;
} axis;

/* Goes through the order string, fastest axis first, and hands out strides. */
static plait_status read_order(const char *order, axis *axes, int num_axes)
{
    int stride = 1;
    for (const char *at = order;;) {
        size_t len = strcspn(at, "-");
        axis *found = NULL;
        for (int i = 0; i < num_axes; i++)
            if (strlen(axes[i].name) == len && memcmp(axes[i].name, at, len) == 0)
                found = &axes[i];
        if (!found)
            PLAIT_FAIL(USAGE,
                       "parallelism.order \"%s\": \"%.*s\" is not an axis; it lists tp, dp and pp, cp and ep at will",
                       order, (int)len, at);
        if (found->seen)
            PLAIT_FAIL(USAGE, "parallelism.order \"%s\" names %s twice", order, found->name);
        found->seen = true;
        if (found->stride)
            *found->stride = stride;
        stride *= found->degree;
        if (at[len] == '\0')
            break;
        at += len + 1;
    }
    for (int i = 0; i < num_axes; i++)
        if (axes[i].stride && !axes[i].seen)
            PLAIT_FAIL(USAGE, "parallelism.order \"%s\" does not name %s", order, axes[i].name);
    return PLAIT_OK;
}

static void set_coordinates(plait_topology *topo, int rank)
{
    topo->rank = rank;
    topo->t = rank / topo->stride_t % topo->tp;
    topo->p = rank / topo->stride_p % topo->pp;
    topo->d = rank / topo->stride_d % topo->dp;
}

plait_status plait_topology_init(plait_topology *topo, int world, int rank, int tp, int pp, int dp, int kv_replicas,
                                 const char *order)
{
    if (tp < 1 || pp < 1 || dp < 1)
        PLAIT_FAIL(USAGE, "tensor %d, pipeline %d and data %d ranks: each must be at least 1", tp, pp, dp);
    /* The first product is checked by itself, so that the second cannot overflow. */
    int64_t model = (int64_t)tp * pp;
    if (model > world || model * dp != world)
        PLAIT_FAIL(USAGE, "%d rank%s, but tensor %d x pipeline %d x data %d is not %d", world, world == 1 ? "" : "s",
                   tp, pp, dp, world);
    if (rank < 0 || rank >= world)
        PLAIT_FAIL(USAGE, "rank %d is not one of %d ranks", rank, world);
    if (kv_replicas < 1 || tp % kv_replicas != 0)
        PLAIT_FAIL(USAGE, "%d tensor ranks cannot be grouped by %d that share a key/value head", tp, kv_replicas);

    *topo = (plait_topology){.world = world, .tp = tp, .pp = pp, .dp = dp, .kv_replicas = kv_replicas};
    axis axes[] = {{"tp", tp, &topo->stride_t, false},
                   {"pp", pp, &topo->stride_p, false},
                   {"dp", dp, &topo->stride_d, false},
                   {"cp", 1, NULL, false},
                   {"ep", 1, NULL, false}};
    PLAIT_TRY(read_order(order, axes, (int)(sizeof axes / sizeof axes[0])));
    set_coordinates(topo, rank);
    return PLAIT_OK;
}

plait_status plait_topology_of(const plait_config *cfg, int world, int rank, plait_topology *topo)
{
    const int tp = (int)cfg->parallelism.tp, replicas = tp / (int)cfg->model.num_query_groups;
    return plait_topology_init(topo, world, rank, tp, (int)cfg->parallelism.pp, (int)cfg->parallelism.dp,
                               replicas > 1 ? replicas : 1, cfg->parallelism.order);
}

int plait_topology_rank_of(const plait_topology *topo, int d, int p, int t)
{
    return t * topo->stride_t + p * topo->stride_p + d * topo->stride_d;
}

plait_topology plait_topology_at(const plait_topology *topo, int rank)
{
    plait_topology other = *topo;
    set_coordinates(&other, rank);
    return other;
}

const char *plait_group_name(plait_group kind)
{
    static const char *const names[PLAIT_GROUPS] = {"world", "tensor", "data", "pipeline", "embedding", "key-value"};
    return (unsigned)kind < PLAIT_GROUPS ? names[kind] : "unknown group";
}

/* Ranks first, first + stride, ... */
static int line_of(int *ranks, int first, int stride, int count)
{
    for (int i = 0; i < count; i++)
        ranks[i] = first + i * stride;
    return count;
}

int plait_topology_group(const plait_topology *topo, plait_group kind, int *ranks)
{
    int d = topo->d, p = topo->p, t = topo->t;
    switch (kind) {
    case PLAIT_GROUP_WORLD:
        return line_of(ranks, 0, 1, topo->world);
    case PLAIT_GROUP_TENSOR:
        return line_of(ranks, plait_topology_rank_of(topo, d, p, 0), topo->stride_t, topo->tp);
    case PLAIT_GROUP_DATA:
        return line_of(ranks, plait_topology_rank_of(topo, 0, p, t), topo->stride_d, topo->dp);
    case PLAIT_GROUP_PIPELINE:
        return line_of(ranks, plait_topology_rank_of(topo, d, 0, t), topo->stride_p, topo->pp);
    case PLAIT_GROUP_EMBEDDING:
        if (topo->pp == 1 || (p != 0 && p != topo->pp - 1))
            return line_of(ranks, topo->rank, 0, 1);
        return line_of(ranks, plait_topology_rank_of(topo, d, 0, t), topo->stride_p * (topo->pp - 1), 2);
    case PLAIT_GROUP_KV:
        return line_of(ranks, plait_topology_rank_of(topo, d, p, t / topo->kv_replicas * topo->kv_replicas),
                       topo->stride_t, topo->kv_replicas);
    case PLAIT_GROUPS:
        break;
    }
    return 0;
}
