#include "parallel/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/engine_impl.h"

/* Over the limit: said with the numbers by category, before anything is allocated. */
static plait_status check_limit(const plait_engine *e)
{
    size_t limit = (size_t)e->cfg->device.memory_limit, total = plait_layout_total(&e->layout);
    if (limit == 0 || total <= limit)
        return PLAIT_OK;
    const size_t *b = e->layout.bytes;
    PLAIT_FAIL(OUT_OF_MEMORY,
               "device.memory_limit %zu bytes: [d%d p%d t%d] needs %zu (parameters %zu, gradients %zu, optimizer %zu, "
               "activations %zu, communication %zu, workspace %zu)",
               limit, e->topo.d, e->topo.p, e->topo.t, total, b[PLAIT_MEM_PARAM], b[PLAIT_MEM_GRAD], b[PLAIT_MEM_OPTIM],
               b[PLAIT_MEM_ACT], b[PLAIT_MEM_COMM] + e->layout.staging, b[PLAIT_MEM_WORK]);
}

/* What may differ by rank: whether its plan fits and the machine has the memory. */
static plait_status allocate(plait_engine *e)
{
    PLAIT_TRY(check_limit(e));
    const plait_backend *b = e->parts.ex.backend;
    for (int i = 0; i < PLAIT_MEM_KINDS; i++)
        PLAIT_TRY(plait_arena_create(b->tensors, &e->ledger, PLAIT_TIER_DEVICE, (plait_mem_kind)i, e->layout.bytes[i],
                                     &e->parts.arena[i]));
    e->parts.staging = e->parts.arena[PLAIT_MEM_WORK];
    if (e->layout.host_bytes > 0)
        PLAIT_TRY(plait_arena_create(b->staging, &e->ledger, PLAIT_TIER_HOST, PLAIT_MEM_WORK, e->layout.host_bytes,
                                     &e->parts.staging));
    return PLAIT_OK;
}

/* This rank's device, and the stream that its step runs on. */
static plait_status open_device(plait_engine *e, const plait_world *world, const plait_kernels *kernels,
                                const plait_backend *backend)
{
    plait_exec *ex = &e->parts.ex;
    PLAIT_TRY(backend->open(world->local_rank, world->local_size));
    *ex = e->parts.copies = (plait_exec){.k = kernels, .backend = backend};
    PLAIT_TRY(backend->stream_create(&ex->stream));
    return backend->stream_create(&e->parts.copies.stream);
}

/* What carries tensors, where they are a device's. */
static plait_status attach(plait_engine *e, const plait_world *world)
{
    const plait_config *cfg = e->cfg;
    if (cfg->device.backend != PLAIT_BACKEND_CUDA)
        return PLAIT_OK;
    /* Not agreed: when one rank fails to connect, the others wait in NCCL, and its failure has to end them. */
    PLAIT_TRY(plait_groups_attach(&e->groups, cfg->comm.backend, &e->parts.copies, e->parts.bounce, e->parts.scalars));
    plait_group_comm all[PLAIT_GROUP_COMMS];
    plait_group_comms(&e->groups, all);
    for (int i = 0; i < PLAIT_GROUP_COMMS && cfg->comm.backend == PLAIT_COMM_NCCL; i++)
        PLAIT_TRY(plait_comm_agree(
            world->comm, plait_comm_reserve_device(all[i].comm, e->layout.converts[all[i].kind], &e->ledger)));
    return PLAIT_OK;
}

/* Schedules, parameters and layout: arithmetic. */
plait_status plait_engine_plan(plait_engine *e, const plait_engine_options *o)
{
    PLAIT_TRY(plait_schedule_set_init(&e->schedules, o->cfg, &e->topo, &o->shape));
    PLAIT_TRY(o->model->params(o->cfg, &e->topo, &e->list));
    PLAIT_TRY(plait_layout_init(&e->layout, o->cfg, &e->topo, o->model, &e->list, &e->schedules, &o->shape));
    e->batches = calloc((size_t)e->schedules.max_micros, sizeof *e->batches);
    if (!e->batches)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the records of %d micro-batches", e->schedules.max_micros);
    if (o->cfg->zero.stage < 3)
        return PLAIT_OK;
    e->orders = calloc((size_t)e->schedules.num_all, sizeof *e->orders);
    if (!e->orders)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the records of %d orders", e->schedules.num_all);
    for (int i = 0; i < e->schedules.num_all; i++)
        PLAIT_TRY(plait_layout_order(&e->layout, &e->schedules.all[i], &e->orders[i]));
    return PLAIT_OK;
}

