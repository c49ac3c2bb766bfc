#include "parallel/schedule_impl.h"

#include <stdlib.h>

/* Where each (chunk, micro) was seen: at[direction][role][id] is a position in the list, or -1. */
typedef struct linker {
    const plait_schedule *s;
    plait_act_link *links;
    int *at[PLAIT_DIRS][PLAIT_ROLES];
    int owner[PLAIT_DIRS][PLAIT_SEND_BUFFERS]; /* the FWD or BWD whose output lies in the buffer */
    int outputs[PLAIT_DIRS];                   /* how many outputs have been produced */
} linker;

static plait_status refuse(const plait_schedule *s, int i, const char *reason)
{
    char text[32];
    PLAIT_FAIL(INTERNAL, "pipeline stage %d of %d, action %d (%s): %s", s->stage, s->stages, i,
               plait_act_text(s, s->acts[i], text), reason);
}

static plait_status link_compute(linker *l, int i, int dir, int64_t id)
{
    const plait_schedule *s = l->s;
    plait_act a = s->acts[i];
    if (dir == PLAIT_DIR_BWD && l->at[PLAIT_DIR_FWD][PLAIT_ROLE_COMPUTE][id] < 0)
        return refuse(s, i, "backward before forward");
    l->links[i].recv = l->at[dir][PLAIT_ROLE_RECV][id];
    if (plait_schedule_receives(s, dir, a.chunk) && l->links[i].recv < 0)
        return refuse(s, i, "what it needs has not been received");
    if (!plait_schedule_sends(s, dir, a.chunk))
        return PLAIT_OK;

    int buffer = l->outputs[dir]++ % PLAIT_SEND_BUFFERS, owner = l->owner[dir][buffer];
    l->links[i].buffer = buffer;
    if (owner >= 0) {
        l->links[i].reuse = l->at[dir][PLAIT_ROLE_SEND][plait_schedule_id(s, s->acts[owner])];
        if (l->links[i].reuse < 0)
            return refuse(s, i, "it overwrites an output that has not been sent");
    }
    l->owner[dir][buffer] = i;
    return PLAIT_OK;
}

static plait_status link_message(linker *l, int i, int dir, int role, int64_t id)
{
    const plait_schedule *s = l->s;
    plait_act a = s->acts[i];
    int compute = l->at[dir][PLAIT_ROLE_COMPUTE][id];
    if (role == PLAIT_ROLE_RECV) {
        if (!plait_schedule_receives(s, dir, a.chunk))
            return refuse(s, i, "there is no stage to receive from");
        if (compute >= 0)
            return refuse(s, i, "received after its use");
    } else {
        if (!plait_schedule_sends(s, dir, a.chunk))
            return refuse(s, i, "there is no stage to send to");
        if (compute < 0)
            return refuse(s, i, "sent before it is computed");
        l->links[i].buffer = l->links[compute].buffer;
    }

    /* A receive joins the send right before it when both are of one communicator. */
    l->links[i].group = i;
    if (role == PLAIT_ROLE_RECV && i > 0 && s->acts[i - 1].kind == plait_act_kind_of(dir, PLAIT_ROLE_SEND))
        l->links[i].group = i - 1;
    return PLAIT_OK;
}

static plait_status link_act(linker *l, int i)
{
    const plait_schedule *s = l->s;
    plait_act a = s->acts[i];
    l->links[i] = (plait_act_link){-1, -1, -1, -1};
    if ((unsigned)a.kind > PLAIT_ACT_SEND_DX || a.chunk < 0 || a.chunk >= s->chunks || a.micro < 0 ||
        a.micro >= s->micros)
        PLAIT_FAIL(INTERNAL, "pipeline stage %d, action %d: kind %d of chunk %d (of %d), micro-batch %d (of %d)",
                   s->stage, i, (int)a.kind, a.chunk, s->chunks, a.micro, s->micros);
    int dir = plait_act_dir(a), role = plait_act_role(a);
    int64_t id = plait_schedule_id(s, a);
    if (s->forward_only && dir == PLAIT_DIR_BWD)
        return refuse(s, i, "a forward-only schedule has no backward");
    if (l->at[dir][role][id] >= 0)
        return refuse(s, i, "it is in the list twice");
    if (role == PLAIT_ROLE_COMPUTE)
        PLAIT_TRY(link_compute(l, i, dir, id));
    else
        PLAIT_TRY(link_message(l, i, dir, role, id));
    l->at[dir][role][id] = i;
    return PLAIT_OK;
}

static plait_status check_complete(const linker *l)
{
    const plait_schedule *s = l->s;
    for (int dir = 0; dir < (s->forward_only ? PLAIT_DIR_BWD : PLAIT_DIRS); dir++)
        for (int chunk = 0; chunk < s->chunks; chunk++)
            for (int micro = 0; micro < s->micros; micro++)
                for (int role = PLAIT_ROLE_COMPUTE; role <= PLAIT_ROLE_SEND; role++) {
                    plait_act a = {plait_act_kind_of(dir, role), (int16_t)chunk, micro};
                    char text[32];
                    if (role == PLAIT_ROLE_SEND && !plait_schedule_sends(s, dir, chunk))
                        continue;
                    if (l->at[dir][role][plait_schedule_id(s, a)] < 0)
                        PLAIT_FAIL(INTERNAL, "pipeline stage %d of %d: %s is not in the list", s->stage, s->stages,
                                   plait_act_text(s, a, text));
                }
    return PLAIT_OK;
}

plait_status plait_schedule_link(const plait_schedule *s, plait_act_link *links)
{
    plait_status st = PLAIT_OK;
    size_t ids = (size_t)s->chunks * (size_t)s->micros;
    linker l = {.s = s, .links = links};
    int *all = malloc(PLAIT_DIRS * PLAIT_ROLES * ids * sizeof *all);
    if (!all)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory to check a pipeline schedule of %d actions", s->num_acts);
    for (size_t i = 0; i < PLAIT_DIRS * PLAIT_ROLES * ids; i++)
        all[i] = -1;
    for (int dir = 0; dir < PLAIT_DIRS; dir++) {
        for (int role = 0; role < PLAIT_ROLES; role++)
            l.at[dir][role] = all + (size_t)(dir * PLAIT_ROLES + role) * ids;
        for (int b = 0; b < PLAIT_SEND_BUFFERS; b++)
            l.owner[dir][b] = -1;
    }

    for (int i = 0; i < s->num_acts; i++)
        PLAIT_TRY_TO(done, st, link_act(&l, i));
    PLAIT_TRY_TO(done, st, check_complete(&l));
done:
    free(all);
    return st;
}

int plait_schedule_group_length(const plait_schedule *s, const plait_act_link *links, int first)
{
    return first + 1 < s->num_acts && links[first + 1].group == first ? 2 : 1;
}
