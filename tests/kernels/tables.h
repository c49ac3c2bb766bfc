// The tables that exist on this processor.
#ifndef PLAIT_TESTS_KERNELS_TABLES_H
#define PLAIT_TESTS_KERNELS_TABLES_H

#include <string>
#include <vector>

#include "kernels/kernels.h"

struct Table {
    std::string name; // "ref_fp32", "cpu_avx2_bf16", ...
    const plait_kernels *kernels;
};

// Says on standard error which ones are left out.
const std::vector<Table> &tables();

#endif
