#include "parallel/tensor_hashes.h"

#include <stdlib.h>
#include <string.h>

#include "parallel/logical_tensors.h"
#include "parallel/weights_impl.h"

/* A record as a rank writes it down and sends it. */
typedef struct note {
    uint64_t number, hash;
} note;
enum { NOTE_WORDS = sizeof(note) / sizeof(uint64_t), NOTES = 4096 /* of a message */ };

/* A record on rank 0, at its number. */
typedef struct place {
    uint64_t hash;
    int64_t rank; /* -1: nobody has recorded it */
} place;

struct plait_hashes {
    plait_topology topo;
    int64_t slices, layers, layer_ops; /* of the model */
    bool rope;
    int micros;            /* of this step, on each data rank */
    int64_t count, room;   /* of notes */
    note *notes;           /* this rank's */
    place *places;         /* rank 0: of all ranks */
    note *inbox;           /* rank 0: NOTES */
    uint64_t *sums, *more; /* (2, tensors): of gradients, then of weights; rank 0: those of another rank */
    bool added[2];         /* those of this rank are in the sums */
    void *buffer;          /* A: a chunk of gradients or weights */
    plait_logical_tensors tensors;
    int *tensor_of; /* of each parameter of this rank */
};

/* ---- names and order ---- */

static const char *const names[PLAIT_HASH_OPS] = {
    [PLAIT_HASH_EMBEDDING] = "embedding",
    [PLAIT_HASH_INPUT_LAYERNORM] = "input_layernorm",
    [PLAIT_HASH_QKV] = "qkv",
    [PLAIT_HASH_ROPE] = "rope",
    [PLAIT_HASH_CORE_ATTN] = "core_attn",
    [PLAIT_HASH_PROJ] = "proj",
    [PLAIT_HASH_ATTN_RESIDUAL] = "attn_residual",
    [PLAIT_HASH_POST_ATTENTION_LAYERNORM] = "post_attention_layernorm",
    [PLAIT_HASH_UP] = "up",
    [PLAIT_HASH_ACT] = "act",
    [PLAIT_HASH_DOWN] = "down",
    [PLAIT_HASH_MLP_RESIDUAL] = "mlp_residual",
    [PLAIT_HASH_FINAL_LAYERNORM] = "final_layernorm",
    [PLAIT_HASH_LOGITS] = "logits",
    [PLAIT_HASH_LOSS] = "loss",
    [PLAIT_HASH_GRADIENT] = "gradient",
    [PLAIT_HASH_WEIGHT] = "weight",
};

const char *plait_hash_op_name(plait_hash_op op)
{
    return names[op];
}

bool plait_hash_op_of_layer(plait_hash_op op)
{
    return op >= PLAIT_HASH_INPUT_LAYERNORM && op <= PLAIT_HASH_MLP_RESIDUAL;
}

bool plait_hash_op_of_step(plait_hash_op op)
{
    return op == PLAIT_HASH_GRADIENT || op == PLAIT_HASH_WEIGHT;
}

