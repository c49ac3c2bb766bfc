/* parallel/model.h: what parallel/ asks of a kind of model. models/ fills it; the launcher hands it over. */
#ifndef PLAIT_PARALLEL_MODEL_H
#define PLAIT_PARALLEL_MODEL_H

#include "parallel/stage.h"
#include "parallel/zero.h"

PLAIT_BEGIN_DECLS

typedef struct plait_model_args {
    const plait_config *cfg; /* resolved; outlives the model, like everything here */
    const plait_topology *topo;
    const plait_groups *groups;
    const plait_param_list *list; /* of params() below */
    plait_zero *zero;
    const plait_exec *ex;
    plait_arena *acts; /* for what all slots share: the sets that recomputation replays into */
} plait_model_args;

typedef struct plait_model_ops {
    const char *name;
    /* The parameters of one rank, from arithmetic alone. */
    plait_status (*params)(const plait_config *cfg, const plait_topology *topo, plait_param_list *out);
    plait_status (*create)(const plait_model_args *args, plait_stage *out);
    void (*destroy)(plait_stage *stage);
} plait_model_ops;

PLAIT_END_DECLS
#endif
