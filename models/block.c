/* One transformer layer, pre-norm, forward and backward side by side.
 *
 *   mid = x   + dropout(row(attention(rope(col(norm1(x))))) + bias)
 *   out = mid + dropout(row(activation(col(norm2(mid)))) + bias)
 *
 * col and row are the split linear layers (parallel/tensor.h): between them a rank has its heads and its part of the
 * ffn. */
#include <math.h>

#include "models/decoder_impl.h"

/* Gives `kept`, or a temporary where the layer does not keep it. */
static plait_status kept_or_temp(const plait_exec *ex, void *kept, plait_dtype dtype, int64_t n, void **out)
{
    *out = kept;
    return kept ? PLAIT_OK : plait_temp(ex, dtype, n, out);
}

/* The split layer whose first slice's matrix and bias lie at these offsets of the unit; bias -1: none, or added after
 * the sum. */
static plait_linear linear(const plait_decoder *m, const plait_layer_params *p, const plait_unit_view *v, int64_t in,
                           int64_t out, int64_t weight, int64_t bias)
{
    return (plait_linear){.rows = m->dims.rows,
                          .in = in,
                          .out = out,
                          .stride = p->stride,
                          .weight = plait_weight(m, v, weight),
                          .bias = plait_weight(m, v, bias),
                          .grad_weight = plait_grad(m, v, weight),
                          .grad_bias = plait_grad(m, v, bias)};
}

static plait_linear qkv_layer(const plait_decoder *m, const plait_layer_params *p, const plait_unit_view *v)
{
    return linear(m, p, v, m->dims.hidden, m->dims.qkv, p->qkv, p->qkv_bias);
}

static plait_linear proj_layer(const plait_decoder *m, const plait_layer_params *p, const plait_unit_view *v)
{
    return linear(m, p, v, m->dims.heads * m->dims.head_dim, m->dims.hidden, p->proj, -1);
}

static plait_linear up_layer(const plait_decoder *m, const plait_layer_params *p, const plait_unit_view *v)
{
    return linear(m, p, v, m->dims.hidden, m->dims.up, p->up, p->up_bias);
}

static plait_linear down_layer(const plait_decoder *m, const plait_layer_params *p, const plait_unit_view *v)
{
    return linear(m, p, v, m->dims.ffn, m->dims.hidden, p->down, -1);
}

/* Attention of the heads of slice i inside its rows of q | k | v. */
static plait_attention core_attention(const plait_decoder *m, int i, const void *qkv, void *attn, void *lse)
{
    const plait_decoder_dims *d = &m->dims;
    const plait_dtype T = m->tp.dtype;
    const int64_t width = d->heads * d->head_dim;
    qkv = plait_at(qkv, T, i * d->rows * d->qkv);
    return (plait_attention){.batch = d->batch,
                             .seq = d->seq,
                             .heads = d->heads,
                             .kv_heads = d->kv_heads,
                             .head_dim = d->head_dim,
                             .scale = 1.0 / sqrt((double)d->head_dim),
                             .q = qkv,
                             .k = plait_at(qkv, T, width),
                             .v = plait_at(qkv, T, width + d->kv_heads * d->head_dim),
                             .ldq = d->qkv,
                             .ldk = d->qkv,
                             .ldv = d->qkv,
                             .o = plait_at(attn, T, i * d->rows * width),
                             .ldo = width,
                             .lse = plait_at(lse, plait_dtype_acc(T), i * d->rows * d->heads)};
}

/* The same with the masks of this call; `drop` holds them. */
static plait_attention dropped_attention(const plait_decoder *m, const plait_call *c, int64_t layer, int i,
                                         const void *qkv, void *attn, void *lse, plait_dropout *drop)
{
    plait_attention a = core_attention(m, i, qkv, attn, lse);
    a.dropout = plait_drop(m, c, PLAIT_RNG_DROPOUT_ATTN, layer, m->a.cfg->model.attention_dropout, drop);
    drop->head0 += i * m->dims.heads;
    return a;
}

