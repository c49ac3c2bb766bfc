// Streams, events and copies: what is ordered, and that each schedule but eager shows what is not.
#include "tests/fakecuda/fakecuda.h"
#include "tests/fakecuda/settings.h"
#include "tests/fakecuda/streams.h"
#include "tests/fakecuda/tests/buffers.h"
#include "tests/fakecuda/tests/kernels.h"

#include <cmath>
#include <functional>

using fakecuda::Schedule;
using fakecuda::settings;

namespace
{

class Streams : public testing::TestWithParam<Schedule>
{
  protected:
    void SetUp() override
    {
        settings().schedule = GetParam();
        for (cudaStream_t *s : {&a, &b})
            ASSERT_EQ(cudaStreamCreateWithFlags(s, cudaStreamNonBlocking), cudaSuccess);
        ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    }
    void TearDown() override
    {
        for (cudaStream_t s : {a, b})
            EXPECT_EQ(cudaStreamDestroy(s), cudaSuccess);
        EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    }
    cudaStream_t a, b;
    cudaEvent_t event;
    const fakecuda::KeepSettings keep;
};
INSTANTIATE_TEST_SUITE_P(, Streams, testing::Values(Schedule::eager, Schedule::lazy, Schedule::random),
                         [](const auto &info) {
                             return info.param == Schedule::eager  ? "eager"
                                    : info.param == Schedule::lazy ? "lazy"
                                                                   : "random";
                         });

const long kN = 64;

// In how many of `tries` runs, each with another seed, a program gives a wrong result.
int wrong(int tries, const std::function<bool()> &right)
{
    int n = 0;
    for (int seed = 1; seed <= tries; seed++) {
        fakecuda::reseed(static_cast<uint64_t>(seed));
        n += !right();
        EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    }
    return n;
}

// ---- events ----

// x = 2 in stream a, then y = 3 x in stream b.
bool across_streams(cudaStream_t a, cudaStream_t b, cudaEvent_t event, bool waits)
{
    DeviceArray<float> one(std::vector<float>(kN, 1.0f)), x(std::vector<float>(kN, 0.0f)), y(kN);
    kernels::scale(x.get(), one.get(), 2.0f, kN, a);
    EXPECT_EQ(cudaEventRecord(event, a), cudaSuccess);
    if (waits)
        EXPECT_EQ(cudaStreamWaitEvent(b, event, 0), cudaSuccess);
    kernels::scale(y.get(), x.get(), 3.0f, kN, b);
    EXPECT_EQ(cudaStreamSynchronize(b), cudaSuccess);
    return y.values() == std::vector<float>(kN, 6.0f);
}

TEST_P(Streams, AnEventOrders)
{
    EXPECT_EQ(wrong(20, [&] { return across_streams(a, b, event, true); }), 0);
}

#ifndef FAKECUDA_RACE
TEST_P(Streams, AMissingWaitShows)
{
    const int n = wrong(40, [&] { return across_streams(a, b, event, false); });
    if (GetParam() == Schedule::eager)
        EXPECT_EQ(n, 0);
    else if (GetParam() == Schedule::lazy)
        EXPECT_EQ(n, 40);
    else
        EXPECT_GT(n, 5);
}
#endif

TEST_P(Streams, AnEventOfLaterIsNotWaitedFor)
{
    // The wait is for the record before it; that the event is recorded again changes nothing.
    DeviceArray<float> x(std::vector<float>(kN, 1.0f));
    EXPECT_EQ(cudaStreamWaitEvent(b, event, 0), cudaSuccess); // never recorded
    kernels::add(x.get(), 1.0f, kN, a);
    EXPECT_EQ(cudaEventRecord(event, a), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(b, event, 0), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(event, b), cudaSuccess);
    kernels::add(x.get(), 1.0f, kN, b);
    EXPECT_EQ(cudaStreamSynchronize(b), cudaSuccess);
    EXPECT_EQ(x.values(), std::vector<float>(kN, 3.0f));
}

TEST_P(Streams, QueriesEndByThemselves)
{
    DeviceArray<float> x(std::vector<float>(kN, 1.0f));
    kernels::add(x.get(), 1.0f, kN, a);
    EXPECT_EQ(cudaEventRecord(event, a), cudaSuccess);
    while (cudaEventQuery(event) == cudaErrorNotReady) {}
    EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
    kernels::add(x.get(), 1.0f, kN, b);
    while (cudaStreamQuery(b) == cudaErrorNotReady) {}
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    EXPECT_EQ(x.values(), std::vector<float>(kN, 3.0f));
}

TEST_P(Streams, LazyDoesNothingThatNobodyWaitsFor)
{
    DeviceArray<float> x(std::vector<float>(kN, 1.0f));
    const long before = fakecuda_kernels();
    for (int i = 0; i < 20; i++)
        kernels::add(x.get(), 1.0f, kN, a);
    const long after = fakecuda_kernels();
    if (GetParam() == Schedule::lazy)
        EXPECT_EQ(after, before);
    if (GetParam() == Schedule::eager)
        EXPECT_EQ(after, before + 20);
    EXPECT_EQ(x.values(), std::vector<float>(kN, 21.0f));
}

TEST_P(Streams, EventsTellTheTime)
{
    cudaEvent_t from, to;
    float ms = -1.0f;
    ASSERT_EQ(cudaEventCreate(&from), cudaSuccess);
    ASSERT_EQ(cudaEventCreate(&to), cudaSuccess);
    EXPECT_EQ(cudaEventElapsedTime(&ms, from, to), cudaErrorInvalidResourceHandle);
    EXPECT_EQ(cudaEventRecord(from, a), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(to, a), cudaSuccess);
    EXPECT_EQ(cudaEventSynchronize(to), cudaSuccess);
    EXPECT_EQ(cudaEventElapsedTime(&ms, from, to), cudaSuccess);
    EXPECT_GE(ms, 0.0f);
    EXPECT_LT(ms, 1e4f);
    EXPECT_EQ(cudaEventRecord(event, a), cudaSuccess);
    EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
    EXPECT_EQ(cudaEventElapsedTime(&ms, from, event), cudaErrorInvalidResourceHandle); // without timing
    (void)cudaGetLastError();
    EXPECT_EQ(cudaEventDestroy(from), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(to), cudaSuccess);
}

// ---- the default stream ----

// x = 2 in one stream, then y = 3 x in another.
bool in_order(cudaStream_t first, cudaStream_t second)
{
    DeviceArray<float> one(std::vector<float>(kN, 1.0f)), x(std::vector<float>(kN, 0.0f)), y(kN);
    kernels::scale(x.get(), one.get(), 2.0f, kN, first);
    kernels::scale(y.get(), x.get(), 3.0f, kN, second);
    return y.values() == std::vector<float>(kN, 6.0f);
}

TEST_P(Streams, TheDefaultStreamWaitsForBlockingStreams)
{
    cudaStream_t blocking;
    ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
    EXPECT_EQ(wrong(20, [&] { return in_order(blocking, nullptr); }), 0);
    EXPECT_EQ(wrong(20, [&] { return in_order(nullptr, blocking); }), 0);
    EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
}

#ifndef FAKECUDA_RACE
TEST_P(Streams, TheDefaultStreamDoesNotWaitForOthers)
{
    const int n = wrong(40, [&] { return in_order(a, nullptr); });
    if (GetParam() == Schedule::random)
        EXPECT_GT(n, 5);
}
#endif

TEST_P(Streams, ADestroyedStreamStillWorks)
{
    DeviceArray<float> x(std::vector<float>(kN, 1.0f));
    cudaStream_t s;
    ASSERT_EQ(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, -1), cudaSuccess);
    kernels::add(x.get(), 1.0f, kN, s);
    EXPECT_EQ(cudaStreamDestroy(s), cudaSuccess);
    EXPECT_EQ(x.values(), std::vector<float>(kN, 2.0f));
}

