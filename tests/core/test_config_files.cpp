/* The files that ship with Plait, and what is printed. */
#include "config_test.h"

#include <jansson.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <sys/stat.h>

namespace
{
const std::string kRoot = PLAIT_SOURCE_DIR;

std::string text_of_file(const std::string &path)
{
    std::stringstream s;
    s << std::ifstream(path, std::ios::binary).rdbuf();
    return s.str();
}
} // namespace

struct Shipped {
    const char *name;
    int world;
    int64_t accumulation;
};
class ConfigShipped : public testing::TestWithParam<Shipped>
{
};

TEST_P(ConfigShipped, ResolvesWithItsNaturalWorld)
{
    plait_config cfg;
    int world;
    std::string path = kRoot + "/configs/" + GetParam().name + ".yaml";
    ASSERT_EQ(plait_config_load(&cfg, path.c_str(), nullptr, 0), PLAIT_OK) << plait_error_text();
    ASSERT_EQ(plait_config_natural_world(&cfg, &world), PLAIT_OK);
    EXPECT_EQ(world, GetParam().world);
    ASSERT_EQ(plait_config_resolve(&cfg, world), PLAIT_OK) << plait_error_text();
    EXPECT_EQ(cfg.batch.accumulation, GetParam().accumulation);
    plait_config_deinit(&cfg);
}

const Shipped kShipped[] = {
    {"tiny", 1, 4},          {"tiny8", 1, 16},        {"quickstart", 8, 2},  {"bench-b6", 1, 1},
    {"gpt2-124m", 1, 1},     {"gpt3-1.3b", 32, 1},    {"gpt3-6.7b", 128, 2}, {"gpt3-175b", 1024, 192},
    {"gpt-530b", 2520, 280}, {"gpt-1t", 3072, 512},   {"llama2-7b", 64, 16}, {"llama2-70b", 256, 128},
    {"llama3-8b", 64, 8},    {"llama3-70b", 256, 64},
};
INSTANTIATE_TEST_SUITE_P(, ConfigShipped, testing::ValuesIn(kShipped),
                         [](const auto &i) { return with_all(with_all(i.param.name, "-", "_"), ".", "_"); });

TEST(ConfigShippedFiles, TinyShipsItsTextAndLeavesDataRanksOpen)
{
    for (const char *name : {"tiny", "tiny8"}) {
        plait_config cfg;
        std::string path = kRoot + "/configs/" + name + ".yaml";
        ASSERT_EQ(plait_config_load(&cfg, path.c_str(), nullptr, 0), PLAIT_OK) << plait_error_text();
        EXPECT_GE(text_of_file(cfg.data.path).size(), 20000u);
        ASSERT_EQ(plait_config_resolve(&cfg, 4), PLAIT_OK) << plait_error_text();
        EXPECT_EQ(cfg.parallelism.dp, 4);
        plait_config_deinit(&cfg);
    }
}

TEST(ConfigShippedFiles, ReferencePageIsTheTable)
{
    std::string page = printed(plait_config_print_reference), path = kRoot + "/docs/configuration.md";
    if (getenv("PLAIT_WRITE_REFERENCE"))
        std::ofstream(path, std::ios::binary) << page;
    EXPECT_EQ(text_of_file(path), page) << "write it anew: PLAIT_WRITE_REFERENCE=1 test_config_files";
}

TEST(ConfigPrint, TextNamesValueAndOrigin)
{
    Loaded l("train:\n  seed: 7\n", {"topology.tp=2"});
    ASSERT_EQ(l.resolve(2), PLAIT_OK) << l.error;
    std::string text = printed([&](FILE *f) { plait_config_print(&l.cfg, f, false); });
    auto line = [&](const std::string &key) {
        size_t at = text.find(key + " ");
        std::string out;
        for (char c : text.substr(at, text.find('\n', at) - at))
            if (c != ' ' || out.back() != ' ')
                out += c;
        return out;
    };
    EXPECT_EQ(line("train.seed"), "train.seed 7 " + std::string(l.cfg.file) + ":2");
    EXPECT_EQ(line("parallelism.tensor_model_parallel_size"), "parallelism.tensor_model_parallel_size 2 override");
    EXPECT_EQ(line("optimizer.lr"), "optimizer.lr 0.0003 default");
    EXPECT_EQ(line("model.padded_vocab_size"), "model.padded_vocab_size 258 derived");
    EXPECT_EQ(line("parallelism.context_parallel_size"), "parallelism.context_parallel_size 1 default");
}

