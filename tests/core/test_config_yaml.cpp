/* Malformed and unusual files: one small configuration and its mutants. */
#include "config_test.h"

#include <algorithm>
#include <sys/resource.h>
#include <sys/wait.h>

namespace
{
const std::string kBase = "model:\n"
                          "  num_layers: 4\n"
                          "  hidden_size: 64\n"
                          "  num_attention_heads: 4\n"
                          "parallelism:\n"
                          "  tensor_model_parallel_size: 2\n"
                          "batch:\n"
                          "  micro_batch_size: 2\n"
                          "optimizer:\n"
                          "  lr: 0.0001\n"
                          "  clip_grad: 1.0\n"
                          "train:\n"
                          "  train_iters: 10\n"
                          "  seed: 1234\n";

std::string layers(const std::string &v)
{
    return with(kBase, "num_layers: 4", "num_layers: " + v);
}

std::string lr(const std::string &v)
{
    return with(kBase, "lr: 0.0001", "lr: " + v);
}

std::string laughs()
{
    std::string text = "a: &a [lol,lol,lol,lol,lol,lol,lol,lol,lol]\n";
    for (char c = 'b'; c <= 'i'; c++) {
        std::string ref = std::string("*") + static_cast<char>(c - 1);
        text += std::string(1, c) + ": &" + c + " [" + ref;
        for (int i = 0; i < 8; i++)
            text += "," + ref;
        text += "]\n";
    }
    return text + kBase;
}

std::string nested(size_t depth)
{
    return kBase + "x: " + std::string(depth, '[') + std::string(depth, ']') + "\n";
}
} // namespace

/* ---- what means the base ---- */

struct Same {
    const char *name;
    std::string text;
};
class ConfigYamlSame : public testing::TestWithParam<Same>
{
};

TEST_P(ConfigYamlSame, IsTheBase)
{
    Loaded base(kBase), l(GetParam().text);
    ASSERT_EQ(base.status, PLAIT_OK) << base.error;
    ASSERT_EQ(l.status, PLAIT_OK) << l.error;
    EXPECT_EQ(l.dump(), base.dump());
    EXPECT_EQ(l.cfg.model.num_layers, 4);
    EXPECT_EQ(l.cfg.optimizer.lr, 0.0001);
}

const Same kSame[] = {
    {"lr_1e_minus_4", lr("1e-4")},
    {"lr_1_dot_e_minus_4", lr("1.e-4")},
    {"lr_1_0e_minus_4", lr("1.0e-4")},
    {"lr_capital_e_leading_zero", lr("1E-04")},
    {"lr_leading_dot", lr(".0001")},
    {"lr_plus", lr("+1.0e-4")},
    {"lr_quoted", lr("\"0.0001\"")},
    {"layers_whole_float", layers("4.0")},
    {"layers_exponent", layers("4e0")},
    {"layers_hex", layers("0x4")},
    {"layers_octal_of_yaml_1_2", layers("0o4")},
    {"layers_quoted", layers("'4'")},
    {"layers_plus", layers("+4")},
    {"crlf", with_all(kBase, "\n", "\r\n")},
    {"byte_order_mark", "\xef\xbb\xbf" + kBase},
    {"no_final_newline", kBase.substr(0, kBase.size() - 1)},
    {"scalar_by_reference", with(with(kBase, "num_layers: 4", "num_layers: &n 4"), "heads: 4", "heads: *n")},
    {"flow_style", with(kBase, "batch:\n  micro_batch_size: 2", "batch: {micro_batch_size: 2}")},
    {"utf8_comment", kBase + "# caf\xc3\xa9\n"},
    {"empty_section", kBase + "data:\n"},
    {"document_marks", "%YAML 1.2\n---\n" + kBase + "...\n"},
    {"alias_names",
     with(with(with(kBase, "num_layers", "n_layer"), "parallelism", "topology"), "tensor_model_parallel_size", "tp")},
};
INSTANTIATE_TEST_SUITE_P(, ConfigYamlSame, testing::ValuesIn(kSame),
                         [](const auto &i) { return std::string(i.param.name); });

/* ---- what is refused ---- */

struct Refused {
    const char *name;
    std::string text;
    std::string want; /* part of the error */
};
class ConfigYamlRefused : public testing::TestWithParam<Refused>
{
};

TEST_P(ConfigYamlRefused, WithPlaceAndReason)
{
    Loaded l(GetParam().text);
    EXPECT_EQ(l.status, PLAIT_USAGE);
    EXPECT_EQ(l.cfg.origins, nullptr);
    EXPECT_NE(l.error.find(GetParam().want), std::string::npos) << l.error;
}