static plait_status reserve_staging(plait_engine *e, const plait_world *world)
{
    const size_t chunk = (size_t)e->cfg->comm.chunk_bytes;
    size_t shared = 0;
    plait_group_comm all[PLAIT_GROUP_COMMS];
    plait_group_comms(&e->groups, all);
    for (int i = 0; i < PLAIT_GROUP_COMMS; i++)
        if (plait_comm_is_shared(all[i].comm))
            shared += plait_comm_staging_bytes(all[i].comm, e->layout.largest[all[i].kind], chunk);
    PLAIT_TRY(plait_world_check_room(world, shared));
    /* Memory may be short on one rank: each group is settled by all before the next. */
    for (int i = 0; i < PLAIT_GROUP_COMMS; i++)
        PLAIT_TRY(plait_comm_agree(world->comm, plait_comm_reserve(all[i].comm, e->layout.largest[all[i].kind], chunk,
                                                                   plait_layout_staging_tier(&e->layout), &e->ledger)));
    return PLAIT_OK;
}

plait_status plait_engine_build(plait_engine *e, const plait_engine_options *o)
{
    PLAIT_TRY(plait_parts_build(&e->parts, o->cfg, &e->topo, &e->groups, o->model, &e->list, &e->schedules, &o->shape));
    if (!e->orders)
        return PLAIT_OK;
    plait_zero_order *orders[e->schedules.num_all];
    for (int i = 0; i < e->schedules.num_all; i++)
        orders[i] = &e->orders[i];
    return plait_zero_plan_gathers(e->parts.zero, orders, e->schedules.num_all);
}

/* Processors of a cluster may differ, and so would the bits of replicas that are taken to be equal. */
static plait_status same_kernels(plait_world *world, const plait_kernels *kernels)
{
    char root[64] = "";
    plait_status st = PLAIT_OK;
    snprintf(root, sizeof root, "%s", kernels->name);
    PLAIT_TRY(plait_comm_broadcast_bytes(world->comm, root, sizeof root, 0));
    if (strcmp(root, kernels->name) != 0)
        st = plait_error_set(PLAIT_UNSUPPORTED, __FILE__, __LINE__,
                             "kernels %s are the best here, on rank 0 it is %s: device.isa makes them the same",
                             kernels->name, root);
    return plait_comm_agree(world->comm, st);
}

/* Sums of ranks' contributions are formed on the host, whatever the tensors are on. */
static plait_status set_host_exec(const plait_exec *ex)
{
    plait_exec host = *ex;
    if (ex->backend != plait_backend_cpu()) {
        host = (plait_exec){.threads = 1};
        PLAIT_TRY(plait_kernels_find(PLAIT_KERNELS_AUTO, PLAIT_ISA_AUTO, PLAIT_FP32, &host.k));
    }
    plait_comm_set_exec(&host);
    return PLAIT_OK;
}

plait_engine *plait_engine_alloc(const plait_engine_options *o)
{
    plait_engine *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->cfg = o->cfg;
    e->model = o->model;
    e->shape = o->shape;
    e->schedules.eval = e->schedules.logits = -1;
    e->scaler = plait_loss_scaler_of(o->cfg);
    return e;
}

