/* tests/models/planned_model.h: a configuration and the plan of all its ranks, in this process: no MPI, no memory. */
#ifndef PLAIT_TESTS_PLANNED_MODEL_H
#define PLAIT_TESTS_PLANNED_MODEL_H

#include "../words.h"
#include "parallel/rank_plan.h"

#include <cstdint>
#include <string>

class PlannedModel
{
  public:
    /* file: under configs/; "": the defaults. world 0: what the configuration says. */
    PlannedModel(const std::string &file, const Words &overrides, int world = 0,
                 const plait_machine *machine = nullptr);
    ~PlannedModel();
    PlannedModel(const PlannedModel &) = delete;
    PlannedModel &operator=(const PlannedModel &) = delete;

    bool ok() const { return ok_; } /* what went wrong is a failure of the test */
    const plait_config &cfg() const { return cfg_; }
    const plait_rank_plan &plan() const { return plan_; }
    const plait_topology &topo() const { return plan_.topo; }
    /* The class of the rank with these coordinates. */
    const plait_rank_class &at(int d, int p, int t) const;
    const plait_rank_class &stage(int p) const { return at(0, p, 0); }
    int64_t bytes(int p, plait_mem_kind kind) const { return static_cast<int64_t>(stage(p).bytes[kind]); }
    /* Parameters of the whole model, each once; padding of the vocabulary is not one. */
    int64_t parameters() const;
    /* Elements of each unit of a rank, in their order. */
    std::vector<int64_t> units(int p, int t = 0) const;

  private:
    plait_config cfg_ = {};
    plait_rank_plan plan_ = {};
    bool loaded_ = false, ok_ = false;
};

/* key=value */
template <typename T> std::string set(const std::string &key, T value)
{
    return key + "=" + std::to_string(value);
}

#endif
