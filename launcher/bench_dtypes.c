#include <stdio.h>
#include <string.h>

#include "launcher/bench.h"
#include "launcher/machine_file.h"

const plait_bench_dtypes plait_bench_dtypes_all = {{PLAIT_FP32, PLAIT_BF16, PLAIT_FP16}, 3};

plait_status plait_bench_dtypes_parse(const char *list, plait_bench_dtypes *out)
{
    out->num = 0;
    for (const char *at = list;; at++) {
        char name[8];
        const size_t length = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        const plait_dtype dtype = length < sizeof name ? plait_dtype_find(name) : PLAIT_DTYPES;
        if (dtype != PLAIT_FP32 && dtype != PLAIT_BF16 && dtype != PLAIT_FP16)
            PLAIT_FAIL(USAGE, "--dtypes takes fp32, bf16 and fp16, separated by commas, not '%s'", list);
        for (int i = 0; i < out->num; i++)
            if (out->all[i] == dtype)
                PLAIT_FAIL(USAGE, "--dtypes %s names %s twice", list, name);
        out->all[out->num++] = dtype;
        at += length;
        if (!*at)
            return PLAIT_OK;
    }
}
