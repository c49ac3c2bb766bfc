#include "plan_json.h"

#include <jansson.h>

namespace
{

json_t *field(json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    if (!value)
        ADD_FAILURE() << "the plan has no field " << name;
    return value;
}

int64_t integer(json_t *object, const char *name)
{
    json_t *value = field(object, name);
    if (!json_is_integer(value))
        ADD_FAILURE() << "the plan's " << name << " is no whole number";
    return json_integer_value(value);
}

std::string text_field(json_t *object, const char *name)
{
    const char *value = json_string_value(field(object, name));
    if (!value)
        ADD_FAILURE() << "the plan's " << name << " is no text";
    return value ? value : "";
}

std::map<std::string, int64_t> integers(json_t *object)
{
    std::map<std::string, int64_t> all;
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value) all[name] = integer(object, name);
    return all;
}

PlannedClass read_class(json_t *c)
{
    PlannedClass out;
    out.ranks = integer(c, "ranks");
    out.first = integer(c, "first");
    out.elements = integer(c, "elements");
    json_t *memory = field(c, "memory");
    out.device = integers(field(memory, "device"));
    out.host = integers(field(memory, "host"));
    size_t i;
    json_t *row;
    json_array_foreach(field(c, "communication"), i, row)
        out.communication[{text_field(row, "group"), text_field(row, "op")}] = {integer(row, "calls"),
                                                                                integer(row, "bytes")};
    return out;
}

} // namespace

std::ostream &operator<<(std::ostream &to, const PlannedFlow &f)
{
    return to << f.calls << " calls, " << f.bytes << " bytes";
}

int64_t PlannedClass::bytes(const std::string &category) const
{
    const auto found = device.find(category);
    if (found == device.end())
        ADD_FAILURE() << "the plan has no " << category;
    return found == device.end() ? -1 : found->second;
}

const PlannedClass &Plan::largest() const
{
    const PlannedClass *most = &classes.at(0);
    for (const PlannedClass &c : classes)
        if (c.bytes("total") > most->bytes("total"))
            most = &c;
    return *most;
}

Plan read_plan(const std::string &text)
{
    Plan p;
    json_error_t error;
    json_t *root = json_loads(text.c_str(), JSON_REJECT_DUPLICATES, &error), *row;
    if (!root) {
        ADD_FAILURE() << error.text << ": " << text;
        return p;
    }
    json_t *topology = field(root, "topology");
    p.world = integer(topology, "world");
    p.tp = integer(topology, "tp");
    p.pp = integer(topology, "pp");
    p.dp = integer(topology, "dp");
    size_t i;
    json_array_foreach(field(root, "classes"), i, row) p.classes.push_back(read_class(row));
    json_array_foreach(field(root, "ranks"), i, row)
    {
        json_t *at = field(row, "coords");
        EXPECT_EQ(integer(row, "rank"), static_cast<int64_t>(i));
        p.ranks.push_back(
            {integer(at, "d"), integer(at, "p"), integer(at, "t"), static_cast<size_t>(integer(row, "class"))});
    }
    json_t *fits = field(root, "fits");
    p.fits = json_is_null(fits) ? "null" : json_is_true(fits) ? "true" : "false";
    json_decref(root);
    EXPECT_EQ(p.ranks.size(), static_cast<size_t>(p.world));
    return p;
}

PlannedFlows counted_flows(const Metrics &m, int64_t rank)
{
    PlannedFlows all;
    for (const TrafficRow &r : m.traffic)
        if (r.rank == rank)
            all[{r.group, r.op}] = {r.calls, r.bytes};
    return all;
}

Plan PlanTest::plan(const std::string &config, const Words &overrides, int ranks)
{
    const Words count = ranks > 0 ? Words{"--ranks", std::to_string(ranks)} : Words{};
    planned_ = run(Words{"plan", config, "--json"} + count + overrides);
    const bool fits = planned_.out.find("\"fits\":false") == std::string::npos;
    EXPECT_EQ(planned_.code, fits ? 0 : 3) << planned_;
    EXPECT_EQ(planned_.err.compare(0, 40, fits ? "" : "plait: out of memory: the plan does not "), 0) << planned_;
    return read_plan(planned_.out);
}
