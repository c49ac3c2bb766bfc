/* plait bench: what it measures is in the file, what was there and is not measured again stays, and refusals. */
#include "launcher/machine_file.h"
#include "plait_test.h"

#include <filesystem>
#include <regex>

namespace
{

class CliBench : public PlaitTest
{
  protected:
    ~CliBench() override { plait_machine_deinit(&m_); }
    const plait_machine &machine(const std::string &name)
    {
        plait_machine_deinit(&m_);
        EXPECT_EQ(plait_machine_read(path(name).c_str(), &m_), PLAIT_OK) << plait_error_text();
        return m_;
    }
    void bench(const Words &arguments, int ranks)
    {
        Outcome o = plait(Words{"bench", "--machine", "m.yaml", "--quick"} + arguments, ranks)
                        .set("OMP_NUM_THREADS", "1")
                        .limit(120)
                        .run();
        EXPECT_EQ(o.code, 0) << o;
        EXPECT_TRUE(o.left.empty()) << o;
        EXPECT_NE(o.out.find("written: m.yaml, "), std::string::npos) << o;
    }
    static int count_rates(const plait_machine &m, plait_dtype dtype, int ranks)
    {
        int n = 0;
        for (int i = 0; i < m.num_rates; i++)
            n += m.rates[i].dtype == dtype && m.rates[i].ranks == ranks;
        return n;
    }
    static const plait_link_table *link(const plait_machine &m, plait_comm_kind kind, plait_dtype dtype, int size)
    {
        for (int i = 0; i < m.num_links; i++)
            if (m.links[i].kind == kind && m.links[i].dtype == dtype && m.links[i].size == size)
                return &m.links[i];
        return nullptr;
    }

  private:
    plait_machine m_ = {};
};

/* Each operation once, and three of products. */
constexpr int kTables = PLAIT_OPS + 2;

} // namespace

TEST_F(CliBench, AddsWhatItMeasures)
{
    bench({"--dtypes", "fp32"}, 0);
    {
        const plait_machine &m = machine("m.yaml");
        EXPECT_EQ(m.num_rates, kTables);
        EXPECT_EQ(count_rates(m, PLAIT_FP32, 1), kTables);
        EXPECT_EQ(m.num_links, 0) << "one rank talks to nobody";
        EXPECT_GT(m.launch_seconds, 0);
        EXPECT_FALSE(m.overlap);
        EXPECT_TRUE(std::regex_match(m.source, std::regex("measured \\d{4}-\\d\\d-\\d\\d"))) << m.source;
        EXPECT_NE(m.name[0], '\0');
        for (int i = 0; i < m.num_rates; i++) {
            EXPECT_EQ(m.rates[i].threads, 1);
            for (int a = 0; a < m.rates[i].num_axes; a++)
                EXPECT_EQ(m.rates[i].num[a], 2) << plait_op_name(m.rates[i].op);
        }
    }
    bench({"--dtypes", "bf16"}, 2);
    const plait_machine &m = machine("m.yaml");
    EXPECT_EQ(count_rates(m, PLAIT_FP32, 1), kTables);
    EXPECT_EQ(count_rates(m, PLAIT_BF16, 2), kTables);
    EXPECT_EQ(count_rates(m, PLAIT_FP32, 2), 2) << "casts and sums of gradients";
    EXPECT_EQ(m.num_rates, 2 * kTables + 2);
    for (int kind = 0; kind < PLAIT_COMM_KINDS; kind++) {
        const plait_link_table *t = link(m, static_cast<plait_comm_kind>(kind), PLAIT_FP32, 2);
        if (kind == PLAIT_COMM_RECV) {
            EXPECT_EQ(t, nullptr);
            continue;
        }
        ASSERT_NE(t, nullptr) << plait_comm_kind_name(static_cast<plait_comm_kind>(kind));
        EXPECT_EQ(t->ranks, 2);
        EXPECT_FALSE(t->spans);
        EXPECT_EQ(t->bytes[0], 0);
        for (int i = 0; i < t->num; i++)
            EXPECT_GT(t->seconds[i], 0) << plait_comm_kind_name(t->kind) << " " << t->bytes[i];
    }
    for (plait_comm_kind kind : {PLAIT_COMM_ALL_REDUCE, PLAIT_COMM_REDUCE_SCATTER, PLAIT_COMM_REDUCE})
        EXPECT_NE(link(m, kind, PLAIT_BF16, 2), nullptr) << plait_comm_kind_name(kind);
    EXPECT_EQ(m.num_links, 7 + 3);
}

