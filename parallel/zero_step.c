/* The end of a step: what is left to reduce, the norm, the update; and values in and out. All are loops over segments:
 * runs of parameters of a unit that agree in what matters, cut to what this rank holds. */
#include <math.h>

#include "kernels/backend.h"
#include "parallel/zero_impl.h"

/* What makes two neighbouring parameters one segment. */
typedef bool (*same_segment)(const plait_param *a, const plait_param *b);

static bool same_partial(const plait_param *a, const plait_param *b)
{
    return a->partial == b->partial;
}
static bool same_counted(const plait_param *a, const plait_param *b)
{
    return a->counted == b->counted;
}
static bool same_decay(const plait_param *a, const plait_param *b)
{
    return a->decay == b->decay;
}

typedef struct segment {
    const plait_param *p; /* its first parameter: carries the property */
    int64_t begin, end;   /* elements of the unit, inside the held range; may be empty */
    int next;             /* parameter after it */
} segment;

/* Steps to the next segment of `unit`; begins with a zeroed one. */
static bool next_segment(const plait_zero *z, int unit, same_segment same, segment *s)
{
    const plait_param_list *list = z->o.list;
    const plait_unit *u = &list->units[unit];
    int first = s->p ? s->next : u->first_param, end_param = u->first_param + u->num_params;
    if (first == end_param)
        return false;
    int next = first + 1;
    while (next < end_param && same(&list->params[first], &list->params[next]))
        next++;
    int64_t begin = list->params[first].offset, end = next < end_param ? list->params[next].offset : u->numel;
    int64_t held = z->units[unit].held, held_end = z->units[unit].held_end;
    begin = begin < held ? held : begin;
    end = end > held_end ? held_end : end;
    *s = (segment){&list->params[first], begin, end > begin ? end : begin, next};
    return true;
}

/* In-place sum of a held range of gradients over `comm`. */
static plait_status sum_over(plait_zero *z, plait_comm *comm, int unit, int64_t begin, int64_t end)
{
    if (begin == end || plait_comm_size(comm) == 1)
        return PLAIT_OK;
    void *grad = plait_zero_grad_at(z, unit, begin);
    plait_comm_op op = plait_comm_make(PLAIT_COMM_ALL_REDUCE, grad, grad, end - begin, z->grad_type);
    plait_request *request;
    PLAIT_TRY(plait_comm_start(comm, &op, 1, z->o.ex, &request));
    return plait_request_queue_push(&z->reductions, request, z->o.ex);
}

plait_status plait_zero_reduce_rest(plait_zero *z)
{
    const plait_groups *groups = z->o.groups;
    for (int i = 0; i < 2; i++)
        PLAIT_TRY(plait_request_wait(&z->scratch[i].reduction, z->o.ex));
    PLAIT_TRY(plait_request_queue_drain(&z->reductions, z->o.ex));

    /* Sums are linear: partial gradients of tensor ranks are added after the data ranks', on the held range alone. All
     * members of these groups have the same data rank, so they hold the same range. */
    for (int unit = 0; unit < z->o.list->num_units; unit++) {
        if (z->o.list->units[unit].tied)
            PLAIT_TRY(sum_over(z, groups->embedding, unit, z->units[unit].held, z->units[unit].held_end));
        for (segment s = {0}; next_segment(z, unit, same_partial, &s);) {
            if (s.p->partial == PLAIT_GROUP_TENSOR)
                PLAIT_TRY(sum_over(z, groups->tensor, unit, s.begin, s.end));
            else if (s.p->partial == PLAIT_GROUP_KV)
                PLAIT_TRY(sum_over(z, groups->kv, unit, s.begin, s.end));
        }
    }
    return plait_request_queue_drain(&z->reductions, z->o.ex);
}

plait_status plait_zero_unscale(plait_zero *z, double scale, int32_t *found_inf)
{
    for (int unit = 0; unit < z->o.list->num_units; unit++) {
        const plait_unit_state *u = &z->units[unit];
        PLAIT_TRY(z->o.ex->k->unscale(z->o.ex, plait_zero_grad_at(z, unit, u->held), scale, u->held_end - u->held,
                                      found_inf));
    }
    return PLAIT_OK;
}

