#include "launcher/estimator.h"

#define BUFFER_FACTOR 1.5 /* of the host's memory, for buffers */

static plait_status check(const plait_estimate_request *r)
{
    if (r->stage != 2 && r->stage != 3)
        PLAIT_FAIL(USAGE, "the estimator has rules for ZeRO stages 2 and 3, not for %d", r->stage);
    if (r->params < 1 || r->gpus_per_node < 1 || r->nodes < 1)
        PLAIT_FAIL(USAGE, "the estimator needs at least one parameter, GPU and node: %lld, %d, %d",
                   (long long)r->params, r->gpus_per_node, r->nodes);
    if (r->offload_parameters && (r->stage == 2 || !r->offload_optimizer))
        PLAIT_FAIL(USAGE, "the estimator offloads parameters at stage 3, together with the optimizer");
    return PLAIT_OK;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Bytes a parameter on the host where every process first makes the whole model in fp32: 4 for each GPU of the node. */
static double whole_models(const plait_estimate_request *r)
{
    return 4.0 * r->gpus_per_node;
}

static plait_estimate stage2(const plait_estimate_request *r)
{
    const int64_t gpus = (int64_t)r->gpus_per_node * r->nodes;
    const double params = (double)r->params;
    if (r->offload_optimizer)
        return (plait_estimate){.host_bytes = (int64_t)(params * larger(4.0 * (double)gpus, 16) * BUFFER_FACTOR),
                                .device_bytes = 2 * r->params};
    return (plait_estimate){.host_bytes = (int64_t)(params * whole_models(r) * BUFFER_FACTOR),
                            .device_bytes = 2 * r->params + 18 * r->params / gpus};
}

static plait_estimate stage3(const plait_estimate_request *r)
{
    const int64_t gpus = (int64_t)r->gpus_per_node * r->nodes, gathered = 4 * r->largest_layer_params;
    const double params = (double)r->params, largest = (double)r->largest_layer_params;
    if (!r->offload_optimizer)
        return (plait_estimate){.host_bytes =
                                    (int64_t)((r->zero_init ? largest : params) * whole_models(r) * BUFFER_FACTOR),
                                .device_bytes = gathered + 18 * r->params / gpus};
    const double held = (r->offload_parameters ? 18.0 : 16.0) / r->nodes;
    return (plait_estimate){
        .host_bytes = (int64_t)(params * (r->zero_init ? held : larger(whole_models(r), held)) * BUFFER_FACTOR),
        .device_bytes = gathered + (r->offload_parameters ? 0 : 2 * r->params / gpus)};
}

plait_status plait_estimate_states(const plait_estimate_request *r, plait_estimate *out)
{
    PLAIT_TRY(check(r));
    *out = r->stage == 2 ? stage2(r) : stage3(r);
    return PLAIT_OK;
}
