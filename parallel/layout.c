#include "parallel/layout.h"

#include <stdlib.h>
#include <string.h>

#include "parallel/engine_impl.h"
#include "parallel/lr_schedule.h"

/* ---- schedules ---- */

plait_status plait_schedule_set_init(plait_schedule_set *s, const plait_config *cfg, const plait_topology *topo,
                                     const plait_run_shape *shape)
{
    plait_status st = PLAIT_OK;
    int chunks = (int)cfg->parallelism.num_chunks;
    const plait_batch_ramp ramp = plait_batch_ramp_of(cfg);
    *s = (plait_schedule_set){.eval = -1, .logits = -1};
    s->all = calloc((size_t)ramp.increments + 3, sizeof *s->all);
    if (!s->all)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for %lld schedules", (long long)ramp.increments + 3);
    for (int64_t i = 0; !shape->logits && i <= ramp.increments; i++) {
        int64_t global = ramp.global - (ramp.increments - i) * ramp.increment;
        int micros = (int)plait_num_micro_batches(global, cfg->batch.micro_batch_size, topo->dp);
        PLAIT_TRY_TO(
            fail, st,
            plait_schedule_init(&s->all[s->num_all], cfg->parallelism.schedule, topo->p, topo->pp, chunks, micros));
        s->num_train = ++s->num_all;
        s->max_micros = micros > s->max_micros ? micros : s->max_micros;
    }
    if (shape->eval_micros > 0) {
        PLAIT_TRY_TO(fail, st,
                     plait_schedule_init_forward(&s->all[s->num_all], topo->p, topo->pp, chunks, shape->eval_micros));
        s->eval = s->num_all++;
        s->max_micros = shape->eval_micros > s->max_micros ? shape->eval_micros : s->max_micros;
    }
    if (shape->logits) {
        PLAIT_TRY_TO(fail, st, plait_schedule_init_forward(&s->all[s->num_all], topo->p, topo->pp, chunks, 1));
        s->logits = s->num_all++;
        s->max_micros = s->max_micros > 0 ? s->max_micros : 1;
    }
    return PLAIT_OK;
fail:
    plait_schedule_set_deinit(s);
    return st;
}

void plait_schedule_set_deinit(plait_schedule_set *s)
{
    for (int i = 0; i < s->num_all; i++)
        plait_schedule_deinit(&s->all[i]);
    free(s->all);
    *s = (plait_schedule_set){.eval = -1, .logits = -1};
}

int plait_schedule_set_train(const plait_schedule_set *s, int micros)
{
    for (int i = 0; i < s->num_train; i++)
        if (s->all[i].micros == micros)
            return i;
    return -1;
}

/* ---- the parts of a rank ---- */

static plait_zero_options zero_options(const plait_config *cfg, const plait_groups *groups,
                                       const plait_param_list *list, const plait_run_shape *shape)
{
    return (plait_zero_options){
        .stage = (int)cfg->zero.stage,
        .gather_to_root = cfg->parallelism.dp_algorithm == PLAIT_DP_GATHER_TO_ROOT,
        .keep_full_gradients = cfg->zero.keep_full_gradients,
        .exact = cfg->numerics.reduction == PLAIT_REDUCTION_INVARIANT,
        /* pieces of a norm or copies of a head; embedding and head of a tied matrix */
        .terms = cfg->numerics.tensor_slices > 2 ? cfg->numerics.tensor_slices : 2,
        .forward_only = shape->logits,
        .prefetch_units = (int)cfg->zero.prefetch_units,
        .dtype = cfg->precision.dtype,
        .wire = cfg->precision.communication_dtype,
        .optimizer = cfg->optimizer.type,
        .beta1 = cfg->optimizer.beta1,
        .beta2 = cfg->optimizer.beta2,
        .eps = cfg->optimizer.eps,
        .momentum = cfg->optimizer.momentum,
        .list = list,
        .groups = groups,
    };
}

/* Where the host reads and writes a tensor: at its own place, or in `bytes` bytes of staging. */
static plait_status take_host_side(const plait_parts *p, void *tensor, size_t bytes, void **out)
{
    *out = tensor;
    return p->staging == p->arena[PLAIT_MEM_WORK] ? PLAIT_OK : plait_arena_take(p->staging, bytes, out);
}

