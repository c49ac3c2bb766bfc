// The threads of a block: who runs next, barriers, deadlocks.
#include "tests/fakecuda/block.h"
#include "tests/fakecuda/race.h"
#include "tests/fakecuda/report.h"
#include "tests/fakecuda/streams.h"

#include <cstdlib>
#include <cstring>

namespace fakecuda
{

Thread *current;
dim3 grid_size, block_size;
uint3 block_index;
Block block;

namespace
{

Fiber scheduler;
const Launch *kernel;

unsigned rotated(unsigned mask, int by)
{
    return by ? mask >> by | mask << (32 - by) : mask;
}

// A bit of `mask`, which has some.
inline int choose(unsigned mask)
{
    switch (block.order) {
    case Order::forward:
        return __builtin_ctz(mask);
    case Order::reverse:
        return 31 - __builtin_clz(mask);
    case Order::random:
        break;
    }
    const int by = static_cast<int>(thread_random().below(32));
    return (__builtin_ctz(rotated(mask, by)) + by) % 32;
}

// The lanes of a warp run together, so that few stacks are in use at a time; at random another one steps in.
inline int choose_warp()
{
    const bool stays = block.ready_warps >> block.warp & 1;
    if (stays && (block.order != Order::random || thread_random().below(8) != 0))
        return block.warp;
    return choose(block.ready_warps);
}

// Takes a ready thread; NULL when all wait or have ended.
inline BlockThread *take_ready()
{
    if (!block.ready_warps)
        return nullptr;
    block.warp = choose_warp();
    Warp &warp = block.warps[block.warp];
    const int lane = choose(warp.ready);
    warp.ready &= ~(1u << lane);
    if (!warp.ready)
        block.ready_warps &= ~(1u << block.warp);
    return &block.threads[block.warp * kLanes + lane];
}

void release_barrier()
{
    for (int w = 0; w < block.num_warps; w++) {
        const unsigned lanes = block.warps[w].at_barrier;
        block.warps[w].at_barrier = 0;
        if (lanes)
            make_ready(w, lanes);
    }
    block.at_barrier = 0;
    block.barrier_result = block.barrier_value;
    race::barrier();
}

void end_thread(BlockThread *me)
{
    if (!me->copies.empty())
        die("the thread ends with %zu cp.async under way", me->copies.size());
    block.live--;
    leave_warp(me);
    // A barrier waits for the threads that have not ended.
    if (block.live > 0 && block.at_barrier == block.live)
        release_barrier();
}

// Where every thread starts. A thread that has not started takes over the stack of one that ends: those that never wait
// run on one stack after another.
void enter_thread()
{
    fiber_started();
    for (;;) {
        kernel->run(kernel->arguments.get());
        BlockThread *me = running();
        end_thread(me);
        BlockThread *next = take_ready();
        current = next;
        if (!next)
            fiber_end(&me->fiber, &scheduler);
        if (next->fiber.stack)
            fiber_end(&me->fiber, &next->fiber);
        std::swap(next->fiber.stack, me->fiber.stack);
    }
}

inline void go_on(Fiber *from, BlockThread *next)
{
    if (next && !next->fiber.stack)
        fiber_prepare(&next->fiber, enter_thread);
    current = next;
    fiber_switch(from, next ? &next->fiber : &scheduler);
}

void set_up(uint3 index)
{
    block_index = index;
    block.num_threads = static_cast<int>(block_size.x * block_size.y * block_size.z);
    block.num_warps = (block.num_threads + kLanes - 1) / kLanes;
    block.live = block.num_threads;
    block.at_barrier = 0;
    block.order = settings().threads;
    block.warp = block.order == Order::reverse ? block.num_warps - 1 : 0;
    for (int w = 0; w < block.num_warps; w++) {
        const int lanes = block.num_threads - w * kLanes;
        Warp &warp = block.warps[w];
        warp.live = warp.ready = lanes >= kLanes ? ~0u : (1u << lanes) - 1;
        warp.at_barrier = 0;
        warp.num_groups = 0;
    }
    block.ready_warps = block.num_warps == 32 ? ~0u : (1u << block.num_warps) - 1;
    unsigned n = 0;
    for (unsigned z = 0; z < block_size.z; z++)
        for (unsigned y = 0; y < block_size.y; y++)
            for (unsigned x = 0; x < block_size.x; x++, n++) {
                BlockThread &t = block.threads[n];
                t.index = {x, y, z};
                t.number = static_cast<int>(n);
                t.warp = t.number / kLanes;
                t.lane = t.number % kLanes;
                t.place = {nullptr, 0};
                t.copy_group = 0;
            }
}

// Threads that wait for others that will not come. Two of them tell the story.
[[noreturn]] void dead_lock()
{
    int in_warp = 0;
    const BlockThread *at_barrier = nullptr, *at_operation = nullptr;
    for (int i = 0; i < block.num_threads; i++) {
        const BlockThread &t = block.threads[i];
        const Warp &warp = block.warps[t.warp];
        if (!(warp.live >> t.lane & 1))
            continue;
        if (warp.at_barrier >> t.lane & 1) {
            at_barrier = &t;
        } else {
            at_operation = &t;
            in_warp++;
        }
    }
    const std::string barrier =
        at_barrier ? format(", as thread %d at %s", at_barrier->number, text_of(at_barrier->place).c_str()) : "";
    const std::string operation =
        at_operation ? format(", as thread %d at %s", at_operation->number, text_of(at_operation->place).c_str()) : "";
    die("kernel %s, block (%u, %u, %u): deadlock: %d threads wait in __syncthreads%s; %d in an operation of their "
        "warp%s; "
        "%d have ended",
        kernel->name.c_str(), block_index.x, block_index.y, block_index.z, block.at_barrier, barrier.c_str(), in_warp,
        operation.c_str(), block.num_threads - block.live);
}

void check_barrier(Barrier kind, Place place)
{
    const bool same = block.barrier == kind && block.barrier_place.line == place.line &&
                      (block.barrier_place.file == place.file || !strcmp(block.barrier_place.file, place.file));
    if (!same)
        die("threads of a block wait in different __syncthreads: %s and %s", text_of(block.barrier_place).c_str(),
            text_of(place).c_str());
}

void add_to_barrier(Barrier kind, int value)
{
    switch (kind) {
    case Barrier::plain:
        break;
    case Barrier::any:
        block.barrier_value |= value != 0;
        break;
    case Barrier::all:
        block.barrier_value &= value != 0;
        break;
    case Barrier::count:
        block.barrier_value += value != 0;
        break;
    }
}

} // namespace

std::string text_of(Place place)
{
    if (!place.file)
        return "its start";
    const char *slash = strrchr(place.file, '/');
    return format("%s:%d", slash ? slash + 1 : place.file, place.line);
}

std::string running_thread()
{
    if (!current)
        return "";
    const BlockThread *t = running();
    return format("kernel %s, block (%u, %u, %u), thread (%u, %u, %u), after %s", kernel->name.c_str(), block_index.x,
                  block_index.y, block_index.z, t->index.x, t->index.y, t->index.z, text_of(t->place).c_str());
}

void make_ready(int warp, unsigned lanes)
{
    block.warps[warp].ready |= lanes;
    block.ready_warps |= 1u << warp;
}

void suspend()
{
    BlockThread *me = running();
    BlockThread *next = take_ready();
    if (next != me)
        go_on(&me->fiber, next);
}

int meet_block(Barrier kind, int value, Place place)
{
    BlockThread *me = running();
    me->place = place;
    if (block.at_barrier == 0) {
        block.barrier = kind;
        block.barrier_value = kind == Barrier::all;
        block.barrier_place = place;
    } else {
        check_barrier(kind, place);
    }
    add_to_barrier(kind, value);
    if (++block.at_barrier < block.live) {
        block.warps[me->warp].at_barrier |= 1u << me->lane;
        suspend();
    } else {
        release_barrier();
        if (!goes_on()) {
            make_ready(me->warp, 1u << me->lane);
            suspend();
        }
    }
    // The next barrier is complete only after all have read this.
    return block.barrier_result;
}

void run_block(uint3 index, const Launch &launch)
{
    kernel = &launch;
    set_up(index);
    go_on(&scheduler, take_ready());
    if (block.live > 0)
        dead_lock();
}

} // namespace fakecuda
