/* Walks the chunks of a rank: which layer runs when, from which memory, and what is replayed. */
#include "models/decoder.h"

#include <stdlib.h>

#include "models/decoder_impl.h"

/* ---- what the layers ask ---- */

const void *plait_weight(const plait_decoder *m, const plait_unit_view *v, int64_t offset)
{
    return offset < 0 ? NULL : plait_at(v->param, m->tp.dtype, offset);
}

void *plait_grad(const plait_decoder *m, const plait_unit_view *v, int64_t offset)
{
    return offset < 0 || !v->grad ? NULL : plait_at(v->grad, plait_dtype_acc(m->tp.dtype), offset);
}

const plait_dropout *plait_drop(const plait_decoder *m, const plait_call *c, plait_rng_use use, int64_t layer, double p,
                                plait_dropout *storage)
{
    if (p == 0 || c->mode != PLAIT_MODE_TRAIN)
        return NULL;
    *storage = (plait_dropout){.p = p,
                               .seed = (uint64_t)m->a.cfg->train.seed,
                               .use = use,
                               .layer = (uint32_t)layer,
                               .step = c->step,
                               .sample0 = c->batch.sample0,
                               .t0 = m->dims.local_t0,
                               .batch = m->dims.batch,
                               .head0 = m->dims.slice0 * m->dims.heads};
    return storage;
}

plait_status plait_norm_fwd(const plait_decoder *m, const plait_exec *ex, void *y, void *mean, void *rstd,
                            const void *x, const void *w, const void *b)
{
    double eps = m->a.cfg->model.layernorm_epsilon;
    return m->arch->rms_norm
               ? ex->k->rmsnorm_fwd(ex, y, rstd, x, w, m->dims.local_rows, m->dims.hidden, eps)
               : ex->k->layernorm_fwd(ex, y, mean, rstd, x, w, b, m->dims.local_rows, m->dims.hidden, eps);
}

int plait_num_pieces(const plait_decoder *m)
{
    if (!m->tp.exact)
        return 1;
    return m->tp.sequence_parallel ? m->tp.slices : m->tp.slices * m->tp.size;
}

plait_piece plait_piece_at(const plait_decoder *m, int i)
{
    const plait_decoder_dims *d = &m->dims;
    if (!m->tp.exact)
        return (plait_piece){d->local_t0, 0, d->local_rows};
    const int64_t all = m->tp.slices * m->tp.size, k = m->tp.sequence_parallel ? d->slice0 + i : i;
    const int64_t t0 = k * d->seq / all, end = (k + 1) * d->seq / all;
    return (plait_piece){t0, (t0 - d->local_t0) * d->batch, (end - t0) * d->batch};
}

plait_status plait_norm_bwd(const plait_decoder *m, const plait_exec *ex, const plait_unit_view *v, int64_t weight,
                            int64_t bias, void *dx, const void *dy, const void *dres, const void *x, const void *mean,
                            const void *rstd)
{
    const plait_dtype T = m->tp.dtype, A = plait_dtype_acc(T);
    const int64_t C = m->dims.hidden;
    const void *w = plait_weight(m, v, weight);
    void *dw = plait_grad(m, v, weight), *db = plait_grad(m, v, bias);
    for (int i = 0; i < plait_num_pieces(m); i++) {
        const plait_piece p = plait_piece_at(m, i);
        const int64_t at = p.begin * C;
        void *out = plait_at(dx, T, at);
        const void *in = plait_at(x, T, at), *dout = plait_at(dy, T, at), *rest = dres ? plait_at(dres, T, at) : NULL;
        const void *scale = plait_at(rstd, A, p.begin);
        if (m->arch->rms_norm)
            PLAIT_TRY(ex->k->rmsnorm_bwd(ex, out, dw, dout, rest, in, w, scale, p.n, C));
        else
            PLAIT_TRY(
                ex->k->layernorm_bwd(ex, out, dw, db, dout, rest, in, w, plait_at(mean, A, p.begin), scale, p.n, C));
        PLAIT_TRY(plait_zero_end_term(m->a.zero, v, weight, C));
        if (bias >= 0)
            PLAIT_TRY(plait_zero_end_term(m->a.zero, v, bias, C));
    }
    return PLAIT_OK;
}

