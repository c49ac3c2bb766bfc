/* Rows of the matrix (tests/models/matrix.h) as a user runs them: mpiexec, the program, its files. The rest of the
 * matrix is run inside one MPI job, through the entry that the program uses. */
#include "../models/matrix.h"
#include "plait_test.h"

#include <algorithm>

namespace
{

const Words kFp64 = {"precision.dtype=fp64", "train.train_iters=3"};
constexpr double kBound = 1e-10;

/* Twelve rows, with 2, 4 and 8 ranks in turn: each time the one with most pairs of values that no row had before. */
std::vector<Row> chosen_rows()
{
    std::vector<Row> all = rotated_rows(0), chosen;
    for (const Row &r : rotated_rows(1))
        all.push_back(r);
    std::set<std::string> had;
    auto fresh_pairs = [&](const Row &r) {
        std::set<std::string> pairs = pairs_of(r);
        return std::count_if(pairs.begin(), pairs.end(), [&](const std::string &p) { return !had.count(p); });
    };
    for (int i = 0; i < 12; i++) {
        const Row *best = nullptr;
        for (const Row &r : all)
            if (r.ranks() == 2 << i % 3 && (!best || fresh_pairs(r) > fresh_pairs(*best)))
                best = &r;
        chosen.push_back(*best);
        had.merge(pairs_of(*best));
    }
    return chosen;
}

class CliMatrix : public PlaitTest
{
  protected:
    struct Result {
        Metrics metrics;
        Weights weights;
    };
    Result result_of(const Words &overrides, int ranks)
    {
        std::string file = path("w.safetensors");
        Result r;
        r.metrics = train(kTiny8, kFp64 + overrides + Words{"checkpoint.save_weights=" + file}, ranks).metrics;
        r.weights = read_weights(file);
        return r;
    }
};

} // namespace

TEST_F(CliMatrix, TwelveRowsTrainLikeOneRank)
{
    std::map<int, Result> one; /* by model */
    for (const Row &row : chosen_rows()) {
        SCOPED_TRACE(row.name());
        if (!one.count(row.model()))
            one[row.model()] = result_of(model_overrides(row.model()), 0);
        const Result &want = one[row.model()];
        const Result got = result_of(row.overrides(), row.ranks());
        ASSERT_EQ(want.metrics.steps.size(), 3u);
        expect_near(got.metrics.losses(), want.metrics.losses(), kBound, "loss");
        expect_near(got.metrics.norms(), want.metrics.norms(), kBound, "norm");
        expect_near_weights(got.weights, want.weights, kBound, "weights");
    }
}
