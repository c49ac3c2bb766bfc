#include "planned_model.h"

#include "models/registry.h"

#include <gtest/gtest.h>

PlannedModel::PlannedModel(const std::string &file, const Words &overrides, int world, const plait_machine *machine)
{
    std::vector<const char *> texts;
    for (const std::string &o : overrides)
        texts.push_back(o.c_str());
    const std::string path = PLAIT_SOURCE_DIR "/configs/" + file;
    const auto make = [&]() -> plait_status {
        PLAIT_TRY(plait_config_load(&cfg_, file.empty() ? nullptr : path.c_str(), texts.data(),
                                    static_cast<int>(texts.size())));
        loaded_ = true;
        if (world == 0)
            PLAIT_TRY(plait_config_natural_world(&cfg_, &world));
        PLAIT_TRY(plait_config_resolve(&cfg_, world));
        const plait_run_shape shape = {};
        return plait_rank_plan_init(&plan_, &cfg_, world, plait_model_find(cfg_.model.arch), &shape, machine);
    };
    ok_ = make() == PLAIT_OK;
    EXPECT_TRUE(ok_) << plait_error_text();
}

PlannedModel::~PlannedModel()
{
    plait_rank_plan_deinit(&plan_);
    if (loaded_)
        plait_config_deinit(&cfg_);
}

const plait_rank_class &PlannedModel::at(int d, int p, int t) const
{
    return plan_.classes[plan_.class_of[plait_topology_rank_of(&plan_.topo, d, p, t)]];
}

namespace
{

/* The parameter list of one rank, for body(list). */
template <typename Body> void with_list(const plait_config &cfg, const plait_topology &there, const Body &body)
{
    plait_param_list list = {};
    EXPECT_EQ(plait_model_find(cfg.model.arch)->params(&cfg, &there, &list), PLAIT_OK) << plait_error_text();
    body(list);
    plait_param_list_deinit(&list);
}

} // namespace

int64_t PlannedModel::parameters() const
{
    int64_t sum = 0;
    for (int p = 0; p < plan_.topo.pp; p++)
        for (int t = 0; t < plan_.topo.tp; t++)
            with_list(cfg_, plait_topology_at(&plan_.topo, plait_topology_rank_of(&plan_.topo, 0, p, t)),
                      [&](const plait_param_list &list) { sum += plait_param_list_counted(&list); });
    return sum;
}

std::vector<int64_t> PlannedModel::units(int p, int t) const
{
    std::vector<int64_t> sizes;
    with_list(cfg_, plait_topology_at(&plan_.topo, plait_topology_rank_of(&plan_.topo, 0, p, t)),
              [&](const plait_param_list &list) {
                  for (int i = 0; i < list.num_units; i++)
                      sizes.push_back(list.units[i].numel);
              });
    return sizes;
}