/* ---- layers of a chunk ---- */

static size_t hidden_bytes(const plait_decoder *m)
{
    return (size_t)(m->dims.local_rows * m->dims.hidden) * plait_dtype_size(m->tp.dtype);
}

/* Layers [0, replayed) of a chunk keep only the input of their group. */
static int replayed_layers(const plait_decoder *m, const plait_chunk *chunk)
{
    return chunk->num_layers < m->replayed ? chunk->num_layers : m->replayed;
}

static bool is_replayed(const plait_decoder *m, const plait_chunk *chunk, int i)
{
    return i < replayed_layers(m, chunk);
}

/* Place of layer i in its group. */
static int in_group(const plait_decoder *m, int i)
{
    return i % m->group;
}

static plait_layer_saved *saved_of(const plait_decoder *m, const plait_chunk *chunk, plait_slot *slot, int i)
{
    return is_replayed(m, chunk, i) ? &m->replay[in_group(m, i)] : &slot->layers[i];
}

/* Where the output of layer i - 1, the input of layer i, goes: slot, replay buffer, or NULL at the chunk's borders. */
static void *hidden_of(const plait_decoder *m, const plait_chunk *chunk, plait_slot *slot, int i)
{
    return i < chunk->num_layers && is_replayed(m, chunk, i) && in_group(m, i) > 0 ? m->replay_hidden[in_group(m, i)]
                                                                                   : slot->hidden[i];
}

static const plait_layer_params *params_of(const plait_decoder *m, int chunk, int i)
{
    int before = 0;
    for (int k = 0; k < chunk; k++)
        before += m->chunks[k].num_layers;
    return &m->units.layers[before + i];
}

/* The call of a forward that is run again: results are recorded once. */
static plait_call run_again(const plait_call *c)
{
    plait_call r = *c;
    r.hashes = NULL;
    return r;
}

/* Runs layer i of a chunk from x to out (NULL: only what its backward needs), with an already acquired unit. */
static plait_status run_layer(const plait_decoder *m, const plait_call *c, int i, const plait_unit_view *v,
                              plait_slot *slot, const void *x, void *out)
{
    const plait_chunk *chunk = &m->chunks[c->chunk];
    return plait_block_fwd(m, c, chunk->first_layer + i, params_of(m, c->chunk, i), v, saved_of(m, chunk, slot, i), x,
                           out);
}

static plait_status forward(void *self, const plait_call *c, const void *x, void *y)
{
    plait_decoder *m = self;
    const plait_exec *ex = c->ex;
    const plait_chunk *chunk = &m->chunks[c->chunk];
    plait_slot *slot = chunk->slots[c->slot];
    void *border = chunk->last ? NULL : y; /* where the last layer's output goes */
    const void *h = x;

    if (chunk->first) {
        void *out = slot->hidden[0] ? slot->hidden[0] : border;
        PLAIT_TRY(plait_embedding_forward(m, c, out));
        h = out;
    } else if (chunk->num_layers == 0 && border) {
        return ex->k->copy(ex, border, x, hidden_bytes(m)); /* a stage without layers hands on */
    }
    for (int i = 0; i < chunk->num_layers; i++) {
        const plait_layer_params *p = params_of(m, c->chunk, i);
        void *next = hidden_of(m, chunk, slot, i + 1), *out = next ? next : border;
        plait_unit_view v;
        PLAIT_TRY(plait_zero_acquire(m->a.zero, p->unit, PLAIT_ACQUIRE_PARAM, &v));
        PLAIT_TRY(run_layer(m, c, i, &v, slot, h, out));
        PLAIT_TRY(plait_zero_release(m->a.zero, p->unit, PLAIT_ACQUIRE_PARAM));
        PLAIT_TRY(plait_comm_progress());
        h = out;
    }
    if (chunk->last)
        PLAIT_TRY(plait_head_forward(m, c, &slot->head, h, c->mode == PLAIT_MODE_LOGITS ? y : NULL));
    return PLAIT_OK;
}

