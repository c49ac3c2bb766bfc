/* plait config, plait version and what the command line refuses. */
#include "plait_test.h"

#include <jansson.h>

#include <cmath>

namespace
{

/* What plait config --json printed. */
class Resolved
{
  public:
    explicit Resolved(const std::string &text) : root_(json_loads(text.c_str(), JSON_REJECT_DUPLICATES, nullptr))
    {
        EXPECT_NE(root_, nullptr) << text;
    }
    ~Resolved() { json_decref(root_); }
    Resolved(const Resolved &) = delete;
    Resolved &operator=(const Resolved &) = delete;
    /* A field of a key as JSON. */
    std::string value(const std::string &key, const char *field = "value") const
    {
        json_t *found = json_object_get(json_object_get(root_, key.c_str()), field);
        char *text = found ? json_dumps(found, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15)) : nullptr;
        std::string result = text ? text : "(none)";
        free(text);
        return result;
    }

  private:
    json_t *root_;
};

class CliConfig : public PlaitTest
{
  protected:
    /* plait config must fail with 2 and say all of these. */
    void refused(const Words &args, const Words &says)
    {
        Outcome o = plait(Words{"config"} + args).limit(20).address_space(2000000000).run();
        EXPECT_EQ(o.code, 2) << text_of(args) << "\n" << o;
        EXPECT_EQ(o.out, "") << text_of(args);
        for (const std::string &s : says)
            EXPECT_NE(o.err.find(s), std::string::npos) << text_of(args) << ": no '" << s << "' in\n" << o.err;
    }
    Resolved resolve(const Words &args)
    {
        Outcome o = run(Words{"config"} + args + Words{"--json"});
        EXPECT_EQ(o.code, 0) << text_of(args) << "\n" << o;
        return Resolved(o.out);
    }
    std::string value(const Words &args, const std::string &key) { return resolve(args).value(key); }
};

/* The number after `label` on a line of its own, without its commas. */
int64_t number_after(const std::string &text, const std::string &label)
{
    size_t at = text.find(label);
    if (at == std::string::npos)
        return -1;
    std::string digits;
    for (at += label.size(); at < text.size() && (text[at] == ' ' || text[at] == ',' || isdigit(text[at])); at++)
        if (isdigit(text[at]))
            digits += text[at];
        else if (text[at] == ' ' && !digits.empty())
            break;
    return digits.empty() ? -1 : std::stoll(digits);
}

/* GPT with learned positions and biases: 12 L h^2 + 13 L h of the layers, (V + s) h of the tables, 2 h of the last
 * norm. */
constexpr int64_t gpt(int64_t layers, int64_t hidden, int64_t vocab, int64_t positions)
{
    return 12 * layers * hidden * hidden + 13 * layers * hidden + (vocab + positions) * hidden + 2 * hidden;
}

struct Shipped {
    const char *name;
    int64_t parameters;
    Words overrides;
};

} // namespace

