/* Conversion and summation of host buffers, in blocks that stay in the first-level cache. */
#include "parallel/comm_impl.h"

#include <math.h>
#include <string.h>

#define BLOCK  1024
#define LEVELS 24 /* of a tree over ranks */

static plait_exec host;

void plait_comm_set_exec(const plait_exec *exec)
{
    host = *exec;
    /* One thread: all ranks of a node do this at the same time, and the blocks are small. */
    host.threads = 1;
}

static plait_dtype sum_type(plait_dtype wire)
{
    return wire == PLAIT_INT32 || wire == PLAIT_INT64 ? wire : plait_dtype_acc(wire);
}

plait_status plait_comm_math_ready(const plait_comm_op *op)
{
    bool reduces =
        op->kind == PLAIT_COMM_ALL_REDUCE || op->kind == PLAIT_COMM_REDUCE_SCATTER || op->kind == PLAIT_COMM_REDUCE;
    bool converts = op->dtype != op->wire || op->wire != op->result;
    if ((reduces || converts) && !host.k)
        PLAIT_FAIL(INTERNAL, "%s needs a table of kernels: plait_comm_set_exec comes first",
                   plait_comm_kind_name(op->kind));
    return PLAIT_OK;
}

plait_status plait_comm_convert(void *dst, plait_dtype to, const void *src, plait_dtype from, int64_t n)
{
    if (n == 0)
        return PLAIT_OK;
    if (to == from) {
        if (dst != src)
            memcpy(dst, src, (size_t)n * plait_dtype_size(to));
        return PLAIT_OK;
    }
    PLAIT_TRY(host.k->cast(&host, dst, to, src, from, n));
    return PLAIT_OK;
}

plait_status plait_comm_accumulate(void *dst, const void *src, plait_dtype dtype, int64_t n)
{
    if (dtype == PLAIT_INT64) {
        int64_t *y = dst;
        const int64_t *x = src;
        for (int64_t i = 0; i < n; i++)
            y[i] += x[i];
    } else if (n > 0) {
        PLAIT_TRY(host.k->add(&host, dst, src, dtype, n));
    }
    return PLAIT_OK;
}

/* y = max(y, x); a NaN on either side stays, so that it is seen. Types of sums only. */
static void max_into(void *y, const void *x, plait_dtype dtype, int64_t n)
{
    if (dtype == PLAIT_FP64) {
        double *a = y;
        const double *b = x;
        for (int64_t i = 0; i < n; i++)
            a[i] = b[i] > a[i] || isnan(b[i]) ? b[i] : a[i];
    } else if (dtype == PLAIT_FP32) {
        float *a = y;
        const float *b = x;
        for (int64_t i = 0; i < n; i++)
            a[i] = b[i] > a[i] || isnan(b[i]) ? b[i] : a[i];
    } else {
        int32_t *a = y;
        const int32_t *b = x;
        for (int64_t i = 0; i < n; i++)
            a[i] = b[i] > a[i] ? b[i] : a[i];
    }
}

/* One block of a reduction: what it is made of, from element `at` on. */
typedef struct block {
    const plait_comm_op *op;
    const void *const *sources;
    plait_dtype sum;
    int64_t at, len;
} block;

/* y = y and source r */
static plait_status take(const block *b, void *y, int r)
{
    static _Alignas(64) double wide[BLOCK];
    const void *x = plait_at(b->sources[r], b->op->wire, b->at);
    if (b->op->wire != b->sum) {
        PLAIT_TRY(plait_comm_convert(wide, b->sum, x, b->op->wire, b->len));
        x = wide;
    }
    if (b->op->reduction == PLAIT_SUM)
        return plait_comm_accumulate(y, x, b->sum, b->len);
    max_into(y, x, b->sum, b->len);
    return PLAIT_OK;
}

/* y = sources [first, first + n), halves first: the larger half, a power of two, is the left one. `room`: a block for
 * each further level. */
static plait_status add_tree(const block *b, void *y, int first, int n, double (*room)[BLOCK])
{
    if (n <= 2 || b->op->reduction == PLAIT_MAX) {
        PLAIT_TRY(plait_comm_convert(y, b->sum, plait_at(b->sources[first], b->op->wire, b->at), b->op->wire, b->len));
        for (int r = first + 1; r < first + n; r++)
            PLAIT_TRY(take(b, y, r));
        return PLAIT_OK;
    }
    int left = 2;
    while (2 * left < n)
        left *= 2;
    PLAIT_TRY(add_tree(b, y, first, left, room));
    PLAIT_TRY(add_tree(b, room[0], first + left, n - left, room + 1));
    return plait_comm_accumulate(y, room[0], b->sum, b->len);
}

plait_status plait_comm_reduce(const plait_comm_op *op, const void *const *sources, int num_sources, void *dst,
                               int64_t n, bool accumulate)
{
    static _Alignas(64) double sum_block[BLOCK], result_block[BLOCK], room[LEVELS][BLOCK];
    block b = {op, sources, sum_type(op->wire), 0, 0};
    /* Where the result has the type of the sums it is its own block. */
    bool direct = op->result == b.sum && !accumulate;

    for (; b.at < n; b.at += BLOCK) {
        b.len = n - b.at < BLOCK ? n - b.at : BLOCK;
        void *to = plait_at(dst, op->result, b.at);
        void *acc = direct ? to : sum_block;
        PLAIT_TRY(add_tree(&b, acc, 0, num_sources, room));
        if (accumulate) {
            PLAIT_TRY(plait_comm_convert(result_block, op->result, acc, b.sum, b.len));
            PLAIT_TRY(plait_comm_accumulate(to, result_block, op->result, b.len));
        } else if (!direct) {
            PLAIT_TRY(plait_comm_convert(to, op->result, acc, b.sum, b.len));
        }
    }
    return PLAIT_OK;
}
