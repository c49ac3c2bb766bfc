#include "launcher/training.h"

#include "core/file.h"
#include "core/resident.h"
#include "models/registry.h"
#include "parallel/weights.h"

static plait_status open_data(const plait_config *cfg, plait_text_data **out)
{
    if (!cfg->data.path[0])
        PLAIT_FAIL(USAGE, "data.data_path: a text file is needed to train");
    plait_text_options o = {.path = cfg->data.path,
                            .split = {cfg->data.split[0], cfg->data.split[1], cfg->data.split[2]},
                            .seq_length = cfg->model.seq_length,
                            .vocab_size = cfg->model.vocab_size,
                            .seed = (uint64_t)cfg->train.seed,
                            .first_sample = cfg->data.first_sample};
    PLAIT_TRY(plait_text_data_open(&o, out));
    PLAIT_TRY(plait_text_data_require(*out, PLAIT_SPLIT_TRAIN));
    if (cfg->train.eval_interval > 0)
        PLAIT_TRY(plait_text_data_require(*out, PLAIT_SPLIT_VALIDATION));
    return PLAIT_OK;
}

/* Ranks on other machines have files of their own: with another text they would train on other samples in silence. */
static plait_status compare_data(const plait_training *t)
{
    struct {
        int64_t length;
        uint64_t hash;
    } mine = {plait_text_data_length(t->data), plait_text_data_hash(t->data)}, root = mine;
    PLAIT_TRY(plait_comm_broadcast_bytes(t->world->comm, &root, sizeof root, 0));
    if (root.length != mine.length)
        PLAIT_FAIL(IO, "%s has %lld bytes here and %lld on rank 0", t->cfg->data.path, (long long)mine.length,
                   (long long)root.length);
    if (root.hash != mine.hash)
        PLAIT_FAIL(IO, "%s is another text here than on rank 0", t->cfg->data.path);
    return PLAIT_OK;
}

/* What would only be found out after the last step. */
static plait_status check_outputs(const plait_training *t)
{
    if (t->world->rank != 0 || !t->cfg->checkpoint.save_weights[0])
        return PLAIT_OK;
    return plait_file_check_writable(t->cfg->checkpoint.save_weights);
}

static int eval_micros(const plait_config *cfg, const plait_text_data *data)
{
    int64_t together = cfg->batch.micro_batch_size * cfg->parallelism.dp;
    int64_t samples = plait_text_data_eval_samples(data, PLAIT_SPLIT_VALIDATION);
    return cfg->train.eval_interval > 0 ? (int)((samples + together - 1) / together) : 0;
}

plait_status plait_training_look(const plait_config *cfg, plait_run_shape *shape, size_t *text_bytes)
{
    plait_text_data *data = NULL;
    const plait_status st = open_data(cfg, &data);
    if (st == PLAIT_OK) {
        *shape = (plait_run_shape){.eval_micros = eval_micros(cfg, data)};
        *text_bytes = plait_text_data_bytes(data);
    }
    plait_text_data_close(data);
    return st;
}

plait_status plait_training_open(plait_training *t, plait_world *world, const plait_config *cfg)
{
    *t = (plait_training){.world = world, .cfg = cfg, .resident_before = plait_resident_memory().now};
    PLAIT_TRY(plait_comm_agree(world->comm, plait_config_check_files(cfg)));
    PLAIT_TRY(plait_comm_agree(world->comm, open_data(cfg, &t->data)));
    PLAIT_TRY(plait_comm_agree(world->comm, compare_data(t)));
    PLAIT_TRY(plait_comm_agree(world->comm, check_outputs(t)));
    plait_engine_options o = {
        .cfg = cfg, .model = plait_model_find(cfg->model.arch), .shape = {.eval_micros = eval_micros(t->cfg, t->data)}};
    PLAIT_TRY(plait_engine_create(world, &o, &t->engine));

    plait_ledger *ledger = plait_engine_ledger(t->engine);
    ledger->planned[PLAIT_TIER_HOST][PLAIT_MEM_WORK] += plait_text_data_bytes(t->data);
    ledger->high_water[PLAIT_TIER_HOST][PLAIT_MEM_WORK] += plait_text_data_bytes(t->data);
    t->ramp = plait_batch_ramp_of(cfg);
    return cfg->checkpoint.load_weights[0] ? plait_weights_load(t->engine, cfg->checkpoint.load_weights)
                                           : plait_engine_init_weights(t->engine);
}

void plait_training_close(plait_training *t)
{
    plait_engine_destroy(t->engine);
    plait_text_data_close(t->data);
    *t = (plait_training){0};
}

plait_status plait_training_step(plait_training *t, int64_t step, plait_training_step_info *info)
{
    const plait_config *cfg = t->cfg;
    const int64_t global = plait_batch_size_at(&t->ramp, t->consumed);
    const int micros = (int)plait_num_micro_batches(global, cfg->batch.micro_batch_size, cfg->parallelism.dp);
    for (int i = 0; i < micros; i++) {
        int32_t *tokens, *targets;
        plait_engine_tokens(t->engine, i, &tokens, &targets);
        plait_text_data_fill_train(t->data, t->consumed + plait_engine_first_sample(t->engine, micros, i),
                                   cfg->batch.micro_batch_size, tokens, targets);
    }
    /* The schedule's clock is the number of updates: skipped steps do not advance it. */
    plait_lr_schedule schedule = plait_lr_schedule_of(cfg);
    info->lr = plait_lr_at(&schedule, plait_engine_updates(t->engine) + 1);
    info->global_batch_size = global;
    PLAIT_TRY(plait_engine_train_step(t->engine, (uint32_t)step, micros, info->lr, &info->result));
    t->consumed += global;
    return PLAIT_OK;
}

plait_status plait_training_evaluate(plait_training *t, double *loss)
{
    const int micros = eval_micros(t->cfg, t->data);
    const int64_t samples = plait_text_data_eval_samples(t->data, PLAIT_SPLIT_VALIDATION);
    for (int i = 0; i < micros; i++) {
        int32_t *tokens, *targets;
        plait_engine_tokens(t->engine, i, &tokens, &targets);
        plait_text_data_fill_eval(t->data, PLAIT_SPLIT_VALIDATION, plait_engine_first_sample(t->engine, micros, i),
                                  t->cfg->batch.micro_batch_size, samples, tokens, targets);
    }
    return plait_engine_evaluate(t->engine, loss);
}
