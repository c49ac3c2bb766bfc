/* GPT-2 (Radford et al. 2019): learned positions, LayerNorm, GELU (tanh), biases. Weight files hold matrices as [in,
 * out] (Conv1D), and q, k and v as one tensor c_attn. Residual projections start at std / sqrt(2 num_layers)
 * (section 2.3). */
#include <math.h>

#include "models/decoder.h"

enum { RNG_ATTN, RNG_PROJ, RNG_UP, RNG_DOWN };

#define LAYER "transformer.h.%lld."

static plait_status gpt2_layer(const plait_param_builder *b, int64_t layer, plait_layer_params *p)
{
    const long long l = layer;
    const int64_t C = b->cfg->model.hidden_size, F = b->cfg->model.ffn_hidden_size, D = b->cfg->model.kv_channels;
    const int64_t q = b->cfg->model.num_attention_heads * D, kv = b->cfg->model.num_query_groups * D;
    const double std = b->cfg->model.init_method_std, residual = std / sqrt(2.0 * (double)b->cfg->model.num_layers);
    int64_t k, v; /* lie behind q */

    const struct {
        plait_tensor_spec spec;
        int64_t *offset;
        const char *name;
    } tensors[] = {
        {{PLAIT_CUT_ROWS, q, C, 0, q + 2 * kv, true, PLAIT_INIT_NORMAL, std, RNG_ATTN, l},
         &p->qkv,
         LAYER "attn.c_attn.weight"},
        {{PLAIT_CUT_KV, kv, C, q, q + 2 * kv, true, PLAIT_INIT_NORMAL, std, RNG_ATTN, l},
         &k,
         LAYER "attn.c_attn.weight"},
        {{PLAIT_CUT_KV, kv, C, q + kv, q + 2 * kv, true, PLAIT_INIT_NORMAL, std, RNG_ATTN, l},
         &v,
         LAYER "attn.c_attn.weight"},
        {{PLAIT_CUT_COLS, C, q, 0, 0, true, PLAIT_INIT_NORMAL, residual, RNG_PROJ, l},
         &p->proj,
         LAYER "attn.c_proj.weight"},
        {{PLAIT_CUT_ROWS, F, C, 0, 0, true, PLAIT_INIT_NORMAL, std, RNG_UP, l}, &p->up, LAYER "mlp.c_fc.weight"},
        {{PLAIT_CUT_COLS, C, F, 0, 0, true, PLAIT_INIT_NORMAL, residual, RNG_DOWN, l},
         &p->down,
         LAYER "mlp.c_proj.weight"},
        {{PLAIT_CUT_ROWS, q, 0, 0, q + 2 * kv, false, PLAIT_INIT_ZERO, 0, 0, l},
         &p->qkv_bias,
         LAYER "attn.c_attn.bias"},
        {{PLAIT_CUT_KV, kv, 0, q, q + 2 * kv, false, PLAIT_INIT_ZERO, 0, 0, l}, &k, LAYER "attn.c_attn.bias"},
        {{PLAIT_CUT_KV, kv, 0, q + kv, q + 2 * kv, false, PLAIT_INIT_ZERO, 0, 0, l}, &v, LAYER "attn.c_attn.bias"},
        {{PLAIT_CUT_ROWS, F, 0, 0, 0, false, PLAIT_INIT_ZERO, 0, 0, l}, &p->up_bias, LAYER "mlp.c_fc.bias"},
        {{PLAIT_CUT_NONE, C, 0, 0, 0, false, PLAIT_INIT_ONE, 0, 0, l}, &p->norm1, LAYER "ln_1.weight"},
        {{PLAIT_CUT_NONE, C, 0, 0, 0, false, PLAIT_INIT_ZERO, 0, 0, l}, &p->norm1_bias, LAYER "ln_1.bias"},
        {{PLAIT_CUT_NONE, C, 0, 0, 0, false, PLAIT_INIT_ZERO, 0, 0, l}, &p->proj_bias, LAYER "attn.c_proj.bias"},
        {{PLAIT_CUT_NONE, C, 0, 0, 0, false, PLAIT_INIT_ONE, 0, 0, l}, &p->norm2, LAYER "ln_2.weight"},
        {{PLAIT_CUT_NONE, C, 0, 0, 0, false, PLAIT_INIT_ZERO, 0, 0, l}, &p->norm2_bias, LAYER "ln_2.bias"},
        {{PLAIT_CUT_NONE, C, 0, 0, 0, false, PLAIT_INIT_ZERO, 0, 0, l}, &p->down_bias, LAYER "mlp.c_proj.bias"},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        PLAIT_TRY(plait_build_tensor(b, &tensors[i].spec, tensors[i].offset, tensors[i].name, l));
    return PLAIT_OK;
}

const plait_architecture plait_gpt2 = {
    .token_name = "transformer.wte.weight",
    .head_name = "lm_head.weight",
    .final_norm_name = "transformer.ln_f.weight",
    .final_norm_bias_name = "transformer.ln_f.bias",
    .position_name = "transformer.wpe.weight",
    .layer = gpt2_layer,
};
