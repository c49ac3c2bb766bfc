/* Pages of plans and comparisons: whole, small, and with the numbers of the JSON. */
#include "../core/printed.h"
#include "html_page.h"
#include "launcher/compare_html.h"
#include "launcher/machine_file.h"
#include "plait_test.h"

#include <jansson.h>

#include <algorithm>
#include <memory>

namespace
{

const char kMachine[] = "configs/machines/h100-sxm.yaml";

using Json = std::unique_ptr<json_t, void (*)(json_t *)>;

Json parsed(const std::string &text)
{
    return {json_loads(text.c_str(), 0, nullptr), [](json_t *j) { json_decref(j); }};
}

std::string grouped(int64_t n)
{
    std::string digits = std::to_string(n);
    for (size_t i = digits.size(); i > 3;)
        digits.insert(i -= 3, ",");
    return digits;
}

int64_t whole(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    EXPECT_TRUE(json_is_integer(value)) << key;
    return json_integer_value(value);
}

const char *const kKinds[] = {"parameters",    "gradients", "optimizer", "activations",
                              "communication", "workspace", "total"};

class CliHtml : public PlaitTest
{
  protected:
    /* Both forms of one plan. */
    void plan(const std::string &config, const Words &more, std::string *html, std::string *json)
    {
        const Outcome o = run(Words{"plan", config, "--html", "page.html", "--json"} + more);
        ASSERT_EQ(o.code, o.out.find("\"fits\":false") == std::string::npos ? 0 : 3) << o;
        *json = o.out;
        *html = read("page.html");
    }
};

void expect_memory(const Page &page, json_t *plan)
{
    const auto rows = page.table("bytes of each rank");
    json_t *classes = json_object_get(plan, "classes");
    ASSERT_EQ(rows.size(), json_array_size(classes));
    for (size_t i = 0; i < rows.size(); i++) {
        json_t *one = json_array_get(classes, i), *bytes = json_object_get(json_object_get(one, "memory"), "device");
        const int64_t first = whole(one, "first");
        json_t *coords =
            json_object_get(json_array_get(json_object_get(plan, "ranks"), static_cast<size_t>(first)), "coords");
        std::vector<std::string> want = {grouped(whole(one, "ranks")), grouped(first),
                                         "d" + std::to_string(whole(coords, "d")) + " p" +
                                             std::to_string(whole(coords, "p")) + " t" +
                                             std::to_string(whole(coords, "t")),
                                         grouped(whole(one, "elements"))};
        for (const char *kind : kKinds)
            want.push_back(grouped(whole(bytes, kind)));
        want.push_back(std::to_string(whole(json_object_get(one, "peaks"), "in_flight")));
        EXPECT_EQ(rows[i], want) << "class " << i;
    }
}

/* Every row is of the class of its rank, and every class's rows are there or those of one that sends the same. */
void expect_communication(const Page &page, json_t *plan)
{
    std::map<std::string, std::vector<std::string>> by_rank;
    std::vector<std::vector<std::string>> printed_classes;
    for (const auto &row : page.table("communication"))
        by_rank[row.at(0)].push_back(row.at(2) + " " + row.at(3) + " " + row.at(4) + " " + row.at(5));
    for (const auto &one : by_rank)
        printed_classes.push_back(one.second);
    size_t i, k;
    json_t *one, *entry;
    json_array_foreach(json_object_get(plan, "classes"), i, one)
    {
        std::vector<std::string> want;
        json_array_foreach(json_object_get(one, "communication"), k, entry)
        {
            want.push_back(std::string(json_string_value(json_object_get(entry, "group"))) + " " +
                           json_string_value(json_object_get(entry, "op")) + " " + grouped(whole(entry, "calls")) +
                           " " + grouped(whole(entry, "bytes")));
        }
        const auto own = by_rank.find(grouped(whole(one, "first")));
        if (own != by_rank.end()) {
            EXPECT_EQ(own->second, want) << "class " << i;
        }
        EXPECT_EQ(std::count(printed_classes.begin(), printed_classes.end(), want),
                  json_integer_value(json_object_get(json_object_get(plan, "topology"), "world")) > 1 ? 1 : 0)
            << "class " << i;
    }
}

void expect_time(const Page &page, json_t *predicted)
{
    const auto rows = page.table("time of each stage");
    json_t *stages = json_object_get(predicted, "stages");
    ASSERT_EQ(rows.size(), json_array_size(stages));
    double unit = 0;
    for (const std::string &head : page.texts("th"))
        unit = head == "idle, us" ? 1e6 : head == "idle, ms" ? 1e3 : head == "idle, s" ? 1 : unit;
    ASSERT_GT(unit, 0);
    EXPECT_GE(unit * json_number_value(json_object_get(predicted, "step_seconds")), 1) << "digits that say something";
    for (size_t i = 0; i < rows.size(); i++) {
        json_t *one = json_array_get(stages, i), *exposed = json_object_get(one, "exposed"), *value;
        std::vector<double> want = {json_number_value(json_object_get(one, "compute")),
                                    json_number_value(json_object_get(one, "idle"))};
        const char *group;
        json_object_foreach(exposed, group, value) want.push_back(json_number_value(value));
        want.push_back(json_number_value(json_object_get(one, "host")));
        ASSERT_EQ(rows[i].size(), 1 + want.size());
        for (size_t k = 0; k < want.size(); k++)
            EXPECT_NEAR(std::stod(rows[i][1 + k]), unit * want[k], 0.00051) << "stage " << i;
    }
}

} // namespace

