/* tests/models/training_testing.h: a training as a C++ object: opened from configs/ and overrides through the entry
 * that `plait train` uses, stepped on its text or on given tokens, looked at by logical tensor.
 *
 * What fails is an exception with the error's text, so a test reads as what is expected of numbers. All is
 * collective over the job.
 */
#ifndef PLAIT_TESTS_MODELS_TRAINING_TESTING_H
#define PLAIT_TESTS_MODELS_TRAINING_TESTING_H

#include "core/safetensors.h"
#include "launcher/training.h"
#include "parallel/weights.h"
#include "tests/models/replicas.h"
#include "tests/parallel/mpi_world.h"
#include "tests/words.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace training
{

inline void check(plait_status st)
{
    if (st != PLAIT_OK)
        throw std::runtime_error(plait_error_text());
}

using Overrides = Words;
using Tensors = std::map<std::string, std::vector<double>>;

inline Overrides join(const Overrides &a, const Overrides &b)
{
    return a + b;
}

/* Who runs a training: all ranks of the job together, or each one the same training for itself. */
enum class Ranks { all, alone };

/* A directory that all ranks of a world know; removed at the end. */
class SharedDir
{
  public:
    explicit SharedDir(plait_world *world) : world_(world)
    {
        char name[256] = "";
        if (world->rank == 0) {
            snprintf(name, sizeof name, "%splait-XXXXXX", testing::TempDir().c_str());
            if (!mkdtemp(name))
                name[0] = '\0';
        }
        check(plait_comm_broadcast_bytes(world->comm, name, sizeof name, 0));
        dir_ = name;
        if (dir_.empty())
            throw std::runtime_error("no directory for the test's files");
    }
    ~SharedDir()
    {
        std::error_code ignored;
        if (plait_comm_agree(world_->comm, PLAIT_OK) == PLAIT_OK && world_->rank == 0) /* everybody has read */
            std::filesystem::remove_all(dir_, ignored);
    }
    SharedDir(const SharedDir &) = delete;
    SharedDir &operator=(const SharedDir &) = delete;
    std::string path(const std::string &name) const { return dir_ + "/" + name; }

  private:
    plait_world *world_;
    std::string dir_;
};

inline Tensors read_tensors(const std::string &path)
{
    Tensors all;
    plait_st_file *f = nullptr;
    check(plait_st_open(path.c_str(), &f));
    for (int64_t i = 0; i < plait_st_count(f); i++) {
        const plait_st_tensor *t = plait_st_at(f, i);
        std::vector<double> &v = all[t->name];
        v.resize(static_cast<size_t>(t->numel));
        check(plait_st_read(f, t, 0, t->numel, PLAIT_FP64, v.data()));
    }
    plait_st_close(f);
    return all;
}

/* Rewrites a weight file of F32 tensors. */
inline void edit_tensors(const std::string &path, const std::function<void(Tensors &)> &edit)
{
    Tensors all = read_tensors(path);
    edit(all);
    plait_st_file *f = nullptr;
    check(plait_st_open(path.c_str(), &f));
    std::vector<plait_st_spec> specs;
    for (const auto &[name, values] : all) {
        const plait_st_tensor *t = plait_st_find(f, name.c_str());
        specs.push_back({name.c_str(), PLAIT_FP32,
                         t->ndim == 2 ? plait_shape_2d(t->shape[0], t->shape[1]) : plait_shape_1d(t->numel)});
    }
    plait_st_writer *w = nullptr;
    check(plait_st_writer_create(path.c_str(), specs.data(), static_cast<int64_t>(specs.size()), nullptr, 0, &w));
    int64_t i = 0;
    for (const auto &[name, values] : all) {
        float *out = static_cast<float *>(plait_st_writer_data(w, i++));
        for (size_t k = 0; k < values.size(); k++)
            out[k] = static_cast<float>(values[k]);
    }
    check(plait_st_writer_commit(w));
    plait_st_close(f);
}

/* A token and what follows it; target -1: not counted. */
struct Token {
    int32_t token, target;
};
/* Position t of sample s of the global batch. */
using Samples = std::function<Token(int64_t s, int64_t t)>;

class Training
{
  public:
    /* configs/`file` with overrides, on one thread unless they say otherwise. */
    Training(Ranks who, const std::string &file, const Overrides &overrides)
    {
        /* A world of its own, since a world's staging is reserved once. */
        check(plait_world_split(&test_world, who == Ranks::all ? test_world.size : 1, &world_));
        std::vector<const char *> texts = {"device.threads=1"};
        for (const std::string &o : overrides)
            texts.push_back(o.c_str());
        const std::string path = std::string(PLAIT_SOURCE_DIR "/configs/") + file;
        check(plait_config_load(&cfg_, path.c_str(), texts.data(), static_cast<int>(texts.size())));
        check(plait_config_resolve(&cfg_, world_.size));
        omp_set_num_threads(static_cast<int>(cfg_.device.threads));
        const plait_status st = plait_training_open(&training_, &world_, &cfg_);
        if (st != PLAIT_OK)
            close();
        check(st);
    }
    ~Training() { close(); }
    Training(const Training &) = delete;
    Training &operator=(const Training &) = delete;

    /* The next step on the text. */
    plait_step_result step()
    {
        plait_training_step_info info;
        check(plait_training_step(&training_, ++steps_, &info));
        lr = info.lr;
        return info.result;
    }
    std::vector<plait_step_result> steps(int n)
    {
        std::vector<plait_step_result> all;
        while (n-- > 0)
            all.push_back(step());
        return all;
    }
    /* The next step on given tokens, at the configured rate. */
    plait_step_result step(const Samples &samples)
    {
        const int micros = static_cast<int>(cfg_.batch.accumulation);
        const int64_t batch = cfg_.batch.micro_batch_size;
        for (int i = 0; i < micros; i++) {
            int32_t *tokens, *targets;
            plait_engine_tokens(engine(), i, &tokens, &targets);
            const int64_t first = plait_engine_first_sample(engine(), micros, i);
            for (int64_t t = 0; t < cfg_.model.seq_length; t++) {
                for (int64_t b = 0; b < batch; b++) {
                    const Token x = samples(first + b, t);
                    tokens[t * batch + b] = x.token;
                    targets[t * batch + b] = x.target;
                }
            }
        }
        plait_step_result r;
        check(plait_engine_train_step(engine(), static_cast<uint32_t>(++steps_), micros, cfg_.optimizer.lr, &r));
        return r;
    }

    /* Needs train.eval_interval. */
    double evaluate()
    {
        double loss;
        check(plait_training_evaluate(&training_, &loss));
        return loss;
    }
    void save(const std::string &path) { check(plait_weights_save(engine(), path.c_str())); }
    /* All logical tensors, on every rank. */
    Tensors weights()
    {
        SharedDir dir(&world_);
        save(dir.path("w.safetensors"));
        return read_tensors(dir.path("w.safetensors"));
    }
    plait_engine *engine() { return training_.engine; }
    const plait_training &training() const { return training_; }
    const plait_config &config() const { return cfg_; }

    double lr = 0; /* of the last step on the text */

  private:
    void close()
    {
        plait_training_close(&training_);
        plait_config_deinit(&cfg_);
        plait_world_close(&world_);
    }
    plait_world world_ = {};
    plait_config cfg_ = {};
    plait_training training_ = {};
    int64_t steps_ = 0;
};

/* The initial weights of configs/tiny.yaml, edited, in a file that every rank sees. */
inline std::string edited_weights(const SharedDir &dir, const std::function<void(Tensors &)> &edit)
{
    const std::string path = dir.path("edited.safetensors");
    if (test_world.rank == 0) {
        Training(Ranks::alone, "tiny.yaml", {}).save(path);
        edit_tensors(path, edit);
    }
    check(plait_comm_agree(test_world.comm, PLAIT_OK));
    return path;
}

inline double relative(double a, double b)
{
    return std::fabs(a - b) / std::fabs(b);
}

/* What one rank reports of its first steps. */
inline std::vector<plait_step_result> alone(const Overrides &overrides, int steps)
{
    return Training(Ranks::alone, "tiny.yaml", overrides).steps(steps);
}

inline void expect_steps(const std::vector<plait_step_result> &got, const std::vector<plait_step_result> &want,
                         double loss_bound, double norm_bound)
{
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); i++) {
        EXPECT_LE(relative(got[i].loss, want[i].loss), loss_bound) << "step " << i + 1;
        EXPECT_LE(relative(got[i].grad_norm, want[i].grad_norm), norm_bound) << "step " << i + 1;
    }
}

/* ||a - b|| / max(||b||, floor sqrt(n)) */
inline double distance(const std::vector<double> &a, const std::vector<double> &b, double floor)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < b.size(); i++) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return std::sqrt(difference) / std::max(std::sqrt(norm), floor * std::sqrt(static_cast<double>(b.size())));
}

inline void expect_bit_equal(const Tensors &got, const Tensors &want)
{
    ASSERT_FALSE(want.empty());
    ASSERT_EQ(got.size(), want.size());
    for (const auto &[name, values] : want) {
        const auto found = got.find(name);
        ASSERT_TRUE(found != got.end() && found->second.size() == values.size()) << name;
        EXPECT_EQ(found->second, values) << name;
    }
}

} // namespace training
#endif
