/* One step, one evaluation, one row of logits. */
#include <math.h>
#include <string.h>

#include "parallel/engine_impl.h"

static int64_t rows_of(const plait_engine *e)
{
    return e->cfg->model.seq_length * e->cfg->batch.micro_batch_size;
}

void plait_engine_tokens(plait_engine *e, int i, int32_t **tokens, int32_t **targets)
{
    *tokens = e->parts.host.tokens + i * rows_of(e);
    *targets = e->parts.host.targets + i * rows_of(e);
}

int64_t plait_engine_first_sample(const plait_engine *e, int micros, int i)
{
    return ((int64_t)e->topo.d * micros + i) * e->cfg->batch.micro_batch_size;
}

/* Gives the filled buffers of `micros` micro-batches to the device. */
static plait_status upload_batches(plait_engine *e, int micros)
{
    const plait_parts *p = &e->parts;
    const size_t bytes = (size_t)(micros * rows_of(e)) * sizeof *p->tokens;
    for (int i = 0; i < micros; i++)
        e->batches[i] = (plait_micro_batch){p->tokens + i * rows_of(e), p->targets + i * rows_of(e),
                                            (uint32_t)plait_engine_first_sample(e, micros, i)};
    PLAIT_TRY(plait_upload(&p->ex, p->tokens, p->host.tokens, bytes));
    return plait_upload(&p->ex, p->targets, p->host.targets, bytes);
}

/* Counts tokens over the data ranks. */
static plait_status begin(plait_engine *e, int micros, double *counted)
{
    int64_t n = 0;
    PLAIT_TRY(upload_batches(e, micros));
    for (int64_t r = 0; r < micros * rows_of(e); r++)
        n += e->parts.host.targets[r] >= 0;
    *counted = (double)n;
    plait_comm_op op = plait_comm_make(PLAIT_COMM_ALL_REDUCE, counted, counted, 1, PLAIT_FP64);
    return plait_comm_run(e->groups.data, &op, NULL);
}

/* numerics.reduction invariant */
static bool is_exact(const plait_engine *e)
{
    return e->cfg->numerics.reduction == PLAIT_REDUCTION_INVARIANT;
}

static size_t losses_bytes(const plait_engine *e, int micros)
{
    return (size_t)e->topo.dp * (size_t)micros * sizeof(double);
}

/* Runs a schedule with the parameters acquired in its order. */
static plait_status run(plait_engine *e, int schedule, plait_mode mode, uint32_t step, double grad_scale)
{
    plait_scalars *s = e->parts.scalars;
    const int micros = e->schedules.all[schedule].micros;
    PLAIT_TRY(e->parts.ex.k->zero(&e->parts.ex, s, sizeof *s));
    if (is_exact(e))
        PLAIT_TRY(e->parts.ex.k->zero(&e->parts.ex, e->parts.losses, losses_bytes(e, micros)));
    PLAIT_TRY(plait_zero_begin(e->parts.zero, e->orders ? &e->orders[schedule] : NULL, mode == PLAIT_MODE_TRAIN, micros,
                               e->scaler.scale));
    plait_pipeline_step p = {.schedule = &e->schedules.all[schedule],
                             .mode = mode,
                             .step = step,
                             .grad_scale = grad_scale,
                             .loss = is_exact(e) ? e->parts.losses + (int64_t)e->topo.d * micros : &s->loss,
                             .loss_stride = is_exact(e),
                             .hashes = mode == PLAIT_MODE_TRAIN ? e->parts.hashes : NULL,
                             .observer = mode == PLAIT_MODE_TRAIN ? e->observer : NULL,
                             .batches = e->batches,
                             .logits = e->parts.logits};
    return plait_pipeline_run(e->parts.pipeline, &p);
}

/* Adds n doubles of the host over the world: each rank gives what it alone has to give. */
static plait_status sum_over_world(plait_engine *e, double *values, int n)
{
    plait_comm_op op = plait_comm_make(PLAIT_COMM_ALL_REDUCE, values, values, n, PLAIT_FP64);
    return plait_comm_run(e->groups.world, &op, NULL);
}

/* The scalars of the step, where the host sees them: it waits here for all that the device has been given. */
static plait_status download_scalars(plait_engine *e)
{
    const plait_parts *p = &e->parts;
    PLAIT_TRY(plait_download(&p->ex, p->host.scalars, p->scalars, sizeof *p->scalars));
    return plait_comm_finish(e->groups.world, &p->ex);
}

/* Every tensor rank of the last stage has the same loss: one gives it. */
static bool gives_loss(const plait_engine *e)
{
    return e->topo.p == e->topo.pp - 1 && e->topo.t == 0;
}

/* Exact mode: the losses of all micro-batches of the world, in their order. */
static plait_status add_losses(plait_engine *e, int micros, double *sum)
{
    const plait_exec *ex = &e->parts.ex;
    if (!gives_loss(e))
        PLAIT_TRY(ex->k->zero(ex, e->parts.losses, losses_bytes(e, micros)));
    PLAIT_TRY(sum_over_world(e, e->parts.losses, e->topo.dp * micros));
    *sum = 0;
    for (int i = 0; i < e->topo.dp * micros; i++)
        *sum += e->parts.losses[i];
    return PLAIT_OK;
}

