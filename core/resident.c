#include "core/resident.h"

#include <stdio.h>

plait_resident plait_resident_memory(void)
{
    plait_resident r = {0};
    char line[256];
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) {
        size_t kib;
        if (sscanf(line, "VmRSS: %zu", &kib) == 1)
            r.now = kib * 1024;
        else if (sscanf(line, "VmHWM: %zu", &kib) == 1)
            r.peak = kib * 1024;
    }
    if (f)
        fclose(f);
    return r;
}
