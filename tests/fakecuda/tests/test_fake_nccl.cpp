// The emulated NCCL under mpiexec: what operations compute, their order in streams, and how communicators begin and
// end. What ends a job with a sentence stands in nccl_failures.cpp.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ostream>
#include <string>

#include "tests/fakecuda/settings.h"
#include "tests/fakecuda/tests/device_array.h"
#include "tests/fakecuda/tests/nccl_world.h"

namespace
{

World *world;

// All ranks in one communicator, in the order of the world.
class FakeNccl : public testing::Test
{
  protected:
    void SetUp() override
    {
        ASSERT_EQ(ncclCommInitRank(&c_, world->size, shared_id(), world->rank), ncclSuccess)
            << ncclGetLastError(nullptr);
        cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    }
    void TearDown() override
    {
        cudaDeviceSynchronize();
        cudaStreamDestroy(stream_);
        if (c_)
            EXPECT_EQ(ncclCommDestroy(c_), ncclSuccess);
    }
    void abort()
    {
        EXPECT_EQ(ncclCommAbort(c_), ncclSuccess);
        c_ = nullptr;
    }

    // Asks long enough for the device to begin what it can.
    void expect_stuck()
    {
        for (int i = 0; i < 50; i++) {
            ASSERT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
            usleep(1000);
        }
    }

