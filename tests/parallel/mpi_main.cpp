// main() of GoogleTest programs that run under mpiexec. Rank 0 prints what passes, every rank prints what fails. After
// each test the ranks agree: a failure on one is a failure of the job, which ends at once, since the ranks may no
// longer be at the same operation.
#include "mpi_world.h"

#include <gtest/gtest.h>

#include <cstdio>

plait_world test_world;

namespace
{

constexpr int kSkipped = 77; // SKIP_RETURN_CODE: nothing was tested here

class Agree : public testing::EmptyTestEventListener
{
  public:
    void OnTestPartResult(const testing::TestPartResult &result) override
    {
        if (result.failed() && test_world.rank != 0) // rank 0 has the usual printer
            std::printf("rank %d: %s:%d: %s\n", test_world.rank, result.file_name() ? result.file_name() : "?",
                        result.line_number(), result.message());
    }
    void OnTestEnd(const testing::TestInfo &info) override
    {
        plait_status mine = PLAIT_OK;
        if (info.result()->Failed())
            mine = plait_error_set(PLAIT_INTERNAL, __FILE__, __LINE__, "failed");
        if (plait_comm_agree(test_world.comm, mine) == PLAIT_OK)
            return;
        std::printf("rank %d: %s.%s: %s\n", test_world.rank, info.test_suite_name(), info.name(), plait_error_text());
        plait_world_abort(&test_world, 1);
    }
};

} // namespace

int main(int argc, char **argv)
{
    if (plait_world_init(&test_world, &argc, &argv) != PLAIT_OK) {
        std::fprintf(stderr, "%s\n", plait_error_text());
        plait_world_abort(&test_world, 1);
    }
    plait_comm_set_timeout(20.0);
    testing::InitGoogleTest(&argc, argv);
    testing::TestEventListeners &listeners = testing::UnitTest::GetInstance()->listeners();
    if (test_world.rank != 0)
        delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new Agree);
    const int failed = RUN_ALL_TESTS();
    const testing::UnitTest &all = *testing::UnitTest::GetInstance();
    const bool skipped = all.skipped_test_count() > 0 && all.successful_test_count() == 0;
    plait_world_finalize(&test_world);
    return failed ? failed : skipped ? kSkipped : 0;
}
