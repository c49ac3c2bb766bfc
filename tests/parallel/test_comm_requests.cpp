// Requests: many open at once in groups of several kinds, messages, barriers, agreement, counting, time-outs.
#include "comm_testing.h"
#include "mpi_world.h"
#include "parallel/comm_impl.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace
{

void sleep_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, nullptr);
}

double now()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

class World : public testing::Test
{
  protected:
    int size = test_world.size, rank = test_world.rank;
    std::vector<plait_comm *> made;

    void SetUp() override
    {
        ASSERT_NE(testing_exec(), nullptr) << plait_error_text();
        plait_comm_set_exec(testing_exec());
        if (size == 1)
            GTEST_SKIP() << "needs ranks to talk to";
    }
    void TearDown() override
    {
        for (auto c = made.rbegin(); c != made.rend(); c++)
            plait_comm_destroy(*c);
    }
    /* A group of these ranks (all ranks call it, each with its own group). */
    plait_comm *group(const char *name, std::vector<int> ranks, bool p2p = false, size_t largest = 1 << 16,
                      size_t chunk = 4096)
    {
        plait_comm *c = nullptr;
        plait_ledger ledger = {};
        EXPECT_EQ(plait_comm_create(&test_world, name, ranks.data(), (int)ranks.size(), &c), PLAIT_OK);
        made.push_back(c);
        if (p2p)
            plait_comm_use_p2p(c);
        EXPECT_EQ(plait_comm_reserve(c, largest, chunk, PLAIT_TIER_HOST, &ledger), PLAIT_OK) << plait_error_text();
        return c;
    }
    std::vector<int> everybody() const
    {
        std::vector<int> ranks((size_t)size);
        std::iota(ranks.begin(), ranks.end(), 0);
        return ranks;
    }
};

// Three groups, each with a queue of operations; every rank waits in its own order and only at the end.
TEST_F(World, ManyRequestsOfSeveralGroups)
{
    std::vector<int> half; // the ranks with this one's parity
    for (int q = rank % 2; q < size; q += 2)
        half.push_back(q);
    plait_comm *groups[] = {group("all", everybody()), group("messages", everybody(), true), group("half", half)};
    const int kOps = 12;
    const int64_t n = 3001;
    struct Open {
        plait_request *req;
        plait_comm *c;
        std::vector<float> buffer;
        int salt;
    };
    std::vector<std::unique_ptr<Open>> open;
    for (int i = 0; i < kOps; i++)
        for (int g = 0; g < 3; g++) {
            auto o = std::make_unique<Open>();
            o->c = groups[g];
            o->salt = 100 * g + i;
            o->buffer.resize((size_t)n);
            for (int64_t j = 0; j < n; j++)
                o->buffer[(size_t)j] = (float)(plait_comm_rank(o->c) + 1) * (float)(j % 97 + o->salt);
            plait_comm_op op =
                plait_comm_make(PLAIT_COMM_ALL_REDUCE, o->buffer.data(), o->buffer.data(), n, PLAIT_FP32);
            ASSERT_EQ(plait_comm_start(o->c, &op, 1, testing_exec(), &o->req), PLAIT_OK) << plait_error_text();
            open.push_back(std::move(o));
        }
    std::rotate(open.begin(), open.begin() + (rank * 7) % (int)open.size(), open.end());
    if (rank % 2)
        std::reverse(open.begin(), open.end());
    for (auto &o : open) {
        ASSERT_EQ(plait_request_wait(&o->req, testing_exec()), PLAIT_OK) << plait_error_text();
        ASSERT_EQ(o->req, nullptr);
        int p = plait_comm_size(o->c);
        for (int64_t j = 0; j < n; j++) // small whole numbers: exact in any order
            ASSERT_EQ(o->buffer[(size_t)j], (float)(p * (p + 1) / 2) * (float)(j % 97 + o->salt)) << j;
    }
}

// All ranks send to all, large both ways at once, in pieces: nobody may wait for a receive that comes later.
TEST_F(World, LargeMessagesCross)
{
    plait_comm *c = group("pairs", everybody(), false, 0, 4096);
    const int64_t n = 150001; // 37 pieces a message
    std::vector<std::vector<double>> out((size_t)size), in((size_t)size);
    std::vector<plait_comm_op> ops;
    for (int q = 0; q < size; q++) {
        if (q == rank)
            continue;
        out[(size_t)q].resize((size_t)n);
        in[(size_t)q].assign((size_t)n, -1.0);
        for (int64_t i = 0; i < n; i++)
            out[(size_t)q][(size_t)i] = number(rank, i, q);
        ops.push_back(plait_comm_make(PLAIT_COMM_SEND, out[(size_t)q].data(), nullptr, n, PLAIT_FP64));
        ops.back().peer = q;
        ops.push_back(plait_comm_make(PLAIT_COMM_RECV, nullptr, in[(size_t)q].data(), n, PLAIT_FP64));
        ops.back().peer = q;
    }
    plait_request *req;
    ASSERT_EQ(plait_comm_start(c, ops.data(), (int)ops.size(), testing_exec(), &req), PLAIT_OK);
    ASSERT_EQ(plait_request_wait(&req, testing_exec()), PLAIT_OK) << plait_error_text();
    for (int q = 0; q < size; q++)
        for (int64_t i = 0; i < n && q != rank; i++)
            ASSERT_EQ(in[(size_t)q][(size_t)i], number(q, i, rank)) << "from " << q << " at " << i;
}

