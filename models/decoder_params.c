/* The parameter list of a rank: which units it has, which part of each tensor, and how that part is shared. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "models/decoder_impl.h"

/* Streams of initial values that are not of a layer; layers use the architecture's own numbers. */
enum { RNG_TOKENS = 100, RNG_POSITIONS, RNG_HEAD };

void plait_decoder_dims_init(plait_decoder_dims *d, const plait_config *cfg, const plait_topology *topo)
{
    int64_t kv_heads = cfg->model.num_query_groups / topo->tp;
    *d = (plait_decoder_dims){
        .batch = cfg->batch.micro_batch_size,
        .seq = cfg->model.seq_length,
        .hidden = cfg->model.hidden_size,
        .head_dim = cfg->model.kv_channels,
        .heads = cfg->model.num_attention_heads / topo->tp,
        .kv_heads = kv_heads > 0 ? kv_heads : 1,
        .ffn = cfg->model.ffn_hidden_size / topo->tp,
        .vocab = cfg->model.vocab_size,
        .vocab_rows = cfg->model.padded_vocab_size / topo->tp,
    };
    bool split = cfg->parallelism.sequence_parallel && topo->tp > 1;
    d->rows = d->seq * d->batch;
    d->local_seq = split ? d->seq / topo->tp : d->seq;
    d->local_t0 = split ? topo->t * d->local_seq : 0;
    d->local_rows = d->local_seq * d->batch;
    d->qkv = (d->heads + 2 * d->kv_heads) * d->head_dim;
    d->up = cfg->model.swiglu ? 2 * d->ffn : d->ffn;
}

plait_status plait_build_tensor(const plait_param_builder *b, const plait_tensor_spec *spec, int64_t *offset,
                                const char *name, ...)
{
    const plait_topology *topo = b->topo;
    int64_t in = spec->in ? spec->in : 1;
    plait_param p = {
        .ndim = spec->in ? 2 : 1,
        .rows = spec->out,
        .cols = in,
        .file_rows = spec->file_rows ? spec->file_rows : spec->out,
        .file_cols = in,
        .row0 = spec->file_row0,
        .transposed = spec->transposed,
        .decay = spec->in != 0,
        .init = spec->init,
        .init_std = spec->std,
        .rng_layer = (uint32_t)(spec->layer + 1),
        .rng_tensor = spec->rng_tensor,
        .counted = true,
        .partial = PLAIT_GROUPS,
    };
    switch (spec->cut) {
    case PLAIT_CUT_NONE:
        p.counted = topo->t == 0;
        /* With sequence parallelism each tensor rank has seen its own rows only. */
        p.partial = b->sequence_parallel ? PLAIT_GROUP_TENSOR : PLAIT_GROUPS;
        break;
    case PLAIT_CUT_ROWS:
        p.rows = spec->out / topo->tp;
        p.row0 += topo->t * p.rows;
        break;
    case PLAIT_CUT_KV:
        /* Replicas see the query heads of their own rank only. A head has its rows, also fewer than there are ranks. */
        p.rows = spec->out / (topo->tp / topo->kv_replicas);
        p.row0 += topo->t / topo->kv_replicas * p.rows;
        p.counted = topo->t % topo->kv_replicas == 0;
        p.partial = topo->kv_replicas > 1 ? PLAIT_GROUP_KV : PLAIT_GROUPS;
        break;
    case PLAIT_CUT_COLS:
        p.cols = in / topo->tp;
        p.col0 = topo->t * p.cols;
        break;
    }
    p.valid_rows = p.rows;
    va_list args;
    va_start(args, name);
    vsnprintf(p.name, sizeof p.name, name, args);
    va_end(args);
    PLAIT_TRY(plait_param_list_add(b->list, &p));
    *offset = b->list->params[b->list->num_params - 1].offset;
    return PLAIT_OK;
}

/* The token matrix or the head: this rank's rows of the vocabulary, in blocks of at most max_unit_bytes. */
static plait_status build_row_blocks(const plait_param_builder *b, const char *name, const char *unit_name,
                                     uint32_t rng, bool twin, bool tied, int uses, plait_row_blocks *out)
{
    const plait_config *cfg = b->cfg;
    plait_decoder_dims d;
    plait_decoder_dims_init(&d, cfg, b->topo);
    int64_t row_bytes = d.hidden * (int64_t)plait_dtype_size(cfg->precision.dtype);
    int64_t most = cfg->zero.max_unit_bytes / row_bytes;
    most = most > 0 ? most : 1;
    int64_t count = (d.vocab_rows + most - 1) / most, rows = (d.vocab_rows + count - 1) / count;
    *out = (plait_row_blocks){b->list->num_units, 0, rows};
    for (int64_t begin = 0; begin < d.vocab_rows; begin += rows) {
        int unit;
        PLAIT_TRY(plait_param_list_unit(b->list, &unit, "%s block %d", unit_name, out->count));
        b->list->units[unit].tied = tied;
        b->list->units[unit].uses = uses;
        int64_t row0 = b->topo->t * d.vocab_rows + begin;
        int64_t n = d.vocab_rows - begin < rows ? d.vocab_rows - begin : rows, real = d.vocab - row0;
        plait_param p = {
            .ndim = 2,
            .rows = n,
            .cols = d.hidden,
            .file_rows = d.vocab,
            .file_cols = d.hidden,
            .row0 = row0,
            .valid_rows = real < 0   ? 0
                          : real < n ? real
                                     : n,
            .decay = true,
            .init = PLAIT_INIT_NORMAL,
            .init_std = cfg->model.init_method_std,
            .rng_tensor = rng,
            .counted = !twin,
            .partial = PLAIT_GROUPS,
        };
        snprintf(p.name, sizeof p.name, "%s", name);
        PLAIT_TRY(plait_param_list_add(b->list, &p));
        out->count++;
    }
    return PLAIT_OK;
}