static plait_status attention_fwd(const plait_decoder *m, const plait_call *c, int64_t layer, const void *qkv,
                                  void *attn, void *lse)
{
    for (int i = 0; i < m->tp.slices; i++) {
        plait_dropout drop = {0};
        const plait_attention a = dropped_attention(m, c, layer, i, qkv, attn, lse, &drop);
        PLAIT_TRY(c->ex->k->attention_fwd(c->ex, &a));
    }
    return PLAIT_OK;
}

/* q and k are neighbours: one rotation over heads + kv_heads. */
static plait_status rotate(const plait_decoder *m, const plait_exec *ex, void *qkv, bool inverse)
{
    const plait_decoder_dims *d = &m->dims;
    for (int i = 0; m->rope && i < m->tp.slices; i++)
        PLAIT_TRY(ex->k->rope(ex, plait_at(qkv, m->tp.dtype, i * d->rows * d->qkv), d->qkv, m->rope, d->seq, d->batch,
                              d->heads + d->kv_heads, d->head_dim, inverse));
    return PLAIT_OK;
}

static plait_status activation_fwd(const plait_decoder *m, const plait_exec *ex, void *act, const void *up)
{
    const plait_decoder_dims *d = &m->dims;
    for (int i = 0; i < m->tp.slices; i++) {
        void *y = plait_at(act, m->tp.dtype, i * d->rows * d->ffn);
        const void *x = plait_at(up, m->tp.dtype, i * d->rows * d->up);
        PLAIT_TRY(m->arch->swiglu ? ex->k->swiglu_fwd(ex, y, x, d->rows, d->ffn)
                                  : ex->k->gelu_fwd(ex, y, x, d->rows * d->ffn));
    }
    return PLAIT_OK;
}

/* GELU is computed with the product before it, and its slope with the product before that: no pass of their own. */
static bool gelu_in_products(const plait_decoder *m, const plait_exec *ex)
{
    return !m->arch->swiglu && ex->k->epilogues;
}

/* d_up over `up` itself (SwiGLU), whose values nobody needs afterwards, or over d_act (GELU). */
static plait_status activation_bwd(const plait_decoder *m, const plait_exec *ex, void *d_act, void *up, void **d_up)
{
    const plait_decoder_dims *d = &m->dims;
    *d_up = m->arch->swiglu ? up : d_act;
    for (int i = 0; i < m->tp.slices; i++) {
        void *dy = plait_at(d_act, m->tp.dtype, i * d->rows * d->ffn),
             *x = plait_at(up, m->tp.dtype, i * d->rows * d->up);
        PLAIT_TRY(m->arch->swiglu ? ex->k->swiglu_bwd(ex, x, dy, x, d->rows, d->ffn)
                                  : ex->k->gelu_bwd(ex, dy, dy, x, d->rows * d->ffn));
    }
    return PLAIT_OK;
}

/* Where a result of this layer is recorded. */
static plait_hash_place result(int64_t layer, plait_hash_op op)
{
    return (plait_hash_place){.layer = layer, .op = op};
}

/* The gradient of that result. */
static plait_hash_place gradient(int64_t layer, plait_hash_op op)
{
    return (plait_hash_place){.layer = layer, .op = op, .backward = true};
}

/* s->up, and from it *act where it is wanted: s->act, or a temporary. */
static plait_status up_fwd(const plait_decoder *m, const plait_call *c, int64_t layer, plait_linear *up,
                           plait_layer_saved *s, const void *norm, bool wanted, void **act)
{
    const plait_decoder_dims *d = &m->dims;
    const plait_exec *ex = c->ex;
    const int64_t n = d->slices * d->rows * d->ffn;
    const bool in_product = wanted && gelu_in_products(m, ex);
    if (in_product)
        PLAIT_TRY(kept_or_temp(ex, s->act, m->tp.dtype, n, &up->gelu));
    PLAIT_TRY(plait_col_linear_fwd(&m->tp, ex, up, norm, s->up));
    PLAIT_TRY(plait_hash_blocks(m, c, result(layer, PLAIT_HASH_UP), s->up, d->up));
    *act = up->gelu;
    if (in_product || !wanted)
        return PLAIT_OK;
    PLAIT_TRY(kept_or_temp(ex, s->act, m->tp.dtype, n, act));
    return activation_fwd(m, ex, *act, s->up);
}

