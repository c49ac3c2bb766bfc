// What the race build hears of atomic operations.
#include "tests/fakecuda/device/fakecuda_atomics.h"
#include "tests/fakecuda/race.h"

namespace fakecuda
{

void touch_atomic(void *bytes, size_t size)
{
    race::access(bytes, size, race::Kind::atomic, reinterpret_cast<uintptr_t>(__builtin_return_address(0)));
}

} // namespace fakecuda
