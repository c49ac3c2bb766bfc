/* Llama (Touvron et al. 2023): rotary positions, RMSNorm, SwiGLU, grouped-query attention, no biases. Weight files hold
 * matrices as [out, in] and q, k, v, gate and up as tensors of their own. */
#include "models/decoder.h"

enum { RNG_Q, RNG_K, RNG_V, RNG_PROJ, RNG_GATE, RNG_UP, RNG_DOWN };

#define LAYER "model.layers.%lld."

static plait_status llama_layer(const plait_param_builder *b, int64_t layer, plait_layer_params *p)
{
    const long long l = layer;
    const int64_t C = b->cfg->model.hidden_size, F = b->cfg->model.ffn_hidden_size, D = b->cfg->model.kv_channels;
    const int64_t q = b->cfg->model.num_attention_heads * D, kv = b->cfg->model.num_query_groups * D;
    const double std = b->cfg->model.init_method_std;
    int64_t k, v, up; /* lie behind q and behind gate */

    const struct {
        plait_tensor_spec spec;
        int64_t *offset;
        const char *name;
    } tensors[] = {
        {{PLAIT_CUT_ROWS, q, C, 0, 0, false, PLAIT_INIT_NORMAL, std, RNG_Q, l},
         &p->qkv,
         LAYER "self_attn.q_proj.weight"},
        {{PLAIT_CUT_KV, kv, C, 0, 0, false, PLAIT_INIT_NORMAL, std, RNG_K, l}, &k, LAYER "self_attn.k_proj.weight"},
        {{PLAIT_CUT_KV, kv, C, 0, 0, false, PLAIT_INIT_NORMAL, std, RNG_V, l}, &v, LAYER "self_attn.v_proj.weight"},
        {{PLAIT_CUT_COLS, C, q, 0, 0, false, PLAIT_INIT_NORMAL, std, RNG_PROJ, l},
         &p->proj,
         LAYER "self_attn.o_proj.weight"},
        {{PLAIT_CUT_ROWS, F, C, 0, 0, false, PLAIT_INIT_NORMAL, std, RNG_GATE, l},
         &p->up,
         LAYER "mlp.gate_proj.weight"},
        {{PLAIT_CUT_ROWS, F, C, 0, 0, false, PLAIT_INIT_NORMAL, std, RNG_UP, l}, &up, LAYER "mlp.up_proj.weight"},
        {{PLAIT_CUT_COLS, C, F, 0, 0, false, PLAIT_INIT_NORMAL, std, RNG_DOWN, l},
         &p->down,
         LAYER "mlp.down_proj.weight"},
        {{PLAIT_CUT_NONE, C, 0, 0, 0, false, PLAIT_INIT_ONE, 0, 0, l}, &p->norm1, LAYER "input_layernorm.weight"},
        {{PLAIT_CUT_NONE, C, 0, 0, 0, false, PLAIT_INIT_ONE, 0, 0, l},
         &p->norm2,
         LAYER "post_attention_layernorm.weight"},
    };
    p->norm1_bias = p->qkv_bias = p->proj_bias = p->norm2_bias = p->up_bias = p->down_bias = -1;
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        PLAIT_TRY(plait_build_tensor(b, &tensors[i].spec, tensors[i].offset, tensors[i].name, l));
    return PLAIT_OK;
}

const plait_architecture plait_llama = {
    .rms_norm = true,
    .rope = true,
    .swiglu = true,
    .token_name = "model.embed_tokens.weight",
    .head_name = "lm_head.weight",
    .final_norm_name = "model.norm.weight",
    .layer = llama_layer,
};
