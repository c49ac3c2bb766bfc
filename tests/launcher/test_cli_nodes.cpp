/* Training over several nodes (tests/nodes/nodes.sh): what is on other nodes changes neither numbers nor how a run
 * ends. Groups inside a node go through shared memory, groups over nodes by messages over TCP. */
#include "plait_test.h"

#include <csignal>
#include <cstdio>

namespace
{

Words on_nodes(int nodes, int ranks)
{
    return {source("tests/nodes/nodes.sh"), "-m", PLAIT_TEST_MPICH,     "-n",
            std::to_string(nodes),          "-p", std::to_string(ranks)};
}

const Words kEndless = {"train.train_iters=1000000"};

/* What a node sent over its network, as nodes.sh counts it; -1: not said. */
double bytes_sent(const Outcome &o, int node)
{
    const std::string label = "node" + std::to_string(node) + " sent ";
    size_t at = o.err.find(label);
    return at == std::string::npos ? -1 : std::stod(o.err.substr(at + label.size()));
}

class CliNodes : public PlaitTest
{
  protected:
    struct Result {
        Metrics metrics;
        Weights weights;
    };
    Result result_of(const Words &overrides, const Words &launcher)
    {
        std::string file = path("w.safetensors");
        Result r;
        r.metrics = train(kTiny8, overrides + Words{"train.train_iters=3", "checkpoint.save_weights=" + file}, launcher)
                        .metrics;
        EXPECT_EQ(r.metrics.steps.size(), 3u);
        r.weights = read_weights(file);
        return r;
    }
};

} // namespace

/* ---- numbers ---- */

namespace
{

const Words kLlama = {"model.arch=llama"};
/* Embedding and head are one matrix on two stages: its gradients are summed between them. */
const Words kTiedGpt = {"model.arch=gpt2", "model.num_query_groups=8", "model.tie_word_embeddings=true"};

struct Precision {
    Words overrides;
    double loss, norm, weights; /* bounds */
};
const Precision kFp64 = {{"precision.dtype=fp64"}, 1e-10, 1e-10, 1e-10};
/* Without Adam, which divides by the size of a gradient and so makes rounding large where that is small. */
const Precision kFp32 = {{"precision.dtype=fp32", "optimizer.type=SGD", "optimizer.lr=0.5"}, 1e-6, 5e-6, 1e-5};

struct Grid {
    const char *name;
    int nodes, ranks; /* ranks on each node */
    const Words &model;
    const Precision &precision;
    Words grid;
};

void PrintTo(const Grid &g, std::ostream *out)
{
    *out << g.name;
}

class CliNodesGrid : public CliNodes, public testing::WithParamInterface<Grid>
{
};

} // namespace

TEST_P(CliNodesGrid, TrainsLikeOneRank)
{
    static std::map<std::string, Result> references;
    const Grid &g = GetParam();
    const Words same = g.model + g.precision.overrides;
    auto [one, fresh] = references.try_emplace(text_of(same));
    if (fresh)
        one->second = result_of(same, Words{});
    const Result &want = one->second, got = result_of(same + g.grid, on_nodes(g.nodes, g.ranks));
    expect_near(got.metrics.losses(), want.metrics.losses(), g.precision.loss, "loss");
    expect_near(got.metrics.norms(), want.metrics.norms(), g.precision.norm, "norm");
    expect_near_weights(got.weights, want.weights, g.precision.weights, "weights");
    /* Every rank reports what it held, each once. */
    std::map<int64_t, int> rows;
    for (const ResidentRow &r : got.metrics.resident)
        rows[r.rank]++;
    for (int rank = 0; rank < g.nodes * g.ranks; rank++)
        EXPECT_EQ(rows[rank], 1) << "rank " << rank;
}

Words grid(int tp, int pp, int zero)
{
    return {"parallelism.tp=" + std::to_string(tp), "parallelism.pp=" + std::to_string(pp),
            "zero_optimization.stage=" + std::to_string(zero)};
}
const Words kSequence = {"parallelism.sequence_parallel=true"}, kInterleaved = {"parallelism.vpp=2"},
            kGatherToRoot = {"parallelism.data_parallel_algorithm=gather_to_root"};

