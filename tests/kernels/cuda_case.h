// What tests of single operations on a GPU share: a stream, and an exec on it.
#ifndef PLAIT_TESTS_KERNELS_CUDA_CASE_H
#define PLAIT_TESTS_KERNELS_CUDA_CASE_H

#include <gtest/gtest.h>

#include "kernels/cuda/cuda_impl.h"
#include "tests/fakecuda/settings.h"
#include "tests/fakecuda/tests/device_array.h"

class CudaCase : public testing::Test
{
  protected:
    void SetUp() override
    {
        ASSERT_EQ(plait_backend_cuda()->open(0, 1), PLAIT_OK) << plait_error_text();
        ASSERT_EQ(plait_backend_cuda()->stream_create(&stream_), PLAIT_OK) << plait_error_text();
    }
    void TearDown() override
    {
        plait_backend_cuda()->stream_destroy(stream_);
        fakecuda::settings().fault = {};
    }

    // With the scratch from byte `skip` on.
    plait_exec exec_of(const plait_kernels &k, const DeviceBytes &scratch, size_t skip = 0)
    {
        plait_exec ex = {};
        ex.k = &k;
        ex.stream = stream_;
        ex.scratch = scratch.size() > 0 ? scratch.at(skip) : nullptr;
        ex.scratch_bytes = scratch.size() - skip;
        ex.threads = 1;
        return ex;
    }

  private:
    void *stream_ = nullptr;
};

#endif
