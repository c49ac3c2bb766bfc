#include "core/log.h"

#include <gtest/gtest.h>

#include <string>

TEST(Log, WritesOneLineWithPrefixAndWord)
{
    testing::internal::CaptureStderr();
    plait_log(PLAIT_LOG_INFO, "before %d", 1);
    plait_log_set_prefix("[d0 p1 t0] ");
    plait_log(PLAIT_LOG_ERROR, "lost %s", "it");
    plait_log(PLAIT_LOG_WARN, "slow");
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "before 1\n[d0 p1 t0] error: lost it\n[d0 p1 t0] warning: slow\n");
}

TEST(Log, CutsLinesThatAreTooLong)
{
    testing::internal::CaptureStderr();
    plait_log_set_prefix(std::string(1000, 'p').c_str());
    plait_log(PLAIT_LOG_INFO, "%s", std::string(100000, 'x').c_str());
    std::string text = testing::internal::GetCapturedStderr();
    EXPECT_LT(text.size(), 21000u);
    EXPECT_EQ(text.back(), '\n');
    EXPECT_EQ(text.find('\n'), text.size() - 1);
    plait_log_set_prefix("");
}
