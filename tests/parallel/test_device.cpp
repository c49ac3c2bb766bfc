// Which backend a run takes: what is there, what is asked for, what does not go together.
#include "parallel/device.h"

#include <gtest/gtest.h>

#include <string>

namespace
{

struct Case {
    const char *name;
    plait_device_room room;
    plait_backend_choice backend;
    plait_comm_choice comm;
    plait_backend_choice want_backend;
    plait_comm_choice want_comm;
    const char *error; // "": none
};

constexpr plait_device_room kNone = {false, false}, kShared = {true, false}, kEach = {true, true};

const Case kCases[] = {
    {"NoGpu", kNone, PLAIT_BACKEND_AUTO, PLAIT_COMM_AUTO, PLAIT_BACKEND_CPU, PLAIT_COMM_MPI, ""},
    {"AGpuEach", kEach, PLAIT_BACKEND_AUTO, PLAIT_COMM_AUTO, PLAIT_BACKEND_CUDA, PLAIT_COMM_NCCL, ""},
    {"SharedGpus", kShared, PLAIT_BACKEND_AUTO, PLAIT_COMM_AUTO, PLAIT_BACKEND_CUDA, PLAIT_COMM_STAGED, ""},
    {"HostAskedFor", kEach, PLAIT_BACKEND_CPU, PLAIT_COMM_AUTO, PLAIT_BACKEND_CPU, PLAIT_COMM_MPI, ""},
    {"MpiKeepsTheHost", kEach, PLAIT_BACKEND_AUTO, PLAIT_COMM_MPI, PLAIT_BACKEND_CPU, PLAIT_COMM_MPI, ""},
    {"StagedAskedFor", kEach, PLAIT_BACKEND_CUDA, PLAIT_COMM_STAGED, PLAIT_BACKEND_CUDA, PLAIT_COMM_STAGED, ""},
    {"NcclOnSharedGpus", kShared, PLAIT_BACKEND_CUDA, PLAIT_COMM_NCCL, PLAIT_BACKEND_CUDA, PLAIT_COMM_NCCL,
     "more ranks than GPUs"},
    {"NcclWithoutGpus", kNone, PLAIT_BACKEND_AUTO, PLAIT_COMM_NCCL, PLAIT_BACKEND_CPU, PLAIT_COMM_NCCL,
     "not every node has a GPU"},
};

class Settle : public testing::TestWithParam<Case>
{
};

TEST_P(Settle, AsAskedAndAsThereIs)
{
    const Case &c = GetParam();
    plait_config cfg = {};
    ASSERT_EQ(plait_config_load(&cfg, nullptr, nullptr, 0), PLAIT_OK) << plait_error_text();
    cfg.device.backend = c.backend;
    cfg.comm.backend = c.comm;
    const plait_status st = plait_device_settle(&cfg, c.room);
    EXPECT_EQ(st, *c.error ? PLAIT_UNSUPPORTED : PLAIT_OK);
    if (*c.error) {
        EXPECT_NE(std::string(plait_error_text()).find(c.error), std::string::npos) << plait_error_text();
    }
    EXPECT_EQ(cfg.device.backend, c.want_backend);
    EXPECT_EQ(cfg.comm.backend, c.want_comm);
    plait_config_deinit(&cfg);
}

INSTANTIATE_TEST_SUITE_P(All, Settle, testing::ValuesIn(kCases), [](const auto &i) { return i.param.name; });

// What only the host computes keeps the tensors there.
TEST(SettleDevice, WhatIsOfTheHostKeepsItThere)
{
    for (const char *key : {"precision.dtype=fp64", "numerics.reduction=invariant", "device.kernels=cpu"}) {
        plait_config cfg = {};
        ASSERT_EQ(plait_config_load(&cfg, nullptr, &key, 1), PLAIT_OK) << plait_error_text();
        EXPECT_EQ(plait_device_settle(&cfg, kEach), PLAIT_OK) << plait_error_text();
        EXPECT_EQ(cfg.device.backend, PLAIT_BACKEND_CPU) << key;
        plait_config_deinit(&cfg);
    }
}

// What only GPUs do is refused where an auto turns out to be the host.
TEST(SettleDevice, WhatIsOfGpusNeedsOne)
{
    for (const plait_device_room &room : {kNone, kEach}) {
        plait_config cfg = {};
        const char *key = "precision.allow_tf32=true";
        ASSERT_EQ(plait_config_load(&cfg, nullptr, &key, 1), PLAIT_OK) << plait_error_text();
        const plait_status st = plait_device_settle(&cfg, room);
        EXPECT_EQ(st, room.some ? PLAIT_OK : PLAIT_UNSUPPORTED);
        if (st != PLAIT_OK) {
            EXPECT_NE(std::string(plait_error_text()).find("precision.allow_tf32 is of products on GPUs"),
                      std::string::npos)
                << plait_error_text();
        }
        plait_config_deinit(&cfg);
    }
}

} // namespace
