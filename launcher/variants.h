/* launcher/variants.h: one model and global batch on one number of ranks, in every way that `plait compare` sets side
 * by side.
 */
#ifndef PLAIT_LAUNCHER_VARIANTS_H
#define PLAIT_LAUNCHER_VARIANTS_H

#include <stdio.h>

#include "launcher/planned.h"

PLAIT_BEGIN_DECLS

enum { PLAIT_VARIANT_KEYS = 12, PLAIT_VARIANT_KEY_MAX = 80 };

/* What a run of a few steps said (launcher/measure.h). */
typedef struct plait_measured {
    bool done;
    char failure[1024];            /* "": it ran */
    double step_seconds;           /* median, without the first steps */
    int64_t bytes;                 /* device tier, high-water mark of the rank that held most */
    int64_t resident;              /* of the process that grew most: peak - before */
    bool memory_as_planned;        /* every rank and category, to the byte */
    bool communication_as_planned; /* every rank, group and operation, calls and bytes */
} plait_measured;

typedef struct plait_variant {
    char name[80]; /* "tensor 2 x data 2, ZeRO-3" */
    int tp, pp, dp;
    char keys[PLAIT_VARIANT_KEYS][PLAIT_VARIANT_KEY_MAX]; /* overrides that make it of the configuration */
    int num_keys;
    bool legal;
    char reason[256]; /* why not */
    plait_planned plan;
    int64_t volume; /* bytes that a rank sends in a step, of the rank that sends most (plait_class_sent) */
    plait_measured measured;
} plait_variant;

typedef struct plait_variants {
    int ranks, num;
    plait_variant *all; /* as listed: tensor, pipeline, data, then products */
    int64_t global_batch, seq_length;
    int num_illegal;
} plait_variants;

/* Lists and plans them: tensor N (also with sequence parallelism), pipeline N (also with as few micro-batches as
 * possible, the naive pipeline), data N with ZeRO 0 to 3 and gather_to_root, every tensor x pipeline, tensor x data
 * with ZeRO-3, pipeline x data with ZeRO-1, and all three with ZeRO-1. The micro-batch is the configuration's, or the
 * largest smaller one that gives each pipeline as many micro-batches as it has stages. PLAIT_USAGE when the
 * configuration itself is wrong; a variant that is not possible stays in the list with its reason.
 * `progress`: a terminal on which the number of plans is shown while they are made, or NULL. Owner:
 * plait_variants_deinit, also after a failure. */
PLAIT_MUST_USE plait_status plait_variants_init(plait_variants *v, const plait_plan_request *request, FILE *progress);
void plait_variants_deinit(plait_variants *v);

/* Of a step, measured or predicted; 0: not known. */
double plait_variant_seconds(const plait_variant *one, bool measured);
/* Whether one fits in device.memory_limit (without a limit all do). */
bool plait_variants_some_fit(const plait_variants *v);
/* The first legal one; NULL: none is. */
const plait_variant *plait_variants_first(const plait_variants *v);
/* The legal variant of least bytes on its largest rank; of least predicted (or, where all are measured, measured) time,
 * among those that fit if one does. NULL: none, or no times. */
const plait_variant *plait_variants_smallest(const plait_variants *v);
const plait_variant *plait_variants_fastest(const plait_variants *v, bool measured);

/* Bytes that a rank of the class puts on the wire in a step, in all and by group, by rings: of an all-reduce 2 (N - 1)
 * / N of the elements as they travel, of reduce-scatter and all-gather (N - 1) / N, of reduce and broadcast, which pass
 * through, all, of a message that is sent all. */
double plait_class_sent(const plait_rank_class *c, double by_group[PLAIT_GROUPS]);

PLAIT_END_DECLS
#endif
