// Devices, memory and errors of the runtime, and the faults that a test may ask for.
#include "tests/fakecuda/fakecuda.h"
#include "tests/fakecuda/settings.h"
#include "tests/fakecuda/tests/buffers.h"
#include "tests/fakecuda/tests/kernels.h"

#include <cstdlib>
#include <cstring>

using fakecuda::KeepSettings;
using fakecuda::settings;

namespace
{

TEST(Runtime, TellsOfItsDevices)
{
    const KeepSettings keep;
    int n = 0, value = 0;
    settings().devices = 3;
    ASSERT_EQ(cudaGetDeviceCount(&n), cudaSuccess);
    EXPECT_EQ(n, 3);
    EXPECT_EQ(cudaSetDevice(3), cudaErrorInvalidDevice);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
    cudaDeviceProp p;
    ASSERT_EQ(cudaGetDeviceProperties(&p, 2), cudaSuccess);
    EXPECT_EQ(p.warpSize, 32);
    EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 2), cudaSuccess);
    EXPECT_EQ(static_cast<size_t>(value), p.sharedMemPerBlockOptin);
    settings().devices = 0;
    EXPECT_EQ(cudaGetDeviceCount(&n), cudaErrorNoDevice);
    EXPECT_STREQ(cudaGetErrorName(cudaGetLastError()), "cudaErrorNoDevice");
    EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
}

// In a process that has no memory yet: one device a process is imitated.
TEST(Runtime, ChangesItsDevice)
{
    testing::GTEST_FLAG(death_test_style) = "threadsafe";
    EXPECT_EXIT(
        {
            int device = -1;
            void *p = nullptr;
            const bool chosen = cudaSetDevice(2) == cudaSuccess && cudaGetDevice(&device) == cudaSuccess;
            if (!chosen || device != 2 || cudaMalloc(&p, 8) != cudaSuccess)
                exit(1);
            cudaSetDevice(1);
        },
        testing::ExitedWithCode(97), "the device changes from 2 to 1 with memory allocated");
}

TEST(Runtime, HasAsMuchMemoryAsItIsGiven)
{
    const KeepSettings keep;
    void *a = nullptr, *b = nullptr;
    size_t free_bytes = 0, total = 0;
    const size_t before = fakecuda_allocated();
    settings().memory = before + 1000;
    const long calls = fakecuda_allocations();
    ASSERT_EQ(cudaMalloc(&a, 700), cudaSuccess);
    EXPECT_EQ(cudaMemGetInfo(&free_bytes, &total), cudaSuccess);
    EXPECT_EQ(free_bytes, 300u);
    EXPECT_EQ(total, before + 1000);
    EXPECT_EQ(cudaMalloc(&b, 301), cudaErrorMemoryAllocation);
    EXPECT_EQ(b, nullptr);
    EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
    ASSERT_EQ(cudaMalloc(&b, 300), cudaSuccess);
    EXPECT_EQ(fakecuda_allocated() - before, 1000u);
    EXPECT_EQ(cudaFree(a), cudaSuccess);
    EXPECT_EQ(cudaFree(b), cudaSuccess);
    EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
    EXPECT_EQ(fakecuda_allocated(), before);
    EXPECT_GE(fakecuda_high_water(), before + 1000);
    EXPECT_EQ(fakecuda_allocations() - calls, 2);
}

TEST(Runtime, KnowsItsPointers)
{
    void *pinned = nullptr;
    DeviceArray<float> x(10);
    ASSERT_EQ(cudaMallocHost(&pinned, 100), cudaSuccess);
    cudaPointerAttributes a;
    EXPECT_EQ(cudaPointerGetAttributes(&a, x.get() + 3), cudaSuccess);
    EXPECT_EQ(a.type, cudaMemoryTypeDevice);
    EXPECT_EQ(cudaPointerGetAttributes(&a, pinned), cudaSuccess);
    EXPECT_EQ(a.type, cudaMemoryTypeHost);
    EXPECT_EQ(cudaPointerGetAttributes(&a, &a), cudaSuccess);
    EXPECT_EQ(a.type, cudaMemoryTypeUnregistered);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(x.get()) % 256, 0u);
    EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

// Each in a process of its own: the calls are counted from its start.
TEST(Faults, TheNthCallFails)
{
    const KeepSettings keep;
    void *p = nullptr;
    settings().fault = {"cudaMalloc", 2};
    EXPECT_EQ(cudaMalloc(&p, 8), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&p, 8), cudaErrorMemoryAllocation);
    EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
    EXPECT_EQ(cudaMalloc(&p, 8), cudaSuccess);
}

TEST(Faults, AKernelFailsByName)
{
    const KeepSettings keep;
    settings().fault = {"scale_kernel", 1};
    DeviceArray<float> x(std::vector<float>(4, 1.0f));
    kernels::add(x.get(), 1.0f, 4);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    kernels::scale(x.get(), x.get(), 3.0f, 4);
    EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
    EXPECT_EQ(x.values(), std::vector<float>(4, 2.0f));
}

TEST(Faults, OfATemplateByItsBareName)
{
    const KeepSettings keep;
    settings().fault = {"product_kernel", 1};
    DeviceArray<uint16_t> a(256), b(128);
    DeviceArray<float> d(128);
    kernels::product(d.get(), a.get(), b.get(), true);
    EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
}

TEST(Faults, AreReadFromTheEnvironmentForOneRank)
{
    const auto fault_on = [](const char *rank) {
        setenv("PMI_RANK", rank, 1);
        setenv("FAKECUDA_FAULT", "cudaMalloc:1:2", 1);
        void *p = nullptr;
        exit(cudaMalloc(&p, 8) == cudaErrorMemoryAllocation ? 1 : 0);
    };
    testing::GTEST_FLAG(death_test_style) = "threadsafe"; // settings are read once a process
    EXPECT_EXIT(fault_on("2"), testing::ExitedWithCode(1), "");
    EXPECT_EXIT(fault_on("1"), testing::ExitedWithCode(0), "");
}

TEST(Settings, AWrongOneIsSaid)
{
    testing::GTEST_FLAG(death_test_style) = "threadsafe";
    EXPECT_EXIT(
        {
            setenv("FAKECUDA_SCHEDULE", "sometimes", 1);
            cudaDeviceSynchronize();
        },
        testing::ExitedWithCode(97), "FAKECUDA_SCHEDULE=sometimes: eager, lazy or random");
}

} // namespace