plait_status plait_zero_sum_squares(plait_zero *z, double *sum)
{
    if (z->o.stage == 0 && z->data_rank != 0)
        return PLAIT_OK; /* every data rank (or only the root) holds the same whole gradient: one counts it */
    for (int unit = 0; unit < z->o.list->num_units; unit++) {
        for (segment s = {0}; next_segment(z, unit, same_counted, &s);) {
            if (s.p->counted)
                PLAIT_TRY(z->o.ex->k->sum_squares(z->o.ex, sum, plait_zero_grad_at(z, unit, s.begin), s.end - s.begin));
        }
    }
    return PLAIT_OK;
}

/* The held gradient of a unit in A; *grad is where element `held` is. In exact mode it is made in the leaf. */
static plait_status read_gradient(plait_zero *z, int unit, void **grad)
{
    const plait_unit_state *u = &z->units[unit];
    *grad = plait_zero_grad_at(z, unit, u->held);
    if (!z->o.exact)
        return PLAIT_OK;
    const int64_t *sums = *grad;
    *grad = z->leaf;
    return z->o.ex->k->fixed_read(z->o.ex, z->leaf, sums, u->held_end - u->held);
}

plait_status plait_zero_sum_squares_exact(plait_zero *z, plait_fixed_squares *sum, int32_t *overflow)
{
    *overflow |= z->overflow;
    if (z->o.stage == 0 && z->data_rank != 0)
        return PLAIT_OK;
    for (int unit = 0; unit < z->o.list->num_units; unit++) {
        void *grad;
        PLAIT_TRY(read_gradient(z, unit, &grad));
        for (segment s = {0}; next_segment(z, unit, same_counted, &s);) {
            if (s.p->counted)
                PLAIT_TRY(z->o.ex->k->fixed_squares(z->o.ex, sum, plait_at(grad, z->acc, s.begin - z->units[unit].held),
                                                    s.end - s.begin, overflow));
        }
    }
    return PLAIT_OK;
}

/* Optimizer step on one segment; `held_grad`: of the unit, from read_gradient. */
static plait_status update_segment(plait_zero *z, const plait_update *u, int unit, const segment *s, void *held_grad)
{
    const plait_zero_options *o = &z->o;
    const plait_unit_state *state = &z->units[unit];
    int64_t n = s->end - s->begin, i = s->begin - state->held;
    void *param = plait_zero_param_at(z, unit, s->begin), *grad = plait_at(held_grad, z->acc, i);
    void *master = state->master ? plait_at(state->master, z->acc, i) : param;
    void *moment1 = state->moment1 ? plait_at(state->moment1, z->acc, i) : NULL;
    double decay = s->p->decay ? u->weight_decay : 0.0;
    if (n == 0)
        return PLAIT_OK;
    if (!state->master)
        param = NULL;
    if (o->optimizer == PLAIT_OPTIM_SGD) {
        plait_sgd h = {u->lr, o->momentum, decay, u->grad_scale};
        return o->ex->k->sgd(o->ex, param, master, moment1, grad, n, &h);
    }
    double bias1 = 1.0 - pow(o->beta1, (double)u->t), bias2 = 1.0 - pow(o->beta2, (double)u->t);
    plait_adamw h = {u->lr, o->beta1, o->beta2, o->eps, decay, bias1, bias2, u->grad_scale};
    return o->ex->k->adamw(o->ex, param, master, moment1, plait_at(state->moment2, z->acc, i), grad, n, &h);
}

/* Gives every data rank the whole unit again. */
static plait_status spread_unit(plait_zero *z, int unit)
{
    const plait_unit_state *u = &z->units[unit];
    int64_t numel = z->o.list->units[unit].numel;
    plait_comm_op op =
        plait_comm_make(PLAIT_COMM_ALL_GATHER, plait_zero_param_at(z, unit, u->held), u->param, numel, z->o.dtype);
    op.offsets = u->offsets;
    if (z->o.gather_to_root) {
        op.kind = PLAIT_COMM_BROADCAST;
        op.in = z->data_rank == 0 ? u->param : NULL;
        op.offsets = NULL;
    }
    plait_request *request;
    PLAIT_TRY(plait_comm_start(z->o.groups->data, &op, 1, z->o.ex, &request));
    return plait_request_queue_push(&z->reductions, request, z->o.ex);
}

plait_status plait_zero_update(plait_zero *z, const plait_update *u)
{
    bool spread = z->o.gather_to_root || (z->o.stage >= 1 && !z->shard_params);
    for (int unit = 0; unit < z->o.list->num_units; unit++) {
        void *grad;
        PLAIT_TRY(read_gradient(z, unit, &grad));
        for (segment s = {0}; next_segment(z, unit, same_decay, &s);) {
            PLAIT_TRY(update_segment(z, u, unit, &s, grad));
        }
        if (spread)
            PLAIT_TRY(spread_unit(z, unit));
    }
    return plait_request_queue_drain(&z->reductions, z->o.ex);
}

