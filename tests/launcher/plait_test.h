/* tests/launcher/plait_test.h: what the tests of the program share: a directory, commands, runs, weight files. */
#ifndef PLAIT_TESTS_LAUNCHER_PLAIT_TEST_H
#define PLAIT_TESTS_LAUNCHER_PLAIT_TEST_H

#include "../words.h"
#include "command.h"
#include "metrics_file.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

/* A directory of its own, removed at the end. */
class Directory
{
  public:
    Directory();
    ~Directory();
    Directory(const Directory &) = delete;
    Directory &operator=(const Directory &) = delete;
    std::string path;
};

struct Trained {
    Outcome outcome;
    Metrics metrics;
};

/* Tensors of a weight file, as doubles (exact for all types that are read). */
struct Tensor {
    std::vector<int64_t> shape;
    std::vector<double> values;
};
using Weights = std::map<std::string, Tensor>;

class PlaitTest : public testing::Test
{
  protected:
    std::string path(const std::string &name) const { return dir_.path + "/" + name; }
    std::string write(const std::string &name, const std::string &bytes) const;
    std::string read(const std::string &name) const;
    bool exists(const std::string &name) const;
    const std::string &directory() const { return dir_.path; }

    /* plait ARGS..., under mpiexec on `ranks` ranks; 0: without mpiexec. Runs in the directory. */
    Command plait(const Words &args, int ranks = 0) const { return plait(args, launcher(ranks)); }
    /* ... behind the words that start it on its ranks. */
    Command plait(const Words &args, const Words &launcher) const;
    Outcome run(const Words &args, int ranks = 0, double limit = 60) const
    {
        return plait(args, ranks).limit(limit).run();
    }
    /* plait train CONFIG OVERRIDES logging.metrics_file=..., which must end with 0 and leave nothing. */
    Trained train(const std::string &config, const Words &overrides, int ranks = 0, double limit = 60) const
    {
        return train(config, overrides, launcher(ranks), limit);
    }
    Trained train(const std::string &config, const Words &overrides, const Words &launcher, double limit = 60) const;

  private:
    static Words launcher(int ranks);
    Directory dir_;
};

extern const std::string kTiny;  /* configs/tiny.yaml */
extern const std::string kTiny8; /* configs/tiny8.yaml */

std::string mpiexec();
std::string plait_binary();
std::string source(const std::string &relative);

/* One line that says what was run. */
std::string text_of(const Words &words);

Weights read_weights(const std::string &path);
void write_weights(const std::string &path, const Weights &w); /* F32 */
/* Writes the file again with values changed by `change` (name, values), types kept. */
void edit_weights(const std::string &from, const std::string &to,
                  const std::function<void(const std::string &name, std::vector<double> &values)> &change);
/* Same names, shapes and bits. */
void expect_same_weights(const Weights &a, const Weights &b, const std::string &what);
/* Same names and shapes; per tensor ||a - b|| <= bound ||b||. */
void expect_near_weights(const Weights &a, const Weights &b, double bound, const std::string &what);
int64_t count_elements(const Weights &w);

/* |a[i] - b[i]| <= bound |b[i]| for i < count (0: all, and as many of both). At least one. */
void expect_near(const std::vector<double> &a, const std::vector<double> &b, double bound, const std::string &what,
                 size_t count = 0);

#endif
