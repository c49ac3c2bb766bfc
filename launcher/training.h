/* launcher/training.h: a training run as an object: data, model, batch size and learning rate over the steps. `plait
 * train` is a loop over it; tests open many in one job.
 */
#ifndef PLAIT_LAUNCHER_TRAINING_H
#define PLAIT_LAUNCHER_TRAINING_H

#include "core/text_data.h"
#include "parallel/engine.h"
#include "parallel/lr_schedule.h"

PLAIT_BEGIN_DECLS

typedef struct plait_training {
    plait_world *world;
    const plait_config *cfg; /* resolved; outlives the training */
    plait_text_data *data;
    plait_engine *engine;
    plait_batch_ramp ramp;
    int64_t consumed;       /* samples */
    size_t resident_before; /* bytes of program and libraries, before anything of the run was allocated */
} plait_training;

/* Reads the text that a training of `cfg` would: what it runs besides steps, and the bytes of the text in memory. */
PLAIT_MUST_USE plait_status plait_training_look(const plait_config *cfg, plait_run_shape *shape, size_t *text_bytes);
/* Opens the text, checks that outputs are no inputs and can be written, allocates everything, and draws or loads the
 * weights. Collective; every rank returns the same status. Closed with plait_training_close also after a failure. */
PLAIT_MUST_USE plait_status plait_training_open(plait_training *t, plait_world *world, const plait_config *cfg);
/* Collective: shared windows are given back together. */
void plait_training_close(plait_training *t);

typedef struct plait_training_step_info {
    plait_step_result result;
    double lr;
    int64_t global_batch_size;
} plait_training_step_info;

/* Step number `step`, from 1: reads the next samples, trains. */
PLAIT_MUST_USE plait_status plait_training_step(plait_training *t, int64_t step, plait_training_step_info *info);
/* Loss over the validation sample. Only with train.eval_interval > 0. */
PLAIT_MUST_USE plait_status plait_training_evaluate(plait_training *t, double *loss);

PLAIT_END_DECLS
#endif
