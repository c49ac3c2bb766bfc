/* A group of one: what arrives is what was sent, rounded to the wire type on the way. */
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
