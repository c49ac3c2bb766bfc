// A sentence for each access that memory protection stops, and the check of red zones at the end of the process.
#include "tests/fakecuda/block.h"
#include "tests/fakecuda/fiber.h"
#include "tests/fakecuda/memory.h"
#include "tests/fakecuda/report.h"
#include "tests/fakecuda/streams.h"

#include <csignal>
#include <cstdlib>
#include <ucontext.h>

namespace fakecuda
{

namespace
{

// Never freed, so that a signal in the last moments of the process still has a stack.
const size_t kSignalStack = 256 * 1024;

void explain(const void *at)
{
    if (current && fiber_guards(at))
        die("the stack of a thread (%zu KB) is used up: too many local variables", kFiberStack / 1024);
    if (device_memory().contains(at)) {
        const Allocation *a = device_memory().find(at);
        if (a && !a->live)
            die("access to freed memory: %s", describe(at).c_str());
        if (current || !running_operation().empty())
            die("access out of bounds: %s", describe(at).c_str());
        die("the host touches device memory: %s", describe(at).c_str());
    }
    if (pinned_memory().contains(at))
        die("access to pinned memory that is freed or was never allocated: %s", describe(at).c_str());
    if (current)
        die("access to %p, which is no device memory", at);
}

// A check of -fsanitize=alignment has failed, or the processor refused an aligned move of 16 bytes, which is how a copy
// of a vector is compiled.
void explain_trap(uintptr_t code)
{
    if (!current)
        return;
    const std::string line = source_line(code);
    die("access to an address that is not a multiple of its type's alignment, or __trap%s%s",
        line.empty() ? "" : ", at ", line.c_str());
}

void on_signal(int number, siginfo_t *info, void *context)
{
    const auto *registers = static_cast<ucontext_t *>(context)->uc_mcontext.gregs;
    if (number == SIGILL || info->si_code == SI_KERNEL)
        explain_trap(static_cast<uintptr_t>(registers[REG_RIP]) + 1);
    else
        explain(info->si_addr);
    // Not ours: as if nobody had looked.
    signal(number, SIG_DFL);
    raise(number);
}

void check_at_exit()
{
    if (current)
        return;
    DeviceAccess access;
    device_memory().check_red_zones();
    pinned_memory().check_red_zones();
}

} // namespace

void watch_accesses()
{
    static bool watching;
    if (watching)
        return;
    watching = true;
    stack_t stack = {};
    stack.ss_sp = malloc(kSignalStack);
    stack.ss_size = kSignalStack;
    sigaltstack(&stack, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
    sigaction(SIGILL, &action, nullptr);
    atexit(check_at_exit);
}

} // namespace fakecuda
