/* States and brackets: what is kept where, and what acquire and release do at each stage. */
#include <stdlib.h>

#include "parallel/zero_impl.h"

plait_status plait_request_queue_push(plait_request_queue *q, plait_request *r, const plait_exec *ex)
{
    if (q->count == PLAIT_ZERO_OPEN) {
        PLAIT_TRY(plait_request_wait(&q->open[q->first], ex));
        q->first = (q->first + 1) % PLAIT_ZERO_OPEN;
        q->count--;
    }
    q->open[(q->first + q->count++) % PLAIT_ZERO_OPEN] = r;
    return PLAIT_OK;
}

plait_status plait_request_queue_drain(plait_request_queue *q, const plait_exec *ex)
{
    for (; q->count > 0; q->count--, q->first = (q->first + 1) % PLAIT_ZERO_OPEN)
        PLAIT_TRY(plait_request_wait(&q->open[q->first], ex));
    return PLAIT_OK;
}

void *plait_zero_param_at(const plait_zero *z, int unit, int64_t i)
{
    const plait_unit_state *u = &z->units[unit];
    return plait_at(u->param, z->o.dtype, z->shard_params ? i - u->offsets[z->data_rank] : i);
}

void *plait_zero_grad_at(const plait_zero *z, int unit, int64_t i)
{
    const plait_unit_state *u = &z->units[unit];
    return plait_at(u->grad, z->grad_type, z->shard_grads ? i - u->held : i);
}

void plait_zero_held_of(const plait_zero_options *o, int data_rank, int data_size, int64_t numel, int64_t *begin,
                        int64_t *end)
{
    *begin = 0;
    *end = numel;
    if (o->gather_to_root && data_rank != 0) {
        *end = 0;
    } else if (o->stage >= 1) {
        *begin = plait_shard_begin(numel, data_size, data_rank);
        *end = plait_shard_begin(numel, data_size, data_rank + 1);
    }
}

/* The buffers of one unit, from the arenas. */
static plait_status take_unit(plait_zero *z, int unit)
{
    const plait_zero_options *o = &z->o;
    plait_unit_state *u = &z->units[unit];
    int64_t numel = o->list->units[unit].numel;

    u->offsets = z->offsets + (int64_t)unit * (z->data_size + 1);
    plait_shard_offsets(numel, z->data_size, u->offsets);
    plait_zero_held_of(o, z->data_rank, z->data_size, numel, &u->held, &u->held_end);
    int64_t shard = u->offsets[z->data_rank + 1] - u->offsets[z->data_rank], held = u->held_end - u->held;
    size_t param_size = plait_dtype_size(o->dtype), acc_size = plait_dtype_size(z->acc);

    PLAIT_TRY(plait_arena_take(z->arenas.param, (size_t)(z->shard_params ? shard : numel) * param_size, &u->param));
    if (o->forward_only)
        return PLAIT_OK;
    PLAIT_TRY(plait_arena_take(z->arenas.grad, (size_t)(z->shard_grads ? held : numel) * plait_dtype_size(z->grad_type),
                               &u->grad));
    if (o->dtype != z->acc)
        PLAIT_TRY(plait_arena_take(z->arenas.optim, (size_t)held * acc_size, &u->master));
    if (o->optimizer == PLAIT_OPTIM_ADAMW || o->momentum != 0)
        PLAIT_TRY(plait_arena_take(z->arenas.optim, (size_t)held * acc_size, &u->moment1));
    if (o->optimizer == PLAIT_OPTIM_ADAMW)
        PLAIT_TRY(plait_arena_take(z->arenas.optim, (size_t)held * acc_size, &u->moment2));
    return PLAIT_OK;
}

static plait_status take_states(plait_zero *z)
{
    int64_t largest = 0;
    for (int i = 0; i < z->o.list->num_units; i++) {
        PLAIT_TRY(take_unit(z, i));
        if (z->o.list->units[i].numel > largest)
            largest = z->o.list->units[i].numel;
    }
    if (z->o.forward_only)
        return PLAIT_OK;
    for (int i = 0; z->shard_grads && i < 2; i++)
        PLAIT_TRY(
            plait_arena_take(z->arenas.grad, (size_t)largest * plait_dtype_size(z->grad_type), &z->scratch[i].data));
    if (z->o.exact)
        PLAIT_TRY(plait_arena_take(z->arenas.grad, (size_t)largest * plait_dtype_size(z->acc), &z->leaf));
    return PLAIT_OK;
}

