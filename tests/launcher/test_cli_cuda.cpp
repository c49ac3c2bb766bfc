/* The program on GPUs, which the emulation stands for: how it ends when a device, a library or a rank fails. */
#include "plait_test.h"

#include <chrono>
#include <csignal>

namespace
{

const Words kEndless = {"device.backend=cuda", "train.train_iters=1000000"};
const Words kNccl = {"comm.backend=nccl"}, kStaged = {"comm.backend=staged"};
const double kSoon = 10; /* seconds, in which all ranks have ended */

class CliCuda : public PlaitTest
{
  protected:
    Command training(const Words &overrides, const std::string &fault = "")
    {
        Command c = plait(Words{"train", kTiny} + overrides + kEndless, 2);
        if (!fault.empty())
            c.set("FAKECUDA_FAULT", fault);
        c.limit(40);
        return c;
    }
    void expect_end(const Outcome &o, const std::string &what)
    {
        EXPECT_NE(o.code, 0) << what << "\n" << o;
        EXPECT_FALSE(o.timed_out) << what << "\n" << o;
        EXPECT_TRUE(o.left.empty()) << what << "\n" << o;
    }
};

TEST_F(CliCuda, AFailureOfOneRankEndsAllAndIsNamed)
{
    const Words tp = {"parallelism.tp=2"}, pp = {"parallelism.pp=2"}, zero3 = {"zero_optimization.stage=3"};
    const struct {
        Words overrides;
        const char *fault; /* the N-th call of a function, on a rank */
        int code;
        Words says;
    } rows[] = {
        {kNccl + tp, "ncclAllReduce:7:1", 6, {"group tensor (2 ranks)", "ncclAllReduce failed"}},
        {kNccl + zero3, "ncclAllGather:9:0", 6, {"group data (2 ranks)", "ncclAllGather failed"}},
        {kNccl + zero3, "ncclReduceScatter:3:1", 6, {"group data (2 ranks)", "ncclReduceScatter failed"}},
        {kNccl + pp, "ncclSend:2:0", 6, {"ncclSend failed"}},
        {kNccl, "cudaMalloc:1:1", 3, {"[d1 p0 t0]", "bytes of device memory for parameters could not be allocated"}},
        {kStaged, "cudaMalloc:3:0", 3, {"[d0 p0 t0]", "bytes of device memory for", "could not be allocated"}},
        {kStaged + tp, "cudaMallocHost:1:1", 3, {"[d0 p0 t1]", "bytes of host memory for", "could not be allocated"}},
        {kStaged, "cublasLtMatmul:50:1", 1, {"[d1 p0 t0]", "step 1", "product of m ", "cublasLtMatmul"}},
        {kNccl, "norm_fwd:20:1", 1, {"[d1 p0 t0]", "step ", "unspecified launch failure"}},
    };
    for (const auto &r : rows) {
        const std::string what = text_of(r.overrides) + " " + r.fault;
        const Outcome o = training(r.overrides, r.fault).run();
        expect_end(o, what);
        EXPECT_EQ(o.code, r.code) << what << "\n" << o;
        EXPECT_LT(o.seconds, kSoon) << what;
        for (const std::string &s : r.says)
            EXPECT_NE(o.err.find(s), std::string::npos) << what << ": no '" << s << "'\n" << o;
    }
}

TEST_F(CliCuda, AKilledRankEndsTheRun)
{
    for (const Words &way : {kNccl, kStaged, kNccl + Words{"parallelism.pp=2"}}) {
        Command c = training(way);
        c.start();
        ASSERT_TRUE(c.wait_for("iteration        2/")) << text_of(way);
        const pid_t victim = c.rank(1);
        ASSERT_GT(victim, 0);
        const auto now = [] { return std::chrono::steady_clock::now(); };
        const auto killed = now();
        kill(victim, SIGKILL);
        const Outcome o = c.wait();
        expect_end(o, text_of(way));
        EXPECT_LT(std::chrono::duration<double>(now() - killed).count(), kSoon) << text_of(way);
        EXPECT_NE((o.out + o.err).find("BAD TERMINATION"), std::string::npos) << text_of(way) << "\n" << o;
    }
}

TEST_F(CliCuda, AStalledRankEndsTheRun)
{
    for (const Words &way : {kNccl, kStaged}) {
        Command c = training(way + Words{"comm.distributed_timeout_minutes=0.03"});
        c.start();
        ASSERT_TRUE(c.wait_for("iteration        2/")) << text_of(way);
        const pid_t stalled = c.rank(1);
        ASSERT_GT(stalled, 0);
        ASSERT_EQ(kill(stalled, SIGSTOP), 0);
        const Outcome o = c.wait();
        kill(stalled, SIGCONT);
        expect_end(o, text_of(way));
        EXPECT_EQ(o.code, 6) << text_of(way) << "\n" << o;
        EXPECT_NE(o.err.find("[d0 p0 t0]"), std::string::npos) << "the rank that waited\n" << o;
    }
}

TEST_F(CliCuda, KernelsAreMeasured)
{
    const Outcome o =
        run({"bench", "kernels", "--quick", "--backend", "cuda", "--dtypes", "bf16", "--json", "k.json"}, 0, 120);
    ASSERT_EQ(o.code, 0) << o;
    const std::string json = read("k.json");
    for (const char *has : {"\"backend\":\"cuda\"", "\"op\":\"gemm\"", "\"op\":\"attention_bwd\"", "\"op\":\"adamw\""})
        EXPECT_NE(json.find(has), std::string::npos) << has << "\n" << json;
    size_t epilogues = 0;
    for (size_t at = 0; (at = json.find("\"epilogue\":true", at)) != std::string::npos; at++)
        epilogues++;
    EXPECT_EQ(epilogues, 6u) << "three products of two widths\n" << json;
}

TEST_F(CliCuda, FewerGpusThanRanks)
{
    const Outcome refused = training(kNccl).set("FAKECUDA_DEVICES", "1").run();
    expect_end(refused, "NCCL with one device");
    EXPECT_EQ(refused.code, 2) << refused;
    EXPECT_NE(refused.err.find("comm.backend nccl: a node has more ranks than GPUs"), std::string::npos) << refused;
    const Outcome shared =
        plait({"train", kTiny, "device.backend=cuda", "train.train_iters=2"}, 2).set("FAKECUDA_DEVICES", "1").run();
    EXPECT_EQ(shared.code, 0) << shared;
    EXPECT_NE(shared.out.find("GPUs: 1 for 2 ranks of this node; tensors go through host memory and MPI (staged)\n"),
              std::string::npos)
        << shared;
}

} // namespace
