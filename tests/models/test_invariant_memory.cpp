// What numerics.reduction invariant holds besides: nothing that its `fast` run would not gather, copies of key/value
// heads that every slice has for itself, and gradients as integers. From the layout, of each rank of the grid.
#include "../words.h"
#include "models/registry.h"
#include "parallel/layout.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace
{

constexpr int kSlices = 8;
// The vocabulary is a unit a slice, in the token matrix and in the head: their shards are aligned each for itself.
constexpr size_t kAlignment = (size_t)2 * kSlices * PLAIT_MEM_ALIGN;

struct Held {
    size_t bytes[PLAIT_MEM_KINDS];
    int64_t largest_unit, elements; // of the parameter list
};

class InvariantMemory : public testing::TestWithParam<int>
{
  protected:
    // The layout of the first tensor rank of T1 with these overrides, its vocabulary padded for eight slices in both
    // modes.
    static Held layout_of(const Words &overrides, bool invariant)
    {
        Words all = overrides + Words{"model.make_vocab_size_divisible_by=8"};
        if (invariant)
            all = all + Words{"numerics.reduction=invariant", "numerics.tensor_slices=" + std::to_string(kSlices)};
        std::vector<const char *> texts;
        for (const std::string &o : all)
            texts.push_back(o.c_str());
        Held held = {};
        plait_config cfg = {};
        plait_topology topo;
        plait_param_list list = {};
        plait_schedule_set schedules = {};
        plait_layout layout = {};
        const plait_run_shape shape = {};
        EXPECT_EQ(plait_config_load(&cfg, PLAIT_SOURCE_DIR "/configs/tiny8.yaml", texts.data(), (int)texts.size()),
                  PLAIT_OK);
        EXPECT_EQ(plait_config_resolve(&cfg, 8), PLAIT_OK) << plait_error_text();
        EXPECT_EQ(plait_topology_of(&cfg, 8, 0, &topo), PLAIT_OK) << plait_error_text();
        const plait_model_ops *model = plait_model_find(cfg.model.arch);
        EXPECT_EQ(model->params(&cfg, &topo, &list), PLAIT_OK) << plait_error_text();
        EXPECT_EQ(plait_schedule_set_init(&schedules, &cfg, &topo, &shape), PLAIT_OK) << plait_error_text();
        EXPECT_EQ(plait_layout_init(&layout, &cfg, &topo, model, &list, &schedules, &shape), PLAIT_OK)
            << plait_error_text();
        std::copy(layout.bytes, layout.bytes + PLAIT_MEM_KINDS, held.bytes);
        for (int i = 0; i < list.num_units; i++)
            held.largest_unit = std::max(held.largest_unit, list.units[i].numel);
        held.elements = plait_param_list_numel(&list);
        plait_layout_deinit(&layout);
        plait_schedule_set_deinit(&schedules);
        plait_param_list_deinit(&list);
        plait_config_deinit(&cfg);
        return held;
    }

    Words tensor_ranks() const { return {"parallelism.tp=" + std::to_string(GetParam())}; }

    // Elements of copies: 4 key/value heads of 8 channels, in each of 8 layers, keys and values, of hidden size 64.
    int64_t copies() const
    {
        const int held_by_slices = kSlices / GetParam(), heads = std::max(1, 4 / GetParam());
        return (int64_t)(held_by_slices - heads) * 8 * 8 * 2 * 64;
    }
};

TEST_P(InvariantMemory, ParametersAreThoseOfFastAndCopiesOfHeads)
{
    for (const Words &type : {Words{"precision.dtype=fp32"}, Words{"precision.dtype=bf16"}}) {
        SCOPED_TRACE(type[0]);
        const Held fast = layout_of(tensor_ranks() + type, false), invariant = layout_of(tensor_ranks() + type, true);
        const size_t size = type[0] == "precision.dtype=fp32" ? 4 : 2;
        EXPECT_EQ(invariant.elements, fast.elements + copies());
        EXPECT_EQ(invariant.bytes[PLAIT_MEM_PARAM], fast.bytes[PLAIT_MEM_PARAM] + (size_t)copies() * size);
    }
}

// Gathered units too: with as many heads as slices there are no copies, and nothing more is held at stage 3.
TEST_P(InvariantMemory, GatheredUnitsAreThoseOfFast)
{
    const Words heads = {"model.num_query_groups=8"};
    for (const char *stage : {"0", "1", "2", "3"}) {
        SCOPED_TRACE(stage);
        const Words all = tensor_ranks() + heads + Words{std::string("zero_optimization.stage=") + stage};
        const Held fast = layout_of(all, false), invariant = layout_of(all, true);
        EXPECT_NEAR((double)invariant.bytes[PLAIT_MEM_PARAM], (double)fast.bytes[PLAIT_MEM_PARAM], (double)kAlignment);
        EXPECT_NEAR((double)invariant.bytes[PLAIT_MEM_OPTIM], (double)fast.bytes[PLAIT_MEM_OPTIM],
                    2.0 * (double)kAlignment); // two moments
        EXPECT_LE(invariant.largest_unit, fast.largest_unit);
    }
}

TEST_P(InvariantMemory, GradientsAreIntegersAndALeaf)
{
    const Words heads = {"model.num_query_groups=8"};
    for (const char *stage : {"0", "1", "2", "3"}) {
        SCOPED_TRACE(stage);
        const Words all = tensor_ranks() + heads + Words{std::string("zero_optimization.stage=") + stage};
        const Held fast = layout_of(all, false), invariant = layout_of(all, true);
        const size_t leaf = (size_t)invariant.largest_unit * sizeof(float);
        EXPECT_NEAR((double)invariant.bytes[PLAIT_MEM_GRAD], (double)(2 * fast.bytes[PLAIT_MEM_GRAD] + leaf),
                    (double)kAlignment);
    }
}

INSTANTIATE_TEST_SUITE_P(, InvariantMemory, testing::Values(1, 2, 4, 8),
                         [](const auto &i) { return "tp" + std::to_string(i.param); });

} // namespace
