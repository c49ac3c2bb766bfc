// What kernels compute: indices, barriers, operations of warps, instructions, in every order of threads.
#include "tests/fakecuda/fakecuda.h"
#include "tests/fakecuda/settings.h"
#include "tests/fakecuda/tests/buffers.h"
#include "tests/fakecuda/tests/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <functional>
#include <set>

using fakecuda::Order;
using kernels::Lanes;

namespace
{

const char *name_of(Order order)
{
    return order == Order::forward ? "forward" : order == Order::reverse ? "reverse" : "random";
}

class InEachOrder : public testing::TestWithParam<Order>
{
  protected:
    void SetUp() override { fakecuda::settings().threads = GetParam(); }
    const fakecuda::KeepSettings keep;
};
INSTANTIATE_TEST_SUITE_P(, InEachOrder, testing::Values(Order::forward, Order::reverse, Order::random),
                         [](const auto &info) { return name_of(info.param); });

// ---- threads ----

TEST_P(InEachOrder, EveryThreadKnowsItsPlace)
{
    const dim3 grid(3, 2, 2), block(5, 3, 7);
    const int size = 5 * 3 * 7;
    DeviceArray<int> out(12 * size);
    kernels::indices(out.get(), grid, block);
    const std::vector<int> got = out.values();
    for (int b = 0; b < 12; b++)
        for (int t = 0; t < size; t++)
            ASSERT_EQ(got[b * size + t], t % 5 + 100 * (t / 5 % 3) + 10000 * (t / 15) + 1000000 * b);
}

TEST_P(InEachOrder, EveryElementIsComputedOnce)
{
    const long n = 10007;
    std::vector<float> x(n);
    for (long i = 0; i < n; i++)
        x[i] = static_cast<float>(i);
    DeviceArray<float> a(x), b(n);
    const long kernels_before = fakecuda_kernels(), threads_before = fakecuda_threads();
    kernels::scale(b.get(), a.get(), 3.0f, n);
    kernels::add(b.get(), 1.0f, n);
    const std::vector<float> got = b.values();
    for (long i = 0; i < n; i++)
        ASSERT_EQ(got[i], 3.0f * x[i] + 1.0f);
    EXPECT_EQ(fakecuda_kernels() - kernels_before, 2);
    EXPECT_EQ(fakecuda_threads() - threads_before, 40 * 256 + 2 * 128);
}

TEST(Threads, ComeInTheOrderThatIsAsked)
{
    const fakecuda::KeepSettings keep;
    DeviceArray<int> order(64);
    fakecuda::settings().threads = Order::forward;
    kernels::arrivals(order.get());
    const std::vector<int> forward = order.values();
    fakecuda::settings().threads = Order::reverse;
    kernels::arrivals(order.get());
    const std::vector<int> reverse = order.values();
    const auto before = [](const std::vector<int> &v, int a, int b) {
        return std::find(v.begin(), v.end(), a) < std::find(v.begin(), v.end(), b);
    };
    EXPECT_TRUE(before(forward, 0, 1) && before(forward, 1, 30));
    EXPECT_TRUE(before(reverse, 30, 1) && before(reverse, 1, 0));
    fakecuda::settings().threads = Order::random;
    fakecuda::reseed(1);
    kernels::arrivals(order.get());
    const std::vector<int> one = order.values();
    fakecuda::reseed(2);
    kernels::arrivals(order.get());
    const std::vector<int> two = order.values();
    fakecuda::reseed(1);
    kernels::arrivals(order.get());
    EXPECT_EQ(order.values(), one);
    EXPECT_NE(one, two);
    EXPECT_EQ(std::set<int>(one.begin(), one.end()).size(), 64u);
}

// ---- blocks ----

TEST_P(InEachOrder, VotesOfABlock)
{
    for (int threads : {1, 31, 32, 100, 1024}) {
        DeviceArray<int> out(4);
        kernels::votes(out.get(), threads);
        EXPECT_EQ(out.values(), (std::vector<int>{1, threads == 1, (threads + 2) / 3, 3})) << threads;
    }
}

TEST_P(InEachOrder, SharedMemoryIsUnwrittenInEachBlock)
{
    DeviceArray<float> out(8);
    kernels::fresh_shared(out.get());
    for (float v : out.values())
        EXPECT_TRUE(std::isnan(v));
}

TEST_P(InEachOrder, SumsThroughSharedMemory)
{
    std::vector<float> x(256);
    float all = 0.0f;
    for (int i = 0; i < 256; i++)
        all += x[i] = static_cast<float>(i % 11);
    DeviceArray<float> in(x), out(2), warps(16);
    kernels::block_sum(out.get(), in.get(), 3);
    EXPECT_EQ(out.values(), (std::vector<float>{all, all + 256.0f}));
    kernels::warp_sum(warps.get(), in.get(), 3);
    const std::vector<float> got = warps.values();
    for (int w = 0; w < 8; w++) {
        float sum = 0.0f;
        for (int i = 0; i < 32; i++)
            sum += x[32 * w + i];
        EXPECT_EQ(got[w], sum);
        EXPECT_EQ(got[8 + w], sum + 32.0f);
    }
}

TEST_P(InEachOrder, Atomics)
{
    struct Sums {
        int i, least, most, last;
        unsigned u, swapped;
        unsigned long long ull;
        float f;
        double d;
    };
    const Sums zero = {0, 0, 0, 0, 0, 5, 0, 0.0f, 0.0};
    DeviceArray<Sums> s(std::vector<Sums>{zero});
    kernels::atomics(s.get());
    const Sums got = s.values()[0];
    EXPECT_EQ(got.i, 2 * 127 * 64);
    EXPECT_EQ(got.least, -100);
    EXPECT_EQ(got.most, 27);
    EXPECT_EQ(got.last, 7);
    EXPECT_EQ(got.u, 512u);
    EXPECT_EQ(got.swapped, 6u);
    EXPECT_EQ(got.ull, 256ull << 33);
    EXPECT_EQ(got.f, 128.0f);
    EXPECT_EQ(got.d, 64.0);
}

// ---- warps ----

struct LanesCase {
    const char *name;
    Lanes which;
    std::function<long long(int)> want; // of a lane
};

long long third(int l)
{
    unsigned same = 0;
    for (int k = l % 3; k < 32; k += 3)
        same |= 1u << k;
    return same;
}

const LanesCase kLanesCases[] = {
    {"shuffle_3", Lanes::shuffle_3, [](int) { return 30; }},
    {"shuffle_width_8", Lanes::shuffle_width_8, [](int l) { return 10 * (l / 8 * 8 + 3); }},
    {"shuffle_xor_1", Lanes::shuffle_xor_1, [](int l) { return 10 * (l ^ 1); }},
    // Lane 4 up reads 4 down, which is in an earlier part; the other way it would read a later part, and reads itself.
    {"shuffle_xor_width_4", Lanes::shuffle_xor_width_4, [](int l) { return 10 * (l & 4 ? l ^ 4 : l); }},
    {"shuffle_down_3", Lanes::shuffle_down_3, [](int l) { return 10 * (l < 29 ? l + 3 : l); }},
    {"shuffle_down_width_8", Lanes::shuffle_down_width_8, [](int l) { return 10 * (l % 8 < 5 ? l + 3 : l); }},
    {"shuffle_up_3", Lanes::shuffle_up_3, [](int l) { return 10 * (l >= 3 ? l - 3 : l); }},
    {"shuffle_up_width_8", Lanes::shuffle_up_width_8, [](int l) { return 10 * (l % 8 >= 3 ? l - 3 : l); }},
    {"shuffle_double", Lanes::shuffle_double, [](int l) { return 1 + 4 * (l ^ 16); }},
    {"ballot_odd", Lanes::ballot_odd, [](int) { return 0xaaaaaaaall; }},
    {"ballot_half", Lanes::ballot_half, [](int l) { return l < 16 ? 8 : -1; }},
    {"any_of_7", Lanes::any_of_7, [](int) { return 1; }},
    {"all_of_7", Lanes::all_of_7, [](int) { return 2; }},
    {"match_mod_3", Lanes::match_mod_3, third},
    {"reduce_add", Lanes::reduce_add, [](int) { return 31 * 16 - 640; }},
    {"reduce_max", Lanes::reduce_max, [](int) { return 11; }},
    {"reduce_min", Lanes::reduce_min, [](int) { return -20; }},
};

TEST_P(InEachOrder, OperationsOfAWarp)
{
    for (const LanesCase &c : kLanesCases) {
        DeviceArray<long long> out(32);
        kernels::lanes(out.get(), c.which);
        const std::vector<long long> got = out.values();
        for (int l = 0; l < 32; l++)
            EXPECT_EQ(got[l], c.want(l)) << c.name << ", lane " << l;
    }
}

// ---- instructions ----

uint16_t bits_of(float x, bool fp16)
{
    uint16_t bits;
    if (fp16) {
        const __half h = __float2half(x);
        memcpy(&bits, &h, sizeof bits);
    } else {
        const __nv_bfloat16 b = __float2bfloat16(x);
        memcpy(&bits, &b, sizeof bits);
    }
    return bits;
}

TEST_P(InEachOrder, ProductOfAWarp)
{
    for (bool fp16 : {false, true}) {
        // Eighths: both types have them exactly, and so are the sums.
        const auto a = [](int m, int k) { return static_cast<float>((m * 7 + k * 3) % 19 - 9) / 8.0f; };
        const auto b = [](int k, int n) { return static_cast<float>((k * 5 + n * 11) % 23 - 11) / 8.0f; };
        std::vector<uint16_t> bits_a(16 * 16), bits_b(16 * 8);
        for (int m = 0; m < 16; m++)
            for (int k = 0; k < 16; k++)
                bits_a[m * 16 + k] = bits_of(a(m, k), fp16);
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 8; n++)
                bits_b[k * 8 + n] = bits_of(b(k, n), fp16);
        DeviceArray<uint16_t> on_a(bits_a), on_b(bits_b);
        DeviceArray<float> d(16 * 8);
        kernels::product(d.get(), on_a.get(), on_b.get(), fp16);
        const std::vector<float> got = d.values();
        for (int m = 0; m < 16; m++)
            for (int n = 0; n < 8; n++) {
                float want = 1.0f;
                for (int k = 0; k < 16; k++)
                    want += a(m, k) * b(k, n);
                EXPECT_EQ(got[m * 8 + n], want) << m << ", " << n;
            }
    }
}

