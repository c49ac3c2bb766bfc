/* Hugging Face's files load as they are and give the loss that their own library gives, on every grid; what is saved
 * again has the same bits. Under mpiexec; each number of ranks runs the grids that have so many. */
#include "../parallel/mpi_world.h"
#include "plait_test.h"

#include "launcher/run_config.h"
#include "models/registry.h"
#include "parallel/weights.h"

#include <cmath>
#include <filesystem>
#include <unistd.h>

namespace
{
long reads; /* calls of pread so far */
}

/* The linker puts this in place of pread (-Wl,--wrap). */
extern "C" ssize_t __real_pread(int fd, void *to, size_t bytes, off_t offset);
extern "C" ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t offset);
extern "C" ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t offset)
{
    reads++;
    return __real_pread(fd, to, bytes, offset);
}

namespace
{

const int kTokens[17] = {3, 10, 17, 24, 31, 6, 13, 20, 27, 2, 9, 16, 23, 30, 5, 12, 19};

struct Model {
    const char *name;
    Words shape;
    double loss;
    std::vector<double> logits; /* of the last position, first few */
};
const Model kModels[] = {
    {"llama_tiny",
     {"model.arch=llama", "model.num_query_groups=2", "model.ffn_hidden_size=24", "model.max_position_embeddings=64",
      "model.layernorm_epsilon=1e-5", "model.rotary_base=10000", "model.tie_word_embeddings=false"},
     3.564010,
     {0.07787, 0.02859, -1.14937, -1.51780}},
    {"gpt2_tiny",
     {"model.arch=gpt2", "model.ffn_hidden_size=64", "model.max_position_embeddings=32", "model.layernorm_epsilon=1e-5",
      "model.tie_word_embeddings=true"},
     3.895022,
     {}},
};
const Words kCommon = {
    "model.num_layers=2",  "model.hidden_size=16",     "model.num_attention_heads=4",        "model.seq_length=16",
    "model.vocab_size=32", "batch.micro_batch_size=1", "batch.gradient_accumulation_steps=1"};

struct Grid {
    int ranks;
    Words overrides;
};
const Grid kGrids[] = {
    {1, {}},
    {2, {"parallelism.tp=2"}},
    {2, {"parallelism.tp=2", "parallelism.sequence_parallel=true"}},
    {2, {"parallelism.pp=2"}},
    {2, {"zero_optimization.stage=3"}},
    {3, {"zero_optimization.stage=3"}},
    {4, {"parallelism.tp=2", "parallelism.pp=2"}},
    {4, {"parallelism.tp=4"}}, /* more ranks than key/value heads */
};
const char *const kTypes[] = {"fp32", "fp64", "bf16", "fp16"};

/* An engine in a world of its own. Collective over the test's world. */
class Engine
{
  public:
    Engine(const Model &m, const Words &overrides, bool logits) : model_(m)
    {
        const Words all = kCommon + m.shape + overrides;
        std::vector<const char *> texts;
        for (const std::string &o : all)
            texts.push_back(o.c_str());
        EXPECT_EQ(plait_world_split(&test_world, test_world.size, &world_), PLAIT_OK) << plait_error_text();
        EXPECT_EQ(plait_run_config(&world_, &cfg_, nullptr, texts.data(), static_cast<int>(texts.size())), PLAIT_OK)
            << plait_error_text();
        plait_engine_options o = {};
        o.cfg = &cfg_;
        o.model = ops();
        o.shape.eval_micros = logits ? 0 : 1;
        o.shape.logits = logits;
        EXPECT_EQ(plait_engine_create(&world_, &o, &e), PLAIT_OK) << plait_error_text();
    }
    ~Engine()
    {
        plait_engine_destroy(e);
        plait_config_deinit(&cfg_);
        plait_world_close(&world_);
    }
    Engine(const Engine &) = delete;
    Engine &operator=(const Engine &) = delete;

    std::string load(const std::string &path)
    {
        return plait_weights_load(e, path.c_str()) == PLAIT_OK ? "" : plait_error_text();
    }
    std::string save(const std::string &path)
    {
        return plait_weights_save(e, path.c_str()) == PLAIT_OK ? "" : plait_error_text();
    }
    /* Every data rank sees the same 16 tokens and their successors. */
    void fill()
    {
        int32_t *tokens, *targets;
        plait_engine_tokens(e, 0, &tokens, &targets);
        for (int t = 0; t < 16; t++) {
            tokens[t] = kTokens[t];
            targets[t] = kTokens[t + 1];
        }
    }
    std::string file() const { return source(std::string("tests/data/hf/") + model_.name + "/model.safetensors"); }
    plait_engine *e = nullptr;