TEST_P(Streams, FunctionsOfTheHostHaveTheirTurn)
{
    static int calls;
    calls = 0;
    DeviceArray<float> x(std::vector<float>(kN, 1.0f));
    kernels::add(x.get(), 1.0f, kN, a);
    EXPECT_EQ(cudaLaunchHostFunc(
                  a, [](void *n) { calls += *static_cast<int *>(n); }, &calls),
              cudaSuccess);
    calls = 3;
    EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
    EXPECT_TRUE(calls == 6 || GetParam() == Schedule::eager || GetParam() == Schedule::random);
}

// ---- copies ----

class Pinned
{
  public:
    explicit Pinned(size_t n) { EXPECT_EQ(cudaMallocHost(&p, n * sizeof(float)), cudaSuccess); }
    ~Pinned() { cudaFreeHost(p); }
    float *get() { return static_cast<float *>(p); }

  private:
    void *p = nullptr;
};

// Pinned memory is read when the copy has its turn, and not before.
bool reuses_staging(cudaStream_t s, bool waits)
{
    DeviceArray<float> x(kN);
    Pinned h(kN);
    for (long i = 0; i < kN; i++)
        h.get()[i] = 5.0f;
    EXPECT_EQ(cudaMemcpyAsync(x.get(), h.get(), kN * sizeof(float), cudaMemcpyHostToDevice, s), cudaSuccess);
    if (waits)
        EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
    h.get()[3] = 9.0f;
    return x.values() == std::vector<float>(kN, 5.0f);
}