plait_status plait_zero_create(const plait_zero_options *o, const plait_zero_arenas *arenas, plait_zero **out)
{
    plait_status st = PLAIT_OK;
    plait_zero *z = calloc(1, sizeof *z);
    if (!z)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the record of the model states");
    z->o = *o;
    z->acc = plait_dtype_acc(o->dtype);
    z->grad_type = o->exact ? PLAIT_INT64 : z->acc;
    z->arenas = *arenas;
    z->data_rank = plait_comm_rank(o->groups->data);
    z->data_size = plait_comm_size(o->groups->data);
    z->shard_params = o->stage >= 3;
    z->shard_grads = o->stage >= 2 && !o->keep_full_gradients;
    size_t units = (size_t)o->list->num_units;
    z->units = calloc(units + 1, sizeof *z->units);
    z->offsets = calloc(units * (size_t)(z->data_size + 1) + 1, sizeof *z->offsets);
    z->gathers = calloc((size_t)o->prefetch_units + 1, sizeof(plait_request *));
    if (!z->units || !z->offsets || !z->gathers)
        PLAIT_FAIL_TO(fail, st, OUT_OF_MEMORY, "no memory for the records of %zu units", units);
    PLAIT_TRY_TO(fail, st, take_states(z));
    *out = z;
    return PLAIT_OK;
fail:
    plait_zero_destroy(z);
    return st;
}

void plait_zero_destroy(plait_zero *z)
{
    if (!z)
        return;
    free(z->gathers);
    free(z->offsets);
    free(z->units);
    free(z);
}

/* ---- orders and the gather buffer ---- */

void plait_zero_order_deinit(plait_zero_order *order)
{
    free(order->units);
    free(order->buffers);
    *order = (plait_zero_order){0};
}

void plait_zero_record(plait_zero *z, plait_zero_order *into)
{
    z->record = into;
}

static plait_status record_acquire(plait_zero_order *order, int unit)
{
    /* Grows by doubling: the length is a power of two exactly when the array is full. */
    if ((order->length & (order->length - 1)) == 0) {
        int cap = order->length ? 2 * order->length : 1;
        int *bigger = realloc(order->units, (size_t)cap * sizeof *bigger);
        if (!bigger)
            PLAIT_FAIL(OUT_OF_MEMORY, "no memory for an order of %d acquires", cap);
        order->units = bigger;
    }
    order->units[order->length++] = unit;
    return PLAIT_OK;
}

/* Acquire k at place k % window, which the one before has left by then. Never more than `window` of the largest units.
 * Returns the bytes; place: also sets the offsets. */
static size_t ring(plait_zero_order *order, int window, bool place)
{
    size_t begin = 0;
    for (int i = 0; i < window; i++) {
        size_t largest = 0;
        for (int k = i; k < order->length; k += window) {
            plait_interval *b = &order->buffers[k];
            largest = b->bytes > largest ? b->bytes : largest;
            if (place)
                b->offset = begin;
        }
        begin += (largest + PLAIT_MEM_ALIGN - 1) / PLAIT_MEM_ALIGN * PLAIT_MEM_ALIGN;
    }
    return begin;
}

/* A unit is in the buffer from the acquire that starts its gather, `prefetch` before its own, to its release. */
static plait_status pack_order(const plait_zero *z, plait_zero_order *order, size_t *bytes)
{
    order->buffers = calloc((size_t)order->length + 1, sizeof *order->buffers);
    if (!order->buffers)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for %d gather buffers", order->length);
    for (int k = 0; k < order->length; k++) {
        int first = k - z->o.prefetch_units;
        order->buffers[k] = (plait_interval){
            .first = first > 0 ? first : 0,
            .last = k,
            .bytes = (size_t)z->o.list->units[order->units[k]].numel * plait_dtype_size(z->o.dtype),
        };
    }
    /* First fit is mostly smaller, but units of different sizes may leave holes. */
    PLAIT_TRY(plait_pack(order->buffers, order->length, bytes));
    int window = z->o.prefetch_units + 1;
    if (ring(order, window, false) < *bytes)
        *bytes = ring(order, window, true);
    return PLAIT_OK;
}

