#include "parallel/schedule_impl.h"

#include <stdlib.h>

#include "core/pack.h"

/* A segment lives from one action of a (chunk, micro) to another, both included. */
static void lifetime(const plait_schedule *s, plait_segment segment, plait_act_kind *first, plait_act_kind *last)
{
    static const plait_act_kind begins[PLAIT_SEGMENTS] = {PLAIT_ACT_RECV_X, PLAIT_ACT_FWD, PLAIT_ACT_RECV_DY};
    *first = begins[segment];
    *last = s->forward_only ? PLAIT_ACT_FWD : PLAIT_ACT_BWD;
}

int plait_schedule_colour(const plait_schedule *s, plait_segment segment, int *slot_of)
{
    plait_act_kind first, last;
    lifetime(s, segment, &first, &last);
    for (int64_t id = 0; id < (int64_t)s->chunks * s->micros; id++)
        slot_of[id] = -1;

    /* Slots are used again in the order in which they became free: `freed` goes over the ends of lifetimes. A new slot
     * is opened only when all are in use, so their number is the largest overlap. */
    int slots = 0, freed = 0;
    for (int i = 0; i < s->num_acts; i++) {
        if (s->acts[i].kind != first)
            continue;
        int64_t id = plait_schedule_id(s, s->acts[i]);
        while (freed < i && (s->acts[freed].kind != last || slot_of[plait_schedule_id(s, s->acts[freed])] < 0))
            freed++;
        slot_of[id] = freed < i ? slot_of[plait_schedule_id(s, s->acts[freed++])] : slots++;
    }
    return slots;
}

/* First fit of each with its own size, or all with that of the largest, whichever takes less: chunks of almost the same
 * size leave gaps that are a little too small for each other. */
static plait_status pack_either_way(plait_interval *at, int n, size_t *pool)
{
    plait_status st = PLAIT_OK;
    size_t largest = 0, even;
    plait_interval *same = calloc((size_t)n + 1, sizeof *same);
    if (!same)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory to place %d pipeline slots", n);
    for (int i = 0; i < n; i++)
        largest = at[i].bytes > largest ? at[i].bytes : largest;
    for (int i = 0; i < n; i++) {
        same[i] = at[i];
        same[i].bytes = largest;
    }
    PLAIT_TRY_TO(done, st, plait_pack(at, n, pool));
    PLAIT_TRY_TO(done, st, plait_pack(same, n, &even));
    if (even < *pool) {
        *pool = even;
        for (int i = 0; i < n; i++)
            at[i].offset = same[i].offset;
    }
done:
    free(same);
    return st;
}

plait_status plait_schedule_pack(const plait_schedule *s, plait_segment segment, const size_t *bytes_of_chunk,
                                 size_t *offset_of, size_t *pool)
{
    plait_status st = PLAIT_OK;
    plait_act_kind first, last;
    lifetime(s, segment, &first, &last);
    const int ids = s->chunks * s->micros;
    plait_interval *at = calloc((size_t)ids + 1, sizeof *at); /* by first use */
    int *place = calloc((size_t)ids + 1, sizeof *place);      /* of an id in `at`, -1: the segment does not exist */
    int n = 0;
    if (!at || !place)
        PLAIT_FAIL_TO(done, st, OUT_OF_MEMORY, "no memory to place %d pipeline slots", ids);
    for (int id = 0; id < ids; id++)
        place[id] = -1;
    for (int i = 0; i < s->num_acts; i++) {
        const plait_act a = s->acts[i];
        const int64_t id = plait_schedule_id(s, a);
        if (a.kind == first) {
            size_t bytes = (bytes_of_chunk[a.chunk] + PLAIT_SLOT_ALIGN - 1) / PLAIT_SLOT_ALIGN * PLAIT_SLOT_ALIGN;
            place[id] = n;
            at[n++] = (plait_interval){.first = i, .last = i, .bytes = bytes};
        }
        if (a.kind == last && place[id] >= 0)
            at[place[id]].last = i;
    }
    PLAIT_TRY_TO(done, st, pack_either_way(at, n, pool));
    for (int id = 0; id < ids; id++)
        offset_of[id] = place[id] < 0 ? PLAIT_NO_OFFSET : at[place[id]].offset;
done:
    free(place);
    free(at);
    return st;
}
