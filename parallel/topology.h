/* parallel/topology.h: which rank is which part of the model, and which ranks work together.
 *
 * world = tp x pp x dp. A rank has three coordinates: d (data), p (pipeline stage), t (tensor). The order string says
 * which axis varies fastest with the rank number, e.g. "tp-cp-ep-dp-pp": neighbours are tensor ranks (they talk most),
 * then data ranks, then pipeline stages. It is arithmetic alone: a plan asks it without MPI.
 */
#ifndef PLAIT_PARALLEL_TOPOLOGY_H
#define PLAIT_PARALLEL_TOPOLOGY_H

#include "core/config.h"

#include <stdbool.h>

PLAIT_BEGIN_DECLS

typedef struct plait_topology {
    int world, rank;
    int tp, pp, dp;                   /* degrees */
    int t, p, d;                      /* this rank's coordinates */
    int stride_t, stride_p, stride_d; /* rank = t stride_t + p stride_p + d stride_d */
    int kv_replicas;                  /* tensor ranks that share a key/value head: max(1, tp / num_query_groups) */
} plait_topology;

/* PLAIT_USAGE unless world = tp pp dp, all at least 1, 0 <= rank < world, and the order string names tp, dp and pp once
 * each (cp and ep, always 1, may be left out). */
PLAIT_MUST_USE plait_status plait_topology_init(plait_topology *topo, int world, int rank, int tp, int pp, int dp,
                                                int kv_replicas, const char *order);
/* The topology that a resolved configuration describes. */
PLAIT_MUST_USE plait_status plait_topology_of(const plait_config *cfg, int world, int rank, plait_topology *topo);
int plait_topology_rank_of(const plait_topology *topo, int d, int p, int t);
/* The same topology seen from another rank. */
plait_topology plait_topology_at(const plait_topology *topo, int rank);

/* Kinds of groups. A rank is in one group of each kind. */
typedef enum plait_group {
    PLAIT_GROUP_WORLD,
    PLAIT_GROUP_TENSOR,
    PLAIT_GROUP_DATA,
    PLAIT_GROUP_PIPELINE,  /* ranked by stage */
    PLAIT_GROUP_EMBEDDING, /* first and last stage, one rank when pp is 1; ranks of other stages: themselves alone */
    PLAIT_GROUP_KV,        /* tensor ranks that share key/value heads: blocks of kv_replicas */
    PLAIT_GROUPS
} plait_group;

/* "world", "tensor", "data", "pipeline", "embedding", "key-value" */
const char *plait_group_name(plait_group kind);
/* The ranks of this rank's group of that kind, in group order, into ranks[world]; returns their number. */
int plait_topology_group(const plait_topology *topo, plait_group kind, int *ranks);

PLAIT_END_DECLS
#endif