const Refused kRefused[] = {
    {"num_word", lr("fast"),
     "t.yaml:10:7: optimizer.lr: expected a number from 0 to 1000000: \"fast\" is not a finite"},
    {"num_trailing_junk", lr("0.0001x"), "t.yaml:10:7: optimizer.lr: "},
    {"num_nan", lr(".nan"), "optimizer.lr: expected a number from 0 to 1000000: \".nan\" is not a finite number"},
    {"num_dot_inf", lr(".inf"), "\".inf\" is not a finite number"},
    {"num_inf", lr("1e999"), "1e999 is too large"},
    {"num_underflow", lr("1e-999"), "1e-999 is too small"},
    {"num_negative", lr("-0.0001"), "t.yaml:10:7: optimizer.lr: expected a number from 0 to 1000000: -0.0001 is below"},
    {"num_missing_value", lr(""), "t.yaml:10:3: optimizer.lr: has no value"},
    {"num_hex_float", lr("0x1p-4"), "is not a finite number"},
    {"num_two_dots", lr("1.0.0"), "is not a finite number"},
    {"num_only_dot", lr("."), "is not a finite number"},
    {"num_only_exponent", lr("e5"), "is not a finite number"},
    {"num_underscore", lr("1_0"), "is not a finite number"},
    {"num_comma", lr("0,0001"), "is not a finite number"},
    {"int_float", layers("4.5"), "t.yaml:2:15: model.num_layers: expected a whole number from 1 to 65535: 4.5 is not"},
    {"int_2e32_plus_4", layers("4294967300"), "4294967300 is above the largest value 65535"},
    {"int_huge_2e63", layers("9223372036854775808"), "9223372036854775808 does not fit into 64 bits"},
    {"int_huge_negative", layers("-9223372036854775809"), "does not fit into 64 bits"},
    {"int_smallest", layers("-9223372036854775808"), "-9223372036854775808 is below the smallest value 1"},
    {"int_huge_float", layers("1e300"), "1e300 is not exact"},
    {"int_zero", layers("0"), "0 is below the smallest value 1"},
    {"int_negative", layers("-4"), "-4 is below the smallest value 1"},
    {"int_octal_010", layers("010"), "010 begins with 0"},
    {"int_yes", layers("yes"), "\"yes\" is not a whole number"},
    {"int_hex_without_digits", layers("0x"), "\"0x\" is not a whole number"},
    {"int_list", layers("[4]"), "expected a whole number from 1 to 65535, found a list"},
    {"int_mapping", layers("{a: 4}"), "found a mapping"},
    {"int_space", layers("4 4"), "\"4 4\" is not a whole number"},
    {"duplicate_key", kBase + "  seed: 99\n", "t.yaml:15:3: train.seed: already set in line 14"},
    {"duplicate_by_alias", with(kBase, "  hidden_size", "  n_layer: 5\n  hidden_size"),
     "t.yaml:3:3: model.num_layers: already set in line 2"},
    {"duplicate_section", kBase + "model:\n  vocab_size: 300\n", "t.yaml:15:1: model: already set in line 1"},
    {"duplicate_by_section_alias", kBase + "topology:\n  tp: 4\n",
     "t.yaml:16:3: parallelism.tensor_model_parallel_size: already set in line 6"},
    {"typo_key", with(kBase, "seed:", "seedx:"), "t.yaml:14:3: train.seedx: unknown key; did you mean \"seed\"?"},
    {"typo_digit_for_letter", with(kBase, "clip_grad", "c1ip_grad"),
     "t.yaml:11:3: optimizer.c1ip_grad: unknown key; did you mean \"clip_grad\"?"},
    {"typo_in_alias", with(kBase, "clip_grad", "gradient_clipp1ng"),
     "t.yaml:11:3: optimizer.gradient_clipp1ng: unknown key; did you mean \"gradient_clipping\"?"},
    {"key_wrong_case", with(kBase, "seed:", "SEED:"), "t.yaml:14:3: train.SEED: unknown key; did you mean \"seed\"?"},
    {"key_in_wrong_section", with(kBase, "  seed:", "seed:"),
     "t.yaml:14:1: seed: unknown key; it belongs into the section \"train\""},
    {"key_in_another_section", with(kBase, "  seed:", "  lr:"),
     "t.yaml:14:3: train.lr: unknown key; it belongs into the section \"optimizer\""},
    {"key_of_the_group_above", kBase + "precision:\n  loss_scale: 4\n",
     "precision.loss_scale: unknown key; it belongs into the section \"precision.fp16\""},
    {"unknown_section", with(kBase, "optimizer:", "optimiser:"),
     "t.yaml:9:1: optimiser: unknown key; did you mean the section \"optimizer\"?"},
    {"unknown_and_nothing_near", kBase + "  zzqqxxyy: 1\n", "t.yaml:15:3: train.zzqqxxyy: unknown key"},
    {"dotted_key", kBase + "model.seq_length: 32\n", "model.seq_length: unknown key; a key stands inside its section"},
    {"merge_key", kBase + "  <<: 1\n", "train.<<: unknown key"},
    {"section_is_value", with(kBase, "batch:\n  micro_batch_size: 2", "batch: 2"),
     "t.yaml:7:8: batch: is a section: expected keys, found a value"},
    {"section_is_list", with(kBase, "batch:\n  micro_batch_size: 2", "batch: [2]"), "is a section: expected keys"},
    {"list_as_key", kBase + "? [a]\n: 1\n", "a key is a word, not a list or a mapping"},
    {"tab_indent", with_all(kBase, "  ", "\t"), "t.yaml:2:1: the line is indented with a tab"},
    {"latin1_comment", kBase + "# caf\xe9\n", "t.yaml:15:6: byte 0xe9 is not UTF-8"},
    {"overlong_utf8", kBase + "# \xc0\xaf\n", "t.yaml:15:3: byte 0xc0 is not UTF-8"},
    {"utf16", std::string("\xff\xfem\0o\0", 6), "the text is UTF-16"},
    {"nul_byte", kBase + std::string("\0", 1), "t.yaml:15:1: control character 0x00"},
    {"nul_escaped", kBase + "data:\n  data_path: \"a\\0b\"\n",
     "t.yaml:16:14: a NUL character (\\0) stands in the value"},
    {"nul_escaped_as_hex", layers("\"4\\x00\""), "t.yaml:2:15: a NUL character"},
    {"nul_escaped_as_unicode", layers("\"4\\u0000\""), "t.yaml:2:15: a NUL character"},
    {"nul_escaped_in_a_key", kBase + "  \"seed\\0x\": 1\n", "t.yaml:15:3: a NUL character"},
    {"empty", " ", "t.yaml:1:1: the file is empty"},
    {"only_comment", "# nothing\n", "t.yaml:1:1: the file is empty"},
    {"only_null", "null\n", "t.yaml:1:1: the file is empty"},
    {"top_is_list", "- 1\n- 2\n", "t.yaml:1:1: expected sections such as model, parallelism, train, found a list"},
    {"top_is_scalar", "hello\n",
     "t.yaml:1:1: expected sections such as model, parallelism, train, found a single value"},
    {"not_yaml", "{{{{\n", "t.yaml:2:1: not YAML: "},
    {"unclosed_quote", kBase + "x: \"abc\n", "not YAML: "},
    {"second_document", kBase + "---\nmodel:\n", "t.yaml:15:1: a second document begins"},
    {"tag", layers("!!int \"4\""), "t.yaml:2:15: tags such as tag:yaml.org,2002:int are not used here"},
    {"unknown_reference", layers("*n"), "t.yaml:2:15: *n: there is no anchor &n above"},
    {"reference_to_itself", "model: &m\n  num_layers: *m\n", "*m: there is no anchor &m above"},
    {"billion_laughs", laughs(), "t.yaml:2:8: *a stands for a list or a mapping (line 1)"},
    {"deep_flow_1000", nested(1000), "t.yaml:15:19: nested deeper than 16"},
    {"deep_flow_500000", nested(500000), "nested deeper than 16"},
    {"too_large", kBase + std::string(PLAIT_YAML_MAX_BYTES, '#'), "larger than 1048576 bytes"},
    {"too_many_entries",
     [] {
         std::string t = "model:\n";
         for (int i = 0; i < 1500; i++)
             t += "  k" + std::to_string(i) + ": 1\n";
         return t;
     }(),
     "a mapping of more than 1000 entries"},
    {"too_many_values",
     [] {
         std::string t = "model: [1";
         for (int i = 0; i < 200000; i++)
             t += ",1";
         return t + "]\n";
     }(),
     "more than 100000 values"},
};
INSTANTIATE_TEST_SUITE_P(, ConfigYamlRefused, testing::ValuesIn(kRefused),
                         [](const auto &i) { return std::string(i.param.name); });