    ncclComm_t c_ = nullptr;
    cudaStream_t stream_ = nullptr;
};

// ---- sums ----

template <typename T> struct Wire;
template <> struct Wire<int32_t> {
    static constexpr ncclDataType_t type = ncclInt32;
};
template <> struct Wire<int64_t> {
    static constexpr ncclDataType_t type = ncclInt64;
};
template <> struct Wire<uint8_t> {
    static constexpr ncclDataType_t type = ncclUint8;
};
template <> struct Wire<__half> {
    static constexpr ncclDataType_t type = ncclFloat16;
};
template <> struct Wire<__nv_bfloat16> {
    static constexpr ncclDataType_t type = ncclBfloat16;
};
template <> struct Wire<float> {
    static constexpr ncclDataType_t type = ncclFloat32;
};
template <> struct Wire<double> {
    static constexpr ncclDataType_t type = ncclFloat64;
};

template <typename T> double value_of(T x)
{
    return static_cast<double>(x);
}
template <> double value_of(__half x)
{
    return __half2float(x);
}
template <> double value_of(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
template <typename T> T rounded(double x)
{
    return static_cast<T>(x);
}
template <> __half rounded(double x)
{
    return __float2half_rn(static_cast<float>(x));
}
template <> __nv_bfloat16 rounded(double x)
{
    return __float2bfloat16_rn(static_cast<float>(x));
}

// What rank `rank` has: fractions for floating-point types, so that sums round.
template <typename T> std::vector<T> numbers_of(int rank, size_t count)
{
    std::vector<T> v(count);
    for (size_t i = 0; i < count; i++) {
        const double whole = static_cast<double>((i * 7 + static_cast<size_t>(rank) * 5) % 11);
        v[i] = rounded<T>(std::is_integral<T>::value ? whole : whole / 7 - 0.6);
    }
    return v;
}

// Rank after rank, rounded to T each time.
template <typename T> std::vector<T> combined(size_t count, ncclRedOp_t op)
{
    std::vector<T> all = numbers_of<T>(0, count);
    for (int r = 1; r < world->size; r++) {
        const std::vector<T> next = numbers_of<T>(r, count);
        for (size_t i = 0; i < count; i++) {
            const double a = value_of(all[i]), b = value_of(next[i]);
            all[i] = rounded<T>(op == ncclSum    ? a + b
                                : op == ncclProd ? a * b
                                : op == ncclMax  ? std::max(a, b)
                                                 : std::min(a, b));
        }
    }
    return all;
}

template <typename T> class FakeNcclSum : public FakeNccl
{
  protected:
    void expect(const std::vector<T> &got, const std::vector<T> &want, const std::string &what)
    {
        ASSERT_EQ(got.size(), want.size());
        for (size_t i = 0; i < got.size(); i++)
            ASSERT_EQ(value_of(got[i]), value_of(want[i])) << what << ", element " << i;
    }
};

typedef testing::Types<int32_t, int64_t, uint8_t, __half, __nv_bfloat16, float, double> WireTypes;
TYPED_TEST_SUITE(FakeNcclSum, WireTypes);

const ncclRedOp_t kOps[] = {ncclSum, ncclProd, ncclMax, ncclMin};
const size_t kCount = 37;

TYPED_TEST(FakeNcclSum, AllReduce)
{
    const DeviceArray<TypeParam> in(numbers_of<TypeParam>(world->rank, kCount)), out(kCount);
    for (ncclRedOp_t op : kOps) {
        ASSERT_EQ(ncclAllReduce(in.data(), out.data(), kCount, Wire<TypeParam>::type, op, this->c_, this->stream_),
                  ncclSuccess);
        this->expect(out.values(), combined<TypeParam>(kCount, op), "operation " + std::to_string(op));
    }
}

TYPED_TEST(FakeNcclSum, AllReduceInPlace)
{
    const DeviceArray<TypeParam> x(numbers_of<TypeParam>(world->rank, kCount));
    ASSERT_EQ(ncclAllReduce(x.data(), x.data(), kCount, Wire<TypeParam>::type, ncclSum, this->c_, this->stream_),
              ncclSuccess);
    this->expect(x.values(), combined<TypeParam>(kCount, ncclSum), "in place");
}

TYPED_TEST(FakeNcclSum, ReduceToEachRoot)
{
    const DeviceArray<TypeParam> in(numbers_of<TypeParam>(world->rank, kCount));
    for (int root = 0; root < world->size; root++) {
        const DeviceArray<TypeParam> out(numbers_of<TypeParam>(99, kCount));
        ASSERT_EQ(ncclReduce(in.data(), world->rank == root ? out.data() : nullptr, kCount, Wire<TypeParam>::type,
                             ncclSum, root, this->c_, this->stream_),
                  ncclSuccess);
        this->expect(out.values(),
                     world->rank == root ? combined<TypeParam>(kCount, ncclSum) : numbers_of<TypeParam>(99, kCount),
                     "root " + std::to_string(root));
    }
}

// One block of the sums for each rank.
TYPED_TEST(FakeNcclSum, ReduceScatter)
{
    const size_t ranks = static_cast<size_t>(world->size), mine = static_cast<size_t>(world->rank) * kCount;
    const DeviceArray<TypeParam> in(numbers_of<TypeParam>(world->rank, kCount * ranks)), out(kCount);
    ASSERT_EQ(ncclReduceScatter(in.data(), out.data(), kCount, Wire<TypeParam>::type, ncclSum, this->c_, this->stream_),
              ncclSuccess);
    const auto all = combined<TypeParam>(kCount * ranks, ncclSum);
    const std::vector<TypeParam> want(all.begin() + static_cast<long>(mine),
                                      all.begin() + static_cast<long>(mine + kCount));
    this->expect(out.values(), want, "apart");
    ASSERT_EQ(
        ncclReduceScatter(in.data(), in.data() + mine, kCount, Wire<TypeParam>::type, ncclSum, this->c_, this->stream_),
        ncclSuccess);
    auto kept = numbers_of<TypeParam>(world->rank, kCount * ranks);
    std::copy(want.begin(), want.end(), kept.begin() + static_cast<long>(mine));
    this->expect(in.values(), kept, "in place");
}

TYPED_TEST(FakeNcclSum, AllGather)
{
    const size_t ranks = static_cast<size_t>(world->size), mine = static_cast<size_t>(world->rank) * kCount;
    const std::vector<TypeParam> x = numbers_of<TypeParam>(world->rank, kCount);
    std::vector<TypeParam> want, placed(kCount * ranks);
    for (int r = 0; r < world->size; r++)
        for (TypeParam v : numbers_of<TypeParam>(r, kCount))
            want.push_back(v);
    std::copy(x.begin(), x.end(), placed.begin() + static_cast<long>(mine));
    const DeviceArray<TypeParam> in(x), out(kCount * ranks), both(placed);
    ASSERT_EQ(ncclAllGather(in.data(), out.data(), kCount, Wire<TypeParam>::type, this->c_, this->stream_),
              ncclSuccess);
    this->expect(out.values(), want, "apart");
    ASSERT_EQ(ncclAllGather(both.data() + mine, both.data(), kCount, Wire<TypeParam>::type, this->c_, this->stream_),
              ncclSuccess);
    this->expect(both.values(), want, "in place");
}

TYPED_TEST(FakeNcclSum, BroadcastFromEachRoot)
{
    for (int root = 0; root < world->size; root++) {
        const DeviceArray<TypeParam> x(numbers_of<TypeParam>(world->rank, kCount));
        ASSERT_EQ(ncclBroadcast(x.data(), x.data(), kCount, Wire<TypeParam>::type, root, this->c_, this->stream_),
                  ncclSuccess);
        this->expect(x.values(), numbers_of<TypeParam>(root, kCount), "root " + std::to_string(root));
    }
}

TEST_F(FakeNccl, SumsOf16BitsAreRoundedAfterEachAddition)
{
    // 256 + 1 is 256 in bf16; added first, the small ones would count.
    const DeviceArray<__nv_bfloat16> x(std::vector<__nv_bfloat16>{rounded<__nv_bfloat16>(world->rank == 0 ? 256 : 1)});
    ASSERT_EQ(ncclAllReduce(x.data(), x.data(), 1, ncclBfloat16, ncclSum, c_, stream_), ncclSuccess);
    EXPECT_EQ(value_of(x.values()[0]), 256);
}

TEST_F(FakeNccl, IntegersWrap)
{
    const DeviceArray<int32_t> x(std::vector<int32_t>{INT32_MAX});
    ASSERT_EQ(ncclAllReduce(x.data(), x.data(), 1, ncclInt32, ncclSum, c_, stream_), ncclSuccess);
    EXPECT_EQ(x.values()[0],
              static_cast<int32_t>(static_cast<uint32_t>(INT32_MAX) * static_cast<uint32_t>(world->size)));
}

// ---- messages ----

TEST_F(FakeNccl, RingOfMessages)
{
    const int n = world->size, next = (world->rank + 1) % n, before = (world->rank + n - 1) % n;
    const DeviceArray<float> in(numbers_of<float>(world->rank, kCount)), out(kCount);
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    ASSERT_EQ(ncclSend(in.data(), kCount, ncclFloat32, next, c_, stream_), ncclSuccess);
    ASSERT_EQ(ncclRecv(out.data(), kCount, ncclFloat32, before, c_, stream_), ncclSuccess);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    EXPECT_EQ(out.values(), numbers_of<float>(before, kCount));
}

// Two sends in one group, two groups of one receive: in order.
TEST_F(FakeNccl, MessagesBetweenTwoRanksStayInOrder)
{
    if (world->size < 2)
        GTEST_SKIP();
    const DeviceArray<float> a(numbers_of<float>(1, kCount)), b(numbers_of<float>(2, kCount));
    if (world->rank == 0) {
        ncclGroupStart();
        ncclSend(a.data(), kCount, ncclFloat32, 1, c_, stream_);
        ncclSend(b.data(), kCount, ncclFloat32, 1, c_, stream_);
        ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
        cudaDeviceSynchronize();
    } else if (world->rank == 1) {
        const DeviceArray<float> first(kCount), second(kCount);
        ASSERT_EQ(ncclRecv(first.data(), kCount, ncclFloat32, 0, c_, stream_), ncclSuccess);
        ASSERT_EQ(ncclRecv(second.data(), kCount, ncclFloat32, 0, c_, stream_), ncclSuccess);
        EXPECT_EQ(first.values(), numbers_of<float>(1, kCount));
        EXPECT_EQ(second.values(), numbers_of<float>(2, kCount));
    }
}

TEST_F(FakeNccl, GroupOfAllKinds)
{
    const DeviceArray<float> sum(numbers_of<float>(world->rank, kCount)), root(numbers_of<float>(world->rank, kCount)),
        sent(numbers_of<float>(world->rank, kCount)), got(kCount);
    ncclGroupStart();
    ncclGroupStart();
    ASSERT_EQ(ncclAllReduce(sum.data(), sum.data(), kCount, ncclFloat32, ncclSum, c_, stream_), ncclSuccess);
    ASSERT_EQ(ncclSend(sent.data(), kCount, ncclFloat32, world->size - 1 - world->rank, c_, stream_), ncclSuccess);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    ASSERT_EQ(ncclRecv(got.data(), kCount, ncclFloat32, world->size - 1 - world->rank, c_, stream_), ncclSuccess);
    ASSERT_EQ(ncclBroadcast(root.data(), root.data(), kCount, ncclFloat32, 0, c_, stream_), ncclSuccess);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    EXPECT_EQ(sum.values(), combined<float>(kCount, ncclSum));
    EXPECT_EQ(got.values(), numbers_of<float>(world->size - 1 - world->rank, kCount));
    EXPECT_EQ(root.values(), numbers_of<float>(0, kCount));
}

// ---- streams ----

// Ranks launch in opposite orders on two streams: each communicator goes on by itself.
TEST_F(FakeNccl, CommunicatorsDoNotWaitForEachOther)
{
    ncclComm_t other;
    cudaStream_t second;
    ASSERT_EQ(ncclCommSplit(c_, 0, world->rank, &other, nullptr), ncclSuccess);
    cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
    const DeviceArray<float> a(numbers_of<float>(world->rank, kCount)), b(numbers_of<float>(world->rank, kCount));
    if (world->rank % 2 == 0) {
        ncclAllReduce(a.data(), a.data(), kCount, ncclFloat32, ncclSum, c_, stream_);
        ncclAllReduce(b.data(), b.data(), kCount, ncclFloat32, ncclMax, other, second);
    } else {
        ncclAllReduce(b.data(), b.data(), kCount, ncclFloat32, ncclMax, other, second);
        ncclAllReduce(a.data(), a.data(), kCount, ncclFloat32, ncclSum, c_, stream_);
    }
    EXPECT_EQ(a.values(), combined<float>(kCount, ncclSum));
    EXPECT_EQ(b.values(), combined<float>(kCount, ncclMax));
    cudaStreamDestroy(second);
    EXPECT_EQ(ncclCommDestroy(other), ncclSuccess);
}

// Whatever the scheduler picks first, one communicator's operations are in the order of the calls.
TEST_F(FakeNccl, OneCommunicatorOnTwoStreamsKeepsItsOrder)
{
    cudaStream_t second;
    cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
    const DeviceArray<float> a(numbers_of<float>(world->rank, kCount)), b(numbers_of<float>(world->rank, kCount));
    for (int i = 0; i < 5; i++) {
        ASSERT_EQ(ncclAllReduce(a.data(), a.data(), kCount, ncclFloat32, ncclMax, c_, i % 2 ? stream_ : second),
                  ncclSuccess);
        ASSERT_EQ(ncclAllReduce(b.data(), b.data(), kCount, ncclFloat32, ncclMin, c_, i % 2 ? second : stream_),
                  ncclSuccess);
    }
    EXPECT_EQ(a.values(), combined<float>(kCount, ncclMax));
    EXPECT_EQ(b.values(), combined<float>(kCount, ncclMin));
    cudaStreamDestroy(second);
}

// A group on two streams begins when both have come to it: the input is written by the one, the other carries the
// operation.
TEST_F(FakeNccl, AGroupWaitsForAllOfItsStreams)
{
    cudaStream_t second;
    cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
    void *pinned;
    const std::vector<float> x = numbers_of<float>(world->rank, kCount);
    ASSERT_EQ(cudaMallocHost(&pinned, kCount * sizeof(float)), cudaSuccess);
    std::memcpy(pinned, x.data(), kCount * sizeof(float));
    for (int i = 0; i < 10; i++) {
        const DeviceArray<float> a(kCount), b(x);
        cudaMemcpyAsync(a.data(), pinned, kCount * sizeof(float), cudaMemcpyHostToDevice, second);
        ncclGroupStart();
        ncclAllReduce(a.data(), a.data(), kCount, ncclFloat32, ncclSum, c_, stream_);
        ncclAllReduce(b.data(), b.data(), kCount, ncclFloat32, ncclMax, c_, second);
        ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
        ASSERT_EQ(a.values(), combined<float>(kCount, ncclSum));
        ASSERT_EQ(b.values(), combined<float>(kCount, ncclMax));
    }
    cudaFreeHost(pinned);
    cudaStreamDestroy(second);
}

TEST_F(FakeNccl, NothingIsLeftOut)
{
    ASSERT_EQ(ncclAllReduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, c_, stream_), ncclSuccess);
    const DeviceArray<float> x(numbers_of<float>(world->rank, kCount));
    ASSERT_EQ(ncclAllReduce(x.data(), x.data(), kCount, ncclFloat32, ncclSum, c_, stream_), ncclSuccess);
    EXPECT_EQ(x.values(), combined<float>(kCount, ncclSum));
}

// ---- communicators ----

TEST_F(FakeNccl, TellsWhoItIs)
{
    int count = 0, rank = -1, device = -1, version = 0;
    EXPECT_EQ(ncclCommCount(c_, &count), ncclSuccess);
    EXPECT_EQ(ncclCommUserRank(c_, &rank), ncclSuccess);
    EXPECT_EQ(ncclCommCuDevice(c_, &device), ncclSuccess);
    EXPECT_EQ(ncclGetVersion(&version), ncclSuccess);
    EXPECT_EQ(count, world->size);
    EXPECT_EQ(rank, world->rank);
    EXPECT_EQ(device, world->rank);
    EXPECT_EQ(version, NCCL_VERSION_CODE);
}

TEST_F(FakeNccl, SplitsByColorAndKey)
{
    ncclComm_t half = nullptr;
    const int color = world->rank % 2;
    ASSERT_EQ(ncclCommSplit(c_, color, -world->rank, &half, nullptr), ncclSuccess); // highest rank first
    int count, rank;
    ASSERT_EQ(ncclCommCount(half, &count), ncclSuccess);
    ASSERT_EQ(ncclCommUserRank(half, &rank), ncclSuccess);
    EXPECT_EQ(count, (world->size + 1 - color) / 2);
    EXPECT_EQ(rank, (world->size - 1 - world->rank) / 2);
    const DeviceArray<int32_t> x(std::vector<int32_t>{world->rank});
    ASSERT_EQ(ncclAllReduce(x.data(), x.data(), 1, ncclInt32, ncclSum, half, stream_), ncclSuccess);
    int want = 0;
    for (int r = color; r < world->size; r += 2)
        want += r;
    EXPECT_EQ(x.values()[0], want);
    EXPECT_EQ(ncclCommDestroy(half), ncclSuccess);

    ncclComm_t none = c_;
    ASSERT_EQ(ncclCommSplit(c_, world->rank == 0 ? 0 : NCCL_SPLIT_NOCOLOR, 0, &none, nullptr), ncclSuccess);
    EXPECT_EQ(none != nullptr, world->rank == 0);
    if (none)
        EXPECT_EQ(ncclCommDestroy(none), ncclSuccess);
}

TEST_F(FakeNccl, RefusesWhatMakesNoSense)
{
    const DeviceArray<float> x(kCount);
    EXPECT_EQ(ncclBroadcast(x.data(), x.data(), kCount, ncclFloat32, world->size, c_, stream_), ncclInvalidArgument);
    EXPECT_EQ(ncclSend(x.data(), kCount, ncclFloat32, -1, c_, stream_), ncclInvalidArgument);
    EXPECT_EQ(ncclAllReduce(x.data(), x.data(), kCount, ncclFloat32, ncclSum, nullptr, stream_), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    EXPECT_EQ(ncclCommGetAsyncError(nullptr, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclCommFinalize(nullptr), ncclSuccess);
    EXPECT_EQ(ncclCommAbort(nullptr), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(nullptr), ncclSuccess);
    ncclComm_t out;
    EXPECT_EQ(ncclCommInitRank(&out, 2, ncclUniqueId(), 2), ncclInvalidArgument);
    ncclConfig_t config = {};
    EXPECT_EQ(ncclCommInitRankConfig(&out, 1, ncclUniqueId(), 0, &config), ncclInvalidArgument) << "no initializer";
    // A group that was refused a call does nothing.
    ncclGroupStart();
    EXPECT_EQ(ncclSend(x.data(), kCount, ncclFloat32, 0, c_, stream_), ncclSuccess);
    EXPECT_EQ(ncclSend(x.data(), kCount, ncclFloat32, -1, c_, stream_), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
}

TEST_F(FakeNccl, TakesNothingOnceFinalized)
{
    const DeviceArray<float> x(numbers_of<float>(world->rank, kCount));
    ASSERT_EQ(ncclAllReduce(x.data(), x.data(), kCount, ncclFloat32, ncclSum, c_, stream_), ncclSuccess);
    ASSERT_EQ(ncclCommFinalize(c_), ncclSuccess);
    EXPECT_EQ(cudaStreamQuery(stream_), cudaSuccess) << "it waited";
    EXPECT_EQ(ncclAllReduce(x.data(), x.data(), kCount, ncclFloat32, ncclSum, c_, stream_), ncclInvalidArgument);
    EXPECT_EQ(x.values(), combined<float>(kCount, ncclSum));
}

TEST_F(FakeNccl, RefusesTwoRanksOnOneDevice)
{
    if (world->size < 2)
        GTEST_SKIP();
    ncclComm_t out = c_;
    cudaSetDevice(0);
    EXPECT_EQ(ncclCommInitRank(&out, world->size, shared_id(), world->rank), ncclInvalidUsage);
    EXPECT_EQ(out, nullptr);
    EXPECT_NE(std::strstr(ncclGetLastError(nullptr), "Duplicate GPU detected"), nullptr) << ncclGetLastError(nullptr);
    cudaSetDevice(world->rank);
}

// ---- what goes wrong ----

TEST_F(FakeNccl, AbortEndsWhatNobodyElseHasBegun)
{
    if (world->size < 2)
        GTEST_SKIP();
    const DeviceArray<float> x(numbers_of<float>(world->rank, kCount));
    if (world->rank == 0) {
        ASSERT_EQ(ncclAllReduce(x.data(), x.data(), kCount, ncclFloat32, ncclSum, c_, stream_), ncclSuccess);
        expect_stuck();
    }
    abort();
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(x.values(), numbers_of<float>(world->rank, kCount)) << "as it was";
}

TEST_F(FakeNccl, AnErrorIsToldAndNothingEndsBeforeAnAbort)
{
    fakecuda::settings().fault = {"ncclAllGather", 2};
    if (world->rank != 0)
        fakecuda::settings().fault = {};
    const DeviceArray<float> x(numbers_of<float>(world->rank, kCount)), all(kCount * static_cast<size_t>(world->size));
    ncclResult_t state = ncclInProgress;
    ASSERT_EQ(ncclAllGather(x.data(), all.data(), kCount, ncclFloat32, c_, stream_), ncclSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    ASSERT_EQ(ncclCommGetAsyncError(c_, &state), ncclSuccess);
    EXPECT_EQ(state, ncclSuccess);
    ASSERT_EQ(ncclAllGather(x.data(), all.data(), kCount, ncclFloat32, c_, stream_), ncclSuccess);
    expect_stuck();
    ASSERT_EQ(ncclCommGetAsyncError(c_, &state), ncclSuccess);
    EXPECT_EQ(state, world->rank == 0 ? ncclRemoteError : ncclSuccess);
    if (world->rank == 0) {
        EXPECT_EQ(ncclAllGather(x.data(), all.data(), kCount, ncclFloat32, c_, stream_), ncclRemoteError);
        EXPECT_NE(std::strstr(ncclGetLastError(c_), "ncclAllGather failed"), nullptr);
    }
    abort();
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    fakecuda::settings().fault = {};
    MPI_Barrier(MPI_COMM_WORLD);
}

// ---- communicators that do not block ----

class FakeNcclNonBlocking : public testing::Test
{
  protected:
    void SetUp() override
    {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
        ASSERT_EQ(ncclCommInitRankConfig(&c_, world->size, shared_id(), world->rank, &config), ncclInProgress);
        ASSERT_NE(c_, nullptr);
    }
    void TearDown() override
    {
        EXPECT_EQ(ncclCommDestroy(c_), ncclSuccess);
        cudaStreamDestroy(stream_);
    }
    ncclResult_t wait()
    {
        ncclResult_t state = ncclInProgress;
        while (state == ncclInProgress)
            EXPECT_EQ(ncclCommGetAsyncError(c_, &state), ncclSuccess);
        return state;
    }

    ncclComm_t c_ = nullptr;
    cudaStream_t stream_ = nullptr;
};

TEST_F(FakeNcclNonBlocking, IsReadyWhenItSaysSo)
{
    int count;
    const DeviceArray<float> x(numbers_of<float>(world->rank, kCount));
    EXPECT_EQ(ncclAllReduce(x.data(), x.data(), kCount, ncclFloat32, ncclSum, c_, stream_), ncclInvalidArgument)
        << "before it was asked";
    ASSERT_EQ(wait(), ncclSuccess);
    EXPECT_EQ(ncclCommCount(c_, &count), ncclSuccess);
    EXPECT_EQ(ncclCommFinalize(c_), ncclInProgress);
    EXPECT_EQ(wait(), ncclSuccess);
}

TEST_F(FakeNcclNonBlocking, LaunchesWhatItWasGivenWhenItIsAsked)
{
    ASSERT_EQ(wait(), ncclSuccess);
    const DeviceArray<float> x(numbers_of<float>(world->rank, kCount));
    ASSERT_EQ(ncclAllReduce(x.data(), x.data(), kCount, ncclFloat32, ncclSum, c_, stream_), ncclInProgress);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(x.values(), numbers_of<float>(world->rank, kCount)) << "not launched yet";
    ASSERT_EQ(wait(), ncclSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(x.values(), combined<float>(kCount, ncclSum));
}

TEST_F(FakeNcclNonBlocking, SplitsInheritIt)
{
    ncclComm_t other = nullptr;
    ncclResult_t state = ncclInProgress;
    ASSERT_EQ(wait(), ncclSuccess);
    ASSERT_EQ(ncclCommSplit(c_, 0, 0, &other, nullptr), ncclInProgress);
    while (state == ncclInProgress)
        ASSERT_EQ(ncclCommGetAsyncError(other, &state), ncclSuccess);
    EXPECT_EQ(state, ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(other), ncclSuccess);
}

// ---- the program ----

// Rank 0 prints what passes, every rank what fails. The first failure ends the job: ranks may no longer be at the same
// place.
class Agree : public testing::EmptyTestEventListener
{
    void OnTestPartResult(const testing::TestPartResult &result) override
    {
        if (result.failed() && world->rank != 0)
            std::printf("rank %d: %s:%d: %s\n", world->rank, result.file_name() ? result.file_name() : "?",
                        result.line_number(), result.message());
    }
    void OnTestEnd(const testing::TestInfo &info) override
    {
        int failed = info.result()->Failed();
        MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        std::fflush(stdout);
        if (failed)
            MPI_Abort(MPI_COMM_WORLD, 1);
    }
};

} // namespace

int main(int argc, char **argv)
{
    World all;
    world = &all;
    testing::InitGoogleTest(&argc, argv);
    testing::TestEventListeners &listeners = testing::UnitTest::GetInstance()->listeners();
    if (world->rank != 0)
        delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new Agree);
    return RUN_ALL_TESTS();
}
