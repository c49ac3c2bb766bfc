// What needs no other rank: a plan's counting, the refusal of wrong operations, foreign launchers, cores.
#include "parallel/comm_impl.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sched.h>
#include <string>
#include <thread>
#include <vector>

namespace
{

// A place that must never be followed.
void *const nowhere = (void *)64;

class Plan : public testing::Test
{
  protected:
    plait_topology topo;
    plait_groups groups = {};

    void SetUp() override
    {
        ASSERT_EQ(plait_topology_init(&topo, 1024, 77, 8, 4, 32, 2, "tp-dp-pp"), PLAIT_OK);
        ASSERT_EQ(plait_groups_create_plan(&topo, &groups), PLAIT_OK) << plait_error_text();
    }
    void TearDown() override { plait_groups_destroy(&groups); }
};

TEST_F(Plan, HasTheGroupsOfRanksThatDoNotExist)
{
    EXPECT_EQ(plait_comm_size(groups.world), 1024);
    EXPECT_EQ(plait_comm_rank(groups.world), 77);
    EXPECT_EQ(plait_comm_size(groups.tensor), 8);
    EXPECT_EQ(plait_comm_rank(groups.tensor), topo.t);
    EXPECT_EQ(plait_comm_size(groups.data), 32);
    EXPECT_EQ(plait_comm_size(groups.pipe_act), 4);
    EXPECT_EQ(plait_comm_size(groups.embedding), 2);
    EXPECT_EQ(plait_comm_size(groups.kv), 2);
    EXPECT_STREQ(plait_comm_name(groups.tensor), "tensor");
}

TEST_F(Plan, CountsWithoutTouchingMemory)
{
    const int64_t n = ((int64_t)1 << 33) + 8; // more than an int counts
    plait_request *req = (plait_request *)nowhere;
    plait_comm_op ops[] = {plait_comm_make(PLAIT_COMM_SEND, nowhere, nullptr, n, PLAIT_BF16),
                           plait_comm_make(PLAIT_COMM_RECV, nullptr, nowhere, n, PLAIT_BF16)};
    ops[0].peer = ops[1].peer = 3 - plait_comm_rank(groups.pipe_act);
    ASSERT_EQ(plait_comm_start(groups.pipe_act, ops, 2, nullptr, &req), PLAIT_OK) << plait_error_text();
    ASSERT_EQ(plait_request_wait(&req, nullptr), PLAIT_OK);
    plait_traffic t = plait_comm_traffic(groups.pipe_act);
    EXPECT_EQ(t.bytes[PLAIT_COMM_SEND], 2 * n);
    EXPECT_EQ(t.bytes[PLAIT_COMM_RECV], 2 * n);
    EXPECT_EQ(t.largest, 0u) << "messages take no staging";

    plait_comm_op op = plait_comm_make(PLAIT_COMM_ALL_REDUCE, nowhere, nowhere, n, PLAIT_FP32);
    op.wire = PLAIT_BF16;
    op.result = PLAIT_BF16;
    ASSERT_EQ(plait_comm_run(groups.tensor, &op, nullptr), PLAIT_OK) << plait_error_text();
    t = plait_comm_traffic(groups.tensor);
    EXPECT_EQ(t.bytes[PLAIT_COMM_ALL_REDUCE], 4 * n);
    EXPECT_EQ(t.largest, (size_t)(2 * n));
}

TEST_F(Plan, GroupsOfOneCountNothing)
{
    plait_topology alone;
    plait_groups g;
    ASSERT_EQ(plait_topology_init(&alone, 1, 0, 1, 1, 1, 1, "tp-dp-pp"), PLAIT_OK);
    ASSERT_EQ(plait_groups_create_plan(&alone, &g), PLAIT_OK);
    plait_comm_op op = plait_comm_make(PLAIT_COMM_ALL_REDUCE, nowhere, nowhere, 100, PLAIT_FP32);
    ASSERT_EQ(plait_comm_run(g.data, &op, nullptr), PLAIT_OK);
    plait_traffic t = plait_comm_traffic(g.data);
    EXPECT_EQ(t.calls[PLAIT_COMM_ALL_REDUCE], 0);
    EXPECT_EQ(t.bytes[PLAIT_COMM_ALL_REDUCE], 0);
    EXPECT_EQ(plait_comm_staging_bytes(g.data, 1 << 20, 1 << 20), 0u);
    plait_groups_destroy(&g);
}

TEST_F(Plan, StagingIsBoundedByTheChunk)
{
    size_t chunk = (size_t)4 << 20;
    EXPECT_EQ(plait_comm_staging_bytes(groups.tensor, 0, chunk), 0u);
    size_t small = plait_comm_staging_bytes(groups.tensor, 1000, chunk);
    EXPECT_EQ(small % 4096, 0u);
    EXPECT_LE(small, 4096u);
    size_t most = plait_comm_staging_bytes(groups.tensor, (size_t)1 << 40, chunk);
    EXPECT_EQ(most, plait_comm_staging_bytes(groups.tensor, chunk, chunk));
    // two slots of a chunk, an eighth each for results, and a page
    EXPECT_GE(most, 2 * (chunk + chunk / 8));
    EXPECT_LE(most, 2 * (chunk + chunk / 8) + 8192);
    plait_ledger ledger = {};
    ASSERT_EQ(plait_comm_reserve(groups.tensor, chunk, chunk, PLAIT_TIER_DEVICE, &ledger), PLAIT_OK);
    EXPECT_EQ(ledger.planned[PLAIT_TIER_DEVICE][PLAIT_MEM_COMM], most);
    EXPECT_EQ(plait_comm_reserve(groups.tensor, chunk, chunk, PLAIT_TIER_DEVICE, &ledger), PLAIT_INTERNAL);
    EXPECT_EQ(plait_comm_reserve(groups.data, chunk, 1, PLAIT_TIER_DEVICE, &ledger), PLAIT_USAGE);
    EXPECT_EQ(plait_comm_reserve(groups.data, chunk, (size_t)1 << 31, PLAIT_TIER_DEVICE, &ledger), PLAIT_USAGE);
    EXPECT_EQ(ledger.planned[PLAIT_TIER_DEVICE][PLAIT_MEM_COMM], most);
}

struct Wrong {
    const char *name;
    void (*spoil)(plait_comm_op *op);
    plait_status status;
    const char *says;
};
void PrintTo(const Wrong &w, std::ostream *out)
{
    *out << w.name;
}
class Refused : public Plan, public testing::WithParamInterface<Wrong>
{
};

TEST_P(Refused, SaysWhy) // a group of 8, an all-reduce of 80 elements to begin with
{
    plait_comm_op op = plait_comm_make(PLAIT_COMM_ALL_REDUCE, nowhere, nowhere, 80, PLAIT_FP32);
    ASSERT_EQ(plait_comm_run(groups.tensor, &op, nullptr), PLAIT_OK) << plait_error_text();
    GetParam().spoil(&op);
    EXPECT_EQ(plait_comm_run(groups.tensor, &op, nullptr), GetParam().status);
    EXPECT_NE(std::string(plait_error_text()).find(GetParam().says), std::string::npos) << plait_error_text();
    EXPECT_EQ(plait_comm_traffic(groups.tensor).calls[PLAIT_COMM_ALL_REDUCE], 1) << "nothing was started";
}

const int64_t kShort[] = {0, 1, 2, 3, 4, 5, 6, 7, 79}, kBack[] = {0, 50, 40, 60, 60, 60, 60, 70, 80};
const Wrong kWrong[] = {
    {"kind", [](plait_comm_op *op) { op->kind = PLAIT_COMM_KINDS; }, PLAIT_INTERNAL, "unknown operation"},
    {"negative_count", [](plait_comm_op *op) { op->count = -1; }, PLAIT_INTERNAL, "-1 elements"},
    {"no_input", [](plait_comm_op *op) { op->in = nullptr; }, PLAIT_INTERNAL, "without an input"},
    {"no_output", [](plait_comm_op *op) { op->out = nullptr; }, PLAIT_INTERNAL, "without an output"},
    {"indivisible", [](plait_comm_op *op) { op->kind = PLAIT_COMM_ALL_GATHER, op->count = 81; }, PLAIT_INTERNAL,
     "81 elements has no offsets and 8 ranks"},
    {"short_offsets", [](plait_comm_op *op) { op->kind = PLAIT_COMM_ALL_GATHER, op->offsets = kShort; }, PLAIT_INTERNAL,
     "80 elements has parts from 0 to 79"},
    {"falling_offsets", [](plait_comm_op *op) { op->kind = PLAIT_COMM_REDUCE_SCATTER, op->offsets = kBack; },
     PLAIT_INTERNAL, "part 1 begins at 50 and ends at 40"},
    {"offsets_of_none", [](plait_comm_op *op) { op->offsets = kShort; }, PLAIT_INTERNAL, "all_reduce has no parts"},
    {"root", [](plait_comm_op *op) { op->kind = PLAIT_COMM_BROADCAST, op->peer = 8; }, PLAIT_INTERNAL, "rank 8 of 8"},
    {"negative_root", [](plait_comm_op *op) { op->kind = PLAIT_COMM_REDUCE, op->peer = -1; }, PLAIT_INTERNAL,
     "rank -1 of 8"},
    {"to_itself", [](plait_comm_op *op) { op->kind = PLAIT_COMM_SEND, op->peer = 77 % 8; }, PLAIT_INTERNAL,
     "with itself"},
    {"message_of_two_types", [](plait_comm_op *op) { op->kind = PLAIT_COMM_SEND, op->wire = PLAIT_BF16; },
     PLAIT_UNSUPPORTED, "send of fp32 as bf16 into fp32"},
    {"integers_as_floats", [](plait_comm_op *op) { op->dtype = PLAIT_INT32; }, PLAIT_UNSUPPORTED, "int32"},
    {"sum_of_integers", [](plait_comm_op *op) { op->dtype = op->wire = op->result = PLAIT_INT32; }, PLAIT_UNSUPPORTED,
     "maximum only"},
    {"maximum_of_a_gather", [](plait_comm_op *op) { op->kind = PLAIT_COMM_ALL_GATHER, op->reduction = PLAIT_MAX; },
     PLAIT_INTERNAL, "takes no maximum"},
    {"gather_added", [](plait_comm_op *op) { op->kind = PLAIT_COMM_ALL_GATHER, op->accumulate = true; }, PLAIT_INTERNAL,
     "adds to nothing"},
    {"type", [](plait_comm_op *op) { op->wire = PLAIT_DTYPES; }, PLAIT_INTERNAL, "types"},
};
INSTANTIATE_TEST_SUITE_P(, Refused, testing::ValuesIn(kWrong), [](const auto &i) { return std::string(i.param.name); });

struct Launch {
    const char *name;
    int mpi_size;
    std::vector<std::pair<const char *, const char *>> env;
    const char *variable; // NULL: nothing is wrong
    long ranks;
};
void PrintTo(const Launch &l, std::ostream *out)
{
    *out << l.name;
}
class Launcher : public testing::TestWithParam<Launch>
{
};

TEST_P(Launcher, OfAnotherMpiIsNoticed)
{
    for (const char *v :
         {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE", "PMIX_RANK", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_SIZE",
          "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_STEP_ID"})
        unsetenv(v);
    for (auto &[name, value] : GetParam().env)
        setenv(name, value, 1);
    long ranks = 0;
    const char *variable = plait_comm_foreign_launcher(GetParam().mpi_size, &ranks);
    if (!GetParam().variable) {
        EXPECT_EQ(variable, nullptr) << variable;
        return;
    }
    ASSERT_NE(variable, nullptr);
    EXPECT_STREQ(variable, GetParam().variable);
    EXPECT_EQ(ranks, GetParam().ranks);
}

const Launch kLaunches[] = {
    {"none", 1, {}, nullptr, 0},
    {"mpich_of_one", 1, {{"PMI_SIZE", "1"}, {"MPI_LOCALNRANKS", "1"}}, nullptr, 0},
    {"several_found", 4, {{"OMPI_COMM_WORLD_SIZE", "4"}}, nullptr, 0},
    {"open_mpi", 1, {{"OMPI_COMM_WORLD_SIZE", "4"}}, "OMPI_COMM_WORLD_SIZE", 4},
    {"open_mpi_of_one", 1, {{"OMPI_COMM_WORLD_SIZE", "1"}, {"PMIX_RANK", "0"}}, nullptr, 0},
    {"hydra", 1, {{"PMI_SIZE", "3"}}, "PMI_SIZE", 3},
    {"pmix", 1, {{"PMIX_RANK", "2"}}, "PMIX_RANK", 3},
    {"srun", 1, {{"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_NTASKS", "8"}}, "SLURM_STEP_NUM_TASKS", 8},
    {"old_srun", 1, {{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "1"}, {"SLURM_STEP_ID", "0"}}, "SLURM_NTASKS", 8},
    {"batch_script", 1, {{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}, nullptr, 0},
    {"mpiexec_of_one_in_a_step", 1, {{"PMI_SIZE", "1"}, {"SLURM_STEP_NUM_TASKS", "8"}}, nullptr, 0},
};
INSTANTIATE_TEST_SUITE_P(, Launcher, testing::ValuesIn(kLaunches),
                         [](const auto &i) { return std::string(i.param.name); });

/* A process manager's own variables, not what a batch job or a user's shell has. */
TEST(IsLaunched, SaysWhatMayHaveOtherRanks)
{
    const char *all[] = {"PMI_RANK",
                         "PMI_SIZE",
                         "PMI_FD",
                         "PMI_PORT",
                         "PMIX_SIZE",
                         "PMIX_RANK",
                         "PMIX_NAMESPACE",
                         "MPI_LOCALRANKID",
                         "MPI_LOCALNRANKS",
                         "OMPI_COMM_WORLD_SIZE",
                         "MV2_COMM_WORLD_SIZE",
                         "SLURM_STEP_NUM_TASKS",
                         "SLURM_NTASKS",
                         "SLURM_PROCID",
                         "SLURM_STEP_ID",
                         "PMI_NO_FORK"};
    const struct {
        const char *name;
        std::vector<std::pair<const char *, const char *>> env;
        bool want;
    } rows[] = {
        {"none", {}, false},
        {"hydra_of_one", {{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}, {"PMI_FD", "8"}}, true},
        {"hydra_by_port", {{"PMI_PORT", "host:1"}}, true},
        {"open_mpi_of_one", {{"OMPI_COMM_WORLD_SIZE", "1"}, {"PMIX_RANK", "0"}}, true},
        {"srun", {{"SLURM_STEP_NUM_TASKS", "8"}}, true},
        {"batch_script", {{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}, false},
        {"setting", {{"PMI_NO_FORK", "1"}}, false},
    };
    for (const auto &r : rows) {
        for (const char *v : all)
            unsetenv(v);
        for (auto &[name, value] : r.env)
            setenv(name, value, 1);
        EXPECT_EQ(plait_world_is_launched(), r.want) << r.name;
    }
    for (const char *v : all)
        unsetenv(v);
}

int cores_after(int local_rank, int local_size, int threads, std::vector<size_t> *which)
{
    int n = 0;
    std::thread([&] {
        plait_bind_cores(local_rank, local_size, threads);
        cpu_set_t set;
        sched_getaffinity(0, sizeof set, &set);
        n = CPU_COUNT(&set);
        for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, &set))
                which->push_back(cpu);
    }).join();
    return n;
}

TEST(Cores, AreSharedOutOnlyWhenTheyFit)
{
    std::vector<size_t> all, first, second, rest;
    int cores = cores_after(0, 1, 1, &all);
    EXPECT_EQ(cores_after(0, 1, cores, &rest), cores) << "a rank alone";
    EXPECT_EQ(cores_after(0, 2, cores, &rest), cores) << "more threads than cores";
    if (cores % 2)
        GTEST_SKIP() << cores << " cores cannot be halved";
    EXPECT_EQ(cores_after(0, 2, cores / 2, &first), cores / 2);
    EXPECT_EQ(cores_after(1, 2, cores / 2, &second), cores / 2);
    first.insert(first.end(), second.begin(), second.end());
    EXPECT_EQ(first, all);
}

TEST(Mpich, BeforeFourTwoMayHangInFinalize)
{
    EXPECT_TRUE(
        plait_comm_finalize_may_hang("MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr  7 12:34:45 CDT 2022\n"));
    EXPECT_TRUE(plait_comm_finalize_may_hang("MPICH Version:      4.1.3\n"));
    EXPECT_TRUE(plait_comm_finalize_may_hang("MPICH Version:      3.4"));
    EXPECT_FALSE(plait_comm_finalize_may_hang("MPICH Version:      4.2.0\n"));
    EXPECT_FALSE(plait_comm_finalize_may_hang("MPICH Version:      5.0.2\n"));
    EXPECT_FALSE(plait_comm_finalize_may_hang("Open MPI v4.1.4, package: Debian OpenMPI"));
    EXPECT_FALSE(plait_comm_finalize_may_hang(""));
}

} // namespace
