/* launcher/flops.h: model FLOPs of one token of training, as Megatron-LM counts them now. */
#ifndef PLAIT_LAUNCHER_FLOPS_H
#define PLAIT_LAUNCHER_FLOPS_H

#include "core/config.h"

PLAIT_BEGIN_DECLS

/* Forward and backward (3 x forward), without recomputation; a layer: 6 (h (dq + 2 dkv) + dq h + e h ffn) + 6 dq s for
 * the causal half of core attention; then 6 h V for the logits. dq = heads x head size, dkv = groups x head size, e = 3
 * with SwiGLU, else 2. */
double plait_model_flops_per_token(const plait_config *cfg);

PLAIT_END_DECLS
#endif