// Messages to one peer arrive in the order in which they were started, whatever their sizes and the order of the waits.
TEST_F(World, MessagesKeepTheirOrder)
{
    plait_comm *c = group("ring", everybody(), false, 0, 4096);
    const int64_t sizes[] = {3, 5000, 0, 1, 20011, 1024, 7};
    const int kMessages = 7;
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    std::vector<std::vector<float>> out(kMessages), in(kMessages);
    plait_request *sent[kMessages], *received[kMessages];
    for (int i = 0; i < kMessages; i++) {
        out[(size_t)i].assign((size_t)sizes[i] + 1, (float)(100 * rank + i));
        in[(size_t)i].assign((size_t)sizes[i] + 1, -1.0f);
        plait_comm_op send = plait_comm_make(PLAIT_COMM_SEND, out[(size_t)i].data(), nullptr, sizes[i], PLAIT_FP32);
        plait_comm_op recv = plait_comm_make(PLAIT_COMM_RECV, nullptr, in[(size_t)i].data(), sizes[i], PLAIT_FP32);
        send.peer = next;
        recv.peer = previous;
        ASSERT_EQ(plait_comm_start(c, &recv, 1, testing_exec(), &received[i]), PLAIT_OK);
        ASSERT_EQ(plait_comm_start(c, &send, 1, testing_exec(), &sent[i]), PLAIT_OK);
    }
    for (int i = kMessages - 1; i >= 0; i--) {
        ASSERT_EQ(plait_request_wait(&received[i], testing_exec()), PLAIT_OK) << plait_error_text();
        ASSERT_EQ(plait_request_wait(&sent[i], testing_exec()), PLAIT_OK) << plait_error_text();
        for (int64_t j = 0; j < sizes[i]; j++)
            ASSERT_EQ(in[(size_t)i][(size_t)j], (float)(100 * previous + i)) << i << " at " << j;
        ASSERT_EQ(in[(size_t)i][(size_t)sizes[i]], -1.0f);
    }
}

TEST_F(World, NobodyLeavesABarrierEarly)
{
    plait_comm *groups[] = {group("window", everybody()), group("messages", everybody(), true),
                            group("nothing reserved", everybody(), false, 0)};
    for (plait_comm *c : groups)
        for (int late = 0; late < std::min(size, 3); late++) {
            // All clocks of one machine: the moment of the last arrival is what everybody must have passed.
            double arrival = 0.0;
            if (rank == late) {
                sleep_ms(20);
                arrival = now();
            }
            plait_comm_op op = plait_comm_make(PLAIT_COMM_BARRIER, nullptr, nullptr, 0, PLAIT_FP32);
            ASSERT_EQ(plait_comm_run(c, &op, testing_exec()), PLAIT_OK) << plait_error_text();
            double left = now();
            ASSERT_EQ(plait_comm_broadcast_bytes(c, &arrival, sizeof arrival, late), PLAIT_OK);
            ASSERT_GE(left, arrival) << plait_comm_name(c);
        }
}

TEST_F(World, AgreesOnTheLowestFailure)
{
    plait_comm *c = test_world.comm;
    EXPECT_EQ(plait_comm_agree(c, PLAIT_OK), PLAIT_OK);
    // Two ranks fail differently: all hear the lower one.
    plait_status mine = PLAIT_OK;
    if (rank >= size - 2)
        mine = rank == size - 2 ? plait_error_set(PLAIT_IO, "f.c", 1, "no file %d", rank)
                                : plait_error_set(PLAIT_USAGE, "f.c", 2, "bad key");
    EXPECT_EQ(plait_comm_agree(c, mine), PLAIT_IO);
    std::string want = "rank " + std::to_string(size - 2) + ": no file " + std::to_string(size - 2);
    EXPECT_EQ(plait_error_text(), want);
    EXPECT_EQ(plait_error_status(), PLAIT_IO);
    EXPECT_TRUE(plait_comm_agreed());
    plait_error_set(PLAIT_IO, "f.c", 1, "this rank alone");
    EXPECT_FALSE(plait_comm_agreed());
    // The same failure everywhere belongs to nobody.
    mine = plait_error_set(PLAIT_USAGE, "f.c", 1, "bad key");
    EXPECT_EQ(plait_comm_agree(c, mine), PLAIT_USAGE);
    EXPECT_STREQ(plait_error_text(), "bad key");
    EXPECT_TRUE(plait_comm_agreed());
    EXPECT_EQ(plait_comm_agree(c, PLAIT_OK), PLAIT_OK);
}