static plait_status build_embedding(const plait_architecture *arch, const plait_param_builder *b,
                                    plait_decoder_units *u)
{
    bool tie = b->cfg->model.tie_word_embeddings, alone = b->topo->pp == 1;
    PLAIT_TRY(build_row_blocks(b, arch->token_name, "tokens", RNG_TOKENS, false, tie && !alone, tie && alone ? 2 : 1,
                               &u->tokens));
    if (!arch->position_name)
        return PLAIT_OK;
    PLAIT_TRY(plait_param_list_unit(b->list, &u->position, "positions"));
    plait_tensor_spec spec = {.out = b->cfg->model.max_position_embeddings,
                              .in = b->cfg->model.hidden_size,
                              .init = PLAIT_INIT_NORMAL,
                              .std = b->cfg->model.init_method_std,
                              .rng_tensor = RNG_POSITIONS,
                              .layer = -1};
    int64_t offset;
    return plait_build_tensor(b, &spec, &offset, "%s", arch->position_name);
}

static plait_status build_head(const plait_architecture *arch, const plait_param_builder *b, plait_decoder_units *u)
{
    plait_tensor_spec spec = {.out = b->cfg->model.hidden_size, .init = PLAIT_INIT_ONE, .layer = -1};
    int64_t offset;
    PLAIT_TRY(plait_param_list_unit(b->list, &u->final_norm, "final norm"));
    PLAIT_TRY(plait_build_tensor(b, &spec, &offset, "%s", arch->final_norm_name));
    spec.init = PLAIT_INIT_ZERO;
    if (arch->final_norm_bias_name)
        PLAIT_TRY(plait_build_tensor(b, &spec, &u->final_norm_bias, "%s", arch->final_norm_bias_name));

    bool tie = b->cfg->model.tie_word_embeddings;
    if (tie && b->topo->pp == 1) {
        u->head = u->tokens;
        return PLAIT_OK;
    }
    return build_row_blocks(b, tie ? arch->token_name : arch->head_name, tie ? "tokens" : "head",
                            tie ? RNG_TOKENS : RNG_HEAD, tie, tie, 1, &u->head);
}

plait_status plait_decoder_build(const plait_architecture *arch, const plait_config *cfg, const plait_topology *topo,
                                 plait_param_list *list, plait_decoder_units *units)
{
    plait_status st = PLAIT_OK;
    plait_param_builder b = {cfg, topo, list, cfg->parallelism.sequence_parallel && topo->tp > 1};
    plait_decoder_units u = {.position = -1, .final_norm = -1, .final_norm_bias = -1};
    int64_t stages = topo->pp * cfg->parallelism.num_chunks, num_layers = 0;

    u.layers = calloc((size_t)cfg->model.num_layers + 1, sizeof *u.layers);
    if (!u.layers)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory to list %lld layers", (long long)cfg->model.num_layers);
    for (int chunk = 0; chunk < cfg->parallelism.num_chunks; chunk++) {
        int64_t k = (int64_t)chunk * topo->pp + topo->p;
        if (k == 0)
            PLAIT_TRY_TO(done, st, build_embedding(arch, &b, &u));
        for (int64_t l = plait_config_first_layer(cfg, k, stages); l < plait_config_first_layer(cfg, k + 1, stages);
             l++) {
            plait_layer_params *p = &u.layers[num_layers++];
            PLAIT_TRY_TO(done, st, plait_param_list_unit(list, &p->unit, "layer %lld", (long long)l));
            PLAIT_TRY_TO(done, st, arch->layer(&b, l, p));
        }
        if (k == stages - 1)
            PLAIT_TRY_TO(done, st, build_head(arch, &b, &u));
    }
done:
    if (st == PLAIT_OK && units)
        *units = u;
    else
        free(u.layers);
    return st;
}

plait_status plait_decoder_params(const plait_architecture *arch, const plait_config *cfg, const plait_topology *topo,
                                  plait_param_list *out)
{
    *out = (plait_param_list){0};
    plait_status st = plait_decoder_build(arch, cfg, topo, out, NULL);
    if (st != PLAIT_OK)
        plait_param_list_deinit(out);
    return st;
}
