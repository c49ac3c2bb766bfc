/* tests/launcher/plan_json.h: what `plait plan --json` prints, as records. Fields that a test does not ask for are not
 * looked at; one that it asks for and that is missing is a failure of the test.
 */
#ifndef PLAIT_TESTS_LAUNCHER_PLAN_JSON_H
#define PLAIT_TESTS_LAUNCHER_PLAN_JSON_H

#include "plait_test.h"

struct PlannedFlow {
    int64_t calls = 0, bytes = 0;
    bool operator==(const PlannedFlow &o) const { return calls == o.calls && bytes == o.bytes; }
};
std::ostream &operator<<(std::ostream &to, const PlannedFlow &f);
using PlannedFlows = std::map<std::pair<std::string, std::string>, PlannedFlow>; /* by group and operation */

/* Ranks that hold, send and do the same. */
struct PlannedClass {
    int64_t ranks = 0, first = 0, elements = 0;
    std::map<std::string, int64_t> device; /* by category, and "total" */
    std::map<std::string, int64_t> host;   /* likewise, no "total"; empty: the text is not there */
    PlannedFlows communication;
    int64_t bytes(const std::string &category) const;
};

struct PlannedRank {
    int64_t d, p, t;
    size_t class_index;
};

struct Plan {
    int64_t world = 0, tp = 0, pp = 0, dp = 0;
    std::vector<PlannedRank> ranks;
    std::vector<PlannedClass> classes;
    std::string fits; /* "true", "false", "null" */

    const PlannedClass &of(int64_t rank) const { return classes.at(ranks.at(static_cast<size_t>(rank)).class_index); }
    const PlannedClass &largest() const;
};

Plan read_plan(const std::string &text);
/* What the metrics file of a run says that a rank has sent in its last step. */
PlannedFlows counted_flows(const Metrics &m, int64_t rank);

class PlanTest : public PlaitTest
{
  protected:
    /* plait plan CONFIG OVERRIDES --json, which must end with 0, or 3 where it does not fit. ranks 0: what the
     * configuration says. */
    Plan plan(const std::string &config, const Words &overrides, int ranks = 0);
    /* The outcome of the last one. */
    Outcome planned_;
};

#endif