TEST_F(CliConfig, CountsParametersOfTheShippedFilesToTheDigit)
{
    const Shipped rows[] = {
        {"tiny", 180928, {}},
        {"tiny8", 328896, {}},
        {"gpt2-124m", 124439808, {}},
        {"gpt3-1.3b", gpt(24, 2048, 51200, 2048), {}},
        {"gpt3-6.7b", gpt(32, 4096, 51200, 2048), {}},
        {"gpt3-175b", gpt(96, 12288, 51200, 2048), {}},
        {"gpt-530b", gpt(105, 20480, 51200, 2048), {}},
        {"gpt-1t", 1008038758400, {}},
        {"llama2-7b", 6738415616, {}},
        {"llama2-70b", 68976648192, {}},
        {"llama3-8b", 8030261248, {}},
        {"llama3-70b", 70553706496, {}},
        {"quickstart", -1, {}},
        {"bench-b6", -1, {}},
        /* the published sizes of GPT-2 */
        {"gpt2-124m",
         354823168,
         {"model.num_layers=24", "model.hidden_size=1024", "model.num_attention_heads=16",
          "model.ffn_hidden_size=4096"}},
        {"gpt2-124m",
         774030080,
         {"model.num_layers=36", "model.hidden_size=1280", "model.num_attention_heads=20",
          "model.ffn_hidden_size=5120"}},
        {"gpt2-124m",
         1557611200,
         {"model.num_layers=48", "model.hidden_size=1600", "model.num_attention_heads=25",
          "model.ffn_hidden_size=6400"}},
        {"llama2-7b",
         1100048384,
         {"model.num_layers=22", "model.hidden_size=2048", "model.num_attention_heads=32", "model.num_query_groups=4",
          "model.ffn_hidden_size=5632"}},
        /* GPT-type of the tiny size: learned positions, biases, tied */
        {"tiny",
         218560,
         {"model.arch=gpt2", "model.ffn_hidden_size=256", "model.num_query_groups=4",
          "model.tie_word_embeddings=true"}},
        {"tiny", 217920, {"model.num_layers=5"}},
        {"tiny", 217920, {"model.num_layers=5", "parallelism.pp=2"}},
    };
    for (const Shipped &r : rows) {
        std::string file = source(std::string("configs/") + r.name + ".yaml");
        Outcome o = run(Words{"config", file} + r.overrides);
        EXPECT_EQ(o.code, 0) << r.name << "\n" << o;
        int64_t counted = number_after(o.out, "\n  in all");
        EXPECT_GT(counted, 0) << r.name << "\n" << o;
        if (r.parameters > 0) {
            EXPECT_EQ(counted, r.parameters) << r.name << " " << text_of(r.overrides);
        }
        /* The stages add up to the model. */
        int64_t sum = 0;
        for (size_t at = 0; (at = o.out.find("\n  stage ", at)) != std::string::npos; at++) {
            char *end;
            strtol(o.out.c_str() + at + 9, &end, 10);
            sum += number_after(end, "");
        }
        EXPECT_EQ(sum, counted) << r.name;
    }
    /* The table of the 530B model gives 529.601 (10^9, rounded). */
    EXPECT_EQ(std::llround(static_cast<double>(gpt(105, 20480, 51200, 2048)) / 1e6), 529601);
}

TEST_F(CliConfig, PaddingOfTheVocabularyIsHeldButNotCounted)
{
    Outcome o = run({"config", kTiny, "parallelism.tp=2"});
    ASSERT_EQ(o.code, 0) << o;
    EXPECT_EQ(number_after(o.out, "at most "), 90816) << o; /* half of it, norms whole, 129 of 258 rows */
    EXPECT_EQ(number_after(o.out, "\n  in all"), 180928) << o;
    EXPECT_EQ(value({kTiny, "parallelism.tp=2"}, "model.padded_vocab_size"), "258");
}

TEST_F(CliConfig, JsonHasValueOriginFileAndLine)
{
    std::string file = write("a.yaml", "train:\n  seed: 7\nmodel: {arch: llama}\ndata:\n  data_path: sub/text.txt\n");
    Resolved r = resolve({file, "topology.tp=2"});
    EXPECT_EQ(r.value("train.seed"), "7");
    EXPECT_EQ(r.value("train.seed", "origin"), "\"file\"");
    EXPECT_EQ(r.value("train.seed", "file"), "\"" + file + "\"");
    EXPECT_EQ(r.value("train.seed", "line"), "2");
    EXPECT_EQ(r.value("model.arch", "line"), "3");
    EXPECT_EQ(r.value("parallelism.tensor_model_parallel_size"), "2");
    EXPECT_EQ(r.value("parallelism.tensor_model_parallel_size", "origin"), "\"override\"");
    EXPECT_EQ(r.value("optimizer.lr", "origin"), "\"default\"");
    EXPECT_EQ(r.value("optimizer.lr", "line"), "null");
    EXPECT_EQ(r.value("model.swiglu"), "true");
    EXPECT_EQ(r.value("model.swiglu", "origin"), "\"derived\"");
    EXPECT_EQ(r.value("parallelism.data_parallel_size"), "1");
}