static plait_status take_host_sides(plait_parts *p, int64_t tokens, size_t logits_row)
{
    void *host;
    PLAIT_TRY(take_host_side(p, p->tokens, (size_t)tokens * sizeof(int32_t), &host));
    p->host.tokens = host;
    PLAIT_TRY(take_host_side(p, p->targets, (size_t)tokens * sizeof(int32_t), &host));
    p->host.targets = host;
    PLAIT_TRY(take_host_side(p, p->scalars, sizeof *p->scalars, &host));
    p->host.scalars = host;
    return p->logits_row ? take_host_side(p, p->logits_row, logits_row, &p->host.logits_row) : PLAIT_OK;
}

/* Token buffers, scalars, logits. */
static plait_status take_buffers(plait_parts *p, const plait_config *cfg, const plait_topology *topo,
                                 const plait_schedule_set *schedules, const plait_run_shape *shape)
{
    const plait_dtype acc = plait_dtype_acc(cfg->precision.dtype);
    const int64_t rows = cfg->model.seq_length * cfg->batch.micro_batch_size;
    void *tokens, *targets, *scalars;
    PLAIT_TRY(plait_arena_array(p->arena[PLAIT_MEM_WORK], PLAIT_INT32, schedules->max_micros * rows, &tokens));
    PLAIT_TRY(plait_arena_array(p->arena[PLAIT_MEM_WORK], PLAIT_INT32, schedules->max_micros * rows, &targets));
    PLAIT_TRY(plait_arena_take(p->arena[PLAIT_MEM_WORK], sizeof(plait_scalars), &scalars));
    if (cfg->numerics.reduction == PLAIT_REDUCTION_INVARIANT) {
        void *losses;
        PLAIT_TRY(plait_arena_array(p->arena[PLAIT_MEM_WORK], PLAIT_FP64, (int64_t)topo->dp * schedules->max_micros,
                                    &losses));
        p->losses = losses;
    }
    p->tokens = tokens;
    p->targets = targets;
    p->scalars = scalars;
    if (shape->logits) {
        int64_t padded = cfg->model.padded_vocab_size;
        PLAIT_TRY(plait_arena_array(p->arena[PLAIT_MEM_WORK], acc, rows * (padded / topo->tp), &p->logits));
        PLAIT_TRY(plait_arena_array(p->arena[PLAIT_MEM_WORK], acc, padded, &p->logits_row));
    }
    if (cfg->device.backend == PLAIT_BACKEND_CUDA && cfg->comm.backend == PLAIT_COMM_STAGED && topo->world > 1)
        PLAIT_TRY(plait_arena_take(p->staging, PLAIT_GROUPS_BOUNCE, &p->bounce));
    return take_host_sides(p, schedules->max_micros * rows,
                           (size_t)cfg->model.padded_vocab_size * plait_dtype_size(acc));
}

static int most_train_micros(const plait_schedule_set *s)
{
    int most = 0;
    for (int i = 0; i < s->num_train; i++)
        most = s->all[i].micros > most ? s->all[i].micros : most;
    return most;
}

plait_status plait_parts_plan(plait_parts *p, const plait_config *cfg)
{
    p->ex = (plait_exec){.k = plait_kernels_plan(cfg->precision.dtype, cfg->device.backend),
                         .backend = plait_backend_plan()};
    for (int i = 0; i < PLAIT_MEM_KINDS; i++)
        PLAIT_TRY(plait_arena_create_counting(PLAIT_TIER_DEVICE, (plait_mem_kind)i, &p->arena[i]));
    p->staging = p->arena[PLAIT_MEM_WORK];
    return cfg->device.backend == PLAIT_BACKEND_CUDA
               ? plait_arena_create_counting(PLAIT_TIER_HOST, PLAIT_MEM_WORK, &p->staging)
               : PLAIT_OK;
}