/* The loss of all micro-batches, and in the same exchange the other sums. */
static plait_status add_sums(plait_engine *e, int micros, double *sums, int n)
{
    sums[PLAIT_STEP_LOSS] = gives_loss(e) ? e->parts.host.scalars->loss : 0.0;
    PLAIT_TRY(sum_over_world(e, sums, n));
    return is_exact(e) ? add_losses(e, micros, &sums[PLAIT_STEP_LOSS]) : PLAIT_OK;
}

/* Exact mode: the squared norm and found-inf of the world. */
static plait_status add_squares(plait_engine *e, double *squares, double *found_inf)
{
    plait_fixed_squares mine = 0, all;
    int32_t overflow = 0;
    int64_t limbs[PLAIT_STEP_LIMBS];
    PLAIT_TRY(plait_zero_sum_squares_exact(e->parts.zero, &mine, &overflow));
    plait_fixed_squares_split(mine, limbs);
    limbs[PLAIT_STEP_LIMBS - 1] = overflow;
    plait_comm_op op = plait_comm_make(PLAIT_COMM_ALL_REDUCE, limbs, limbs, PLAIT_STEP_LIMBS, PLAIT_INT64);
    PLAIT_TRY(plait_comm_run(e->groups.world, &op, NULL));
    const bool fits = plait_fixed_squares_join(limbs, &all);
    *found_inf = (double)limbs[PLAIT_STEP_LIMBS - 1] + !fits;
    *squares = *found_inf > 0 ? INFINITY : plait_fixed_squares_value(all);
    return PLAIT_OK;
}

/* Which NaN it is depends on the order of operands: printed as "-nan" it would look like news. */
static double without_sign_of_nan(double x)
{
    return isnan(x) ? NAN : x;
}

static void reset_traffic(plait_engine *e)
{
    plait_group_comm all[PLAIT_GROUP_COMMS];
    plait_group_comms(&e->groups, all);
    for (int i = 0; i < PLAIT_GROUP_COMMS; i++)
        plait_comm_traffic_reset(all[i].comm);
}

static void note_traffic(plait_engine *e)
{
    plait_group_comm all[PLAIT_GROUP_COMMS];
    plait_group_comms(&e->groups, all);
    memset(e->traffic, 0, sizeof e->traffic);
    for (int i = 0; i < PLAIT_GROUP_COMMS; i++) {
        const plait_traffic one = plait_comm_traffic(all[i].comm);
        plait_traffic *sum = &e->traffic[all[i].kind];
        for (int k = 0; k < PLAIT_COMM_KINDS; k++) {
            sum->calls[k] += one.calls[k];
            sum->bytes[k] += one.bytes[k];
            sum->wire[k] += one.wire[k];
        }
    }
}

/* Gradients divided by the loss scale; loss, norm and found-inf of the whole world. */
static plait_status gather_sums(plait_engine *e, int micros, double sums[PLAIT_STEP_SUMS])
{
    plait_scalars *s = e->parts.scalars;
    const bool exact = is_exact(e);
    if (!exact && e->cfg->precision.dtype == PLAIT_FP16)
        PLAIT_TRY(plait_zero_unscale(e->parts.zero, 1.0 / e->scaler.scale, &s->found_inf));
    if (!exact)
        PLAIT_TRY(plait_zero_sum_squares(e->parts.zero, &s->sum_squares));
    PLAIT_TRY(download_scalars(e));
    sums[PLAIT_STEP_SQUARES] = e->parts.host.scalars->sum_squares;
    sums[PLAIT_STEP_FOUND_INF] = e->parts.host.scalars->found_inf;
    PLAIT_TRY(add_sums(e, micros, sums, PLAIT_STEP_SUMS));
    return exact ? add_squares(e, &sums[PLAIT_STEP_SQUARES], &sums[PLAIT_STEP_FOUND_INF]) : PLAIT_OK;
}

/* For a failure that every rank finds in the same sums: it is said once. */
static plait_status together(plait_engine *e, plait_status st)
{
    return st == PLAIT_OK ? st : plait_comm_agree(e->groups.world, st);
}

/* The weights after the update, and all records on rank 0. */
static plait_status collect_hashes(plait_engine *e)
{
    PLAIT_TRY(plait_hashes_add_tensors(e->parts.hashes, e, PLAIT_HASH_WEIGHT));
    return plait_hashes_collect(e->parts.hashes, e->groups.world);
}

