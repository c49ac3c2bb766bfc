/* Send and receive: messages cut into pieces of chunk_bytes, a few under way at once.
 *
 * MPI matches pieces of two ranks in the order in which they are posted. So a message to a peer posts nothing before
 * all pieces of earlier messages to that peer are posted; messages to other peers, and receives, do not wait for it.
 *
 * A message of a device goes through the group's bounce of its direction, a piece at a time; so there it waits for all
 * earlier ones of its direction. Ranks of a pipeline have one peer for each.
 */
#include "kernels/backend.h"
#include "parallel/comm_impl.h"

static int64_t bytes_of(const plait_comm_op *op)
{
    return op->count * (int64_t)plait_dtype_size(op->dtype);
}

static plait_status test_pieces(plait_comm *c, plait_comm_task *t)
{
    for (int i = 0; i < PLAIT_COMM_PIECES && t->under_way > 0; i++) {
        if (t->pieces[i] == MPI_REQUEST_NULL)
            continue;
        int done = 0;
        PLAIT_TRY_MPI(MPI_Test(&t->pieces[i], &done, MPI_STATUS_IGNORE));
        if (done) {
            t->under_way--;
            c->moves++;
        }
    }
    return PLAIT_OK;
}

static plait_status post_piece(plait_comm *c, plait_comm_task *t, MPI_Request *piece)
{
    int64_t left = bytes_of(&t->op) - t->posted;
    int n = left < (int64_t)c->chunk_bytes ? (int)left : (int)c->chunk_bytes;
    if (t->op.kind == PLAIT_COMM_SEND)
        PLAIT_TRY_MPI(MPI_Isend((const char *)t->op.in + t->posted, n, MPI_BYTE, t->op.peer, PLAIT_COMM_TAG_MESSAGE,
                                c->mpi, piece));
    else
        PLAIT_TRY_MPI(
            MPI_Irecv((char *)t->op.out + t->posted, n, MPI_BYTE, t->op.peer, PLAIT_COMM_TAG_MESSAGE, c->mpi, piece));
    t->posted += n;
    t->under_way++;
    c->moves++;
    return PLAIT_OK;
}

/* ---- of a device ---- */

/* A piece that has arrived goes to its place, one that has gone gives the bounce free. */
static plait_status finish_bounced(plait_comm *c, plait_comm_task *t)
{
    const bool receives = t->op.kind == PLAIT_COMM_RECV;
    int done = 0;
    PLAIT_TRY_MPI(MPI_Test(&t->pieces[0], &done, MPI_STATUS_IGNORE));
    if (!done)
        return PLAIT_OK;
    if (receives) {
        const int64_t begin = t->posted - t->under_way;
        PLAIT_TRY(plait_upload(c->copies, (char *)t->op.out + begin, c->message_bounce[1], (size_t)t->under_way));
        PLAIT_TRY(plait_finish(c->copies));
    }
    t->under_way = 0;
    c->message_in_bounce[receives] = NULL;
    c->moves++;
    return PLAIT_OK;
}

static plait_status post_bounced(plait_comm *c, plait_comm_task *t)
{
    const bool receives = t->op.kind == PLAIT_COMM_RECV;
    const int64_t left = bytes_of(&t->op) - t->posted;
    const int n = left < (int64_t)PLAIT_COMM_BOUNCE ? (int)left : (int)PLAIT_COMM_BOUNCE;
    char *bounce = c->message_bounce[receives];
    if (receives) {
        PLAIT_TRY_MPI(MPI_Irecv(bounce, n, MPI_BYTE, t->op.peer, PLAIT_COMM_TAG_MESSAGE, c->mpi, &t->pieces[0]));
    } else {
        PLAIT_TRY(plait_download(c->copies, bounce, (const char *)t->op.in + t->posted, (size_t)n));
        PLAIT_TRY(plait_finish(c->copies));
        PLAIT_TRY_MPI(MPI_Isend(bounce, n, MPI_BYTE, t->op.peer, PLAIT_COMM_TAG_MESSAGE, c->mpi, &t->pieces[0]));
    }
    c->message_in_bounce[receives] = t;
    t->posted += n;
    t->under_way = n;
    c->moves++;
    return PLAIT_OK;
}

/* under_way: bytes of the piece that is in the bounce. */
static plait_status advance_bounced(plait_comm *c, plait_comm_task *t)
{
    plait_comm_task *const *in_bounce = &c->message_in_bounce[t->op.kind == PLAIT_COMM_RECV];
    if (!c->message_bounce[0])
        PLAIT_FAIL(INTERNAL, "group %s: a message of a device, and the group has nothing for it to go through",
                   c->name);
    if (*in_bounce == t)
        PLAIT_TRY(finish_bounced(c, t));
    return *in_bounce || t->posted == bytes_of(&t->op) ? PLAIT_OK : post_bounced(c, t);
}

plait_status plait_comm_messages_advance(plait_comm *c)
{
    c->walk++;
    for (plait_comm_task *t = c->messages.first; t; t = t->next) {
        if (t->device) {
            PLAIT_TRY(advance_bounced(c, t));
            continue;
        }
        uint64_t *held_back = &c->held_back[(t->op.kind == PLAIT_COMM_RECV ? c->size : 0) + t->op.peer];
        PLAIT_TRY(test_pieces(c, t));
        for (int i = 0; i < PLAIT_COMM_PIECES && *held_back != c->walk && t->posted < bytes_of(&t->op); i++)
            if (t->pieces[i] == MPI_REQUEST_NULL)
                PLAIT_TRY(post_piece(c, t, &t->pieces[i]));
        if (t->posted < bytes_of(&t->op))
            *held_back = c->walk;
    }
    return PLAIT_OK;
}
