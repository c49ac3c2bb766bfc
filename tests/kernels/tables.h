// The tables that exist on this machine.
#ifndef PLAIT_TESTS_KERNELS_TABLES_H
#define PLAIT_TESTS_KERNELS_TABLES_H

#include <string>
#include <vector>

#include "kernels/backend.h"

struct Table {
    std::string name; // its group and type: "ref_fp32", "cpu_avx2_bf16", ...
    const plait_kernels *kernels;
    const plait_backend *backend; // where they compute
};

// Those of the group that PLAIT_TEST_TABLES names (ref, cpu_portable, cpu_avx2, cpu_avx512, cuda), of all groups
// without it.
//
// The library of matrix products takes its instruction set once in a process, and making the AVX2 tables keeps it to
// AVX2. So only in a process of its own is a group seen as a run has it: native bf16 with cpu_avx512, none with
// cpu_avx2.
const std::vector<Table> &tables();

#endif
