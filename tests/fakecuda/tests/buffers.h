// tests/fakecuda/tests/buffers.h: arrays on the device for tests.
#ifndef PLAIT_TESTS_FAKECUDA_TESTS_BUFFERS_H
#define PLAIT_TESTS_FAKECUDA_TESTS_BUFFERS_H

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <vector>

// Freed with the test; copies wait for everything.
template <class T> class DeviceArray
{
  public:
    explicit DeviceArray(size_t n) : n(n) { EXPECT_EQ(cudaMalloc(&bytes, n * sizeof(T)), cudaSuccess); }
    explicit DeviceArray(const std::vector<T> &values) : DeviceArray(values.size()) { set(values); }
    ~DeviceArray() { cudaFree(bytes); }
    DeviceArray(const DeviceArray &) = delete;
    DeviceArray &operator=(const DeviceArray &) = delete;

    T *get() { return static_cast<T *>(bytes); }
    void set(const std::vector<T> &values)
    {
        EXPECT_EQ(cudaMemcpy(bytes, values.data(), n * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
        EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    }
    std::vector<T> values()
    {
        std::vector<T> out(n);
        EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
        EXPECT_EQ(cudaMemcpy(out.data(), bytes, n * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
        return out;
    }

  private:
    size_t n;
    void *bytes = nullptr;
};

#endif
