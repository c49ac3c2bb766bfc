/* models/registry.h: architecture -> model. */
#ifndef PLAIT_MODELS_REGISTRY_H
#define PLAIT_MODELS_REGISTRY_H

#include "parallel/model.h"

PLAIT_BEGIN_DECLS

const plait_model_ops *plait_model_find(plait_arch arch);

PLAIT_END_DECLS
#endif
