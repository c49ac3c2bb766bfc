/* What carries tensors of a device between the ranks of each group. */
#include <stdio.h>

#include "kernels/backend.h"
#include "parallel/comm_impl.h"

typedef struct member {
    plait_comm *comm;
    bool messages; /* it carries messages, not collectives alone */
} member;

/* The groups besides the world; a group of one exchanges nothing. */
enum { MEMBERS = 6 };
static void members_of(const plait_groups *g, member out[MEMBERS])
{
    const member all[MEMBERS] = {{g->tensor, false},   {g->data, false},      {g->pipe_act, true},
                                 {g->pipe_grad, true}, {g->embedding, false}, {g->kv, false}};
    for (int i = 0; i < MEMBERS; i++)
        out[i] = all[i];
}

static void attach_staged(plait_comm *c, const plait_exec *copies, char *bounce, char *message_bounce)
{
    c->copies = copies;
    c->bounce = bounce;
    if (message_bounce) {
        c->message_bounce[0] = message_bounce;
        c->message_bounce[1] = message_bounce + PLAIT_COMM_BOUNCE;
    }
}

static void attach_all_staged(plait_groups *g, const plait_exec *copies, char *bounce)
{
    member members[MEMBERS];
    members_of(g, members);
    attach_staged(g->world, copies, bounce, NULL);
    char *next = bounce + PLAIT_COMM_BOUNCE;
    for (int i = 0; i < MEMBERS; i++) {
        attach_staged(members[i].comm, copies, bounce, members[i].messages ? next : NULL);
        next += members[i].messages ? 2 * PLAIT_COMM_BOUNCE : 0;
    }
}

#ifdef PLAIT_WITH_CUDA

static plait_status connect_all(plait_groups *g, const member *members, void *few_bytes)
{
    PLAIT_TRY(plait_comm_nccl_connect(g->world, false, few_bytes));
    for (int i = 0; i < MEMBERS; i++)
        if (members[i].comm->carrier)
            PLAIT_TRY(plait_comm_nccl_connect(members[i].comm, members[i].messages, few_bytes));
    return PLAIT_OK;
}

static plait_status attach_nccl(plait_groups *g, const plait_exec *copies, void *few_bytes)
{
    member members[MEMBERS];
    members_of(g, members);
    g->world->copies = copies;
    PLAIT_TRY(plait_comm_nccl_attach_world(g->world));
    for (int i = 0; i < MEMBERS; i++) {
        members[i].comm->copies = copies;
        PLAIT_TRY(plait_comm_nccl_attach(members[i].comm, g->world));
    }
    return connect_all(g, members, few_bytes);
}

void plait_comm_device_versions(char *text, size_t size)
{
    const int v = plait_comm_nccl_version();
    (void)snprintf(text, size, "NCCL %d.%d.%d", v / 10000, v / 100 % 100, v % 100);
}

#else

void plait_comm_device_versions(char *text, size_t size)
{
    (void)snprintf(text, size, "none");
}

static plait_status attach_nccl(plait_groups *g, const plait_exec *copies, void *few_bytes)
{
    (void)g;
    (void)copies;
    (void)few_bytes;
    PLAIT_FAIL(UNSUPPORTED, "comm.backend nccl: this plait was built without CUDA");
}

#endif

plait_status plait_groups_attach(plait_groups *g, plait_comm_choice carrier, const plait_exec *copies, void *bounce,
                                 void *few_bytes)
{
    if (plait_comm_size(g->world) == 1)
        return PLAIT_OK;
    if (carrier == PLAIT_COMM_NCCL)
        return attach_nccl(g, copies, few_bytes);
    attach_all_staged(g, copies, bounce);
    return PLAIT_OK;
}
