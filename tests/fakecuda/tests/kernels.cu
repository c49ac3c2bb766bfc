// Kernels that use, and misuse, what the emulation imitates.
#include "kernels/cuda/ptx.cuh"

#include "tests/fakecuda/tests/kernels.h"

#include <math.h>

namespace
{

constexpr unsigned kAll = 0xffffffffu;

__global__ void scale_kernel(float *y, const float *x, float a, long n)
{
    const long i = static_cast<long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = a * x[i];
}

__global__ void add_kernel(float *x, float a, long n)
{
    for (long i = static_cast<long>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        x[i] += a;
}

__global__ void lanes_kernel(long long *out, kernels::Lanes which)
{
    using kernels::Lanes;
    const int l = static_cast<int>(threadIdx.x), v = 10 * l;
    long long r = -1;
    switch (which) {
    case Lanes::shuffle_3:
        r = __shfl_sync(kAll, v, 3);
        break;
    case Lanes::shuffle_width_8:
        r = __shfl_sync(kAll, v, 11, 8);
        break;
    case Lanes::shuffle_xor_1:
        r = __shfl_xor_sync(kAll, v, 1);
        break;
    case Lanes::shuffle_xor_width_4:
        r = __shfl_xor_sync(kAll, v, 4, 4);
        break;
    case Lanes::shuffle_down_3:
        r = __shfl_down_sync(kAll, v, 3);
        break;
    case Lanes::shuffle_down_width_8:
        r = __shfl_down_sync(kAll, v, 3, 8);
        break;
    case Lanes::shuffle_up_3:
        r = __shfl_up_sync(kAll, v, 3);
        break;
    case Lanes::shuffle_up_width_8:
        r = __shfl_up_sync(kAll, v, 3, 8);
        break;
    case Lanes::shuffle_double:
        r = static_cast<long long>(4 * __shfl_xor_sync(kAll, 0.25 + l, 16));
        break;
    case Lanes::ballot_odd:
        r = __ballot_sync(kAll, l & 1);
        break;
    case Lanes::ballot_half:
        if (l < 16)
            r = __ballot_sync(0x0000ffffu, l == 3);
        break;
    case Lanes::any_of_7:
        r = __any_sync(kAll, l == 7);
        break;
    case Lanes::all_of_7:
        r = __all_sync(kAll, l != 7) + 2 * __all_sync(kAll, l < 32);
        break;
    case Lanes::match_mod_3:
        r = __match_any_sync(kAll, l % 3);
        break;
    case Lanes::reduce_add:
        r = __reduce_add_sync(kAll, l - 20);
        break;
    case Lanes::reduce_max:
        r = __reduce_max_sync(kAll, l - 20);
        break;
    case Lanes::reduce_min:
        r = __reduce_min_sync(kAll, l - 20);
        break;
    }
    out[l] = r;
}

__global__ void votes_kernel(int *out)
{
    const int third = threadIdx.x % 3 == 0;
    int passed = 0;
    const int any = __syncthreads_or(third);
    passed++;
    const int all = __syncthreads_and(third);
    passed++;
    const int count = __syncthreads_count(third);
    passed++;
    __syncthreads();
    if (threadIdx.x == blockDim.x - 1) {
        out[0] = any;
        out[1] = all;
        out[2] = count;
        out[3] = passed;
    }
}

__global__ void indices_kernel(int *out)
{
    const int in_block = static_cast<int>(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
    const int number = static_cast<int>(blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
    const int size = static_cast<int>(blockDim.x * blockDim.y * blockDim.z);
    out[number * size + in_block] =
        static_cast<int>(threadIdx.x + 100 * threadIdx.y + 10000 * threadIdx.z) + 1000000 * number;
}

__global__ void arrivals_kernel(int *order)
{
    __shared__ int next;
    if (threadIdx.x == 0)
        next = 0;
    __syncthreads();
    order[atomicAdd(&next, 1)] = static_cast<int>(threadIdx.x);
}

struct Sums {
    int i, least, most, last;
    unsigned u, swapped;
    unsigned long long ull;
    float f;
    double d;
};

__global__ void atomics_kernel(Sums *s)
{
    const int t = static_cast<int>(threadIdx.x);
    atomicAdd(&s->i, t);
    atomicMin(&s->least, t - 100);
    atomicMax(&s->most, t - 100);
    atomicExch(&s->last, 7);
    atomicAdd(&s->u, 2u);
    atomicCAS(&s->swapped, 5u, 6u);
    atomicAdd(&s->ull, 1ull << 33);
    atomicAdd(&s->f, 0.5f);
    atomicAdd(&s->d, 0.25);
}

template <class T> __global__ void product_kernel(float *d, const uint16_t *a, const uint16_t *b)
{
    const int g = static_cast<int>(threadIdx.x) / 4, t = static_cast<int>(threadIdx.x) % 4 * 2;
    uint32_t ra[4], rb[2];
    float rd[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    for (int i = 0; i < 4; i++) {
        const uint16_t *at = a + (g + i % 2 * 8) * 16 + t + i / 2 * 8;
        ra[i] = at[0] | static_cast<uint32_t>(at[1]) << 16;
    }
    for (int i = 0; i < 2; i++)
        rb[i] = b[(t + i * 8) * 8 + g] | static_cast<uint32_t>(b[(t + i * 8 + 1) * 8 + g]) << 16;
    plait_mma(rd, ra, rb, T());
    for (int i = 0; i < 4; i++)
        d[(g + i / 2 * 8) * 8 + t + i % 2] = rd[i];
}

__global__ void matrices_kernel(uint32_t *out, const uint16_t *rows, bool transposed)
{
    __shared__ uint16_t tile[32 * 8];
    for (int c = 0; c < 8; c++)
        tile[threadIdx.x * 8 + c] = rows[threadIdx.x * 8 + c];
    __syncwarp();
    uint32_t r[4];
    if (transposed)
        plait_ldmatrix_x4_trans(r, tile + threadIdx.x * 8);
    else
        plait_ldmatrix_x4(r, tile + threadIdx.x * 8);
    for (int i = 0; i < 4; i++)
        out[threadIdx.x * 4 + i] = r[i];
}

__global__ void copy_async_kernel(char *out, const char *in, int valid)
{
    PLAIT_DYNAMIC_SHARED(char, tile);
    plait_cp_async_16(tile + threadIdx.x * 16, in + threadIdx.x * 16, valid);
    plait_cp_async_commit();
    plait_cp_async_wait<0>();
    __syncthreads();
    const unsigned other = blockDim.x - 1 - threadIdx.x;
    for (int i = 0; i < 16; i++)
        out[other * 16 + i] = tile[other * 16 + i];
}

__global__ void fresh_shared_kernel(float *out)
{
    __shared__ float fixed;
    PLAIT_DYNAMIC_SHARED(float, dynamic);
    out[2 * blockIdx.x] = fixed;
    out[2 * blockIdx.x + 1] = dynamic[3];
    fixed = dynamic[3] = 1.0f;
}

__global__ void block_sum_kernel(float *out, const float *x, int barriers)
{
    __shared__ float part[256];
    for (int round = 0; round < 2; round++) {
        part[threadIdx.x] = x[threadIdx.x] + static_cast<float>(round);
        if (barriers & 1)
            __syncthreads();
        float sum = 0.0f;
        for (unsigned i = 0; i < blockDim.x; i++)
            sum += part[i];
        if (barriers & 2)
            __syncthreads();
        if (threadIdx.x == 0)
            out[round] = sum;
    }
}

__global__ void warp_sum_kernel(float *out, const float *x, int barriers)
{
    __shared__ float part[256];
    float *mine = part + threadIdx.x / 32 * 32;
    const unsigned lane = threadIdx.x % 32;
    for (int round = 0; round < 2; round++) {
        mine[lane] = x[threadIdx.x] + static_cast<float>(round);
        if (barriers & 1)
            __syncwarp();
        float sum = 0.0f;
        for (int i = 0; i < 32; i++)
            sum += mine[i];
        if (barriers & 2)
            __syncwarp();
        if (lane == 0)
            out[round * 8 + threadIdx.x / 32] = sum;
    }
}

__global__ void pipeline_kernel(float *out, const float *x, bool wait, bool barrier)
{
    __shared__ float tile[2][128];
    float sum = 0.0f;
    for (int step = 0; step < 4; step++) {
        float *to = tile[step % 2];
        if (threadIdx.x < 32)
            plait_cp_async_16(to + 4 * threadIdx.x, x + 128 * step + 4 * threadIdx.x, 16);
        plait_cp_async_commit();
        if (wait)
            plait_cp_async_wait<0>();
        if (barrier)
            __syncthreads();
        sum += to[127 - threadIdx.x];
    }
    plait_cp_async_wait<0>();
    out[threadIdx.x] = sum;
}

__global__ void store_kernel(float *x, long at, float value)
{
    x[at] = value;
}

__global__ void load_kernel(float *out, const float *x, long at)
{
    *out = x[at];
}

__global__ void load_vector_kernel(float *out, const float *x, long at)
{
    *reinterpret_cast<uint4 *>(out) = *reinterpret_cast<const uint4 *>(x + at);
}

__global__ void load_double_kernel(float *out, const float *x, long at)
{
    *reinterpret_cast<double *>(out) = *reinterpret_cast<const double *>(x + at);
}

__global__ void divergent_barrier_kernel(int)
{
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
}

__global__ void lonely_barrier_kernel(int)
{
    if (threadIdx.x == 0)
        __syncwarp();
    else
        __syncthreads();
}

__global__ void bad_mask_kernel(int)
{
    if (threadIdx.x == 5)
        __syncwarp(1u << 4);
}

__global__ void exited_lane_kernel(int *out)
{
    if (threadIdx.x == 9)
        return;
    out[threadIdx.x] = __shfl_sync(kAll, static_cast<int>(threadIdx.x), 9);
}

__global__ void mixed_operations_kernel(int)
{
    if (threadIdx.x & 1)
        __shfl_sync(kAll, 1, 0);
    else
        __ballot_sync(kAll, 1);
}

__global__ void misaligned_matrix_kernel(int)
{
    __shared__ uint16_t tile[32 * 8 + 8];
    uint32_t r[4];
    plait_ldmatrix_x4(r, tile + threadIdx.x * 8 + 1);
}

__global__ void misaligned_copy_kernel(const char *from)
{
    __shared__ char tile[64];
    plait_cp_async_16(tile, from + 4, 16);
}

__global__ void copy_at_end_kernel(const char *from)
{
    __shared__ char tile[64];
    plait_cp_async_16(tile, from, 16);
    plait_cp_async_commit();
}

__global__ void dynamic_shared_kernel(long at)
{
    PLAIT_DYNAMIC_SHARED(char, bytes);
    bytes[at] = 1;
}

__device__ __attribute__((noinline)) int deep(int n, int *out)
{
    volatile char room[4096];
    room[n % 4096] = 1;
    *out = n;
    return n == 0 ? room[0] : deep(n - 1, out) + room[n % 4096];
}

__global__ void deep_stack_kernel(int *out)
{
    *out = deep(1000, out);
}

__global__ void nothing_kernel(int) {}

__global__ void same_place_kernel(float *x, bool atomic)
{
    if (threadIdx.x != 0)
        return;
    if (atomic)
        atomicAdd(x, 1.0f);
    else
        *x = 1.0f;
}

__global__ void byte_each_kernel(unsigned char *x, int n)
{
    if (static_cast<int>(threadIdx.x) < n)
        x[threadIdx.x] = static_cast<unsigned char>(threadIdx.x);
}

__global__ void read_write_kernel(float *x)
{
    const float next = x[(threadIdx.x + 1) % blockDim.x];
    x[threadIdx.x] = next;
}

__global__ void both_read_kernel(float *out, const float *x)
{
    out[blockIdx.x * blockDim.x + threadIdx.x] = x[0] + x[threadIdx.x];
}

} // namespace

namespace kernels
{

void scale(float *y, const float *x, float a, long n, cudaStream_t stream)
{
    PLAIT_LAUNCH(scale_kernel, static_cast<unsigned>((n + 255) / 256), 256, 0, stream, y, x, a, n);
}

void add(float *x, float a, long n, cudaStream_t stream)
{
    PLAIT_LAUNCH(add_kernel, 2, 128, 0, stream, x, a, n);
}

void lanes(long long *out, Lanes which)
{
    PLAIT_LAUNCH(lanes_kernel, 1, 32, 0, nullptr, out, which);
}

void votes(int *out, int threads)
{
    PLAIT_LAUNCH(votes_kernel, 1, static_cast<unsigned>(threads), 0, nullptr, out);
}

void indices(int *out, dim3 grid, dim3 block)
{
    PLAIT_LAUNCH(indices_kernel, grid, block, 0, nullptr, out);
}

void arrivals(int *order)
{
    PLAIT_LAUNCH(arrivals_kernel, 1, 64, 0, nullptr, order);
}

void atomics(void *sums)
{
    PLAIT_LAUNCH(atomics_kernel, 2, 128, 0, nullptr, static_cast<Sums *>(sums));
}

void product(float *d, const uint16_t *a, const uint16_t *b, bool fp16)
{
    if (fp16)
        PLAIT_LAUNCH((product_kernel<__half>), 1, 32, 0, nullptr, d, a, b);
    else
        PLAIT_LAUNCH((product_kernel<__nv_bfloat16>), 1, 32, 0, nullptr, d, a, b);
}

void matrices(uint32_t *out, const uint16_t *rows, bool transposed)
{
    PLAIT_LAUNCH(matrices_kernel, 1, 32, 0, nullptr, out, rows, transposed);
}

void copy_async(char *out, const char *in, int valid, int threads)
{
    const unsigned n = static_cast<unsigned>(threads);
    PLAIT_LAUNCH(copy_async_kernel, 1, n, 16 * n, nullptr, out, in, valid);
}

void fresh_shared(float *out)
{
    PLAIT_LAUNCH(fresh_shared_kernel, 4, 1, 64, nullptr, out);
}

void block_sum(float *out, const float *x, int barriers)
{
    PLAIT_LAUNCH(block_sum_kernel, 1, 256, 0, nullptr, out, x, barriers);
}

void warp_sum(float *out, const float *x, int barriers)
{
    PLAIT_LAUNCH(warp_sum_kernel, 1, 256, 0, nullptr, out, x, barriers);
}

void pipeline(float *out, const float *x, bool wait, bool barrier)
{
    PLAIT_LAUNCH(pipeline_kernel, 1, 128, 0, nullptr, out, x, wait, barrier);
}

void store(float *x, long at, float value, cudaStream_t stream)
{
    PLAIT_LAUNCH(store_kernel, 1, 1, 0, stream, x, at, value);
}

void load(float *out, const float *x, long at)
{
    PLAIT_LAUNCH(load_kernel, 1, 1, 0, nullptr, out, x, at);
}

void load_vector(float *out, const float *x, long at)
{
    PLAIT_LAUNCH(load_vector_kernel, 1, 1, 0, nullptr, out, x, at);
}

void load_double(float *out, const float *x, long at)
{
    PLAIT_LAUNCH(load_double_kernel, 1, 1, 0, nullptr, out, x, at);
}

void divergent_barrier()
{
    PLAIT_LAUNCH(divergent_barrier_kernel, 1, 64, 0, nullptr, 0);
}

void lonely_barrier()
{
    PLAIT_LAUNCH(lonely_barrier_kernel, 1, 64, 0, nullptr, 0);
}

void bad_mask()
{
    PLAIT_LAUNCH(bad_mask_kernel, 1, 32, 0, nullptr, 0);
}

void exited_lane(int *out)
{
    PLAIT_LAUNCH(exited_lane_kernel, 1, 32, 0, nullptr, out);
}

void mixed_operations()
{
    PLAIT_LAUNCH(mixed_operations_kernel, 1, 32, 0, nullptr, 0);
}

void misaligned_matrix()
{
    PLAIT_LAUNCH(misaligned_matrix_kernel, 1, 32, 0, nullptr, 0);
}

void misaligned_copy(const char *from)
{
    PLAIT_LAUNCH(misaligned_copy_kernel, 1, 1, 0, nullptr, from);
}

void copy_at_end(const char *from)
{
    PLAIT_LAUNCH(copy_at_end_kernel, 1, 1, 0, nullptr, from);
}

void dynamic_shared(long at, size_t bytes)
{
    PLAIT_LAUNCH(dynamic_shared_kernel, 1, 1, bytes, nullptr, at);
}

void deep_stack(int *out)
{
    PLAIT_LAUNCH(deep_stack_kernel, 1, 1, 0, nullptr, out);
}

void null_pointer()
{
    PLAIT_LAUNCH(store_kernel, 1, 1, 0, nullptr, nullptr, 1, 1.0f);
}

cudaError_t launch_of(dim3 grid, dim3 block, size_t shared)
{
    PLAIT_LAUNCH(nothing_kernel, grid, block, shared, nullptr, 0);
    return cudaGetLastError();
}

cudaError_t allow_shared(int bytes)
{
    return cudaFuncSetAttribute(nothing_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

void same_place(float *x, int blocks, bool atomic)
{
    PLAIT_LAUNCH(same_place_kernel, static_cast<unsigned>(blocks), 32, 0, nullptr, x, atomic);
}

void byte_each(unsigned char *x, int n)
{
    PLAIT_LAUNCH(byte_each_kernel, 1, 64, 0, nullptr, x, n);
}

void read_write(float *x)
{
    PLAIT_LAUNCH(read_write_kernel, 1, 64, 0, nullptr, x);
}

void both_read(float *out, const float *x)
{
    PLAIT_LAUNCH(both_read_kernel, 4, 64, 0, nullptr, out, x);
}

} // namespace kernels
