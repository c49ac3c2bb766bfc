// Operations on the memory of GPUs, over NCCL and staged: kinds, types, uneven and empty parts, in place, accumulated;
// in the order of the streams, without a wait of the host between.
#include "comm_testing.h"
#include "gpus.h"
#include "kernels/backend.h"
#include "mpi_world.h"
#include "parallel/comm_impl.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

namespace
{

constexpr int64_t kCount = 5000;

void ok(plait_status st)
{
    ASSERT_EQ(st, PLAIT_OK) << plait_error_text() << "\n" << plait_error_trace_text();
}

// Tables, backend and an exec of this rank's device.
struct Device {
    plait_exec ex = {}, copies = {};
    plait_ledger ledger = {};
    std::vector<char> bounce = std::vector<char>(PLAIT_GROUPS_BOUNCE);

    Device()
    {
        plait_config cfg = {};
        const char *cuda = "device.backend=cuda";
        ok(plait_config_load(&cfg, nullptr, &cuda, 1));
        const plait_backend *backend;
        ok(plait_device_find(&cfg, &ex.k, &backend));
        ok(backend->open(test_world.local_rank, test_world.local_size));
        ex.backend = backend;
        ex.threads = 1;
        copies = ex;
        ok(backend->stream_create(&ex.stream));
        ok(backend->stream_create(&copies.stream));
        plait_config_deinit(&cfg);
    }
    ~Device()
    {
        ex.backend->stream_destroy(ex.stream);
        ex.backend->stream_destroy(copies.stream);
    }
};

// n elements on the device.
class Tensor
{
  public:
    Tensor(Device &d, plait_dtype dtype, int64_t n) : d_(d), dtype_(dtype), bytes_((size_t)n * plait_dtype_size(dtype))
    {
        p = d.ex.backend->tensors->alloc(d.ex.backend->tensors->self, bytes_ + 64);
        EXPECT_NE(p, nullptr);
    }
    ~Tensor() { d_.ex.backend->tensors->free(d_.ex.backend->tensors->self, p, bytes_ + 64); }
    Tensor(const Tensor &) = delete;

    void set(const std::vector<double> &values)
    {
        std::vector<char> host(bytes_);
        for (size_t i = 0; i < values.size(); i++)
            store(dtype_, host.data(), (int64_t)i, values[i]);
        ok(plait_upload(&d_.ex, p, host.data(), bytes_));
        ok(plait_finish(&d_.ex));
    }
    std::vector<double> get(int64_t n)
    {
        std::vector<char> host(bytes_);
        ok(plait_download(&d_.ex, host.data(), p, bytes_));
        ok(plait_comm_finish(test_world.comm, &d_.ex));
        std::vector<double> values;
        for (int64_t i = 0; i < n; i++)
            values.push_back(load(dtype_, host.data(), i));
        return values;
    }
    void *p = nullptr;

