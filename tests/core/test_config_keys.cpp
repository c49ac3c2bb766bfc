/* The key table: every row is walked, so a new key is tested by being there. */
#include "config_test.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

namespace
{
std::vector<plait_key> rows()
{
    int count;
    const plait_key *keys = plait_config_keys(&count);
    return std::vector<plait_key>(keys, keys + count);
}

std::string text_of(const plait_key &k, const plait_config &cfg)
{
    std::vector<char> text(PLAIT_VALUE_TEXT);
    plait_value_text(&k, reinterpret_cast<const char *>(&cfg) + k.offset, text.data(), text.size());
    return text.data();
}

std::string set(const plait_key &k, const std::string &value)
{
    return std::string(k.path) + "=" + value;
}

/* A legal value that is not `now`, in canonical form. */
std::string other_value(const plait_key &k, const std::string &now)
{
    switch (k.type) {
    case PLAIT_KEY_INT:
        return now == std::to_string(k.lo) ? std::to_string(k.lo + 1) : std::to_string(k.lo);
    case PLAIT_KEY_BYTES:
        return std::to_string(k.lo | 1);
    case PLAIT_KEY_DOUBLE:
        return k.min <= 0.5 ? "0.5" : "1";
    case PLAIT_KEY_BOOL:
        return now == "true" ? "false" : "true";
    case PLAIT_KEY_ENUM:
        for (const plait_word *w = k.words; w->name; w++)
            if (!w->refusal && now != w->name)
                return w->name;
        return "";
    case PLAIT_KEY_SET:
        return std::string("[") + k.words[1].name + "]";
    case PLAIT_KEY_PATH:
        return "/some/where";
    case PLAIT_KEY_ORDER:
        return "dp-tp-pp";
    case PLAIT_KEY_INTS:
        return "[4, 4, 100]";
    case PLAIT_KEY_DOUBLES:
        return "[0.5, 0.25]";
    case PLAIT_KEY_SPLIT:
        return "0.5,0.25,0.25";
    case PLAIT_KEY_LAYOUT:
        return "[3, 5]";
    }
    return "";
}
} // namespace

TEST(ConfigKeys, RowIsComplete)
{
    for (const plait_key &k : rows()) {
        SCOPED_TRACE(k.path);
        bool negated;
        int row = plait_config_find(k.path, &negated);
        ASSERT_GE(row, 0);
        EXPECT_STREQ(rows()[static_cast<size_t>(row)].path, k.path) << "two rows of one name";
        EXPECT_GT(strlen(k.text), 10u);
        EXPECT_EQ(k.text[strlen(k.text) - 1], '.');
        EXPECT_EQ(k.dflt == nullptr, k.role == PLAIT_KEY_REFUSED);
        if (k.role == PLAIT_KEY_USED) {
            EXPECT_GT(k.offset + 1, 0u);
            EXPECT_LT(k.offset, sizeof(plait_config));
        }
    }
}

TEST(ConfigKeys, DefaultIsPrintedAndReadsBack)
{
    for (const plait_key &k : rows()) {
        SCOPED_TRACE(k.path);
        if (k.role == PLAIT_KEY_REFUSED)
            continue;
        Loaded none("");
        ASSERT_EQ(none.status, PLAIT_OK) << none.error;
        if (k.role != PLAIT_KEY_DERIVED) {
            Loaded again("", {set(k, k.dflt)});
            ASSERT_EQ(again.status, PLAIT_OK) << again.error;
            EXPECT_EQ(again.dump(), none.dump());
        }
        const std::string text = printed([&](FILE *out) { plait_config_print(&none.cfg, out, false); });
        EXPECT_NE(text.find(std::string("\n") + k.path + " "),
                  k.path == std::string("model.arch") ? 0 : std::string::npos);
    }
}

