#include "tests/golden/formula.h"

#include <gtest/gtest.h>
#include <jansson.h>

namespace
{

struct Row {
    const char *name;
    std::vector<golden::Tensor> tensors;
    double clip;
};
class Golden : public testing::TestWithParam<Row>
{
  protected:
    void SetUp() override
    {
        const std::string path = std::string(PLAIT_SOURCE_DIR "/tests/golden/golden_") + GetParam().name + ".json";
        root = json_load_file(path.c_str(), 0, nullptr);
        ASSERT_NE(root, nullptr) << path;
    }
    void TearDown() override { json_decref(root); }
    json_t *root = nullptr;
};
void PrintTo(const Row &r, std::ostream *os)
{
    *os << r.name;
}

} // namespace

// The script that made the file and this header agree on names, weights and tokens: multiples of 1/1024 add up exactly.
TEST_P(Golden, FormulaIsTheScripts)
{
    int64_t i = 0;
    json_t *sums = json_object_get(root, "initial_sums");
    ASSERT_EQ(json_object_size(sums), GetParam().tensors.size());
    for (const golden::Tensor &t : GetParam().tensors) {
        int64_t numel = 1;
        for (int64_t extent : t.shape)
            numel *= extent;
        double sum = 0;
        for (int64_t k = 0; k < numel; k++)
            sum += static_cast<double>(k % 97 + 1) * golden::weight(static_cast<uint32_t>(i), t.norm_weight, k);
        EXPECT_EQ(json_number_value(json_object_get(sums, t.name.c_str())), sum) << t.name;
        i++;
    }
    int64_t tokens = 0;
    for (int s = 0; s < golden::kSteps; s++)
        for (int b = 0; b < golden::kSequences; b++)
            for (int t = 0; t <= golden::kSeq; t++)
                tokens = (tokens * 31 + golden::token(s, b, t)) % 1000003;
    EXPECT_EQ(json_integer_value(json_object_get(root, "token_hash")), tokens);
}

TEST_P(Golden, HasStepsOnBothSidesOfTheClip)
{
    json_t *steps = json_object_get(root, "steps");
    ASSERT_EQ(json_array_size(steps), static_cast<size_t>(golden::kSteps));
    int clipped = 0;
    for (size_t i = 0; i < json_array_size(steps); i++)
        clipped += json_number_value(json_object_get(json_array_get(steps, i), "grad_norm")) > GetParam().clip;
    EXPECT_GT(clipped, 0);
    EXPECT_LT(clipped, golden::kSteps);
}

INSTANTIATE_TEST_SUITE_P(, Golden,
                         testing::Values(Row{"gpt2", golden::gpt2_tensors(), golden::kClipGpt2},
                                         Row{"llama", golden::llama_tensors(), golden::kClipLlama}),
                         [](const auto &i) { return std::string(i.param.name); });
