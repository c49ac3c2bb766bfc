/* plait train: the recipe of a run. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/file.h"
#include "core/text_data.h"
#include "launcher/banner.h"
#include "launcher/commands.h"
#include "launcher/metrics.h"
#include "launcher/progress.h"
#include "launcher/run_config.h"
#include "launcher/stop.h"
#include "models/registry.h"
#include "parallel/lr_schedule.h"
#include "parallel/weights.h"

typedef struct training {
    plait_world *world;
    plait_config cfg;
    const plait_model_ops *model;
    plait_text_data *data;
    plait_engine *engine;
    plait_metrics metrics;
    plait_progress progress;
    plait_batch_ramp ramp;
    int64_t consumed; /* samples */
} training;

/* ---- before step 1 ---- */

static plait_status open_data(training *t)
{
    const plait_config *cfg = &t->cfg;
    plait_text_options o = {.path = cfg->data.path,
                            .split = {cfg->data.split[0], cfg->data.split[1], cfg->data.split[2]},
                            .seq_length = cfg->model.seq_length,
                            .vocab_size = cfg->model.vocab_size,
                            .seed = (uint64_t)cfg->train.seed,
                            .first_sample = cfg->data.first_sample};
    PLAIT_TRY(plait_text_data_open(&o, &t->data));
    PLAIT_TRY(plait_text_data_require(t->data, PLAIT_SPLIT_TRAIN));
    if (cfg->train.eval_interval > 0)
        PLAIT_TRY(plait_text_data_require(t->data, PLAIT_SPLIT_VALIDATION));
    return PLAIT_OK;
}

/* What would only be found out after the last step. */
static plait_status check_outputs(const training *t)
{
    if (t->world->rank != 0 || !t->cfg.checkpoint.save_weights[0])
        return PLAIT_OK;
    return plait_file_check_writable(t->cfg.checkpoint.save_weights);
}

static int eval_micros(const training *t)
{
    int64_t together = t->cfg.batch.micro_batch_size * t->cfg.parallelism.dp;
    int64_t samples = plait_text_data_eval_samples(t->data, PLAIT_SPLIT_VALIDATION);
    return t->cfg.train.eval_interval > 0 ? (int)((samples + together - 1) / together) : 0;
}

static plait_status prepare(training *t, int argc, char **argv)
{
    plait_comm *world = t->world->comm;
    const char *path = argc > 1 ? argv[1] : NULL;
    if (!path)
        PLAIT_TRY(plait_comm_agree(
            world, plait_error_set(PLAIT_USAGE, __FILE__, __LINE__, "usage: plait train CONFIG [key=value ...]")));
    PLAIT_TRY(plait_run_config(t->world, &t->cfg, path, (const char *const *)argv + 2, argc - 2));
    PLAIT_TRY(plait_comm_agree(world, open_data(t)));
    PLAIT_TRY(plait_comm_agree(world, check_outputs(t)));
    PLAIT_TRY(plait_metrics_open(&t->metrics, world, t->cfg.logging.metrics_file));

    t->model = plait_model_find(t->cfg.model.arch);
    plait_engine_options o = {.cfg = &t->cfg, .model = t->model, .shape = {.eval_micros = eval_micros(t)}};
    PLAIT_TRY(plait_engine_create(t->world, &o, &t->engine));
    plait_ledger *ledger = plait_engine_ledger(t->engine);
    ledger->planned[PLAIT_TIER_HOST][PLAIT_MEM_WORK] += plait_text_data_bytes(t->data);
    ledger->high_water[PLAIT_TIER_HOST][PLAIT_MEM_WORK] += plait_text_data_bytes(t->data);
    if (t->cfg.checkpoint.load_weights[0])
        PLAIT_TRY(plait_weights_load(t->engine, t->model, t->cfg.checkpoint.load_weights));
    else
        PLAIT_TRY(plait_engine_init_weights(t->engine));
    PLAIT_TRY(plait_batch_ramp_init(&t->ramp, t->cfg.batch.rampup_start, t->cfg.batch.rampup_increment,
                                    t->cfg.batch.rampup_samples, t->cfg.batch.global_batch_size,
                                    t->cfg.batch.micro_batch_size, t->cfg.parallelism.dp));
    t->progress = plait_progress_make(&t->cfg, t->world->rank);
    return plait_banner_print(t->engine, stdout);
}

/* ---- the steps ---- */