plait_status plait_parts_build(plait_parts *p, const plait_config *cfg, const plait_topology *topo,
                               const plait_groups *groups, const plait_model_ops *model, const plait_param_list *list,
                               const plait_schedule_set *schedules, const plait_run_shape *shape)
{
    const plait_schedule *all[schedules->num_all];
    for (int i = 0; i < schedules->num_all; i++)
        all[i] = &schedules->all[i];

    p->ex.work = p->arena[PLAIT_MEM_WORK];
    p->ex.scratch_bytes = (size_t)cfg->device.workspace;
    p->ex.threads = (int)cfg->device.threads;
    p->ex.allow_tf32 = cfg->precision.allow_tf32;
    PLAIT_TRY(plait_arena_take(p->ex.work, p->ex.scratch_bytes, &p->ex.scratch));
    PLAIT_TRY(take_buffers(p, cfg, topo, schedules, shape));

    p->zero_options = zero_options(cfg, groups, list, shape);
    p->zero_options.ex = &p->ex;
    plait_zero_arenas arenas = {p->arena[PLAIT_MEM_PARAM], p->arena[PLAIT_MEM_GRAD], p->arena[PLAIT_MEM_OPTIM]};
    PLAIT_TRY(plait_zero_create(&p->zero_options, &arenas, &p->zero));

    if (cfg->debug.tensor_hashes[0] && !shape->logits)
        PLAIT_TRY(plait_hashes_create(cfg, topo, model, list, most_train_micros(schedules), p->staging, &p->hashes));

    plait_model_args args = {cfg, topo, groups, list, p->zero, &p->ex, p->arena[PLAIT_MEM_ACT]};
    PLAIT_TRY(model->create(&args, &p->stage));
    p->model = model;

    int64_t rows = cfg->model.seq_length * cfg->batch.micro_batch_size;
    plait_pipeline_options o = {.stage = p->stage,
                                .act = groups->pipe_act,
                                .grad = groups->pipe_grad,
                                .chunks = (int)cfg->parallelism.num_chunks,
                                .rows = cfg->parallelism.sequence_parallel ? rows / topo->tp : rows,
                                .hidden = cfg->model.hidden_size,
                                .dtype = cfg->precision.dtype,
                                .schedules = all,
                                .num_schedules = schedules->num_all,
                                .ex = &p->ex};
    return plait_pipeline_create(&o, p->arena[PLAIT_MEM_ACT], p->arena[PLAIT_MEM_COMM], &p->pipeline);
}

void plait_parts_deinit(plait_parts *p)
{
    plait_pipeline_destroy(p->pipeline);
    if (p->model)
        p->model->destroy(&p->stage);
    plait_hashes_destroy(p->hashes);
    plait_zero_destroy(p->zero);
    if (p->ex.backend) { /* after all that they were given */
        p->ex.backend->stream_destroy(p->ex.stream);
        p->ex.backend->stream_destroy(p->copies.stream);
    }
    if (p->staging != p->arena[PLAIT_MEM_WORK])
        plait_arena_destroy(p->staging);
    for (int i = 0; i < PLAIT_MEM_KINDS; i++)
        plait_arena_destroy(p->arena[i]);
    *p = (plait_parts){0};
}

/* ---- the dry pass ---- */

const char *plait_step_part_name(plait_step_part part)
{
    static const char *const names[] = {"all of the step", "forward", "backward", "update"};
    return names[part];
}

/* Notes the part that has just run, if workspace has never been as high. */
static void note_workspace(plait_layout *l, const plait_parts *p, plait_step_part part, int chunk, size_t *highest)
{
    const size_t now = plait_arena_high_water(p->arena[PLAIT_MEM_WORK]);
    if (now <= *highest)
        return;
    *highest = now;
    l->workspace_part = part;
    l->workspace_chunk = chunk;
}

/* Runs forward and backward of one chunk where nothing is computed, and writes down their acquires. */
static plait_status dry_chunk(plait_layout *l, plait_parts *p, int chunk, const plait_run_shape *shape, size_t *highest)
{
    void *border = p->tokens; /* any address: nothing is followed */
    plait_call call = {.chunk = chunk,
                       .mode = shape->logits ? PLAIT_MODE_LOGITS : PLAIT_MODE_TRAIN,
                       .batch = {p->tokens, p->targets, 0},
                       .grad_scale = 1.0,
                       .loss = &p->scalars->loss,
                       .ex = &p->ex};
    plait_zero_record(p->zero, &l->forward[chunk]);
    PLAIT_TRY(p->stage.ops->forward(p->stage.self, &call, border, border));
    note_workspace(l, p, PLAIT_PART_FORWARD, chunk, highest);
    plait_zero_record(p->zero, &l->backward[chunk]);
    if (!shape->logits)
        PLAIT_TRY(p->stage.ops->backward(p->stage.self, &call, border, border, border));
    note_workspace(l, p, PLAIT_PART_BACKWARD, chunk, highest);
    plait_zero_record(p->zero, NULL);
    return PLAIT_OK;
}