TEST(ConfigKeys, AnotherValueChangesExactlyThisKey)
{
    for (const plait_key &k : rows()) {
        SCOPED_TRACE(k.path);
        if (k.role != PLAIT_KEY_USED || (k.type == PLAIT_KEY_INT && k.lo == k.hi))
            continue;
        Loaded none("");
        std::string value = other_value(k, text_of(k, none.cfg));
        Loaded l("", {set(k, value)});
        ASSERT_EQ(l.status, PLAIT_OK) << l.error;
        EXPECT_EQ(text_of(k, l.cfg), value);
        EXPECT_NE(l.dump(), none.dump());
        for (const plait_key &other : rows())
            if (other.role == PLAIT_KEY_USED && strcmp(other.dflt, "auto") != 0 && strcmp(other.path, k.path) != 0) {
                EXPECT_EQ(text_of(other, l.cfg), text_of(other, none.cfg)) << other.path << " changed too";
            }
        Loaded back("", {set(k, value), set(k, "null")});
        EXPECT_EQ(back.dump(), none.dump()) << "null sets back to the default";
    }
}

TEST(ConfigKeys, AliasesAreTheSameKey)
{
    for (const plait_key &k : rows()) {
        SCOPED_TRACE(k.path);
        std::string parent = std::string(k.path).substr(0, std::string(k.path).rfind('.') + 1), aliases = k.aliases;
        for (size_t at = 0; at < aliases.size();) {
            size_t end = std::min(aliases.find(' ', at), aliases.size());
            bool negated = aliases[at] == '!';
            std::string alias = aliases.substr(at + negated, end - at - negated);
            at = end + 1;
            if (k.role == PLAIT_KEY_NEUTRAL) {
                Loaded l("", {parent + alias + "=" + k.dflt}), wrong("", {parent + alias + "=7"});
                EXPECT_EQ(l.status, PLAIT_OK) << l.error;
                EXPECT_EQ(wrong.status, PLAIT_USAGE) << alias;
                continue;
            }
            std::string value = other_value(k, text_of(k, Loaded("").cfg));
            Loaded by_name("", {set(k, value)});
            Loaded by_alias("", {parent + alias + "=" + (negated ? (value == "true" ? "false" : "true") : value)});
            ASSERT_EQ(by_alias.status, PLAIT_OK) << by_alias.error;
            EXPECT_EQ(text_of(k, by_alias.cfg), value) << alias;
            EXPECT_EQ(by_alias.dump(), by_name.dump()) << alias;
        }
    }
}