TEST_F(World, BroadcastsBytes)
{
    const size_t n = (3u << 20) + 17;
    std::vector<unsigned char> bytes(n);
    for (size_t i = 0; i < n && rank == size - 1; i++)
        bytes[i] = (unsigned char)(i * 31 >> 3);
    ASSERT_EQ(plait_comm_broadcast_bytes(test_world.comm, bytes.data(), n, size - 1), PLAIT_OK);
    for (size_t i = 0; i < n; i++)
        ASSERT_EQ(bytes[i], (unsigned char)(i * 31 >> 3)) << i;
    EXPECT_EQ(plait_comm_broadcast_bytes(test_world.comm, nullptr, 0, 0), PLAIT_OK);
    EXPECT_EQ(plait_comm_broadcast_bytes(test_world.comm, bytes.data(), 1, size), PLAIT_INTERNAL);
}

TEST_F(World, CountsTraffic)
{
    plait_comm *c = group("counted", everybody());
    int64_t n = 10 * size;
    std::vector<float> a((size_t)n), b((size_t)n);
    plait_comm_op op = plait_comm_make(PLAIT_COMM_ALL_REDUCE, a.data(), b.data(), n, PLAIT_FP32);
    op.wire = PLAIT_BF16; // sums come back as fp32
    ASSERT_EQ(plait_comm_run(c, &op, testing_exec()), PLAIT_OK);
    op = plait_comm_make(PLAIT_COMM_REDUCE_SCATTER, a.data(), b.data(), n, PLAIT_FP32);
    op.wire = PLAIT_BF16;
    ASSERT_EQ(plait_comm_run(c, &op, testing_exec()), PLAIT_OK);
    op = plait_comm_make(PLAIT_COMM_ALL_GATHER, a.data(), b.data(), n, PLAIT_FP32);
    ASSERT_EQ(plait_comm_run(c, &op, testing_exec()), PLAIT_OK);
    ASSERT_EQ(plait_comm_run(c, &op, testing_exec()), PLAIT_OK);
    op = plait_comm_make(PLAIT_COMM_BARRIER, nullptr, nullptr, 0, PLAIT_FP32);
    ASSERT_EQ(plait_comm_run(c, &op, testing_exec()), PLAIT_OK);

    plait_traffic t = plait_comm_traffic(c);
    EXPECT_EQ(t.calls[PLAIT_COMM_ALL_REDUCE], 1);
    EXPECT_EQ(t.bytes[PLAIT_COMM_ALL_REDUCE], 4 * n);
    EXPECT_EQ(t.bytes[PLAIT_COMM_REDUCE_SCATTER], 4 * n);
    EXPECT_EQ(t.calls[PLAIT_COMM_ALL_GATHER], 2);
    EXPECT_EQ(t.bytes[PLAIT_COMM_ALL_GATHER], 8 * n);
    EXPECT_EQ(t.calls[PLAIT_COMM_BARRIER], 1);
    EXPECT_EQ(t.bytes[PLAIT_COMM_BARRIER], 0);
    EXPECT_EQ(t.largest, (size_t)(4 * n));
    plait_comm_traffic_reset(c);
    t = plait_comm_traffic(c);
    EXPECT_EQ(t.calls[PLAIT_COMM_ALL_REDUCE], 0);
    EXPECT_EQ(t.largest, 0u);
}

// One rank comes late: the others say for whom they wait, and may go on waiting.
TEST_F(World, AWaitPastTheTimeOutNamesTheLateRank)
{
    for (bool p2p : {false, true}) {
        plait_comm *c = group("late", everybody(), p2p);
        ASSERT_EQ(plait_comm_agree(c, PLAIT_OK), PLAIT_OK);
        std::vector<float> x(100, 1.0f);
        plait_comm_op op = plait_comm_make(PLAIT_COMM_ALL_REDUCE, x.data(), x.data(), 100, PLAIT_FP32);
        plait_request *req = nullptr;
        if (rank == 1)
            sleep_ms(600);
        ASSERT_EQ(plait_comm_start(c, &op, 1, testing_exec(), &req), PLAIT_OK);
        if (rank != 1) {
            plait_comm_set_timeout(0.1);
            double start = now();
            plait_status st = plait_request_wait(&req, testing_exec());
            plait_comm_set_timeout(20.0);
            std::string text = plait_error_text();
            EXPECT_EQ(st, PLAIT_PEER);
            EXPECT_LT(now() - start, 5.0);
            for (const char *part : {"group late", "all_reduce of 400 bytes", "0.1 s", "rank 1"})
                EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
        }
        ASSERT_EQ(plait_request_wait(&req, testing_exec()), PLAIT_OK) << plait_error_text();
        EXPECT_EQ(x[99], (float)size);
    }
}

