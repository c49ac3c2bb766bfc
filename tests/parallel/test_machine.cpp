/* How long things take on a machine: between the points of tables, which table, and rings where there is none. */
#include "parallel/machine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace
{

class Machine : public testing::Test
{
  protected:
    Machine() { snprintf(m.name, sizeof m.name, "test"); }
    ~Machine() override { plait_machine_deinit(&m); }

    struct Rates {
        plait_op op;
        plait_dtype dtype;
        std::vector<std::vector<double>> at;
        std::vector<double> rate;
        int threads = 0, ranks = 0;
        bool trans_a = false, trans_b = false;
    };
    void put(Rates r)
    {
        plait_rate_table t = {};
        t.op = r.op;
        t.dtype = r.dtype;
        t.threads = r.threads;
        t.ranks = r.ranks;
        t.trans_a = r.trans_a;
        t.trans_b = r.trans_b;
        t.num_axes = static_cast<int>(r.at.size());
        for (size_t a = 0; a < r.at.size(); a++) {
            t.num[a] = static_cast<int>(r.at[a].size());
            t.at[a] = r.at[a].data();
        }
        t.rate = r.rate.data();
        ASSERT_EQ(plait_machine_put_rates(&m, &t), PLAIT_OK) << plait_error_text();
    }
    /* A product whose rate is the same everywhere. */
    void put_gemm(plait_dtype dtype, int threads, int ranks, double rate, bool trans_a = false, bool trans_b = false)
    {
        put({PLAIT_OP_gemm, dtype, {{64}, {64}, {64}}, {rate}, threads, ranks, trans_a, trans_b});
    }

    struct Links {
        plait_comm_kind kind;
        int size;
        std::vector<double> bytes, seconds;
        plait_dtype dtype = PLAIT_FP32;
        int ranks = 0;
        bool spans = false;
    };
    void put(Links l)
    {
        plait_link_table t = {};
        t.kind = l.kind;
        t.size = l.size;
        t.ranks = l.ranks;
        t.spans = l.spans;
        t.dtype = l.dtype;
        t.num = static_cast<int>(l.bytes.size());
        t.bytes = l.bytes.data();
        t.seconds = l.seconds.data();
        ASSERT_EQ(plait_machine_put_links(&m, &t), PLAIT_OK) << plait_error_text();
    }

    double seconds(const plait_op_record &r)
    {
        double s = -1;
        EXPECT_EQ(plait_machine_op_seconds(&m, &use, &r, &s), PLAIT_OK) << plait_error_text();
        return s;
    }
    /* FLOP/s of a product of these extents. */
    double gemm_rate(int64_t M, int64_t N, int64_t K, plait_dtype dtype = PLAIT_FP32, bool trans_a = false,
                     bool trans_b = false)
    {
        plait_op_record r = {};
        r.op = PLAIT_OP_gemm;
        r.dtype = dtype;
        r.m = M;
        r.n = N;
        r.k = K;
        r.trans_a = trans_a;
        r.trans_b = trans_b;
        r.flops = 2.0 * static_cast<double>(M * N * K);
        return r.flops / seconds(r);
    }
    static plait_op_record memory(plait_op op, double read, double written, plait_dtype dtype = PLAIT_FP32)
    {
        plait_op_record r = {};
        r.op = op;
        r.dtype = dtype;
        r.bytes_read = read;
        r.bytes_written = written;
        return r;
    }
    double comm(plait_comm_kind kind, int size, double bytes, int nodes = 1, plait_dtype dtype = PLAIT_FP32)
    {
        double s = -1;
        EXPECT_EQ(plait_machine_comm_seconds(&m, &use, kind, size, nodes, dtype, bytes, &s), PLAIT_OK)
            << plait_error_text();
        return s;
    }

    plait_machine m = {};
    plait_machine_use use = {2, 1};
};

} // namespace

TEST_F(Machine, RatesAreGeometricMeansBetweenPoints)
{
    put({PLAIT_OP_copy, PLAIT_FP32, {{100, 10000, 40000}}, {1e9, 4e9, 1e9}});
    const struct {
        double bytes, rate;
    } rows[] = {
        {1, 1e9},                     /* before the first point: as there */
        {100, 1e9},   {1000, 2e9},    /* half way from 100 to 10000, and from 1e9 to 4e9 */
        {10000, 4e9}, {20000, 2e9},   /* half way in the next cell */
        {40000, 1e9}, {4000000, 1e9}, /* behind the last */
    };
    for (const auto &r : rows)
        EXPECT_NEAR(r.bytes / seconds(memory(PLAIT_OP_copy, r.bytes / 4, r.bytes * 3 / 4)), r.rate, 1e-6 * r.rate)
            << r.bytes;
}

