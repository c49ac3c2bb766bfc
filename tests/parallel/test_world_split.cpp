// Worlds inside the world: neighbours form worlds of their own, left-over ranks are told that they are in none, and
// every world can be used and closed again.
#include "comm_testing.h"
#include "mpi_world.h"

#include <gtest/gtest.h>

namespace
{

TEST(WorldSplit, NeighboursFormWorlds)
{
    ASSERT_NE(testing_exec(), nullptr) << plait_error_text();
    plait_comm_set_exec(testing_exec());
    for (int ranks = 1; ranks <= test_world.size; ranks++) {
        SCOPED_TRACE("worlds of " + std::to_string(ranks));
        plait_world world;
        ASSERT_EQ(plait_world_split(&test_world, ranks, &world), PLAIT_OK) << plait_error_text();
        const int part = test_world.rank / ranks, first = part * ranks;
        if (first + ranks > test_world.size) {
            EXPECT_EQ(world.size, 0);
            EXPECT_EQ(world.comm, nullptr);
            continue;
        }
        EXPECT_EQ(world.size, ranks);
        EXPECT_EQ(world.rank, test_world.rank - first);
        EXPECT_EQ(plait_comm_size(world.comm), ranks);
        EXPECT_EQ(plait_comm_rank(world.comm), world.rank);
        EXPECT_LE(world.local_size, ranks);
        EXPECT_GE(world.nodes, 1);
        plait_ledger ledger = {};
        ASSERT_EQ(plait_comm_reserve(world.comm, 64, 4096, PLAIT_TIER_DEVICE, &ledger), PLAIT_OK) << plait_error_text();
        double sum = test_world.rank;
        const plait_comm_op op = plait_comm_make(PLAIT_COMM_ALL_REDUCE, &sum, &sum, 1, PLAIT_FP64);
        ASSERT_EQ(plait_comm_run(world.comm, &op, testing_exec()), PLAIT_OK) << plait_error_text();
        EXPECT_EQ(sum, ranks * first + ranks * (ranks - 1) / 2);
        plait_world_close(&world);
        EXPECT_EQ(world.comm, nullptr);
    }
}

TEST(WorldSplit, RefusesNoRanks)
{
    plait_world world;
    EXPECT_EQ(plait_world_split(&test_world, 0, &world), PLAIT_INTERNAL);
}

// A group of a part knows its ranks by their number in the part.
TEST(WorldSplit, GroupsOfEachWorld)
{
    const int ranks = 2;
    plait_world world;
    ASSERT_EQ(plait_world_split(&test_world, ranks, &world), PLAIT_OK) << plait_error_text();
    if (world.size > 0) {
        plait_topology topo;
        plait_groups groups;
        ASSERT_EQ(plait_topology_init(&topo, ranks, world.rank, 1, 1, ranks, 1, "tp-dp-pp"), PLAIT_OK);
        ASSERT_EQ(plait_groups_create(&world, &topo, &groups), PLAIT_OK) << plait_error_text();
        EXPECT_EQ(plait_comm_size(groups.data), ranks);
        EXPECT_EQ(plait_comm_rank(groups.data), world.rank);
        plait_groups_destroy(&groups);
    }
    plait_world_close(&world);
}

} // namespace