TEST_P(InEachOrder, MatricesFromSharedMemory)
{
    std::vector<uint16_t> rows(32 * 8);
    for (int i = 0; i < 256; i++)
        rows[i] = static_cast<uint16_t>(i * 37 + 11);
    DeviceArray<uint16_t> in(rows);
    DeviceArray<uint32_t> out(32 * 4);
    for (bool transposed : {false, true}) {
        kernels::matrices(out.get(), in.get(), transposed);
        const std::vector<uint32_t> got = out.values();
        for (int l = 0; l < 32; l++)
            for (int i = 0; i < 4; i++)
                for (int h = 0; h < 2; h++) {
                    const int row = transposed ? l % 4 * 2 + h : l / 4, column = transposed ? l / 4 : l % 4 * 2 + h;
                    EXPECT_EQ(got[l * 4 + i] >> (16 * h) & 0xffff, rows[(8 * i + row) * 8 + column]);
                }
    }
}

TEST_P(InEachOrder, AsynchronousCopies)
{
    const int threads = 48;
    std::vector<char> x(threads * 16);
    for (size_t i = 0; i < x.size(); i++)
        x[i] = static_cast<char>(i % 100 + 1);
    DeviceArray<char> in(x), out(x.size());
    for (int valid : {16, 7, 0}) {
        kernels::copy_async(out.get(), in.get(), valid, threads);
        const std::vector<char> got = out.values();
        for (size_t i = 0; i < x.size(); i++)
            ASSERT_EQ(got[i], static_cast<int>(i % 16) < valid ? x[i] : 0) << i;
    }
}

