// What code compiled with -fsanitize=thread calls, in the place of its library; and the functions that copies of
// structs become, which the program calls through here (-Wl,--wrap).
#include "tests/fakecuda/block.h"
#include "tests/fakecuda/race.h"

using fakecuda::current;
using fakecuda::race::Kind;

extern "C" {

// In front of a kernel's code there is no other that the hooks could name: the address they return to is that of the
// access.
#define FAKECUDA_HOOK(name, size, kind)                                                                                \
    void name(void *p)                                                                                                 \
    {                                                                                                                  \
        if (current)                                                                                                   \
            fakecuda::race::access(p, size, kind, reinterpret_cast<uintptr_t>(__builtin_return_address(0)));           \
    }
#define FAKECUDA_HOOKS(size)                                                                                           \
    FAKECUDA_HOOK(__tsan_read##size, size, Kind::read)                                                                 \
    FAKECUDA_HOOK(__tsan_write##size, size, Kind::write)                                                               \
    FAKECUDA_HOOK(__tsan_unaligned_read##size, size, Kind::read)                                                       \
    FAKECUDA_HOOK(__tsan_unaligned_write##size, size, Kind::write)                                                     \
    FAKECUDA_HOOK(__tsan_volatile_read##size, size, Kind::read)                                                        \
    FAKECUDA_HOOK(__tsan_volatile_write##size, size, Kind::write)
FAKECUDA_HOOKS(1)
FAKECUDA_HOOKS(2)
FAKECUDA_HOOKS(4)
FAKECUDA_HOOKS(8)
FAKECUDA_HOOKS(16)

void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void *) {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}

void *__real_memcpy(void *to, const void *from, size_t size);
void *__wrap_memcpy(void *to, const void *from, size_t size)
{
    if (current) {
        const uintptr_t code = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
        fakecuda::race::access_if_watched(from, size, Kind::read, code);
        fakecuda::race::access_if_watched(to, size, Kind::write, code);
    }
    return __real_memcpy(to, from, size);
}

void *__real_memmove(void *to, const void *from, size_t size);
void *__wrap_memmove(void *to, const void *from, size_t size)
{
    if (current) {
        const uintptr_t code = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
        fakecuda::race::access_if_watched(from, size, Kind::read, code);
        fakecuda::race::access_if_watched(to, size, Kind::write, code);
    }
    return __real_memmove(to, from, size);
}

void *__real_memset(void *to, int value, size_t size);
void *__wrap_memset(void *to, int value, size_t size)
{
    if (current)
        fakecuda::race::access_if_watched(to, size, Kind::write,
                                          reinterpret_cast<uintptr_t>(__builtin_return_address(0)));
    return __real_memset(to, value, size);
}

} // extern "C"