plait_status plait_block_bind(const plait_decoder *m, plait_arena *mem, plait_layer_saved *s)
{
    const plait_decoder_dims *d = &m->dims;
    const plait_dtype T = m->tp.dtype, A = plait_dtype_acc(T);
    const int64_t rows = d->slices * d->rows; /* of all slices */
    const unsigned again =
        m->a.cfg->recompute.granularity == PLAIT_RECOMPUTE_SELECTIVE ? m->a.cfg->recompute.modules : 0;
    const struct {
        void **place;
        plait_dtype dtype;
        int64_t n;
        bool kept;
    } tensors[] = {
        {&s->norm1, T, d->local_rows * d->hidden, !(again & PLAIT_MODULE_NORMS)},
        {&s->mean1, A, d->local_rows, !m->arch->rms_norm},
        {&s->rstd1, A, d->local_rows, true},
        {&s->qkv, T, rows * d->qkv, true},
        {&s->attn, T, rows * d->heads * d->head_dim, !(again & PLAIT_MODULE_CORE_ATTN)},
        {&s->lse, A, rows * d->heads, true},
        {&s->mid, T, d->local_rows * d->hidden, true},
        {&s->norm2, T, d->local_rows * d->hidden, !(again & PLAIT_MODULE_NORMS)},
        {&s->mean2, A, d->local_rows, !m->arch->rms_norm},
        {&s->rstd2, A, d->local_rows, true},
        {&s->up, T, rows * d->up, true},
        {&s->act, T, rows * d->ffn, !(again & PLAIT_MODULE_MLP_ACT)},
    };
    *s = (plait_layer_saved){0};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (tensors[i].kept)
            PLAIT_TRY(
                plait_arena_take(mem, (size_t)tensors[i].n * plait_dtype_size(tensors[i].dtype), tensors[i].place));
    return PLAIT_OK;
}

