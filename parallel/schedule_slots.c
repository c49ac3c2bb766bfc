#include "parallel/schedule_impl.h"

#include <assert.h>
#include <stdlib.h>

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

/* Ranges in use, by offset. */
typedef struct ranges {
    struct {
        size_t begin, end;
        int64_t id;
    } * at;
    int num;
} ranges;

/* The lowest gap of at least `bytes`. */
static size_t occupy(ranges *r, size_t bytes, int64_t id)
{
    size_t begin = 0;
    int k = 0;
    for (; k < r->num && r->at[k].begin - begin < bytes; k++)
        begin = r->at[k].end;
    for (int j = r->num++; j > k; j--)
        r->at[j] = r->at[j - 1];
    r->at[k].begin = begin;
    r->at[k].end = begin + bytes;
    r->at[k].id = id;
    return begin;
}

static void release(ranges *r, int64_t id)
{
    int k = 0;
    while (k < r->num && r->at[k].id != id)
        k++;
    if (k == r->num)
        return; /* the segment does not exist for this chunk */
    r->num--;
    for (; k < r->num; k++)
        r->at[k] = r->at[k + 1];
}

plait_status plait_schedule_pack(const plait_schedule *s, plait_segment segment, const size_t *bytes_of_chunk,
                                 size_t *offset_of, size_t *pool)
{
    plait_act_kind first, last;
    lifetime(s, segment, &first, &last);
    int64_t ids = (int64_t)s->chunks * s->micros;
    ranges r = {malloc((size_t)ids * sizeof *r.at), 0};
    if (!r.at)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory to place %lld pipeline slots", (long long)ids);
    for (int64_t id = 0; id < ids; id++)
        offset_of[id] = PLAIT_NO_OFFSET;

    *pool = 0;
    for (int i = 0; i < s->num_acts; i++) {
        plait_act a = s->acts[i];
        int64_t id = plait_schedule_id(s, a);
        if (a.kind == first) {
            size_t bytes = (bytes_of_chunk[a.chunk] + PLAIT_SLOT_ALIGN - 1) / PLAIT_SLOT_ALIGN * PLAIT_SLOT_ALIGN;
            assert(r.num < ids);
            offset_of[id] = occupy(&r, bytes, id);
            if (offset_of[id] + bytes > *pool)
                *pool = offset_of[id] + bytes;
        }
        if (a.kind == last)
            release(&r, id);
    }
    free(r.at);
    return PLAIT_OK;
}
