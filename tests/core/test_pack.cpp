#include "core/pack.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace
{

struct Case {
    const char *name;
    std::vector<plait_interval> intervals;
    std::vector<size_t> offsets;
    size_t total;
};

void PrintTo(const Case &c, std::ostream *os)
{
    *os << c.name;
}

class Pack : public testing::TestWithParam<Case>
{
};

TEST_P(Pack, GivesTheLowestFreePlace)
{
    std::vector<plait_interval> at = GetParam().intervals;
    size_t total = 1;
    ASSERT_EQ(plait_pack(at.data(), static_cast<int>(at.size()), &total), PLAIT_OK);
    for (size_t i = 0; i < at.size(); i++)
        EXPECT_EQ(at[i].offset, GetParam().offsets[i]) << i;
    EXPECT_EQ(total, GetParam().total);
}

const Case kCases[] = {
    {"nothing", {}, {}, 0},
    {"one_after_the_other", {{0, 1, 100, 0}, {2, 3, 50, 0}}, {0, 0}, 100},
    {"together", {{0, 2, 100, 0}, {1, 3, 50, 0}}, {0, 128}, 178},
    {"the_last_point_still_counts", {{0, 2, 64, 0}, {2, 3, 64, 0}}, {0, 64}, 128},
    {"into_the_gap", {{0, 1, 64, 0}, {0, 9, 64, 0}, {2, 3, 64, 0}}, {0, 64, 0}, 128},
    {"too_large_for_the_gap", {{0, 1, 64, 0}, {0, 9, 64, 0}, {2, 3, 65, 0}}, {0, 64, 128}, 193},
    {"empty_ones_take_nothing", {{0, 5, 0, 0}, {0, 5, 10, 0}}, {0, 0}, 10},
};
INSTANTIATE_TEST_SUITE_P(, Pack, testing::ValuesIn(kCases), [](const auto &i) { return std::string(i.param.name); });

TEST(PackRandom, NoTwoThatLiveTogetherOverlap)
{
    std::mt19937 random(1);
    for (int round = 0; round < 200; round++) {
        std::vector<plait_interval> at(1 + random() % 40);
        int first = 0;
        for (plait_interval &i : at) {
            first += static_cast<int>(random() % 3);
            i = {first, first + static_cast<int>(random() % 8), 1 + random() % 300, 0};
        }
        size_t total = 0;
        ASSERT_EQ(plait_pack(at.data(), static_cast<int>(at.size()), &total), PLAIT_OK);
        for (size_t a = 0; a < at.size(); a++) {
            EXPECT_EQ(at[a].offset % 64, 0u);
            EXPECT_LE(at[a].offset + at[a].bytes, total);
            for (size_t b = 0; b < a; b++) {
                bool together = at[a].first <= at[b].last && at[b].first <= at[a].last;
                bool apart = at[a].offset + at[a].bytes <= at[b].offset || at[b].offset + at[b].bytes <= at[a].offset;
                EXPECT_TRUE(!together || apart) << "round " << round << ": " << a << " and " << b;
            }
        }
    }
}

} // namespace