TEST(ConfigKeys, OutOfBoundsAndWrongTypesAreRefused)
{
    for (const plait_key &k : rows()) {
        SCOPED_TRACE(k.path);
        if (k.role != PLAIT_KEY_USED)
            continue;
        std::vector<std::string> wrong = {"", "{a: 1}"};
        switch (k.type) {
        case PLAIT_KEY_INT:
            wrong.insert(wrong.end(), {"x", "1.5", "yes", "[1]", "1e99", std::to_string(k.lo - 1)});
            if (k.hi < INT64_MAX)
                wrong.push_back(std::to_string(k.hi + 1));
            break;
        case PLAIT_KEY_BYTES:
            wrong.insert(wrong.end(), {"x", "1.5", "4MB", "4 Mib", "1e6TiB", "[1]", std::to_string(k.lo - 1),
                                       std::to_string(k.hi + 1)});
            break;
        case PLAIT_KEY_DOUBLE:
            wrong.insert(wrong.end(), {"x", ".nan", ".inf", "true", "[1]", "-1", "1e300"});
            if (k.max_open)
                wrong.push_back(std::to_string(k.max));
            break;
        case PLAIT_KEY_BOOL:
            wrong.insert(wrong.end(), {"yes", "no", "on", "1", "0", "True", "[true]"});
            break;
        case PLAIT_KEY_ENUM:
            wrong.insert(wrong.end(), {"zzz", "1", "[a]"});
            break;
        case PLAIT_KEY_SET:
            wrong.insert(wrong.end(), {"core_attn", "[zzz]", "[[core_attn]]"});
            break;
        case PLAIT_KEY_PATH:
            wrong.insert(wrong.end(), {"''", "[a]", "[0.7, a, 0.3, b]"});
            break;
        case PLAIT_KEY_ORDER:
            wrong.insert(wrong.end(),
                         {"tp", "tp-dp", "tp-dp-pp-tp", "tp-dp-xx", "tp--dp-pp", "tp-dp-pp-", "[tp, dp, pp]"});
            break;
        case PLAIT_KEY_INTS:
            wrong.insert(wrong.end(), {"4", "[]", "[1, 2]", "[1, 2, 3, 4]", "[0, 1, 1]", "[a, 1, 1]", "[[1], 1, 1]"});
            break;
        case PLAIT_KEY_DOUBLES:
            wrong.insert(wrong.end(), {"0.9", "[0.9]", "[0.9, 1]", "[-0.1, 0.9]", "[0.9, 0.9, 0.9]", "[a, 0.9]"});
            break;
        case PLAIT_KEY_SPLIT:
            wrong.insert(wrong.end(), {"x", "'0,5,5'", "'1,2,3,4'", "'1,,2'", "[1, -1]", "[0, 0, 0]", "[1, 2, 3, 4]"});
            break;
        case PLAIT_KEY_LAYOUT: {
            wrong.insert(wrong.end(), {"4", "[-1, 3]", "[1.5]", "E|t*6|t*6|L", "[a]"});
            std::string many = "[1";
            for (int i = 0; i < PLAIT_MAX_STAGES; i++)
                many += ",1";
            wrong.push_back(many + "]");
            break;
        }
        }
        for (const std::string &value : wrong) {
            Loaded l("", {set(k, value)});
            EXPECT_EQ(l.status, PLAIT_USAGE) << set(k, value);
            EXPECT_NE(l.error.find(k.path), std::string::npos) << l.error;
        }
    }
}

TEST(ConfigKeys, RefusedAndNeutralKeysSayWhy)
{
    for (const plait_key &k : rows()) {
        SCOPED_TRACE(k.path);
        if (k.role == PLAIT_KEY_REFUSED || k.role == PLAIT_KEY_DERIVED) {
            for (const char *value : {"1", "null", "true", "[1]"}) {
                Loaded l("", {set(k, value)});
                EXPECT_EQ(l.status, PLAIT_USAGE) << value;
                EXPECT_NE(l.error.find(k.text), std::string::npos) << l.error;
            }
        }
        if (k.role == PLAIT_KEY_NEUTRAL) {
            std::string value = k.type == PLAIT_KEY_INT    ? "2"
                                : k.type == PLAIT_KEY_ENUM ? "zzz"
                                                           : other_value(k, k.dflt);
            Loaded l("", {set(k, value)});
            EXPECT_EQ(l.status, PLAIT_USAGE);
            if (k.type != PLAIT_KEY_ENUM) {
                EXPECT_NE(l.error.find(value + " is not supported, only " + k.dflt + ": " + k.text), std::string::npos)
                    << l.error;
            }
        }
        if (k.words)
            for (const plait_word *w = k.words; w->name; w++)
                if (w->refusal) {
                    Loaded l("", {set(k, w->name)});
                    EXPECT_EQ(l.status, PLAIT_USAGE);
                    EXPECT_NE(l.error.find(w->refusal), std::string::npos) << l.error;
                }
    }
}

TEST(ConfigKeys, NoNameIsUsedTwiceInASection)
{
    std::set<std::string> names;
    for (const plait_key &k : rows()) {
        std::string parent = std::string(k.path).substr(0, std::string(k.path).rfind('.') + 1);
        EXPECT_TRUE(names.insert(k.path).second) << k.path;
        std::string aliases = k.aliases;
        for (size_t at = 0; at < aliases.size();) {
            size_t end = std::min(aliases.find(' ', at), aliases.size());
            EXPECT_TRUE(names.insert(parent + aliases.substr(at + (aliases[at] == '!'), end - at)).second) << aliases;
            at = end + 1;
        }
    }
}

