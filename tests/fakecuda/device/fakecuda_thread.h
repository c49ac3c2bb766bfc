// tests/fakecuda/device/fakecuda_thread.h: what device code sees of the thread that runs it.
#ifndef PLAIT_TESTS_FAKECUDA_DEVICE_FAKECUDA_THREAD_H
#define PLAIT_TESTS_FAKECUDA_DEVICE_FAKECUDA_THREAD_H

#include <cuda_runtime.h>

namespace fakecuda
{

// A line of device code. As a default argument: that of the call.
struct Place {
    const char *file;
    int line;
    static constexpr Place here(const char *file = __builtin_FILE(), int line = __builtin_LINE())
    {
        return {file, line};
    }
};

struct Thread {
    uint3 index; // threadIdx
    int number;  // in its block
    int warp, lane;
};

// The thread that runs; NULL while the host or another operation does.
extern Thread *current;
// Of the kernel that runs.
extern dim3 grid_size, block_size;
extern uint3 block_index;

// __syncthreads and its relatives.
enum class Barrier { plain, any, all, count };
int meet_block(Barrier kind, int value, Place place);

// All lanes of `mask` that have not ended come together: the last one does the operation for all.
enum class WarpOperation {
    sync,
    shuffle,
    ballot,
    match,
    reduce_add,
    reduce_min,
    reduce_max,
    mma_bf16,
    mma_fp16,
    ldmatrix,
    ldmatrix_trans
};
void meet_warp(WarpOperation operation, unsigned mask, const void *in, unsigned argument, void *out, Place place);

// The dynamic shared memory of the block.
void *dynamic_shared();

} // namespace fakecuda
#endif