plait_status plait_engine_train_step(plait_engine *e, uint32_t step, int micros, double lr, plait_step_result *out)
{
    double counted, sums[PLAIT_STEP_SUMS];
    plait_hashes *hashes = e->parts.hashes;
    int schedule = plait_schedule_set_train(&e->schedules, micros);
    if (schedule < 0)
        PLAIT_FAIL(INTERNAL, "no schedule for %d micro-batches", micros);
    reset_traffic(e);
    if (hashes)
        plait_hashes_begin(hashes, micros);
    PLAIT_TRY(begin(e, micros, &counted));
    if (counted == 0)
        return together(e, plait_error_set(PLAIT_NUMERIC, __FILE__, __LINE__,
                                           "step %u: no token of the global batch is counted", step));
    PLAIT_TRY(run(e, schedule, PLAIT_MODE_TRAIN, step, e->scaler.scale / counted));
    PLAIT_TRY(plait_zero_reduce_rest(e->parts.zero));
    if (hashes)
        PLAIT_TRY(plait_hashes_add_tensors(hashes, e, PLAIT_HASH_GRADIENT));
    PLAIT_TRY(gather_sums(e, micros, sums));

    double norm = without_sign_of_nan(sqrt(sums[PLAIT_STEP_SQUARES]));
    bool overflow = sums[PLAIT_STEP_FOUND_INF] > 0 || !isfinite(norm);
    *out = (plait_step_result){.loss = without_sign_of_nan(sums[PLAIT_STEP_LOSS] / counted),
                               .grad_norm = norm,
                               .loss_scale = e->scaler.scale,
                               .skipped = overflow,
                               .counted_tokens = (int64_t)counted};
    if (!isfinite(out->loss) && hashes)
        PLAIT_TRY(plait_hashes_collect(hashes, e->groups.world)); /* to see where it broke */
    if (!isfinite(out->loss))
        return together(e, plait_error_set(PLAIT_NUMERIC, __FILE__, __LINE__,
                                           "step %u: the loss is %f: the forward pass itself is not finite, before any "
                                           "gradient",
                                           step, out->loss));
    if (!overflow) {
        double clip = e->cfg->optimizer.clip_grad, factor = clip > 0 ? clip / (norm + 1e-6) : 1.0;
        plait_update u = {.lr = lr,
                          .weight_decay = e->cfg->optimizer.weight_decay,
                          .grad_scale = factor < 1.0 ? factor : 1.0,
                          .t = ++e->updates};
        PLAIT_TRY(plait_zero_update(e->parts.zero, &u));
    }
    note_traffic(e);
    if (hashes)
        PLAIT_TRY(collect_hashes(e));
    plait_status st = plait_loss_scaler_update(&e->scaler, overflow);
    if (st != PLAIT_OK)
        plait_error_prefix("step %u: ", step);
    return together(e, st);
}

plait_status plait_engine_evaluate(plait_engine *e, double *loss)
{
    double sums[2], counted;
    PLAIT_TRY(begin(e, e->shape.eval_micros, &counted));
    PLAIT_TRY(run(e, e->schedules.eval, PLAIT_MODE_EVAL, 0, 0.0));
    sums[1] = 0;
    PLAIT_TRY(download_scalars(e));
    PLAIT_TRY(add_sums(e, e->shape.eval_micros, sums, 2));
    *loss = without_sign_of_nan(sums[0] / counted);
    if (!isfinite(*loss))
        return together(e, plait_error_set(PLAIT_NUMERIC, __FILE__, __LINE__, "evaluation: the loss is %f", *loss));
    return PLAIT_OK;
}

plait_status plait_engine_logits(plait_engine *e, int64_t t, double *out)
{
    const plait_exec *ex = &e->parts.ex;
    const plait_dtype acc = plait_dtype_acc(e->cfg->precision.dtype);
    const int64_t padded = e->cfg->model.padded_vocab_size, slices = plait_config_slices(e->cfg);
    const int64_t words = padded / slices, here = slices / e->topo.tp; /* words of a slice, slices of this rank */
    PLAIT_TRY(upload_batches(e, 1));
    e->batches[0].sample0 = 0;
    PLAIT_TRY(run(e, e->schedules.logits, PLAIT_MODE_LOGITS, 0, 0.0));
    if (e->topo.p == e->topo.pp - 1) {
        void *own = plait_at(e->parts.logits_row, acc, e->topo.t * here * words);
        for (int64_t i = 0; i < here; i++)
            PLAIT_TRY(ex->k->copy(
                ex, plait_at(own, acc, i * words),
                plait_at(e->parts.logits, acc, (i * rows_of(e) + t * e->cfg->batch.micro_batch_size) * words),
                (size_t)words * plait_dtype_size(acc)));
        plait_comm_op gather = plait_comm_make(PLAIT_COMM_ALL_GATHER, own, e->parts.logits_row, padded, acc);
        PLAIT_TRY(plait_comm_run(e->groups.tensor, &gather, ex));
    }
    plait_comm_op spread = plait_comm_make(PLAIT_COMM_BROADCAST, e->parts.logits_row, e->parts.logits_row, padded, acc);
    spread.peer = plait_topology_rank_of(&e->topo, 0, e->topo.pp - 1, 0);
    PLAIT_TRY(plait_comm_run(e->groups.world, &spread, ex));
    PLAIT_TRY(
        plait_download(ex, e->parts.host.logits_row, e->parts.logits_row, (size_t)padded * plait_dtype_size(acc)));
    PLAIT_TRY(plait_comm_finish(e->groups.world, ex));
    return plait_host_cast(out, PLAIT_FP64, e->parts.host.logits_row, acc, e->cfg->model.vocab_size);
}
