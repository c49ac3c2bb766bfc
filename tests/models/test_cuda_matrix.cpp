// Does a training on GPUs give what the host's does? Rows of the matrix with device.backend cuda, over NCCL and staged,
// compared with one rank on the host.
#include "../parallel/gpus.h"
#include "matrix_run.h"

#include <gtest/gtest.h>

namespace
{

class CudaMatrix : public testing::Test
{
  protected:
    static void TearDownTestSuite() { remove_shared_dir(); }
    void SetUp() override
    {
        if (!gpus_take(PLAIT_COMM_STAGED))
            GTEST_SKIP() << "no GPU";
    }
};

const Overrides kNccl = {"device.backend=cuda", "device.kernels=auto", "comm.backend=nccl"};
const Overrides kStaged = {"device.backend=cuda", "device.kernels=auto", "comm.backend=staged"};

// Every n-th of the rows that have all pairs.
std::vector<Row> some(size_t first, size_t n)
{
    std::vector<Row> rows;
    for (size_t i = first; i < covering_rows().size(); i += n)
        rows.push_back(covering_rows()[i]);
    return rows;
}

void expect_like_host(const std::vector<Row> &rows, const Overrides &device)
{
    if (!gpus_take(device == kNccl ? PLAIT_COMM_NCCL : PLAIT_COMM_STAGED))
        return;
    EXPECT_EQ(run_rows(rows, fp32(), kFp32, device), (int)rows.size());
}

TEST_F(CudaMatrix, OneRank)
{
    expect_like_host({{1, 1, 1, Zero::kStage0, Pipe::kNone, false, true, true, true, Recompute::kNone},
                      {1, 1, 1, Zero::kStage3, Pipe::kNone, false, false, false, true, Recompute::kUniform}},
                     kStaged);
}

// Others for each schedule of the emulation.
void expect_some_like_host(size_t first)
{
    expect_like_host(some(first, 24), kNccl);
    expect_like_host(some(first + 12, 24), kStaged);
}

TEST_F(CudaMatrix, SomeRows)
{
    expect_some_like_host(0);
}

TEST_F(CudaMatrix, OtherRows)
{
    expect_some_like_host(4);
}

TEST_F(CudaMatrix, FurtherRows)
{
    expect_some_like_host(8);
}

TEST_F(CudaMatrix, CoveringRowsOverNccl)
{
    expect_like_host(covering_rows(), kNccl);
}

TEST_F(CudaMatrix, CoveringRowsStaged)
{
    expect_like_host(covering_rows(), kStaged);
}

} // namespace