plait_status plait_block_fwd(const plait_decoder *m, const plait_call *c, int64_t layer, const plait_layer_params *p,
                             const plait_unit_view *v, plait_layer_saved *s, const void *x, void *out)
{
    const plait_decoder_dims *d = &m->dims;
    const plait_exec *ex = c->ex;
    const plait_dtype T = m->tp.dtype;
    const double hidden_dropout = m->a.cfg->model.hidden_dropout;
    const size_t mark = plait_arena_mark(ex->work);
    plait_dropout storage;
    void *norm, *attn, *act;

    /* attention */
    s->x = x;
    PLAIT_TRY(kept_or_temp(ex, s->norm1, T, d->local_rows * d->hidden, &norm));
    PLAIT_TRY(plait_norm_fwd(m, ex, norm, s->mean1, s->rstd1, x, plait_weight(m, v, p->norm1),
                             plait_weight(m, v, p->norm1_bias)));
    PLAIT_TRY(plait_hash_rows(m, c, result(layer, PLAIT_HASH_INPUT_LAYERNORM), norm));
    plait_linear qkv = qkv_layer(m, p, v);
    PLAIT_TRY(plait_col_linear_fwd(&m->tp, ex, &qkv, norm, s->qkv));
    PLAIT_TRY(plait_hash_blocks(m, c, result(layer, PLAIT_HASH_QKV), s->qkv, d->qkv));
    PLAIT_TRY(rotate(m, ex, s->qkv, false));
    if (m->rope)
        PLAIT_TRY(plait_hash_blocks(m, c, result(layer, PLAIT_HASH_ROPE), s->qkv, d->qkv));
    PLAIT_TRY(kept_or_temp(ex, s->attn, T, d->slices * d->rows * d->heads * d->head_dim, &attn));
    PLAIT_TRY(attention_fwd(m, c, layer, s->qkv, attn, s->lse));
    PLAIT_TRY(plait_hash_blocks(m, c, result(layer, PLAIT_HASH_CORE_ATTN), attn, d->heads * d->head_dim));
    plait_linear proj = proj_layer(m, p, v);
    PLAIT_TRY(plait_row_linear_fwd(&m->tp, ex, &proj, attn, s->mid));
    PLAIT_TRY(plait_hash_rows(m, c, result(layer, PLAIT_HASH_PROJ), s->mid));
    PLAIT_TRY(ex->k->bias_dropout_add_fwd(ex, s->mid, s->mid, plait_weight(m, v, p->proj_bias), x,
                                          plait_drop(m, c, PLAIT_RNG_DROPOUT_PROJ, layer, hidden_dropout, &storage),
                                          d->local_rows, d->hidden));
    PLAIT_TRY(plait_hash_rows(m, c, result(layer, PLAIT_HASH_ATTN_RESIDUAL), s->mid));

    /* feed-forward */
    PLAIT_TRY(kept_or_temp(ex, s->norm2, T, d->local_rows * d->hidden, &norm));
    PLAIT_TRY(plait_norm_fwd(m, ex, norm, s->mean2, s->rstd2, s->mid, plait_weight(m, v, p->norm2),
                             plait_weight(m, v, p->norm2_bias)));
    PLAIT_TRY(plait_hash_rows(m, c, result(layer, PLAIT_HASH_POST_ATTENTION_LAYERNORM), norm));
    plait_linear up = up_layer(m, p, v);
    PLAIT_TRY(up_fwd(m, c, layer, &up, s, norm, out || s->act, &act));
    if (out) {
        plait_linear down = down_layer(m, p, v);
        PLAIT_TRY(plait_hash_blocks(m, c, result(layer, PLAIT_HASH_ACT), act, d->ffn));
        PLAIT_TRY(plait_row_linear_fwd(&m->tp, ex, &down, act, out));
        PLAIT_TRY(plait_hash_rows(m, c, result(layer, PLAIT_HASH_DOWN), out));
        PLAIT_TRY(ex->k->bias_dropout_add_fwd(ex, out, out, plait_weight(m, v, p->down_bias), s->mid,
                                              plait_drop(m, c, PLAIT_RNG_DROPOUT_MLP, layer, hidden_dropout, &storage),
                                              d->local_rows, d->hidden));
        PLAIT_TRY(plait_hash_rows(m, c, result(layer, PLAIT_HASH_MLP_RESIDUAL), out));
    }
    plait_arena_reset(ex->work, mark);
    return PLAIT_OK;
}

/* Through dropout and bias: *d_branch is the gradient of the branch's last linear layer, dy itself when nothing is
 * dropped. */
static plait_status branch_gradient(const plait_decoder *m, const plait_call *c, plait_rng_use use, int64_t layer,
                                    const plait_unit_view *v, int64_t bias, const void *dy, const void **d_branch)
{
    const plait_decoder_dims *d = &m->dims;
    const plait_dtype T = m->tp.dtype;
    plait_dropout storage;
    plait_dropout *drop = plait_drop(m, c, use, layer, m->a.cfg->model.hidden_dropout, &storage) ? &storage : NULL;
    void *dropped = NULL, *grad_bias = plait_grad(m, v, bias);
    if (drop)
        PLAIT_TRY(plait_temp(c->ex, T, d->local_rows * d->hidden, &dropped));
    *d_branch = drop ? dropped : dy;
    if (!drop && !grad_bias)
        return PLAIT_OK;
    for (int i = 0; i < plait_num_pieces(m); i++) {
        const plait_piece p = plait_piece_at(m, i);
        const int64_t at = p.begin * d->hidden;
        if (drop)
            drop->t0 = p.t0;
        PLAIT_TRY(c->ex->k->bias_dropout_add_bwd(c->ex, drop ? plait_at(dropped, T, at) : NULL, grad_bias,
                                                 plait_at(dy, T, at), drop, p.n, d->hidden));
        if (grad_bias)
            PLAIT_TRY(plait_zero_end_term(m->a.zero, v, bias, d->hidden));
    }
    return PLAIT_OK;
}

