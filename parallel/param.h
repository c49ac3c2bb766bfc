/* parallel/param.h: the parameters of one rank, as a list that knows what each is a part of.
 *
 * A *parameter* is a dense local block of one tensor of a weight file (a *logical* tensor). A *unit* is a run of
 * parameters in one flat buffer: a transformer layer, a block of rows of the token matrix, the final norm. The unit is
 * what ZeRO-3 gathers, what data parallelism reduces and what recomputation replays.
 *
 * How a parameter is split, whose gradients are partial sums and which rank counts it in a norm is declared here once;
 * ZeRO, clipping, weight files and initialisation all read this declaration.
 *
 * Orientation is [out, in] everywhere; a weight file may hold the transpose (GPT-2's Conv1D).
 */
#ifndef PLAIT_PARALLEL_PARAM_H
#define PLAIT_PARALLEL_PARAM_H

#include "core/config.h"
#include "parallel/topology.h"

PLAIT_BEGIN_DECLS

#define PLAIT_NAME_MAX 96

typedef enum plait_init { PLAIT_INIT_ZERO, PLAIT_INIT_ONE, PLAIT_INIT_NORMAL } plait_init;

typedef struct plait_param {
    char name[PLAIT_NAME_MAX]; /* of the logical tensor; several parameters may be parts of one (q, k, v of c_attn) */
    int ndim;                  /* of the logical tensor: 1 (then cols are 1) or 2 */
    int64_t rows, cols;        /* the local block, row-major at `offset` in its unit */
    int64_t file_rows, file_cols; /* the logical tensor */
    int64_t row0, col0;           /* where the local block begins in it */
    int64_t valid_rows;           /* local rows that exist there; the rest is padding: zero, never trained */
    bool transposed;              /* the weight file has [in, out] */

    bool decay; /* weight decay applies: matrices only */
    plait_init init;
    double init_std;
    uint32_t rng_layer,
        rng_tensor; /* stream of the initial values; element index is row * file_cols + col of the file */

    /* Replicas on one rank (key/value heads that several slices share): this parameter and `copies` - 1 more, each
     * copy_stride elements behind the one before; 0: it is one of those others; 1: there are none. */
    int copies;
    int64_t copy_stride;
    bool counted;        /* this tensor rank and stage counts it in norms and writes it to files: one rank does */
    plait_group partial; /* the gradient of this rank is a partial sum over this group; PLAIT_GROUPS: it is whole */

    int unit;
    int64_t offset; /* elements from the unit's begin */
} plait_param;

typedef struct plait_unit {
    char name[PLAIT_NAME_MAX];
    int first_param, num_params;
    int64_t numel;
    int uses;  /* times a micro-batch's backward writes its gradient: 2 for a tied token matrix on a single stage */
    bool tied; /* has a twin on the first or last stage: gradients are summed over the embedding group */
} plait_unit;

typedef struct plait_param_list {
    plait_param *params;
    int num_params, cap_params;
    plait_unit *units;
    int num_units, cap_units;
} plait_param_list;

void plait_param_list_deinit(plait_param_list *list);
/* Opens a unit: parameters added from now on belong to it. `out` is its index. */
PLAIT_MUST_USE plait_status plait_param_list_unit(plait_param_list *list, int *out, const char *name, ...)
    PLAIT_PRINTF(3, 4);
/* Adds *p to the open unit (unit and offset are set here). */
PLAIT_MUST_USE plait_status plait_param_list_add(plait_param_list *list, const plait_param *p);

int64_t plait_param_numel(const plait_param *p);
/* Elements of the local block that exist in the logical tensor. */
int64_t plait_param_valid_numel(const plait_param *p);
/* Elements that this rank counts: their sum over the tensor and pipeline ranks is the model's number of parameters. */
int64_t plait_param_list_counted(const plait_param_list *list);
int64_t plait_param_list_numel(const plait_param_list *list);

/* Index in the weight file's tensor (row-major, as stored) of local element i, and the initial value's element index.
 */
int64_t plait_param_file_index(const plait_param *p, int64_t i);
/* Initial value of local element i, the same for every topology. */
double plait_param_initial(const plait_param *p, uint64_t seed, int64_t i);

/* Where data rank r's shard of a unit of n elements begins: floor(n r / dp), rounded down to a multiple of 8 elements
 * so that shards are aligned for vector loads. No padding: shards are uneven, small ones may be empty. offsets: dp + 1
 * values. */
void plait_shard_offsets(int64_t n, int dp, int64_t *offsets);
/* One of them; r from 0 to dp. */
int64_t plait_shard_begin(int64_t n, int dp, int r);

PLAIT_END_DECLS
#endif