/* Backward of layer i with its unit acquired once; `replay_from` not NULL: its forward runs first, inside the same
 * bracket. */
static plait_status layer_backward(const plait_decoder *m, const plait_call *c, int i, plait_slot *slot,
                                   const void *replay_from, const void *dy, void *dx)
{
    const plait_chunk *chunk = &m->chunks[c->chunk];
    const plait_layer_params *p = params_of(m, c->chunk, i);
    const unsigned both = PLAIT_ACQUIRE_PARAM | PLAIT_ACQUIRE_GRAD;
    plait_unit_view v;
    PLAIT_TRY(plait_zero_acquire(m->a.zero, p->unit, both, &v));
    const plait_call replay = run_again(c);
    if (replay_from)
        PLAIT_TRY(run_layer(m, &replay, i, &v, slot, replay_from, NULL));
    PLAIT_TRY(plait_block_bwd(m, c, chunk->first_layer + i, p, &v, saved_of(m, chunk, slot, i), dy, dx));
    PLAIT_TRY(plait_zero_release(m->a.zero, p->unit, both));
    return plait_comm_progress();
}

/* Replays layers [first, last) of a group from its kept input; returns the input of layer `last`. */
static plait_status replay_group(const plait_decoder *m, const plait_call *c, int first, int last, plait_slot *slot,
                                 const void *x, const void **input)
{
    const plait_chunk *chunk = &m->chunks[c->chunk];
    const plait_call replay = run_again(c);
    for (int i = first; i < last; i++) {
        const plait_layer_params *p = params_of(m, c->chunk, i);
        void *out = hidden_of(m, chunk, slot, i + 1);
        plait_unit_view v;
        PLAIT_TRY(plait_zero_acquire(m->a.zero, p->unit, PLAIT_ACQUIRE_PARAM, &v));
        PLAIT_TRY(run_layer(m, &replay, i, &v, slot, x, out));
        PLAIT_TRY(plait_zero_release(m->a.zero, p->unit, PLAIT_ACQUIRE_PARAM));
        x = out;
    }
    *input = x;
    return PLAIT_OK;
}

static plait_status backward(void *self, const plait_call *c, const void *dy, const void *x, void *dx)
{
    plait_decoder *m = self;
    const plait_exec *ex = c->ex;
    const plait_chunk *chunk = &m->chunks[c->chunk];
    plait_slot *slot = chunk->slots[c->slot];
    const size_t mark = plait_arena_mark(ex->work);
    void *gradient[2]; /* of hidden states, in turn */
    int turn = 0;

    if (chunk->num_layers == 0 && !chunk->first && !chunk->last)
        return ex->k->copy(ex, dx, dy, hidden_bytes(m));
    for (int i = 0; i < 2; i++)
        PLAIT_TRY(plait_temp(ex, m->tp.dtype, m->dims.local_rows * m->dims.hidden, &gradient[i]));
    const void *d = dy;
    if (chunk->last) {
        void *out = chunk->num_layers == 0 && !chunk->first ? dx : gradient[turn];
        PLAIT_TRY(plait_head_backward(m, c, &slot->head, out));
        d = out;
        turn = 1 - turn;
    }
    for (int i = chunk->num_layers - 1; i >= 0; i--) {
        const void *replay_from = NULL;
        if (is_replayed(m, chunk, i) && (in_group(m, i) == m->group - 1 || i + 1 == replayed_layers(m, chunk))) {
            int first = i - in_group(m, i);
            const void *input = slot->hidden[first] ? slot->hidden[first] : x;
            PLAIT_TRY(replay_group(m, c, first, i, slot, input, &replay_from));
        }
        void *out = i == 0 && !chunk->first ? dx : gradient[turn];
        PLAIT_TRY(layer_backward(m, c, i, slot, replay_from, d, out));
        d = out;
        turn = 1 - turn;
    }
    if (chunk->first)
        PLAIT_TRY(plait_embedding_backward(m, c, d));
    plait_arena_reset(ex->work, mark);
    return PLAIT_OK;
}

