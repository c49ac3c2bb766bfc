/* Conversion and summation of host buffers, in blocks that stay in the first-level cache. */
#include "parallel/comm_impl.h"

#include <math.h>
#include <string.h>

#define BLOCK 1024

static plait_exec host;

void plait_comm_set_exec(const plait_exec *exec)
{
    host = *exec;
    /* One thread: all ranks of a node do this at the same time, and the blocks are small. */
    host.threads = 1;
}

static plait_dtype sum_type(plait_dtype wire)
{
    return wire == PLAIT_INT32 ? PLAIT_INT32 : plait_dtype_acc(wire);
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
    if (n > 0)
        PLAIT_TRY(host.k->add(&host, dst, src, dtype, n));
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

plait_status plait_comm_reduce(const plait_comm_op *op, const void *const *sources, int num_sources, void *dst,
                               int64_t n, bool accumulate)
{
    static _Alignas(64) double sum_block[BLOCK], wide_block[BLOCK];
    plait_dtype sum = sum_type(op->wire);
    /* Where the result has the type of the sums it is its own block. */
    bool direct = op->result == sum && !accumulate;

    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t len = n - i < BLOCK ? n - i : BLOCK;
        void *to = plait_at(dst, op->result, i);
        void *acc = direct ? to : sum_block;
        PLAIT_TRY(plait_comm_convert(acc, sum, plait_at(sources[0], op->wire, i), op->wire, len));
        for (int r = 1; r < num_sources; r++) {
            const void *x = plait_at(sources[r], op->wire, i);
            if (op->wire != sum) {
                PLAIT_TRY(plait_comm_convert(wide_block, sum, x, op->wire, len));
                x = wide_block;
            }
            if (op->reduction == PLAIT_MAX)
                max_into(acc, x, sum, len);
            else
                PLAIT_TRY(plait_comm_accumulate(acc, x, sum, len));
        }
        if (accumulate) {
            PLAIT_TRY(plait_comm_convert(wide_block, op->result, acc, sum, len));
            PLAIT_TRY(plait_comm_accumulate(to, wide_block, op->result, len));
        } else if (!direct) {
            PLAIT_TRY(plait_comm_convert(to, op->result, acc, sum, len));
        }
    }
    return PLAIT_OK;
}
