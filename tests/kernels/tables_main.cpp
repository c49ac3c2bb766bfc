// main() of the programs that test a group of tables: a group that this machine lacks is skipped, not passed, and
// nothing to run is a failure.
#include <cstdio>
#include <gtest/gtest.h>

#include "tests/kernels/tables.h"

int main(int argc, char **argv)
{
    constexpr int kSkipped = 77; // SKIP_RETURN_CODE
    if (tables().empty())
        return kSkipped;
    testing::InitGoogleTest(&argc, argv);
    const int failed = RUN_ALL_TESTS();
    if (testing::UnitTest::GetInstance()->test_to_run_count() == 0 && !testing::GTEST_FLAG(list_tests)) {
        std::fprintf(stderr, "no test was run\n");
        return 1;
    }
    return failed;
}