/* Everything that a step does, once, over groups that only count. */
static plait_status dry_step(plait_layout *l, plait_parts *p, const plait_config *cfg, const plait_groups *groups,
                             const plait_schedule_set *schedules, const plait_run_shape *shape)
{
    const plait_dtype acc = plait_dtype_acc(cfg->precision.dtype);
    size_t highest = 0;
    PLAIT_TRY(plait_zero_begin(p->zero, NULL, !shape->logits, 1, 1.0));
    note_workspace(l, p, PLAIT_PART_ALWAYS, 0, &highest);
    /* Backward of the last chunk comes first, as in a run; the order of chunks does not change what each one asks for.
     */
    for (int chunk = l->num_chunks - 1; chunk >= 0; chunk--)
        PLAIT_TRY(dry_chunk(l, p, chunk, shape, &highest));
    if (shape->logits) {
        void *row = p->logits_row;
        plait_comm_op op = plait_comm_make(PLAIT_COMM_BROADCAST, row, row, cfg->model.padded_vocab_size, acc);
        PLAIT_TRY(plait_comm_run(groups->world, &op, &p->ex));
        op = plait_comm_make(PLAIT_COMM_ALL_GATHER, row, row, cfg->model.padded_vocab_size, acc);
        return plait_comm_run(groups->tensor, &op, &p->ex);
    }
    PLAIT_TRY(plait_zero_reduce_rest(p->zero));
    plait_update u = {.t = 1};
    PLAIT_TRY(plait_zero_update(p->zero, &u));
    note_workspace(l, p, PLAIT_PART_UPDATE, 0, &highest);
    plait_comm_op op = plait_comm_make(PLAIT_COMM_ALL_REDUCE, p->scalars, p->scalars, PLAIT_STEP_SUMS, PLAIT_FP64);
    PLAIT_TRY(plait_comm_run(groups->world, &op, NULL));
    if (p->losses) {
        plait_comm_op losses =
            plait_comm_make(PLAIT_COMM_ALL_REDUCE, p->losses, p->losses,
                            (int64_t)plait_comm_size(groups->data) * schedules->max_micros, PLAIT_FP64);
        PLAIT_TRY(plait_comm_run(groups->world, &losses, NULL));
        plait_comm_op limbs =
            plait_comm_make(PLAIT_COMM_ALL_REDUCE, p->losses, p->losses, PLAIT_STEP_LIMBS, PLAIT_INT64);
        PLAIT_TRY(plait_comm_run(groups->world, &limbs, NULL));
    }
    op.count = 1; /* counted tokens */
    return plait_comm_run(groups->data, &op, NULL);
}

/* The gather buffer of stage 3: needs the orders, which the dry step has found. */
static plait_status dry_gathers(const plait_layout *l, plait_parts *p, const plait_schedule_set *schedules)
{
    plait_status st = PLAIT_OK;
    plait_zero_order orders[schedules->num_all], *pointers[schedules->num_all];
    for (int i = 0; i < schedules->num_all; i++) {
        orders[i] = (plait_zero_order){0};
        pointers[i] = &orders[i];
    }
    for (int i = 0; i < schedules->num_all; i++)
        PLAIT_TRY_TO(done, st, plait_layout_order(l, &schedules->all[i], &orders[i]));
    PLAIT_TRY_TO(done, st, plait_zero_plan_gathers(p->zero, pointers, schedules->num_all));
done:
    for (int i = 0; i < schedules->num_all; i++)
        plait_zero_order_deinit(&orders[i]);
    return st;
}

void plait_group_comms(const plait_groups *groups, plait_group_comm out[PLAIT_GROUP_COMMS])
{
    const plait_group_comm all[PLAIT_GROUP_COMMS] = {
        {groups->world, PLAIT_GROUP_WORLD},
        {groups->tensor, PLAIT_GROUP_TENSOR},
        {groups->data, PLAIT_GROUP_DATA},
        {groups->pipe_act, PLAIT_GROUP_PIPELINE},
        {groups->pipe_grad, PLAIT_GROUP_PIPELINE},
        {groups->embedding, PLAIT_GROUP_EMBEDDING},
        {groups->kv, PLAIT_GROUP_KV},
    };
    memcpy(out, all, sizeof all);
}

