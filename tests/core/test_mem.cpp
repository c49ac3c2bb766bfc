#include "core/mem.h"

#include <gtest/gtest.h>

#include <cstring>

TEST(Arena, HandsOutAlignedViewsAndCountsTheHighestByte)
{
    plait_ledger ledger = {};
    plait_arena *a = nullptr;
    ASSERT_EQ(plait_arena_create(plait_host_allocator(), &ledger, PLAIT_TIER_DEVICE, PLAIT_MEM_GRAD, 1024, &a),
              PLAIT_OK);
    plait_tensor x, y;
    ASSERT_EQ(plait_arena_tensor(a, PLAIT_FP32, plait_shape_2d(3, 5), &x), PLAIT_OK);
    size_t mark = plait_arena_mark(a);
    ASSERT_EQ(plait_arena_tensor(a, PLAIT_BF16, plait_shape_1d(7), &y), PLAIT_OK);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(y.data) % PLAIT_MEM_ALIGN, 0u);
    EXPECT_EQ(static_cast<char *>(y.data) - static_cast<char *>(x.data), 64);
    memset(y.data, 1, plait_tensor_bytes(&y));
    EXPECT_EQ(plait_arena_high_water(a), 64u + 14u);
    plait_arena_reset(a, mark);
    EXPECT_EQ(plait_arena_high_water(a), 64u + 14u);
    EXPECT_EQ(ledger.high_water[PLAIT_TIER_DEVICE][PLAIT_MEM_GRAD], 78u);
    EXPECT_EQ(ledger.planned[PLAIT_TIER_DEVICE][PLAIT_MEM_GRAD], 1024u);
    EXPECT_EQ(ledger.high_water[PLAIT_TIER_DEVICE][PLAIT_MEM_PARAM], 0u);
    plait_arena_destroy(a);
}

TEST(Arena, OverItsSizeIsAnErrorThatNamesBothNumbers)
{
    plait_ledger ledger = {};
    plait_arena *a = nullptr;
    ASSERT_EQ(plait_arena_create(plait_host_allocator(), &ledger, PLAIT_TIER_HOST, PLAIT_MEM_WORK, 100, &a), PLAIT_OK);
    void *p;
    ASSERT_EQ(plait_arena_take(a, 100, &p), PLAIT_OK);
    EXPECT_EQ(plait_arena_take(a, 1, &p), PLAIT_OUT_OF_MEMORY);
    EXPECT_STREQ(plait_error_text(), "workspace arena of 100 bytes: 1 more were asked for, 100 are in use");
    plait_arena_destroy(a);
    plait_arena_destroy(nullptr);
}

TEST(Arena, ACountingArenaFollowsTheSameOffsetsWithoutMemory)
{
    plait_ledger ledger = {};
    plait_arena *real = nullptr, *counting = nullptr;
    ASSERT_EQ(plait_arena_create_counting(PLAIT_TIER_DEVICE, PLAIT_MEM_ACT, &counting), PLAIT_OK);
    ASSERT_EQ(plait_arena_create(plait_host_allocator(), &ledger, PLAIT_TIER_DEVICE, PLAIT_MEM_ACT, 4096, &real),
              PLAIT_OK);
    for (size_t bytes : {1u, 63u, 64u, 65u, 0u, 200u}) {
        void *p, *q;
        ASSERT_EQ(plait_arena_take(real, bytes, &p), PLAIT_OK);
        ASSERT_EQ(plait_arena_take(counting, bytes, &q), PLAIT_OK);
        EXPECT_NE(q, nullptr);
        EXPECT_EQ(plait_arena_mark(real), plait_arena_mark(counting));
    }
    void *big;
    ASSERT_EQ(plait_arena_take(counting, size_t{1} << 50, &big), PLAIT_OK); // no machine has that
    EXPECT_TRUE(plait_arena_is_counting(counting));
    EXPECT_FALSE(plait_arena_is_counting(real));
    plait_arena_destroy(real);
    plait_arena_destroy(counting);
}

TEST(Arena, AViewHandsOutAPartOfAnotherArenaAndCountsNothing)
{
    plait_ledger ledger = {};
    plait_arena *counting = nullptr, *real = nullptr;
    ASSERT_EQ(plait_arena_create_counting(PLAIT_TIER_DEVICE, PLAIT_MEM_ACT, &counting), PLAIT_OK);
    ASSERT_EQ(plait_arena_create(plait_host_allocator(), &ledger, PLAIT_TIER_DEVICE, PLAIT_MEM_ACT, 4096, &real),
              PLAIT_OK);
    for (plait_arena *a : {counting, real}) {
        void *pool, *p, *q;
        plait_arena *view = nullptr;
        ASSERT_EQ(plait_arena_take(a, 256, &pool), PLAIT_OK);
        ASSERT_EQ(plait_arena_create_view(a, static_cast<char *>(pool) + 128, 100, &view), PLAIT_OK);
        EXPECT_EQ(plait_arena_is_counting(view), plait_arena_is_counting(a));
        ASSERT_EQ(plait_arena_take(view, 3, &p), PLAIT_OK);
        ASSERT_EQ(plait_arena_take(view, 36, &q), PLAIT_OK);
        EXPECT_EQ(static_cast<char *>(p) - static_cast<char *>(pool), 128);
        EXPECT_EQ(static_cast<char *>(q) - static_cast<char *>(pool), 192);
        EXPECT_EQ(plait_arena_take(view, 1, &q), PLAIT_OUT_OF_MEMORY);
        EXPECT_EQ(plait_arena_create_view(a, static_cast<char *>(pool) + 128, 129, &view), PLAIT_INTERNAL);
        plait_arena_destroy(view);
    }
    EXPECT_EQ(ledger.high_water[PLAIT_TIER_DEVICE][PLAIT_MEM_ACT], 256u);
    plait_arena_destroy(counting);
    plait_arena_destroy(real);
}