  private:
    const plait_model_ops *ops() const { return plait_model_find(cfg_.model.arch); }
    const Model &model_;
    plait_world world_ = {};
    plait_config cfg_ = {};
};

/* The same on all ranks: they have one parent. */
std::string shared_path(const std::string &name)
{
    return testing::TempDir() + "plait-hf-" + std::to_string(getppid()) + "-" + name;
}

template <typename Body> void on_every_grid(Body body)
{
    int grids = 0;
    for (const Model &m : kModels)
        for (const Grid &g : kGrids)
            if (g.ranks == test_world.size) {
                SCOPED_TRACE(std::string(m.name) + " " + text_of(g.overrides));
                body(m, g.overrides);
                grids++;
            }
    EXPECT_GT(grids, 0);
}

} // namespace

TEST(HuggingFaceModels, GiveTheirLoss)
{
    on_every_grid([](const Model &m, const Words &grid) {
        for (const char *type : kTypes) {
            Engine run(m, grid + Words{std::string("precision.dtype=") + type}, false);
            ASSERT_NE(run.e, nullptr);
            ASSERT_EQ(run.load(run.file()), "");
            run.fill();
            double loss = NAN;
            ASSERT_EQ(plait_engine_evaluate(run.e, &loss), PLAIT_OK) << plait_error_text();
            bool wide = std::string(type) == "fp32" || std::string(type) == "fp64";
            EXPECT_NEAR(loss, m.loss, wide ? 2e-5 : 2e-2) << type;
        }
    });
}

TEST(HuggingFaceModels, GiveTheirLogits)
{
    on_every_grid([](const Model &m, const Words &grid) {
        if (m.logits.empty())
            return;
        Engine run(m, grid, true);
        ASSERT_NE(run.e, nullptr);
        ASSERT_EQ(run.load(run.file()), "");
        run.fill();
        std::vector<double> logits(32);
        ASSERT_EQ(plait_engine_logits(run.e, 15, logits.data()), PLAIT_OK) << plait_error_text();
        for (size_t i = 0; i < m.logits.size(); i++)
            EXPECT_NEAR(logits[i], m.logits[i], 1e-5) << i;
    });
}

/* All values are multiples of 1/256: exact in every type. */
TEST(HuggingFaceModels, ComeBackBitByBit)
{
    on_every_grid([](const Model &m, const Words &grid) {
        for (const char *type : kTypes) {
            Engine run(m, grid + Words{std::string("precision.dtype=") + type}, false);
            std::string path = shared_path(m.name);
            ASSERT_NE(run.e, nullptr);
            ASSERT_EQ(run.load(run.file()), "");
            ASSERT_EQ(run.save(path), "");
            Weights want = read_weights(run.file()), got = read_weights(path);
            /* GPT-2's file may have names without their prefix. */
            for (const auto &[name, t] : want) {
                auto found = got.find(name);
                if (found == got.end())
                    found = got.find("transformer." + name);
                ASSERT_NE(found, got.end()) << name;
                EXPECT_EQ(found->second.shape, t.shape) << name;
                EXPECT_EQ(found->second.values, t.values) << type << " " << name;
            }
            EXPECT_EQ(got.size(), want.size());
            ASSERT_EQ(plait_comm_agree(test_world.comm, PLAIT_OK), PLAIT_OK); /* all have read it */
            std::filesystem::remove(path);
        }
    });
}

/* GPT-2's matrices lie transposed in its files. Here they have 393,216 elements, and blocks end inside of them. */
TEST(HuggingFaceModels, TransposedMatricesAreReadByRunsAndComeBack)
{
    for (const Grid &g : kGrids) {
        if (g.ranks != test_world.size)
            continue;
        SCOPED_TRACE(text_of(g.overrides));
        Engine run(kModels[1], Words{"model.hidden_size=128", "model.ffn_hidden_size=512"} + g.overrides, false);
        const std::string first = shared_path("first"), second = shared_path("second");
        ASSERT_NE(run.e, nullptr);
        ASSERT_EQ(plait_engine_init_weights(run.e), PLAIT_OK) << plait_error_text();
        ASSERT_EQ(run.save(first), "");
        reads = 0;
        ASSERT_EQ(run.load(first), "");
        EXPECT_GT(reads, 0);
        EXPECT_LT(reads, 393216 / g.ranks / 16);
        ASSERT_EQ(run.save(second), "");
        expect_same_weights(read_weights(second), read_weights(first), "there and back");
        ASSERT_EQ(plait_comm_agree(test_world.comm, PLAIT_OK), PLAIT_OK); /* all have read it */
        std::filesystem::remove(first);
        std::filesystem::remove(second);
    }
}

/* Tied by the configuration, but with a head of its own in the file. */
TEST(HuggingFaceModels, AHeadThatIsNotTheEmbeddingIsNotLostInSilence)
{
    for (const Grid &g : kGrids) {
        if (g.ranks != test_world.size)
            continue;
        Engine run(kModels[0], Words{"model.tie_word_embeddings=true"} + g.overrides, false);
        ASSERT_NE(run.e, nullptr);
        std::string error = run.load(run.file());
        EXPECT_NE(error.find("lm_head.weight"), std::string::npos) << error;
        EXPECT_NE(error.find("tie_word_embeddings"), std::string::npos) << error;
    }
}
