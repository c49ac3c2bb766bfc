/* launcher/metrics.h: logging.metrics_file, one JSON object a line (docs/running.md has it as a table).
 *
 *   {"step":1,"loss":..,"loss_hex":"0x1.6p+2","grad_norm":..,"lr":..,"loss_scale":..,"skipped":0,"counted_tokens":..,
 *    "tokens_per_second":..,"step_seconds":..}
 *   {"eval":{"after_step":50,"loss":..}}
 *   {"memory":[{"rank":0,"coords":{"d":0,"p":0,"t":0},"tier":"device","category":"parameters","planned":..,"high_water":..},..],
 *    "communication":[{"rank":0,"group":"tensor","op":"all_reduce","calls":..,"bytes":..},..],
 *    "resident":[{"rank":0,"before":..,"peak":..,"others":..},..],"fingerprint":"0123456789abcdef"}
 *
 * The last comes at the end: communication is that of the last training step; resident is what the kernel says the
 * process held before anything of the run was allocated (program, MPI and other libraries), at most, and of that in
 * parts of shared windows that are other ranks'.
 */
#ifndef PLAIT_LAUNCHER_METRICS_H
#define PLAIT_LAUNCHER_METRICS_H

#include "launcher/fingerprint.h"
#include "launcher/line_file.h"
#include "parallel/engine.h"

PLAIT_BEGIN_DECLS

typedef struct plait_metrics {
    plait_line_file file;
} plait_metrics;

/* Rank 0 opens the file ("": none); an unwritable one is refused here. Collective. */
PLAIT_MUST_USE plait_status plait_metrics_open(plait_metrics *m, plait_comm *world, const char *path);
PLAIT_MUST_USE plait_status plait_metrics_step(plait_metrics *m, int64_t step, const plait_step_result *r, double lr,
                                               double tokens_per_second, double seconds);
PLAIT_MUST_USE plait_status plait_metrics_eval(plait_metrics *m, int64_t after_step, double loss);
/* What every rank held and sent, and the fingerprint of the run; resident_before: bytes, of this rank. Collective. */
PLAIT_MUST_USE plait_status plait_metrics_end(plait_metrics *m, plait_engine *e, size_t resident_before,
                                              const plait_fingerprint *f);
void plait_metrics_close(plait_metrics *m);

PLAIT_END_DECLS
#endif
