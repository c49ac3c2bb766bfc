// tests/fakecuda/device/fakecuda_math.h: functions of the device that the C library has not. What is fast and less
// exact there is exact here.
#ifndef PLAIT_TESTS_FAKECUDA_DEVICE_FAKECUDA_MATH_H
#define PLAIT_TESTS_FAKECUDA_DEVICE_FAKECUDA_MATH_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <math.h>
#include <type_traits>

inline float rsqrtf(float x)
{
    return static_cast<float>(1.0 / sqrt(static_cast<double>(x)));
}
inline double rsqrt(double x)
{
    return 1.0 / sqrt(x);
}
inline float rsqrt(float x)
{
    return rsqrtf(x);
}
inline float __expf(float x)
{
    return expf(x);
}
inline float __exp10f(float x)
{
    return powf(10.0f, x);
}
inline float __logf(float x)
{
    return logf(x);
}
inline float __log2f(float x)
{
    return log2f(x);
}
inline float __log10f(float x)
{
    return log10f(x);
}
inline float __powf(float x, float y)
{
    return powf(x, y);
}
inline float __sinf(float x)
{
    return sinf(x);
}
inline float __cosf(float x)
{
    return cosf(x);
}
inline void __sincosf(float x, float *s, float *c)
{
    sincosf(x, s, c);
}
inline float __fdividef(float x, float y)
{
    return x / y;
}
inline float __saturatef(float x)
{
    return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; // NaN becomes 0, as there
}
// One rounding each, never joined with another.
inline float __fadd_rn(float x, float y)
{
    return x + y;
}
inline float __fsub_rn(float x, float y)
{
    return x - y;
}
inline float __fmul_rn(float x, float y)
{
    return x * y;
}
inline float __fdiv_rn(float x, float y)
{
    return x / y;
}
inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}
inline float __frsqrt_rn(float x)
{
    return rsqrtf(x);
}
inline float __frcp_rn(float x)
{
    return 1.0f / x;
}
inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}
inline double __dadd_rn(double x, double y)
{
    return x + y;
}
inline double __dsub_rn(double x, double y)
{
    return x - y;
}
inline double __dmul_rn(double x, double y)
{
    return x * y;
}
inline double __ddiv_rn(double x, double y)
{
    return x / y;
}
inline double __fma_rn(double x, double y, double z)
{
    return fma(x, y, z);
}

namespace fakecuda
{

template <class To, class From> inline To bits_of(From from)
{
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

// Conversions saturate on a GPU; NaN becomes 0.
template <class To, class From> inline To to_integer(From x)
{
    const double least = static_cast<double>(std::numeric_limits<To>::min());
    const double most = static_cast<double>(std::numeric_limits<To>::max());
    if (!(x == x))
        return 0;
    if (x <= least)
        return std::numeric_limits<To>::min();
    return x >= most ? std::numeric_limits<To>::max() : static_cast<To>(x);
}

} // namespace fakecuda

inline int __float_as_int(float x)
{
    return fakecuda::bits_of<int>(x);
}
inline unsigned __float_as_uint(float x)
{
    return fakecuda::bits_of<unsigned>(x);
}
inline float __int_as_float(int x)
{
    return fakecuda::bits_of<float>(x);
}
inline float __uint_as_float(unsigned x)
{
    return fakecuda::bits_of<float>(x);
}
inline long long __double_as_longlong(double x)
{
    return fakecuda::bits_of<long long>(x);
}
inline double __longlong_as_double(long long x)
{
    return fakecuda::bits_of<double>(x);
}
inline int __float2int_rn(float x)
{
    return fakecuda::to_integer<int>(rintf(x));
}
inline int __float2int_rz(float x)
{
    return fakecuda::to_integer<int>(truncf(x));
}
inline int __float2int_rd(float x)
{
    return fakecuda::to_integer<int>(floorf(x));
}
inline unsigned __float2uint_rn(float x)
{
    return fakecuda::to_integer<unsigned>(rintf(x));
}
inline long long __float2ll_rn(float x)
{
    return fakecuda::to_integer<long long>(rintf(x));
}
inline long long __double2ll_rn(double x)
{
    return fakecuda::to_integer<long long>(rint(x));
}
inline long long __double2ll_rz(double x)
{
    return fakecuda::to_integer<long long>(trunc(x));
}
inline int __double2int_rn(double x)
{
    return fakecuda::to_integer<int>(rint(x));
}
inline float __double2float_rn(double x)
{
    return static_cast<float>(x);
}
inline float __int2float_rn(int x)
{
    return static_cast<float>(x);
}
inline float __uint2float_rn(unsigned x)
{
    return static_cast<float>(x);
}
inline float __ll2float_rn(long long x)
{
    return static_cast<float>(x);
}
inline double __ll2double_rn(long long x)
{
    return static_cast<double>(x);
}
inline double __ull2double_rn(unsigned long long x)
{
    return static_cast<double>(x);
}

inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
inline int __clz(int x)
{
    return x ? __builtin_clz(static_cast<unsigned>(x)) : 32;
}
inline int __clzll(long long x)
{
    return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64;
}
inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}
inline unsigned __brev(unsigned x)
{
    return __builtin_bitreverse32(x);
}
inline unsigned __umulhi(unsigned x, unsigned y)
{
    return static_cast<unsigned>(static_cast<uint64_t>(x) * y >> 32);
}
inline int __mulhi(int x, int y)
{
    return static_cast<int>(static_cast<int64_t>(x) * y >> 32);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y)
{
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(x) * y >> 64);
}
inline long long __mul64hi(long long x, long long y)
{
    return static_cast<long long>(static_cast<__int128>(x) * y >> 64);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift)
{
    return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31));
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    const uint64_t bytes = static_cast<uint64_t>(y) << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned pick = selector >> (4 * i) & 0xf;
        unsigned byte = static_cast<unsigned>(bytes >> (8 * (pick & 7))) & 0xff;
        if (pick & 8) // the sign of the byte in all of its bits
            byte = byte & 0x80 ? 0xff : 0;
        result |= byte << (8 * i);
    }
    return result;
}

// min and max of any two arithmetic types, as CUDA has them in the global namespace.
template <class A, class B> inline std::common_type_t<A, B> min(A a, B b)
{
    static_assert(std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, "of numbers");
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point_v<T>)
        return static_cast<T>(std::fmin(static_cast<T>(a), static_cast<T>(b)));
    else
        return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(a) : static_cast<T>(b);
}
template <class A, class B> inline std::common_type_t<A, B> max(A a, B b)
{
    static_assert(std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, "of numbers");
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point_v<T>)
        return static_cast<T>(std::fmax(static_cast<T>(a), static_cast<T>(b)));
    else
        return static_cast<T>(a) > static_cast<T>(b) ? static_cast<T>(a) : static_cast<T>(b);
}

// Address spaces are one here.
inline size_t __cvta_generic_to_shared(const void *at)
{
    return reinterpret_cast<size_t>(at);
}

inline void __nanosleep(unsigned) {}
[[noreturn]] inline void __trap()
{
    __builtin_trap();
}

#endif
