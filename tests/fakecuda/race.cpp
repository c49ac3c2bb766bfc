// An exact detector of races: two accesses of the same bytes, one of them a write, that neither streams and events nor
// barriers order, in whatever order they happened to run.
//
// Kernels are compiled with -fsanitize=thread, which calls a function before each access (race_hooks.cpp). For every
// two bytes the last accesses are kept, and a new one is compared with them: of other operations by the clocks of
// streams, of other threads of the block by its barriers (race_clock.h); nothing orders two blocks of a kernel.
#include "tests/fakecuda/race.h"
#include "tests/fakecuda/block.h"
#include "tests/fakecuda/kernel.h"
#include "tests/fakecuda/memory.h"
#include "tests/fakecuda/race_cell.h"
#include "tests/fakecuda/race_clock.h"
#include "tests/fakecuda/report.h"

#include <algorithm>
#include <sys/mman.h>
#include <vector>

extern "C" char __executable_start, _end;

namespace fakecuda
{
namespace race
{

namespace
{

// ---- who runs ----

std::vector<TicketRef> operations(1); // by number
std::vector<uint32_t> runs(1);        // number of the operation
uint32_t operation_now, run_now, since;
WarpClock clocks[kMaxWarps];
int paused;

uint32_t new_run()
{
    runs.push_back(operation_now);
    return static_cast<uint32_t>(runs.size() - 1);
}

// ---- where cells are ----

// Bytes from `base`, and the cells of every two of them.
struct Shadow {
    const char *base = nullptr;
    Cell *cells = nullptr;
};
Shadow of_device, of_pinned;

struct SharedMemory {
    const char *base = nullptr;
    size_t size = 0;
    std::vector<Cell> cells;
};
SharedMemory fixed, dynamic;

Addresses arguments; // of the kernel
Addresses found[4];  // allocations that were found last
unsigned next_found;
std::vector<std::vector<Record>> more(1);

void set_up(SharedMemory *m, const char *base, size_t size)
{
    m->base = base;
    m->size = size;
    m->cells.resize(size / 2 + 1, Cell{});
}

bool contains(const SharedMemory &m, const char *p)
{
    return p >= m.base && p < m.base + m.size;
}

Cell *cells_of(Shadow *s, const Arena &arena, const char *p)
{
    if (!s->cells) {
        s->base = arena.start();
        const size_t size = arena.size() / 2 * sizeof(Cell);
        void *cells = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (cells == MAP_FAILED)
            die("no addresses for the records of the race detector");
        s->cells = static_cast<Cell *>(cells);
    }
    return s->cells + (p - s->base) / 2;
}

void check_bounds(const Arena &arena, const char *p, size_t size)
{
    for (const Addresses &f : found)
        if (p >= f.from && p + size <= f.to)
            return;
    const Allocation *a = arena.find(p);
    if (!a || !a->live || p < a->begin || p + size > a->begin + a->size)
        die("access of %zu bytes out of bounds: %s", size, describe(p).c_str());
    found[next_found++ % 4] = {a->begin, a->begin + a->size};
}

enum class Place { nowhere, shared, global };

// The cells of `size` bytes at `p`. nowhere: memory that needs no watching, or must not be touched at all.
Place find(const char *p, size_t size, Cell **cells)
{
    if (device_addresses.contain(p)) {
        check_bounds(device_memory(), p, size);
        *cells = cells_of(&of_device, device_memory(), p);
        return Place::global;
    }
    for (SharedMemory *m : {&dynamic, &fixed})
        if (contains(*m, p)) {
            if (p + size > m->base + m->size)
                die("access of %zu bytes behind the %zu bytes of shared memory, at byte %td", size, m->size,
                    p - m->base);
            *cells = &m->cells[static_cast<size_t>(p - m->base) / 2];
            return Place::shared;
        }
    if (pinned_addresses.contain(p)) {
        check_bounds(pinned_memory(), p, size);
        *cells = cells_of(&of_pinned, pinned_memory(), p);
        return Place::global;
    }
    return Place::nowhere;
}

// A kernel may touch what was compiled into the program, such as tables.
void check_host(const char *p)
{
    if (p >= dynamic.base && p < dynamic.base + kSharedOptIn)
        die("access behind the %zu bytes of dynamic shared memory, at byte %zd", dynamic.size, p - dynamic.base);
    if (!(p >= &__executable_start && p < &_end))
        die("access to memory of the host at %p", static_cast<const void *>(p));
}

// ---- order ----

// What the running thread, or operation, would be recorded as.
Record mine(uintptr_t code)
{
    Record r = {};
    r.run = run_now;
    r.code = code ? static_cast<uint32_t>(code - reinterpret_cast<uintptr_t>(&__executable_start)) : 0;
    if (current) {
        const BlockThread *t = running();
        r.warp = static_cast<uint8_t>(t->warp);
        r.lanes = 1u << t->lane;
        r.since = since;
        r.when = clocks[t->warp].time(t->lane, since);
    }
    return r;
}

bool lanes_known(const Record &r, const Record &me)
{
    const int lane = __builtin_ctz(me.lanes);
    for (uint32_t left = r.lanes; left; left &= left - 1)
        if (!clocks[me.warp].knows(lane, __builtin_ctz(left), r.when, since))
            return false;
    return true;
}

bool ordered_in_run(const Record &r, const Record &me)
{
    if (!me.lanes || r.since < me.since)
        return true;
    return !r.many_warps && r.warp == me.warp && lanes_known(r, me);
}

// Whether `r` happened before what runs now, however the schedule.
bool ordered(const Record &r, const Record &me, Place place)
{
    if (r.run == me.run)
        return !r.many_runs && ordered_in_run(r, me);
    if (place == Place::shared)
        return true; // of a block before
    const uint32_t operation = runs[r.run];
    if (operation == operation_now)
        return false;
    const Ticket &then = *operations[operation];
    const Clock &seen = operations[operation_now]->seen;
    return then.stream_number < seen.size() && seen[then.stream_number] >= then.number;
}

// ---- sentences ----

std::string line_of(const Record &r)
{
    const uintptr_t code = r.code ? r.code + reinterpret_cast<uintptr_t>(&__executable_start) : 0;
    const std::string line = code ? source_line(code) : "";
    return line.empty() ? "" : " (" + line + ")";
}

const char *verb(const Record &r, bool past)
{
    if (r.is_copy)
        return past ? "began to copy to (cp.async) and has not waited for" : "begins to copy to (cp.async)";
    if (r.is_atomic)
        return past ? "changed atomically" : "changes atomically";
    if (r.is_read)
        return past ? "read" : "reads";
    return past ? "wrote" : "writes";
}

std::string threads_of(const Record &r)
{
    if (r.many_warps || r.many_runs)
        return "several threads";
    return format("thread %d of %s", r.warp * kLanes + __builtin_ctz(r.lanes),
                  r.run == run_now ? "this block" : "another block");
}

[[noreturn]] void report(const Record &r, const Record &me, const char *p, Place place)
{
    const std::string where = place == Place::global ? "at " + describe(p)
                              : contains(dynamic, p)
                                  ? format("at byte %td of the dynamic shared memory", p - dynamic.base)
                                  : format("in a __shared__ variable at %p", static_cast<const void *>(p));
    const uint32_t operation = runs[r.run];
    if (operation != operation_now) {
        const Ticket &then = *operations[operation], &now = *operations[operation_now];
        die("race %s: '%s' in stream %u %s%s, '%s' in stream %u %s%s: no event or synchronisation orders them",
            where.c_str(), then.name.c_str(), then.stream_number, verb(r, true), line_of(r).c_str(), now.name.c_str(),
            now.stream_number, verb(me, false), line_of(me).c_str());
    }
    die("race %s: %s %s it%s, this thread %s it%s: no barrier orders them", where.c_str(), threads_of(r).c_str(),
        verb(r, true), line_of(r).c_str(), verb(me, false), line_of(me).c_str());
}

// ---- the two bytes of a cell ----

bool conflict(const Record &r, const Record &me)
{
    return (r.bytes & me.bytes) && !(r.is_read && me.is_read) && !(r.is_atomic && me.is_atomic);
}

void compare(const Record &r, const Record &me, const char *p, Place place)
{
    if (r.run && conflict(r, me) && (r.is_copy || !ordered(r, me, place)))
        report(r, me, p, place);
}

// Two accesses of a kind become one record where that loses nothing.
bool join(Record *r, const Record &me)
{
    if (runs[r->run] != operation_now || r->bytes != me.bytes || r->is_copy || me.is_copy ||
        r->is_atomic != me.is_atomic)
        return false;
    if (r->run != me.run) {
        r->many_runs = 1;
    } else if (r->warp != me.warp) {
        r->many_warps = 1;
    } else {
        r->lanes |= me.lanes;
        r->when = std::max(r->when, me.when);
    }
    return true;
}

void keep(Cell *cell, const Record &r)
{
    if (!cell->more) {
        cell->more = static_cast<uint32_t>(more.size());
        more.emplace_back();
    }
    more[cell->more].push_back(r);
}

// Puts an access in the place of the last one of its kind.
void record(Cell *cell, Record *slot, const Record &me, Place place)
{
    const bool replaces = !slot->run || ((slot->bytes & ~me.bytes) == 0 && ordered(*slot, me, place));
    if (!replaces) {
        if (join(slot, me))
            return;
        keep(cell, *slot);
    }
    *slot = me;
}

void visit(Cell *cell, const Record &me, const char *p, Place place)
{
    compare(cell->write, me, p, place);
    if (me.is_read) {
        if (cell->more)
            for (const Record &r : more[cell->more])
                compare(r, me, p, place);
        record(cell, &cell->read, me, place);
        return;
    }
    compare(cell->read, me, p, place);
    if (cell->more)
        for (const Record &r : more[cell->more])
            compare(r, me, p, place);
    // All that was is ordered before a write of both bytes: who comes after it comes after them.
    if (me.bytes == kBothBytes && !me.is_atomic) {
        cell->read = Record{};
        if (cell->more)
            more[cell->more].clear();
        cell->write = me;
    } else {
        record(cell, &cell->write, me, place);
    }
}

bool same_as_last(const Record &last, const Record &me)
{
    return last.run == me.run && last.since == me.since && last.warp == me.warp && last.when == me.when &&
           (last.lanes & me.lanes) && last.bytes == me.bytes && last.is_atomic == me.is_atomic && !last.is_copy;
}

void visit_all(Cell *cells, const char *p, size_t size, Record me, Place place)
{
    const char *const end = p + size;
    for (; p < end; cells++) {
        const bool odd = reinterpret_cast<uintptr_t>(p) & 1;
        const bool both = !odd && end - p > 1;
        me.bytes = both ? kBothBytes : odd ? 2 : 1;
        const bool again = me.is_read && same_as_last(cells->read, me) && !(cells->write.run && cells->write.is_copy);
        if (!again)
            visit(cells, me, p, place);
        p += both ? 2 : 1;
    }
}

Record of_kind(Kind kind, uintptr_t code)
{
    Record me = mine(code);
    me.is_read = kind == Kind::read;
    me.is_atomic = kind == Kind::atomic;
    return me;
}

} // namespace

void operation(const TicketRef &ticket)
{
    if (!ticket->race) {
        operations.push_back(ticket);
        operation_now = static_cast<uint32_t>(operations.size() - 1);
        ticket->race = new_run();
    }
    run_now = ticket->race;
    operation_now = runs[run_now];
    for (Addresses &f : found) // some may be freed
        f = Addresses();
}

void begin_kernel(const void *bytes, size_t size)
{
    const char *from = static_cast<const char *>(bytes);
    arguments = {from, from + size};
}

void begin_block(const char *fixed_base, size_t fixed_size, const char *dynamic_base, size_t dynamic_size)
{
    set_up(&fixed, fixed_base, fixed_size);
    set_up(&dynamic, dynamic_base, dynamic_size);
    run_now = new_run();
    since = 1;
    // Times of an earlier block have the same numbers.
    for (WarpClock &c : clocks)
        c.forget();
}

void barrier()
{
    since++;
}

void sync_warp(int warp, unsigned mask)
{
    clocks[warp].sync(mask, since);
}

void access_if_watched(const void *bytes, size_t size, Kind kind, uintptr_t code)
{
    Cell *cells;
    const char *p = static_cast<const char *>(bytes);
    if (paused || size == 0)
        return;
    const Place place = find(p, size, &cells);
    if (place != Place::nowhere)
        visit_all(cells, p, size, of_kind(kind, code), place);
}

void access(const void *bytes, size_t size, Kind kind, uintptr_t code)
{
    const char *p = static_cast<const char *>(bytes);
    if (paused || size == 0 || arguments.contain(p) || (current && fiber_owns(&running()->fiber, p)))
        return;
    Cell *cells;
    const Place place = find(p, size, &cells);
    if (place != Place::nowhere)
        visit_all(cells, p, size, of_kind(kind, code), place);
    else if (current)
        check_host(p);
}

void begin_copy(const void *bytes, size_t size)
{
    Cell *cells;
    const char *p = static_cast<const char *>(bytes);
    const Place place = find(p, size, &cells);
    if (place == Place::nowhere)
        die("cp.async to %p, which is not in the shared memory of the block", bytes);
    Record me = of_kind(Kind::write, 0);
    me.is_copy = 1;
    visit_all(cells, p, size, me, place);
}

void land_copy(const void *bytes, size_t size)
{
    Cell *cells;
    find(static_cast<const char *>(bytes), size, &cells);
    Record me = of_kind(Kind::write, 0);
    me.bytes = kBothBytes;
    for (size_t i = 0; i < size / 2; i++)
        cells[i].write = me;
}

Pause::Pause()
{
    paused++;
}

Pause::~Pause()
{
    paused--;
}

} // namespace race
} // namespace fakecuda