TEST_F(Machine, ProductsHaveThreeAxes)
{
    /* m, n, k; the last varies fastest */
    put({PLAIT_OP_gemm, PLAIT_FP32, {{16, 64}, {10, 1000}, {1, 9}}, {1, 2, 4, 8, 16, 32, 64, 128}});
    EXPECT_NEAR(gemm_rate(16, 10, 1), 1, 1e-9);
    EXPECT_NEAR(gemm_rate(16, 10, 9), 2, 1e-9);
    EXPECT_NEAR(gemm_rate(16, 1000, 1), 4, 1e-9);
    EXPECT_NEAR(gemm_rate(64, 10, 1), 16, 1e-9);
    EXPECT_NEAR(gemm_rate(64, 1000, 9), 128, 1e-9);
    EXPECT_NEAR(gemm_rate(32, 10, 1), 4, 1e-9) << "half way along m, a factor of 16 apart";
    EXPECT_NEAR(gemm_rate(16, 100, 1), 2, 1e-9) << "half way along n, a factor of 4";
    EXPECT_NEAR(gemm_rate(16, 10, 3), std::sqrt(2.0), 1e-9) << "half way along k, a factor of 2";
    EXPECT_NEAR(gemm_rate(32, 100, 3), std::pow(2.0, 3.5), 1e-9) << "the middle of the cell";
    EXPECT_NEAR(gemm_rate(32, 1, 100), 8, 1e-9) << "outside on two axes";
    EXPECT_NEAR(gemm_rate(100000, 100000, 100000), 128, 1e-9);
}

TEST_F(Machine, AttentionIsKnownByHeadsSequenceAndWidth)
{
    put({PLAIT_OP_attention_bwd, PLAIT_BF16, {{1, 16}, {64, 256}, {32}}, {1e9, 2e9, 4e9, 8e9}});
    plait_op_record r = {};
    r.op = PLAIT_OP_attention_bwd;
    r.dtype = PLAIT_BF16;
    r.m = 4;
    r.n = 256;
    r.k = 64;
    r.flops = 1e12;
    EXPECT_NEAR(seconds(r), 1e12 / 4e9, 1e-6) << "half way along heads, at the end of the sequences";
}

TEST_F(Machine, NothingTakesNoTime)
{
    put_gemm(PLAIT_FP32, 0, 0, 1e9);
    plait_op_record r = {};
    r.op = PLAIT_OP_gemm;
    r.m = 5;
    r.n = 7;
    r.bytes_written = 140;
    EXPECT_EQ(seconds(r), 0) << "k is 0";
    EXPECT_EQ(seconds(memory(PLAIT_OP_gelu_fwd, 0, 0)), 0) << "without a table too";
    EXPECT_EQ(comm(PLAIT_COMM_ALL_REDUCE, 1, 1e6), 0) << "alone";
    EXPECT_EQ(comm(PLAIT_COMM_ALL_REDUCE, 4, 0), 0);
}

TEST_F(Machine, TheTableOfTheRunServes)
{
    put_gemm(PLAIT_FP32, 2, 1, 100);
    put_gemm(PLAIT_FP32, 1, 2, 200);
    put_gemm(PLAIT_FP32, 1, 8, 300);
    put_gemm(PLAIT_BF16, 0, 0, 400);
    put_gemm(PLAIT_BF16, 4, 1, 500);
    const struct {
        int threads, ranks;
        plait_dtype dtype;
        double rate;
        const char *why;
    } rows[] = {
        {2, 1, PLAIT_FP32, 100, "exactly"},
        {1, 2, PLAIT_FP32, 200, "exactly"},
        {1, 8, PLAIT_FP32, 300, "exactly"},
        {1, 6, PLAIT_FP32, 300, "6 is nearer to 8 than to 2"},
        {3, 2, PLAIT_FP32, 300, "so is 3 x 2"},
        {1, 3, PLAIT_FP32, 200, "3 is nearer to 2; of two tables with 2, the one with more ranks"},
        {3, 1, PLAIT_FP32, 100, "... with as few ranks"},
        {1, 1, PLAIT_FP32, 100, "... with as few ranks"},
        {64, 4, PLAIT_FP32, 300, "the largest"},
        {4, 1, PLAIT_BF16, 500, "exactly, before any"},
        {4, 2, PLAIT_BF16, 400, "any, before the nearest"},
    };
    for (const auto &r : rows) {
        use = {r.threads, r.ranks};
        EXPECT_NEAR(gemm_rate(64, 64, 64, r.dtype), r.rate, 1e-9) << r.threads << " x " << r.ranks << ": " << r.why;
    }
}