TEST(ConfigPrint, JsonHasTypesAndOrigins)
{
    Loaded l("train:\n  seed: 7\ndata:\n  data_path: \"a \\\" b.txt\"\n", {"recompute.granularity=selective"});
    ASSERT_EQ(l.resolve(1), PLAIT_OK) << l.error;
    std::string text = printed([&](FILE *f) { plait_config_print(&l.cfg, f, true); });
    json_error_t err;
    json_t *all = json_loads(text.c_str(), 0, &err);
    ASSERT_NE(all, nullptr) << err.text;
    int count;
    const plait_key *keys = plait_config_keys(&count);
    for (int i = 0; i < count; i++) {
        json_t *entry = json_object_get(all, keys[i].path);
        ASSERT_EQ(entry == nullptr, keys[i].role == PLAIT_KEY_REFUSED) << keys[i].path;
        for (const char *field : {"value", "origin", "file", "line"})
            EXPECT_TRUE(!entry || json_object_get(entry, field)) << keys[i].path;
    }
    auto get = [&](const char *key, const char *field) { return json_object_get(json_object_get(all, key), field); };
    EXPECT_EQ(json_integer_value(get("train.seed", "value")), 7);
    EXPECT_STREQ(json_string_value(get("train.seed", "origin")), "file");
    EXPECT_STREQ(json_string_value(get("train.seed", "file")), l.cfg.file);
    EXPECT_EQ(json_integer_value(get("train.seed", "line")), 2);
    EXPECT_STREQ(json_string_value(get("data.data_path", "value")), l.cfg.data.path);
    EXPECT_TRUE(json_is_null(get("optimizer.lr", "line")));
    EXPECT_EQ(
        json_real_value(get("optimizer.betas", "value") ? json_array_get(get("optimizer.betas", "value"), 1) : nullptr),
        0.95);
    EXPECT_STREQ(json_string_value(json_array_get(get("recompute.modules", "value"), 0)), "core_attn");
    EXPECT_STREQ(json_string_value(get("zero_optimization.offload_param.device", "value")), "none");
    EXPECT_TRUE(json_is_false(get("data.mock_data", "value")));
    EXPECT_TRUE(json_is_null(get("checkpoint.save", "value")));
    EXPECT_EQ(json_integer_value(get("device.workspace", "value")), 32 << 20);
    json_decref(all);
}

/* Paths are bytes: what is not UTF-8 becomes U+FFFD, in the file's name, in its directory and in a value. */
TEST(ConfigPrint, JsonIsValidWhateverThePathsAre)
{
    TempYaml at("train:\n  seed: 7\ndata:\n  data_path: a\n");
    const std::string dir = at.dir() + "/caf\xe9", file = dir + "/t\xff.yaml";
    ASSERT_EQ(mkdir(dir.c_str(), 0700), 0);
    ASSERT_EQ(rename(at.path.c_str(), file.c_str()), 0);
    const char *override = "logging.metrics_file=/tmp/\xc3\xa9 \xc3.jsonl";
    plait_config cfg;
    ASSERT_EQ(plait_config_load(&cfg, file.c_str(), &override, 1), PLAIT_OK) << plait_error_text();
    EXPECT_EQ(cfg.data.path, dir + "/a");
    std::string text = printed([&](FILE *f) { plait_config_print(&cfg, f, true); });
    plait_config_deinit(&cfg);
    ASSERT_EQ(rename(file.c_str(), at.path.c_str()), 0);
    ASSERT_EQ(rmdir(dir.c_str()), 0);

    json_error_t err;
    json_t *all = json_loads(text.c_str(), JSON_REJECT_DUPLICATES, &err);
    ASSERT_NE(all, nullptr) << err.text;
    auto get = [&](const char *key, const char *field) {
        const char *s = json_string_value(json_object_get(json_object_get(all, key), field));
        return std::string(s ? s : "(none)");
    };
    const std::string instead = "\xef\xbf\xbd", shown = at.dir() + "/caf" + instead;
    EXPECT_EQ(get("train.seed", "file"), shown + "/t" + instead + ".yaml");
    EXPECT_EQ(get("data.data_path", "value"), shown + "/a");
    EXPECT_EQ(get("logging.metrics_file", "value"), "/tmp/\xc3\xa9 " + instead + ".jsonl");
    json_decref(all);
}

TEST(ConfigPrint, DumpTellsTwoConfigurationsApart)
{
    Loaded a("", {"train.seed=1"}), b("", {"train.seed=2"});
    EXPECT_NE(a.dump(), b.dump());
    EXPECT_EQ(with(a.dump(), "train.seed: 1\n", ""), with(b.dump(), "train.seed: 2\n", ""));
}

