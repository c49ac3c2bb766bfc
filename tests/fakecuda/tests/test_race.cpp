// Races: what no barrier, event or synchronisation orders is said, and nothing else. Only in builds with the detector.
#include "tests/fakecuda/settings.h"
#include "tests/fakecuda/tests/buffers.h"
#include "tests/fakecuda/tests/kernels.h"

#include <cstdlib>

namespace
{

// Fine in every build.
#define EXPECT_FINE(statement)                                                                                         \
    do {                                                                                                               \
        statement;                                                                                                     \
        EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);                                                               \
    } while (0)

#define EXPECT_RACE(statement, sentence)                                                                               \
    EXPECT_EXIT(                                                                                                       \
        {                                                                                                              \
            statement;                                                                                                 \
            cudaDeviceSynchronize();                                                                                   \
            exit(0);                                                                                                   \
        },                                                                                                             \
        testing::ExitedWithCode(97), sentence)

class Race : public testing::Test
{
  protected:
    DeviceArray<float> x{std::vector<float>(512, 1.0f)}, out{std::vector<float>(512, 0.0f)};
};

// ---- threads ----

TEST_F(Race, NoneWithAllBarriers)
{
    EXPECT_FINE(kernels::block_sum(out.get(), x.get(), 3));
    EXPECT_FINE(kernels::warp_sum(out.get(), x.get(), 3));
    EXPECT_FINE(kernels::both_read(out.get(), x.get()));
    EXPECT_FINE(kernels::same_place(out.get(), 1, false));
    EXPECT_FINE(kernels::same_place(out.get(), 4, true));
    EXPECT_FINE(kernels::same_place(out.get(), 1, false));
    DeviceArray<unsigned char> bytes(64);
    EXPECT_FINE(kernels::byte_each(bytes.get(), 63));
}

TEST_F(Race, AMissingBarrier)
{
    EXPECT_RACE(kernels::block_sum(out.get(), x.get(), 2),
                "block_sum_kernel.*race in a __shared__ variable.*no barrier orders");
    EXPECT_RACE(kernels::block_sum(out.get(), x.get(), 1),
                "race in a __shared__ variable.* it \\(.*kernels.cu:[0-9]+\\), this thread .* it "
                "\\(.*kernels.cu:[0-9]+\\): no barrier");
}

TEST_F(Race, AMissingWarpBarrier)
{
    EXPECT_RACE(kernels::warp_sum(out.get(), x.get(), 2), "warp_sum_kernel.*no barrier orders");
    EXPECT_RACE(kernels::warp_sum(out.get(), x.get(), 1), "warp_sum_kernel.*no barrier orders");
}

TEST_F(Race, NeighboursInGlobalMemory)
{
    EXPECT_RACE(kernels::read_write(x.get()), "read_write_kernel.*device allocation.*no barrier orders");
}

TEST_F(Race, TwoBlocks)
{
    EXPECT_RACE(kernels::same_place(x.get(), 2, false), "thread 0 of another block wrote it.*this thread writes");
}

// ---- asynchronous copies ----

TEST_F(Race, NoneInAPipelineThatWaits)
{
    EXPECT_FINE(kernels::pipeline(out.get(), x.get(), true, true));
}

TEST_F(Race, ACopyThatNobodyWaitsFor)
{
    EXPECT_RACE(kernels::pipeline(out.get(), x.get(), false, true), "pipeline_kernel.*cp.async.*has not waited for");
}

TEST_F(Race, ACopyThatOthersDoNotWaitFor)
{
    EXPECT_RACE(kernels::pipeline(out.get(), x.get(), true, false), "pipeline_kernel.*race");
}

// ---- streams ----

class RaceOfStreams : public Race
{
  protected:
    void SetUp() override
    {
        // The schedule has no say.
        fakecuda::settings().schedule = fakecuda::Schedule::eager;
        ASSERT_EQ(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking), cudaSuccess);
        ASSERT_EQ(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking), cudaSuccess);
        ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
    }
    cudaStream_t a, b;
    cudaEvent_t event;
    const fakecuda::KeepSettings keep;
};

TEST_F(RaceOfStreams, NoneWithAnEvent)
{
    kernels::add(x.get(), 1.0f, 512, a);
    EXPECT_EQ(cudaEventRecord(event, a), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(b, event, 0), cudaSuccess);
    EXPECT_FINE(kernels::add(x.get(), 1.0f, 512, b));
}

TEST_F(RaceOfStreams, NoneWithASynchronisation)
{
    kernels::add(x.get(), 1.0f, 512, a);
    EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
    EXPECT_FINE(kernels::add(x.get(), 1.0f, 512, b));
}

TEST_F(RaceOfStreams, NoneBetweenReaders)
{
    DeviceArray<float> other(512);
    kernels::scale(out.get(), x.get(), 1.0f, 512, a);
    EXPECT_FINE(kernels::scale(other.get(), x.get(), 1.0f, 512, b));
}

TEST_F(RaceOfStreams, AMissingEvent)
{
    EXPECT_RACE(
        {
            kernels::add(x.get(), 1.0f, 512, a);
            kernels::add(x.get(), 1.0f, 512, b);
        },
        "'add_kernel' in stream [0-9]+ wrote.*'add_kernel' in stream [0-9]+ writes.*no event or synchronisation");
}

TEST_F(RaceOfStreams, AFirstReaderIsNotForgotten)
{
    DeviceArray<float> other(512);
    EXPECT_RACE(
        {
            kernels::scale(out.get(), x.get(), 1.0f, 512, a);   // reads, unordered
            kernels::scale(other.get(), x.get(), 1.0f, 512, b); // reads later
            cudaMemsetAsync(x.get(), 0, 512, b);
        },
        "'scale_kernel' in stream [0-9]+ read.*'cudaMemsetAsync' in stream [0-9]+ writes");
}

TEST_F(RaceOfStreams, ACopyAndAKernel)
{
    float *h = nullptr;
    ASSERT_EQ(cudaMallocHost(&h, 2048), cudaSuccess);
    EXPECT_RACE(
        {
            kernels::add(x.get(), 1.0f, 512, a);
            cudaMemcpyAsync(h, x.get(), 2048, cudaMemcpyDeviceToHost, b);
        },
        "'add_kernel' in stream [0-9]+ wrote.*'cudaMemcpyAsync' in stream [0-9]+ reads");
    EXPECT_RACE(
        {
            cudaMemcpyAsync(h, x.get(), 2048, cudaMemcpyDeviceToHost, a);
            cudaMemcpyAsync(h, out.get(), 2048, cudaMemcpyDeviceToHost, b);
        },
        "pinned allocation.*'cudaMemcpyAsync' in stream [0-9]+ wrote");
}

// ---- bounds ----

TEST_F(Race, AReadBehindTheEnd)
{
    EXPECT_RACE(kernels::load(out.get(), x.get(), 512), "load_kernel.*out of bounds: .*byte 2048 of device allocation");
}

} // namespace
