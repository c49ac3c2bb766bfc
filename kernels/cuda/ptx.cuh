/* kernels/cuda/ptx.cuh: the instructions that CUDA C++ has no function for (PTX ISA 8: sections 9.7.9.25, 9.7.14).
 * Under PLAIT_FAKECUDA the same functions come from the emulation.
 */
#ifndef PLAIT_KERNELS_CUDA_PTX_CUH
#define PLAIT_KERNELS_CUDA_PTX_CUH

#include "kernels/cuda/device.cuh"

#ifndef PLAIT_FAKECUDA

/* d (16 x 8, fp32) += a (16 x 16, row) b (16 x 8, column), of a warp together. Lane l has, with g = l / 4, t = l % 4:
 * a: rows g, g + 8 and columns 2t, 2t + 1 (a[0], a[1]), the same with columns + 8 (a[2], a[3]); b: rows 2t, 2t + 1
 * (b[0]), + 8 (b[1]) of column g; d: rows g (d[0], d[1]) and g + 8 (d[2], d[3]) of columns 2t, 2t + 1. */
__device__ __forceinline__ void plait_mma(float d[4], const uint32_t a[4], const uint32_t b[2], __nv_bfloat16)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void plait_mma(float d[4], const uint32_t a[4], const uint32_t b[2], __half)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Four 8 x 8 matrices of 16-bit elements from shared memory: lanes 8i to 8i + 7 give the addresses of the rows of
 * matrix i (16 bytes each, aligned); lane l gets elements 2 (l % 4) and + 1 of row l / 4 of matrix i in r[i]. With
 * `trans` of the transposed matrix. */
__device__ __forceinline__ void plait_ldmatrix_x4(uint32_t r[4], const void *row)
{
    const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
__device__ __forceinline__ void plait_ldmatrix_x4_trans(uint32_t r[4], const void *row)
{
    const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* 16 bytes from global to shared memory, later; bytes beyond `valid` (0 to 16) become 0 and are not read. */
__device__ __forceinline__ void plait_cp_async_16(void *shared, const void *global, int valid)
{
    const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(valid) : "memory");
}
/* What this thread has begun since the last commit becomes a group. */
__device__ __forceinline__ void plait_cp_async_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits until at most N of this thread's newest groups are under way. */
template <int N> __device__ __forceinline__ void plait_cp_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

#endif
#endif
