/* launcher/planned.h: a configuration and its plan: what `plait plan` prints and `plait compare` sets side by side.
 */
#ifndef PLAIT_LAUNCHER_PLANNED_H
#define PLAIT_LAUNCHER_PLANNED_H

#include "launcher/estimator.h"
#include "parallel/rank_plan.h"

PLAIT_BEGIN_DECLS

/* What is to be planned: a file with overrides on a number of ranks. Borrowed. */
typedef struct plait_plan_request {
    const char *path;
    const char *const *overrides;
    int num_overrides;
    int ranks;                    /* 0: what the configuration says */
    const plait_machine *machine; /* NULL: nothing is predicted */
} plait_plan_request;

typedef struct plait_planned {
    plait_config cfg; /* resolved for `world` */
    int world;
    plait_rank_plan plan;
    int64_t host_bytes; /* of each rank, workspace of the host tier (the text); -1: the text is not there to be read */
    bool without_evaluations; /* which there are: their micro-batches are in that text */
    const plait_machine *machine;
    bool estimated; /* plait_planned_estimate: */
    plait_estimate estimate;
} plait_planned;

/* `more` comes after the request's overrides. PLAIT_USAGE lists what is wrong with the configuration. Deinit also after
 * a failure. */
PLAIT_MUST_USE plait_status plait_planned_init(plait_planned *p, const plait_plan_request *r, const char *const *more,
                                               int num_more);
void plait_planned_deinit(plait_planned *p);

/* Sets what DeepSpeed's estimator says of the rank that holds most beside its plan: of the parameters that it computes
 * with, shared by its data ranks as by GPUs of one node, or of nodes as large as the machine's, with the largest unit
 * as the largest layer. PLAIT_USAGE where the estimator knows no such run: below stage 2. */
PLAIT_MUST_USE plait_status plait_planned_estimate(plait_planned *p);

/* What its ranks are: "CPU ranks", "GPUs over NCCL", "GPUs over host memory and MPI". */
const char *plait_planned_ranks_are(const plait_planned *p);
/* Why the last plan was refused: the first line of the last error. An override that it blames is named without saying
 * so, since it may be of the plan's own making. */
void plait_planned_refusal(char *text, size_t size);

/* Bytes of the device tier on the rank that holds most. */
size_t plait_planned_bytes(const plait_planned *p);
/* Whether every rank is within device.memory_limit; true where there is none. */
bool plait_planned_fits(const plait_planned *p);
int64_t plait_planned_tokens(const plait_planned *p); /* of a step, over all ranks */
/* Model FLOPs (launcher/flops.h) of the predicted step as a part of what all ranks' peaks would do in its time; 0: no
 * machine, or its peak is not known. */
double plait_planned_mfu(const plait_planned *p);
/* Whether an earlier class sends the same, whose lines stand for this one's. */
bool plait_planned_sends_as_before(const plait_planned *p, int class_index);

PLAIT_END_DECLS
#endif
