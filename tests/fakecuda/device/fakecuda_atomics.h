// tests/fakecuda/device/fakecuda_atomics.h: atomic operations, fences, and loads and stores with a hint for the caches.
//
// Threads take turns only where they wait, so plain code is atomic; the race build is told of it.
#ifndef PLAIT_TESTS_FAKECUDA_DEVICE_FAKECUDA_ATOMICS_H
#define PLAIT_TESTS_FAKECUDA_DEVICE_FAKECUDA_ATOMICS_H

#include <cstddef>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace fakecuda
{

// For the race build: these bytes are touched by an atomic operation of the running thread.
void touch_atomic(void *bytes, size_t size);

// Not watched itself: an atomic operation races with plain ones, not with others.
template <class T, class F> __attribute__((no_sanitize("thread"), noinline)) T exchange(T *at, F &&next)
{
    touch_atomic(at, sizeof *at);
    const T old = *at;
    *at = next(old);
    return old;
}

} // namespace fakecuda

#define FAKECUDA_ATOMIC(name, T, expression)                                                                           \
    inline T name(T *at, T value)                                                                                      \
    {                                                                                                                  \
        return fakecuda::exchange(                                                                                     \
            at, [&](T old) __attribute__((no_sanitize("thread"))) { return static_cast<T>(expression); });             \
    }
#define FAKECUDA_ATOMIC_NUMBERS(T)                                                                                     \
    FAKECUDA_ATOMIC(atomicAdd, T, old + value)                                                                         \
    FAKECUDA_ATOMIC(atomicExch, T, (static_cast<void>(old), value))
#define FAKECUDA_ATOMIC_INTEGERS(T)                                                                                    \
    FAKECUDA_ATOMIC_NUMBERS(T)                                                                                         \
    FAKECUDA_ATOMIC(atomicMin, T, value < old ? value : old)                                                           \
    FAKECUDA_ATOMIC(atomicMax, T, value > old ? value : old)                                                           \
    FAKECUDA_ATOMIC(atomicAnd, T, old &value)                                                                          \
    FAKECUDA_ATOMIC(atomicOr, T, old | value)                                                                          \
    FAKECUDA_ATOMIC(atomicXor, T, old ^ value)                                                                         \
    inline T atomicCAS(T *at, T compare, T value)                                                                      \
    {                                                                                                                  \
        return fakecuda::exchange(                                                                                     \
            at, [&](T old) __attribute__((no_sanitize("thread"))) { return old == compare ? value : old; });           \
    }

// The types that CUDA has each operation for.
FAKECUDA_ATOMIC_INTEGERS(int)
FAKECUDA_ATOMIC_INTEGERS(unsigned)
FAKECUDA_ATOMIC_INTEGERS(unsigned long long)
FAKECUDA_ATOMIC(atomicMin, long long, value < old ? value : old)
FAKECUDA_ATOMIC(atomicMax, long long, value > old ? value : old)
FAKECUDA_ATOMIC_NUMBERS(float)
FAKECUDA_ATOMIC(atomicAdd, double, old + value)
FAKECUDA_ATOMIC(atomicSub, int, old - value)
FAKECUDA_ATOMIC(atomicSub, unsigned, old - value)
inline unsigned atomicInc(unsigned *at, unsigned limit)
{
    return fakecuda::exchange(
        at, [&](unsigned old) __attribute__((no_sanitize("thread"))) { return old >= limit ? 0 : old + 1; });
}
#undef FAKECUDA_ATOMIC
#undef FAKECUDA_ATOMIC_NUMBERS
#undef FAKECUDA_ATOMIC_INTEGERS

// Memory is in order here: what a missing fence does cannot be shown.
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

template <class T> inline T __ldg(const T *at)
{
    return *at;
}
template <class T> inline T __ldcs(const T *at)
{
    return *at;
}
template <class T> inline T __ldca(const T *at)
{
    return *at;
}
template <class T> inline T __ldcg(const T *at)
{
    return *at;
}
template <class T> inline void __stcs(T *at, T value)
{
    *at = value;
}
template <class T> inline void __stcg(T *at, T value)
{
    *at = value;
}
template <class T> inline void __stwt(T *at, T value)
{
    *at = value;
}

#endif