TEST_F(CliHtml, PlansAreWholeAndHaveTheNumbersOfTheJson)
{
    const std::string machine = source(kMachine);
    const struct {
        const char *name;
        Words more;
        const char *says;
    } rows[] = {
        {"one rank", {}, "device.memory_limit is not set"},
        {"one rank, predicted", {"--machine", machine}, "The step in time"},
        {"pipeline",
         {"--ranks", "16", "parallelism.pp=4", "parallelism.tp=2", "zero_optimization.stage=1", "--machine", machine},
         "The pipeline in time"},
        {"chunks", {"--ranks", "2", "parallelism.pp=2", "parallelism.vpp=2", "--machine", machine}, "odd chunk"},
        {"gathered", {"--ranks", "4", "zero_optimization.stage=3"}, "gathered unit"},
        {"fits", {"--device-memory", "64MiB"}, "64 MiB, fits"},
        {"too large", {"--ranks", "2", "parallelism.tp=2", "--device-memory", "1MiB"}, "1 MiB, does not fit"},
    };
    for (const auto &r : rows) {
        SCOPED_TRACE(r.name);
        std::string html, json;
        plan(kTiny8, r.more, &html, &json);
        const Page page(html);
        const Json j = parsed(json);
        ASSERT_NE(j, nullptr);
        EXPECT_EQ(page.faults(), std::vector<std::string>());
        EXPECT_EQ(html.find("http"), std::string::npos);
        EXPECT_NE(page.text().find(r.says), std::string::npos);
        EXPECT_NE(page.text().find("at their highest there: activations of "), std::string::npos);
        expect_memory(page, j.get());
        expect_communication(page, j.get());
        json_t *predicted = json_object_get(j.get(), "predicted");
        EXPECT_EQ(page.table("time of each stage").empty(), json_is_null(predicted));
        if (!json_is_null(predicted))
            expect_time(page, predicted);
    }
}

/* 64 stages and 512 micro-batches are 65,536 boxes. */
TEST_F(CliHtml, PagesOfTheLargestPlansStaySmall)
{
    std::string html, json;
    plan(source("configs/gpt-1t.yaml"), {"--machine", source(kMachine)}, &html, &json);
    const Page page(html);
    EXPECT_EQ(page.faults(), std::vector<std::string>());
    EXPECT_LT(html.size(), size_t{2} << 20);
    const Json j = parsed(json);
    expect_memory(page, j.get());
    expect_time(page, json_object_get(j.get(), "predicted"));
    EXPECT_NE(page.text().find("Not drawn: "), std::string::npos);
    EXPECT_GT(page.count("rect", "f0"), 1000U);
}

