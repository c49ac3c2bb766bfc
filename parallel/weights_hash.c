#include <stdlib.h>
#include <xxhash.h>

#include "parallel/weights.h"
#include "parallel/weights_impl.h"

typedef struct hash {
    plait_engine *e;
    plait_dtype acc;
    bool gradients;
    void *buffer; /* a chunk */
    const int *tensor_of;
    uint64_t *sums; /* modulo 2^64 */
} hash;

/* plait_weights_visit: a term for each element, whose place is in the term and not in the order. */
static plait_status add_chunk(void *self, int owner, const plait_param *p, int64_t from, int64_t n)
{
    hash *h = self;
    const size_t size = plait_dtype_size(h->acc);
    const uint64_t seed = XXH3_64bits(p->name, strlen(p->name));
    const plait_zero *zero = plait_engine_zero(h->e);
    uint64_t *sum = &h->sums[h->tensor_of ? h->tensor_of[p - plait_engine_params(h->e)->params] : 0];
    (void)owner; /* this rank */
    PLAIT_TRY((h->gradients ? plait_zero_read_gradient : plait_zero_read)(zero, p->unit, from, n, h->buffer));
    for (int64_t i = 0; i < n; i++) {
        uint64_t term[2] = {(uint64_t)plait_param_file_index(p, from - p->offset + i), 0};
        memcpy(&term[1], plait_at(h->buffer, h->acc, i), size);
        *sum += XXH3_64bits_withSeed(term, sizeof term, seed);
    }
    return PLAIT_OK;
}

plait_status plait_weights_add_hashes(plait_engine *e, bool gradients, void *buffer, const int *tensor_of,
                                      uint64_t *sums)
{
    const int rank = plait_comm_rank(plait_engine_groups(e)->world);
    hash h = {e, plait_dtype_acc(plait_engine_config(e)->precision.dtype), gradients, buffer, tensor_of, sums};
    return plait_weights_are_copies(e, rank) ? PLAIT_OK
                                             : plait_weights_walk(e, rank, plait_engine_params(e), add_chunk, &h);
}

static plait_status sum_of_weights(plait_engine *e, uint64_t *sum)
{
    void *buffer = malloc(PLAIT_WEIGHTS_CHUNK * sizeof(double));
    if (!buffer)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for a chunk of %d weights", PLAIT_WEIGHTS_CHUNK);
    *sum = 0;
    plait_status st = plait_weights_add_hashes(e, false, buffer, NULL, sum);
    free(buffer);
    return st;
}

plait_status plait_weights_hash(plait_engine *e, uint64_t *out)
{
    plait_comm *world = plait_engine_groups(e)->world;
    uint64_t mine = 0;
    PLAIT_TRY(plait_comm_agree(world, sum_of_weights(e, &mine)));
    *out = 0;
    for (int i = 0; i < plait_comm_size(world); i++) {
        uint64_t one = mine;
        PLAIT_TRY(plait_comm_broadcast_bytes(world, &one, sizeof one, i));
        *out += one;
    }
    return PLAIT_OK;
}