TEST_F(CliConfig, ARelativePathBelongsToTheFileOrTheWorkingDirectory)
{
    std::string sub = path("sub");
    ASSERT_EQ(run({"version"}).code, 0);
    ASSERT_EQ(Command({"mkdir", sub}).run().code, 0);
    std::string file = write("sub/a.yaml", "data:\n  data_path: text.txt\n");
    EXPECT_EQ(value({"sub/a.yaml"}, "data.data_path"), "\"sub/text.txt\"");
    EXPECT_EQ(value({file}, "data.data_path"), "\"" + sub + "/text.txt\"");
    EXPECT_EQ(value({"sub/a.yaml", "data.data_path=text.txt"}, "data.data_path"), "\"text.txt\"");
    EXPECT_EQ(value({"sub/a.yaml", "data.data_path=/abs/text.txt"}, "data.data_path"), "\"/abs/text.txt\"");
}

TEST_F(CliConfig, TheBatchTripleIsDerivedOrRefusedWithItsNumbers)
{
    Words common = {"--ranks", "4", "parallelism.tp=2"};
    std::string file = write("b.yaml", "model: {arch: llama}\n"); /* without a batch of its own */
    Words base = Words{file} + common;
    EXPECT_EQ(value(base + Words{"batch.global_batch_size=16", "batch.micro_batch_size=2"},
                    "batch.gradient_accumulation_steps"),
              "4");
    EXPECT_EQ(
        value(base + Words{"batch.global_batch_size=16", "batch.micro_batch_size=2"}, "parallelism.data_parallel_size"),
        "2");
    EXPECT_EQ(value(base + Words{"batch.gradient_accumulation_steps=4", "batch.micro_batch_size=2"},
                    "batch.global_batch_size"),
              "16");
    EXPECT_EQ(value(base + Words{"batch.gradient_accumulation_steps=4", "batch.global_batch_size=16"},
                    "batch.micro_batch_size"),
              "2");
    refused(base +
                Words{"batch.global_batch_size=16", "batch.micro_batch_size=2", "batch.gradient_accumulation_steps=3"},
            {"16 != 2 * 3 * 2", "4 ranks"});
    refused(base + Words{"batch.global_batch_size=10", "batch.micro_batch_size=4"}, {"10", "4", "2"});
    /* 8 samples of 4 on 2 data ranks: one micro-batch, whatever tensor ranks there are. */
    EXPECT_EQ(value(base + Words{"batch.global_batch_size=8", "batch.micro_batch_size=4"},
                    "batch.gradient_accumulation_steps"),
              "1");
}

TEST_F(CliConfig, AMisspeltKeyIsNamedWithItsPlaceAndTheNearestOne)
{
    struct {
        const char *yaml;
        Words says;
    } rows[] = {
        {"model: {arch: llama}\noptimizer:\n  gradient_cliping: 1.0\n",
         {"gradient_cliping", ":3:", "gradient_clipping"}},
        {"optimizer:\n  gradient_clipp1ng: 1.0\n", {"gradient_clipp1ng", ":2:", "gradient_clipping"}},
        {"model:\n  Num_Layers: 4\n", {"Num_Layers", ":2:", "num_layers"}},
        {"optimizer:\n  num_layers: 4\n", {"num_layers", ":2:", "model"}},
        {"modle:\n  num_layers: 4\n", {"modle", ":1:", "model"}},
        {"train:\n  seed: 1\n  seed: 2\n", {"seed", ":3:"}},
    };
    for (const auto &r : rows)
        refused({write("typo.yaml", r.yaml)}, r.says);
    refused({kTiny, "model.num_layer=4"}, {"num_layer", "num_layers"});
    refused({kTiny, "modle.num_layers=4"}, {"modle"});
    refused({kTiny, "nonsense"}, {"nonsense"});
}

