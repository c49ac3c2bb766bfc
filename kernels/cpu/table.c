/* The table of one storage type and instruction set. */
#include "kernels/cpu/typed.h"

#define TEXT_(x)        #x
#define TEXT(x)         TEXT_(x)
#define TYPED_SLOT(op)  .op = FN(op),
#define COMMON_SLOT(op) .op = ISA_FN(op),

extern const plait_kernels FN(table);

const plait_kernels FN(table) = {.name = "cpu-" TEXT(PLAIT_CPU_ISA),
                                 .dtype = ELEM_DTYPE,
                                 .acc = PLAIT_FP32,
                                 PLAIT_CPU_TYPED_OPS(TYPED_SLOT) PLAIT_CPU_COMMON_OPS(COMMON_SLOT)};
