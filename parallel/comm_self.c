/* A group of one: what arrives is what was sent, rounded to the wire type on the way. */
#include "kernels/backend.h"
#include "parallel/comm_impl.h"

#define BLOCK 1024

plait_status plait_comm_self_run(const plait_comm_op *op)
{
    static _Alignas(64) double wire_block[BLOCK], result_block[BLOCK];
    if (op->kind == PLAIT_COMM_BARRIER || op->count == 0)
        return PLAIT_OK;
    if (op->dtype == op->wire && op->wire == op->result && !op->accumulate) {
        PLAIT_TRY(plait_comm_convert(op->out, op->result, op->in, op->dtype, op->count));
        return PLAIT_OK;
    }
    for (int64_t i = 0; i < op->count; i += BLOCK) {
        int64_t n = op->count - i < BLOCK ? op->count - i : BLOCK;
        void *out = plait_at(op->out, op->result, i);
        PLAIT_TRY(plait_comm_convert(wire_block, op->wire, plait_at(op->in, op->dtype, i), op->dtype, n));
        PLAIT_TRY(plait_comm_convert(op->accumulate ? result_block : out, op->result, wire_block, op->wire, n));
        if (op->accumulate)
            PLAIT_TRY(plait_comm_accumulate(out, result_block, op->result, n));
    }
    return PLAIT_OK;
}

plait_status plait_comm_self_run_device(const plait_comm_op *op, const plait_exec *ex)
{
    const bool wire_rounds = op->dtype != op->wire && op->wire != op->result;
    const int64_t block = (int64_t)(ex->scratch_bytes / 2 / sizeof(double));
    if (op->kind == PLAIT_COMM_BARRIER || op->count == 0)
        return PLAIT_OK;
    if (op->dtype == op->result && op->in == op->out && !op->accumulate && !wire_rounds && op->dtype == op->wire)
        return PLAIT_OK;
    if (!wire_rounds && !op->accumulate)
        return ex->k->cast(ex, op->out, op->result, op->in, op->dtype, op->count);
    if (block == 0)
        PLAIT_FAIL(OUT_OF_MEMORY, "device.workspace %zu bytes: adding rounded gradients takes some", ex->scratch_bytes);
    void *on_wire = ex->scratch, *result = plait_at(ex->scratch, PLAIT_FP64, block);
    for (int64_t i = 0; i < op->count; i += block) {
        const int64_t n = op->count - i < block ? op->count - i : block;
        void *out = plait_at(op->out, op->result, i);
        PLAIT_TRY(ex->k->cast(ex, on_wire, op->wire, plait_at(op->in, op->dtype, i), op->dtype, n));
        PLAIT_TRY(ex->k->cast(ex, op->accumulate ? result : out, op->result, on_wire, op->wire, n));
        if (op->accumulate)
            PLAIT_TRY(ex->k->add(ex, out, result, op->result, n));
    }
    return PLAIT_OK;
}