TEST_F(World, ReservationsMustBeTheSame)
{
    plait_comm *c = nullptr;
    plait_ledger ledger = {};
    std::vector<int> ranks = everybody();
    ASSERT_EQ(plait_comm_create(&test_world, "torn", ranks.data(), size, &c), PLAIT_OK);
    made.push_back(c);
    EXPECT_EQ(plait_comm_reserve(c, rank == 0 ? 64 : 128, 4096, PLAIT_TIER_HOST, &ledger), PLAIT_INTERNAL);
    EXPECT_STREQ(plait_error_text(), "group torn: ranks reserve for 64 to 128 bytes in chunks of 4096 to 4096");
    EXPECT_EQ(ledger.planned[PLAIT_TIER_HOST][PLAIT_MEM_COMM], 0u);
    float x = 1.0f;
    plait_comm_op op = plait_comm_make(PLAIT_COMM_ALL_REDUCE, &x, &x, 1, PLAIT_FP32);
    EXPECT_EQ(plait_comm_run(c, &op, testing_exec()), PLAIT_INTERNAL);
    EXPECT_NE(std::string(plait_error_text()).find("before staging memory was reserved"), std::string::npos);
}

// The groups of a run: sizes, ranks, names, and a sum over each that only its members can have made.
TEST_F(World, GroupsOfATopology)
{
    const int shapes[][3] = {{size, 1, 1},     {1, size, 1},     {1, 1, size},
                             {2, size / 2, 1}, {1, 2, size / 2}, {2, 2, size / 4}};
    for (auto [tp, pp, dp] : shapes) {
        if (tp * pp * dp != size)
            continue;
        plait_topology topo;
        plait_groups g, plan;
        ASSERT_EQ(plait_topology_init(&topo, size, rank, tp, pp, dp, tp % 2 ? 1 : 2, "tp-dp-pp"), PLAIT_OK);
        ASSERT_EQ(plait_groups_create(&test_world, &topo, &g), PLAIT_OK) << plait_error_text();
        ASSERT_EQ(plait_groups_create_plan(&topo, &plan), PLAIT_OK) << plait_error_text();
        struct {
            plait_comm *c, *planned;
            plait_group kind;
        } all[] = {
            {g.tensor, plan.tensor, PLAIT_GROUP_TENSOR},          {g.data, plan.data, PLAIT_GROUP_DATA},
            {g.pipe_act, plan.pipe_act, PLAIT_GROUP_PIPELINE},    {g.pipe_grad, plan.pipe_grad, PLAIT_GROUP_PIPELINE},
            {g.embedding, plan.embedding, PLAIT_GROUP_EMBEDDING}, {g.kv, plan.kv, PLAIT_GROUP_KV}};
        EXPECT_EQ(g.world, test_world.comm);
        for (auto &a : all) {
            std::vector<int> ranks((size_t)size);
            ranks.resize((size_t)plait_topology_group(&topo, a.kind, ranks.data()));
            plait_ledger ledger = {}, planned = {};
            ASSERT_EQ(plait_comm_reserve(a.c, 4096, 4096, PLAIT_TIER_HOST, &ledger), PLAIT_OK) << plait_error_text();
            ASSERT_EQ(plait_comm_reserve(a.planned, 4096, 4096, PLAIT_TIER_HOST, &planned), PLAIT_OK);
            ASSERT_EQ(ledger.planned[PLAIT_TIER_HOST][PLAIT_MEM_COMM],
                      planned.planned[PLAIT_TIER_HOST][PLAIT_MEM_COMM]);
            ASSERT_EQ(plait_comm_size(a.c), (int)ranks.size());
            ASSERT_EQ(ranks[(size_t)plait_comm_rank(a.c)], rank);
            ASSERT_EQ(plait_comm_size(a.planned), plait_comm_size(a.c));
            ASSERT_EQ(plait_comm_rank(a.planned), plait_comm_rank(a.c));
            ASSERT_STREQ(plait_comm_name(a.planned), plait_comm_name(a.c));
            double want = 0.0, have = (double)(1 << rank);
            for (int q : ranks)
                want += (double)(1 << q);
            plait_comm_op op = plait_comm_make(PLAIT_COMM_ALL_REDUCE, &have, &have, 1, PLAIT_FP64);
            ASSERT_EQ(plait_comm_run(a.c, &op, testing_exec()), PLAIT_OK) << plait_error_text();
            ASSERT_EQ(have, want) << plait_comm_name(a.c);
        }
        plait_groups_destroy(&g);
        plait_groups_destroy(&plan);
    }
}

} // namespace