TEST_F(Machine, TransposesCountBeforeThreads)
{
    put_gemm(PLAIT_FP32, 2, 1, 100, false, true);
    put_gemm(PLAIT_FP32, 9, 9, 200, true, false);
    EXPECT_NEAR(gemm_rate(64, 64, 64, PLAIT_FP32, false, true), 100, 1e-9);
    EXPECT_NEAR(gemm_rate(64, 64, 64, PLAIT_FP32, true, false), 200, 1e-9);
    EXPECT_NEAR(gemm_rate(64, 64, 64, PLAIT_FP32, false, false), 100, 1e-9) << "others rather than none";
}

TEST_F(Machine, MemoryServesWhatHasNoTable)
{
    put({PLAIT_OPS, PLAIT_BF16, {{1}}, {2e9}});
    put({PLAIT_OPS, PLAIT_FP32, {{1}}, {1e9}});
    put({PLAIT_OP_adamw, PLAIT_BF16, {{1}}, {5e9}});
    EXPECT_NEAR(seconds(memory(PLAIT_OP_adamw, 1e9, 0, PLAIT_BF16)), 0.2, 1e-9);
    EXPECT_NEAR(seconds(memory(PLAIT_OP_gelu_fwd, 1e9, 1e9, PLAIT_BF16)), 1, 1e-9);
    EXPECT_NEAR(seconds(memory(PLAIT_OP_adamw, 1e9, 1e9, PLAIT_FP32)), 2, 1e-9) << "a table of another type does not";
    EXPECT_NEAR(seconds(memory(PLAIT_OP_gelu_fwd, 1e9, 1e9, PLAIT_FP16)), 1, 1e-9) << "memory of any type";
}

/* What the host takes for a call: what its table says, else the machine's, also for a call without work. */
TEST_F(Machine, ACallCostsWhatItsTableSays)
{
    put({PLAIT_OP_copy, PLAIT_FP32, {{1}}, {4.0}});
    put({PLAIT_OP_gelu_fwd, PLAIT_FP32, {{1}}, {4.0}});
    m.launch_seconds = 2;
    m.rates[1].launch_seconds = 0.5;
    EXPECT_EQ(seconds(memory(PLAIT_OP_copy, 4, 4)), 2 + 2);
    EXPECT_EQ(seconds(memory(PLAIT_OP_gelu_fwd, 4, 4)), 0.5 + 2);
    EXPECT_EQ(seconds(memory(PLAIT_OP_gelu_fwd, 0, 0)), 2);
}

TEST_F(Machine, SaysWhatItDoesNotKnow)
{
    put({PLAIT_OPS, PLAIT_FP32, {{1}}, {1e9}});
    put_gemm(PLAIT_FP32, 1, 1, 1e9);
    double s;
    plait_op_record r = {};
    r.op = PLAIT_OP_gemm;
    r.dtype = PLAIT_BF16;
    r.flops = 1;
    EXPECT_EQ(plait_machine_op_seconds(&m, &use, &r, &s), PLAIT_UNSUPPORTED);
    EXPECT_STREQ(plait_error_text(), "the machine \"test\" has no rates of the operation gemm in bf16");
    r.op = PLAIT_OP_attention_fwd;
    EXPECT_EQ(plait_machine_op_seconds(&m, &use, &r, &s), PLAIT_UNSUPPORTED);
    EXPECT_STREQ(plait_error_text(), "the machine \"test\" has no rates of the operation attention_fwd in bf16");
    plait_machine_deinit(&m);
    r = memory(PLAIT_OP_gelu_fwd, 1, 1);
    EXPECT_EQ(plait_machine_op_seconds(&m, &use, &r, &s), PLAIT_UNSUPPORTED);
    EXPECT_STREQ(plait_error_text(), "the machine \"\" has no rates of the operation gelu_fwd in fp32, nor of memory");
    EXPECT_EQ(plait_machine_comm_seconds(&m, &use, PLAIT_COMM_REDUCE, 4, 1, PLAIT_FP32, 1, &s), PLAIT_UNSUPPORTED);
    EXPECT_STREQ(plait_error_text(), "the machine \"\" has no times of reduce among 4 ranks of a node");
    m.node = {1e-6, 1e9};
    EXPECT_EQ(plait_machine_comm_seconds(&m, &use, PLAIT_COMM_SEND, 2, 2, PLAIT_FP32, 1, &s), PLAIT_UNSUPPORTED);
    EXPECT_STREQ(plait_error_text(), "the machine \"\" has no times of send among 2 ranks on several nodes");
}