TEST_F(CliConfig, AllErrorsAreReportedAtOnce)
{
    std::string file = write("bad.yaml", "model:\n  num_layers: -4\n  hiden_size: 64\ntrain:\n  seed: x\n");
    refused({file, "optimizer.lr=fast"},
            {"bad.yaml:2:", "-4", "bad.yaml:3:", "hidden_size", "bad.yaml:5:", "seed", "fast"});
}

TEST_F(CliConfig, SpellingsOfANumberAreOneNumber)
{
    for (const char *s : {"1e-4", "1.0e-4", "1.e-4", "1E-04", "+1e-4", ".0001", "\"0.0001\""})
        EXPECT_EQ(std::stod(value({write("n.yaml", std::string("optimizer:\n  lr: ") + s + "\n")}, "optimizer.lr")),
                  1e-4)
            << s;
    for (const char *s : {"fast", "1e-4x", ".nan", ".inf", "-1e-4", ""})
        refused({write("n.yaml", std::string("optimizer:\n  lr: ") + s + "\n")}, {"lr", ":2:"});
    for (const char *s : {"4.5", "9223372036854775808", "0", "-4", "[4]", "yes", "010"})
        refused({write("n.yaml", std::string("model:\n  num_layers: ") + s + "\n")}, {"num_layers", ":2:"});
    for (const char *s : {"4", "4.0", "0x4", "\"4\"", "4e0"})
        EXPECT_EQ(value({write("n.yaml", std::string("model:\n  num_layers: ") + s + "\n")}, "model.num_layers"), "4")
            << s;
    refused({write("n.yaml", "batch:\n  micro_batch_size: 4294967300\n")}, {"micro_batch_size", "4294967300"});
}

TEST_F(CliConfig, HostileFilesAreRefusedInBoundedTimeAndMemory)
{
    std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n";
    for (char c = 'b'; c <= 'i'; c++) {
        std::string one = std::string("*") + static_cast<char>(c - 1), line = std::string(1, c) + ": &" + c + " [";
        for (int i = 0; i < 9; i++)
            line += (i ? ", " : "") + one;
        bomb += line + "]\n";
    }
    std::string deep = "model: " + std::string(1000, '[') + std::string(1000, ']') + "\n";
    struct {
        const char *name;
        std::string yaml;
    } rows[] = {
        {"bomb", bomb},
        {"deep", deep},
        {"tab", "model:\n\tnum_layers: 4\n"},
        {"not_yaml", "{]}:\n"},
        {"empty", ""},
        {"only_comment", "# nothing\n"},
        {"top_is_list", "- a\n- b\n"},
        {"top_is_scalar", "hello\n"},
        {"binary", std::string("\0\1\2\xff", 4)},
    };
    for (const auto &r : rows) {
        Command c = plait({"config", write("hostile.yaml", r.yaml)});
        Outcome o = c.address_space(1000000000).limit(20).run();
        EXPECT_LT(o.seconds, 2) << r.name;
        EXPECT_LT(o.peak_bytes, 100000000) << r.name;
        EXPECT_EQ(o.code, 2) << r.name << "\n" << o;
        EXPECT_NE(o.err.find("hostile.yaml"), std::string::npos) << r.name << "\n" << o;
    }
    for (const char *same : {"model:\r\n  num_layers: 4\r\n", "\xef\xbb\xbfmodel:\n  num_layers: 4\n",
                             "model:\n  num_layers: 4", "model:\n  num_layers: &n 4\ntrain: {train_iters: *n}\n"})
        EXPECT_EQ(value({write("same.yaml", same)}, "model.num_layers"), "4") << same;
}

