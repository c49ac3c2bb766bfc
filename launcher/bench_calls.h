/* launcher/bench_calls.h: one call of each operation, on operands that nobody has in his cache.
 *
 * Operands rotate through two rings of memory, one of what is only read and one of what is written. What a call does is
 * not written down here: it is run once under the table that computes nothing, which tells its work.
 */
#ifndef PLAIT_LAUNCHER_BENCH_CALLS_H
#define PLAIT_LAUNCHER_BENCH_CALLS_H

#include "kernels/plan/plan.h"

PLAIT_BEGIN_DECLS

typedef struct plait_bench_ring {
    char *base;
    size_t bytes, at;
} plait_bench_ring;

typedef struct plait_bench_call {
    plait_op op;
    /* gemm: of the product; attention: heads, seq, head_dim; others: rows, columns, vocabulary, or m times a few
     * elements
     */
    int64_t m, n, k;
    bool trans_a, trans_b; /* gemm; trans_a: the gradient of a weight, which is added to in A */
    bool epilogue; /* gemm, with what a layer has for it: bias and GELU, GELU's slope (NN), a bias's gradient (TN) */
    plait_dtype dtype; /* add: of its operands; cast: of the result */
    /* filled by plait_bench_calls_prepare */
    plait_op_record record;
    size_t read, written; /* bytes of the rings that a call takes */
} plait_bench_call;

/* Of one rank and type. */
typedef struct plait_bench_calls {
    plait_exec ex;
    plait_bench_ring read, written;
    int32_t *tokens;
    uint64_t hash;         /* which the host gets */
    plait_bench_call call; /* the one that plait_bench_calls_run makes */
} plait_bench_calls;

/* Words of texts are below this, so no vocabulary may be smaller. */
enum { PLAIT_BENCH_LEAST_VOCABULARY = 256 };
/* Bytes of each ring: enough for the largest call. */
enum { PLAIT_BENCH_RING = 128 << 20, PLAIT_BENCH_QUICK_RING = 32 << 20 };

/* Memory and numbers for a table; ex has scratch, threads and backend, and the arena is of that. */
PLAIT_MUST_USE plait_status plait_bench_calls_init(plait_bench_calls *c, const plait_exec *ex, plait_arena *arena,
                                                   size_t ring);
/* Numbers for another table. */
PLAIT_MUST_USE plait_status plait_bench_calls_set_table(plait_bench_calls *c, const plait_kernels *k);
/* What is written begins as zeros, which every type and operation can read. After a table is set. */
PLAIT_MUST_USE plait_status plait_bench_calls_clear(plait_bench_calls *c);
/* A call of what memory bounds, on rows of `columns` out of a vocabulary: with as many of them as give about so many
 * bytes, at least one. Prepared. */
PLAIT_MUST_USE plait_status plait_bench_calls_of_bytes(plait_bench_calls *c, plait_op op, plait_dtype dtype,
                                                       int64_t columns, int64_t vocabulary, double bytes,
                                                       plait_op_record *work);
static inline double plait_bench_bytes(const plait_op_record *work)
{
    return work->bytes_read + work->bytes_written;
}
/* Makes `call` the one that is run, and tells its work. */
PLAIT_MUST_USE plait_status plait_bench_calls_prepare(plait_bench_calls *c, const plait_bench_call *call,
                                                      plait_op_record *work);
PLAIT_MUST_USE plait_status plait_bench_calls_run(void *calls);

PLAIT_END_DECLS
#endif