/* ---- values in and out ---- */

enum { FILL_CHUNK = 2048 };

/* Writes n values at element `begin` of a unit: parameter where it is kept, master where it is held. */
static plait_status fill_chunk(plait_zero *z, int unit, int64_t begin, int64_t n, const double *values)
{
    const plait_exec *ex = z->o.ex;
    const plait_unit_state *u = &z->units[unit];
    double as_acc[FILL_CHUNK], as_param[FILL_CHUNK]; /* room for either type */
    PLAIT_TRY(plait_host_cast(as_acc, z->acc, values, PLAIT_FP64, n));
    /* T is rounded from A, as the optimizer does. */
    PLAIT_TRY(plait_host_cast(as_param, z->o.dtype, as_acc, z->acc, n));
    PLAIT_TRY(
        plait_upload(ex, plait_zero_param_at(z, unit, begin), as_param, (size_t)n * plait_dtype_size(z->o.dtype)));
    int64_t from = begin > u->held ? begin : u->held, to = begin + n < u->held_end ? begin + n : u->held_end;
    if (u->master && to > from)
        PLAIT_TRY(plait_upload(ex, plait_at(u->master, z->acc, from - u->held), plait_at(as_acc, z->acc, from - begin),
                               (size_t)(to - from) * plait_dtype_size(z->acc)));
    return plait_finish(ex);
}

/* The part of a parameter that lies in [begin, end) of its unit. */
static plait_status fill_param(plait_zero *z, int unit, const plait_param *p, int64_t begin, int64_t end,
                               plait_value_source source, void *self)
{
    double values[FILL_CHUNK];
    int64_t from = p->offset > begin ? p->offset : begin, to = p->offset + plait_param_numel(p);
    to = to < end ? to : end;
    for (int64_t i = from; i < to; i += FILL_CHUNK) {
        int64_t n = to - i < FILL_CHUNK ? to - i : FILL_CHUNK;
        PLAIT_TRY(source(self, p, i - p->offset, n, values));
        PLAIT_TRY(fill_chunk(z, unit, i, n, values));
    }
    return PLAIT_OK;
}

plait_status plait_zero_fill(plait_zero *z, plait_value_source source, void *self)
{
    const plait_param_list *list = z->o.list;
    const plait_exec *ex = z->o.ex;
    for (int unit = 0; unit < list->num_units; unit++) {
        const plait_unit *info = &list->units[unit];
        const plait_unit_state *u = &z->units[unit];
        int64_t begin = z->shard_params ? u->offsets[z->data_rank] : 0;
        int64_t end = z->shard_params ? u->offsets[z->data_rank + 1] : info->numel;
        for (int i = info->first_param; i < info->first_param + info->num_params; i++)
            PLAIT_TRY(fill_param(z, unit, &list->params[i], begin, end, source, self));
        size_t held_bytes = (size_t)(u->held_end - u->held) * plait_dtype_size(z->acc);
        if (u->moment1)
            PLAIT_TRY(ex->k->zero(ex, u->moment1, held_bytes));
        if (u->moment2)
            PLAIT_TRY(ex->k->zero(ex, u->moment2, held_bytes));
    }
    return PLAIT_OK;
}

plait_status plait_zero_read(const plait_zero *z, int unit, int64_t begin, int64_t n, void *out)
{
    const plait_unit_state *u = &z->units[unit];
    const void *from = u->master ? plait_at(u->master, z->acc, begin - u->held) : plait_zero_param_at(z, unit, begin);
    PLAIT_TRY(plait_download(z->o.ex, out, from, (size_t)n * plait_dtype_size(z->acc)));
    return plait_finish(z->o.ex);
}

plait_status plait_zero_read_gradient(const plait_zero *z, int unit, int64_t begin, int64_t n, void *out)
{
    const plait_exec *ex = z->o.ex;
    const void *from = plait_zero_grad_at(z, unit, begin);
    if (z->o.exact)
        return ex->k->fixed_read(ex, out, from, n); /* the host is the device */
    PLAIT_TRY(plait_download(ex, out, from, (size_t)n * plait_dtype_size(z->acc)));
    return plait_finish(ex);
}