/* ---- memory ---- */

static void slot_destroy(plait_slot *slot)
{
    if (!slot)
        return;
    free(slot->hidden);
    free(slot->layers);
    free(slot);
}

/* Inputs of layers that are kept here: not the chunk's input (the pipeline's), not those inside a replayed group. */
static bool keeps_hidden(const plait_decoder *m, const plait_chunk *chunk, int i)
{
    if (i == 0)
        return chunk->first && (chunk->num_layers > 0 || chunk->last);
    if (i == chunk->num_layers)
        return chunk->last;
    return !is_replayed(m, chunk, i) || in_group(m, i) == 0;
}

static plait_status bind_slot(const plait_decoder *m, const plait_chunk *chunk, plait_arena *mem, plait_slot *slot)
{
    for (int i = 0; i <= chunk->num_layers; i++)
        if (keeps_hidden(m, chunk, i))
            PLAIT_TRY(plait_arena_take(mem, hidden_bytes(m), &slot->hidden[i]));
    for (int i = 0; i < chunk->num_layers; i++)
        if (!is_replayed(m, chunk, i))
            PLAIT_TRY(plait_block_bind(m, mem, &slot->layers[i]));
    return chunk->last ? plait_head_bind(m, mem, &slot->head) : PLAIT_OK;
}

static plait_status bind(void *self, int chunk_index, int slot_index, plait_arena *mem)
{
    plait_decoder *m = self;
    plait_chunk *chunk = &m->chunks[chunk_index];
    if (slot_index >= chunk->num_slots) {
        plait_slot **slots = realloc(chunk->slots, (size_t)(slot_index + 1) * sizeof(plait_slot *));
        if (!slots)
            PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the record of slot %d", slot_index);
        for (int i = chunk->num_slots; i <= slot_index; i++)
            slots[i] = NULL;
        chunk->slots = slots;
        chunk->num_slots = slot_index + 1;
    }
    plait_slot *slot = calloc(1, sizeof *slot);
    size_t n = (size_t)chunk->num_layers + 1;
    if (slot) {
        slot->hidden = calloc(n, sizeof *slot->hidden);
        slot->layers = calloc(n, sizeof *slot->layers);
    }
    slot_destroy(chunk->slots[slot_index]); /* bound again: a counting pass came first */
    chunk->slots[slot_index] = slot;
    if (!slot || !slot->hidden || !slot->layers)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the record of slot %d", slot_index);
    return bind_slot(m, chunk, mem, slot);
}

/* Sets that all slots share: replayed layers, the rotation's table. */
static plait_status take_shared(plait_decoder *m)
{
    const plait_config *cfg = m->a.cfg;
    if (m->arch->rope) {
        PLAIT_TRY(plait_temp(m->a.ex, plait_dtype_acc(m->tp.dtype), m->dims.seq * m->dims.head_dim, &m->rope));
        PLAIT_TRY(m->a.ex->k->rope_table(m->a.ex, m->rope, m->dims.seq, m->dims.head_dim, cfg->model.rotary_base));
    }
    if (cfg->recompute.granularity != PLAIT_RECOMPUTE_FULL)
        return PLAIT_OK;
    bool uniform = cfg->recompute.method == PLAIT_RECOMPUTE_UNIFORM;
    m->group = 1; /* and no more sets than the longest chunk has layers */
    for (int c = 0; uniform && c < m->num_chunks; c++)
        m->group = m->chunks[c].num_layers > m->group ? m->chunks[c].num_layers : m->group;
    if (m->group > cfg->recompute.num_layers)
        m->group = (int)cfg->recompute.num_layers;
    m->replayed = uniform ? (int)cfg->model.num_layers : (int)cfg->recompute.num_layers;
    m->replay = calloc((size_t)m->group, sizeof *m->replay);
    m->replay_hidden = calloc((size_t)m->group, sizeof *m->replay_hidden);
    if (!m->replay || !m->replay_hidden)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the records of %d replayed layers", m->group);
    for (int i = 0; i < m->group; i++) {
        PLAIT_TRY(plait_block_bind(m, m->a.acts, &m->replay[i]));
        if (i > 0)
            PLAIT_TRY(plait_arena_take(m->a.acts, hidden_bytes(m), &m->replay_hidden[i]));
    }
    return PLAIT_OK;
}

