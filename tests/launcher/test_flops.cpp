// Model FLOPs of a token, worked out by hand from the published shapes: 6 for each weight of a matrix (2 forward, 4
// backward), 6 dq s for the causal half of core attention, the embedding none.
#include "launcher/flops.h"

#include <gtest/gtest.h>

namespace
{

struct Case {
    const char *name, *file;
    std::vector<const char *> overrides;
    int ranks;
    double want;
};

void PrintTo(const Case &c, std::ostream *os)
{
    *os << c.name;
}

class ModelFlops : public testing::TestWithParam<Case>
{
};

TEST_P(ModelFlops, OfAToken)
{
    const Case &c = GetParam();
    plait_config cfg;
    const std::string path = std::string(PLAIT_SOURCE_DIR "/configs/") + c.file;
    ASSERT_EQ(plait_config_load(&cfg, path.c_str(), c.overrides.data(), static_cast<int>(c.overrides.size())), PLAIT_OK)
        << plait_error_text();
    EXPECT_EQ(plait_config_resolve(&cfg, c.ranks), PLAIT_OK) << plait_error_text();
    EXPECT_EQ(plait_model_flops_per_token(&cfg), c.want);
    plait_config_deinit(&cfg);
}

const Case kCases[] = {
    // A layer 768 x (2304 + 768 + 2 x 3072) = 7,077,888 weights and 768 x 1024 of attention, times 6: 47,185,920; 12 of
    // them 566,231,040; logits 6 x 768 x 50,257 = 231,584,256, without the padding to 50,304.
    {"gpt2_124m", "gpt2-124m.yaml", {"model.seq_length=1024"}, 1, 797815296.0},
    // The same with attention over 64 tokens: 6 x 768 x 64 = 294,912 a layer.
    {"gpt2_124m_short", "gpt2-124m.yaml", {}, 1, 744731136.0},
    // 32 query heads and 8 key/value heads of 128: a layer 4096 x (4096 + 2 x 1024 + 4096 + 3 x 14,336) = 218,103,808
    // weights and 4096 x 8192 of attention, times 6: 1,509,949,440; 32 of them 48,318,382,080; logits 6 x 4096 x
    // 128,256 = 3,152,019,456.
    {"llama3_8b", "llama3-8b.yaml", {}, 64, 51470401536.0},
};
INSTANTIATE_TEST_SUITE_P(, ModelFlops, testing::ValuesIn(kCases),
                         [](const auto &i) { return std::string(i.param.name); });

} // namespace
