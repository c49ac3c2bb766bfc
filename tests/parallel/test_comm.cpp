// Collectives of a real world: every kind, types, uneven and empty parts, in place, accumulated, over the shared window
// and over messages, in one round and in many. What comes out has to be right to the bit, so also equal on all ranks
// and on both paths.
#include "comm_testing.h"
#include "mpi_world.h"
#include "parallel/comm_impl.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

namespace
{

enum Parts { EVEN, UNEVEN, MOSTLY_EMPTY };

struct Collective {
    const char *name;
    plait_comm_kind kind;
    plait_reduction reduction;
    plait_dtype dtype, wire, result;
    bool accumulate, in_place;
};

void PrintTo(const Collective &c, std::ostream *out)
{
    *out << c.name;
}

struct Route {
    const char *name;
    bool p2p;
    size_t chunk;
    plait_comm *comm;
};
Route routes[] = {
    {"window, one round", false, (size_t)1 << 20, nullptr},
    {"window, 4 KiB rounds", false, (size_t)4 << 10, nullptr},
    {"messages, one round", true, (size_t)1 << 20, nullptr},
    {"messages, 4 KiB rounds", true, (size_t)4 << 10, nullptr},
};

std::vector<int> everybody()
{
    std::vector<int> ranks((size_t)test_world.size);
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
}

class Collectives : public testing::TestWithParam<Collective>
{
  protected:
    static void SetUpTestSuite()
    {
        ASSERT_NE(testing_exec(), nullptr) << plait_error_text();
        plait_comm_set_exec(testing_exec());
        std::vector<int> ranks = everybody();
        for (Route &r : routes) {
            plait_ledger ledger = {};
            ASSERT_EQ(plait_comm_create(&test_world, r.name, ranks.data(), test_world.size, &r.comm), PLAIT_OK);
            if (r.p2p)
                plait_comm_use_p2p(r.comm);
            size_t bytes = plait_comm_staging_bytes(r.comm, (size_t)1 << 20, r.chunk);
            ASSERT_EQ(plait_comm_reserve(r.comm, (size_t)1 << 20, r.chunk, PLAIT_TIER_DEVICE, &ledger), PLAIT_OK)
                << plait_error_text();
            ASSERT_EQ(ledger.planned[PLAIT_TIER_DEVICE][PLAIT_MEM_COMM], bytes);
            ASSERT_EQ(ledger.high_water[PLAIT_TIER_DEVICE][PLAIT_MEM_COMM], bytes);
        }
    }
    static void TearDownTestSuite()
    {
        for (Route &r : routes) {
            plait_comm_destroy(r.comm);
            r.comm = nullptr;
        }
    }