static plait_status make_chunks(plait_decoder *m)
{
    const plait_config *cfg = m->a.cfg;
    const plait_topology *topo = m->a.topo;
    int64_t stages = topo->pp * cfg->parallelism.num_chunks;
    m->num_chunks = (int)cfg->parallelism.num_chunks;
    m->chunks = calloc((size_t)m->num_chunks, sizeof *m->chunks);
    if (!m->chunks)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the records of %d chunks", m->num_chunks);
    for (int c = 0; c < m->num_chunks; c++) {
        int64_t k = (int64_t)c * topo->pp + topo->p, first = plait_config_first_layer(cfg, k, stages);
        m->chunks[c] = (plait_chunk){.first_layer = first,
                                     .num_layers = (int)(plait_config_first_layer(cfg, k + 1, stages) - first),
                                     .first = k == 0,
                                     .last = k == stages - 1};
    }
    return PLAIT_OK;
}

/* Attention of no samples: an error when not even its smallest tiles fit into scratch, before the first step. */
static plait_status check_scratch(const plait_decoder *m)
{
    const plait_attention none = {.seq = m->dims.seq,
                                  .heads = m->dims.heads,
                                  .kv_heads = m->dims.kv_heads,
                                  .head_dim = m->dims.head_dim,
                                  .scale = 1};
    PLAIT_TRY(m->a.ex->k->attention_fwd(m->a.ex, &none));
    return m->a.ex->k->attention_bwd(m->a.ex, &none);
}

void plait_decoder_destroy(plait_stage *stage)
{
    plait_decoder *m = stage->self;
    if (!m)
        return;
    for (int c = 0; m->chunks && c < m->num_chunks; c++) {
        for (int i = 0; i < m->chunks[c].num_slots; i++)
            slot_destroy(m->chunks[c].slots[i]);
        free(m->chunks[c].slots);
    }
    free(m->chunks);
    free(m->units.layers);
    free(m->replay);
    free(m->replay_hidden);
    free(m);
    stage->self = NULL;
}

plait_status plait_decoder_create(const plait_architecture *arch, const plait_model_args *args, plait_stage *out)
{
    static const plait_stage_ops ops = {forward, backward, bind};
    plait_status st = PLAIT_OK;
    plait_param_list again = {0}; /* the list is the caller's; building it once more says where things are in it */
    plait_decoder *m = calloc(1, sizeof *m);
    if (!m)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the record of the model");
    *out = (plait_stage){&ops, m};
    m->arch = arch;
    m->a = *args;
    m->group = 1;
    m->tp = plait_tp_make(args->groups->tensor, args->cfg->parallelism.sequence_parallel, args->cfg->precision.dtype);
    plait_decoder_dims_init(&m->dims, args->cfg, args->topo);
    m->tp.slices = (int)m->dims.slices;
    m->tp.exact = args->cfg->numerics.reduction == PLAIT_REDUCTION_INVARIANT;
    PLAIT_TRY_TO(done, st, plait_decoder_build(arch, args->cfg, args->topo, &again, &m->units));
    PLAIT_TRY_TO(done, st, make_chunks(m));
    PLAIT_TRY_TO(done, st, take_shared(m));
    PLAIT_TRY_TO(done, st, check_scratch(m));
done:
    plait_param_list_deinit(&again);
    if (st != PLAIT_OK)
        plait_decoder_destroy(out);
    return st;
}
