// tests/fakecuda/tests/kernels.h: kernels that use, and misuse, what the emulation imitates. Each function launches
// one.
#ifndef PLAIT_TESTS_FAKECUDA_TESTS_KERNELS_H
#define PLAIT_TESTS_FAKECUDA_TESTS_KERNELS_H

#include <cuda_runtime.h>

#include <cstdint>

namespace kernels
{

// ---- values ----

// y[i] = a x[i]
void scale(float *y, const float *x, float a, long n, cudaStream_t stream = nullptr);
// x[i] += a, one after the other
void add(float *x, float a, long n, cudaStream_t stream = nullptr);
// out[i]: what each of 32 lanes got from operation `which`, see kernels.cu.
enum class Lanes {
    shuffle_3,
    shuffle_width_8,
    shuffle_xor_1,
    shuffle_xor_width_4,
    shuffle_down_3,
    shuffle_down_width_8,
    shuffle_up_3,
    shuffle_up_width_8,
    shuffle_double,
    ballot_odd,
    ballot_half,
    any_of_7,
    all_of_7,
    match_mod_3,
    reduce_add,
    reduce_max,
    reduce_min
};
void lanes(long long *out, Lanes which);
// out[0..3]: or, and, count over `threads` threads of (threadIdx.x % 3 == 0), and the number of barriers passed.
void votes(int *out, int threads);
// out[t] = where thread t of a block of (x, y, z) is: x + 100 y + 10000 z + 1000000 block.
void indices(int *out, dim3 grid, dim3 block);
// order[k] = the thread that came k-th, in a block of 64
void arrivals(int *order);
// sums[0..9] over 256 threads by atomic operations, see kernels.cu
void atomics(void *sums);
// d (16 x 8) = a (16 x 16) b (16 x 8), bf16 or fp16, by one warp
void product(float *d, const uint16_t *a, const uint16_t *b, bool fp16);
// out[l][i]: register i of lane l, of four 8 x 8 matrices one under the other
void matrices(uint32_t *out, const uint16_t *rows, bool transposed);
// out[i] = in[i], 16 bytes a thread through shared memory by cp.async; bytes beyond `valid` are 0
void copy_async(char *out, const char *in, int valid, int threads);
// out[0], out[1]: what a static and a dynamic shared variable hold at first, 4 blocks one after the other
void fresh_shared(float *out);
// A block sum of 256 numbers, and the same in warps with __syncwarp. `barriers`: bits of those that are there (of 2).
void block_sum(float *out, const float *x, int barriers);
void warp_sum(float *out, const float *x, int barriers);
// Two tiles in turn by cp.async: without the wait, or the barrier behind it.
void pipeline(float *out, const float *x, bool wait, bool barrier);

// ---- misuse ----

void store(float *x, long at, float value, cudaStream_t stream = nullptr);
void load(float *out, const float *x, long at);
void divergent_barrier();   // half of the threads wait at one line, half at another
void lonely_barrier();      // one thread waits for its warp, the others for the block
void bad_mask();            // a lane that its mask does not name
void exited_lane(int *out); // a shuffle from a lane that has ended
void mixed_operations();    // lanes of a warp in a shuffle and in a vote
void misaligned_matrix();
void load_vector(float *out, const float *x, long at); // 16 bytes from x + at
void load_double(float *out, const float *x, long at); // 8
void misaligned_copy(const char *from);
void copy_at_end(const char *from); // a thread ends before its cp.async
void dynamic_shared(long at, size_t bytes);
void deep_stack(int *out);
void null_pointer();
// Whether a launch of this size is accepted.
cudaError_t launch_of(dim3 grid, dim3 block, size_t shared);
cudaError_t allow_shared(int bytes);

// ---- races ----

void same_place(float *x, int blocks, bool atomic);
void byte_each(unsigned char *x, int n);
void read_write(float *x); // neighbours read what others write, no barrier between
void both_read(float *out, const float *x);

} // namespace kernels
#endif
