/* launcher/metrics_reader.h: a metrics file, a line at a time: what a run computed, of the fields that a second run on
 * the same grid would have too.
 *
 * The last line may be cut off, when a run was killed or the file copied while it was written: it is left out. Anything
 * else that launcher/metrics.h does not write is PLAIT_IO with path and line.
 */
#ifndef PLAIT_LAUNCHER_METRICS_READER_H
#define PLAIT_LAUNCHER_METRICS_READER_H

#include "launcher/line_reader.h"

PLAIT_BEGIN_DECLS

/* Of a step, in the order of the line; then of an evaluation. */
typedef enum plait_metrics_field {
    PLAIT_METRICS_LOSS, /* loss_hex */
    PLAIT_METRICS_GRAD_NORM,
    PLAIT_METRICS_LR,
    PLAIT_METRICS_LOSS_SCALE,
    PLAIT_METRICS_SKIPPED,
    PLAIT_METRICS_COUNTED_TOKENS,
    PLAIT_METRICS_EVAL_LOSS,
    PLAIT_METRICS_FIELDS
} plait_metrics_field;

/* In order: a step comes before the evaluation after it. */
typedef enum plait_metrics_kind { PLAIT_METRICS_STEP, PLAIT_METRICS_EVAL, PLAIT_METRICS_END } plait_metrics_kind;

typedef struct plait_metrics_line {
    plait_metrics_kind kind;
    int64_t step;
    double value[PLAIT_METRICS_FIELDS]; /* NaN: null, or the "nan" of loss_hex */
} plait_metrics_line;

/* "loss", "grad_norm", ... */
const char *plait_metrics_field_name(plait_metrics_field f);
bool plait_metrics_field_is_whole(plait_metrics_field f);
/* Whether lines of this kind have it. */
bool plait_metrics_field_of(plait_metrics_field f, plait_metrics_kind kind);
/* Below, at or above 0: a comes before b, is of the same moment, comes after it. The end comes last. */
int plait_metrics_compare_place(const plait_metrics_line *a, const plait_metrics_line *b);

typedef struct plait_metrics_reader {
    plait_line_reader lines; /* ended: with the line of memory and communication */
    plait_metrics_line last;
} plait_metrics_reader;

/* Closed with plait_metrics_reader_close also after a failure. */
PLAIT_MUST_USE plait_status plait_metrics_reader_open(plait_metrics_reader *r, const char *path);
void plait_metrics_reader_close(plait_metrics_reader *r);
/* The next step or evaluation, or the end. A file without any is refused. */
PLAIT_MUST_USE plait_status plait_metrics_reader_next(plait_metrics_reader *r, plait_metrics_line *out);

PLAIT_END_DECLS
#endif