TEST_F(Machine, ATableOfTheSameTakesThePlaceOfTheOld)
{
    put_gemm(PLAIT_FP32, 2, 1, 100);
    put_gemm(PLAIT_FP32, 1, 2, 200);
    put_gemm(PLAIT_FP32, 2, 1, 300);
    EXPECT_EQ(m.num_rates, 2);
    EXPECT_NEAR(gemm_rate(64, 64, 64), 300, 1e-9);
    put({PLAIT_COMM_BARRIER, 2, {0}, {1.0}});
    put({PLAIT_COMM_BARRIER, 4, {0}, {2.0}});
    put({PLAIT_COMM_BARRIER, 2, {0}, {3.0}, PLAIT_FP32, 0, true});
    put({PLAIT_COMM_BARRIER, 2, {0}, {4.0}});
    EXPECT_EQ(m.num_links, 3);
    EXPECT_EQ(comm(PLAIT_COMM_BARRIER, 2, 0), 4.0);
    EXPECT_EQ(comm(PLAIT_COMM_BARRIER, 2, 0, 2), 3.0);
}

TEST_F(Machine, ThePeakIsTheDataSheetsElseTheBestProduct)
{
    EXPECT_EQ(plait_machine_peak(&m, &use, PLAIT_FP32), 0);
    put({PLAIT_OP_gemm, PLAIT_FP32, {{1, 2}, {1}, {1, 2}}, {5, 9, 8, 7}, 2, 1});
    put_gemm(PLAIT_FP32, 2, 1, 11, true, false);
    put_gemm(PLAIT_FP32, 1, 2, 6);
    EXPECT_EQ(plait_machine_peak(&m, &use, PLAIT_FP32), 11);
    use = {1, 2};
    EXPECT_EQ(plait_machine_peak(&m, &use, PLAIT_FP32), 11) << "the only table with these transposes";
    use = {2, 1};
    m.peak[PLAIT_FP32] = 4;
    EXPECT_EQ(plait_machine_peak(&m, &use, PLAIT_FP32), 4);
    EXPECT_EQ(plait_machine_peak(&m, &use, PLAIT_BF16), 0);
}

TEST_F(Machine, TimesAreLinearBetweenPoints)
{
    put({PLAIT_COMM_ALL_REDUCE, 4, {0, 1000, 3000}, {10.0, 20.0, 60.0}});
    const struct {
        double bytes, seconds;
    } rows[] = {{4, 10.04},   {500, 15.0},  {1000, 20.0},
                {2000, 40.0}, {3000, 60.0}, {6000, 120.0} /* behind the last: its bytes a second */};
    for (const auto &r : rows)
        EXPECT_NEAR(comm(PLAIT_COMM_ALL_REDUCE, 4, r.bytes), r.seconds, 1e-9) << r.bytes;
    put({PLAIT_COMM_SEND, 2, {1000, 2000}, {5.0, 6.0}});
    EXPECT_NEAR(comm(PLAIT_COMM_SEND, 2, 1), 5.0, 1e-9) << "before the first point";
    EXPECT_NEAR(comm(PLAIT_COMM_RECV, 2, 1500), 5.5, 1e-9) << "a receive is the send of the other end";
}

TEST_F(Machine, AnotherSizeIsScaledAsARing)
{
    put({PLAIT_COMM_ALL_REDUCE, 2, {0, 1000}, {10.0, 110.0}});
    /* Latency 2 (N - 1): 2 to 14 steps; buffer 2 (N - 1)/N: 1 to 7/4. */
    EXPECT_NEAR(comm(PLAIT_COMM_ALL_REDUCE, 8, 1000), 10.0 * 7 + 100.0 * 7 / 4, 1e-9);
    put({PLAIT_COMM_ALL_REDUCE, 4, {0, 1000}, {30.0, 180.0}});
    EXPECT_NEAR(comm(PLAIT_COMM_ALL_REDUCE, 8, 1000), 30.0 * 7 / 3 + 150.0 * (7.0 / 8) / (3.0 / 4), 1e-9)
        << "from the nearest";
    EXPECT_NEAR(comm(PLAIT_COMM_ALL_REDUCE, 4, 1000), 180.0, 1e-9);
    put({PLAIT_COMM_BARRIER, 2, {0}, {3.0}});
    EXPECT_NEAR(comm(PLAIT_COMM_BARRIER, 8, 0), 9.0, 1e-9) << "log2 N steps";
    put({PLAIT_COMM_SEND, 2, {0, 100}, {1.0, 5.0}});
    EXPECT_NEAR(comm(PLAIT_COMM_SEND, 16, 50), 3.0, 1e-9) << "a message does not know the group";
}

