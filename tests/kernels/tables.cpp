#include "tests/kernels/tables.h"

#include <cstdio>
#include <cstdlib>

#include "kernels/cpu/cpu.h"
#include "kernels/ref/ref.h"
#ifdef PLAIT_WITH_CUDA
#include "kernels/cuda/cuda.h"
#endif

namespace
{

struct Group {
    const char *name;
    bool here; // this machine has it
    std::vector<plait_dtype> dtypes;
    const plait_kernels *(*make)(plait_dtype);
    const plait_backend *backend;
};

std::vector<Group> groups()
{
    const std::vector<plait_dtype> fast = {PLAIT_FP32, PLAIT_BF16, PLAIT_FP16};
    bool avx2 = false, avx512 = false;
#if defined(__x86_64__)
    avx2 = __builtin_cpu_supports("avx2") != 0;
    avx512 = __builtin_cpu_supports("avx512f") != 0;
#endif
    const plait_backend *cpu = plait_backend_cpu();
    std::vector<Group> all = {
        {"ref", true, {PLAIT_FP32, PLAIT_FP64}, plait_kernels_ref, cpu},
        {"cpu_portable", true, fast, plait_kernels_cpu_portable, cpu},
        {"cpu_avx2", avx2, fast, [](plait_dtype d) { return plait_kernels_cpu(d, PLAIT_ISA_AVX2); }, cpu},
        {"cpu_avx512", avx512, fast, [](plait_dtype d) { return plait_kernels_cpu(d, PLAIT_ISA_AVX512); }, cpu}};
#ifdef PLAIT_WITH_CUDA
    const plait_backend *cuda = plait_backend_cuda();
    all.push_back({"cuda", cuda->devices() > 0, fast, plait_kernels_cuda, cuda});
#endif
    return all;
}

std::vector<Table> find_tables()
{
    const char *only = std::getenv("PLAIT_TEST_TABLES");
    bool known = !only;
    std::vector<Table> list;
    for (const Group &g : groups()) {
        if (only && std::string(only) != g.name)
            continue;
        known = true;
        if (!g.here)
            std::fprintf(stderr, "this machine has no %s: its tables are not tested\n", g.name);
        for (size_t i = 0; g.here && i < g.dtypes.size(); i++)
            list.push_back({std::string(g.name) + "_" + plait_dtype_name(g.dtypes[i]), g.make(g.dtypes[i]), g.backend});
    }
    if (!known) {
        std::fprintf(stderr, "PLAIT_TEST_TABLES=%s is no group of tables\n", only);
        std::exit(2);
    }
    return list;
}

} // namespace

const std::vector<Table> &tables()
{
    static const std::vector<Table> all = find_tables();
    return all;
}