plait_status plait_zero_plan_gathers(plait_zero *z, plait_zero_order *const *orders, int num_orders)
{
    size_t largest = 0;
    for (int i = 0; i < num_orders; i++) {
        size_t bytes;
        PLAIT_TRY(pack_order(z, orders[i], &bytes));
        largest = bytes > largest ? bytes : largest;
    }
    void *buffer;
    PLAIT_TRY(plait_arena_take(z->arenas.param, largest, &buffer));
    z->gather_buffer = buffer;
    return PLAIT_OK;
}

/* ---- one run ---- */

plait_status plait_zero_begin(plait_zero *z, const plait_zero_order *order, bool train, int micros, double loss_scale)
{
    const plait_kernels *k = z->o.ex->k;
    z->order = order;
    z->position = z->next_gather = 0;
    z->train = train;
    z->unscale = 1.0 / loss_scale;
    z->limit = plait_fixed_limit((int64_t)micros * z->data_size * z->o.terms);
    z->overflow = 0;
    z->releases_left = 0;
    for (int i = 0; train && i < z->o.list->num_units; i++) {
        plait_unit_state *u = &z->units[i];
        int64_t numel = z->shard_grads ? u->held_end - u->held : z->o.list->units[i].numel;
        PLAIT_TRY(k->zero(z->o.ex, u->grad, (size_t)numel * plait_dtype_size(z->grad_type)));
        u->releases = micros * z->o.list->units[i].uses;
        z->releases_left += u->releases;
    }
    return PLAIT_OK;
}

static plait_comm_op gather_of(const plait_zero *z, int unit, void *buffer)
{
    plait_comm_op op =
        plait_comm_make(PLAIT_COMM_ALL_GATHER, z->units[unit].param, buffer, z->o.list->units[unit].numel, z->o.dtype);
    op.offsets = z->units[unit].offsets;
    return op;
}

/* Starts the gathers that are due at the current position, then waits for the one of this unit. */
static plait_status gather(plait_zero *z, int unit, const void **param)
{
    const plait_zero_order *order = z->order;
    if (!order || z->position >= order->length || order->units[z->position] != unit)
        PLAIT_FAIL(INTERNAL, "acquire %d is of %s, not what the order has", z->position, z->o.list->units[unit].name);
    int window = z->o.prefetch_units + 1;
    for (; z->next_gather < order->length && z->next_gather < z->position + window; z->next_gather++) {
        int g = z->next_gather;
        plait_comm_op op = gather_of(z, order->units[g], z->gather_buffer + order->buffers[g].offset);
        PLAIT_TRY(plait_comm_start(z->o.groups->data, &op, 1, z->o.ex, &z->gathers[g % window]));
    }
    int gathered = z->next_gather - z->position;
    z->stats.max_gathered = gathered > z->stats.max_gathered ? gathered : z->stats.max_gathered;
    PLAIT_TRY(plait_request_wait(&z->gathers[z->position % window], z->o.ex));
    *param = z->gather_buffer + order->buffers[z->position].offset;
    z->position++;
    return PLAIT_OK;
}

/* The dry pass: notes the acquire, and lets the group count the gather. */
static plait_status record(plait_zero *z, int unit)
{
    PLAIT_TRY(record_acquire(z->record, unit));
    if (!z->shard_params)
        return PLAIT_OK;
    plait_comm_op op = gather_of(z, unit, z->units[unit].param);
    return plait_comm_run(z->o.groups->data, &op, z->o.ex);
}

/* The gradient scratch of stages 2 and 3, free and zeroed. */
static plait_status open_scratch(plait_zero *z, int unit, void **grad)
{
    PLAIT_TRY(plait_request_wait(&z->scratch[z->next_scratch].reduction, z->o.ex));
    *grad = z->scratch[z->next_scratch].data;
    return z->o.ex->k->zero(z->o.ex, *grad, (size_t)z->o.list->units[unit].numel * plait_dtype_size(z->grad_type));
}

/* ---- terms of exact sums ---- */

/* Elements [from, from + n) of the leaf are a term of the gradient from `to` on. */
static plait_status add_term(plait_zero *z, int64_t to, int64_t from, int64_t n)
{
    return z->o.ex->k->fixed_add(z->o.ex, z->terms + to, plait_at(z->leaf, z->acc, from), z->unscale, z->limit, n,
                                 &z->overflow);
}

plait_status plait_zero_end_term(plait_zero *z, const plait_unit_view *view, int64_t begin, int64_t n)
{
    if (!z->o.exact || !view->grad)
        return PLAIT_OK;
    PLAIT_TRY(add_term(z, begin, begin, n));
    return z->o.ex->k->zero(z->o.ex, plait_at(z->leaf, z->acc, begin), (size_t)n * plait_dtype_size(z->acc));
}