/* Rates that nobody can have measured tell which tables are new. */
TEST_F(CliBench, ReplacesTheSameAndKeepsTheRest)
{
    write("m.yaml", "version: 1\nname: my box\nsource: guessed\noverlap: true\nstep_microseconds: 7\nrates:\n"
                    "  - {op: gelu_fwd, dtype: fp32, threads: 1, ranks: 1, bytes: [1], gbytes: [123456]}\n"
                    "  - {op: gelu_fwd, dtype: fp32, threads: 3, ranks: 1, bytes: [1], gbytes: [123456]}\n"
                    "  - {op: gelu_fwd, dtype: fp16, threads: 1, ranks: 1, bytes: [1], gbytes: [123456]}\n"
                    "links:\n"
                    "  - {kind: send, dtype: fp32, size: 2, ranks: 4, bytes: [0], microseconds: [98765]}\n");
    bench({"--dtypes", "fp32"}, 0);
    const plait_machine &m = machine("m.yaml");
    EXPECT_STREQ(m.name, "my box");
    EXPECT_NE(std::string(m.source), "guessed");
    EXPECT_TRUE(m.overlap);
    EXPECT_DOUBLE_EQ(m.step_seconds, 7e-6);
    EXPECT_EQ(m.num_rates, kTables + 2);
    int kept = 0;
    for (int i = 0; i < m.num_rates; i++)
        if (m.rates[i].rate[0] > 123e12) {
            kept++;
            EXPECT_TRUE(m.rates[i].threads == 3 || m.rates[i].dtype == PLAIT_FP16);
        }
    EXPECT_EQ(kept, 2);
    ASSERT_EQ(m.num_links, 1);
    EXPECT_DOUBLE_EQ(m.links[0].seconds[0], 98765e-6);
}

/* Each reads the file before and after it measures: tables that the other wrote in between stay. */
TEST_F(CliBench, TwoAtOnceLoseNothing)
{
    for (int times = 0; times < 3; times++) {
        Command fp32 = plait({"bench", "--machine", "m.yaml", "--quick", "--dtypes", "fp32"});
        Command bf16 = plait({"bench", "--machine", "m.yaml", "--quick", "--dtypes", "bf16"});
        fp32.limit(120).start();
        bf16.limit(120).start();
        const Outcome a = fp32.wait(), b = bf16.wait();
        EXPECT_EQ(a.code, 0) << a;
        EXPECT_EQ(b.code, 0) << b;
        const plait_machine &m = machine("m.yaml");
        EXPECT_EQ(count_rates(m, PLAIT_BF16, 1), kTables);
        EXPECT_EQ(count_rates(m, PLAIT_FP32, 1), kTables);
        std::filesystem::remove(path("m.yaml"));
    }
}

/* What was taken off the times of a table stays with it. */
TEST_F(CliBench, WhatACallCostsIsThatOfItsTable)
{
    write("m.yaml", "version: 1\nname: my box\nsource: guessed\nlaunch_microseconds: 98765\nrates:\n"
                    "  - {op: gelu_fwd, dtype: fp16, threads: 1, ranks: 1, bytes: [1], gbytes: [1]}\n"
                    "  - {op: swiglu_fwd, dtype: fp16, threads: 1, ranks: 1, launch_microseconds: 54321, bytes: [1], "
                    "gbytes: [1]}\n");
    bench({"--dtypes", "fp32"}, 0);
    const plait_machine &m = machine("m.yaml");
    EXPECT_DOUBLE_EQ(m.launch_seconds, 98765e-6) << "of the table that has none of its own";
    ASSERT_EQ(m.num_rates, kTables + 2);
    EXPECT_EQ(m.rates[0].launch_seconds, 0);
    EXPECT_DOUBLE_EQ(m.rates[1].launch_seconds, 54321e-6);
    for (int i = 2; i < m.num_rates; i++) {
        EXPECT_GT(m.rates[i].launch_seconds, 0) << plait_op_name(m.rates[i].op);
        EXPECT_LT(m.rates[i].launch_seconds, 1e-3) << plait_op_name(m.rates[i].op);
    }
}

