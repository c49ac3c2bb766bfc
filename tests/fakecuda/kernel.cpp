// Launches: what a device refuses, and the blocks of a grid one after the other.
#include "tests/fakecuda/kernel.h"
#include "tests/fakecuda/block.h"
#include "tests/fakecuda/device/fakecuda_launch.h"
#include "tests/fakecuda/fakecuda.h"
#include "tests/fakecuda/memory.h"
#include "tests/fakecuda/race.h"
#include "tests/fakecuda/report.h"
#include "tests/fakecuda/runtime.h"
#include "tests/fakecuda/settings.h"
#include "tests/fakecuda/streams.h"

#include <cstdlib>
#include <cstring>
#include <map>

// The section of all __shared__ variables of the program (fakecuda_device.h).
extern "C" char __start_fakecuda_shared[] __attribute__((weak)), __stop_fakecuda_shared[] __attribute__((weak));

namespace fakecuda
{

namespace
{

// A parameter block of compute capability 7.0 and later.
const size_t kMostArguments = 32764;

long kernels_run, threads_run;
std::map<const void *, size_t> shared_allowed;

// Aligned to 128 bytes and no more, and what lies behind is watched.
struct DynamicShared {
    char *bytes;
    size_t size;
};
const size_t kRedZone = 1024, kSharedAlignment = 128;
DynamicShared dynamic;

size_t fixed_size()
{
    return __start_fakecuda_shared ? static_cast<size_t>(__stop_fakecuda_shared - __start_fakecuda_shared) : 0;
}

void set_up_dynamic(size_t size)
{
    static char *buffer = static_cast<char *>(aligned_alloc(2 * kSharedAlignment, kSharedOptIn + 2 * kRedZone));
    dynamic = {buffer + kSharedAlignment, size};
    memset(dynamic.bytes + size, 0xa5, kRedZone);
}

void check_dynamic(const char *name)
{
    for (size_t i = 0; i < kRedZone; i++)
        if (static_cast<unsigned char>(dynamic.bytes[dynamic.size + i]) != 0xa5)
            die("kernel %s was launched with %zu bytes of dynamic shared memory and has written byte %zu", name,
                dynamic.size, dynamic.size + i);
}

// Uninitialised shared memory is NaN, in each block again.
void clear_shared()
{
    if (fixed_size())
        memset(__start_fakecuda_shared, 0xff, fixed_size());
    memset(dynamic.bytes, 0xff, dynamic.size);
}

uint3 nth_block(size_t n)
{
    const size_t x = grid_size.x, y = grid_size.y;
    return {static_cast<unsigned>(n % x), static_cast<unsigned>(n / x % y), static_cast<unsigned>(n / (x * y))};
}

// At random the blocks come in a rotated order, every second time backward.
size_t place_of(size_t i, size_t blocks, size_t offset, bool backward)
{
    const size_t n = (i + offset) % blocks;
    return backward ? blocks - 1 - n : n;
}

void run_grid(const Launch &l)
{
    grid_size = l.grid;
    block_size = l.block;
    set_up_dynamic(l.shared);
    race::begin_kernel(l.arguments.get(), l.size + sizeof l.run);
    const size_t blocks = static_cast<size_t>(l.grid.x) * l.grid.y * l.grid.z;
    const bool random = settings().threads == Order::random;
    const size_t offset = random ? thread_random().below(blocks) : 0;
    const bool backward = random ? thread_random().below(2) : settings().threads == Order::reverse;
    for (size_t i = 0; i < blocks; i++) {
        clear_shared();
        race::begin_block(__start_fakecuda_shared, fixed_size(), dynamic.bytes, dynamic.size);
        run_block(nth_block(place_of(i, blocks, offset, backward)), l);
    }
    check_dynamic(l.name.c_str());
    device_memory().check_red_zones();
    kernels_run++;
    threads_run += static_cast<long>(blocks * l.block.x * l.block.y * l.block.z);
}

bool fits_device(const Launch &l)
{
    const size_t threads = static_cast<size_t>(l.block.x) * l.block.y * l.block.z;
    return threads > 0 && threads <= static_cast<size_t>(kMaxThreads) && l.block.x <= 1024 && l.block.y <= 1024 &&
           l.block.z <= 64 && l.grid.x > 0 && l.grid.y > 0 && l.grid.z > 0 && l.grid.x <= 0x7fffffff &&
           l.grid.y <= 65535 && l.grid.z <= 65535;
}

} // namespace

void *dynamic_shared()
{
    return dynamic.bytes;
}

bool allow_shared(const void *function, size_t bytes)
{
    if (bytes > kSharedOptIn)
        return false;
    shared_allowed[function] = bytes;
    return true;
}

size_t allowed_shared(const void *function)
{
    const auto it = shared_allowed.find(function);
    return it == shared_allowed.end() || it->second < kSharedDefault ? kSharedDefault : it->second;
}

void check_argument(const char *kernel, int number, const void *pointer)
{
    if (pointer && !is_device(pointer) && !is_pinned(pointer))
        die("argument %d of kernel %s points to the host: %p", number, kernel, pointer);
}

void launch(Launch l)
{
    watch_accesses();
    api_call();
    if (fails(l.name.c_str()))
        set_error(cudaErrorLaunchFailure);
    else if (!fits_device(l))
        set_error(cudaErrorInvalidConfiguration);
    else if (l.shared > allowed_shared(l.function))
        set_error(cudaErrorInvalidValue);
    else if (l.size > kMostArguments)
        die("kernel %s: %zu bytes of arguments, %zu are possible", l.name.c_str(), l.size, kMostArguments);
    else
        enqueue(l.stream, l.name, [l] {
            run_grid(l);
            return true;
        });
}

} // namespace fakecuda

long fakecuda_kernels(void)
{
    return fakecuda::kernels_run;
}

long fakecuda_threads(void)
{
    return fakecuda::threads_run;
}