const Grid kGrids[] = {
    {"data_across", 2, 2, kLlama, kFp64, grid(2, 1, 1)},
    {"tensor_across", 2, 2, kLlama, kFp64, grid(4, 1, 0) + kSequence},
    {"tied_pipeline_across", 2, 2, kTiedGpt, kFp64, grid(2, 2, 0)},
    {"sharded_parameters_across", 2, 2, kTiedGpt, kFp64, grid(1, 1, 3)},
    {"gather_to_root_across", 2, 2, kLlama, kFp64, grid(1, 1, 0) + kGatherToRoot},
    {"everything_across", 4, 1, kTiedGpt, kFp64, grid(2, 2, 0) + kInterleaved + kSequence},
    {"eight_ranks_of_two_nodes", 2, 4, kTiedGpt, kFp64, grid(2, 2, 2)},
    {"tensor_of_two_of_four_nodes", 4, 2, kLlama, kFp64, grid(4, 1, 3)},
    {"pipeline_of_four_nodes_fp32", 4, 2, kTiedGpt, kFp32, grid(2, 4, 0)},
    {"eight_ranks_of_two_nodes_fp32", 2, 4, kLlama, kFp32, grid(2, 2, 3)},
};
INSTANTIATE_TEST_SUITE_P(, CliNodesGrid, testing::ValuesIn(kGrids),
                         [](const auto &i) { return std::string(i.param.name); });

/* Sums have the order of ranks, whichever way they go, also in a format in which the order of four shows. */
TEST_F(CliNodes, TheSameGridOnOneNodeHasTheSameBits)
{
    const Words bf16 = {"precision.dtype=bf16", "parallelism.tp=2", "zero_optimization.stage=2",
                        "parallelism.sequence_parallel=true"};
    const Result one = result_of(bf16, {mpiexec(), "-n", "8"}), two = result_of(bf16, on_nodes(2, 4));
    EXPECT_EQ(one.metrics.losses(), two.metrics.losses());
    EXPECT_EQ(one.metrics.norms(), two.metrics.norms());
    expect_same_weights(two.weights, one.weights, "two nodes and one");
}

/* Nor does any grid change a bit with numerics.reduction invariant: shared memory, messages, and both together. */
TEST_F(CliNodes, EveryGridHasTheSameBits)
{
    struct {
        int nodes, ranks;
        const Words &model;
        Words grid;
    } rows[] = {
        {2, 1, kLlama, grid(2, 1, 0)},
        {2, 2, kTiedGpt, grid(4, 1, 0) + kSequence},
        {2, 2, kLlama, grid(2, 1, 3)},
        {2, 4, kTiedGpt, grid(4, 2, 0) + kInterleaved},
        {2, 4, kLlama, grid(2, 2, 1) + kSequence},
        {4, 1, kTiedGpt, grid(1, 4, 0)},
        {4, 1, kLlama, grid(1, 1, 0) + kGatherToRoot},
        {4, 2, kLlama, grid(8, 1, 0)},
        {4, 2, kTiedGpt, grid(2, 1, 2)},
    };
    const Words mode = {"numerics.reduction=invariant", "precision.dtype=bf16", "model.hidden_dropout=0.1"};
    const std::map<const Words *, Result> one = {{&kLlama, result_of(kLlama + mode, Words{})},
                                                 {&kTiedGpt, result_of(kTiedGpt + mode, Words{})}};
    for (const auto &r : rows) {
        const std::string name = std::to_string(r.nodes) + " nodes of " + std::to_string(r.ranks);
        SCOPED_TRACE(name + ", " + text_of(r.model + r.grid));
        const Result got = result_of(r.model + mode + r.grid, on_nodes(r.nodes, r.ranks)), &want = one.at(&r.model);
        EXPECT_EQ(got.metrics.losses(), want.metrics.losses());
        EXPECT_EQ(got.metrics.norms(), want.metrics.norms());
        expect_same_weights(got.weights, want.weights, name);
    }
}

