/* The ledger against what the kernel says that the process holds. */
#include "plait_test.h"

namespace
{

class CliMemory : public PlaitTest
{
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
