/* parallel/weights_impl.h: the walk over what a rank has of the logical tensors, for whoever takes them out of a model:
 * the weight file and the hash. Over all ranks it meets each element once, and no padding.
 */
#ifndef PLAIT_PARALLEL_WEIGHTS_IMPL_H
#define PLAIT_PARALLEL_WEIGHTS_IMPL_H

#include "parallel/engine.h"

PLAIT_BEGIN_DECLS

/* Elements that are visited at a time. */
enum { PLAIT_WEIGHTS_CHUNK = 65536 };

/* Elements [from, from + n) of the unit of p, whose masters rank `owner` holds. */
typedef plait_status (*plait_weights_visit)(void *self, int owner, const plait_param *p, int64_t from, int64_t n);

/* Calls `visit` for all that rank `owner` counts and holds, at most a chunk at a time. `list` is that rank's list; any
 * rank may walk it. Local. */
PLAIT_MUST_USE plait_status plait_weights_walk(plait_engine *e, int owner, const plait_param_list *list,
                                               plait_weights_visit visit, void *self);
/* Whether all that a rank holds is held by a lower one too, whose part is walked: stage 0 beyond the first data rank.
 */
bool plait_weights_are_copies(const plait_engine *e, int rank);

/* Adds to sums[tensor_of[i]], for each parameter i of this rank's list, the terms of plait_weights_hash of what this
 * rank counts and holds: of the weights, or of their gradients between reduction and update. So the sum over ranks is
 * of the whole tensor. tensor_of NULL: all go to sums[0]. buffer: A, a chunk. Local. */
PLAIT_MUST_USE plait_status plait_weights_add_hashes(plait_engine *e, bool gradients, void *buffer,
                                                     const int *tensor_of, uint64_t *sums);

PLAIT_END_DECLS
#endif
