/* launcher/estimator.h: model states by the rules of DeepSpeed's estimator (estimate_zero2_model_states_mem_needs and
 * estimate_zero3_..., deepspeed/runtime/zero), for those who compare with it.
 *
 * It is not how Plait knows its memory (parallel/rank_plan.h): it counts 18 bytes a parameter for 16-bit parameters and
 * gradients, fp32 gradients, fp32 copies and two moments; 4 bytes for each of the largest layer's, gathered; of the
 * host half as much again for buffers; and neither activations nor what communication takes.
 */
#ifndef PLAIT_LAUNCHER_ESTIMATOR_H
#define PLAIT_LAUNCHER_ESTIMATOR_H

#include "core/status.h"

#include <stdbool.h>
#include <stdint.h>

PLAIT_BEGIN_DECLS

typedef struct plait_estimate_request {
    int64_t params, largest_layer_params; /* of the model, of its largest layer (stage 3) */
    int gpus_per_node, nodes;
    int stage;               /* 2 or 3 */
    bool offload_optimizer;  /* to the host: optimizer states and gradients */
    bool offload_parameters; /* stage 3, and only with the optimizer: parameters too */
    bool zero_init;          /* stage 3: each process makes its own part of the model alone, never the whole */
} plait_estimate_request;

typedef struct plait_estimate {
    int64_t host_bytes;   /* of a node */
    int64_t device_bytes; /* of a GPU */
} plait_estimate;

/* PLAIT_USAGE for another stage, for counts below 1, and for parameters that are to be offloaded without the optimizer
 * or at stage 2. */
PLAIT_MUST_USE plait_status plait_estimate_states(const plait_estimate_request *r, plait_estimate *out);

PLAIT_END_DECLS
#endif