/* ---- ways ---- */

/* The network carries the groups over nodes, whole, and the others not at all. */
TEST_F(CliNodes, OnlyGroupsOverNodesUseTheNetwork)
{
    const int steps = 3;
    const double other = 2e5; /* mpiexec, MPI's start, agreements, what is printed */
    auto sent = [&](const Words &grid, const char *group, const char *inside) {
        Trained r = train(kTiny, Words{"train.train_iters=" + std::to_string(steps)} + grid, on_nodes(2, 2));
        double across = 0, within = 0;
        for (const TrafficRow &row : r.metrics.traffic)
            if (row.rank < 2 && row.group == group)
                across += static_cast<double>(row.bytes);
            else if (row.rank < 2 && row.group == inside)
                within += static_cast<double>(row.bytes);
        const double bytes = bytes_sent(r.outcome, 1);
        EXPECT_GT(across, 0) << group;
        EXPECT_GE(bytes, steps * across) << group << "\n" << r.outcome;
        if (*inside) {
            const double most = steps * across * 1.05 + other;
            EXPECT_GT(steps * (across + within), most) << inside << " would show on the network";
            EXPECT_LT(bytes, most) << inside << " on the network\n" << r.outcome;
        }
    };
    /* Of two data ranks each sends the other half of what it has, and then half of the sum. */
    sent({"parallelism.tp=2"}, "data", "tensor");
    /* Of four tensor ranks each sends a quarter to each of the two far ones, twice. */
    sent({"parallelism.tp=4"}, "tensor", "");
}

TEST_F(CliNodes, TheBannerShowsWhichRanksShareANode)
{
    Trained r = train(kTiny, {"train.train_iters=1", "parallelism.tp=2"}, on_nodes(2, 2));
    EXPECT_NE(r.outcome.out.find("\n  node       [0 1] [2 3]\n"), std::string::npos) << r.outcome;
    EXPECT_EQ(r.outcome.err.find("MPICH"), std::string::npos) << "no warning for this MPICH\n" << r.outcome;
}

/* ---- ends ---- */

namespace
{

class CliNodesEnd : public CliNodes
{
  protected:
    Command endless(const Words &overrides)
    {
        Command c = plait(Words{"train", kTiny} + kEndless + overrides, on_nodes(2, 2));
        c.limit(30).start();
        return c;
    }
    /* nodes.sh says 99 when something is left. */
    void expect_end(const Outcome &o, int code, const Words &says)
    {
        EXPECT_EQ(o.code, code) << o;
        EXPECT_FALSE(o.timed_out) << o;
        for (const std::string &s : says)
            EXPECT_NE(o.err.find(s), std::string::npos) << "no '" << s << "'\n" << o;
    }
};

} // namespace

TEST_F(CliNodesEnd, WhatIsWrongIsSaidOnceWithItsCode)
{
    struct {
        int code;
        Words args, says;
    } rows[] = {
        {2, {"train", kTiny, "train.sed=1"}, {"train.sed"}},
        {3, {"train", kTiny, "parallelism.tp=2", "device.memory_limit=1000000"}, {"device.memory_limit 1000000"}},
        {5, {"train", kTiny, "data.data_path=" + path("missing.txt")}, {"missing.txt"}},
        {5, {"train", kTiny, "logging.metrics_file=/dev/full"}, {"No space left"}}, /* found by one rank under way */
    };
    for (const auto &r : rows) {
        SCOPED_TRACE(text_of(r.args));
        Outcome o = plait(r.args, on_nodes(2, 2)).limit(20).run();
        expect_end(o, r.code, r.says);
        size_t first = o.err.find("plait: ");
        ASSERT_NE(first, std::string::npos) << o;
        EXPECT_EQ(o.err.find("plait: ", first + 1), std::string::npos) << "one message\n" << o;
    }
}