/* More groups than one, a rank that is in none, and the group of all. */
TEST_F(CliBench, MeasuresGroupsOfPowersOfTwoAndOfAll)
{
    bench({"--dtypes", "fp32"}, 3);
    const plait_machine &m = machine("m.yaml");
    for (int size : {2, 3}) {
        EXPECT_NE(link(m, PLAIT_COMM_ALL_REDUCE, PLAIT_FP32, size), nullptr) << size;
        EXPECT_NE(link(m, PLAIT_COMM_BARRIER, PLAIT_FP32, size), nullptr) << size;
    }
    EXPECT_NE(link(m, PLAIT_COMM_SEND, PLAIT_FP32, 2), nullptr);
    EXPECT_EQ(m.num_links, 7 + 6);
}

TEST_F(CliBench, RefusesBeforeItMeasures)
{
    write("broken.yaml", "version: 1\nname: x\nsource: y\nspeed: 1\n");
    const struct {
        Words arguments;
        int ranks, code;
        const char *says;
    } rows[] = {
        {{"bench"}, 0, 2, "plait bench: --machine is missing\nusage: plait bench"},
        {{"bench", "--machine"}, 0, 2, "--machine: nothing stands behind the option"},
        {{"bench", "--machine", "m.yaml", "--fast"}, 0, 2, "plait bench: unknown argument --fast"},
        {{"bench", "m.yaml"}, 2, 2, "plait bench: unknown argument m.yaml"},
        {{"bench", "--machine", "m.yaml", "--dtypes", "fp32,fp64"},
         0,
         2,
         "--dtypes takes fp32, bf16 and fp16, separated by commas, not 'fp32,fp64'"},
        {{"bench", "--machine", "m.yaml", "--dtypes", "bf16,"}, 0, 2, "separated by commas, not 'bf16,'"},
        {{"bench", "--machine", "m.yaml", "--dtypes", "bf16,bf16"}, 0, 2, "--dtypes bf16,bf16 names bf16 twice"},
        {{"bench", "--machine", "broken.yaml"}, 0, 2, "broken.yaml:4:1: machine: unknown key 'speed'"},
        {{"bench", "--machine", "broken.yaml"}, 2, 2, "broken.yaml:4:1: machine: unknown key 'speed'"},
        {{"bench", "--machine", "none/m.yaml"}, 2, 5, "write none/m.yaml"},
        {{"bench", "--machine", "."}, 0, 5, "write ."},
    };
    for (const auto &r : rows) {
        SCOPED_TRACE(text_of(r.arguments));
        Outcome o = run(r.arguments, r.ranks, 20);
        EXPECT_EQ(o.code, r.code) << o;
        EXPECT_NE(o.err.find(r.says), std::string::npos) << o;
        EXPECT_EQ(o.out, "") << "nothing was measured";
    }
    EXPECT_FALSE(exists("m.yaml"));
}

TEST_F(CliBench, RanksWithOtherArgumentsAreRefused)
{
    const Words rank = {"-n", "1", plait_binary(), "bench", "--quick", "--machine", "m.yaml"};
    Command c(Words{mpiexec()} + rank + Words{":"} + rank + Words{"--dtypes", "bf16"});
    Outcome o = c.in(directory()).limit(20).run();
    EXPECT_EQ(o.code, 2) << o;
    EXPECT_NE(o.err.find("the ranks' arguments differ: rank 0 has 'dtypes fp32 bf16 fp16', this rank 'dtypes bf16'"),
              std::string::npos)
        << o;
    EXPECT_FALSE(exists("m.yaml"));
}

