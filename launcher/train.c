/* plait train: the recipe of a run. */
#include <stdio.h>
#include <string.h>

#include "launcher/banner.h"
#include "launcher/commands.h"
#include "launcher/fingerprint.h"
#include "launcher/hash_file.h"
#include "launcher/metrics.h"
#include "launcher/output.h"
#include "launcher/plan_print.h"
#include "launcher/progress.h"
#include "launcher/run_config.h"
#include "launcher/stop.h"
#include "launcher/training.h"
#include "launcher/usage.h"
#include "models/registry.h"
#include "parallel/weights.h"

typedef struct run {
    plait_world *world;
    plait_config cfg;
    plait_training training;
    plait_metrics metrics;
    plait_hash_file hashes;
    plait_fingerprint fingerprint;
    plait_progress progress;
    plait_status output_status; /* the first failure to write metrics or hashes, on rank 0: training need not be lost */
} run;

static void note_output(run *r, plait_status st)
{
    if (r->output_status == PLAIT_OK)
        r->output_status = st;
}

/* CONFIG and overrides: there are no options. */
static plait_status check_arguments(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (argv[i][0] == '-')
            PLAIT_FAIL(USAGE, "plait train: unknown option %s\n%s", argv[i], plait_usage_train);
    if (argc < 2)
        PLAIT_FAIL(USAGE, "%s", plait_usage_train);
    return PLAIT_OK;
}

/* A run that does not fit says what every rank would hold, as plait plan does, before it says so. */
static plait_status refuse_size(const run *r)
{
    plait_status st = PLAIT_OK;
    plait_rank_plan plan = {0};
    plait_run_shape shape;
    size_t text_bytes;
    PLAIT_TRY(plait_training_look(&r->cfg, &shape, &text_bytes));
    PLAIT_TRY_TO(
        done, st,
        plait_rank_plan_init(&plan, &r->cfg, r->world->size, plait_model_find(r->cfg.model.arch), &shape, NULL));
    plait_plan_print_memory(&plan, (int64_t)text_bytes, stderr);
done:
    plait_rank_plan_deinit(&plan);
    return st;
}

static plait_status open_training(run *r)
{
    const plait_status st = plait_training_open(&r->training, r->world, &r->cfg);
    if (st == PLAIT_OUT_OF_MEMORY && r->cfg.device.memory_limit > 0 && plait_comm_agreed() && r->world->rank == 0)
        PLAIT_TRY(refuse_size(r));
    return st;
}

static plait_status prepare(run *r, int argc, char **argv)
{
    PLAIT_TRY(plait_comm_agree(r->world->comm, check_arguments(argc, argv)));
    PLAIT_TRY(plait_run_config(r->world, &r->cfg, argv[1], (const char *const *)argv + 2, argc - 2));
    PLAIT_TRY(open_training(r));
    PLAIT_TRY(plait_comm_agree(r->world->comm, plait_fingerprint_open(&r->fingerprint)));
    /* Last, so that a run that is refused leaves the metrics of an earlier one alone. */
    PLAIT_TRY(plait_metrics_open(&r->metrics, r->world->comm, r->cfg.logging.metrics_file));
    PLAIT_TRY(plait_hash_file_open(&r->hashes, r->world->comm, &r->cfg));
    PLAIT_TRY(plait_banner_print(r->world, r->training.engine, r->training.resident_before, stdout));
    PLAIT_TRY(plait_comm_agree(r->world->comm, r->world->rank == 0 ? plait_output_flush() : PLAIT_OK));
    r->progress = plait_progress_make(&r->cfg, r->world->rank);
    return PLAIT_OK;
}

/* Where the numbers broke is in the hashes. That they broke is said first, also when those cannot be written. */
static plait_status with_hashes(run *r, int64_t step)
{
    char broke[512], unwritten[512];
    snprintf(broke, sizeof broke, "%s", plait_error_text());
    if (plait_hash_file_step(&r->hashes, r->training.engine, step) == PLAIT_OK)
        return PLAIT_NUMERIC;
    snprintf(unwritten, sizeof unwritten, "%s", plait_error_text());
    return plait_error_set(PLAIT_NUMERIC, __FILE__, __LINE__, "%s; besides, %s", broke, unwritten);
}