  private:
    Device &d_;
    plait_dtype dtype_;
    size_t bytes_;
};

struct Case {
    const char *name;
    plait_comm_kind kind;
    plait_dtype dtype, wire, result;
    bool accumulate, uneven;
};

const Case kCases[] = {
    {"AllReduce", PLAIT_COMM_ALL_REDUCE, PLAIT_FP32, PLAIT_FP32, PLAIT_FP32, false, false},
    {"AllReduceOnBf16", PLAIT_COMM_ALL_REDUCE, PLAIT_FP32, PLAIT_BF16, PLAIT_FP32, false, false},
    {"AllReduceAdds", PLAIT_COMM_ALL_REDUCE, PLAIT_FP32, PLAIT_FP32, PLAIT_FP32, true, false},
    {"AllReduceIntoBf16", PLAIT_COMM_ALL_REDUCE, PLAIT_FP32, PLAIT_FP32, PLAIT_BF16, false, false},
    {"Scatter", PLAIT_COMM_REDUCE_SCATTER, PLAIT_FP32, PLAIT_FP32, PLAIT_FP32, false, false},
    {"ScatterUneven", PLAIT_COMM_REDUCE_SCATTER, PLAIT_FP32, PLAIT_FP32, PLAIT_FP32, false, true},
    {"ScatterUnevenOnFp16Adds", PLAIT_COMM_REDUCE_SCATTER, PLAIT_FP32, PLAIT_FP16, PLAIT_FP32, true, true},
    {"Gather", PLAIT_COMM_ALL_GATHER, PLAIT_BF16, PLAIT_BF16, PLAIT_BF16, false, false},
    {"GatherUneven", PLAIT_COMM_ALL_GATHER, PLAIT_FP32, PLAIT_FP32, PLAIT_FP32, false, true},
    {"Reduce", PLAIT_COMM_REDUCE, PLAIT_FP32, PLAIT_FP32, PLAIT_FP32, false, false},
    {"Broadcast", PLAIT_COMM_BROADCAST, PLAIT_FP16, PLAIT_FP16, PLAIT_FP16, false, false},
};

class CommDevice : public testing::TestWithParam<std::tuple<plait_comm_choice, Case>>
{
};

// Rank 1 (if any) has nothing, the last has the most.
std::vector<int64_t> offsets_of(int size, bool uneven)
{
    std::vector<int64_t> at(1, 0);
    for (int q = 0; q < size; q++) {
        const int64_t even = kCount * (q + 1) / size;
        at.push_back(!uneven || q == size - 1 ? (q == size - 1 ? kCount : even) : q == 1 ? at.back() : at.back() + 7);
    }
    return at;
}

std::vector<double> given(int rank, plait_dtype dtype, int64_t n)
{
    std::vector<double> v;
    for (int64_t i = 0; i < n; i++)
        v.push_back(rounded(dtype, number(rank, i, 3)));
    return v;
}

TEST_P(CommDevice, IsWhatTheRanksGave)
{
    const plait_comm_choice carrier = std::get<0>(GetParam());
    const Case &c = std::get<1>(GetParam());
    if (!gpus_take(carrier))
        GTEST_SKIP();
    ok(plait_comm_agree(test_world.comm, PLAIT_OK));
    plait_world world;
    ok(plait_world_split(&test_world, test_world.size, &world));
    const int size = world.size, rank = world.rank;
    {
        plait_topology topo;
        plait_config cfg = {};
        ok(plait_config_load(&cfg, nullptr, nullptr, 0));
        ok(plait_config_resolve(&cfg, size));
        ok(plait_topology_of(&cfg, size, rank, &topo));
        Device d;
        plait_groups groups;
        plait_comm_set_exec(testing_exec());
        ok(plait_groups_create(&world, &topo, &groups));
        {
            Tensor few(d, PLAIT_FP32, 64), in(d, c.dtype, kCount), out(d, c.result, kCount);
            ok(plait_groups_attach(&groups, carrier, &d.copies, d.bounce.data(), few.p));
            plait_comm *comm = groups.data;
            const std::vector<int64_t> offsets = offsets_of(size, c.uneven);
            plait_comm_op op = plait_comm_make(c.kind, in.p, out.p, kCount, c.dtype);
            op.wire = c.wire;
            op.result = c.result;
            op.accumulate = c.accumulate;
            op.peer = c.kind == PLAIT_COMM_REDUCE || c.kind == PLAIT_COMM_BROADCAST ? size - 1 : 0;
            const bool parts = c.kind == PLAIT_COMM_REDUCE_SCATTER || c.kind == PLAIT_COMM_ALL_GATHER;
            op.offsets = parts ? offsets.data() : nullptr;
            const int64_t own = offsets[(size_t)rank], own_end = offsets[(size_t)rank + 1];
            ok(plait_comm_reserve(comm, (size_t)kCount * 4, 4096, PLAIT_TIER_HOST, &d.ledger));
            ok(plait_comm_reserve_device(comm, plait_comm_converted_bytes(comm, &op), &d.ledger));

            std::vector<double> mine = given(rank, c.dtype, kCount), before(kCount, 0.5);
            if (c.kind == PLAIT_COMM_ALL_GATHER)
                mine.assign(mine.begin() + own, mine.begin() + own_end);
            in.set(mine);
            out.set(before);
            plait_request *req = nullptr;
            ok(plait_comm_start(comm, &op, 1, &d.ex, &req));
            ok(plait_request_wait(&req, &d.ex));
            const std::vector<double> got = out.get(kCount);

            const bool scatter = c.kind == PLAIT_COMM_REDUCE_SCATTER;
            const bool mute = c.kind == PLAIT_COMM_REDUCE && rank != op.peer;
            for (int64_t i = 0; i < kCount && !mute; i++) {
                if (scatter && (i < own || i >= own_end))
                    continue;
                std::vector<double> all;
                double size_of_sum = 0;
                for (int q = 0; q < size; q++) {
                    all.push_back(rounded(c.dtype, number(q, i, 3)));
                    size_of_sum += std::fabs(all.back());
                }
                double want, bound = 0;
                if (c.kind == PLAIT_COMM_BROADCAST) {
                    want = all[(size_t)op.peer];
                } else if (c.kind == PLAIT_COMM_ALL_GATHER) {
                    int q = 0;
                    while (i >= offsets[(size_t)q + 1])
                        q++;
                    want = all[(size_t)q];
                } else {
                    want = reduced(op, all) + (c.accumulate ? 0.5 : 0);
                    /* NCCL rounds every sum to what travels, in an order of its own. */
                    const double unit = c.wire == PLAIT_BF16 ? 0x1p-8 : c.wire == PLAIT_FP16 ? 0x1p-11 : 0x1p-23;
                    const double last = c.result == PLAIT_BF16 ? 0x1p-8 : 0;
                    if (carrier == PLAIT_COMM_NCCL)
                        bound = (unit * size + last) * size_of_sum;
                    want = carrier == PLAIT_COMM_NCCL ? want : rounded(c.result, want);
                }
                ASSERT_NEAR(got[(size_t)(scatter ? i - own : i)], want, bound) << c.name << " at " << i;
            }
        }
        plait_groups_destroy(&groups);
        plait_config_deinit(&cfg);
    }
    plait_world_close(&world);
}

INSTANTIATE_TEST_SUITE_P(
    All, CommDevice, testing::Combine(testing::Values(PLAIT_COMM_NCCL, PLAIT_COMM_STAGED), testing::ValuesIn(kCases)),
    [](const auto &i) {
        return std::string(std::get<0>(i.param) == PLAIT_COMM_NCCL ? "Nccl" : "Staged") + std::get<1>(i.param).name;
    });

} // namespace