    // Fills, runs, compares; the first wrong element is reported.
    void check(const Route &route, int64_t count, Parts parts)
    {
        const Collective &c = GetParam();
        const int size = test_world.size, rank = test_world.rank, root = size - 1;
        const bool split = c.kind == PLAIT_COMM_REDUCE_SCATTER || c.kind == PLAIT_COMM_ALL_GATHER;
        SCOPED_TRACE(testing::Message() << route.name << ", " << count << " elements, parts " << parts);
        if (parts == EVEN && split)
            count *= size;
        std::vector<int64_t> offsets((size_t)size + 1, 0);
        for (int q = 1; q <= size; q++) {
            int64_t even = count * q / size, uneven = count * q * q / size / size;
            offsets[(size_t)q] = parts == EVEN     ? even
                                 : parts == UNEVEN ? uneven
                                 : q == size       ? count
                                 : q > 1           ? count / 2
                                                   : 0;
        }
        int64_t own_begin = offsets[(size_t)rank], own = offsets[(size_t)rank + 1] - own_begin;
        int64_t in_first = c.kind == PLAIT_COMM_ALL_GATHER ? own_begin : 0;
        int64_t in_count = c.kind == PLAIT_COMM_ALL_GATHER ? own : count;
        int64_t out_first = c.kind == PLAIT_COMM_REDUCE_SCATTER ? own_begin : 0;
        int64_t out_count = c.kind == PLAIT_COMM_REDUCE_SCATTER ? own : count;

        // One element more on each side of the output shows who writes too far.
        std::vector<double> in_memory((size_t)count + 2), out_memory((size_t)count + 2);
        void *in = in_memory.data(), *out = plait_at(out_memory.data(), c.result, 1);
        if (c.in_place) {
            in = c.kind == PLAIT_COMM_ALL_GATHER ? plait_at(out, c.result, own_begin) : out;
            if (c.kind == PLAIT_COMM_REDUCE_SCATTER)
                in = plait_at(out_memory.data(), c.result, 1), out = plait_at(in, c.result, own_begin);
        }
        const double guard = 77.0;
        for (int64_t i = 0; i < count + 2 && !c.in_place; i++)
            store(c.result, out_memory.data(), i, guard);
        for (int64_t i = 0; i < out_count && c.accumulate; i++)
            store(c.result, out, i, number(size, out_first + i, 3));
        for (int64_t i = 0; i < in_count; i++)
            store(c.dtype, in, i, number(rank, in_first + i, (int)count));

        plait_comm_op op = plait_comm_make(c.kind, in, out, count, c.dtype);
        op.reduction = c.reduction;
        op.wire = c.wire;
        op.result = c.result;
        op.accumulate = c.accumulate;
        op.peer = c.kind == PLAIT_COMM_REDUCE || c.kind == PLAIT_COMM_BROADCAST ? root : 0;
        op.offsets = split && parts != EVEN ? offsets.data() : nullptr;
        if (c.kind == PLAIT_COMM_REDUCE && rank != root)
            op.out = nullptr;
        if (c.kind == PLAIT_COMM_BROADCAST && rank != root)
            op.in = nullptr;
        ASSERT_EQ(plait_comm_run(route.comm, &op, testing_exec()), PLAIT_OK) << plait_error_text();

        std::vector<double> given((size_t)size);
        for (int64_t i = 0; i < (op.out ? out_count : 0); i++) {
            int64_t at = out_first + i;
            double want;
            if (c.kind == PLAIT_COMM_ALL_GATHER || c.kind == PLAIT_COMM_BROADCAST) {
                int from = root;
                for (int q = 0; q < size && c.kind == PLAIT_COMM_ALL_GATHER; q++)
                    if (at >= offsets[(size_t)q] && at < offsets[(size_t)q + 1])
                        from = q;
                want = rounded(c.result, rounded(c.wire, rounded(c.dtype, number(from, at, (int)count))));
            } else {
                double exact = 0.0;
                for (int q = 0; q < size; q++) {
                    given[(size_t)q] = rounded(c.dtype, number(q, at, (int)count));
                    exact += number(q, at, (int)count);
                }
                want = reduced(op, given);
                if (c.reduction == PLAIT_SUM) { // and the reference itself is near the sum in double
                    ASSERT_NEAR(want, exact, size * 140.0 / 64);
                }
                if (c.accumulate)
                    want = rounded(c.result, rounded(c.result, number(size, at, 3)) + want);
            }
            ASSERT_EQ(load(c.result, out, i), want) << "element " << at;
        }
        if (!c.in_place) {
            ASSERT_EQ(load(c.result, out, -1), guard) << "written before the output";
            ASSERT_EQ(load(c.result, out, op.out ? out_count : 0), guard) << "written behind the output";
        }
    }
};

TEST_P(Collectives, GiveTheSameBitsOnEveryRoute)
{
    const bool split = GetParam().kind == PLAIT_COMM_REDUCE_SCATTER || GetParam().kind == PLAIT_COMM_ALL_GATHER;
    for (const Route &route : routes) {
        if (test_world.size == 1 && &route != routes) // all are the same copy
            break;
        for (int64_t count : {0, 1, 5, 257, 100003}) {
            // In 4 KiB the longest would take thousands of rounds, which shows no more than a dozen.
            if (route.chunk < 65536 && count > 1000)
                count = route.p2p ? 1009 : 5003;
            else if (count > 1000 && test_world.size > 4)
                count = 20011;
            for (Parts parts : {EVEN, UNEVEN, MOSTLY_EMPTY})
                if (parts == EVEN || split) {
                    ASSERT_NO_FATAL_FAILURE(check(route, count, parts));
                }
        }
    }
}

const plait_comm_kind AR = PLAIT_COMM_ALL_REDUCE, RS = PLAIT_COMM_REDUCE_SCATTER, AG = PLAIT_COMM_ALL_GATHER,
                      RD = PLAIT_COMM_REDUCE, BC = PLAIT_COMM_BROADCAST;
const plait_dtype F32 = PLAIT_FP32, B16 = PLAIT_BF16, F16 = PLAIT_FP16, F64 = PLAIT_FP64, I32 = PLAIT_INT32,
                  I64 = PLAIT_INT64;

const Collective kCollectives[] = {
    {"all_reduce_fp32", AR, PLAIT_SUM, F32, F32, F32, false, false},
    {"all_reduce_fp32_in_place", AR, PLAIT_SUM, F32, F32, F32, false, true},
    {"all_reduce_fp32_accumulated", AR, PLAIT_SUM, F32, F32, F32, true, false},
    {"all_reduce_bf16", AR, PLAIT_SUM, B16, B16, B16, false, true},
    {"all_reduce_bf16_accumulated", AR, PLAIT_SUM, B16, B16, B16, true, false},
    {"all_reduce_fp16", AR, PLAIT_SUM, F16, F16, F16, false, false},
    {"all_reduce_fp64", AR, PLAIT_SUM, F64, F64, F64, false, true},
    {"all_reduce_fp32_over_bf16", AR, PLAIT_SUM, F32, B16, F32, false, true},
    {"all_reduce_fp32_into_bf16", AR, PLAIT_SUM, F32, F32, B16, false, false},
    {"all_reduce_bf16_into_fp32", AR, PLAIT_SUM, B16, B16, F32, true, false},
    {"all_reduce_fp64_over_fp32_into_fp16", AR, PLAIT_SUM, F64, F32, F16, false, false},
    {"all_reduce_fp32_over_fp64", AR, PLAIT_SUM, F32, F64, F32, false, true},
    {"all_reduce_int64", AR, PLAIT_SUM, I64, I64, I64, false, true},
    {"all_reduce_int64_accumulated", AR, PLAIT_SUM, I64, I64, I64, true, false},
    {"reduce_scatter_int64_accumulated", RS, PLAIT_SUM, I64, I64, I64, true, false},
    {"reduce_int64", RD, PLAIT_SUM, I64, I64, I64, false, false},
    {"maximum_fp32", AR, PLAIT_MAX, F32, F32, F32, false, true},
    {"maximum_fp64", AR, PLAIT_MAX, F64, F64, F64, false, false},
    {"maximum_int32", AR, PLAIT_MAX, I32, I32, I32, false, true},
    {"maximum_bf16", AR, PLAIT_MAX, B16, B16, B16, false, false},
    {"reduce_scatter_fp32", RS, PLAIT_SUM, F32, F32, F32, false, false},
    {"reduce_scatter_fp32_in_place", RS, PLAIT_SUM, F32, F32, F32, false, true},
    {"reduce_scatter_fp32_accumulated", RS, PLAIT_SUM, F32, F32, F32, true, false},
    {"reduce_scatter_bf16", RS, PLAIT_SUM, B16, B16, B16, false, true},
    {"reduce_scatter_fp16_accumulated", RS, PLAIT_SUM, F16, F16, F16, true, false},
    {"reduce_scatter_fp64", RS, PLAIT_SUM, F64, F64, F64, false, false},
    {"reduce_scatter_fp32_over_bf16_accumulated", RS, PLAIT_SUM, F32, B16, F32, true, false},
    {"reduce_scatter_bf16_over_fp32", RS, PLAIT_SUM, B16, F32, F32, false, false},
    {"reduce_scatter_maximum_int32", RS, PLAIT_MAX, I32, I32, I32, false, false},
    {"all_gather_fp32", AG, PLAIT_SUM, F32, F32, F32, false, false},
    {"all_gather_fp32_in_place", AG, PLAIT_SUM, F32, F32, F32, false, true},
    {"all_gather_bf16", AG, PLAIT_SUM, B16, B16, B16, false, true},
    {"all_gather_fp16", AG, PLAIT_SUM, F16, F16, F16, false, false},
    {"all_gather_fp64", AG, PLAIT_SUM, F64, F64, F64, false, false},
    {"all_gather_int32", AG, PLAIT_SUM, I32, I32, I32, false, false},
    {"all_gather_fp32_over_bf16", AG, PLAIT_SUM, F32, B16, F32, false, true},
    {"all_gather_fp32_into_bf16", AG, PLAIT_SUM, F32, B16, B16, false, false},
    {"all_gather_bf16_into_fp64", AG, PLAIT_SUM, B16, F32, F64, false, false},
    {"reduce_fp32", RD, PLAIT_SUM, F32, F32, F32, false, false},
    {"reduce_fp32_in_place", RD, PLAIT_SUM, F32, F32, F32, false, true},
    {"reduce_bf16", RD, PLAIT_SUM, B16, B16, B16, false, false},
    {"reduce_fp16_into_fp32", RD, PLAIT_SUM, F16, F16, F32, false, false},
    {"reduce_fp64", RD, PLAIT_SUM, F64, F64, F64, false, false},
    {"broadcast_fp32", BC, PLAIT_SUM, F32, F32, F32, false, false},
    {"broadcast_fp32_in_place", BC, PLAIT_SUM, F32, F32, F32, false, true},
    {"broadcast_bf16", BC, PLAIT_SUM, B16, B16, B16, false, true},
    {"broadcast_fp16", BC, PLAIT_SUM, F16, F16, F16, false, false},
    {"broadcast_fp64", BC, PLAIT_SUM, F64, F64, F64, false, false},
    {"broadcast_int32", BC, PLAIT_SUM, I32, I32, I32, false, false},
    {"broadcast_fp32_over_bf16", BC, PLAIT_SUM, F32, B16, F32, false, true},
};
INSTANTIATE_TEST_SUITE_P(, Collectives, testing::ValuesIn(kCollectives),
                         [](const auto &i) { return std::string(i.param.name); });

} // namespace
