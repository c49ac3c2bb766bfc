/* The parameter list of a rank: which units it has, which part of each tensor, and how that part is shared. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "models/decoder_impl.h"

/* Streams of initial values that are not of a layer; layers use the architecture's own numbers. */
enum { RNG_TOKENS = 100, RNG_POSITIONS, RNG_HEAD };

void plait_decoder_dims_init(plait_decoder_dims *d, const plait_config *cfg, const plait_topology *topo)
{
    const int64_t slices = plait_config_slices(cfg), kv_heads = cfg->model.num_query_groups / slices;
    *d = (plait_decoder_dims){
        .batch = cfg->batch.micro_batch_size,
        .seq = cfg->model.seq_length,
        .slices = slices / topo->tp,
        .slice0 = slices / topo->tp * topo->t,
        .hidden = cfg->model.hidden_size,
        .head_dim = cfg->model.kv_channels,
        .heads = cfg->model.num_attention_heads / slices,
        .kv_heads = kv_heads > 0 ? kv_heads : 1,
        .ffn = cfg->model.ffn_hidden_size / slices,
        .vocab = cfg->model.vocab_size,
        .vocab_rows = cfg->model.padded_vocab_size / slices,
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
        .copies = 1,
        .counted = true,
        .partial = PLAIT_GROUPS,
    };
    if (b->cut != (spec->cut != PLAIT_CUT_NONE))
        return PLAIT_OK;
    switch (spec->cut) {
    case PLAIT_CUT_NONE:
        p.counted = b->slice == 0;
        /* With sequence parallelism each tensor rank has seen its own rows only. */
        p.partial = b->sequence_parallel ? PLAIT_GROUP_TENSOR : PLAIT_GROUPS;
        break;
    case PLAIT_CUT_ROWS:
        p.rows = spec->out / b->slices;
        p.row0 += b->slice * p.rows;
        break;
    case PLAIT_CUT_KV:
        /* Replicas see the query heads of their own slice only. A head has its rows, also fewer than there are slices.
         */
        p.rows = spec->out / (b->slices / b->replicas);
        p.row0 += b->slice / b->replicas * p.rows;
        p.counted = b->slice % b->replicas == 0;
        p.partial = b->partial;
        p.copies = b->slice % b->local_replicas == 0 ? b->local_replicas : 0;
        break;
    case PLAIT_CUT_COLS:
        p.cols = in / b->slices;
        p.col0 = b->slice * p.cols;
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

/* What a token matrix or a head is called and how it is shared. */
typedef struct row_matrix {
    const char *name, *unit_name;
    uint32_t rng;
    bool twin, tied; /* twin: the other copy is the one that counts */
    int uses;
} row_matrix;

/* A unit of rows [begin, begin + n) of a slice, which begin at row0 of the matrix. */
static plait_status build_block(const plait_param_builder *b, const row_matrix *m, int index, int64_t row0, int64_t n)
{
    const plait_config *cfg = b->cfg;
    const int64_t real = cfg->model.vocab_size - row0;
    int unit;
    PLAIT_TRY(plait_param_list_unit(b->list, &unit, "%s block %d", m->unit_name, index));
    b->list->units[unit].tied = m->tied;
    b->list->units[unit].uses = m->uses;
    plait_param p = {
        .ndim = 2,
        .rows = n,
        .cols = cfg->model.hidden_size,
        .file_rows = cfg->model.vocab_size,
        .file_cols = cfg->model.hidden_size,
        .row0 = row0,
        .valid_rows = real < 0   ? 0
                      : real < n ? real
                                 : n,
        .decay = true,
        .init = PLAIT_INIT_NORMAL,
        .init_std = cfg->model.init_method_std,
        .rng_tensor = m->rng,
        .copies = 1,
        .counted = !m->twin,
        .partial = PLAIT_GROUPS,
    };
    snprintf(p.name, sizeof p.name, "%s", m->name);
    return plait_param_list_add(b->list, &p);
}

/* This rank's rows of the vocabulary: slice after slice, each in blocks of at most max_unit_bytes. */
static plait_status build_row_blocks(const plait_param_builder *b, const plait_decoder_dims *d, const row_matrix *m,
                                     plait_row_blocks *out)
{
    int64_t row_bytes = d->hidden * (int64_t)plait_dtype_size(b->cfg->precision.dtype);
    int64_t most = b->cfg->zero.max_unit_bytes / row_bytes;
    most = most > 0 ? most : 1;
    int64_t count = (d->vocab_rows + most - 1) / most, rows = (d->vocab_rows + count - 1) / count;
    *out = (plait_row_blocks){b->list->num_units, (int)((d->vocab_rows + rows - 1) / rows), rows};
    for (int64_t slice = 0; slice < d->slices; slice++)
        for (int64_t begin = 0; begin < d->vocab_rows; begin += rows) {
            const int64_t left = d->vocab_rows - begin;
            PLAIT_TRY(build_block(b, m, b->list->num_units - out->first_unit,
                                  (d->slice0 + slice) * d->vocab_rows + begin, left < rows ? left : rows));
        }
    return PLAIT_OK;
}

static plait_status build_embedding(const plait_architecture *arch, plait_param_builder *b, const plait_decoder_dims *d,
                                    bool alone, plait_decoder_units *u)
{
    const bool tie = b->cfg->model.tie_word_embeddings;
    const row_matrix tokens = {arch->token_name, "tokens", RNG_TOKENS, false, tie && !alone, tie && alone ? 2 : 1};
    PLAIT_TRY(build_row_blocks(b, d, &tokens, &u->tokens));
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

static plait_status build_head(const plait_architecture *arch, plait_param_builder *b, const plait_decoder_dims *d,
                               bool alone, plait_decoder_units *u)
{
    const bool tie = b->cfg->model.tie_word_embeddings;
    plait_tensor_spec spec = {.out = b->cfg->model.hidden_size, .init = PLAIT_INIT_ONE, .layer = -1};
    int64_t offset;
    PLAIT_TRY(plait_param_list_unit(b->list, &u->final_norm, "final norm"));
    PLAIT_TRY(plait_build_tensor(b, &spec, &offset, "%s", arch->final_norm_name));
    spec.init = PLAIT_INIT_ZERO;
    if (arch->final_norm_bias_name)
        PLAIT_TRY(plait_build_tensor(b, &spec, &u->final_norm_bias, "%s", arch->final_norm_bias_name));
    if (tie && alone) {
        u->head = u->tokens;
        return PLAIT_OK;
    }
    const row_matrix head = {
        tie ? arch->token_name : arch->head_name, tie ? "tokens" : "head", tie ? RNG_TOKENS : RNG_HEAD, tie, tie, 1};
    return build_row_blocks(b, d, &head, &u->head);
}

/* A unit: what is cut, slice after slice, then what is not. */
static plait_status build_layer(const plait_architecture *arch, plait_param_builder *b, const plait_decoder_dims *d,
                                int64_t layer, plait_layer_params *p)
{
    plait_layer_params others; /* of the further slices: where they lie follows from the first and the stride */
    PLAIT_TRY(plait_param_list_unit(b->list, &p->unit, "layer %lld", (long long)layer));
    b->cut = true;
    for (int slice = 0; slice < d->slices; slice++) {
        b->slice = (int)d->slice0 + slice;
        PLAIT_TRY(arch->layer(b, layer, slice == 0 ? p : &others));
        if (slice == 0)
            p->stride = b->list->units[p->unit].numel;
    }
    const plait_unit *unit = &b->list->units[p->unit];
    for (int i = unit->first_param; i < unit->first_param + unit->num_params; i++)
        b->list->params[i].copy_stride = p->stride;
    b->cut = false;
    b->slice = (int)d->slice0;
    return arch->layer(b, layer, p);
}

plait_status plait_decoder_build(const plait_architecture *arch, const plait_config *cfg, const plait_topology *topo,
                                 plait_param_list *list, plait_decoder_units *units)
{
    plait_status st = PLAIT_OK;
    plait_decoder_dims d;
    plait_decoder_dims_init(&d, cfg, topo);
    const int slices = (int)plait_config_slices(cfg), replicas = slices / (int)cfg->model.num_query_groups;
    plait_param_builder b = {
        .cfg = cfg,
        .list = list,
        .sequence_parallel = cfg->parallelism.sequence_parallel && topo->tp > 1,
        .slices = slices,
        .slice = (int)d.slice0,
        .replicas = replicas > 1 ? replicas : 1,
        .partial = topo->kv_replicas > 1 ? PLAIT_GROUP_KV : PLAIT_GROUPS,
    };
    b.local_replicas = b.replicas < d.slices ? b.replicas : (int)d.slices;
    plait_decoder_units u = {.position = -1, .final_norm = -1, .final_norm_bias = -1};
    int64_t stages = topo->pp * cfg->parallelism.num_chunks, num_layers = 0;

    u.layers = calloc((size_t)cfg->model.num_layers + 1, sizeof *u.layers);
    if (!u.layers)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory to list %lld layers", (long long)cfg->model.num_layers);
    for (int chunk = 0; chunk < cfg->parallelism.num_chunks; chunk++) {
        int64_t k = (int64_t)chunk * topo->pp + topo->p;
        if (k == 0)
            PLAIT_TRY_TO(done, st, build_embedding(arch, &b, &d, topo->pp == 1, &u));
        for (int64_t l = plait_config_first_layer(cfg, k, stages); l < plait_config_first_layer(cfg, k + 1, stages);
             l++)
            PLAIT_TRY_TO(done, st, build_layer(arch, &b, &d, l, &u.layers[num_layers++]));
        if (k == stages - 1)
            PLAIT_TRY_TO(done, st, build_head(arch, &b, &d, topo->pp == 1, &u));
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
