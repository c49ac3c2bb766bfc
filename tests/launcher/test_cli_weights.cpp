/* Weights through the program: the same start on every grid, saved on one grid and loaded on another. */
#include "plait_test.h"

#include "core/safetensors.h"

#include <algorithm>
#include <filesystem>
#include <set>

namespace
{

struct Grid {
    const char *name;
    int ranks;
    Words overrides;
};

const Grid kGrids[] = {
    {"one", 0, {}},
    {"tp2", 2, {"parallelism.tp=2"}},
    {"pp2", 2, {"parallelism.pp=2"}},
    {"dp2_zero3", 2, {"zero_optimization.stage=3"}},
    {"tp2_pp2", 4, {"parallelism.tp=2", "parallelism.pp=2"}},
    {"dp3_zero3", 3, {"zero_optimization.stage=3", "batch.global_batch_size=6"}},
};
const Grid &grid(const std::string &name)
{
    return *std::find_if(std::begin(kGrids), std::end(kGrids), [&](const Grid &g) { return g.name == name; });
}

/* One step that changes nothing: what is saved is what was there before. */
const Words kStill = {"train.train_iters=1", "optimizer.lr=0"};

struct Model {
    const char *name;
    Words overrides;
};
const Model kModels[] = {
    {"llama", {}},
    {"llama_tied_one_kv", {"model.tie_word_embeddings=true", "model.num_query_groups=1"}},
    {"gpt2", {"model.arch=gpt2", "model.num_query_groups=4", "model.tie_word_embeddings=true"}},
};

class CliWeights : public PlaitTest
{
  protected:
    Weights after(const Words &overrides, const Grid &g, const std::string &file)
    {
        train(kTiny, overrides + g.overrides + Words{"checkpoint.save_weights=" + path(file)}, g.ranks);
        return read_weights(path(file));
    }
    /* What lies in the directory; all files of metrics as one. */
    std::set<std::string> entries() const
    {
        std::set<std::string> names;
        for (const auto &entry : std::filesystem::directory_iterator(directory())) {
            std::string name = entry.path().filename();
            names.insert(name.compare(0, 7, "metrics") == 0 ? "metrics" : name);
        }
        return names;
    }
};

} // namespace

TEST_F(CliWeights, EveryGridStartsFromTheSameModel)
{
    for (const Model &m : kModels) {
        Weights one = after(kStill + m.overrides, grid("one"), "one.safetensors");
        for (const Grid &g : kGrids)
            expect_same_weights(after(kStill + m.overrides, g, "w.safetensors"), one,
                                std::string(m.name) + " " + g.name);
    }
    /* and its halves are no copies of each other */
    Weights one = after(kStill, grid("one"), "one.safetensors");
    const std::vector<double> &q = one["model.layers.0.self_attn.q_proj.weight"].values;
    ASSERT_EQ(q.size(), 64u * 64u);
    EXPECT_FALSE(std::equal(q.begin(), q.begin() + 2048, q.begin() + 2048));
}

TEST_F(CliWeights, ThroughAnyGridAFileComesBackBitByBit)
{
    for (const Model &m : kModels) {
        Weights trained = after(Words{"train.train_iters=2"} + m.overrides, grid("one"), "a.safetensors");
        std::string from = "a.safetensors";
        for (const Grid &g : kGrids) { /* each loads what the one before saved */
            std::string to = std::string(g.name) + ".safetensors";
            Weights back = after(kStill + m.overrides + Words{"checkpoint.load_weights=" + path(from)}, g, to);
            expect_same_weights(back, trained, std::string(m.name) + " from " + from + " to " + to);
            from = to;
        }
    }
}