static plait_status train_step(training *t, int64_t step)
{
    const plait_config *cfg = &t->cfg;
    double started = plait_seconds();
    int64_t global = plait_batch_size_at(&t->ramp, t->consumed);
    int micros = (int)plait_num_micro_batches(global, cfg->batch.micro_batch_size, cfg->parallelism.dp);
    for (int i = 0; i < micros; i++) {
        int32_t *tokens, *targets;
        plait_engine_tokens(t->engine, i, &tokens, &targets);
        plait_text_data_fill_train(t->data, t->consumed + plait_engine_first_sample(t->engine, micros, i),
                                   cfg->batch.micro_batch_size, tokens, targets);
    }
    plait_lr_schedule schedule = plait_lr_schedule_of(cfg);
    double lr = plait_lr_at(&schedule, plait_engine_updates(t->engine) + 1);
    plait_step_result result;
    PLAIT_TRY(plait_engine_train_step(t->engine, (uint32_t)step, micros, lr, &result));
    t->consumed += global;

    double seconds = plait_seconds() - started;
    plait_progress_step s = {.step = step,
                             .consumed_samples = t->consumed,
                             .global_batch_size = global,
                             .tokens = global * cfg->model.seq_length,
                             .lr = lr,
                             .seconds = seconds,
                             .result = &result,
                             .memory = plait_layout_total(plait_engine_layout(t->engine))};
    plait_progress_step_done(&t->progress, &s);
    return plait_metrics_step(&t->metrics, step, &result, lr, (double)s.tokens / seconds, seconds);
}

static plait_status evaluate(training *t, int64_t after_step)
{
    int micros = eval_micros(t);
    int64_t samples = plait_text_data_eval_samples(t->data, PLAIT_SPLIT_VALIDATION);
    double loss;
    for (int i = 0; i < micros; i++) {
        int32_t *tokens, *targets;
        plait_engine_tokens(t->engine, i, &tokens, &targets);
        plait_text_data_fill_eval(t->data, PLAIT_SPLIT_VALIDATION, plait_engine_first_sample(t->engine, micros, i),
                                  t->cfg.batch.micro_batch_size, samples, tokens, targets);
    }
    PLAIT_TRY(plait_engine_evaluate(t->engine, &loss));
    plait_progress_eval(&t->progress, after_step, loss);
    return plait_metrics_eval(&t->metrics, after_step, loss);
}

/* A signal on any rank stops all after the step; *signal is its number or 0. */
static plait_status agree_to_stop(training *t, int *signal)
{
    double mine = plait_stop_requested(), any;
    plait_comm_op op = plait_comm_make(PLAIT_COMM_ALL_REDUCE, &mine, &any, 1, PLAIT_FP64);
    op.reduction = PLAIT_MAX;
    PLAIT_TRY(plait_comm_run(t->world->comm, &op, plait_engine_exec(t->engine)));
    *signal = (int)any;
    return PLAIT_OK;
}

static plait_status finish(training *t)
{
    plait_progress_end(&t->progress);
    if (t->cfg.checkpoint.save_weights[0]) {
        PLAIT_TRY(plait_weights_save(t->engine, t->model, t->cfg.checkpoint.save_weights));
        if (t->world->rank == 0)
            printf("weights: %s\n", t->cfg.checkpoint.save_weights);
    }
    PLAIT_TRY(plait_metrics_end(&t->metrics, t->engine));
    fflush(stdout);
    return PLAIT_OK;
}

static plait_status train(training *t)
{
    const int64_t iterations = t->cfg.train.train_iters, interval = t->cfg.train.eval_interval;
    int signal = 0;
    plait_stop_install();
    for (int64_t step = 1; step <= iterations && !signal; step++) {
        PLAIT_TRY(train_step(t, step));
        PLAIT_TRY(agree_to_stop(t, &signal));
        if (interval > 0 && !signal && (step % interval == 0 || step == iterations))
            PLAIT_TRY(evaluate(t, step));
    }
    PLAIT_TRY(finish(t));
    if (!signal)
        return PLAIT_OK;
    return plait_comm_agree(
        t->world->comm, plait_error_set(PLAIT_STOPPED, __FILE__, __LINE__, "signal %d (%s)%s", signal,
                                        strsignal(signal), t->cfg.checkpoint.save_weights[0] ? ", weights saved" : ""));
}

plait_status plait_command_train(plait_world *world, int argc, char **argv)
{
    training t = {.world = world};
    plait_status st = prepare(&t, argc, argv);
    if (st == PLAIT_OK)
        st = train(&t);
    plait_metrics_close(&t.metrics);
    /* A rank that failed alone ends the job: taking down shared windows would wait for the others. */
    if (st == PLAIT_OK || plait_comm_agreed()) {
        plait_engine_destroy(t.engine);
        plait_text_data_close(t.data);
        plait_config_deinit(&t.cfg);
    }
    return st;
}