// ---- launches ----

TEST(Launch, RefusesWhatADeviceRefuses)
{
    EXPECT_EQ(kernels::launch_of(1, 1024, 0), cudaSuccess);
    EXPECT_EQ(kernels::launch_of(1, 1025, 0), cudaErrorInvalidConfiguration);
    EXPECT_EQ(kernels::launch_of(0, 32, 0), cudaErrorInvalidConfiguration);
    EXPECT_EQ(kernels::launch_of(dim3(1, 65536), 32, 0), cudaErrorInvalidConfiguration);
    EXPECT_EQ(kernels::launch_of(1, dim3(1, 1, 65), 0), cudaErrorInvalidConfiguration);
    EXPECT_EQ(kernels::launch_of(70000, 1, 0), cudaSuccess);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(Launch, MoreThan48KBNeedsConsent)
{
    EXPECT_EQ(kernels::launch_of(1, 1, 48 * 1024), cudaSuccess);
    EXPECT_EQ(kernels::launch_of(1, 1, 48 * 1024 + 1), cudaErrorInvalidValue);
    EXPECT_EQ(kernels::allow_shared(100 * 1024), cudaSuccess);
    EXPECT_EQ(kernels::launch_of(1, 1, 100 * 1024), cudaSuccess);
    EXPECT_EQ(kernels::launch_of(1, 1, 100 * 1024 + 1), cudaErrorInvalidValue);
    EXPECT_EQ(kernels::allow_shared(227 * 1024 + 1), cudaErrorInvalidValue);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

} // namespace
