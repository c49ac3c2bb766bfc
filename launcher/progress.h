/* launcher/progress.h: what a person sees of a run: Megatron's `|`-separated lines, and a bar with the time left on a
 * terminal. */
#ifndef PLAIT_LAUNCHER_PROGRESS_H
#define PLAIT_LAUNCHER_PROGRESS_H

#include "parallel/engine.h"

PLAIT_BEGIN_DECLS

typedef struct plait_progress {
    bool prints;   /* rank 0 */
    bool terminal; /* stdout is one: the bar is drawn and lines go above it */
    int64_t iterations, log_interval;
    double flops_per_token, started;
    bool log_throughput;
    /* since the last line */
    int64_t steps, tokens, skipped_total;
    double seconds;
} plait_progress;

typedef struct plait_progress_step {
    int64_t step, consumed_samples, global_batch_size, tokens; /* tokens: of the step, all ranks */
    double lr, seconds;
    const plait_step_result *result;
    size_t memory; /* bytes held by this rank */
} plait_progress_step;

/* Monotonic seconds. */
double plait_seconds(void);

plait_progress plait_progress_make(const plait_config *cfg, int rank);
/* Prints a line every log_interval steps and with the last one. */
void plait_progress_step_done(plait_progress *p, const plait_progress_step *s);
void plait_progress_eval(plait_progress *p, int64_t after_step, double loss);
/* Removes the bar. */
void plait_progress_end(plait_progress *p);

PLAIT_END_DECLS
#endif
