#include "training_run.h"

#include "../parallel/mpi_world.h"
#include "core/safetensors.h"
#include "launcher/run_config.h"
#include "parallel/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

Overrides fp64()
{
    return {"precision.dtype=fp64"};
}

Overrides fp32()
{
    return {"precision.dtype=fp32", "device.kernels=cpu", "optimizer.eps=1e-4"};
}

Overrides small_model()
{
    return {"precision.dtype=fp64",     "model.num_layers=4",          "model.hidden_size=16",
            "model.ffn_hidden_size=24", "model.num_attention_heads=4", "model.num_query_groups=2",
            "model.seq_length=8",       "batch.global_batch_size=8"};
}

// ---- one run ----

namespace
{

const char *const kConfig = PLAIT_SOURCE_DIR "/configs/tiny8.yaml";

plait_status run(plait_world *world, const Overrides &overrides, int steps, const std::string &weights,
                 const Watch &watch, plait_config *cfg, plait_training *t, RunResult *out)
{
    std::vector<const char *> texts;
    for (const std::string &o : overrides)
        texts.push_back(o.c_str());
    PLAIT_TRY(plait_run_config(world, cfg, kConfig, texts.data(), (int)texts.size()));
    PLAIT_TRY(plait_training_open(t, world, cfg));
    for (int step = 1; step <= steps; step++) {
        plait_training_step_info info;
        PLAIT_TRY(plait_training_step(t, step, &info));
        out->losses.push_back(info.result.loss);
        out->norms.push_back(info.result.grad_norm);
        out->batches.push_back((double)info.global_batch_size);
        if (watch)
            watch(*t, step);
    }
    if (!weights.empty()) {
        PLAIT_TRY(plait_weights_save(t->engine, weights.c_str()));
        out->weights = weights;
    }
    return PLAIT_OK;
}

} // namespace

RunResult train(plait_world *world, const Overrides &overrides, int steps, const std::string &weights,
                const Watch &watch)
{
    RunResult out;
    plait_config cfg = {};
    plait_training t = {};
    plait_status st = run(world, overrides, steps, weights, watch, &cfg, &t, &out);
    EXPECT_EQ(st, PLAIT_OK) << plait_error_text() << "\n" << plait_error_trace_text();
    out.done = st == PLAIT_OK;
    plait_training_close(&t);
    plait_config_deinit(&cfg);
    return out;
}

// ---- worlds ----

void side_by_side(int ranks, int count, const std::function<void(plait_world *world, int i)> &body)
{
    const int worlds = test_world.size / ranks;
    ASSERT_GT(worlds, 0) << ranks << " ranks are needed, there are " << test_world.size;
    for (int begin = 0; begin < count; begin += worlds) {
        plait_world world;
        ASSERT_EQ(plait_world_split(&test_world, ranks, &world), PLAIT_OK) << plait_error_text();
        const int i = begin + test_world.rank / ranks;
        if (world.size > 0 && i < count)
            body(&world, i);
        plait_world_close(&world);
        /* Who has nothing to do here waits for the whole case of another, not for a message. */
        const double usual = plait_comm_timeout();
        plait_comm_set_timeout(600.0);
        ASSERT_EQ(plait_comm_agree(test_world.comm, PLAIT_OK), PLAIT_OK) << plait_error_text();
        plait_comm_set_timeout(usual);
    }
}

namespace
{
std::string dir_name;
}

const std::string &shared_dir()
{
    if (dir_name.empty()) {
        char path[4096] = "";
        const char *tmp = std::getenv("TMPDIR");
        std::snprintf(path, sizeof path, "%s/plait-models-XXXXXX", tmp ? tmp : "/tmp");
        if (test_world.rank == 0) {
            EXPECT_NE(mkdtemp(path), nullptr);
        }
        EXPECT_EQ(plait_comm_broadcast_bytes(test_world.comm, path, sizeof path, 0), PLAIT_OK);
        dir_name = path;
    }
    return dir_name;
}

void remove_shared_dir()
{
    std::error_code ignored;
    if (test_world.rank == 0 && !dir_name.empty())
        std::filesystem::remove_all(dir_name, ignored);
    dir_name.clear();
}

