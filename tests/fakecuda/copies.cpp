// cp.async: copies from global to shared memory that land later.
//
// Until a copy is waited for, its bytes may be old or new. Here they are NaN, so that a reader who comes too early, or
// one who still needed the old ones, shows; at random a copy lands at once.
#include "tests/fakecuda/copies.h"
#include "tests/fakecuda/block.h"
#include "tests/fakecuda/race.h"
#include "tests/fakecuda/settings.h"
#include "tests/fakecuda/streams.h"

#include <cstdint>
#include <cstring>

namespace fakecuda
{

namespace
{

const size_t kBytes = 16;

void land(const PendingCopy &copy)
{
    race::access(copy.from, static_cast<size_t>(copy.valid), race::Kind::read, 0);
    race::land_copy(copy.to, kBytes);
    race::Pause pause;
    const size_t valid = static_cast<size_t>(copy.valid);
    memcpy(copy.to, copy.from, valid);
    memset(static_cast<char *>(copy.to) + valid, 0, kBytes - valid);
}

bool lands_at_once()
{
    return settings().threads == Order::random && thread_random().below(4) == 0;
}

} // namespace

void begin_copy(void *shared, const void *global, int valid, Place place)
{
    BlockThread *me = running();
    me->place = place;
    // Nothing is read from an address without valid bytes.
    const uintptr_t addresses =
        reinterpret_cast<uintptr_t>(shared) | (valid > 0 ? reinterpret_cast<uintptr_t>(global) : 0);
    if (addresses % kBytes != 0)
        die("cp.async at %s: an address is not a multiple of 16: to %p, from %p", text_of(place).c_str(), shared,
            global);
    if (valid < 0 || valid > static_cast<int>(kBytes))
        die("cp.async at %s of %d bytes: 0 to 16 can be copied", text_of(place).c_str(), valid);
    if (is_device(shared))
        die("cp.async at %s: %p is not in shared memory", text_of(place).c_str(), shared);
    race::begin_copy(shared, kBytes);
    race::Pause pause;
    const PendingCopy copy = {shared, global, valid, me->copy_group};
    memset(shared, 0xff, kBytes);
    if (lands_at_once())
        memcpy(shared, global, static_cast<size_t>(valid));
    me->copies.push_back(copy);
}

void commit_copies()
{
    running()->copy_group++;
}

void wait_for_copies(int newest, Place place)
{
    BlockThread *me = running();
    me->place = place;
    size_t left = 0;
    for (const PendingCopy &copy : me->copies) {
        if (copy.group < me->copy_group - newest)
            land(copy);
        else
            me->copies[left++] = copy;
    }
    me->copies.resize(left);
}

} // namespace fakecuda
