// tests/fakecuda/device/fakecuda_ptx.h: the functions of kernels/cuda/ptx.cuh, by the models of the emulation.
#ifndef PLAIT_TESTS_FAKECUDA_DEVICE_FAKECUDA_PTX_H
#define PLAIT_TESTS_FAKECUDA_DEVICE_FAKECUDA_PTX_H

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "tests/fakecuda/copies.h"
#include "tests/fakecuda/device/fakecuda_thread.h"

namespace fakecuda
{

inline void multiply(WarpOperation type, float d[4], const uint32_t a[4], const uint32_t b[2], Place place)
{
    const uint32_t in[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    meet_warp(type, 0xffffffffu, in, 0, d, place);
}

} // namespace fakecuda

inline void plait_mma(float d[4], const uint32_t a[4], const uint32_t b[2], __nv_bfloat16,
                      fakecuda::Place place = fakecuda::Place::here())
{
    fakecuda::multiply(fakecuda::WarpOperation::mma_bf16, d, a, b, place);
}
inline void plait_mma(float d[4], const uint32_t a[4], const uint32_t b[2], __half,
                      fakecuda::Place place = fakecuda::Place::here())
{
    fakecuda::multiply(fakecuda::WarpOperation::mma_fp16, d, a, b, place);
}

inline void plait_ldmatrix_x4(uint32_t r[4], const void *row, fakecuda::Place place = fakecuda::Place::here())
{
    fakecuda::meet_warp(fakecuda::WarpOperation::ldmatrix, 0xffffffffu, row, 0, r, place);
}
inline void plait_ldmatrix_x4_trans(uint32_t r[4], const void *row, fakecuda::Place place = fakecuda::Place::here())
{
    fakecuda::meet_warp(fakecuda::WarpOperation::ldmatrix_trans, 0xffffffffu, row, 0, r, place);
}

inline void plait_cp_async_16(void *shared, const void *global, int valid,
                              fakecuda::Place place = fakecuda::Place::here())
{
    fakecuda::begin_copy(shared, global, valid, place);
}
inline void plait_cp_async_commit()
{
    fakecuda::commit_copies();
}
template <int N> inline void plait_cp_async_wait(fakecuda::Place place = fakecuda::Place::here())
{
    fakecuda::wait_for_copies(N, place);
}

#endif