TEST_F(CliWeights, TheNextLossIsThatOfTheUnbrokenRun)
{
    struct {
        const char *from, *to;
    } rows[] = {{"tp2", "one"}, {"dp2_zero3", "one"}, {"pp2", "tp2"}, {"tp2_pp2", "dp2_zero3"}, {"one", "tp2_pp2"}};
    for (const auto &r : rows) {
        std::string what = std::string(r.from) + " to " + r.to, file = path("w.safetensors");
        Metrics unbroken =
            train(kTiny, Words{"train.train_iters=4"} + grid(r.from).overrides, grid(r.from).ranks).metrics;
        train(kTiny, Words{"train.train_iters=3", "checkpoint.save_weights=" + file} + grid(r.from).overrides,
              grid(r.from).ranks);
        Metrics next = train(kTiny,
                             Words{"train.train_iters=1", "data.first_sample=24", "checkpoint.load_weights=" + file} +
                                 grid(r.to).overrides,
                             grid(r.to).ranks)
                           .metrics;
        ASSERT_EQ(unbroken.steps.size(), 4u) << what;
        ASSERT_EQ(next.steps.size(), 1u) << what;
        EXPECT_NEAR(next.steps[0].loss, unbroken.steps[3].loss, 1e-5 * unbroken.steps[3].loss) << what;
        EXPECT_NEAR(next.steps[0].grad_norm, unbroken.steps[3].grad_norm, 1e-4 * unbroken.steps[3].grad_norm) << what;
    }
}

TEST_F(CliWeights, TheFileIsInTheTypeOfTheMastersAndSaysItsFormat)
{
    struct {
        const char *dtype;
        plait_st_dtype stored;
    } rows[] = {{"fp32", PLAIT_ST_F32}, {"bf16", PLAIT_ST_F32}, {"fp16", PLAIT_ST_F32}, {"fp64", PLAIT_ST_F64}};
    for (const auto &r : rows) {
        std::string file = path("w.safetensors");
        train(kTiny,
              {"train.train_iters=1", std::string("precision.dtype=") + r.dtype, "checkpoint.save_weights=" + file});
        plait_st_file *f = nullptr;
        ASSERT_EQ(plait_st_open(file.c_str(), &f), PLAIT_OK) << plait_error_text();
        const char *format = plait_st_metadata(f, "format");
        EXPECT_TRUE(format && std::string(format) == "pt") << r.dtype;
        EXPECT_EQ(plait_st_count(f), 3 + 4 * 9) << r.dtype;
        for (int64_t i = 0; i < plait_st_count(f); i++)
            EXPECT_EQ(plait_st_at(f, i)->dtype, r.stored) << r.dtype << " " << plait_st_at(f, i)->name;
        plait_st_close(f);
    }
}

TEST_F(CliWeights, MastersOfSixteenBitRunsAreNotRounded)
{
    Weights w = after({"train.train_iters=3", "precision.dtype=bf16", "optimizer.lr=0.0006"}, grid("dp2_zero3"),
                      "w.safetensors");
    const std::vector<double> &norm = w["model.norm.weight"].values;
    ASSERT_EQ(norm.size(), 64u);
    size_t moved = 0, coarse = 0;
    for (double x : norm) {
        moved += x != 1.0;
        coarse += x * 256 == static_cast<double>(static_cast<int64_t>(x * 256));
    }
    EXPECT_GE(moved, 61u) << "1 - 0.0006 is 1 in bf16";
    EXPECT_LE(coarse, 3u);
}

TEST_F(CliWeights, AnOldFileIsReplacedOnlyByAWholeOne)
{
    write("w.safetensors", "old");
    train(kTiny, {"train.train_iters=1", "checkpoint.save_weights=" + path("w.safetensors")}, 2);
    EXPECT_EQ(count_elements(read_weights(path("w.safetensors"))), 180928);
    EXPECT_EQ(entries(), (std::set<std::string>{"w.safetensors", "metrics"}));
}

/* Weights may be loaded from the file that they are saved to, under any of its names: they are read before the first
 * step, and the new file takes the place of the old one in one piece. */
