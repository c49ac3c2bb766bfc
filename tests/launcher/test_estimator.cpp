// Numbers that DeepSpeed's estimator printed, in GiB with two digits, for models whose sizes it prints in millions.
#include "launcher/estimator.h"

#include <gtest/gtest.h>

#include <string>

namespace
{

constexpr double kGiB = 1 << 30;

plait_estimate of(const plait_estimate_request &r)
{
    plait_estimate e = {-1, -1};
    EXPECT_EQ(plait_estimate_states(&r, &e), PLAIT_OK) << plait_error_text();
    return e;
}

// What it prints of stage 3, in the order in which it prints it: offload of parameters and optimizer, of the optimizer,
// of nothing, each with zero_init and without. host, device.
struct Printed {
    const char *name;
    int64_t params, largest; // millions
    int gpus;
    double gib[6][2];
};
const Printed kPrinted[] = {
    // deepspeedai/DeepSpeed issue 4527
    {"6805M",
     6805,
     131,
     4,
     {{171.13, 0.49}, {171.13, 0.49}, {152.11, 3.66}, {152.11, 3.66}, {2.93, 29.01}, {152.11, 29.01}}},
    // T0 3B, in the documentation of Transformers
    {"2783M", 2783, 65, 1, {{70.00, 0.25}, {70.00, 0.25}, {62.23, 5.43}, {62.23, 5.43}, {0.37, 46.91}, {15.56, 46.91}}},
    // T5 small
    {"60M", 60, 16, 1, {{1.52, 0.06}, {1.52, 0.06}, {1.35, 0.17}, {1.35, 0.17}, {0.09, 1.08}, {0.34, 1.08}}},
};

TEST(Estimator, Stage3IsWhatIsPrinted)
{
    for (const Printed &p : kPrinted)
        for (int row = 0; row < 6; row++) {
            SCOPED_TRACE(std::string(p.name) + ", row " + std::to_string(row));
            // Sizes are millions and cut or rounded, so either may be one larger; numbers are rounded.
            const auto estimate = [&](int64_t more) {
                plait_estimate_request r = {};
                r.params = (p.params + more) * 1000000;
                r.largest_layer_params = (p.largest + more) * 1000000;
                r.gpus_per_node = p.gpus;
                r.nodes = 1;
                r.stage = 3;
                r.offload_parameters = row < 2;
                r.offload_optimizer = row < 4;
                r.zero_init = row % 2 == 0;
                return of(r);
            };
            const plait_estimate low = estimate(0), high = estimate(1);
            EXPECT_GE(p.gib[row][0], static_cast<double>(low.host_bytes) / kGiB - 0.005);
            EXPECT_LE(p.gib[row][0], static_cast<double>(high.host_bytes) / kGiB + 0.005);
            EXPECT_GE(p.gib[row][1], static_cast<double>(low.device_bytes) / kGiB - 0.005);
            EXPECT_LE(p.gib[row][1], static_cast<double>(high.device_bytes) / kGiB + 0.005);
        }
}

plait_estimate_request request(int stage, int gpus, int nodes)
{
    plait_estimate_request r = {};
    r.params = 1000000;
    r.largest_layer_params = 1000;
    r.gpus_per_node = gpus;
    r.nodes = nodes;
    r.stage = stage;
    r.zero_init = true;
    return r;
}

// Worked out by hand, a million parameters: what goes over nodes, and what over all GPUs.
TEST(Estimator, BytesOfAMillionParameters)
{
    plait_estimate_request r = request(2, 4, 2);
    EXPECT_EQ(of(r).device_bytes, 2000000 + 18000000 / 8);
    EXPECT_EQ(of(r).host_bytes, 4 * 4 * 1500000);
    r.offload_optimizer = true;
    EXPECT_EQ(of(r).device_bytes, 2000000);
    EXPECT_EQ(of(r).host_bytes, 4 * 8 * 1500000); // more than 16
    r = request(2, 1, 1);
    r.offload_optimizer = true;
    EXPECT_EQ(of(r).host_bytes, 16 * 1500000);

    r = request(3, 4, 2);
    EXPECT_EQ(of(r).device_bytes, 4000 + 18000000 / 8);
    EXPECT_EQ(of(r).host_bytes, 4 * 4 * 1500);
    r.zero_init = false;
    EXPECT_EQ(of(r).host_bytes, 4 * 4 * 1500000);
    r.offload_optimizer = true;
    EXPECT_EQ(of(r).device_bytes, 4000 + 2000000 / 8);
    EXPECT_EQ(of(r).host_bytes, 16 * 1500000); // 4 x 4 whole models on a node; its part of the states are 8
    r.zero_init = true;
    EXPECT_EQ(of(r).host_bytes, 8 * 1500000);
    r.offload_parameters = true;
    EXPECT_EQ(of(r).device_bytes, 4000);
    EXPECT_EQ(of(r).host_bytes, 9 * 1500000);
}

TEST(Estimator, LargeModelsDoNotOverflow)
{
    plait_estimate_request r = request(3, 8, 384);
    r.params = 1000000000000; // a trillion
    r.largest_layer_params = 8000000000;
    EXPECT_EQ(of(r).device_bytes, 32000000000 + 18000000000000 / 3072);
    r.offload_optimizer = r.offload_parameters = true;
    EXPECT_NEAR(static_cast<double>(of(r).host_bytes), 18e12 / 384 * 1.5, 1);
}

TEST(Estimator, RefusesWhatItHasNoRulesFor)
{
    const auto refused = [](const plait_estimate_request &r, const char *says) {
        plait_estimate e;
        EXPECT_EQ(plait_estimate_states(&r, &e), PLAIT_USAGE);
        EXPECT_NE(std::string(plait_error_text()).find(says), std::string::npos) << plait_error_text();
    };
    refused(request(1, 4, 1), "not for 1");
    refused(request(2, 0, 1), "at least one");
    refused(request(2, 1, 0), "at least one");
    plait_estimate_request r = request(3, 4, 1);
    r.offload_parameters = true;
    refused(r, "together with the optimizer");
    r.stage = 2;
    r.offload_optimizer = true;
    refused(r, "at stage 3");
}

} // namespace