/* ---- all at once, bounded, files ---- */

TEST(ConfigYaml, ReportsAllErrorsAtOnce)
{
    Loaded l(with(with(layers("4.5"), "seed:", "sed:"), "lr: 0.0001", "lr: x"),
             {"train.seed=-1", "model.hiden_size=3"});
    ASSERT_EQ(l.status, PLAIT_USAGE);
    EXPECT_EQ(std::count(l.error.begin(), l.error.end(), '\n'), 4) << l.error;
    EXPECT_NE(l.error.find("t.yaml:2:15: model.num_layers"), std::string::npos) << l.error;
    EXPECT_NE(l.error.find("t.yaml:10:7: optimizer.lr"), std::string::npos) << l.error;
    EXPECT_NE(l.error.find("t.yaml:14:3: train.sed: unknown key"), std::string::npos) << l.error;
    EXPECT_NE(l.error.find("override \"train.seed=-1\": train.seed: "), std::string::npos) << l.error;
    EXPECT_NE(
        l.error.find("override \"model.hiden_size=3\": model.hiden_size: unknown key; did you mean \"hidden_size\""),
        std::string::npos)
        << l.error;
}

TEST(ConfigYaml, CountsTheErrorsThatDoNotFit)
{
    std::string text = "model:\n";
    for (int i = 0; i < 900; i++)
        text += "  k" + std::to_string(i) + ": 1\n";
    Loaded l(text);
    ASSERT_EQ(l.status, PLAIT_USAGE);
    auto lines = std::count(l.error.begin(), l.error.end(), '\n');
    EXPECT_NE(l.error.find("\n... and " + std::to_string(900 - lines) + " more"), std::string::npos) << l.error;
}

