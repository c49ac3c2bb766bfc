// tests/fakecuda/tests/device_array.h: arrays on the device for tests of the emulated libraries, and numbers for them.
#ifndef PLAIT_TESTS_FAKECUDA_DEVICE_ARRAY_H
#define PLAIT_TESTS_FAKECUDA_DEVICE_ARRAY_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

// Bytes on the device, uninitialized at first.
class DeviceBytes
{
  public:
    explicit DeviceBytes(size_t size) : size_(size)
    {
        if (cudaMalloc(&p_, size ? size : 1) != cudaSuccess)
            p_ = nullptr;
    }
    ~DeviceBytes() { cudaFree(p_); }
    DeviceBytes(const DeviceBytes &) = delete;
    char *at(size_t offset = 0) const { return static_cast<char *>(p_) + offset; }
    size_t size() const { return size_; }

  private:
    void *p_;
    size_t size_;
};

// Elements of T on the device.
template <typename T> class DeviceArray : public DeviceBytes
{
  public:
    explicit DeviceArray(size_t count) : DeviceBytes(count * sizeof(T)) {}
    explicit DeviceArray(const std::vector<T> &values) : DeviceArray(values.size())
    {
        cudaMemcpy(at(), values.data(), size(), cudaMemcpyHostToDevice);
        cudaDeviceSynchronize(); // the copy's last part may come after cudaMemcpy
    }
    T *data() const { return reinterpret_cast<T *>(at()); }
    // After all streams.
    std::vector<T> values() const
    {
        std::vector<T> v(size() / sizeof(T));
        cudaDeviceSynchronize();
        cudaMemcpy(v.data(), at(), size(), cudaMemcpyDeviceToHost);
        return v;
    }
};

inline float to_float(float x)
{
    return x;
}
inline float to_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
inline float to_float(__half x)
{
    return __half2float(x);
}
template <typename T> T from_float(float x)
{
    return static_cast<T>(x);
}
template <> inline __nv_bfloat16 from_float(float x)
{
    return __float2bfloat16_rn(x);
}
template <> inline __half from_float(float x)
{
    return __float2half_rn(x);
}

// Numbers in [-1, 1), rounded to T.
template <typename T> std::vector<T> some_numbers(size_t count, unsigned seed)
{
    std::vector<T> v(count);
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    for (T &x : v) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x = from_float<T>(static_cast<float>(state >> 40) / 8388608.0f - 1.0f);
    }
    return v;
}

#endif
