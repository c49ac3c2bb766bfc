#include "metrics_file.h"

#include <gtest/gtest.h>
#include <jansson.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>

namespace
{

/* One JSON object whose fields are taken one by one; what is left or missing at the end is a failure. */
class Object
{
  public:
    Object(json_t *object, const std::string &where) : object_(object), where_(where)
    {
        if (!json_is_object(object))
            ADD_FAILURE() << where << ": no object";
    }
    ~Object()
    {
        const char *name;
        json_t *value;
        json_object_foreach(object_, name, value)
        {
            if (!taken_.count(name))
                ADD_FAILURE() << where_ << ": unknown field " << name;
        }
    }
    json_t *field(const std::string &name)
    {
        taken_.insert(name);
        json_t *value = json_object_get(object_, name.c_str());
        if (!value)
            ADD_FAILURE() << where_ << ": no field " << name;
        return value;
    }
    int64_t integer(const std::string &name)
    {
        json_t *value = field(name);
        if (!json_is_integer(value))
            ADD_FAILURE() << where_ << ": " << name << " is no whole number";
        return json_integer_value(value);
    }
    double number(const std::string &name)
    {
        json_t *value = field(name);
        if (json_is_null(value))
            return NAN;
        if (!json_is_number(value))
            ADD_FAILURE() << where_ << ": " << name << " is no number";
        return json_number_value(value);
    }
    std::string text(const std::string &name)
    {
        json_t *value = field(name);
        if (!json_is_string(value))
            ADD_FAILURE() << where_ << ": " << name << " is no string";
        return json_is_string(value) ? json_string_value(value) : "";
    }
    bool has(const std::string &name) const { return json_object_get(object_, name.c_str()); }

  private:
    json_t *object_;
    std::string where_;
    std::set<std::string> taken_;
};

void read_step(Object &o, const std::string &where, Metrics &m)
{
    StepLine s{};
    s.step = o.integer("step");
    double loss = o.number("loss");
    std::string hex = o.text("loss_hex");
    s.loss = strtod(hex.c_str(), nullptr);
    EXPECT_TRUE(s.loss == loss || (std::isnan(loss) && !std::isfinite(s.loss))) << where << ": " << loss << ", " << hex;
    if (std::isfinite(loss)) {
        EXPECT_NE(hex.find("0x"), std::string::npos) << where;
    }
    s.grad_norm = o.number("grad_norm");
    s.lr = o.number("lr");
    s.loss_scale = o.number("loss_scale");
    s.skipped = o.integer("skipped");
    EXPECT_TRUE(s.skipped == 0 || s.skipped == 1) << where;
    s.counted_tokens = o.integer("counted_tokens");
    s.tokens_per_second = o.number("tokens_per_second");
    s.step_seconds = o.number("step_seconds");
    EXPECT_EQ(s.step, static_cast<int64_t>(m.steps.size()) + 1) << where;
    EXPECT_FALSE(m.ended) << where << ": a step after the end";
    m.steps.push_back(s);
}

void read_eval(Object &o, const std::string &where, Metrics &m)
{
    Object e(o.field("eval"), where + ", eval");
    EvalLine line{};
    line.after_step = e.integer("after_step");
    line.loss = e.number("loss");
    EXPECT_EQ(line.after_step, static_cast<int64_t>(m.steps.size())) << where;
    m.evals.push_back(line);
}

void read_end(Object &o, const std::string &where, Metrics &m)
{
    size_t i;
    json_t *row = nullptr;
    json_array_foreach(o.field("memory"), i, row)
    {
        std::string at = where + ", memory " + std::to_string(i);
        Object r(row, at);
        Object c(r.field("coords"), at + ", coords");
        m.memory.push_back({r.integer("rank"), c.integer("d"), c.integer("p"), c.integer("t"), r.text("tier"),
                            r.text("category"), r.integer("planned"), r.integer("high_water")});
    }
    json_array_foreach(o.field("communication"), i, row)
    {
        Object r(row, where + ", communication " + std::to_string(i));
        m.traffic.push_back({r.integer("rank"), r.text("group"), r.text("op"), r.integer("calls"), r.integer("bytes")});
    }
    json_array_foreach(o.field("resident"), i, row)
    {
        Object r(row, where + ", resident " + std::to_string(i));
        m.resident.push_back({r.integer("rank"), r.integer("before"), r.integer("peak"), r.integer("others")});
    }
    m.fingerprint = o.text("fingerprint");
    EXPECT_TRUE(m.fingerprint.size() == 16 && m.fingerprint.find_first_not_of("0123456789abcdef") == std::string::npos)
        << where << ": " << m.fingerprint;
    EXPECT_FALSE(m.ended) << where << ": a second end";
    m.ended = true;
}

template <typename Get> std::vector<double> column(const std::vector<StepLine> &steps, Get get)
{
    std::vector<double> out;
    for (const StepLine &s : steps)
        out.push_back(get(s));
    return out;
}

} // namespace

std::vector<double> Metrics::losses() const
{
    return column(steps, [](const StepLine &s) { return s.loss; });
}
std::vector<double> Metrics::norms() const
{
    return column(steps, [](const StepLine &s) { return s.grad_norm; });
}
std::vector<double> Metrics::rates() const
{
    return column(steps, [](const StepLine &s) { return s.lr; });
}

int64_t Metrics::planned(int64_t rank, const std::string &category) const
{
    int64_t sum = 0;
    for (const MemoryRow &r : memory)
        if (r.rank == rank && r.tier == "device" && (category.empty() || r.category == category))
            sum += r.planned;
    return sum;
}

int64_t Metrics::high_water(int64_t rank) const
{
    int64_t sum = 0;
    for (const MemoryRow &r : memory)
        sum += r.rank == rank ? r.high_water : 0;
    return sum;
}

Metrics read_metrics(const std::string &path)
{
    Metrics m;
    std::ifstream in(path, std::ios::binary);
    EXPECT_TRUE(in.good()) << path << ": not there";
    std::string line;
    for (int number = 1; std::getline(in, line); number++) {
        std::string where = "metrics line " + std::to_string(number);
        json_error_t error;
        json_t *root = json_loads(line.c_str(), JSON_REJECT_DUPLICATES, &error);
        if (!root) {
            ADD_FAILURE() << where << ": " << error.text << ": " << line;
            continue;
        }
        {
            Object o(root, where);
            if (o.has("step"))
                read_step(o, where, m);
            else if (o.has("eval"))
                read_eval(o, where, m);
            else
                read_end(o, where, m);
        }
        json_decref(root);
    }
    return m;
}
