/* core/mem.h: memory with a ledger.
 *
 * An arena hands out aligned bytes in order and takes them back to a mark. Each has one tier and one category, so
 * "where did the memory go" is a lookup. The same code that takes views from real arenas takes them from counting
 * arenas, which have no memory: that is how a plan is made, and why it is exact.
 */
#ifndef PLAIT_CORE_MEM_H
#define PLAIT_CORE_MEM_H

#include "core/tensor.h"

PLAIT_BEGIN_DECLS

/* Views start at multiples of this: a cache line, and enough for every vector load. */
#define PLAIT_MEM_ALIGN 64

typedef enum plait_tier { PLAIT_TIER_DEVICE, PLAIT_TIER_HOST, PLAIT_TIER_NVME, PLAIT_TIERS } plait_tier;

typedef enum plait_mem_kind {
    PLAIT_MEM_PARAM,
    PLAIT_MEM_GRAD,
    PLAIT_MEM_OPTIM,
    PLAIT_MEM_ACT,
    PLAIT_MEM_COMM,
    PLAIT_MEM_WORK,
    PLAIT_MEM_KINDS
} plait_mem_kind;

/* "device", "host", "nvme" */
const char *plait_tier_name(plait_tier tier);
/* "parameters", "gradients", "optimizer", "activations", "communication", "workspace" */
const char *plait_mem_kind_name(plait_mem_kind kind);

/* What one rank holds: bytes reserved by the plan, and the highest byte ever handed out as a view. */
typedef struct plait_ledger {
    size_t planned[PLAIT_TIERS][PLAIT_MEM_KINDS];
    size_t high_water[PLAIT_TIERS][PLAIT_MEM_KINDS];
} plait_ledger;

/* Where the bytes of an arena come from: host, pinned host, device. alloc returns NULL when there is no more. */
typedef struct plait_allocator {
    void *(*alloc)(void *self, size_t bytes);
    void (*free)(void *self, void *p, size_t bytes);
    void *self;
} plait_allocator;

/* Page-aligned zeroed host memory. */
const plait_allocator *plait_host_allocator(void);

typedef struct plait_arena plait_arena;

/* `from` and `ledger` outlive the arena; several arenas may share one ledger entry (their bytes add up). */
PLAIT_MUST_USE plait_status plait_arena_create(const plait_allocator *from, plait_ledger *ledger, plait_tier tier,
                                               plait_mem_kind kind, size_t bytes, plait_arena **out);
/* Unlimited, without memory: its views have distinct non-NULL addresses that must never be followed. */
PLAIT_MUST_USE plait_status plait_arena_create_counting(plait_tier tier, plait_mem_kind kind, plait_arena **out);
/* An arena over `bytes` bytes at `begin`, which were taken from `of`: for a pool whose parts are handed out by somebody
 * else. It owns no memory and counts nothing (the pool has been counted); it is a counting arena if `of` is one. */
PLAIT_MUST_USE plait_status plait_arena_create_view(const plait_arena *of, void *begin, size_t bytes,
                                                    plait_arena **out);
/* Destroying NULL is fine. */
void plait_arena_destroy(plait_arena *a);
bool plait_arena_is_counting(const plait_arena *a);

/* A view into the arena: valid until a reset to a mark taken before it. Contents are whatever was there. */
PLAIT_MUST_USE plait_status plait_arena_take(plait_arena *a, size_t bytes, void **out);
PLAIT_MUST_USE plait_status plait_arena_tensor(plait_arena *a, plait_dtype dtype, plait_shape shape, plait_tensor *out);
/* n elements of `dtype`. */
PLAIT_MUST_USE plait_status plait_arena_array(plait_arena *a, plait_dtype dtype, int64_t n, void **out);
size_t plait_arena_mark(const plait_arena *a);
void plait_arena_reset(plait_arena *a, size_t mark);
/* Highest byte handed out so far, never the capacity. */
size_t plait_arena_high_water(const plait_arena *a);

PLAIT_END_DECLS
#endif