std::vector<RunResult> references(const std::vector<Overrides> &runs, int steps)
{
    static int made = 0;
    const std::string dir = shared_dir();
    std::vector<RunResult> results(runs.size());
    std::vector<int> owner(runs.size(), -1);
    side_by_side(1, (int)runs.size(), [&](plait_world *world, int i) {
        SCOPED_TRACE("reference " + std::to_string(i));
        results[(size_t)i] =
            train(world, runs[(size_t)i], steps, dir + "/reference-" + std::to_string(made + i) + ".safetensors");
        owner[(size_t)i] = test_world.rank;
    });
    made += (int)runs.size();
    for (size_t i = 0; i < runs.size(); i++) {
        RunResult &r = results[i];
        const int root = (int)i % test_world.size;
        EXPECT_EQ(owner[i] >= 0, root == test_world.rank);
        char path[4096] = "";
        std::snprintf(path, sizeof path, "%s", r.weights.c_str());
        std::vector<double> numbers = r.losses;
        numbers.insert(numbers.end(), r.norms.begin(), r.norms.end());
        numbers.insert(numbers.end(), r.batches.begin(), r.batches.end());
        numbers.resize(3 * (size_t)steps);
        int done = r.done;
        EXPECT_EQ(plait_comm_broadcast_bytes(test_world.comm, path, sizeof path, root), PLAIT_OK);
        EXPECT_EQ(plait_comm_broadcast_bytes(test_world.comm, numbers.data(), numbers.size() * sizeof(double), root),
                  PLAIT_OK);
        EXPECT_EQ(plait_comm_broadcast_bytes(test_world.comm, &done, sizeof done, root), PLAIT_OK);
        EXPECT_TRUE(done) << "reference " << i;
        r.weights = path;
        r.losses.assign(numbers.begin(), numbers.begin() + steps);
        r.norms.assign(numbers.begin() + steps, numbers.begin() + 2 * steps);
        r.batches.assign(numbers.begin() + 2 * steps, numbers.end());
        r.done = done != 0;
    }
    return results;
}

// ---- comparison ----

const Tolerance kFp64 = {1e-10, 1e-10, 1e-10, false};
const Tolerance kFp32 = {1e-6, 5e-6, 1e-5, true};

namespace
{

void compare_numbers(const char *what, const std::vector<double> &got, const std::vector<double> &want,
                     double tolerance)
{
    ASSERT_EQ(got.size(), want.size()) << what;
    ASSERT_FALSE(want.empty()) << what;
    for (size_t i = 0; i < want.size(); i++)
        EXPECT_LE(std::fabs(got[i] - want[i]), tolerance * std::fabs(want[i]))
            << what << " of step " << i + 1 << ": " << got[i] << ", not " << want[i];
}

// Calls body for every tensor of the second file with its values in both. Returns the number of elements.
int64_t for_each_tensor(
    const std::string &first, const std::string &second,
    const std::function<void(const plait_st_tensor &t, const std::vector<double> &, const std::vector<double> &)> &body)
{
    const auto values_of = [](const plait_st_file *f, const plait_st_tensor *t) {
        std::vector<double> values((size_t)t->numel);
        EXPECT_EQ(plait_st_read(f, t, 0, t->numel, PLAIT_FP64, values.data()), PLAIT_OK) << plait_error_text();
        return values;
    };
    plait_st_file *a = nullptr, *b = nullptr;
    int64_t elements = 0;
    EXPECT_EQ(plait_st_open(first.c_str(), &a), PLAIT_OK) << plait_error_text();
    EXPECT_EQ(plait_st_open(second.c_str(), &b), PLAIT_OK) << plait_error_text();
    if (a && b) {
        EXPECT_EQ(plait_st_count(a), plait_st_count(b));
    }
    for (int64_t i = 0; a && b && i < plait_st_count(b); i++) {
        const plait_st_tensor *tb = plait_st_at(b, i), *ta = plait_st_find(a, tb->name);
        if (!ta || ta->numel != tb->numel) {
            ADD_FAILURE() << first << " has no " << tb->name << " of " << tb->numel << " elements";
            continue;
        }
        body(*tb, values_of(a, ta), values_of(b, tb));
        elements += tb->numel;
    }
    plait_st_close(a);
    plait_st_close(b);
    return elements;
}

} // namespace

int64_t compare(const RunResult &got, const RunResult &want, const Tolerance &tolerance, double lr)
{
    if (!got.done || !want.done)
        return 0; /* said already */
    compare_numbers("loss", got.losses, want.losses, tolerance.loss);
    compare_numbers("gradient norm", got.norms, want.norms, tolerance.norm);
    const double most = (double)want.losses.size() * lr;
    using Values = std::vector<double>;
    return for_each_tensor(got.weights, want.weights, [&](const plait_st_tensor &t, const Values &a, const Values &b) {
        double difference = 0, norm = 0;
        for (size_t i = 0; i < b.size(); i++) {
            norm += b[i] * b[i];
            if (tolerance.key_bias_apart && is_key_bias(t.name, i, b.size()))
                EXPECT_LE(std::fabs(a[i] - b[i]), most) << t.name << "[" << i << "]";
            else
                difference += (a[i] - b[i]) * (a[i] - b[i]);
        }
        const double least = lr * std::sqrt((double)t.numel);
        EXPECT_LE(std::sqrt(difference), tolerance.tensor * std::max(std::sqrt(norm), least))
            << t.name << ": of " << t.numel << " elements, norm " << std::sqrt(norm);
    });
}

// ---- what a training holds ----

void check_memory(plait_training &t)
{
    const plait_ledger *l = plait_engine_ledger(t.engine);
    for (int kind = 0; kind < PLAIT_MEM_KINDS; kind++)
        EXPECT_EQ(l->high_water[PLAIT_TIER_DEVICE][kind], l->planned[PLAIT_TIER_DEVICE][kind])
            << plait_mem_kind_name((plait_mem_kind)kind) << " on rank " << t.world->rank;
}