bool reads_early(cudaStream_t s, bool waits)
{
    DeviceArray<float> x(std::vector<float>(kN, 4.0f));
    Pinned h(kN);
    EXPECT_EQ(cudaMemcpyAsync(h.get(), x.get(), kN * sizeof(float), cudaMemcpyDeviceToHost, s), cudaSuccess);
    if (waits)
        EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
    return h.get()[5] == 4.0f;
}

TEST_P(Streams, PinnedCopiesAreLate)
{
    EXPECT_EQ(wrong(20, [&] { return reuses_staging(a, true); }), 0);
    EXPECT_EQ(wrong(20, [&] { return reads_early(a, true); }), 0);
    if (GetParam() == Schedule::eager)
        return;
    const int least = GetParam() == Schedule::lazy ? 40 : 5;
    EXPECT_GE(wrong(40, [&] { return reuses_staging(a, false); }), least);
    EXPECT_GE(wrong(40, [&] { return reads_early(a, false); }), least);
}

TEST_P(Streams, PageableCopiesAreNot)
{
    DeviceArray<float> x(kN);
    std::vector<float> h(kN, 5.0f), back(kN);
    EXPECT_EQ(cudaMemcpyAsync(x.get(), h.data(), kN * sizeof(float), cudaMemcpyHostToDevice, a), cudaSuccess);
    h[3] = 9.0f;
    EXPECT_EQ(cudaMemcpyAsync(back.data(), x.get(), kN * sizeof(float), cudaMemcpyDeviceToHost, a), cudaSuccess);
    EXPECT_EQ(back, std::vector<float>(kN, 5.0f));
}

TEST_P(Streams, RowsAreCopied)
{
    std::vector<float> h(6 * 4);
    for (size_t i = 0; i < h.size(); i++)
        h[i] = static_cast<float>(i);
    DeviceArray<float> x(std::vector<float>(8 * 4, -1.0f));
    EXPECT_EQ(cudaMemcpy2DAsync(x.get(), 8 * sizeof(float), h.data(), 6 * sizeof(float), 5 * sizeof(float), 4,
                                cudaMemcpyHostToDevice, a),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
    const std::vector<float> got = x.values();
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 8; c++)
            EXPECT_EQ(got[r * 8 + c], c < 5 ? h[r * 6 + c] : -1.0f);
    EXPECT_EQ(cudaMemcpy2DAsync(x.get(), 4, h.data(), 6, 5, 4, cudaMemcpyHostToDevice, a), cudaErrorInvalidValue);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

// ---- operations that take their time ----

TEST_P(Streams, AnOperationMayStandStill)
{
    // As one of NCCL: it waits for something outside. Other streams go on.
    bool open = false;
    DeviceArray<float> x(std::vector<float>(kN, 1.0f));
    fakecuda::enqueue(a, "a gate", [&open] { return open; });
    kernels::add(x.get(), 1.0f, kN, a);
    kernels::add(x.get(), 2.0f, 0, b);
    EXPECT_EQ(cudaStreamSynchronize(b), cudaSuccess);
    EXPECT_EQ(cudaStreamQuery(a), cudaErrorNotReady);
    open = true;
    EXPECT_EQ(x.values(), std::vector<float>(kN, 2.0f));
}

TEST_P(Streams, AStandstillIsADeadlock)
{
    settings().timeout = 0.2;
    EXPECT_EXIT(
        {
            fakecuda::enqueue(a, "a gate", [] { return false; });
            cudaStreamSynchronize(a);
        },
        testing::ExitedWithCode(97), "no progress for 0.2 s in cudaStreamSynchronize(.|\n)*stream [0-9]+: a gate");
}

TEST_P(Streams, ASlowDevice)
{
    settings().slow = 0.02;
    DeviceArray<float> x(static_cast<size_t>(kN));
    const double from = fakecuda::seconds();
    for (int i = 0; i < 3; i++)
        kernels::add(x.get(), 1.0f, kN, a);
    EXPECT_EQ(cudaStreamQuery(a), cudaErrorNotReady);
    EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
    EXPECT_GE(fakecuda::seconds() - from, 0.06);
}

} // namespace