TEST_F(CliConfig, WrongCommandsAreUsageErrorsAndHelpIsNot)
{
    struct {
        Words args, says;
    } rows[] = {
        {{}, {"usage: plait"}},
        {{"trian", kTiny}, {"trian", "usage: plait"}},
        {{"train"}, {"usage: plait train"}},
        {{"train", kTiny, "nonsense"}, {"nonsense"}},
        {{"config"}, {"usage: plait config"}},
        {{"config", kTiny, "--ranks"}, {"--ranks"}},
        {{"config", kTiny, "--ranks", "0"}, {"--ranks", "0"}},
        {{"config", kTiny, "--frobnicate"}, {"--frobnicate"}},
        {{"config", kTiny, "--ranks", "3", "parallelism.tp=2"}, {"3", "2"}},
        {{"diff"}, {"two files, not 0", "usage: plait diff"}},
        {{"diff", "a"}, {"two files, not 1", "usage: plait diff"}},
        {{"diff", "a", "b", "c"}, {"two files, not 3", "usage: plait diff"}},
        {{"diff", "a", "--frobnicate"}, {"unknown option --frobnicate", "usage: plait diff"}},
        {{"generate"}, {"usage: plait generate"}},
        {{"generate", "w", kTiny, "--prompt", "x"}, {"usage: plait generate"}},
        {{"generate", "w", kTiny, "--prompt", "", "--bytes", "4"}, {"--prompt"}},
        {{"generate", "w", kTiny, "--prompt", "x", "--bytes", "many"}, {"--bytes", "many"}},
        {{"generate", "w", kTiny, "--prompt", "x", "--bytes", "4", "--temperature", "-1"}, {"--temperature", "-1"}},
        {{"train", "--frobnicate"}, {"unknown option --frobnicate", "usage: plait train"}},
        {{"train", kTiny, "--ranks", "2"}, {"unknown option --ranks", "usage: plait train"}},
        {{"version", "--frobnicate"}, {"unknown option --frobnicate", "usage: plait version"}},
        {{"version", "now"}, {"unknown argument now", "usage: plait version"}},
        {{"help", "trian"}, {"trian", "usage: plait COMMAND"}},
        {{"config", kTiny, "--frobnicate", "--json"}, {"unknown option --frobnicate", "usage: plait config"}},
        {{"generate", "w", kTiny, "--prompt", "x", "--bytes", "4", "--top-k", "3"}, {"--top-k"}},
    };
    for (const auto &r : rows) {
        Outcome o = run(r.args);
        EXPECT_EQ(o.code, 2) << text_of(r.args) << "\n" << o;
        for (const std::string &s : r.says)
            EXPECT_NE(o.err.find(s), std::string::npos) << text_of(r.args) << ": no '" << s << "' in\n" << o;
    }
    const std::string whole = run({"help"}).out;
    EXPECT_EQ(whole.compare(0, 20, "usage: plait COMMAND"), 0) << whole;
    for (const Words &args : {Words{"help"}, Words{"--help"}, Words{"-h"}, Words{"help", "help"}}) {
        Outcome o = run(args);
        EXPECT_EQ(o.code, 0) << text_of(args) << "\n" << o;
        EXPECT_EQ(o.out, whole) << text_of(args);
    }
    const struct {
        const char *command;
        Words before; /* what else may stand there */
    } commands[] = {{"train", {kTiny, "train.seed=1"}},
                    {"config", {kTiny, "--ranks", "2"}},
                    {"diff", {"a", "b"}},
                    {"generate", {"w", kTiny, "--prompt", "x"}},
                    {"version", {}}};
    for (const auto &c : commands) {
        const std::string begin = std::string("usage: plait ") + c.command;
        const Words name = {c.command};
        for (const Words &args : {name + Words{"--help"}, name + Words{"-h"}, Words{"help"} + name,
                                  name + c.before + Words{"--help"}, name + Words{"--help"} + c.before}) {
            Outcome h = run(args);
            EXPECT_EQ(h.code, 0) << text_of(args) << "\n" << h;
            EXPECT_EQ(h.out.compare(0, begin.size(), begin), 0) << text_of(args) << "\n" << h;
            EXPECT_EQ(h.err, "") << text_of(args);
        }
    }
    /* the value of an option is no option */
    Outcome prompt = run({"generate", "w", "no.yaml", "--prompt", "--help", "--bytes", "1"});
    EXPECT_EQ(prompt.code, 5) << prompt;
    Outcome two = run({"train", "--help"}, 2);
    EXPECT_EQ(two.code, 0) << two;
    EXPECT_EQ(two.out, run({"train", "--help"}).out) << "rank 0 prints";
    Outcome o = run({"version"});
    EXPECT_EQ(o.code, 0) << o;
    for (const char *s : {"plait 0.", "MPI", "libyaml", "fp32", "bf16", "fp16", "fp64"})
        EXPECT_NE(o.out.find(s), std::string::npos) << s << "\n" << o;
}