/* The names users bring from other systems. */
TEST(ConfigKeys, KnowsTheNamesOfOtherSystems)
{
    const char *names[] = {"model.n_layer",
                           "model.num_hidden_layers",
                           "model.n_embd",
                           "model.intermediate_size",
                           "model.n_inner",
                           "model.n_head",
                           "model.num_key_value_heads",
                           "model.max_context_length",
                           "model.sequence_length",
                           "model.n_positions",
                           "model.untie_embeddings_and_output_weights",
                           "model.rope_theta",
                           "topology.tp",
                           "topology.tp_size",
                           "topology.tensor_parallel_degree",
                           "topology.model_parallel_size",
                           "topology.pp",
                           "topology.pp_size",
                           "topology.pipe_parallel_size",
                           "topology.pipeline_parallel_degree",
                           "topology.vpp",
                           "topology.num_model_chunks",
                           "topology.dp",
                           "topology.pp_engine",
                           "topology.pipeline_parallel_schedule",
                           "zero_optimization.zero_stage",
                           "zero_optimization.offload_optimizer.pipeline_write",
                           "batch.train_micro_batch_size_per_gpu",
                           "batch.train_batch_size",
                           "batch.batch_accumulation_per_replica",
                           "optimizer.gradient_clipping",
                           "optimizer.max_norm"};
    bool negated;
    for (const char *name : names)
        EXPECT_GE(plait_config_find(name, &negated), 0) << name;
}

struct Size {
    const char *text;
    int64_t bytes;
    const char *printed;
};
TEST(ConfigKeys, SizesHaveUnits)
{
    const Size sizes[] = {{"32MiB", 32 << 20, "32MiB"},
                          {"4096", 4096, "4KiB"},
                          {"4 KiB", 4096, "4KiB"},
                          {"1.5GiB", 1610612736, "1536MiB"},
                          {"512B", 512, "512"},
                          {"0x1000", 4096, "4KiB"},
                          {"1TiB", INT64_C(1) << 40, "1TiB"},
                          {"1000001", 1000001, "1000001"},
                          {"1PiB", INT64_C(1) << 50, "1024TiB"},
                          {"0xAB", 171, "171"},
                          {"4e3", 4000, "4000"},
                          {"1e3KiB", 1024000, "1000KiB"}};
    for (const Size &s : sizes) {
        Loaded l("", {std::string("device.memory_limit=") + s.text});
        ASSERT_EQ(l.status, PLAIT_OK) << l.error;
        EXPECT_EQ(l.cfg.device.memory_limit, s.bytes) << s.text;
        EXPECT_EQ(l.value("device.memory_limit"), s.printed);
    }
}

/* Sizes beyond all bounds are known as sizes, and what is possible is said. */
TEST(ConfigKeys, SizesBeyondTheLargestNameIt)
{
    const struct {
        const char *text, *says;
    } rows[] = {
        {"5PiB", "5120TiB is above the largest value 4096TiB"},
        {"8EiB", "8EiB is above the largest value 4096TiB"},
        {"1e9 TiB", "1e9 TiB is above the largest value 4096TiB"},
        {"-8EiB", "-8EiB is below the smallest value 1"},
        {"8EB", "\"8EB\" has an unknown unit: B, KiB, MiB, GiB, TiB, PiB or EiB"},
    };
    for (const auto &r : rows) {
        Loaded l("", {std::string("device.memory_limit=") + r.text});
        EXPECT_EQ(l.status, PLAIT_USAGE) << r.text;
        EXPECT_NE(l.error.find(r.says), std::string::npos) << l.error;
    }
}

