#include "parallel/topology.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace
{

std::vector<int> members(const plait_topology &topo, plait_group kind)
{
    std::vector<int> ranks((size_t)topo.world);
    int n = plait_topology_group(&topo, kind, ranks.data());
    ranks.resize((size_t)n);
    return ranks;
}

plait_topology make(int tp, int pp, int dp, int rank, int kv = 1, const char *order = "tp-cp-ep-dp-pp")
{
    plait_topology topo;
    EXPECT_EQ(plait_topology_init(&topo, tp * pp * dp, rank, tp, pp, dp, kv, order), PLAIT_OK) << plait_error_text();
    return topo;
}

struct Placed {
    const char *name, *order;
    int rank, t, p, d; // of tp 2, pp 3, dp 4
};
class Coordinates : public testing::TestWithParam<Placed>
{
};

TEST_P(Coordinates, FollowTheOrder)
{
    const Placed &c = GetParam();
    plait_topology topo = make(2, 3, 4, c.rank, 1, c.order);
    EXPECT_EQ(std::make_tuple(topo.t, topo.p, topo.d), std::make_tuple(c.t, c.p, c.d));
    EXPECT_EQ(plait_topology_rank_of(&topo, topo.d, topo.p, topo.t), c.rank);
}

// By hand: the first axis of the order varies fastest with the rank.
const Placed kPlaced[] = {
    {"default_5", "tp-cp-ep-dp-pp", 5, 1, 0, 2},   {"default_8", "tp-cp-ep-dp-pp", 8, 0, 1, 0},
    {"default_23", "tp-cp-ep-dp-pp", 23, 1, 2, 3}, {"tp_pp_dp", "tp-pp-dp", 9, 1, 1, 1},
    {"pp_first", "pp-tp-dp", 5, 1, 2, 0},          {"dp_first", "dp-tp-pp", 13, 1, 1, 1},
    {"dp_pp_tp", "dp-pp-tp", 13, 1, 0, 1},         {"pp_dp_tp", "pp-cp-dp-ep-tp", 14, 1, 2, 0},
};
INSTANTIATE_TEST_SUITE_P(, Coordinates, testing::ValuesIn(kPlaced),
                         [](const auto &i) { return std::string(i.param.name); });

// For every order and many degrees: coordinates name ranks one to one, and groups of a kind divide the world.
class Orders : public testing::TestWithParam<std::string>
{
};

TEST_P(Orders, DivideTheWorld)
{
    const int degrees[][3] = {{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 3, 4}, {4, 2, 3}, {8, 1, 2}, {1, 5, 3}};
    for (auto [tp, pp, dp] : degrees) {
        for (int kv = 1; kv <= tp; kv *= 2) {
            int world = tp * pp * dp;
            std::set<std::tuple<int, int, int>> seen;
            for (int rank = 0; rank < world; rank++) {
                plait_topology topo = make(tp, pp, dp, rank, kv, GetParam().c_str());
                seen.insert({topo.d, topo.p, topo.t});
                ASSERT_EQ(plait_topology_rank_of(&topo, topo.d, topo.p, topo.t), rank);
                for (int kind = 0; kind < PLAIT_GROUPS; kind++) {
                    std::vector<int> mine = members(topo, (plait_group)kind);
                    ASSERT_EQ(std::count(mine.begin(), mine.end(), rank), 1) << plait_group_name((plait_group)kind);
                    for (int other : mine) { // every member sees the same list
                        plait_topology there = plait_topology_at(&topo, other);
                        ASSERT_EQ(there.rank, other);
                        ASSERT_EQ(members(there, (plait_group)kind), mine) << plait_group_name((plait_group)kind);
                    }
                }
                size_t ends = pp > 1 && (topo.p == 0 || topo.p == pp - 1) ? 2u : 1u;
                ASSERT_EQ(members(topo, PLAIT_GROUP_WORLD).size(), (size_t)world);
                ASSERT_EQ(members(topo, PLAIT_GROUP_TENSOR).size(), (size_t)tp);
                ASSERT_EQ(members(topo, PLAIT_GROUP_DATA).size(), (size_t)dp);
                ASSERT_EQ(members(topo, PLAIT_GROUP_PIPELINE).size(), (size_t)pp);
                ASSERT_EQ(members(topo, PLAIT_GROUP_EMBEDDING).size(), ends);
                ASSERT_EQ(members(topo, PLAIT_GROUP_KV).size(), (size_t)kv);
                ASSERT_EQ(members(topo, PLAIT_GROUP_PIPELINE)[(size_t)topo.p], rank) << "ranked by stage";
                ASSERT_EQ(members(topo, PLAIT_GROUP_TENSOR)[(size_t)topo.t], rank);
                ASSERT_EQ(members(topo, PLAIT_GROUP_DATA)[(size_t)topo.d], rank);
            }
            ASSERT_EQ(seen.size(), (size_t)world);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(, Orders,
                         testing::Values("tp-dp-pp", "tp-pp-dp", "dp-tp-pp", "dp-pp-tp", "pp-tp-dp", "pp-dp-tp",
                                         "tp-cp-ep-dp-pp", "ep-pp-dp-cp-tp"),
                         [](const auto &i) {
                             std::string s = i.param;
                             std::replace(s.begin(), s.end(), '-', '_');
                             return s;
                         });

TEST(Topology, GroupsOfTheDefaultOrder)
{
    plait_topology topo = make(4, 3, 2, 13, 2); // rank 13 = t 1, d 1, p 1
    EXPECT_EQ(members(topo, PLAIT_GROUP_TENSOR), (std::vector<int>{12, 13, 14, 15}));
    EXPECT_EQ(members(topo, PLAIT_GROUP_DATA), (std::vector<int>{9, 13}));
    EXPECT_EQ(members(topo, PLAIT_GROUP_PIPELINE), (std::vector<int>{5, 13, 21}));
    EXPECT_EQ(members(topo, PLAIT_GROUP_EMBEDDING), (std::vector<int>{13}));
    EXPECT_EQ(members(topo, PLAIT_GROUP_KV), (std::vector<int>{12, 13}));
    topo = plait_topology_at(&topo, 21);
    EXPECT_EQ(members(topo, PLAIT_GROUP_EMBEDDING), (std::vector<int>{5, 21}));
    topo = plait_topology_at(&topo, 15);
    EXPECT_EQ(members(topo, PLAIT_GROUP_KV), (std::vector<int>{14, 15}));
}

struct Bad {
    const char *name;
    int world, rank, tp, pp, dp, kv;
    const char *order, *says;
};
class Rejected : public testing::TestWithParam<Bad>
{
};

TEST_P(Rejected, SaysWhy)
{
    const Bad &c = GetParam();
    plait_topology topo;
    EXPECT_EQ(plait_topology_init(&topo, c.world, c.rank, c.tp, c.pp, c.dp, c.kv, c.order), PLAIT_USAGE);
    EXPECT_NE(std::string(plait_error_text()).find(c.says), std::string::npos) << plait_error_text();
}

const Bad kBad[] = {
    {"too_few", 3, 0, 2, 2, 1, 1, "tp-dp-pp", "3 ranks, but tensor 2 x pipeline 2 x data 1"},
    {"too_many", 8, 0, 2, 2, 1, 1, "tp-dp-pp", "8 ranks, but tensor 2 x pipeline 2 x data 1"},
    {"wraps", 1, 0, 1 << 16, 1 << 16, 1, 1, "tp-dp-pp", "1 rank, but"},
    {"wraps_64", 0, 0, 1 << 30, 1 << 30, 16, 1, "tp-dp-pp", "0 ranks, but"},
    {"no_tensor", 1, 0, 0, 1, 1, 1, "tp-dp-pp", "tensor 0"},
    {"negative", 1, 0, -1, -1, 1, 1, "tp-dp-pp", "tensor -1"},
    {"rank", 2, 2, 2, 1, 1, 1, "tp-dp-pp", "rank 2 is not one of 2"},
    {"replicas", 4, 0, 4, 1, 1, 3, "tp-dp-pp", "4 tensor ranks cannot be grouped by 3"},
    {"no_replicas", 4, 0, 4, 1, 1, 0, "tp-dp-pp", "grouped by 0"},
    {"misses_pp", 1, 0, 1, 1, 1, 1, "tp-dp", "does not name pp"},
    {"twice", 1, 0, 1, 1, 1, 1, "tp-dp-pp-tp", "names tp twice"},
    {"unknown", 1, 0, 1, 1, 1, 1, "tp-xp-dp-pp", "\"xp\" is not an axis"},
    {"prefix", 1, 0, 1, 1, 1, 1, "t-dp-pp", "\"t\" is not an axis"},
    {"empty", 1, 0, 1, 1, 1, 1, "", "\"\" is not an axis"},
    {"hangs_over", 1, 0, 1, 1, 1, 1, "tp-dp-pp-", "\"\" is not an axis"},
};
INSTANTIATE_TEST_SUITE_P(, Rejected, testing::ValuesIn(kBad), [](const auto &i) { return std::string(i.param.name); });

} // namespace
