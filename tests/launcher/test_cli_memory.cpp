/* The ledger against what the kernel says that the process holds. */
#include "plait_test.h"

#include <algorithm>
#include <cstdlib>

namespace
{

class CliMemory : public PlaitTest
{
  protected:
    /* Two steps of 4 samples, or one a rank. */
    Metrics two_steps(const std::string &config, const Words &grid, int ranks)
    {
        return train(source(config),
                     Words{"train.train_iters=2", "batch.micro_batch_size=1",
                           "batch.global_batch_size=" + std::to_string(std::max(ranks, 4))} +
                         grid,
                     ranks, 400)
            .metrics;
    }
    /* Resident memory of a rank without what it only reads of others' windows, less its ledger. */
    static int64_t unaccounted(const Metrics &m, const ResidentRow &row)
    {
        return row.peak - row.others - m.high_water(row.rank);
    }
};

/* A model of some hundred megabytes; little workspace, of which these kernels would touch only a part. */
const Words kLarge = {"model.hidden_size=256", "model.ffn_hidden_size=1024", "model.num_layers=8",
                      "model.vocab_size=8192", "device.workspace=2MiB",      "train.train_iters=2"};

/* What oneDNN, MPI and libc take when they are first used: their code, its kernels, buffers of messages. */
constexpr int64_t kLibraries = 12 << 20;

} // namespace

TEST_F(CliMemory, ResidentMemoryIsTheLedgersAndLittleElse)
{
    const struct {
        int ranks;
        Words grid;
    } runs[] = {
        {1, {}},
        {2, {"parallelism.tp=2"}},
        {2, {"parallelism.pp=2"}},
        {2, {"zero_optimization.stage=1"}},
        {2, {"zero_optimization.stage=3"}},
    };
    for (const auto &r : runs) {
        const Metrics m = train(kTiny, kLarge + r.grid, r.ranks).metrics;
        ASSERT_EQ(m.resident.size(), static_cast<size_t>(r.ranks));
        for (const ResidentRow &row : m.resident) {
            const int64_t ledger = m.high_water(row.rank), grown = row.peak - row.before;
            const std::string what = "rank " + std::to_string(row.rank) + " of " + std::to_string(r.ranks) + " " +
                                     (r.grid.empty() ? "" : r.grid[0]) + ": ledger " + std::to_string(ledger) +
                                     ", resident grown by " + std::to_string(grown);
            EXPECT_GT(ledger, int64_t{80} << 20) << what;
            EXPECT_LE(grown, ledger + ledger / 50 + kLibraries) << what;
            EXPECT_GE(grown, ledger - ledger / 50) << what;
            EXPECT_GT(row.before, int64_t{4} << 20) << what;
            EXPECT_LT(row.before, int64_t{100} << 20) << what;
        }
    }
}

/* Program and libraries are a number that does not depend on the model: it is taken from a model of one layer, once for
 * each number of ranks. All the rest is in the ledger. Workspace that kernels do not touch is in the number too. */
TEST_F(CliMemory, FullLedgerIsAllThatAModelAdds)
{
    const struct {
        int ranks;
        Words grid;
    } runs[] = {
        {1, {}},
        {2, {"parallelism.tp=2"}},
        {2, {"parallelism.pp=2"}},
        {2, {"zero_optimization.stage=1"}},
        {2, {"zero_optimization.stage=3"}},
        {4, {"parallelism.tp=2", "parallelism.pp=2"}},
        {4, {"zero_optimization.stage=2"}},
        {8, {"parallelism.tp=2", "parallelism.pp=2", "zero_optimization.stage=1"}},
    };
    for (const char *config : {"configs/bench-b6.yaml", "configs/gpt2-124m.yaml"}) {
        std::map<int, int64_t> baseline; /* by number of ranks */
        for (const auto &r : runs) {
            if (!baseline.count(r.ranks)) {
                const Metrics one = two_steps(config, {"model.num_layers=1", "zero_optimization.stage=1"}, r.ranks);
                ASSERT_EQ(one.resident.size(), static_cast<size_t>(r.ranks));
                for (const ResidentRow &row : one.resident)
                    baseline[r.ranks] += unaccounted(one, row) / r.ranks;
            }
            const Metrics m = two_steps(config, r.grid, r.ranks);
            ASSERT_EQ(m.resident.size(), static_cast<size_t>(r.ranks));
            for (const ResidentRow &row : m.resident) {
                const int64_t ledger = m.high_water(row.rank), bound = std::max<int64_t>(ledger * 3 / 100, 8 << 20);
                const int64_t difference = unaccounted(m, row) - baseline[r.ranks];
                const std::string what = std::string(config) + " " + text_of(r.grid) + ", rank " +
                                         std::to_string(row.rank) + " of " + std::to_string(r.ranks) + ": ledger " +
                                         std::to_string(ledger) + ", baseline " + std::to_string(baseline[r.ranks]) +
                                         ", besides " + std::to_string(difference);
                EXPECT_LE(std::abs(difference), bound) << what;
                if (r.ranks > 1 && r.grid[0] != "parallelism.pp=2") {
                    EXPECT_GT(row.others, 0) << what << ": the window of a group is read by all";
                }
            }
        }
    }
}