/* What is left of the leaf, each parameter a term. Replicas on this rank get the terms of all of them. */
static plait_status end_leaf(plait_zero *z, int unit)
{
    const plait_unit *u = &z->o.list->units[unit];
    for (int i = u->first_param; i < u->first_param + u->num_params; i++) {
        const plait_param *p = &z->o.list->params[i];
        for (int a = 0; a < p->copies; a++)
            for (int b = 0; b < p->copies; b++)
                PLAIT_TRY(
                    add_term(z, p->offset + a * p->copy_stride, p->offset + b * p->copy_stride, plait_param_numel(p)));
    }
    return PLAIT_OK;
}

plait_status plait_zero_acquire(plait_zero *z, int unit, unsigned what, plait_unit_view *view)
{
    *view = (plait_unit_view){z->units[unit].param, NULL};
    if (what & PLAIT_ACQUIRE_PARAM) {
        if (z->record)
            PLAIT_TRY(record(z, unit));
        else if (z->shard_params)
            PLAIT_TRY(gather(z, unit, &view->param));
    }
    if (what & PLAIT_ACQUIRE_GRAD) {
        view->grad = z->units[unit].grad;
        if (z->shard_grads)
            PLAIT_TRY(open_scratch(z, unit, &view->grad));
        if (z->o.exact) {
            z->terms = view->grad;
            view->grad = z->leaf;
            PLAIT_TRY(
                z->o.ex->k->zero(z->o.ex, z->leaf, (size_t)z->o.list->units[unit].numel * plait_dtype_size(z->acc)));
        }
        z->stats.open_reductions +=
            z->shard_grads ? z->scratch[1 - z->next_scratch].reduction != NULL : z->reductions.count > 0;
    }
    return PLAIT_OK;
}

/* How the data ranks' gradients of a unit become one. */
static plait_comm_op reduction_of(plait_zero *z, int unit, void *scratch)
{
    plait_unit_state *u = &z->units[unit];
    int64_t numel = z->o.list->units[unit].numel;
    plait_comm_op op = plait_comm_make(PLAIT_COMM_ALL_REDUCE, u->grad, u->grad, numel, z->grad_type);
    if (!z->o.exact)
        op.wire = z->o.wire;
    if (z->o.gather_to_root) {
        op.kind = PLAIT_COMM_REDUCE;
        op.out = z->data_rank == 0 ? u->grad : NULL;
    } else if (z->shard_grads) {
        op.kind = PLAIT_COMM_REDUCE_SCATTER;
        op.in = scratch;
        op.offsets = u->offsets;
        op.accumulate = true;
    } else if (z->o.stage >= 1) {
        op.kind = PLAIT_COMM_REDUCE_SCATTER;
        op.out = plait_zero_grad_at(z, unit, u->held);
        op.offsets = u->offsets;
    }
    return op;
}

plait_status plait_zero_release(plait_zero *z, int unit, unsigned what)
{
    if (!(what & PLAIT_ACQUIRE_GRAD))
        return PLAIT_OK;
    if (z->o.exact)
        PLAIT_TRY(end_leaf(z, unit));
    plait_unit_state *u = &z->units[unit];
    u->releases--;
    z->releases_left--;
    if (!z->shard_grads && u->releases > 0)
        return PLAIT_OK;

    plait_comm_op op = reduction_of(z, unit, z->scratch[z->next_scratch].data);
    plait_request *request;
    PLAIT_TRY(plait_comm_start(z->o.groups->data, &op, 1, z->o.ex, &request));
    z->stats.early_reductions += z->releases_left > 0;
    if (z->shard_grads) {
        z->scratch[z->next_scratch].reduction = request;
        z->next_scratch = 1 - z->next_scratch;
        return PLAIT_OK;
    }
    return plait_request_queue_push(&z->reductions, request, z->o.ex);
}

/* ---- what is asked ---- */

void plait_zero_held(const plait_zero *z, int unit, int64_t *begin, int64_t *end)
{
    *begin = z->units[unit].held;
    *end = z->units[unit].held_end;
}

const void *plait_zero_param(const plait_zero *z, int unit)
{
    return z->units[unit].param;
}

plait_zero_stats plait_zero_get_stats(const plait_zero *z)
{
    return z->stats;
}