TEST_F(CliNodesEnd, AKilledRankOfTheSecondNodeEndsTheRun)
{
    for (const Words &grid : {Words{"parallelism.tp=4"}, Words{"parallelism.tp=2", "parallelism.pp=2"}}) {
        SCOPED_TRACE(text_of(grid));
        Command c = endless(grid);
        ASSERT_TRUE(c.wait_for("iteration        2/"));
        pid_t victim = c.rank(2);
        ASSERT_GT(victim, 0);
        kill(victim, SIGKILL);
        Outcome o = c.wait();
        EXPECT_NE(o.code, 0) << o;
        EXPECT_NE(o.code, 99) << "something is left\n" << o;
        EXPECT_FALSE(o.timed_out) << o;
        /* Sometimes a neighbour: MPICH 5.0.2 may crash in MPI_Isend to a rank that is gone. */
        EXPECT_NE(o.out.find("RUNNING AT 10.0.0."), std::string::npos) << "which one\n" << o;
    }
}

TEST_F(CliNodesEnd, AStalledRankOfTheSecondNodeEndsTheRun)
{
    Command c = endless({"parallelism.tp=4", "comm.distributed_timeout_minutes=0.03"});
    ASSERT_TRUE(c.wait_for("iteration        2/"));
    pid_t stalled = c.rank(2);
    ASSERT_GT(stalled, 0);
    ASSERT_EQ(kill(stalled, SIGSTOP), 0);
    expect_end(c.wait(), 6, {" has stood still for ", "waits for [d0 p0 t2] (rank 2)"});
}

TEST_F(CliNodesEnd, SignalsSaveTheWeightsAndStopAllNodes)
{
    for (bool to_mpiexec : {true, false}) {
        SCOPED_TRACE(to_mpiexec ? "to mpiexec" : "to a rank of the second node");
        std::string weights = path("w" + std::to_string(to_mpiexec) + ".safetensors");
        Command c = endless({"parallelism.tp=2", "zero_optimization.stage=3", "checkpoint.save_weights=" + weights});
        ASSERT_TRUE(c.wait_for("iteration        2/"));
        pid_t receiver = to_mpiexec ? c.process("mpiexec") : c.rank(3);
        ASSERT_GT(receiver, 0);
        kill(receiver, SIGTERM);
        expect_end(c.wait(), 7, {"signal 15", "weights saved"});
        EXPECT_EQ(count_elements(read_weights(weights)), 180928);
    }
}

/* The library that the program was built with, where it is one that may hang at the end: said before the first step. */
TEST_F(CliNodesEnd, AnMpiThatMayHangIsNamedAtTheStart)
{
    Outcome version = Command({mpiexec(), "--version"}).run();
    if (version.out.find("Version:                                 3.") == std::string::npos &&
        version.out.find("Version:                                 4.0") == std::string::npos &&
        version.out.find("Version:                                 4.1") == std::string::npos)
        GTEST_SKIP() << "built with an MPI that ends such a run";
    Command c = plait(Words{"train", kTiny} + kEndless, {source("tests/nodes/nodes.sh"), "-n", "2", "-p", "1"});
    c.set("MPIEXEC", mpiexec()).limit(30).start();
    ASSERT_TRUE(c.wait_for("iteration        1/"));
    kill(c.pid(), SIGKILL); /* it is not asked to end; its processes go with it */
    Outcome o = c.wait();
    EXPECT_NE(o.err.find("2 nodes with MPICH Version:"), std::string::npos) << o;
    EXPECT_TRUE(o.left.empty()) << o;
}

int main(int argc, char **argv)
{
    testing::InitGoogleTest(&argc, argv);
    Outcome o = Command(on_nodes(2, 1) + Words{"true"}).run();
    if (o.code == 77) {
        std::fputs(o.err.c_str(), stdout);
        return o.code;
    }
    return RUN_ALL_TESTS();
}