plait_status plait_engine_create(plait_world *world, const plait_engine_options *o, plait_engine **out)
{
    plait_status st = PLAIT_OK;
    const plait_config *cfg = o->cfg;
    const plait_kernels *kernels;
    const plait_backend *backend;
    plait_engine *e = plait_engine_alloc(o);
    if (!e)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the record of the engine");
    PLAIT_TRY_TO(fail, st, plait_comm_agree(world->comm, plait_device_find(cfg, &kernels, &backend)));
    PLAIT_TRY_TO(fail, st, same_kernels(world, kernels));
    PLAIT_TRY_TO(fail, st, plait_comm_agree(world->comm, open_device(e, world, kernels, backend)));
    PLAIT_TRY_TO(fail, st, plait_topology_of(cfg, world->size, world->rank, &e->topo));
    PLAIT_TRY_TO(fail, st, plait_groups_create(world, &e->topo, &e->groups));
    PLAIT_TRY_TO(fail, st, plait_comm_agree(world->comm, plait_engine_plan(e, o)));
    PLAIT_TRY_TO(fail, st, plait_comm_agree(world->comm, allocate(e)));
    PLAIT_TRY_TO(fail, st, plait_comm_agree(world->comm, plait_engine_build(e, o)));
    PLAIT_TRY_TO(fail, st, plait_comm_agree(world->comm, set_host_exec(&e->parts.ex)));
    PLAIT_TRY_TO(fail, st, attach(e, world));
    PLAIT_TRY_TO(fail, st, reserve_staging(e, world));
    *out = e;
    return PLAIT_OK;
fail:
    plait_engine_destroy(e);
    return st;
}

void plait_engine_destroy(plait_engine *e)
{
    if (!e)
        return;
    plait_parts_deinit(&e->parts);
    for (int i = 0; e->orders && i < e->schedules.num_all; i++)
        plait_zero_order_deinit(&e->orders[i]);
    free(e->orders);
    free(e->batches);
    plait_layout_deinit(&e->layout);
    plait_schedule_set_deinit(&e->schedules);
    plait_param_list_deinit(&e->list);
    plait_groups_destroy(&e->groups);
    free(e->dry_memory);
    free(e);
}

static plait_status initial_values(void *self, const plait_param *p, int64_t begin, int64_t n, double *out)
{
    const plait_engine *e = self;
    for (int64_t i = 0; i < n; i++)
        out[i] = plait_param_initial(p, (uint64_t)e->cfg->train.seed, begin + i);
    return PLAIT_OK;
}

plait_status plait_engine_init_weights(plait_engine *e)
{
    return plait_zero_fill(e->parts.zero, initial_values, e);
}

void plait_engine_observe(plait_engine *e, const plait_pipeline_observer *observer)
{
    e->observer = observer;
}

/* ---- to look at ---- */

int64_t plait_engine_updates(const plait_engine *e)
{
    return e->updates;
}
const plait_config *plait_engine_config(const plait_engine *e)
{
    return e->cfg;
}
const plait_model_ops *plait_engine_model(const plait_engine *e)
{
    return e->model;
}
const plait_topology *plait_engine_topology(const plait_engine *e)
{
    return &e->topo;
}
const plait_groups *plait_engine_groups(const plait_engine *e)
{
    return &e->groups;
}
const plait_param_list *plait_engine_params(const plait_engine *e)
{
    return &e->list;
}
const plait_schedule_set *plait_engine_schedules(const plait_engine *e)
{
    return &e->schedules;
}
const plait_layout *plait_engine_layout(const plait_engine *e)
{
    return &e->layout;
}
const plait_loss_scaler *plait_engine_loss_scaler(const plait_engine *e)
{
    return &e->scaler;
}
plait_zero *plait_engine_zero(plait_engine *e)
{
    return e->parts.zero;
}
const plait_zero_options *plait_engine_zero_options(const plait_engine *e)
{
    return &e->parts.zero_options;
}
plait_pipeline *plait_engine_pipeline(plait_engine *e)
{
    return e->parts.pipeline;
}
const plait_hashes *plait_engine_hashes(const plait_engine *e)
{
    return e->parts.hashes;
}
const plait_exec *plait_engine_exec(const plait_engine *e)
{
    return &e->parts.ex;
}
plait_ledger *plait_engine_ledger(plait_engine *e)
{
    return &e->ledger;
}
const plait_traffic *plait_engine_traffic(const plait_engine *e)
{
    return e->traffic;
}
