/* tests/models/training_run.h: training runs inside one MPI job, through the entry that `plait train` uses.
 *
 * The job's ranks are cut into worlds of equal size; each runs a case of its own, side by side with the others. A run's
 * result is compared with that of one rank: losses and gradient norms of every step, and every logical tensor of the
 * weights at the end, which travels through a weight file.
 */
#ifndef PLAIT_TESTS_TRAINING_RUN_H
#define PLAIT_TESTS_TRAINING_RUN_H

#include "../words.h"
#include "launcher/training.h"
#include "replicas.h"

#include <functional>
#include <string>
#include <vector>

using Overrides = Words;

// configs/tiny8.yaml in fp64 with the reference kernels.
Overrides fp64();
// The same in fp32 with the fast kernels. AdamW moves a weight by lr g / (|g| + eps): with the usual eps of 1e-8 the
// rounding of a gradient that happens to be near 0 is a visible part of a step, with 1e-4 it is as small as it is in g.
Overrides fp32();
// The same text with a model in which communication, not arithmetic, takes the time.
Overrides small_model();

struct RunResult {
    std::vector<double> losses, norms, batches; // of each step; batches: samples
    std::string weights;                        // path of the file, "" when none was asked for
    bool done = false;
};

// Sees the training after each step (from 1). Called on every rank of the world.
using Watch = std::function<void(plait_training &t, int step)>;

// Trains `steps` steps in `world`, then saves to `weights` (if not empty). A failure is a test failure with its text.
RunResult train(plait_world *world, const Overrides &overrides, int steps, const std::string &weights = "",
                const Watch &watch = nullptr);

// Calls body(world, i) for i in [0, count), each in a new world of `ranks` ranks, as many at once as there is room for.
// Collective over the test's world.
void side_by_side(int ranks, int count, const std::function<void(plait_world *world, int i)> &body);

// A directory that all ranks share; removed by the last call of its kind, remove_shared_dir. Collective.
const std::string &shared_dir();
void remove_shared_dir();

struct Tolerance {
    double loss, norm, tensor; // relative; tensor: ||a - b|| <= tensor * max(||b||, lr sqrt(n))
    bool key_bias_apart;       // GPT's key bias is held to |a - b| <= steps lr alone
};
extern const Tolerance kFp64, kFp32;

// GPT's key bias, of which the loss knows nothing: softmax does not see it. Element i of n of a tensor.
inline bool is_key_bias(const std::string &tensor, size_t i, size_t n)
{
    return tensor.find("attn.c_attn.bias") != std::string::npos && i >= n / 3 && i < n / 3 * 2;
}

// Reports what differs as test failures. Returns the number of weight elements compared (0 on failure).
int64_t compare(const RunResult &got, const RunResult &want, const Tolerance &tolerance, double lr);

// A run whose result others are compared with, on one rank each and side by side; every rank gets all results.
// Collective over the test's world.
std::vector<RunResult> references(const std::vector<Overrides> &runs, int steps);

// The highest byte handed out in each category is what the plan says.
void check_memory(plait_training &t);

#endif