/* Nothing is rounded, cut or taken for a number that it is not. */
TEST_F(CliConfig, NumbersOfOptionsAreTakenWholeOrRefused)
{
    const Words generate = {"generate", path("no.safetensors"), kTiny, "--prompt", "x"};
    const Words never = {"",   " ",   "x",   "5x",   " 5", "5 ",    "-1",
                         "-0", "nan", "inf", "0x10", "1e", "1e400", "99999999999999999999",
                         "+",  ".",   "1,5"};
    const Words fractions = {"2.9", "1e2", "+5"};
    struct {
        Words command;
        const char *option;
        bool whole;
    } rows[] = {
        {generate, "--bytes", true},
        {generate + Words{"--bytes", "1"}, "--seed", true},
        {generate + Words{"--bytes", "1"}, "--temperature", false},
        {{"config", kTiny}, "--ranks", true},
    };
    for (const auto &r : rows) {
        for (const std::string &number : r.whole ? never + fractions : never) {
            if (!r.whole && (number == "-0")) /* is 0 */
                continue;
            Words args = r.command + Words{r.option, number};
            Outcome o = run(args);
            EXPECT_EQ(o.code, 2) << text_of(args) << "\n" << o;
            EXPECT_NE(o.err.find(std::string(r.option) + " takes a "), std::string::npos) << text_of(args) << "\n" << o;
            EXPECT_NE(o.err.find("not '" + number + "'"), std::string::npos) << text_of(args) << "\n" << o;
        }
        Outcome o = run(r.command + Words{r.option});
        EXPECT_EQ(o.code, 2) << o;
        EXPECT_NE(o.err.find("not nothing"), std::string::npos) << o;
    }
    /* These are numbers: what is missing then is the file of weights. */
    for (const Words &good : {Words{"--bytes", "007"}, Words{"--bytes", "1", "--seed", "9223372036854775807"},
                              Words{"--bytes", "1", "--temperature", "+1.5e-1"}}) {
        Outcome o = run(generate + good);
        EXPECT_EQ(o.code, 5) << text_of(good) << "\n" << o;
    }
}

TEST_F(CliConfig, AFileThatCannotBeReadIsAFileError)
{
    for (const std::string &file : {path("missing.yaml"), directory()}) {
        Outcome o = run({"train", file});
        EXPECT_EQ(o.code, 5) << file << "\n" << o;
        EXPECT_NE(o.err.find(file), std::string::npos) << o;
    }
}

TEST_F(CliConfig, UnderMpiexecItPrintsOnce)
{
    Outcome one = run({"config", kTiny, "--json"}), two = run({"config", kTiny, "--json"}, 2);
    EXPECT_EQ(two.code, 0) << two;
    EXPECT_EQ(one.out, two.out);
    EXPECT_FALSE(one.out.empty());
}
