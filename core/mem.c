#include "core/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

struct plait_arena {
    const plait_allocator *from; /* NULL: counting */
    plait_ledger *ledger;        /* NULL: counting, or a view */
    plait_tier tier;
    plait_mem_kind kind;
    char *base;
    size_t capacity, used, high_water;
    bool borrowed; /* a view of another arena's memory */
};

const char *plait_tier_name(plait_tier tier)
{
    static const char *const names[PLAIT_TIERS] = {"device", "host", "nvme"};
    return names[tier];
}

const char *plait_mem_kind_name(plait_mem_kind kind)
{
    static const char *const names[PLAIT_MEM_KINDS] = {"parameters",  "gradients",     "optimizer",
                                                       "activations", "communication", "workspace"};
    return names[kind];
}

static void *host_alloc(void *self, size_t bytes)
{
    (void)self;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void host_free(void *self, void *p, size_t bytes)
{
    (void)self;
    munmap(p, bytes);
}

const plait_allocator *plait_host_allocator(void)
{
    static const plait_allocator host = {host_alloc, host_free, NULL};
    return &host;
}

plait_status plait_arena_create(const plait_allocator *from, plait_ledger *ledger, plait_tier tier, plait_mem_kind kind,
                                size_t bytes, plait_arena **out)
{
    plait_arena *a = calloc(1, sizeof *a);
    if (!a)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the record of a %s arena", plait_mem_kind_name(kind));
    *a = (plait_arena){.from = from, .ledger = ledger, .tier = tier, .kind = kind, .capacity = bytes};
    if (bytes > 0) {
        a->base = from->alloc(from->self, bytes);
        if (!a->base) {
            free(a);
            PLAIT_FAIL(OUT_OF_MEMORY, "%zu bytes of %s memory for %s could not be allocated", bytes,
                       plait_tier_name(tier), plait_mem_kind_name(kind));
        }
    }
    ledger->planned[tier][kind] += bytes;
    *out = a;
    return PLAIT_OK;
}

plait_status plait_arena_create_counting(plait_tier tier, plait_mem_kind kind, plait_arena **out)
{
    plait_arena *a = calloc(1, sizeof *a);
    if (!a)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the record of a counting arena");
    /* Views of a counting arena start at one alignment unit, so that none is NULL. */
    *a =
        (plait_arena){.tier = tier, .kind = kind, .base = (char *)(uintptr_t)PLAIT_MEM_ALIGN, .capacity = SIZE_MAX / 2};
    *out = a;
    return PLAIT_OK;
}

plait_status plait_arena_create_view(const plait_arena *of, void *begin, size_t bytes, plait_arena **out)
{
    uintptr_t lo = (uintptr_t)of->base, at = (uintptr_t)begin;
    if (bytes > 0 && (at < lo || at - lo > of->used || bytes > of->used - (at - lo)))
        PLAIT_FAIL(INTERNAL, "a view of %zu bytes lies outside the %zu in use of a %s arena", bytes, of->used,
                   plait_mem_kind_name(of->kind));
    plait_arena *a = calloc(1, sizeof *a);
    if (!a)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the record of a view of a %s arena", plait_mem_kind_name(of->kind));
    *a = (plait_arena){
        .from = of->from, .tier = of->tier, .kind = of->kind, .base = begin, .capacity = bytes, .borrowed = true};
    *out = a;
    return PLAIT_OK;
}

void plait_arena_destroy(plait_arena *a)
{
    if (!a)
        return;
    if (a->from && a->base && !a->borrowed)
        a->from->free(a->from->self, a->base, a->capacity);
    free(a);
}

bool plait_arena_is_counting(const plait_arena *a)
{
    return a->from == NULL;
}

plait_status plait_arena_take(plait_arena *a, size_t bytes, void **out)
{
    size_t begin = (a->used + PLAIT_MEM_ALIGN - 1) / PLAIT_MEM_ALIGN * PLAIT_MEM_ALIGN;
    if (begin > a->capacity || bytes > a->capacity - begin)
        PLAIT_FAIL(OUT_OF_MEMORY, "%s arena of %zu bytes: %zu more were asked for, %zu are in use",
                   plait_mem_kind_name(a->kind), a->capacity, bytes, a->used);
    /* Integer arithmetic: a counting arena has no object behind its addresses. */
    *out = bytes == 0 && !a->base ? NULL : (void *)((uintptr_t)a->base + begin);
    a->used = begin + bytes;
    if (a->used > a->high_water) {
        if (a->ledger)
            a->ledger->high_water[a->tier][a->kind] += a->used - a->high_water;
        a->high_water = a->used;
    }
    return PLAIT_OK;
}

plait_status plait_arena_tensor(plait_arena *a, plait_dtype dtype, plait_shape shape, plait_tensor *out)
{
    *out = (plait_tensor){NULL, dtype, shape};
    PLAIT_TRY(plait_arena_take(a, plait_tensor_bytes(out), &out->data));
    return PLAIT_OK;
}

plait_status plait_arena_array(plait_arena *a, plait_dtype dtype, int64_t n, void **out)
{
    return plait_arena_take(a, (size_t)n * plait_dtype_size(dtype), out);
}

size_t plait_arena_mark(const plait_arena *a)
{
    return a->used;
}

void plait_arena_reset(plait_arena *a, size_t mark)
{
    assert(mark <= a->used);
    a->used = mark;
}

size_t plait_arena_high_water(const plait_arena *a)
{
    return a->high_water;
}
