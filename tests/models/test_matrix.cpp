// Does the topology change the training? A part of the matrix in which every pair of values occurs; test_matrix_full
// has all of it.
#include "../parallel/mpi_world.h"
#include "matrix_run.h"

#include <gtest/gtest.h>

namespace
{

class Matrix : public testing::Test
{
  protected:
    static void TearDownTestSuite() { remove_shared_dir(); }
};

TEST_F(Matrix, Has152LegalRows)
{
    EXPECT_EQ(legal_rows().size(), 152u);
}

TEST_F(Matrix, CoveringRowsHaveEveryPair)
{
    expect_all_pairs(covering_rows(), test_world.rank == 0);
}

// The rows of the same world size run side by side, so a test is not one row; a failure says which row it was.
TEST_F(Matrix, CoveringRowsTrainLikeOneRankInFp64)
{
    const std::vector<Row> &rows = covering_rows();
    EXPECT_EQ(run_rows(rows, fp64(), kFp64), (int)rows.size());
}

// All degrees 1: every stage, every way of recomputation, every model.
TEST_F(Matrix, AllDegreesOne)
{
    std::vector<Row> rows;
    for (int i = 0; i < 16; i++) {
        const int model = (i + i / 8) % kModels;
        rows.push_back({1, 1, 1, (Zero)(i % 5), Pipe::kNone, false, (model & 4) != 0, (model & 2) != 0,
                        (model & 1) != 0, (Recompute)(i % (int)Recompute::kCount)});
    }
    EXPECT_EQ(run_rows(rows, fp64(), kFp64), (int)rows.size());
}

TEST_F(Matrix, SomeRowsTrainLikeOneRankInFp32)
{
    std::vector<Row> rows;
    const std::vector<Row> &all = covering_rows();
    for (size_t i = 0; i < all.size(); i += 8)
        rows.push_back(all[i]);
    EXPECT_EQ(run_rows(rows, fp32(), kFp32), (int)rows.size());
}

// Plain gradient descent does not divide by the gradient's size: no element needs to be held apart, and the bound is
// that of all.
TEST_F(Matrix, SomeRowsTrainLikeOneRankInFp32WithSgd)
{
    std::vector<Row> rows;
    const std::vector<Row> &all = covering_rows();
    for (size_t i = 1; i < all.size(); i += 6)
        rows.push_back(all[i]);
    EXPECT_EQ(
        run_rows(rows, {"precision.dtype=fp32", "device.kernels=cpu", "optimizer.type=SGD", "optimizer.lr=0.5"}, kFp32),
        (int)rows.size());
}

} // namespace