static int order(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

/* -1 embedding, layers, then the head. */
static int64_t depth(const plait_hash_record *r)
{
    if (plait_hash_op_of_layer(r->op))
        return r->layer;
    return r->op == PLAIT_HASH_EMBEDDING ? -1 : INT64_MAX;
}

int plait_hash_compare_place(const plait_hash_record *a, const plait_hash_record *b)
{
    const bool of_step = plait_hash_op_of_step(a->op);
    int c = order(a->step, b->step);
    if (c == 0)
        c = order(of_step, plait_hash_op_of_step(b->op));
    if (c == 0 && of_step) {
        c = order((int64_t)a->op, (int64_t)b->op);
        return c ? c : strcmp(a->tensor, b->tensor);
    }
    if (c == 0)
        c = order(a->micro, b->micro);
    if (c == 0)
        c = order(a->backward, b->backward);
    if (c)
        return c;
    c = order(depth(a), depth(b));
    if (c == 0)
        c = order((int64_t)a->op, (int64_t)b->op);
    if (c)
        return a->backward ? -c : c;
    return order(a->slice, b->slice);
}

/* ---- numbers ---- */

/* Results of a micro-batch's forward, and as many gradients of results; the loss is besides. */
static int64_t results(const plait_hashes *h)
{
    return 1 + h->layers * h->layer_ops + 2;
}

static int64_t numbers_of_micro(const plait_hashes *h)
{
    return 2 * results(h) * h->slices + 1;
}

/* Place among the results of a forward. */
static int64_t result_of(const plait_hashes *h, int64_t layer, plait_hash_op op)
{
    if (op == PLAIT_HASH_EMBEDDING)
        return 0;
    if (!plait_hash_op_of_layer(op))
        return results(h) - 2 + (op - PLAIT_HASH_FINAL_LAYERNORM);
    return 1 + layer * h->layer_ops + (op - PLAIT_HASH_INPUT_LAYERNORM) - (op > PLAIT_HASH_ROPE && !h->rope);
}

/* Of the first slice. */
static int64_t number_of(const plait_hashes *h, int64_t micro, int64_t layer, plait_hash_op op, bool backward)
{
    const int64_t forward = results(h) * h->slices, begin = micro * numbers_of_micro(h);
    if (op == PLAIT_HASH_LOSS)
        return begin + forward;
    const int64_t result = result_of(h, layer, op);
    return begin + (backward ? forward + 1 + (results(h) - 1 - result) * h->slices : result * h->slices);
}

/* ---- creation ---- */

/* Records of a micro-batch on a rank. */
static int64_t own_of_micro(const plait_hashes *h, const plait_config *cfg)
{
    const plait_topology *t = &h->topo;
    const int64_t chunks = cfg->parallelism.num_chunks, stages = t->pp * chunks;
    int64_t layers = 0;
    for (int64_t k = t->p; k < stages; k += t->pp)
        layers += plait_config_first_layer(cfg, k + 1, stages) - plait_config_first_layer(cfg, k, stages);
    const bool last = t->p == t->pp - 1;
    return 2 * (h->slices / t->tp) * ((t->p == 0) + layers * h->layer_ops + 2 * last) + (last && t->t == 0);
}

static plait_status take(plait_hashes *h, const plait_config *cfg, int micros, plait_arena *arena)
{
    void *notes, *sums, *places, *inbox, *more;
    const size_t sums_bytes = 2 * (size_t)h->tensors.count * sizeof *h->sums;
    h->room = micros * own_of_micro(h, cfg);
    PLAIT_TRY(plait_arena_take(arena, (size_t)h->room * sizeof *h->notes, &notes));
    PLAIT_TRY(plait_arena_take(arena, sums_bytes, &sums));
    PLAIT_TRY(plait_arena_array(arena, plait_dtype_acc(cfg->precision.dtype), PLAIT_WEIGHTS_CHUNK, &h->buffer));
    h->notes = notes;
    h->sums = sums;
    if (h->topo.rank != 0)
        return PLAIT_OK;
    const int64_t all = (int64_t)h->topo.dp * micros * numbers_of_micro(h);
    PLAIT_TRY(plait_arena_take(arena, (size_t)all * sizeof *h->places, &places));
    PLAIT_TRY(plait_arena_take(arena, NOTES * sizeof *h->inbox, &inbox));
    PLAIT_TRY(plait_arena_take(arena, sums_bytes, &more));
    h->places = places;
    h->inbox = inbox;
    h->more = more;
    return PLAIT_OK;
}

static plait_status find_tensors(plait_hashes *h, const plait_config *cfg, const plait_model_ops *model,
                                 const plait_param_list *list)
{
    PLAIT_TRY(plait_logical_tensors_init(&h->tensors, cfg, &h->topo, model));
    h->tensor_of = calloc((size_t)list->num_params + 1, sizeof *h->tensor_of);
    if (!h->tensor_of)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the records of %d parameters", list->num_params);
    for (int i = 0; i < list->num_params; i++)
        h->tensor_of[i] = plait_logical_tensors_find(&h->tensors, list->params[i].name);
    return PLAIT_OK;
}

plait_status plait_hashes_create(const plait_config *cfg, const plait_topology *topo, const plait_model_ops *model,
                                 const plait_param_list *list, int micros, plait_arena *arena, plait_hashes **out)
{
    plait_hashes *h = calloc(1, sizeof *h);
    if (!h)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the record of hashes");
    h->topo = *topo;
    h->slices = cfg->numerics.tensor_slices;
    h->layers = cfg->model.num_layers;
    h->rope = cfg->model.position_embedding == PLAIT_POSITION_ROPE;
    h->layer_ops = PLAIT_HASH_MLP_RESIDUAL - PLAIT_HASH_INPUT_LAYERNORM + h->rope;
    plait_status st = find_tensors(h, cfg, model, list);
    if (st == PLAIT_OK)
        st = take(h, cfg, micros, arena);
    if (st != PLAIT_OK) {
        plait_hashes_destroy(h);
        h = NULL;
    }
    *out = h;
    return st;
}

void plait_hashes_destroy(plait_hashes *h)
{
    if (!h)
        return;
    plait_logical_tensors_deinit(&h->tensors);
    free(h->tensor_of);
    free(h);
}

/* ---- a step ---- */

void plait_hashes_begin(plait_hashes *h, int micros)
{
    h->micros = micros;
    h->count = 0;
    h->added[0] = h->added[1] = false;
    memset(h->sums, 0, 2 * (size_t)h->tensors.count * sizeof *h->sums);
    const int64_t all = (int64_t)h->topo.dp * micros * numbers_of_micro(h);
    for (int64_t i = 0; h->places && i < all; i++)
        h->places[i].rank = -1;
}

plait_status plait_hashes_add(plait_hashes *h, const plait_exec *ex, const plait_hash_place *p, const void *x,
                              int64_t rows, size_t row_bytes, size_t stride)
{
    const int64_t micro = (int64_t)h->topo.d * h->micros + p->micro;
    if (h->count == h->room)
        PLAIT_FAIL(INTERNAL, "%s of layer %lld is recorded once too often: there is room for %lld records",
                   names[p->op], (long long)p->layer, (long long)h->room);
    note *n = &h->notes[h->count++];
    n->number = (uint64_t)(number_of(h, micro, p->layer, p->op, p->backward) + p->slice);
    return ex->k->hash(ex, &n->hash, x, rows, row_bytes, stride);
}

static uint64_t *sums_of(const plait_hashes *h, uint64_t *sums, plait_hash_op which)
{
    return which == PLAIT_HASH_GRADIENT ? sums : sums + h->tensors.count;
}

plait_status plait_hashes_add_tensors(plait_hashes *h, plait_engine *e, plait_hash_op which)
{
    h->added[which - PLAIT_HASH_GRADIENT] = true;
    return plait_weights_add_hashes(e, which == PLAIT_HASH_GRADIENT, h->buffer, h->tensor_of,
                                    sums_of(h, h->sums, which));
}

/* ---- collecting ---- */

/* 64-bit words between rank 0 and another. */
static plait_status exchange(plait_hashes *h, plait_comm *world, int other, void *words, int64_t count)
{
    const bool receives = h->topo.rank == 0;
    plait_comm_op op = plait_comm_make(receives ? PLAIT_COMM_RECV : PLAIT_COMM_SEND, words, words, count, PLAIT_INT64);
    op.peer = receives ? other : 0;
    return plait_comm_run(world, &op, NULL);
}

/* Rank 0 puts down what rank `rank` has noted. */
static plait_status put(plait_hashes *h, const note *notes, int64_t count, int rank)
{
    const uint64_t all = (uint64_t)(h->topo.dp * h->micros * numbers_of_micro(h));
    for (int64_t i = 0; i < count; i++) {
        if (notes[i].number >= all)
            PLAIT_FAIL(INTERNAL, "rank %d has record %llu of a step's hashes, of which there are %llu", rank,
                       (unsigned long long)notes[i].number, (unsigned long long)all);
        place *p = &h->places[notes[i].number];
        if (p->rank >= 0)
            PLAIT_FAIL(INTERNAL, "record %lld of a step's hashes comes from rank %lld and from rank %d",
                       (long long)notes[i].number, (long long)p->rank, rank);
        *p = (place){notes[i].hash, rank};
    }
    return PLAIT_OK;
}

/* All that a rank but 0 has; called by it and by rank 0. */
static plait_status bring(plait_hashes *h, plait_comm *world, int rank)
{
    const bool receives = h->topo.rank == 0;
    uint64_t *sums = receives ? h->more : h->sums;
    int64_t count = h->count;
    PLAIT_TRY(exchange(h, world, rank, &count, 1));
    for (int64_t i = 0, n; i < count; i += n) {
        n = count - i < NOTES ? count - i : NOTES;
        note *notes = receives ? h->inbox : h->notes + i;
        PLAIT_TRY(exchange(h, world, rank, notes, NOTE_WORDS * n));
        if (receives)
            PLAIT_TRY(put(h, notes, n, rank));
    }
    PLAIT_TRY(exchange(h, world, rank, sums, 2 * (int64_t)h->tensors.count));
    for (int i = 0; receives && i < 2 * h->tensors.count; i++)
        h->sums[i] += sums[i];
    return PLAIT_OK;
}

plait_status plait_hashes_collect(plait_hashes *h, plait_comm *world)
{
    if (h->topo.rank != 0)
        return bring(h, world, h->topo.rank);
    PLAIT_TRY(put(h, h->notes, h->count, 0));
    for (int rank = 1; rank < h->topo.world; rank++)
        PLAIT_TRY(bring(h, world, rank));
    return PLAIT_OK;
}

/* ---- visiting ---- */

typedef struct visitor {
    const plait_hashes *h;
    plait_hash_visit visit;
    void *self;
} visitor;

/* The slices of a result; the loss has one, which is whole. */
static void visit_result(const visitor *v, plait_hash_record r)
{
    const bool whole = r.op == PLAIT_HASH_LOSS;
    const place *p = &v->h->places[number_of(v->h, r.micro, r.layer, r.op, r.backward)];
    for (int i = 0; i < (whole ? 1 : v->h->slices); i++) {
        r.slice = whole ? -1 : i;
        r.hash = p[i].hash;
        r.rank = (int)p[i].rank;
        if (r.rank >= 0)
            v->visit(v->self, &r);
    }
}

static void visit_layer(const visitor *v, plait_hash_record r)
{
    const int first = PLAIT_HASH_INPUT_LAYERNORM, last = PLAIT_HASH_MLP_RESIDUAL;
    for (int i = 0; i <= last - first; i++) {
        r.op = (plait_hash_op)(r.backward ? last - i : first + i);
        if (r.op != PLAIT_HASH_ROPE || v->h->rope)
            visit_result(v, r);
    }
}

static void visit_micro(const visitor *v, int64_t micro)
{
    plait_hash_record r = {.micro = micro, .layer = -1, .tensor = ""};
    const int64_t layers = v->h->layers;
    visit_result(v, r);
    for (r.layer = 0; r.layer < layers; r.layer++)
        visit_layer(v, r);
    r.layer = -1;
    for (r.op = PLAIT_HASH_FINAL_LAYERNORM; r.op <= PLAIT_HASH_LOSS; r.op++)
        visit_result(v, r);
    r.backward = true;
    for (r.op = PLAIT_HASH_LOGITS; r.op >= PLAIT_HASH_FINAL_LAYERNORM; r.op--)
        visit_result(v, r);
    for (r.layer = layers - 1; r.layer >= 0; r.layer--)
        visit_layer(v, r);
    r.op = PLAIT_HASH_EMBEDDING;
    visit_result(v, r);
}

void plait_hashes_visit(const plait_hashes *h, plait_hash_visit visit, void *self)
{
    const visitor v = {h, visit, self};
    for (int64_t micro = 0; micro < (int64_t)h->topo.dp * h->micros; micro++)
        visit_micro(&v, micro);
    for (int which = PLAIT_HASH_GRADIENT; which <= PLAIT_HASH_WEIGHT; which++)
        for (int i = 0; h->added[which - PLAIT_HASH_GRADIENT] && i < h->tensors.count; i++) {
            const plait_hash_record r = {.micro = -1,
                                         .layer = -1,
                                         .op = (plait_hash_op)which,
                                         .slice = -1,
                                         .tensor = h->tensors.params[i]->name,
                                         .hash = sums_of(h, h->sums, (plait_hash_op)which)[i],
                                         .rank = -1};
            visit(self, &r);
        }
}
