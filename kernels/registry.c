/* Which tables and backends there are. */
#include <stdio.h>

#include "kernels/backend.h"
#include "kernels/cpu/cpu.h"
#include "kernels/ref/ref.h"
#ifdef PLAIT_WITH_CUDA
#include "kernels/cuda/cuda.h"
#endif

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

#ifdef PLAIT_WITH_CUDA

static plait_status find_cuda(plait_dtype dtype, const plait_kernels **kernels, const plait_backend **backend)
{
    *backend = plait_backend_cuda();
    *kernels = plait_kernels_cuda(dtype);
    if (!*kernels)
        PLAIT_FAIL(UNSUPPORTED, "device.backend cuda has no %s: it computes in fp32, bf16 and fp16",
                   plait_dtype_name(dtype));
    return PLAIT_OK;
}

int plait_device_count(void)
{
    return plait_backend_cuda()->devices();
}

void plait_device_versions(char *text, size_t size)
{
    plait_cuda_versions(text, size);
}

#else

static plait_status find_cuda(plait_dtype dtype, const plait_kernels **kernels, const plait_backend **backend)
{
    (void)dtype;
    *kernels = NULL;
    *backend = NULL;
    PLAIT_FAIL(UNSUPPORTED, "device.backend cuda: this plait was built without CUDA (cmake -DPLAIT_CUDA=ON says why)");
}

int plait_device_count(void)
{
    return 0;
}

void plait_device_versions(char *text, size_t size)
{
    (void)snprintf(text, size, "none");
}

#endif

plait_status plait_device_find(const plait_config *cfg, const plait_kernels **kernels, const plait_backend **backend)
{
    if (cfg->device.backend == PLAIT_BACKEND_CUDA)
        return find_cuda(cfg->precision.dtype, kernels, backend);
    *backend = plait_backend_cpu();
    return plait_kernels_find(cfg->device.kernels, cfg->device.isa, cfg->precision.dtype, kernels);
}