TEST(ConfigYaml, UnreadableFilesAreFileErrors)
{
    plait_config cfg;
    EXPECT_EQ(plait_config_load(&cfg, "/nonexistent/x.yaml", nullptr, 0), PLAIT_IO);
    EXPECT_STREQ(plait_error_text(), "open /nonexistent/x.yaml: No such file or directory");
    EXPECT_EQ(plait_config_load(&cfg, "/tmp", nullptr, 0), PLAIT_IO);
    EXPECT_EQ(plait_config_load(&cfg, "/dev/zero", nullptr, 0), PLAIT_USAGE);
}

#if defined(__SANITIZE_ADDRESS__) /* the shadow memory is address space, freed memory stays for a while */
const rlim_t kMaxSpace = RLIM_INFINITY;
const long kMaxResident = 400 * 1024;
#else
const rlim_t kMaxSpace = 400u << 20;
const long kMaxResident = 100 * 1024; /* KiB */
#endif

/* Bombs in a child process that may have little memory more and little time. */
TEST(ConfigYaml, BombsTakeBoundedMemoryAndTime)
{
    std::string bombs[] = {laughs(),
                           nested(1000),
                           nested(500000),
                           std::string(1000000, '{'),
                           std::string(1000000, '['),
                           std::string(1000000, '&'),
                           "x: &a " + std::string(500000, 'y') + "\nz: [*a" +
                               [] {
                                   std::string t;
                                   for (int i = 0; i < 90000; i++)
                                       t += ",*a";
                                   return t;
                               }() +
                               "]\n"};
    for (const std::string &bomb : bombs) {
        pid_t child = fork();
        if (child == 0) {
            struct rlimit memory = {kMaxSpace, kMaxSpace}, seconds = {4, 4};
            setrlimit(RLIMIT_AS, &memory);
            setrlimit(RLIMIT_CPU, &seconds);
            Loaded l(bomb);
            struct rusage used;
            getrusage(RUSAGE_SELF, &used);
            _exit(l.status == PLAIT_USAGE && used.ru_maxrss < kMaxResident ? 0 : 1);
        }
        int how = -1;
        waitpid(child, &how, 0);
        EXPECT_EQ(how, 0) << bomb.substr(0, 40);
    }
}

TEST(ConfigYaml, PathsAreRelativeToTheFileOrTheWorkingDirectory)
{
    TempYaml f(kBase + "data:\n  data_path: texts/a.txt\nlogging:\n  metrics_file: /abs/m.jsonl\n");
    plait_config cfg;
    const char *override[] = {"checkpoint.save_weights=out/w.safetensors"};
    ASSERT_EQ(plait_config_load(&cfg, f.path.c_str(), override, 1), PLAIT_OK) << plait_error_text();
    EXPECT_EQ(cfg.data.path, f.dir() + "/texts/a.txt");
    EXPECT_STREQ(cfg.logging.metrics_file, "/abs/m.jsonl");
    EXPECT_STREQ(cfg.checkpoint.save_weights, "out/w.safetensors");
    plait_config_deinit(&cfg);
    plait_config_deinit(&cfg);
}

TEST(ConfigYaml, TooLongPathIsRefused)
{
    Loaded l(kBase + "data:\n  data_path: " + std::string(5000, 'x') + "\n");
    EXPECT_EQ(l.status, PLAIT_USAGE);
    EXPECT_NE(l.error.find("data.data_path: the path is longer than 4095 bytes"), std::string::npos) << l.error;
}