static plait_status train_step(run *r, int64_t step)
{
    const double started = plait_seconds();
    plait_training_step_info info;
    const plait_status st = plait_training_step(&r->training, step, &info);
    if (st == PLAIT_NUMERIC) /* on all ranks */
        return with_hashes(r, step);
    PLAIT_TRY(st);
    const double seconds = plait_seconds() - started;
    plait_fingerprint_add_loss(&r->fingerprint, info.result.loss);
    plait_progress_step s = {.step = step,
                             .consumed_samples = r->training.consumed,
                             .global_batch_size = info.global_batch_size,
                             .tokens = info.global_batch_size * r->cfg.model.seq_length,
                             .lr = info.lr,
                             .seconds = seconds,
                             .result = &info.result,
                             .memory = plait_layout_total(plait_engine_layout(r->training.engine))};
    plait_progress_step_done(&r->progress, &s);
    note_output(r, plait_metrics_step(&r->metrics, step, &info.result, info.lr, (double)s.tokens / seconds, seconds));
    note_output(r, plait_hash_file_step(&r->hashes, r->training.engine, step));
    return PLAIT_OK;
}

static plait_status evaluate(run *r, int64_t after_step)
{
    double loss;
    PLAIT_TRY(plait_training_evaluate(&r->training, &loss));
    plait_progress_eval(&r->progress, after_step, loss);
    note_output(r, plait_metrics_eval(&r->metrics, after_step, loss));
    return PLAIT_OK;
}

static plait_status save(run *r)
{
    const char *path = r->cfg.checkpoint.save_weights;
    if (!path[0])
        return PLAIT_OK;
    PLAIT_TRY(plait_weights_save(r->training.engine, path));
    if (r->world->rank == 0)
        printf("weights: %s\n", path);
    return PLAIT_OK;
}

/* After the weights are safe. Every rank has it: all know all losses. */
static plait_status finish_fingerprint(run *r)
{
    uint64_t weights;
    if (r->cfg.numerics.fingerprint == PLAIT_FINGERPRINT_WEIGHTS) {
        PLAIT_TRY(plait_weights_hash(r->training.engine, &weights));
        plait_fingerprint_add_weights(&r->fingerprint, weights);
    }
    if (r->world->rank == 0)
        plait_fingerprint_print(&r->fingerprint, stdout);
    return PLAIT_OK;
}

static plait_status train(run *r)
{
    const int64_t iterations = r->cfg.train.train_iters, interval = r->cfg.train.eval_interval;
    int stop = 0;
    plait_stop_install();
    for (int64_t step = 1; step <= iterations && !stop; step++) {
        PLAIT_TRY(train_step(r, step));
        PLAIT_TRY(plait_stop_agree(r->world->comm, r->output_status != PLAIT_OK, &stop));
        if (interval > 0 && !stop && (step % interval == 0 || step == iterations))
            PLAIT_TRY(evaluate(r, step));
    }
    plait_progress_end(&r->progress);
    PLAIT_TRY(save(r));
    PLAIT_TRY(finish_fingerprint(r));
    note_output(r, plait_hash_file_end(&r->hashes));
    PLAIT_TRY(plait_comm_agree(r->world->comm, r->output_status));
    PLAIT_TRY(plait_metrics_end(&r->metrics, r->training.engine, r->training.resident_before, &r->fingerprint));
    fflush(stdout);
    if (!stop)
        return PLAIT_OK;
    return plait_comm_agree(
        r->world->comm, plait_error_set(PLAIT_STOPPED, __FILE__, __LINE__, "signal %d (%s)%s", stop, strsignal(stop),
                                        r->cfg.checkpoint.save_weights[0] ? ", weights saved" : ""));
}

plait_status plait_command_train(plait_world *world, int argc, char **argv)
{
    run r = {.world = world};
    plait_status st = prepare(&r, argc, argv);
    if (st == PLAIT_OK)
        st = train(&r);
    plait_metrics_close(&r.metrics);
    plait_hash_file_close(&r.hashes);
    plait_fingerprint_close(&r.fingerprint);
    /* A rank that failed alone ends the job: giving back shared windows would wait for the others. */
    if (st == PLAIT_OK || plait_comm_agreed()) {
        plait_training_close(&r.training);
        plait_config_deinit(&r.cfg);
    }
    return st;
}
