/* Send and receive: messages cut into pieces of chunk_bytes, a few under way at once.
 *
 * MPI matches pieces of two ranks in the order in which they are posted. So a message to a peer posts nothing before
 * all pieces of earlier messages to that peer are posted; messages to other peers, and receives, do not wait for it.
 */
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

plait_status plait_comm_messages_advance(plait_comm *c)
{
    c->walk++;
    for (plait_comm_task *t = c->messages.first; t; t = t->next) {
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
