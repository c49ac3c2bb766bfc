#include "matrix_run.h"

#include "../parallel/mpi_world.h"
#include "traffic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>

namespace
{

constexpr int kSteps = 3;
constexpr double kLearningRate = 1e-3;

// Parameters of T1 with that model, from its sizes.
int64_t parameters_of(const Row &r)
{
    const int64_t C = 64, F = 128, words = 257 * C, layers = 8;
    const int64_t llama = 2 * C * C + 2 * C * C / 2 + 3 * C * F + 2 * C; // 4 of 8 key/value heads
    const int64_t gpt = 4 * C * C + 2 * C * F + 9 * C + F;               // norms 4 C, biases 3 C + C + F + C
    return layers * (r.gpt ? gpt : llama) + (r.tied ? 1 : 2) * words + (r.gpt ? 32 * C + 2 * C : C);
}

// Literature: GPipe keeps all m; 1F1B min(m, p - i) (Narayanan et al. 2021, 2.2); interleaved, m a multiple of p,
// min(v m, 2 (p - i - 1) + (v - 1) p + 1).
int in_flight(const Row &r, int stage, int m)
{
    switch (r.pipe) {
    case Pipe::kGpipe:
        return m;
    case Pipe::kInterleaved:
        return std::min(2 * m, 2 * (r.pp - stage - 1) + r.pp + 1);
    default:
        return std::min(m, r.pp - stage);
    }
}

bool has_replicas(const Row &r)
{
    return (r.dp > 1 && r.stage() < 3) || r.tp > 1 || (r.tied && r.pp > 1);
}

void look_at(const Row &row, plait_training &t)
{
    const int64_t replicas = check_replicas(t);
    EXPECT_EQ(replicas > 0, has_replicas(row)) << replicas << " copies compared";
    check_memory(t);
    check_traffic(t);
    const plait_topology *topo = plait_engine_topology(t.engine);
    EXPECT_EQ(plait_pipeline_in_flight(plait_engine_pipeline(t.engine)), in_flight(row, topo->p, 16 / row.dp))
        << "micro-batches in flight on stage " << topo->p;
    const plait_zero_stats stats = plait_zero_get_stats(plait_engine_zero(t.engine));
    if (row.zero == Zero::kStage3) {
        EXPECT_GE(stats.max_gathered, 1);
        EXPECT_LE(stats.max_gathered, 1 + t.cfg->zero.prefetch_units);
    } else {
        EXPECT_EQ(stats.max_gathered, 0);
    }
}

// One row in a world of its ranks; true on its rank 0 when everything was compared.
bool run_row(plait_world *world, const Row &row, const Overrides &numbers, const Tolerance &tolerance,
             const RunResult &reference, const std::string &file)
{
    const Watch watch = [&](plait_training &t, int step) {
        if (step == kSteps)
            look_at(row, t);
    };
    const RunResult got = train(world, numbers + row.overrides(), kSteps, file, watch);
    if (world->rank != 0)
        return false;
    const int64_t elements = compare(got, reference, tolerance, kLearningRate);
    std::printf("%s: %lld weights compared\n", row.name().c_str(), (long long)elements);
    std::fflush(stdout);
    EXPECT_EQ(elements, parameters_of(row)) << "weights compared";
    return elements == parameters_of(row) && got.losses.size() == kSteps;
}

// One rank without recomputation, for each model; made once for all rows with these numbers.
const std::vector<RunResult> &references_of(const Overrides &numbers)
{
    static std::map<Overrides, std::vector<RunResult>> made;
    std::vector<RunResult> &all = made[numbers];
    if (all.empty()) {
        std::vector<Overrides> runs;
        for (int model = 0; model < kModels; model++)
            runs.push_back(numbers + model_overrides(model));
        all = references(runs, kSteps);
    }
    return all;
}

} // namespace

int run_rows(const std::vector<Row> &rows, const Overrides &numbers, const Tolerance &tolerance,
             const Overrides &device)
{
    const std::vector<RunResult> &reference = references_of(numbers);
    double finished = 0;
    for (int ranks : {1, 2, 4, 8}) {
        std::vector<Row> fit;
        std::copy_if(rows.begin(), rows.end(), std::back_inserter(fit),
                     [&](const Row &r) { return r.ranks() == ranks; });
        side_by_side(ranks, (int)fit.size(), [&](plait_world *world, int i) {
            const Row &row = fit[(size_t)i];
            SCOPED_TRACE(row.name());
            const std::string file = shared_dir() + "/row-" + std::to_string(test_world.rank / ranks) + ".safetensors";
            finished += run_row(world, row, numbers + device, tolerance, reference[(size_t)row.model()], file);
        });
    }
    const std::vector<char> bytes = gather_bytes(&test_world, &finished, sizeof finished);
    double all = 0;
    for (size_t at = 0; at < bytes.size(); at += sizeof(double)) {
        double one;
        std::memcpy(&one, &bytes[at], sizeof one);
        all += one;
    }
    return (int)all;
}
