// tests/fakecuda/race.h: what the emulation tells the race detector (race.cpp). Without PLAIT_FAKECUDA=RACE: nothing.
#ifndef PLAIT_TESTS_FAKECUDA_RACE_H
#define PLAIT_TESTS_FAKECUDA_RACE_H

#include <cstddef>
#include <cstdint>

#include "tests/fakecuda/streams_impl.h"

namespace fakecuda
{
namespace race
{

enum class Kind : uint8_t { read, write, atomic };

#ifdef FAKECUDA_RACE
// An operation of a stream runs, or goes on.
void operation(const TicketRef &ticket);
// A kernel begins; all of its threads read its arguments.
void begin_kernel(const void *arguments, size_t size);
// A block begins; its shared memory is new.
void begin_block(const char *fixed, size_t fixed_size, const char *dynamic, size_t dynamic_size);
// All threads of the block have come together; the lanes of a warp have (in __syncwarp).
void barrier();
void sync_warp(int warp, unsigned mask);
// The running thread, or the running operation, touches bytes. `code`: the address of the code that does.
void access(const void *bytes, size_t size, Kind kind, uintptr_t code);
// The same by code that also touches memory of the emulation: says nothing of memory that is not the device's.
void access_if_watched(const void *bytes, size_t size, Kind kind, uintptr_t code);
// The running thread has begun to write them, and anybody who touches them before `land_copy` is wrong.
void begin_copy(const void *bytes, size_t size);
void land_copy(const void *bytes, size_t size);

// While one lives, the emulation itself moves the bytes of a kernel.
class Pause
{
  public:
    Pause();
    ~Pause();
    Pause(const Pause &) = delete;
    Pause &operator=(const Pause &) = delete;
};
#else
inline void operation(const TicketRef &) {}
inline void begin_kernel(const void *, size_t) {}
inline void begin_block(const char *, size_t, const char *, size_t) {}
inline void barrier() {}
inline void sync_warp(int, unsigned) {}
inline void access(const void *, size_t, Kind, uintptr_t) {}
inline void begin_copy(const void *, size_t) {}
inline void land_copy(const void *, size_t) {}
class Pause
{
  public:
    Pause() {}
    ~Pause() {}
};
#endif

} // namespace race
} // namespace fakecuda
#endif