TEST_F(CliHtml, NamesAreEscaped)
{
    const std::string name = "a <b> & \"c\" 'd' \xff.yaml";
    write(name, "model:\n  num_layers: 2\n  hidden_size: 64\n  num_attention_heads: 4\n  seq_length: 32\n  vocab_size: "
                "257\nbatch:\n  global_batch_size: 4\n  micro_batch_size: 1\n");
    std::string html, json;
    plan(name, {}, &html, &json);
    const Page page(html);
    EXPECT_EQ(page.faults(), std::vector<std::string>());
    EXPECT_EQ(page.texts("h1"), std::vector<std::string>{"a <b> & \"c\" 'd' \xef\xbf\xbd.yaml"});
    EXPECT_EQ(page.texts("title").at(0), "plait plan: " + page.texts("h1").at(0));
}

TEST_F(CliHtml, FilesThatCannotBeWrittenAreSaid)
{
    const struct {
        const char *path;
        int code;
    } rows[] = {{"no/such/page.html", 5}, {".", 5}};
    for (const auto &r : rows) {
        const Outcome o = run({"plan", kTiny8, "--html", r.path});
        EXPECT_EQ(o.code, r.code) << o;
        EXPECT_NE(o.err.find(r.path), std::string::npos) << o;
    }
    const Outcome o = run({"plan", kTiny8, "--html"});
    EXPECT_EQ(o.code, 2) << o;
    EXPECT_NE(o.err.find("--html: a value is missing"), std::string::npos) << o;
}

namespace
{

/* A comparison, a machine behind it or not, some of its variants as if they had been run. */
struct Compared {
    plait_machine machine = {};
    plait_variants v = {};

    Compared(const std::string &config, int ranks, bool predicted, const char *override)
    {
        plait_plan_request request = {};
        request.path = config.c_str();
        request.overrides = &override;
        request.num_overrides = override ? 1 : 0;
        request.ranks = ranks;
        if (predicted) {
            EXPECT_EQ(plait_machine_read(source(kMachine).c_str(), &machine), PLAIT_OK) << plait_error_text();
            request.machine = &machine;
        }
        EXPECT_EQ(plait_variants_init(&v, &request, nullptr), PLAIT_OK) << plait_error_text();
    }
    Compared(const Compared &) = delete;
    Compared &operator=(const Compared &) = delete;
    ~Compared()
    {
        plait_variants_deinit(&v);
        plait_machine_deinit(&machine);
    }
    /* The last one fails, the others take 5/4 of what was predicted. */
    void measure()
    {
        plait_variant *last = nullptr;
        for (int i = 0; i < v.num; i++) {
            plait_variant *one = &v.all[i];
            if (!one->legal)
                continue;
            last = one;
            one->measured.done = one->measured.memory_as_planned = one->measured.communication_as_planned = true;
            one->measured.step_seconds = 1.25 * one->plan.plan.prediction.step_seconds;
            one->measured.bytes = static_cast<int64_t>(plait_planned_bytes(&one->plan));
            one->measured.resident = 123456789;
        }
        ASSERT_NE(last, nullptr);
        last->measured = plait_measured();
        snprintf(last->measured.failure, sizeof last->measured.failure, "code 3: <out> of & \"memory\"");
    }
    std::string html(const char *title = "compared") const
    {
        return printed([&](FILE *out) { plait_compare_html(&v, title, out); });
    }
};

void expect_variants(const Page &page, const plait_variants &v)
{
    const auto rows = page.table("bytes"), illegal = page.table("not possible");
    size_t legal = 0, not_legal = 0;
    for (int i = 0; i < v.num; i++) {
        const plait_variant &one = v.all[i];
        if (!one.legal) {
            ASSERT_LT(not_legal, illegal.size());
            EXPECT_EQ(illegal[not_legal++], (std::vector<std::string>{one.name, one.reason}));
            continue;
        }
        const plait_rank_class *c = plait_rank_plan_largest(&one.plan.plan);
        std::vector<std::string> want = {one.name,
                                         std::to_string(one.plan.cfg.batch.accumulation) + " x " +
                                             std::to_string(one.plan.cfg.batch.micro_batch_size),
                                         grouped(static_cast<int64_t>(c->total)), grouped(one.volume)};
        for (size_t bytes : c->bytes)
            want.push_back(grouped(static_cast<int64_t>(bytes)));
        ASSERT_LT(legal, rows.size());
        EXPECT_EQ(rows[legal++], want);
    }
    EXPECT_EQ(legal, rows.size());
    EXPECT_EQ(not_legal, illegal.size());
}

} // namespace