TEST_F(CliWeights, ARunMayGoOnInPlace)
{
    const Words two = {"train.train_iters=2", "checkpoint.save_weights=" + path("w.safetensors")};
    Weights all = after({"train.train_iters=4", "optimizer.type=SGD"}, grid("one"), "all.safetensors");
    train(kTiny, two + Words{"optimizer.type=SGD"});
    for (const char *name : {"w.safetensors", "./w.safetensors"}) {
        Weights before = read_weights(path("w.safetensors"));
        train(kTiny, two + Words{"optimizer.type=SGD", "data.first_sample=16", "checkpoint.load_weights=" + path(name)},
              2);
        Weights next = read_weights(path("w.safetensors"));
        EXPECT_NE(next["model.norm.weight"].values, before["model.norm.weight"].values);
        if (name[0] == 'w')
            expect_near_weights(next, all, 1e-5, "two and two steps");
    }
    EXPECT_EQ(entries(), (std::set<std::string>{"all.safetensors", "w.safetensors", "metrics"}));
}

TEST_F(CliWeights, DamagedFilesAreRefusedOnEveryGrid)
{
    train(kTiny, {"train.train_iters=1", "checkpoint.save_weights=" + path("w.safetensors")});
    std::string good = read("w.safetensors");
    struct {
        const char *name;
        std::string bytes;
    } rows[] = {
        {"empty", ""},
        {"seven_bytes", good.substr(0, 7)},
        {"truncated", good.substr(0, good.size() - 1)},
        {"too_long", good + "x"},
        {"header_cut", good.substr(0, 100)},
        {"huge_header", std::string(8, '\xff') + good.substr(8)},
    };
    for (const auto &r : rows)
        for (int ranks : {0, 2}) {
            std::string bad = write("bad.safetensors", r.bytes);
            Command c = plait({"train", kTiny, "checkpoint.load_weights=" + bad}, ranks);
            Outcome o = c.limit(20).run();
            EXPECT_EQ(o.code, 5) << r.name << "\n" << o;
            EXPECT_NE(o.err.find("bad.safetensors"), std::string::npos) << r.name << "\n" << o;
            EXPECT_EQ(o.out.find("iteration"), std::string::npos) << r.name << "\n" << o;
        }
}

/* A file may hold the head of a tied model too, if it is the token matrix. Here another matrix, c_attn, has as many
 * rows as there are words: which tensor is tied follows from the model, not from a shape. */
TEST_F(CliWeights, TheHeadOfATiedModelMustBeItsTokenMatrix)
{
    const Words model = {"model.arch=gpt2",      "model.num_query_groups=4", "model.hidden_size=96",
                         "model.vocab_size=288", "model.ffn_hidden_size=96", "model.num_layers=2"};
    const Words tied =
        model + Words{"model.tie_word_embeddings=true", "checkpoint.load_weights=" + path("b.safetensors")};
    Weights apart = after(kStill + model + Words{"model.tie_word_embeddings=false"}, grid("one"), "a.safetensors");
    const std::vector<double> &tokens = apart["transformer.wte.weight"].values;
    ASSERT_EQ(tokens.size(), apart["lm_head.weight"].values.size());
    ASSERT_EQ(apart["transformer.h.0.attn.c_attn.weight"].values.size(), tokens.size());

    edit_weights(path("a.safetensors"), path("b.safetensors"),
                 [&](const std::string &name, std::vector<double> &values) {
                     if (name == "lm_head.weight")
                         values = tokens;
                 });
    for (const char *name : {"one", "tp2", "pp2"})
        train(kTiny, kStill + tied + grid(name).overrides, grid(name).ranks);

    edit_weights(path("a.safetensors"), path("b.safetensors"),
                 [&](const std::string &name, std::vector<double> &values) {
                     if (name == "lm_head.weight") {
                         values = tokens;
                         values.back() += 1;
                     }
                 });
    Outcome o = run(Words{"train", kTiny} + kStill + tied);
    EXPECT_EQ(o.code, 5) << o;
    EXPECT_NE(o.err.find("lm_head.weight differs from transformer.wte.weight"), std::string::npos) << o;
}
