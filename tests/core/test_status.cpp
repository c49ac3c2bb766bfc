#include "core/status.h"

#include <gtest/gtest.h>

#include <string>

static plait_status fails(int n)
{
    PLAIT_FAIL(IO, "file %d is gone", n);
}

static plait_status passes_on(int n)
{
    PLAIT_TRY(fails(n));
    return PLAIT_OK;
}

static plait_status holds_something(bool *let_go)
{
    plait_status st = PLAIT_OK;
    PLAIT_TRY_TO(done, st, passes_on(3));
done:
    *let_go = true;
    return st;
}

TEST(Status, TheRecordSaysWhatAndWhere)
{
    bool let_go = false;
    EXPECT_EQ(holds_something(&let_go), PLAIT_IO);
    EXPECT_TRUE(let_go);
    EXPECT_STREQ(plait_error_text(), "file 3 is gone");
    std::string trace = plait_error_trace_text();
    EXPECT_NE(trace.find("test_status.cpp:"), std::string::npos);
    EXPECT_NE(trace.find("(passes_on)"), std::string::npos);
    EXPECT_NE(trace.find("(holds_something)"), std::string::npos);
}

TEST(Status, ExitCodesAreTheUserInterface)
{
    EXPECT_EQ(plait_status_exit_code(PLAIT_OK), 0);
    EXPECT_EQ(plait_status_exit_code(PLAIT_USAGE), 2);
    EXPECT_EQ(plait_status_exit_code(PLAIT_UNSUPPORTED), 2);
    EXPECT_EQ(plait_status_exit_code(PLAIT_OUT_OF_MEMORY), 3);
    EXPECT_EQ(plait_status_exit_code(PLAIT_NUMERIC), 4);
    EXPECT_EQ(plait_status_exit_code(PLAIT_IO), 5);
    EXPECT_EQ(plait_status_exit_code(PLAIT_PEER), 6);
    EXPECT_EQ(plait_status_exit_code(PLAIT_STOPPED), 7);
    EXPECT_EQ(plait_status_exit_code(PLAIT_DIFFERENT), 8);
}

TEST(Status, APrefixSaysWhereAndKeepsTheTrace)
{
    EXPECT_EQ(passes_on(4), PLAIT_IO);
    std::string trace = plait_error_trace_text();
    plait_error_prefix("step %d: ", 12);
    EXPECT_STREQ(plait_error_text(), "step 12: file 4 is gone");
    EXPECT_EQ(plait_error_trace_text(), trace);
    EXPECT_EQ(plait_error_status(), PLAIT_IO);
}