/* dmid from dy = dout */
static plait_status feed_forward_bwd(const plait_decoder *m, const plait_call *c, int64_t layer,
                                     const plait_layer_params *p, const plait_unit_view *v, plait_layer_saved *s,
                                     const void *dy, void *dmid)
{
    const plait_decoder_dims *d = &m->dims;
    const plait_exec *ex = c->ex;
    const size_t mark = plait_arena_mark(ex->work);
    const void *d_down;
    void *act, *d_act, *d_up, *norm;

    PLAIT_TRY(plait_hash_rows(m, c, gradient(layer, PLAIT_HASH_MLP_RESIDUAL), dy));
    PLAIT_TRY(branch_gradient(m, c, PLAIT_RNG_DROPOUT_MLP, layer, v, p->down_bias, dy, &d_down));
    PLAIT_TRY(plait_hash_rows(m, c, gradient(layer, PLAIT_HASH_DOWN), d_down));
    PLAIT_TRY(kept_or_temp(ex, s->act, m->tp.dtype, d->slices * d->rows * d->ffn, &act));
    if (!s->act)
        PLAIT_TRY(activation_fwd(m, ex, act, s->up));
    PLAIT_TRY(plait_temp(ex, m->tp.dtype, d->slices * d->rows * d->ffn, &d_act));
    plait_linear down = down_layer(m, p, v), up = up_layer(m, p, v);
    down.dgelu = gelu_in_products(m, ex) ? s->up : NULL;
    PLAIT_TRY(plait_row_linear_bwd(&m->tp, ex, &down, d_down, act, d_act));
    if (down.dgelu) {
        d_up = d_act;
    } else {
        PLAIT_TRY(plait_hash_blocks(m, c, gradient(layer, PLAIT_HASH_ACT), d_act, d->ffn));
        PLAIT_TRY(activation_bwd(m, ex, d_act, s->up, &d_up));
    }
    PLAIT_TRY(plait_hash_blocks(m, c, gradient(layer, PLAIT_HASH_UP), d_up, d->up));

    PLAIT_TRY(kept_or_temp(ex, s->norm2, m->tp.dtype, d->local_rows * d->hidden, &norm));
    if (!s->norm2)
        PLAIT_TRY(plait_norm_fwd(m, ex, norm, s->mean2, s->rstd2, s->mid, plait_weight(m, v, p->norm2),
                                 plait_weight(m, v, p->norm2_bias)));
    PLAIT_TRY(plait_col_linear_bwd(&m->tp, ex, &up, d_up, norm, dmid));
    PLAIT_TRY(plait_hash_rows(m, c, gradient(layer, PLAIT_HASH_POST_ATTENTION_LAYERNORM), dmid));
    PLAIT_TRY(plait_norm_bwd(m, ex, v, p->norm2, p->norm2_bias, dmid, dmid, dy, s->mid, s->mean2, s->rstd2));
    plait_arena_reset(ex->work, mark);
    return PLAIT_OK;
}