/* The printed values, given back, are the same configuration. */
TEST(ConfigPrint, DumpReadsBack)
{
    Loaded a("", {"parallelism.pipeline_layout=[6,6]", "topology.pp=2", "device.memory_limit=512MiB",
                  "optimizer.lr=0.1", "batch.rampup_batch_size=[1,1,10]", "batch.global_batch_size=4",
                  "lr_scheduler.style=cosine", "zero_optimization.stage=3"});
    ASSERT_EQ(a.resolve(2), PLAIT_OK) << a.error;
    std::vector<std::string> overrides;
    std::stringstream lines(a.dump());
    for (std::string line; std::getline(lines, line);)
        if (line.find("padded_vocab_size") == std::string::npos && line.find("rotary_base") == std::string::npos &&
            line.find("fp16.") == std::string::npos && line.find("momentum") == std::string::npos &&
            line.find("wsd_") == std::string::npos && line.find("recompute.") == std::string::npos &&
            line.find("tensor_slices") == std::string::npos)
            overrides.push_back(with(line, ": ", "="));
    Loaded b("", overrides);
    ASSERT_EQ(b.status, PLAIT_OK) << b.error;
    ASSERT_EQ(b.resolve(2), PLAIT_OK) << b.error;
    EXPECT_EQ(a.dump(), b.dump());
}

/* ---- outputs that are inputs ---- */

namespace
{
/* The sentences of plait_config_check_files; "" if there are none. */
std::string clashes(const std::string &text, const std::vector<std::string> &overrides = {})
{
    TempYaml file(text);
    std::vector<const char *> o;
    for (const auto &s : overrides)
        o.push_back(s.c_str());
    plait_config cfg;
    EXPECT_EQ(plait_config_load(&cfg, file.path.c_str(), o.data(), static_cast<int>(o.size())), PLAIT_OK)
        << plait_error_text();
    plait_status st = plait_config_check_files(&cfg);
    EXPECT_TRUE(st == PLAIT_OK || st == PLAIT_USAGE) << st;
    plait_config_deinit(&cfg);
    return st == PLAIT_OK ? "" : with_all(plait_error_text(), file.dir(), "D");
}
} // namespace

TEST(ConfigOutputs, AreNoInputsAndNotOneAnother)
{
    const std::string data = "data:\n  data_path: a\n", load = "checkpoint:\n  load_weights: a\n",
                      save = "checkpoint:\n  save_weights: a\n", metrics = "logging:\n  metrics_file: ./a\n";
    EXPECT_EQ(clashes(data + metrics), "D/t.yaml:4:3: logging.metrics_file is the same file as data.data_path "
                                       "(D/t.yaml:2:3): D/./a");
    EXPECT_EQ(clashes(load + metrics), "D/t.yaml:4:3: logging.metrics_file is the same file as "
                                       "checkpoint.load_weights (D/t.yaml:2:3): D/./a");
    EXPECT_EQ(clashes(data + save),
              "D/t.yaml:4:3: checkpoint.save_weights is the same file as data.data_path (D/t.yaml:2:3): D/a");
    EXPECT_EQ(clashes(save + metrics), "D/t.yaml:4:3: logging.metrics_file is the same file as "
                                       "checkpoint.save_weights (D/t.yaml:2:3): D/./a");
    EXPECT_EQ(clashes("logging:\n  metrics_file: t.yaml\n"),
              "D/t.yaml:2:3: logging.metrics_file is the configuration file itself: D/t.yaml");
    EXPECT_EQ(clashes("checkpoint:\n  save_weights: t.yaml\n"),
              "D/t.yaml:2:3: checkpoint.save_weights is the configuration file itself: D/t.yaml");
    EXPECT_EQ(clashes("model:\n", {"logging.metrics_file=/no/such", "data.data_path=/no/such"}), "")
        << "in a directory that is not there nothing is written";
    EXPECT_EQ(clashes(data, {"logging.metrics_file=/tmp/x", "checkpoint.save_weights=/tmp//x"}),
              "override: logging.metrics_file is the same file as checkpoint.save_weights (override): /tmp/x");
    const std::string hashes = "debug:\n  tensor_hashes: ./a\n",
                      same = "D/t.yaml:4:3: debug.tensor_hashes is the same file as ";
    EXPECT_EQ(clashes(data + hashes), same + "data.data_path (D/t.yaml:2:3): D/./a");
    EXPECT_EQ(clashes(load + hashes), same + "checkpoint.load_weights (D/t.yaml:2:3): D/./a");
    EXPECT_EQ(clashes(save + hashes), same + "checkpoint.save_weights (D/t.yaml:2:3): D/./a");
    EXPECT_EQ(clashes(metrics + hashes), same + "logging.metrics_file (D/t.yaml:2:3): D/./a");
    EXPECT_EQ(clashes("debug:\n  tensor_hashes: t.yaml\n"),
              "D/t.yaml:2:3: debug.tensor_hashes is the configuration file itself: D/t.yaml");
    /* all of them at once */
    std::string all = clashes(data + save + metrics);
    EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 2) << all;

    EXPECT_EQ(clashes("data:\n  data_path: a\ncheckpoint:\n  save_weights: b\n  load_weights: c\nlogging:\n  "
                      "metrics_file: d\n"),
              "");
    EXPECT_EQ(clashes("checkpoint:\n  save_weights: a\n  load_weights: ./a\n"), "") << "goes on in place";
}
