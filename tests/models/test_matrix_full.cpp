// The whole matrix: 152 legal topologies, stages, schedules and sequence parallel, with models and recomputation dealt
// out in two rotations. In fp64 each; every third also in fp32.
#include "../parallel/mpi_world.h"
#include "matrix_run.h"

#include <gtest/gtest.h>

namespace
{

class FullMatrix : public testing::TestWithParam<int>
{
  protected:
    static void TearDownTestSuite() { remove_shared_dir(); }
};

TEST_P(FullMatrix, TrainsLikeOneRankInFp64)
{
    const std::vector<Row> rows = rotated_rows(GetParam());
    ASSERT_EQ(rows.size(), 152u);
    EXPECT_EQ(run_rows(rows, fp64(), kFp64), 152);
}

TEST_P(FullMatrix, TrainsLikeOneRankInFp32)
{
    std::vector<Row> rows;
    const std::vector<Row> all = rotated_rows(GetParam());
    for (size_t i = (size_t)GetParam(); i < all.size(); i += 3)
        rows.push_back(all[i]);
    EXPECT_EQ(run_rows(rows, fp32(), kFp32), (int)rows.size());
}

INSTANTIATE_TEST_SUITE_P(, FullMatrix, testing::Values(0, 1),
                         [](const auto &i) { return "rotation_" + std::to_string(i.param); });

TEST(FullMatrixPairs, AreAll)
{
    std::vector<Row> rows = rotated_rows(0);
    const std::vector<Row> second = rotated_rows(1);
    rows.insert(rows.end(), second.begin(), second.end());
    expect_all_pairs(rows, test_world.rank == 0);
}

} // namespace
