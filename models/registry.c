#include "models/registry.h"

#include "models/decoder.h"

static plait_status gpt2_params(const plait_config *cfg, const plait_topology *topo, plait_param_list *out)
{
    return plait_decoder_params(&plait_gpt2, cfg, topo, out);
}

static plait_status gpt2_create(const plait_model_args *args, plait_stage *out)
{
    return plait_decoder_create(&plait_gpt2, args, out);
}

static plait_status llama_params(const plait_config *cfg, const plait_topology *topo, plait_param_list *out)
{
    return plait_decoder_params(&plait_llama, cfg, topo, out);
}

static plait_status llama_create(const plait_model_args *args, plait_stage *out)
{
    return plait_decoder_create(&plait_llama, args, out);
}

const plait_model_ops *plait_model_find(plait_arch arch)
{
    static const plait_model_ops gpt2 = {"gpt2", gpt2_params, gpt2_create, plait_decoder_destroy};
    static const plait_model_ops llama = {"llama", llama_params, llama_create, plait_decoder_destroy};
    return arch == PLAIT_ARCH_GPT2 ? &gpt2 : &llama;
}
