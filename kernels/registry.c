#include "kernels/kernels.h"

#include "kernels/cpu/cpu.h"
#include "kernels/ref/ref.h"

static plait_status find_ref(plait_dtype dtype, const plait_kernels **out)
{
    *out = plait_kernels_ref(dtype);
    if (!*out)
        PLAIT_FAIL(UNSUPPORTED, "device.kernels ref has no %s: it computes in fp32 and fp64", plait_dtype_name(dtype));
    return PLAIT_OK;
}

static plait_status find_cpu(plait_isa isa, plait_dtype dtype, const plait_kernels **out)
{
    static const char *const isa_names[] = {"auto", "avx2", "avx512"};
    if (dtype != PLAIT_FP32 && dtype != PLAIT_BF16 && dtype != PLAIT_FP16)
        PLAIT_FAIL(UNSUPPORTED, "device.kernels cpu has no %s: it computes in fp32, bf16 and fp16",
                   plait_dtype_name(dtype));
    *out = plait_kernels_cpu(dtype, isa);
    if (!*out)
        PLAIT_FAIL(UNSUPPORTED, "device.kernels cpu with device.isa %s has no %s on this processor", isa_names[isa],
                   plait_dtype_name(dtype));
    return PLAIT_OK;
}

plait_status plait_kernels_find(plait_kernels_choice choice, plait_isa isa, plait_dtype dtype,
                                const plait_kernels **out)
{
    *out = NULL;
    if (choice == PLAIT_KERNELS_AUTO)
        choice = dtype == PLAIT_FP64 ? PLAIT_KERNELS_REF : PLAIT_KERNELS_CPU;
    return choice == PLAIT_KERNELS_REF ? find_ref(dtype, out) : find_cpu(isa, dtype, out);
}
