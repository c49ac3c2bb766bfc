/* plait generate: the same text on every grid. */
#include "plait_test.h"

#include <fstream>
#include <iterator>
#include <limits>

namespace
{

class CliGenerate : public PlaitTest
{
  protected:
    void SetUp() override
    {
        weights = path("w.safetensors");
        train(kTiny, {"train.train_iters=40", "optimizer.lr=0.003", "checkpoint.save_weights=" + weights}, 0, 120);
    }
    std::string generated(const Words &options, int ranks = 0)
    {
        Outcome o = run(Words{"generate", weights, kTiny} + options, ranks);
        EXPECT_EQ(o.code, 0) << text_of(options) << "\n" << o;
        EXPECT_EQ(o.err, "") << text_of(options);
        return o.out;
    }
    std::string weights;
};

} // namespace

TEST_F(CliGenerate, TheTextDependsOnSeedAndTemperatureNotOnTheGrid)
{
    const Words prompt = {"--prompt", "The", "--bytes", "24"};
    std::string greedy = generated(prompt + Words{"--temperature", "0"});
    EXPECT_EQ(greedy.compare(0, 3, "The"), 0) << greedy;
    EXPECT_EQ(greedy.back(), '\n');
    EXPECT_LE(greedy.size(), 3u + 24u + 1u);
    EXPECT_EQ(generated(prompt + Words{"--temperature", "0", "--seed", "2"}), greedy) << "nothing is drawn at 0";

    std::string drawn = generated(prompt + Words{"--temperature", "0.8", "--seed", "1"});
    EXPECT_NE(drawn, greedy);
    EXPECT_EQ(generated(prompt), drawn) << "these are the defaults";
    EXPECT_NE(generated(prompt + Words{"--seed", "2"}), drawn);

    struct {
        int ranks;
        Words overrides;
    } grids[] = {{2, {"parallelism.tp=2"}},
                 {2, {"parallelism.pp=2"}},
                 {2, {"zero_optimization.stage=3"}},
                 {4, {"parallelism.tp=2", "parallelism.pp=2"}},
                 {0, {"numerics.reduction=invariant"}},
                 {2, {"numerics.reduction=invariant", "parallelism.tp=2"}}};
    for (const auto &g : grids) {
        EXPECT_EQ(generated(prompt + Words{"--temperature", "0"} + g.overrides, g.ranks), greedy)
            << text_of(g.overrides);
        EXPECT_EQ(generated(prompt + g.overrides, g.ranks), drawn) << text_of(g.overrides);
    }
}

/* The file may ask for any grid: without mpiexec one rank continues the text. */
TEST_F(CliGenerate, OneRankNeedsNoGrid)
{
    const Words prompt = {"--prompt", "The", "--bytes", "12", "--temperature", "0"};
    std::ifstream in(kTiny);
    std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const std::string one = "pipeline_model_parallel_size: 1", two = "pipeline_model_parallel_size: 2";
    ASSERT_NE(text.find(one), std::string::npos);
    text.replace(text.find(one), one.size(), two);
    const std::string config = path("two_stages.yaml");
    std::ofstream(config) << text;
    Outcome o = run(Words{"generate", weights, config, "data.data_path=null"} + prompt);
    EXPECT_EQ(o.code, 0) << o;
    EXPECT_EQ(o.out, generated(prompt));
}

/* A byte is drawn by its position and from the last seq_length tokens: continuing a text gives the same text. */
TEST_F(CliGenerate, TheWindowSlidesBeyondTheSequenceLength)
{
    const std::string start = "In the beginning God created"; /* 28 of 32 tokens */
    std::string all = generated({"--prompt", start, "--bytes", "20"});
    ASSERT_GT(all.size(), start.size() + 12) << all;
    std::string longer = all.substr(0, start.size() + 10);
    std::string left = std::to_string(20 - 10);
    EXPECT_EQ(generated({"--prompt", longer, "--bytes", left}), all);
    /* What is outside of the window has no effect: another first byte, temperature 0. */
    std::string prompt = std::string(40, 'a'), other = "b" + std::string(39, 'a');
    std::string a = generated({"--prompt", prompt, "--bytes", "12", "--temperature", "0"});
    std::string b = generated({"--prompt", other, "--bytes", "12", "--temperature", "0"});
    EXPECT_EQ(a.substr(40), b.substr(40));
}