TEST_F(CliHtml, ComparisonsNameEveryVariant)
{
    const struct {
        const char *name;
        int ranks;
        bool predicted, measured;
        const char *override;
    } rows[] = {
        {"one rank", 1, true, false, nullptr},
        {"planned", 8, false, false, nullptr},
        {"limited", 8, true, false, "device.memory_limit=34MiB"},
        {"measured", 8, true, true, nullptr},
        {"one is possible", 13, true, false, "model.num_layers=6"},
    };
    for (const auto &r : rows) {
        SCOPED_TRACE(r.name);
        Compared c(kTiny8, r.ranks, r.predicted, r.override);
        if (r.measured)
            c.measure();
        const std::string html = c.html();
        const Page page(html);
        EXPECT_EQ(page.faults(), std::vector<std::string>());
        EXPECT_EQ(html.find("http"), std::string::npos);
        expect_variants(page, c.v);
        size_t pipelines = 0, times = 0;
        for (int i = 0; i < c.v.num; i++) {
            times += r.predicted && c.v.all[i].legal;
            pipelines += r.predicted && c.v.all[i].legal && c.v.all[i].pp > 1;
        }
        EXPECT_EQ(page.count("div", "time"), pipelines);
        EXPECT_EQ(page.table("times").size(), times);
    }
}

TEST_F(CliHtml, ComparisonsOfNothingSayWhy)
{
    Compared c(kTiny8, 13, true, nullptr);
    for (int i = 0; i < c.v.num; i++) {
        if (c.v.all[i].legal)
            snprintf(c.v.all[i].reason, sizeof c.v.all[i].reason, "no <rank>");
        c.v.all[i].legal = false;
    }
    c.v.num_illegal = c.v.num;
    const Page page(c.html());
    EXPECT_EQ(page.faults(), std::vector<std::string>());
    expect_variants(page, c.v);
    EXPECT_EQ(page.count("svg"), 0U);
}

TEST_F(CliHtml, PredictionsStandBesideMeasurements)
{
    Compared c(kTiny8, 8, true, nullptr);
    c.measure();
    const Page page(c.html());
    const auto rows = page.table("times");
    ASSERT_GT(rows.size(), 3U);
    for (size_t i = 0; i + 1 < rows.size(); i++) {
        EXPECT_NEAR(std::stod(rows[i].at(5)) / std::stod(rows[i].at(1)), 1.25, 2e-3);
        EXPECT_EQ(rows[i].at(6), "-20.0");
        EXPECT_EQ(rows[i].at(8), "123,456,789");
        EXPECT_EQ(rows[i].at(9), "yes");
    }
    EXPECT_EQ(rows.back().at(9), "code 3: <out> of & \"memory\"");
    EXPECT_EQ(page.count("rect", "measured"), rows.size() - 1);
    EXPECT_NE(page.text().find("predicted -20.0 %"), std::string::npos);
    EXPECT_NE(page.text().find("not measured"), std::string::npos);
}

TEST_F(CliHtml, ComparisonsAreFilesThatStaySmall)
{
    const Compared c(source("configs/llama3-8b.yaml"), 16, true, "device.memory_limit=80GiB");
    ASSERT_EQ(plait_compare_html_write(&c.v, "<title>", path("page.html").c_str()), PLAIT_OK) << plait_error_text();
    const std::string html = read("page.html");
    const Page page(html);
    EXPECT_EQ(html, c.html("<title>"));
    EXPECT_EQ(page.faults(), std::vector<std::string>());
    EXPECT_EQ(page.texts("h1"), std::vector<std::string>{"<title>"});
    EXPECT_LT(html.size(), size_t{2} << 20);
    expect_variants(page, c.v);
    EXPECT_EQ(plait_compare_html_write(&c.v, "", path("no/such/page.html").c_str()), PLAIT_IO);
}
