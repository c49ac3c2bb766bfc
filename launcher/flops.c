#include "launcher/flops.h"

double plait_model_flops_per_token(const plait_config *cfg)
{
    double h = (double)cfg->model.hidden_size, s = (double)cfg->model.seq_length;
    double dq = (double)(cfg->model.num_attention_heads * cfg->model.kv_channels);
    double dkv = (double)(cfg->model.num_query_groups * cfg->model.kv_channels);
    double matrices = cfg->model.swiglu ? 3.0 : 2.0;
    double layer = 6 * (h * (dq + 2 * dkv) + dq * h + matrices * h * (double)cfg->model.ffn_hidden_size) + 6 * dq * s;
    return (double)cfg->model.num_layers * layer + 6 * h * (double)cfg->model.vocab_size;
}
