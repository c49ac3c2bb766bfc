// Stacks and the switch between them, for x86-64.
#include "tests/fakecuda/fiber.h"
#include "tests/fakecuda/streams.h"

#include <cstdint>
#include <cstdlib>
#include <sys/mman.h>
#include <vector>

#ifdef FAKECUDA_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

#ifndef __x86_64__
#error "fakecuda_switch is written for x86-64"
#endif

// Goes back by a jump: the processor predicts where `ret` goes by the calls it saw, which are those of the other stack.
asm(R"(
.text
.globl fakecuda_switch
.type fakecuda_switch, @function
fakecuda_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    pop %rcx
    jmp *%rcx
.size fakecuda_switch, . - fakecuda_switch
)");

namespace fakecuda
{

namespace
{

const size_t kGuard = 64 * 1024;
const int kSavedRegisters = 6;
// Stacks start at different sets of the caches: a block has hundreds of them, all with the same frames.
const size_t kColours = 31, kColour = 128;

std::vector<char *> free_stacks, all_stacks;

char *take_stack()
{
    if (free_stacks.empty()) {
        void *p = mmap(nullptr, kGuard + kFiberStack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED)
            die("no memory for the stack of a thread");
        char *stack = static_cast<char *>(p) + kGuard;
        if (mprotect(stack, kFiberStack, PROT_READ | PROT_WRITE) != 0)
            die("no memory for the stack of a thread");
        all_stacks.push_back(stack);
        free_stacks.push_back(stack);
    }
    char *stack = free_stacks.back();
    free_stacks.pop_back();
    return stack;
}

size_t colour_of(const char *stack)
{
    return reinterpret_cast<uintptr_t>(stack) / (kGuard + kFiberStack) % kColours * kColour;
}

#ifdef FAKECUDA_ASAN
// The bounds of the stack that the process came with, known after the first switch away from it.
const void *main_bottom;
size_t main_size;
bool left_main;

void announce(void **fake, const Fiber *to)
{
    __sanitizer_start_switch_fiber(fake, to->stack ? to->stack : main_bottom, to->stack ? kFiberStack : main_size);
}

void arrive(void *fake)
{
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(fake, &bottom, &size);
    if (!left_main) {
        left_main = true;
        main_bottom = bottom;
        main_size = size;
    }
}
#else
void announce(void **, const Fiber *) {}
void arrive(void *) {}
#endif

} // namespace

void fiber_prepare(Fiber *fiber, void (*entry)())
{
    fiber->stack = take_stack();
    fiber->fake = nullptr;
    void **top = reinterpret_cast<void **>(fiber->stack + kFiberStack - colour_of(fiber->stack) - 64);
    *--top = nullptr; // where `entry` would return to; the stack is aligned as after a call
    *--top = reinterpret_cast<void *>(entry);
    for (int i = 0; i < kSavedRegisters; i++)
        *--top = nullptr;
    fiber->pointer = top;
}

void fiber_started()
{
    arrive(nullptr);
}

#ifdef FAKECUDA_ASAN
void fiber_switch(Fiber *from, const Fiber *to)
{
    announce(&from->fake, to);
    fakecuda_switch(&from->pointer, to->pointer);
    arrive(from->fake);
}
#endif

void fiber_end(Fiber *from, const Fiber *to)
{
    // Whoever takes the stack from the list does so after this switch.
    free_stacks.push_back(from->stack);
    from->stack = nullptr;
    announce(nullptr, to);
    void *nowhere;
    fakecuda_switch(&nowhere, to->pointer);
    abort();
}

bool fiber_guards(const void *at)
{
    const char *c = static_cast<const char *>(at);
    for (const char *stack : all_stacks)
        if (c >= stack - kGuard && c < stack)
            return true;
    return false;
}

} // namespace fakecuda
