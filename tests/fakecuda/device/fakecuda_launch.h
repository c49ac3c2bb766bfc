// tests/fakecuda/device/fakecuda_launch.h: a launch, with the arguments of the kernel kept until it runs.
//
//     launch("name", grid, block, shared bytes, stream, bind(kernel, arguments...))
#ifndef PLAIT_TESTS_FAKECUDA_DEVICE_FAKECUDA_LAUNCH_H
#define PLAIT_TESTS_FAKECUDA_DEVICE_FAKECUDA_LAUNCH_H

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace fakecuda
{

struct Launch {
    std::string name;
    const void *function; // identifies the kernel to cudaFuncSetAttribute
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
    // Runs one thread. The arguments are kept for it.
    void (*run)(const void *arguments);
    std::shared_ptr<const void> arguments;
    size_t size; // of the arguments, in bytes
};
void launch(Launch l);

// Dies when a kernel is given a pointer to memory of the host.
void check_argument(const char *kernel, int number, const void *pointer);

template <class... Parameters> struct Bound {
    void (*kernel)(Parameters...);
    std::tuple<std::decay_t<Parameters>...> arguments;
};

// Arguments are converted to the types of the parameters at the launch, as in a launch by nvcc.
template <class... Parameters, class... Arguments>
Bound<Parameters...> bind(void (*kernel)(Parameters...), Arguments &&...arguments)
{
    static_assert(sizeof...(Parameters) == sizeof...(Arguments), "a kernel takes all of its arguments");
    return {kernel, std::tuple<std::decay_t<Parameters>...>(
                        static_cast<std::decay_t<Parameters>>(std::forward<Arguments>(arguments))...)};
}

template <class T> void check_if_pointer(const char *kernel, int number, const T &argument)
{
    if constexpr (std::is_pointer_v<T>)
        if constexpr (!std::is_function_v<std::remove_pointer_t<T>>)
            check_argument(kernel, number, const_cast<const void *>(static_cast<const volatile void *>(argument)));
}

template <class... Parameters>
void launch(const char *name, dim3 grid, dim3 block, size_t shared, cudaStream_t stream, Bound<Parameters...> bound)
{
    std::apply(
        [&](const auto &...argument) {
            int number = 0;
            (check_if_pointer(name, ++number, argument), ...);
        },
        bound.arguments);
    const auto run = [](const void *arguments) {
        const auto &b = *static_cast<const Bound<Parameters...> *>(arguments);
        std::apply(b.kernel, b.arguments);
    };
    launch(Launch{name, reinterpret_cast<const void *>(bound.kernel), grid, block, shared, stream, run,
                  std::make_shared<Bound<Parameters...>>(bound), sizeof bound.arguments});
}

} // namespace fakecuda

// As cuda_runtime.h has them for nvcc alone.
template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute, int value)
{
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), attribute, value);
}
template <class... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, void (*kernel)(Parameters...))
{
    return cudaFuncGetAttributes(attributes, reinterpret_cast<const void *>(kernel));
}
template <class... Parameters>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void (*kernel)(Parameters...), int threads,
                                                          size_t shared)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, reinterpret_cast<const void *>(kernel), threads,
                                                         shared);
}

#endif
