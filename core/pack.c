#include "core/pack.h"

#include <stdlib.h>

#include "core/mem.h"

static size_t align_up(size_t bytes)
{
    return (bytes + PLAIT_MEM_ALIGN - 1) / PLAIT_MEM_ALIGN * PLAIT_MEM_ALIGN;
}

plait_status plait_pack(plait_interval *intervals, int n, size_t *total)
{
    /* Those that are alive at the current one's beginning, sorted by offset. */
    int *alive = malloc((size_t)(n > 0 ? n : 1) * sizeof *alive);
    if (!alive)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory to pack %d intervals", n);
    int num_alive = 0;
    *total = 0;
    for (int i = 0; i < n; i++) {
        plait_interval *it = &intervals[i];
        int kept = 0;
        for (int k = 0; k < num_alive; k++)
            if (intervals[alive[k]].last >= it->first)
                alive[kept++] = alive[k];
        num_alive = kept;

        int place = 0;
        it->offset = 0;
        for (; place < num_alive; place++) {
            const plait_interval *other = &intervals[alive[place]];
            if (it->offset + it->bytes <= other->offset)
                break; /* fits into the gap before it */
            size_t behind = align_up(other->offset + other->bytes);
            it->offset = behind > it->offset ? behind : it->offset;
        }
        for (int k = num_alive; k > place; k--)
            alive[k] = alive[k - 1];
        alive[place] = i;
        num_alive++;
        if (it->offset + it->bytes > *total)
            *total = it->offset + it->bytes;
    }
    free(alive);
    return PLAIT_OK;
}
