#include "kernels/ref/ref.h"

extern const plait_kernels plait_ref_table_float, plait_ref_table_double;

const plait_kernels *plait_kernels_ref(plait_dtype dtype)
{
    switch (dtype) {
    case PLAIT_FP32:
        return &plait_ref_table_float;
    case PLAIT_FP64:
        return &plait_ref_table_double;
    default:
        return NULL;
    }
}