namespace
{

/* Rows of the file of plait bench kernels: an operation's, or all. */
int count_rows(const std::string &json, const std::string &op = "[a-z_]+")
{
    const std::regex row(
        "\\{\"op\":\"" + op +
        "\",\"dtype\":\"(fp32|bf16|fp16)\",.*\"flops\":\\d+,\"bytes\":[1-9]\\d*,\"seconds\":0*\\.?0*[1-9].*"
        ",\"predicted_seconds\":null\\}");
    return (int)std::distance(std::sregex_iterator(json.begin(), json.end(), row), std::sregex_iterator());
}

} // namespace

TEST_F(CliBench, EachOperationOfTheKernelsIsMeasured)
{
    const Outcome o =
        run({"bench", "kernels", "--quick", "--backend", "cpu", "--dtypes", "bf16,fp32", "--json", "k.json"}, 0, 120);
    ASSERT_EQ(o.code, 0) << o;
    const std::string json = read("k.json");
    for (int op = 0; op < PLAIT_OPS; op++) {
        const char *name = plait_op_name(static_cast<plait_op>(op));
        const bool attention = std::string(name).rfind("attention", 0) == 0;
        EXPECT_EQ(count_rows(json, name), 2 * (op == PLAIT_OP_gemm ? 6 : attention ? 2 : 1)) << name << "\n" << json;
        EXPECT_NE(o.out.find(std::string(" ") + name + " "), std::string::npos) << o;
    }
    EXPECT_NE(json.find("\"backend\":\"cpu\""), std::string::npos) << json;
    EXPECT_NE(json.find("\"against\":null"), std::string::npos) << json;
}

TEST_F(CliBench, KernelsAreHeldAgainstAMachineFile)
{
    const Outcome o = run({"bench", "kernels", "--quick", "--backend", "cpu", "--dtypes", "bf16", "--json", "k.json",
                           "--against", source("configs/machines/h200-sxm.yaml")},
                          0, 120);
    ASSERT_EQ(o.code, 0) << o;
    EXPECT_NE(o.out.find("of copy   of NVIDIA H200 SXM 141 GB\n"), std::string::npos) << o;
    const std::string json = read("k.json");
    EXPECT_NE(json.find("\"against\":\"NVIDIA H200 SXM 141 GB\""), std::string::npos) << json;
    const std::regex row(
        "\"op\":\"(gemm|attention)?[^\n]*\"flops\":(\\d+),\"bytes\":(\\d+),[^\n]*\"predicted_seconds\":([^}]+)\\}");
    int rows = 0;
    for (std::sregex_iterator i(json.begin(), json.end(), row), end; i != end; ++i, rows++) {
        const double peak = (*i)[1].matched ? std::stod((*i)[2]) / 989e12 : std::stod((*i)[3]) / 4800e9;
        EXPECT_NEAR(std::stod((*i)[4]) / peak, 1, 1e-4) << i->str();
    }
    EXPECT_EQ(rows, PLAIT_OPS + 5 + 2) << "six products, two of each attention\n" << json;
}

TEST_F(CliBench, KernelsAreOfOneRankAndOfWhatIsThere)
{
    write("bad.yaml", "version: 2\n");
    const struct {
        Words arguments;
        int ranks;
        const char *says;
    } rows[] = {
        {{"--quick"}, 2, "plait bench kernels is of one rank"},
        {{"--backend", "tpu"}, 0, "--backend takes auto, cpu or cuda, not 'tpu'"},
        {{"--isa", "sse"}, 0, "--isa takes auto, avx2 or avx512, not 'sse'"},
        {{"--dtypes", "fp32,fp32"}, 0, "names fp32 twice"},
        {{"--machine", "m.yaml"}, 0, "unknown option --machine"},
        {{"--against", "bad.yaml"}, 0, "bad.yaml:1:"},
        {{"quickly"}, 0, "unknown argument quickly"},
    };
    for (const auto &r : rows) {
        const Outcome o = run(Words{"bench", "kernels"} + r.arguments, r.ranks);
        EXPECT_EQ(o.code, 2) << o;
        EXPECT_NE(o.err.find(r.says), std::string::npos) << r.says << "\n" << o;
    }
    const Outcome o = run({"bench", "kernels", "--quick", "--json", "/dev/full/x"});
    EXPECT_EQ(o.code, 5) << o;
}
