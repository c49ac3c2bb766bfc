// The arenas: allocation, red zones, and who may touch what.
#include "tests/fakecuda/memory.h"
#include "tests/fakecuda/fakecuda.h"
#include "tests/fakecuda/report.h"
#include "tests/fakecuda/settings.h"
#include "tests/fakecuda/streams.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <sys/mman.h>

namespace fakecuda
{

namespace
{

const size_t kPage = 4096, kHugePage = static_cast<size_t>(2) << 20;
// The alignment that cudaMalloc promises, and no more.
const size_t kRedZone = 256;
// Addresses are never used twice, and cost nothing.
const size_t kReserve = static_cast<size_t>(256) << 30;

// NaN as fp32, bf16 and fp16, but not the pattern of bytes that nobody has written.
const uint16_t kRedPattern = 0xffa5;
const unsigned char kUnwritten = 0xff;

size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

unsigned char red_byte(const char *p)
{
    return reinterpret_cast<uintptr_t>(p) & 1 ? kRedPattern >> 8 : kRedPattern & 0xff;
}

void paint(char *from, const char *to)
{
    for (; from < to; from++)
        *from = static_cast<char>(red_byte(from));
}

// The first byte that was written, or `to`.
const char *first_changed(const char *from, const char *to)
{
    while (from < to && static_cast<unsigned char>(*from) == red_byte(from))
        from++;
    return from;
}

// Behind the bytes the red zone is as long as the one in front; what is left of the page is watched at the end only.
const char *end_of_red_zone(const Allocation &a)
{
    return a.begin + a.size + kRedZone;
}

void check_one(const Arena &arena, const Allocation &a)
{
    const char *before = first_changed(a.begin - kRedZone, a.begin);
    if (before < a.begin)
        die("%s allocation %ld (%zu bytes) was written %zd bytes in front of its start", arena.name, a.number, a.size,
            a.begin - before);
    const char *behind = first_changed(a.begin + a.size, end_of_red_zone(a));
    if (behind < end_of_red_zone(a))
        die("%s allocation %ld (%zu bytes) was written behind its end, at byte %zd", arena.name, a.number, a.size,
            behind - a.begin);
}

int open_depth;
long times_closed;

} // namespace

Addresses device_addresses, pinned_addresses;

Arena &device_memory()
{
    static Arena *arena = new Arena("device", &device_addresses);
    return *arena;
}

Arena &pinned_memory()
{
    static Arena *arena = new Arena("pinned", &pinned_addresses);
    return *arena;
}

void Arena::reserve()
{
    void *p = MAP_FAILED;
    for (reserved = kReserve; reserved > kHugePage; reserved /= 2) {
        p = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p != MAP_FAILED)
            break;
    }
    if (p == MAP_FAILED)
        die("no addresses for %s memory", name);
    base = static_cast<char *>(p);
    *addresses = {base, base + reserved};
    closed = this == &device_memory() && open_depth == 0;
    watch_accesses();
}

void *Arena::allocate(size_t size)
{
    if (!base)
        reserve();
    if (this == &device_memory() && size > settings().memory - std::min(settings().memory, allocated))
        return nullptr;
    // Large ones start where a huge page can: their pages are opened and closed all the time.
    if (size >= kHugePage)
        used = round_up(reinterpret_cast<uintptr_t>(base) + used, kHugePage) - reinterpret_cast<uintptr_t>(base);
    const size_t pages = round_up(kRedZone + size + kRedZone, kPage);
    if (used + pages + kPage > reserved)
        die("all %zu GB of addresses for %s memory have been used once", reserved >> 30, name);
    Allocation a = {base + used + kRedZone, size, ++allocations, base + used, pages, true};
    used += pages + kPage;
    if (mprotect(a.pages, a.pages_size, PROT_READ | PROT_WRITE) != 0)
        return nullptr;
    if (size >= kHugePage)
        madvise(a.pages, a.pages_size, MADV_HUGEPAGE);
    paint(a.begin - kRedZone, a.begin);
    memset(a.begin, kUnwritten, size);
    paint(a.begin + size, end_of_red_zone(a));
    if (closed)
        mprotect(a.pages, a.pages_size, PROT_NONE);
    living.emplace(a.pages, a);
    allocated += size;
    high_water = std::max(high_water, allocated);
    return a.begin;
}

void Arena::release(void *p)
{
    const char *pages = static_cast<char *>(p) - kRedZone;
    if (freed.count(pages))
        die("freed twice: %s", describe(p).c_str());
    const auto it = living.find(pages);
    if (it == living.end())
        die("freed as %s memory, but never allocated: %s", name, describe(p).c_str());
    Allocation a = it->second;
    {
        DeviceAccess access;
        check_one(*this, a);
    }
    living.erase(it);
    a.live = false;
    freed.emplace(a.pages, a);
    mprotect(a.pages, a.pages_size, PROT_NONE);
    madvise(a.pages, a.pages_size, MADV_DONTNEED);
    allocated -= a.size;
}

void Arena::check_red_zones()
{
    for (const auto &entry : living)
        check_one(*this, entry.second);
}

const Allocation *Arena::find(const void *p) const
{
    const Allocation *last = nullptr;
    for (const auto *some : {&living, &freed}) {
        const auto it = some->upper_bound(static_cast<const char *>(p));
        if (it == some->begin())
            continue;
        const Allocation &a = std::prev(it)->second;
        if (!last || a.pages > last->pages)
            last = &a;
    }
    return last;
}

void Arena::protect(int protection)
{
    if (closed == (protection == PROT_NONE))
        return;
    closed = protection == PROT_NONE;
    for (const auto &entry : living)
        mprotect(entry.second.pages, entry.second.pages_size, protection);
}

std::string describe(const void *p)
{
    for (const Arena *arena : {&device_memory(), &pinned_memory()}) {
        if (!arena->contains(p))
            continue;
        const Allocation *a = arena->find(p);
        if (!a)
            return format("%p, an address of %s memory where nothing was allocated", p, arena->name);
        const ptrdiff_t at = static_cast<const char *>(p) - a->begin;
        std::string text = format("%p, byte %td of %s allocation %ld (%zu bytes%s)", p, at, arena->name, a->number,
                                  a->size, a->live ? "" : ", freed");
        if (at < 0 || static_cast<size_t>(at) >= a->size)
            text += ", outside of it";
        return text;
    }
    return format("%p, no address of the device", p);
}

DeviceAccess::DeviceAccess()
{
    if (open_depth++ == 0)
        device_memory().protect(PROT_READ | PROT_WRITE);
}

DeviceAccess::~DeviceAccess()
{
    if (--open_depth == 0 && ++times_closed % settings().guard == 0)
        device_memory().protect(PROT_NONE);
}

HostAccess::HostAccess()
{
    device_memory().protect(PROT_NONE);
}

HostAccess::~HostAccess()
{
    device_memory().protect(PROT_READ | PROT_WRITE);
}

bool is_device(const void *p)
{
    return device_addresses.contain(static_cast<const char *>(p));
}

bool is_pinned(const void *p)
{
    const Allocation *a = pinned_memory().contains(p) ? pinned_memory().find(p) : nullptr;
    return a && a->live && p < a->pages + a->pages_size;
}

} // namespace fakecuda

size_t fakecuda_allocated(void)
{
    return fakecuda::device_memory().allocated;
}

size_t fakecuda_high_water(void)
{
    return fakecuda::device_memory().high_water;
}

long fakecuda_allocations(void)
{
    return fakecuda::device_memory().allocations;
}