TEST_F(Machine, TheTableOfTheGroupServes)
{
    put({PLAIT_COMM_REDUCE, 2, {0}, {1.0}, PLAIT_FP32, 2});
    put({PLAIT_COMM_REDUCE, 2, {0}, {2.0}, PLAIT_BF16, 2});
    put({PLAIT_COMM_REDUCE, 2, {0}, {3.0}, PLAIT_FP32, 8});
    put({PLAIT_COMM_REDUCE, 2, {0}, {4.0}, PLAIT_FP32, 2, true});
    use = {1, 2};
    EXPECT_EQ(comm(PLAIT_COMM_REDUCE, 2, 1), 1.0);
    EXPECT_EQ(comm(PLAIT_COMM_REDUCE, 2, 1, 1, PLAIT_BF16), 2.0);
    EXPECT_EQ(comm(PLAIT_COMM_REDUCE, 2, 1, 1, PLAIT_FP64), 1.0) << "any type rather than none";
    EXPECT_EQ(comm(PLAIT_COMM_REDUCE, 2, 1, 2), 4.0);
    use = {1, 6};
    EXPECT_EQ(comm(PLAIT_COMM_REDUCE, 2, 1), 3.0) << "6 is nearer to 8 than to 2";
}

TEST_F(Machine, WithoutTablesItIsRings)
{
    m.node = {1.0, 10.0}; /* seconds, bytes a second */
    m.network = {100.0, 1.0};
    const struct {
        plait_comm_kind kind;
        int size;
        double seconds; /* of 80 bytes */
    } rows[] = {
        {PLAIT_COMM_ALL_REDUCE, 4, 6 + 12.0}, {PLAIT_COMM_REDUCE_SCATTER, 4, 3 + 6.0},
        {PLAIT_COMM_ALL_GATHER, 4, 3 + 6.0},  {PLAIT_COMM_REDUCE, 4, 3 + 8.0},
        {PLAIT_COMM_BROADCAST, 4, 3 + 8.0},   {PLAIT_COMM_SEND, 4, 1 + 8.0},
        {PLAIT_COMM_RECV, 4, 1 + 8.0},        {PLAIT_COMM_BARRIER, 4, 2.0},
        {PLAIT_COMM_BARRIER, 5, 3.0},         {PLAIT_COMM_ALL_REDUCE, 2, 2 + 8.0},
    };
    for (const auto &r : rows)
        EXPECT_NEAR(comm(r.kind, r.size, r.kind == PLAIT_COMM_BARRIER ? 0 : 80), r.seconds, 1e-9)
            << plait_comm_kind_name(r.kind) << " " << r.size;
    EXPECT_NEAR(comm(PLAIT_COMM_ALL_REDUCE, 4, 80, 4), 600 + 120.0, 1e-9);
    /* A table of a node says nothing about the network. */
    put({PLAIT_COMM_ALL_REDUCE, 4, {0, 80}, {1.0, 2.0}});
    EXPECT_NEAR(comm(PLAIT_COMM_ALL_REDUCE, 4, 80), 2.0, 1e-9);
    EXPECT_NEAR(comm(PLAIT_COMM_ALL_REDUCE, 4, 80, 4), 600 + 120.0, 1e-9);
}

// Several ranks of a group on each node have the network of all of them, as far as the node's own link carries it.
TEST_F(Machine, RingsBetweenNodesHaveTheNetworkOfEachRank)
{
    m.node = {1.0, 10.0};
    m.network = {100.0, 1.0};
    EXPECT_NEAR(comm(PLAIT_COMM_ALL_GATHER, 8, 80, 8), 700 + 70.0, 1e-9);
    EXPECT_NEAR(comm(PLAIT_COMM_ALL_GATHER, 8, 80, 4), 700 + 35.0, 1e-9);
    EXPECT_NEAR(comm(PLAIT_COMM_ALL_GATHER, 8, 80, 2), 700 + 17.5, 1e-9);
    EXPECT_NEAR(comm(PLAIT_COMM_ALL_GATHER, 32, 80, 2), 3100 + 7.75, 1e-9) << "16 lanes, and a node of 10";
    EXPECT_NEAR(comm(PLAIT_COMM_SEND, 8, 80, 2), 100 + 80.0, 1e-9) << "a message is of one rank";
    m.node = {};
    EXPECT_NEAR(comm(PLAIT_COMM_ALL_GATHER, 32, 80, 2), 3100 + 77.5 / 16, 1e-9);
}
