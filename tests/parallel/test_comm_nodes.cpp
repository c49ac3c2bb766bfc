// Groups of a job over several nodes (tests/nodes/nodes.sh): those inside a node share a window, those over nodes send
// messages, both are at work at the same time, and every rank gets the same bits.
#include "comm_testing.h"
#include "mpi_world.h"
#include "parallel/comm_impl.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

namespace
{

const int64_t kCount = 30011; // several rounds
const size_t kChunk = (size_t)64 << 10;

int nodes()
{
    const char *told = std::getenv("PLAIT_TEST_NODES");
    return told ? std::atoi(told) : 0;
}
// mpiexec fills one node after the other.
int node_of(int rank)
{
    return rank / (test_world.size / nodes());
}

TEST(Nodes, AreThoseOfTheLauncher)
{
    ASSERT_GT(nodes(), 1);
    const int each = test_world.size / nodes();
    EXPECT_EQ(test_world.nodes, nodes());
    EXPECT_EQ(test_world.local_size, each);
    EXPECT_EQ(test_world.local_rank, test_world.rank % each);
    for (int q = 0; q < test_world.size; q++)
        EXPECT_EQ(test_world.node_of[q], node_of(q) * each) << "rank " << q;
    EXPECT_EQ(test_world.comm->path, PLAIT_COMM_PATH_P2P);
}

struct Grid {
    int tp, pp, dp;
};

plait_comm_path path_of(const plait_topology &topo, plait_group kind)
{
    std::vector<int> ranks((size_t)topo.world);
    const int n = plait_topology_group(&topo, kind, ranks.data());
    if (n == 1)
        return PLAIT_COMM_PATH_SELF;
    for (int i = 1; i < n; i++)
        if (node_of(ranks[(size_t)i]) != node_of(ranks[0]))
            return PLAIT_COMM_PATH_P2P;
    return PLAIT_COMM_PATH_WINDOW;
}

struct Open {
    plait_group kind;
    plait_comm *comm;
    std::vector<float> in, out;
    plait_request *request;
};

void check_sum(const plait_topology &topo, const Open &o)
{
    std::vector<int> ranks((size_t)topo.world);
    const int n = plait_topology_group(&topo, o.kind, ranks.data());
    const plait_comm_op op = plait_comm_make(PLAIT_COMM_ALL_REDUCE, nullptr, nullptr, kCount, PLAIT_FP32);
    for (int64_t i = 0; i < kCount; i++) {
        std::vector<double> given;
        for (int q = 0; q < n; q++)
            given.push_back(number(ranks[(size_t)q], i, o.kind));
        ASSERT_EQ(o.out[(size_t)i], reduced(op, given)) << "element " << i;
    }
}

// All groups of the grid, each with a sum under way before the first is waited for. Counts the ways that were taken.
void run_grid(const Grid &grid, int *of_path)
{
    plait_topology topo;
    plait_groups groups;
    ASSERT_EQ(
        plait_topology_init(&topo, test_world.size, test_world.rank, grid.tp, grid.pp, grid.dp, 1, "tp-cp-ep-dp-pp"),
        PLAIT_OK)
        << plait_error_text();
    ASSERT_EQ(plait_groups_create(&test_world, &topo, &groups), PLAIT_OK) << plait_error_text();
    Open all[] = {{PLAIT_GROUP_TENSOR, groups.tensor, {}, {}, nullptr},
                  {PLAIT_GROUP_DATA, groups.data, {}, {}, nullptr},
                  {PLAIT_GROUP_PIPELINE, groups.pipe_act, {}, {}, nullptr},
                  {PLAIT_GROUP_EMBEDDING, groups.embedding, {}, {}, nullptr}};
    for (Open &o : all) {
        SCOPED_TRACE(plait_group_name(o.kind));
        plait_ledger ledger = {};
        ASSERT_EQ(plait_comm_reserve(o.comm, (size_t)kCount * 4, kChunk, PLAIT_TIER_HOST, &ledger), PLAIT_OK)
            << plait_error_text();
        EXPECT_EQ(o.comm->path, path_of(topo, o.kind));
        EXPECT_EQ(o.comm->window != nullptr, o.comm->path == PLAIT_COMM_PATH_WINDOW);
        of_path[o.comm->path]++;
        o.out.resize((size_t)kCount);
        for (int64_t i = 0; i < kCount; i++)
            o.in.push_back((float)number(topo.rank, i, o.kind));
        const plait_comm_op op = plait_comm_make(PLAIT_COMM_ALL_REDUCE, o.in.data(), o.out.data(), kCount, PLAIT_FP32);
        ASSERT_EQ(plait_comm_start(o.comm, &op, 1, testing_exec(), &o.request), PLAIT_OK) << plait_error_text();
    }
    for (Open &o : all) {
        SCOPED_TRACE(plait_group_name(o.kind));
        ASSERT_EQ(plait_request_wait(&o.request, testing_exec()), PLAIT_OK) << plait_error_text();
        ASSERT_NO_FATAL_FAILURE(check_sum(topo, o));
    }
    plait_groups_destroy(&groups);
}

TEST(Nodes, WindowsInsideAndMessagesBetween)
{
    ASSERT_NE(testing_exec(), nullptr) << plait_error_text();
    plait_comm_set_exec(testing_exec());
    int of_path[PLAIT_COMM_PATH_PLAN + 1] = {};
    for (int tp = 1; tp <= test_world.size; tp *= 2)
        for (int pp = 1; tp * pp <= test_world.size; pp *= 2) {
            const Grid grid = {tp, pp, test_world.size / (tp * pp)};
            SCOPED_TRACE("tp " + std::to_string(tp) + ", pp " + std::to_string(pp) + ", dp " + std::to_string(grid.dp));
            ASSERT_NO_FATAL_FAILURE(run_grid(grid, of_path));
        }
    EXPECT_GT(of_path[PLAIT_COMM_PATH_P2P], 0);
    EXPECT_EQ(of_path[PLAIT_COMM_PATH_WINDOW] > 0, test_world.local_size > 1);
}

} // namespace
