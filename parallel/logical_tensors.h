/* parallel/logical_tensors.h: the tensors of the whole model, as a weight file names them, whoever has which part.
 */
#ifndef PLAIT_PARALLEL_LOGICAL_TENSORS_H
#define PLAIT_PARALLEL_LOGICAL_TENSORS_H

#include "parallel/model.h"

PLAIT_BEGIN_DECLS

typedef struct plait_logical_tensors {
    const plait_param **params; /* one parameter of each tensor: it knows name and shape */
    int count;
    plait_param_list *lists; /* of all tensor ranks and stages: own the parameters */
    int num_lists;
} plait_logical_tensors;

/* Every tensor that some rank counts, once, sorted by name. */
PLAIT_MUST_USE plait_status plait_logical_tensors_init(plait_logical_tensors *l, const plait_config *cfg,
                                                       const plait_topology *topo, const plait_model_ops *model);
/* Of a zeroed one is fine. */
void plait_logical_tensors_deinit(plait_logical_tensors *l);
/* -1: there is none of that name. */
int plait_logical_tensors_find(const plait_logical_tensors *l, const char *name);

PLAIT_END_DECLS
#endif
