/* core/pack.h: intervals of time that need bytes, packed into one range of memory. */
#ifndef PLAIT_CORE_PACK_H
#define PLAIT_CORE_PACK_H

#include "core/status.h"

#include <stddef.h>

PLAIT_BEGIN_DECLS

typedef struct plait_interval {
    int first, last; /* points of time, both included */
    size_t bytes;
    size_t offset; /* out, a multiple of 64 */
} plait_interval;

/* Gives each interval an offset such that no two that share a point of time overlap; first fit in the given order,
 * which must be ascending in `first`. Returns the bytes of the whole range (0 for none). Quadratic only in how many
 * live at once. */
PLAIT_MUST_USE plait_status plait_pack(plait_interval *intervals, int n, size_t *total);

PLAIT_END_DECLS
#endif
