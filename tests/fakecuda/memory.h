// tests/fakecuda/memory.h: the memory of the device, and pinned memory of the host.
//
// Each is one range of addresses; every allocation has pages of its own, with red zones around its bytes and a page
// that nobody may touch behind. Addresses are not used twice: what is freed stays forbidden. Device memory can be
// touched only while an operation runs (DeviceAccess): the host that follows a pointer to it ends with a sentence
// (guard.cpp).
#ifndef PLAIT_TESTS_FAKECUDA_MEMORY_H
#define PLAIT_TESTS_FAKECUDA_MEMORY_H

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace fakecuda
{

struct Allocation {
    char *begin;
    size_t size;
    long number; // of its arena, from 1
    char *pages; // from the page of the first red zone
    size_t pages_size;
    bool live;
};

// Addresses of an arena, for those who ask at every access.
struct Addresses {
    const char *from = nullptr, *to = nullptr;
    bool contain(const char *p) const { return p >= from && p < to; }
};
extern Addresses device_addresses, pinned_addresses;

class Arena
{
  public:
    Arena(const char *name, Addresses *addresses) : name(name), addresses(addresses) {}
    void *allocate(size_t size);
    // Dies when `p` is not the start of a live allocation, or when its red zones were written.
    void release(void *p);
    void check_red_zones();
    bool contains(const void *p) const
    {
        const char *c = static_cast<const char *>(p);
        return c >= base && c < base + reserved;
    }
    // The last allocation, live or freed, that begins before `p` (red zone included); NULL when there is none.
    const Allocation *find(const void *p) const;
    // Pages of live allocations: no access, or all.
    void protect(int protection);
    const char *start() const { return base; }
    size_t size() const { return reserved; }

    const char *const name;
    size_t allocated = 0, high_water = 0;
    long allocations = 0;

  private:
    void reserve();

    Addresses *const addresses;
    char *base = nullptr;
    size_t reserved = 0, used = 0;
    bool closed = false;                              // protection of what is live
    std::map<const char *, Allocation> living, freed; // by their pages
};

Arena &device_memory();
Arena &pinned_memory();

// "0x7f..., byte 400 of device allocation 3 (400 bytes): past its end by 1", for sentences.
std::string describe(const void *p);

// While one of these lives, device memory may be touched.
class DeviceAccess
{
  public:
    DeviceAccess();
    ~DeviceAccess();
    DeviceAccess(const DeviceAccess &) = delete;
    DeviceAccess &operator=(const DeviceAccess &) = delete;
};
// And while one of these lives it may not, although an operation runs: functions of the host in streams.
class HostAccess
{
  public:
    HostAccess();
    ~HostAccess();
    HostAccess(const HostAccess &) = delete;
    HostAccess &operator=(const HostAccess &) = delete;
};

// Makes a wrong access say a sentence (guard.cpp). Before the first thread of a kernel runs.
void watch_accesses();

} // namespace fakecuda
#endif
