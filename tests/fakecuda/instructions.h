// tests/fakecuda/instructions.h: models of instructions that a whole warp does (kernels/cuda/ptx.cuh).
#ifndef PLAIT_TESTS_FAKECUDA_INSTRUCTIONS_H
#define PLAIT_TESTS_FAKECUDA_INSTRUCTIONS_H

namespace fakecuda
{

struct BlockThread;

enum class MmaType { bf16, fp16 };

// `lanes`: the 32 threads of a warp. Each gives a[4] and b[2] together, and has d[4].
void mma(BlockThread *lanes, MmaType type);
// Each gives the address of a row, and gets r[4].
void ldmatrix(BlockThread *lanes, bool transposed);

} // namespace fakecuda
#endif