/* What each group's staging has to hold; messages of the pipeline need none. */
static void note_comms(plait_layout *l, const plait_config *cfg, const plait_groups *groups)
{
    const bool nccl = l->host_bytes > 0 && cfg->comm.backend != PLAIT_COMM_STAGED;
    plait_group_comm all[PLAIT_GROUP_COMMS];
    plait_group_comms(groups, all);
    for (int i = 0; i < PLAIT_GROUP_COMMS; i++) {
        if (all[i].kind == PLAIT_GROUP_PIPELINE)
            continue;
        const plait_traffic traffic = plait_comm_traffic(all[i].comm);
        const size_t largest = nccl ? traffic.largest_host : traffic.largest;
        l->largest[all[i].kind] = largest;
        l->staging += plait_comm_staging_bytes(all[i].comm, largest, (size_t)cfg->comm.chunk_bytes);
        if (nccl) {
            l->converts[all[i].kind] = traffic.converted;
            l->converted += traffic.converted;
        }
    }
}

plait_status plait_layout_init(plait_layout *l, const plait_config *cfg, const plait_topology *topo,
                               const plait_model_ops *model, const plait_param_list *list,
                               const plait_schedule_set *schedules, const plait_run_shape *shape)
{
    plait_status st = PLAIT_OK;
    plait_parts parts = {0};
    plait_groups groups = {0};
    *l = (plait_layout){.num_chunks = (int)cfg->parallelism.num_chunks};
    l->forward = calloc((size_t)l->num_chunks, sizeof *l->forward);
    l->backward = calloc((size_t)l->num_chunks, sizeof *l->backward);
    if (!l->forward || !l->backward)
        PLAIT_FAIL_TO(done, st, OUT_OF_MEMORY, "no memory for the orders of %d chunks", l->num_chunks);
    PLAIT_TRY_TO(done, st, plait_groups_create_plan(topo, &groups));
    PLAIT_TRY_TO(done, st, plait_parts_plan(&parts, cfg));
    PLAIT_TRY_TO(done, st, plait_parts_build(&parts, cfg, topo, &groups, model, list, schedules, shape));
    PLAIT_TRY_TO(done, st, dry_step(l, &parts, cfg, &groups, schedules, shape));
    if (cfg->zero.stage == 3)
        PLAIT_TRY_TO(done, st, dry_gathers(l, &parts, schedules));
    for (int i = 0; i < PLAIT_MEM_KINDS; i++)
        l->bytes[i] = plait_arena_high_water(parts.arena[i]);
    if (parts.staging != parts.arena[PLAIT_MEM_WORK])
        l->host_bytes = plait_arena_high_water(parts.staging);
    note_comms(l, cfg, &groups);
done:
    plait_parts_deinit(&parts);
    plait_groups_destroy(&groups);
    if (st != PLAIT_OK)
        plait_layout_deinit(l);
    return st;
}

void plait_layout_deinit(plait_layout *l)
{
    for (int i = 0; i < l->num_chunks; i++) {
        if (l->forward)
            plait_zero_order_deinit(&l->forward[i]);
        if (l->backward)
            plait_zero_order_deinit(&l->backward[i]);
    }
    free(l->forward);
    free(l->backward);
    *l = (plait_layout){0};
}

plait_tier plait_layout_staging_tier(const plait_layout *l)
{
    return l->host_bytes > 0 ? PLAIT_TIER_HOST : PLAIT_TIER_DEVICE;
}

size_t plait_layout_total(const plait_layout *l)
{
    size_t total = l->converted + (plait_layout_staging_tier(l) == PLAIT_TIER_DEVICE ? l->staging : 0);
    for (int i = 0; i < PLAIT_MEM_KINDS; i++)
        total += l->bytes[i];
    return total;
}

plait_status plait_layout_order(const plait_layout *l, const plait_schedule *s, plait_zero_order *out)
{
    *out = (plait_zero_order){0};
    for (int pass = 0; pass < 2; pass++) { /* count, then copy */
        out->length = 0;
        for (int i = 0; i < s->num_acts; i++) {
            const plait_act *act = &s->acts[i];
            if (act->kind != PLAIT_ACT_FWD && act->kind != PLAIT_ACT_BWD)
                continue;
            const plait_zero_order *part =
                act->kind == PLAIT_ACT_FWD ? &l->forward[act->chunk] : &l->backward[act->chunk];
            for (int k = 0; pass == 1 && k < part->length; k++)
                out->units[out->length + k] = part->units[k];
            out->length += part->length;
        }
        if (pass == 0) {
            out->units = calloc((size_t)out->length + 1, sizeof *out->units);
            if (!out->units)
                PLAIT_FAIL(OUT_OF_MEMORY, "no memory for an order of %d acquires", out->length);
        }
    }
    return PLAIT_OK;
}
