#include "kernels/ref/ref_impl.h"

#define SLOT(op) .op = REF(op),
const plait_kernels REF(table) = {.name = "ref",
                                  .dtype = sizeof(real) == sizeof(float) ? PLAIT_FP32 : PLAIT_FP64,
                                  .acc = sizeof(real) == sizeof(float) ? PLAIT_FP32 : PLAIT_FP64,
                                  PLAIT_KERNELS_OPS(SLOT)};