/* dx from dmid */
static plait_status attention_bwd(const plait_decoder *m, const plait_call *c, int64_t layer,
                                  const plait_layer_params *p, const plait_unit_view *v, plait_layer_saved *s,
                                  const void *dmid, void *dx)
{
    const plait_decoder_dims *d = &m->dims;
    const plait_exec *ex = c->ex;
    const plait_dtype T = m->tp.dtype;
    const size_t mark = plait_arena_mark(ex->work);
    const int64_t width = d->heads * d->head_dim;
    const void *d_proj;
    void *attn, *d_attn, *d_qkv, *norm;

    PLAIT_TRY(plait_hash_rows(m, c, gradient(layer, PLAIT_HASH_ATTN_RESIDUAL), dmid));
    PLAIT_TRY(branch_gradient(m, c, PLAIT_RNG_DROPOUT_PROJ, layer, v, p->proj_bias, dmid, &d_proj));
    PLAIT_TRY(plait_hash_rows(m, c, gradient(layer, PLAIT_HASH_PROJ), d_proj));
    PLAIT_TRY(kept_or_temp(ex, s->attn, T, d->slices * d->rows * width, &attn));
    if (!s->attn)
        PLAIT_TRY(attention_fwd(m, c, layer, s->qkv, attn, s->lse));
    PLAIT_TRY(plait_temp(ex, T, d->slices * d->rows * width, &d_attn));
    plait_linear proj = proj_layer(m, p, v), qkv = qkv_layer(m, p, v);
    PLAIT_TRY(plait_row_linear_bwd(&m->tp, ex, &proj, d_proj, attn, d_attn));
    PLAIT_TRY(plait_hash_blocks(m, c, gradient(layer, PLAIT_HASH_CORE_ATTN), d_attn, width));

    PLAIT_TRY(plait_temp(ex, T, d->slices * d->rows * d->qkv, &d_qkv));
    for (int i = 0; i < m->tp.slices; i++) {
        plait_dropout drop = {0};
        plait_attention a = dropped_attention(m, c, layer, i, s->qkv, attn, s->lse, &drop);
        a.d_o = plait_at(d_attn, T, i * d->rows * width);
        a.lddo = width;
        a.dq = plait_at(d_qkv, T, i * d->rows * d->qkv);
        a.dk = plait_at(a.dq, T, width);
        a.dv = plait_at(a.dq, T, width + d->kv_heads * d->head_dim);
        a.lddq = a.lddk = a.lddv = d->qkv;
        PLAIT_TRY(ex->k->attention_bwd(ex, &a));
    }
    if (m->rope)
        PLAIT_TRY(plait_hash_blocks(m, c, gradient(layer, PLAIT_HASH_ROPE), d_qkv, d->qkv));
    PLAIT_TRY(rotate(m, ex, d_qkv, true));
    PLAIT_TRY(plait_hash_blocks(m, c, gradient(layer, PLAIT_HASH_QKV), d_qkv, d->qkv));

    PLAIT_TRY(kept_or_temp(ex, s->norm1, T, d->local_rows * d->hidden, &norm));
    if (!s->norm1)
        PLAIT_TRY(plait_norm_fwd(m, ex, norm, s->mean1, s->rstd1, s->x, plait_weight(m, v, p->norm1),
                                 plait_weight(m, v, p->norm1_bias)));
    PLAIT_TRY(plait_col_linear_bwd(&m->tp, ex, &qkv, d_qkv, norm, dx));
    PLAIT_TRY(plait_hash_rows(m, c, gradient(layer, PLAIT_HASH_INPUT_LAYERNORM), dx));
    PLAIT_TRY(plait_norm_bwd(m, ex, v, p->norm1, p->norm1_bias, dx, dx, dmid, s->x, s->mean1, s->rstd1));
    plait_arena_reset(ex->work, mark);
    return PLAIT_OK;
}

plait_status plait_block_bwd(const plait_decoder *m, const plait_call *c, int64_t layer, const plait_layer_params *p,
                             const plait_unit_view *v, plait_layer_saved *s, const void *dy, void *dx)
{
    const size_t mark = plait_arena_mark(c->ex->work);
    void *dmid;
    PLAIT_TRY(plait_temp(c->ex, m->tp.dtype, m->dims.local_rows * m->dims.hidden, &dmid));
    PLAIT_TRY(feed_forward_bwd(m, c, layer, p, v, s, dy, dmid));
    PLAIT_TRY(attention_bwd(m, c, layer, p, v, s, dmid, dx));
    plait_arena_reset(c->ex->work, mark);
    return PLAIT_OK;
}
