/* launcher/diff.h: what two runs left behind, compared to the last bit: metrics, weights or tensor hashes.
 *
 * Each comparison prints the first difference with both values, then a summary, with the largest where there are
 * numbers. They read as they go: memory does not grow with the files.
 */
#ifndef PLAIT_LAUNCHER_DIFF_H
#define PLAIT_LAUNCHER_DIFF_H

#include <stdbool.h>
#include <stdio.h>

#include "core/status.h"

PLAIT_BEGIN_DECLS

/* Files of logging.metrics_file: what a run computes, step by step, never how fast or in which memory. */
PLAIT_MUST_USE plait_status plait_diff_metrics(const char *const path[2], FILE *out, bool *differ);
/* Weight files: names, types, shapes and elements. */
PLAIT_MUST_USE plait_status plait_diff_weights(const char *const path[2], FILE *out, bool *differ);
/* Files of debug.tensor_hashes: of each record step, micro-batch, layer, operation, direction and slice, and the hash;
 * never the rank. PLAIT_USAGE: they are of two models. */
PLAIT_MUST_USE plait_status plait_diff_hashes(const char *const path[2], FILE *out, bool *differ);

PLAIT_END_DECLS
#endif
