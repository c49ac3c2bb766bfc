#include <stdlib.h>
#include <xxhash.h>

#include "parallel/weights.h"
#include "parallel/weights_impl.h"

typedef struct hash {
    plait_engine *e;
    plait_dtype acc;
    void *buffer; /* a chunk */
    uint64_t sum; /* modulo 2^64 */
} hash;

/* plait_weights_visit: a term for each element, whose place is in the term and not in the order. */
static plait_status add_chunk(void *self, int owner, const plait_param *p, int64_t from, int64_t n)
{
    hash *h = self;
    const size_t size = plait_dtype_size(h->acc);
    const uint64_t seed = XXH3_64bits(p->name, strlen(p->name));
    (void)owner; /* this rank */
    PLAIT_TRY(plait_zero_read(plait_engine_zero(h->e), p->unit, from, n, h->buffer));
    for (int64_t i = 0; i < n; i++) {
        uint64_t term[2] = {(uint64_t)plait_param_file_index(p, from - p->offset + i), 0};
        memcpy(&term[1], plait_at(h->buffer, h->acc, i), size);
        h->sum += XXH3_64bits_withSeed(term, sizeof term, seed);
    }
    return PLAIT_OK;
}

static plait_status add_own(hash *h, int rank)
{
    h->buffer = malloc(PLAIT_WEIGHTS_CHUNK * sizeof(double));
    if (!h->buffer)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for a chunk of %d weights", PLAIT_WEIGHTS_CHUNK);
    plait_status st = plait_weights_are_copies(h->e, rank)
                          ? PLAIT_OK
                          : plait_weights_walk(h->e, rank, plait_engine_params(h->e), add_chunk, h);
    free(h->buffer);
    return st;
}

plait_status plait_weights_hash(plait_engine *e, uint64_t *out)
{
    plait_comm *world = plait_engine_groups(e)->world;
    const int rank = plait_comm_rank(world);
    hash h = {.e = e, .acc = plait_dtype_acc(plait_engine_config(e)->precision.dtype)};
    PLAIT_TRY(plait_comm_agree(world, add_own(&h, rank)));
    *out = 0;
    for (int i = 0; i < plait_comm_size(world); i++) {
        uint64_t one = h.sum;
        PLAIT_TRY(plait_comm_broadcast_bytes(world, &one, sizeof one, i));
        *out += one;
    }
    return PLAIT_OK;
}
