// Each kind of misuse ends the process with a sentence that names it.
#include "tests/fakecuda/fakecuda.h"
#include "tests/fakecuda/settings.h"
#include "tests/fakecuda/tests/buffers.h"
#include "tests/fakecuda/tests/kernels.h"

#include <cstdlib>

namespace
{

// The statement and what is then left to run; a process that goes on ends with another code.
#define EXPECT_CAUGHT(statement, sentence)                                                                             \
    EXPECT_EXIT(                                                                                                       \
        {                                                                                                              \
            statement;                                                                                                 \
            cudaDeviceSynchronize();                                                                                   \
            exit(0);                                                                                                   \
        },                                                                                                             \
        testing::ExitedWithCode(97), sentence)

void *device_bytes(size_t n)
{
    void *p = nullptr;
    EXPECT_EQ(cudaMalloc(&p, n), cudaSuccess);
    EXPECT_EQ(cudaMemset(p, 0, n), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return p;
}

float *floats(size_t n)
{
    return static_cast<float *>(device_bytes(n * sizeof(float)));
}

// ---- threads that do not meet ----

TEST(Misuse, BarriersAtTwoLines)
{
    EXPECT_CAUGHT(kernels::divergent_barrier(),
                  "kernel divergent_barrier_kernel.*different __syncthreads: kernels.cu:[0-9]+ and kernels.cu:[0-9]+");
}

TEST(Misuse, BarrierThatNeverFills)
{
    EXPECT_CAUGHT(kernels::lonely_barrier(), "deadlock: 63 threads wait in __syncthreads.*1 in an operation");
}

TEST(Misuse, MaskWithoutTheCaller)
{
    EXPECT_CAUGHT(kernels::bad_mask(), "thread \\(5, 0, 0\\).*mask 00000010 of __syncwarp .*calling lane 5");
}

TEST(Misuse, ShuffleFromALaneThatHasEnded)
{
    EXPECT_CAUGHT(kernels::exited_lane(static_cast<int *>(device_bytes(128))), "reads lane 9, which has ended");
}

TEST(Misuse, TwoOperationsOfAWarp)
{
    EXPECT_CAUGHT(kernels::mixed_operations(),
                  "lanes of a warp meet in different operations: a (vote.*a shuffle|shuffle.*a vote)");
}

// ---- instructions ----

TEST(Misuse, MisalignedMatrix)
{
    EXPECT_CAUGHT(kernels::misaligned_matrix(), "ldmatrix at kernels.cu:.*not a multiple of 16");
}

#ifndef FAKECUDA_RACE // there a copy of a vector is a call that accepts any address
TEST(Misuse, MisalignedVector)
{
    DeviceArray<float> out(4);
    kernels::load_vector(out.get(), floats(10), 4);
    EXPECT_EQ(out.values(), std::vector<float>(4, 0.0f));
    EXPECT_CAUGHT(kernels::load_vector(out.get(), floats(10), 2),
                  "load_vector_kernel.*multiple of its type's alignment");
}
#endif

TEST(Misuse, MisalignedDouble)
{
    DeviceArray<float> out(2);
    kernels::load_double(out.get(), floats(10), 4);
    EXPECT_EQ(out.values(), std::vector<float>(2, 0.0f));
    EXPECT_CAUGHT(kernels::load_double(out.get(), floats(10), 1),
                  "load_double_kernel.*multiple of its type's alignment");
}

TEST(Misuse, MisalignedCopy)
{
    EXPECT_CAUGHT(kernels::misaligned_copy(static_cast<char *>(device_bytes(64))), "cp.async at .*multiple of 16");
}

TEST(Misuse, CopyUnderWayAtTheEnd)
{
    EXPECT_CAUGHT(kernels::copy_at_end(static_cast<char *>(device_bytes(64))), "ends with 1 cp.async under way");
}

// ---- memory ----

TEST(Misuse, StoreJustBehindTheEnd)
{
    EXPECT_CAUGHT(kernels::store(floats(10), 10, 1.0f), "store_kernel.*(written behind its end, at byte 40|byte 40 of "
                                                        "device allocation [0-9]+ \\(40 bytes\\), outside)");
}

TEST(Misuse, StoreJustBeforeTheStart)
{
    EXPECT_CAUGHT(kernels::store(floats(10), -1, 1.0f),
                  "store_kernel.*(written 4 bytes in front|byte -4 of device allocation .*outside)");
}

TEST(Misuse, StoreFarAway)
{
    EXPECT_CAUGHT(kernels::store(floats(10), 2000, 1.0f), "out of bounds: .*byte 8000 of device allocation");
}

TEST(Misuse, NullPointer)
{
    EXPECT_CAUGHT(kernels::null_pointer(), "store_kernel.*access to (0x4|memory of the host at 0x4)");
}

TEST(Misuse, HostPointerAsArgument)
{
    static float x[4];
    EXPECT_CAUGHT(kernels::store(x, 0, 1.0f), "argument 1 of kernel store_kernel points to the host");
}

TEST(Misuse, UseAfterFree)
{
    float *x = floats(10);
    cudaFree(x);
    EXPECT_CAUGHT(kernels::store(x, 1, 1.0f), "(freed memory|out of bounds): .*allocation .*freed");
}

TEST(Misuse, FreeTwice)
{
    float *x = floats(10);
    cudaFree(x);
    EXPECT_CAUGHT(cudaFree(x), "freed twice: .*byte 0 of device allocation");
}

TEST(Misuse, FreeOfWhatWasNotAllocated)
{
    float *x = floats(10);
    EXPECT_CAUGHT(cudaFree(x + 1), "freed as device memory, but never allocated: .*byte 4");
}

TEST(Misuse, HostReadsDeviceMemory)
{
    float *x = floats(10);
    EXPECT_CAUGHT(exit(x[3] == 0.0f), "the host touches device memory: .*byte 12 of device allocation");
}

TEST(Misuse, HostFunctionInAStreamReadsDeviceMemory)
{
    static float *x = floats(10);
    const auto touch = [](void *p) { *static_cast<volatile float *>(p) = 1.0f; };
    EXPECT_CAUGHT(cudaLaunchHostFunc(nullptr, touch, x), "'a function of the host' in stream 0.*byte 0 of device");
}

TEST(Misuse, DynamicSharedMemoryBehindItsEnd)
{
    EXPECT_CAUGHT(kernels::dynamic_shared(64, 64), "64 bytes of dynamic shared memory.* byte 64");
}

TEST(Misuse, StackUsedUp)
{
    EXPECT_CAUGHT(kernels::deep_stack(static_cast<int *>(device_bytes(4))), "deep_stack_kernel.*stack of a thread");
}

TEST(Misuse, UnwrittenMemoryIsNotANumber)
{
    DeviceArray<float> x(3);
    for (float v : x.values())
        EXPECT_TRUE(v != v);
}

// ---- copies ----

TEST(Misuse, WrongDirection)
{
    float *x = floats(10);
    static float h[10];
    EXPECT_CAUGHT(cudaMemcpy(h, x, sizeof h, cudaMemcpyHostToDevice), "cudaMemcpy: cudaMemcpyHostToDevice, but");
    EXPECT_CAUGHT(cudaMemcpyAsync(x, h, sizeof h, cudaMemcpyDeviceToDevice, nullptr), "cudaMemcpyDeviceToDevice, but");
}

TEST(Misuse, CopyBehindTheEnd)
{
    float *x = floats(10);
    static float h[20];
    EXPECT_CAUGHT(cudaMemcpy(h, x, 44, cudaMemcpyDeviceToHost), "cudaMemcpy of 44 bytes is not inside");
    EXPECT_CAUGHT(cudaMemsetAsync(x + 5, 0, 24, nullptr), "cudaMemsetAsync of 24 bytes is not inside");
}

// ---- streams ----

TEST(Misuse, DestroyedStream)
{
    cudaStream_t s;
    cudaStreamCreate(&s);
    cudaStreamDestroy(s);
    EXPECT_CAUGHT(cudaStreamSynchronize(s), "is no stream, or one that was destroyed");
}

TEST(Misuse, DestroyedEvent)
{
    cudaEvent_t e;
    cudaEventCreate(&e);
    cudaEventDestroy(e);
    EXPECT_CAUGHT(cudaEventRecord(e, nullptr), "is no event, or one that was destroyed");
}

TEST(Misuse, LibraryInAFunctionOfAStream)
{
    const auto synchronize = [](void *) { cudaDeviceSynchronize(); };
    EXPECT_CAUGHT(cudaLaunchHostFunc(nullptr, synchronize, nullptr), "called by an operation of a stream");
}

TEST(Misuse, QueuesAreShown)
{
    const fakecuda::KeepSettings keep;
    fakecuda::settings().schedule = fakecuda::Schedule::lazy;
    float *x = floats(10);
    EXPECT_CAUGHT(
        {
            kernels::store(x, 2000, 1.0f);
            kernels::add(x, 1.0f, 10);
        },
        "stream 0: store_kernel, add_kernel");
}

} // namespace
