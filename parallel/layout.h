/* parallel/layout.h: what one rank will hold, known before it holds anything.
 *
 * The layout is not a formula beside the code: the very code that builds a rank is run once over counting arenas, and
 * one forward and one backward of each chunk are run under the table that computes nothing. What was asked for is the
 * plan; a run then allocates exactly that.
 */
#ifndef PLAIT_PARALLEL_LAYOUT_H
#define PLAIT_PARALLEL_LAYOUT_H

#include "parallel/model.h"
#include "parallel/pipeline.h"

PLAIT_BEGIN_DECLS

/* The schedules of a run: one for each number of micro-batches a step may have (ramp-up), one for evaluation, one for
 * sampling. */
typedef struct plait_schedule_set {
    plait_schedule *all;
    int num_train, num_all; /* [0, num_train) train; then eval if any, then logits if any */
    int eval, logits;       /* indices, -1: none */
    int max_micros;
} plait_schedule_set;

typedef struct plait_run_shape {
    int eval_micros; /* micro-batches of an evaluation on each data rank; 0: none */
    bool logits;     /* sampling instead of training: a forward of one micro-batch is all that is run */
} plait_run_shape;

PLAIT_MUST_USE plait_status plait_schedule_set_init(plait_schedule_set *s, const plait_config *cfg,
                                                    const plait_topology *topo, const plait_run_shape *shape);
void plait_schedule_set_deinit(plait_schedule_set *s);
/* The training schedule with that number of micro-batches. */
int plait_schedule_set_train(const plait_schedule_set *s, int micros);

/* Which part of a step needs most of an arena that it shares with the others. */
typedef enum plait_step_part {
    PLAIT_PART_ALWAYS,
    PLAIT_PART_FORWARD,
    PLAIT_PART_BACKWARD,
    PLAIT_PART_UPDATE
} plait_step_part;
/* "all of the step", "forward", "backward", "update" */
const char *plait_step_part_name(plait_step_part part);

typedef struct plait_layout {
    size_t bytes[PLAIT_MEM_KINDS];  /* of the device arenas */
    size_t host_bytes;              /* of the host side of a GPU's tensors; 0 where tensors are on the host */
    size_t staging;                 /* of communication, beside the arenas: on the host */
    size_t converted;               /* of communication by NCCL: on the device */
    size_t largest[PLAIT_GROUPS];   /* staged bytes of the largest collective; the pipeline only passes messages */
    size_t converts[PLAIT_GROUPS];  /* bytes of `converted` for each group */
    plait_step_part workspace_part; /* that takes workspace to its highest; of which chunk */
    int workspace_chunk;
    plait_zero_order *forward, *backward; /* [chunks]: acquires of one chunk's forward and backward */
    int num_chunks;
} plait_layout;

/* cfg: resolved. list: the rank's parameters. */
PLAIT_MUST_USE plait_status plait_layout_init(plait_layout *l, const plait_config *cfg, const plait_topology *topo,
                                              const plait_model_ops *model, const plait_param_list *list,
                                              const plait_schedule_set *schedules, const plait_run_shape *shape);
void plait_layout_deinit(plait_layout *l);
/* Device bytes in all, those of communication included. */
size_t plait_layout_total(const plait_layout *l);
/* Where staging is: with the tensors of the host, beside those of a GPU. */
plait_tier plait_layout_staging_tier(const plait_layout *l);

/* The order of acquires of a whole run of a schedule. Owner: plait_zero_order_deinit. */
PLAIT_MUST_USE plait_status plait_layout_order(const plait_layout *l, const plait_schedule *s, plait_zero_order *out);

PLAIT_END_DECLS
#endif
