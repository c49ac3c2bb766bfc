// tests/fakecuda/block.h: the threads of one block of a kernel, one after the other.
//
// A thread runs until it waits for others, at a barrier or in an operation of its warp, and then the next one that can
// goes on: the lanes of its warp first, then other warps, forward, backward or at random. Blocks run one at a time.
#ifndef PLAIT_TESTS_FAKECUDA_BLOCK_H
#define PLAIT_TESTS_FAKECUDA_BLOCK_H

#include <string>
#include <vector>

#include "tests/fakecuda/device/fakecuda_launch.h"
#include "tests/fakecuda/device/fakecuda_thread.h"
#include "tests/fakecuda/fiber.h"
#include "tests/fakecuda/settings.h"

namespace fakecuda
{

const int kLanes = 32, kMaxThreads = 1024, kMaxWarps = kMaxThreads / kLanes;

// A copy from global to shared memory that was begun and has not landed.
struct PendingCopy {
    void *to;
    const void *from;
    int valid;
    int group;
};

// A thread of the block, with what the emulation knows of it.
// What every switch touches comes first, in one line of the cache: a block has hundreds of threads.
struct alignas(64) BlockThread : Thread {
    Fiber fiber;
    Place place; // where it waited last
    // of the operation of the warp in which it waits
    const void *in;
    void *out;
    unsigned argument;
    std::vector<PendingCopy> copies;
    int copy_group;
};

// Lanes that come together: those of `mask` that have not ended.
struct WarpGroup {
    unsigned mask, arrived;
    WarpOperation operation;
    Place place;
};

struct Warp {
    unsigned live, ready, at_barrier; // lanes
    WarpGroup groups[kLanes];         // masks are disjoint
    int num_groups;
};

struct Block {
    BlockThread threads[kMaxThreads];
    Warp warps[kMaxWarps];
    unsigned ready_warps; // with ready lanes
    int num_threads, num_warps, live;
    int warp; // of the thread that ran last
    Order order;
    int at_barrier;
    Barrier barrier;
    int barrier_value;  // of those that have come
    int barrier_result; // of the last one that was complete
    Place barrier_place;
};
extern Block block;

inline BlockThread *running()
{
    return static_cast<BlockThread *>(current);
}

// Runs block `index` of a kernel with block_size and grid_size set.
void run_block(uint3 index, const Launch &launch);

// The running thread waits: goes on with others, and returns when it has been made ready.
void suspend();
void make_ready(int warp, unsigned lanes);
// In the order forward the thread that completes an operation goes straight on.
inline bool goes_on()
{
    return block.order == Order::forward;
}

// The warp's side of a lane's end (warp.cpp).
void leave_warp(BlockThread *thread);

std::string text_of(Place place);

} // namespace fakecuda
#endif
