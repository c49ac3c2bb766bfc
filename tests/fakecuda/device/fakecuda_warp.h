// tests/fakecuda/device/fakecuda_warp.h: barriers, shuffles, votes.
#ifndef PLAIT_TESTS_FAKECUDA_DEVICE_FAKECUDA_WARP_H
#define PLAIT_TESTS_FAKECUDA_DEVICE_FAKECUDA_WARP_H

#include <cstdint>
#include <cstring>

#include "tests/fakecuda/device/fakecuda_thread.h"

static constexpr int warpSize = 32;

inline void __syncthreads(fakecuda::Place place = fakecuda::Place::here())
{
    fakecuda::meet_block(fakecuda::Barrier::plain, 0, place);
}
inline int __syncthreads_or(int predicate, fakecuda::Place place = fakecuda::Place::here())
{
    return fakecuda::meet_block(fakecuda::Barrier::any, predicate, place);
}
inline int __syncthreads_and(int predicate, fakecuda::Place place = fakecuda::Place::here())
{
    return fakecuda::meet_block(fakecuda::Barrier::all, predicate, place);
}
inline int __syncthreads_count(int predicate, fakecuda::Place place = fakecuda::Place::here())
{
    return fakecuda::meet_block(fakecuda::Barrier::count, predicate, place);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, fakecuda::Place place = fakecuda::Place::here())
{
    fakecuda::meet_warp(fakecuda::WarpOperation::sync, mask, nullptr, 0, nullptr, place);
}

namespace fakecuda
{

template <class T> T shuffle(unsigned mask, T value, int from, Place place)
{
    static_assert(sizeof(T) <= 8, "shuffles are of at most 8 bytes");
    uint64_t in = 0, out = 0;
    memcpy(&in, &value, sizeof value);
    meet_warp(WarpOperation::shuffle, mask, &in, static_cast<unsigned>(from), &out, place);
    T result;
    memcpy(&result, &out, sizeof result);
    return result;
}

inline uint64_t vote(WarpOperation operation, unsigned mask, uint64_t value, unsigned argument, Place place)
{
    uint64_t out = 0;
    meet_warp(operation, mask, &value, argument, &out, place);
    return out;
}

// The first lane of the part of `width` lanes that this lane is in.
inline int part_of(int width)
{
    return current->lane & ~(width - 1);
}

} // namespace fakecuda

// A lane that would read beyond its part of the warp reads itself.
template <class T>
inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32, fakecuda::Place place = fakecuda::Place::here())
{
    return fakecuda::shuffle(mask, value, fakecuda::part_of(width) | (lane & (width - 1)), place);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                         fakecuda::Place place = fakecuda::Place::here())
{
    const int from = fakecuda::current->lane ^ lane_mask;
    const bool beyond = from >= fakecuda::part_of(width) + width;
    return fakecuda::shuffle(mask, value, beyond ? fakecuda::current->lane : from, place);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                          fakecuda::Place place = fakecuda::Place::here())
{
    const int from = fakecuda::current->lane + static_cast<int>(delta);
    const bool beyond = from >= fakecuda::part_of(width) + width;
    return fakecuda::shuffle(mask, value, beyond ? fakecuda::current->lane : from, place);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                        fakecuda::Place place = fakecuda::Place::here())
{
    const int from = fakecuda::current->lane - static_cast<int>(delta);
    const bool beyond = from < fakecuda::part_of(width);
    return fakecuda::shuffle(mask, value, beyond ? fakecuda::current->lane : from, place);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, fakecuda::Place place = fakecuda::Place::here())
{
    return static_cast<unsigned>(fakecuda::vote(fakecuda::WarpOperation::ballot, mask, predicate != 0, 0, place));
}
inline int __any_sync(unsigned mask, int predicate, fakecuda::Place place = fakecuda::Place::here())
{
    return __ballot_sync(mask, predicate, place) != 0;
}
inline int __all_sync(unsigned mask, int predicate, fakecuda::Place place = fakecuda::Place::here())
{
    return __ballot_sync(mask, !predicate, place) == 0;
}
template <class T>
inline unsigned __match_any_sync(unsigned mask, T value, fakecuda::Place place = fakecuda::Place::here())
{
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return static_cast<unsigned>(fakecuda::vote(fakecuda::WarpOperation::match, mask, bits, 0, place));
}
template <class T> inline T __reduce_add_sync(unsigned mask, T value, fakecuda::Place place = fakecuda::Place::here())
{
    return static_cast<T>(fakecuda::vote(fakecuda::WarpOperation::reduce_add, mask, static_cast<unsigned>(value),
                                         static_cast<T>(-1) < static_cast<T>(0), place));
}
template <class T> inline T __reduce_min_sync(unsigned mask, T value, fakecuda::Place place = fakecuda::Place::here())
{
    return static_cast<T>(fakecuda::vote(fakecuda::WarpOperation::reduce_min, mask, static_cast<unsigned>(value),
                                         static_cast<T>(-1) < static_cast<T>(0), place));
}
template <class T> inline T __reduce_max_sync(unsigned mask, T value, fakecuda::Place place = fakecuda::Place::here())
{
    return static_cast<T>(fakecuda::vote(fakecuda::WarpOperation::reduce_max, mask, static_cast<unsigned>(value),
                                         static_cast<T>(-1) < static_cast<T>(0), place));
}

#endif
