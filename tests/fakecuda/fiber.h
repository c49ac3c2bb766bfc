// tests/fakecuda/fiber.h: stacks, and switching between them. A thread of a kernel is a function on a stack of its own.
#ifndef PLAIT_TESTS_FAKECUDA_FIBER_H
#define PLAIT_TESTS_FAKECUDA_FIBER_H

#include <cstddef>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FAKECUDA_ASAN 1
#endif
#endif

// Pushes what a function must preserve, saves the stack pointer in `save`, takes `load`, and pops what was pushed
// there.
extern "C" void fakecuda_switch(void **save, void *load);

namespace fakecuda
{

const size_t kFiberStack = 128 * 1024;

// Where a stack waits to go on.
struct Fiber {
    void *pointer = nullptr; // to its saved registers
    char *stack = nullptr;   // lowest byte; NULL for the stack that the process came with, and before the start
    void *fake = nullptr;    // of the address sanitizer
};

// Gives `fiber` a stack on which `entry` starts at the first switch to it. `entry` never returns.
void fiber_prepare(Fiber *fiber, void (*entry)());
// To be called first in `entry`.
void fiber_started();
// Saves the running stack in `from` and goes on with `to`; returns when somebody switches back.
#ifdef FAKECUDA_ASAN
void fiber_switch(Fiber *from, const Fiber *to);
#else
inline void fiber_switch(Fiber *from, const Fiber *to)
{
    fakecuda_switch(&from->pointer, to->pointer);
}
#endif
// Takes the stack of the running `from`, which ends, and goes on with `to`.
[[noreturn]] void fiber_end(Fiber *from, const Fiber *to);
// True when `at` lies in the forbidden pages under a stack.
bool fiber_guards(const void *at);
inline bool fiber_owns(const Fiber *fiber, const void *at)
{
    const char *c = static_cast<const char *>(at);
    return fiber->stack && c >= fiber->stack && c < fiber->stack + kFiberStack;
}

} // namespace fakecuda
#endif
