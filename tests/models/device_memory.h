// tests/models/device_memory.h: the memory that a training takes of a GPU, against its plan.
#ifndef PLAIT_TESTS_DEVICE_MEMORY_H
#define PLAIT_TESTS_DEVICE_MEMORY_H

#include <gtest/gtest.h>

#include <cstddef>

#if __has_include("fakecuda.h")
#include "fakecuda.h"

// To the byte, and how often something is allocated: the emulation counts.
class DeviceMemory
{
  public:
    void expect(size_t planned, int step)
    {
        EXPECT_EQ(fakecuda_allocated() - before_, planned) << "step " << step;
        if (step == 1)
            allocations_ = fakecuda_allocations();
        EXPECT_EQ(fakecuda_allocations(), allocations_) << "step " << step;
    }
    void expect_given_back() const { EXPECT_EQ(fakecuda_allocated(), before_); }

  private:
    const size_t before_ = fakecuda_allocated();
    long allocations_ = 0;
};
#else
#include "kernels/cuda/cuda.h"

// What the driver says: in pages of its own, with what NCCL and the libraries take.
class DeviceMemory
{
  public:
    void expect(size_t planned, int step)
    {
        if (step == 1)
            after_first_ = used();
        EXPECT_GE(used() - before_, planned) << "step " << step;
        EXPECT_EQ(used(), after_first_) << "step " << step;
    }
    void expect_given_back() const {} // the libraries keep theirs

  private:
    static size_t used()
    {
        size_t free_bytes = 0, total = 0;
        EXPECT_EQ(plait_backend_cuda()->memory(&free_bytes, &total), PLAIT_OK) << plait_error_text();
        return total - free_bytes;
    }
    const size_t before_ = used();
    size_t after_first_ = 0;
};
#endif

#endif