TEST(ConfigKeys, SplitsAreNormalised)
{
    Loaded l("", {"data.split=969,30,1"}), one("", {"data.split=[3]"});
    ASSERT_EQ(l.status, PLAIT_OK) << l.error;
    EXPECT_DOUBLE_EQ(l.cfg.data.split[0], 0.969);
    EXPECT_DOUBLE_EQ(l.cfg.data.split[2], 0.001);
    EXPECT_EQ(one.value("data.split"), "1,0,0");
}

struct Override {
    const char *text, *want;
};
TEST(ConfigKeys, OverridesAreCheckedToo)
{
    const Override wrong[] = {
        {"seed", "override \"seed\": expected section.key=value"},
        {"=3", "override \"=3\": expected section.key=value"},
        {"train.sead=3", "override \"train.sead=3\": train.sead: unknown key; did you mean \"seed\"?"},
        {"train=3", "override \"train=3\": train: is a section"},
        {"train.seed=", "override \"train.seed=\": train.seed: has no value"},
        {"train.seed=[", "override \"train.seed=[\": train.seed: not YAML"},
        {"seed=3", "override \"seed=3\": seed: unknown key; it belongs into the section \"train\""},
        {"train.seed=1\n---\n2", "a second document"},
    };
    for (const Override &o : wrong) {
        Loaded l("", {o.text});
        EXPECT_EQ(l.status, PLAIT_USAGE);
        EXPECT_NE(l.error.find(o.want), std::string::npos) << l.error;
    }
    Loaded l("", {"train.seed=3", "train.seed=4", "precision.fp16={loss_scale: 8, hysteresis: 1}", "topology.tp=2"});
    ASSERT_EQ(l.status, PLAIT_OK) << l.error;
    EXPECT_EQ(l.cfg.train.seed, 4);
    EXPECT_EQ(l.cfg.precision.loss_scale, 8.0);
    EXPECT_EQ(l.cfg.precision.hysteresis, 1);
    EXPECT_EQ(l.cfg.parallelism.tp, 2);
}

TEST(ConfigKeys, APathInAnOverrideIsTakenAsItStands)
{
    const struct {
        const char *override, *path;
    } rows[] = {
        {"logging.metrics_file=/tmp/a #b.json", "/tmp/a #b.json"},
        {"logging.metrics_file=#a", "#a"},
        {"logging.metrics_file=a[0]{b}", "a[0]{b}"},
        {"logging.metrics_file=\"[a]\"", "[a]"},
        {"logging.metrics_file=*a", "*a"},
        {"logging.metrics_file=a: b", "a: b"},
        {"logging.metrics_file=a  b ", "a  b "},
        {"logging.metrics_file=a=b", "a=b"},
        {"logging.metrics_file=a\\0b\"c'", "a\\0b\"c'"},
        {"logging.metrics_file=caf\xe9", "caf\xe9"},
        {"logging.metrics_file=\"caf\\u00e9 #b\"", "caf\xc3\xa9 #b"},
        {"logging.metrics_file='it''s'", "it's"},
        {"logging.metrics_file=\"null\"", "null"},
        {"logging.metrics_file=null", ""},
        {"logging.metrics_file=~", ""},
        {"logging.metrics_file=[a]", NULL},
        {"logging={metrics_file: /tmp/a #b", NULL},
        {"logging.metrics_file=\"a\\0b\"", NULL},
        {"logging.metrics_file=\"a", NULL},
        {"logging.metrics_file=", NULL},
        {"logging.metrics_file=\"\"", NULL},
        {"checkpoint.save=/tmp/a #b", NULL},
    };
    for (const auto &r : rows) {
        Loaded l("", {r.override});
        EXPECT_EQ(l.status, r.path ? PLAIT_OK : PLAIT_USAGE) << r.override << ": " << l.error;
        EXPECT_STREQ(l.cfg.logging.metrics_file, r.path ? r.path : "") << r.override;
    }
    /* Other values are YAML. */
    Loaded l("", {"train.seed=7 # lucky"});
    EXPECT_EQ(l.cfg.train.seed, 7) << l.error;
}
