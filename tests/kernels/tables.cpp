#include "tests/kernels/tables.h"

#include <cstdio>

#include "kernels/cpu/cpu.h"
#include "kernels/ref/ref.h"

namespace
{

std::vector<Table> find_tables()
{
    std::vector<Table> list = {{"ref_fp32", plait_kernels_ref(PLAIT_FP32)},
                               {"ref_fp64", plait_kernels_ref(PLAIT_FP64)}};
    for (plait_dtype dtype : {PLAIT_FP32, PLAIT_BF16, PLAIT_FP16})
        list.push_back({std::string("cpu_portable_") + plait_dtype_name(dtype), plait_kernels_cpu_portable(dtype)});
#if defined(__x86_64__)
    const struct {
        plait_isa isa;
        const char *name;
        bool here;
    } sets[] = {{PLAIT_ISA_AVX2, "avx2", __builtin_cpu_supports("avx2") != 0},
                {PLAIT_ISA_AVX512, "avx512", __builtin_cpu_supports("avx512f") != 0}};
    for (const auto &set : sets) {
        if (!set.here) {
            std::fprintf(stderr, "this processor has no %s: its tables are not tested\n", set.name);
            continue;
        }
        for (plait_dtype dtype : {PLAIT_FP32, PLAIT_BF16, PLAIT_FP16})
            list.push_back(
                {std::string("cpu_") + set.name + "_" + plait_dtype_name(dtype), plait_kernels_cpu(dtype, set.isa)});
    }
#endif
    return list;
}

} // namespace

const std::vector<Table> &tables()
{
    static const std::vector<Table> all = find_tables();
    return all;
}