TEST_F(CliGenerate, NothingIsAddedToAPromptWhenNothingIsAskedFor)
{
    EXPECT_EQ(generated({"--prompt", "abc", "--bytes", "0"}), "abc\n");
}

TEST_F(CliGenerate, APromptBeyondTheVocabularyIsRefused)
{
    Weights w = read_weights(weights);
    for (const char *name : {"model.embed_tokens.weight", "lm_head.weight"}) {
        Tensor &t = w.at(name);
        t.shape[0] = 100;
        t.values.resize(static_cast<size_t>(100 * t.shape[1]));
    }
    write_weights(path("small.safetensors"), w);
    const auto continued = [&](const char *prompt, int ranks) {
        return run({"generate", path("small.safetensors"), kTiny, "data.data_path=null", "model.vocab_size=100",
                    "--bytes", "1", "--prompt", prompt},
                   ranks);
    };
    for (int ranks : {0, 2}) {
        Outcome o = continued("ab~", ranks);
        EXPECT_EQ(o.code, 2) << o;
        EXPECT_NE(o.err.find("--prompt: byte 2 is 126, model.vocab_size is 100"), std::string::npos) << o;
        EXPECT_EQ(o.out, "") << o;
        EXPECT_TRUE(o.left.empty()) << o;
        EXPECT_EQ(continued("abc", ranks).code, 0);
    }
}

TEST_F(CliGenerate, WeightsThatAreNotFiniteGiveNoText)
{
    const std::string bad = path("bad.safetensors");
    edit_weights(weights, bad, [](const std::string &name, std::vector<double> &v) {
        if (name == "model.norm.weight")
            v[3] = std::numeric_limits<double>::quiet_NaN();
    });
    for (int ranks : {0, 2}) {
        Outcome o = run({"generate", bad, kTiny, "--prompt", "abc", "--bytes", "4"}, ranks);
        EXPECT_EQ(o.code, 4) << o;
        EXPECT_NE(o.err.find("the logit of token 0 at position 3 is "), std::string::npos) << o;
        EXPECT_TRUE(o.left.empty()) << o;
    }
}

TEST_F(CliGenerate, RanksThatWereToldDifferentThingsAreRefused)
{
    const Words rank = {"-n", "1", plait_binary(), "generate", weights, kTiny, "--bytes", "4", "--prompt"};
    Command c(Words{mpiexec()} + rank + Words{"abc", ":"} + rank + Words{"abd"});
    Outcome o = c.in(directory()).limit(30).run();
    EXPECT_EQ(o.code, 2) << o;
    EXPECT_NE(o.err.find("the ranks' options of generate differ: rank 0 has '--prompt abc'"), std::string::npos) << o;
    EXPECT_EQ(o.out, "") << o;
    EXPECT_TRUE(o.left.empty()) << o;
}

TEST_F(CliGenerate, AReaderThatHasLeftIsAnError)
{
    for (int ranks : {0, 2}) {
        Command c = plait({"generate", weights, kTiny, "--prompt", "abc", "--bytes", "4"}, ranks);
        Outcome o = c.output("/dev/full").run();
        if (ranks == 0) { /* mpiexec forwards a rank's output and itself meets the end of it */
            EXPECT_EQ(o.code, 5) << o;
            EXPECT_NE(o.err.find("standard output: "), std::string::npos) << o;
        }
        EXPECT_FALSE(o.timed_out) << o;
        EXPECT_TRUE(o.left.empty()) << o;
    }
}

TEST_F(CliGenerate, WeightsOfAnotherModelAreRefused)
{
    Outcome o = run({"generate", weights, kTiny, "--prompt", "x", "--bytes", "1", "model.num_layers=5"});
    EXPECT_EQ(o.code, 5) << o;
    EXPECT_NE(o.err.find("model.layers.4."), std::string::npos) << o;
    o = run({"generate", path("missing"), kTiny, "--prompt", "x", "--bytes", "1"}, 2);
    EXPECT_EQ(o.code, 5) << o;
    EXPECT_NE(o.err.find("missing"), std::string::npos) << o;
    EXPECT_TRUE(o.left.empty()) << o;
}
