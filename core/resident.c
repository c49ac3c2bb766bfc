#include "core/resident.h"

#include <stdio.h>
#include <string.h>

/* Bytes of the line that begins with `name` in a file of lines "Name:   123 kB"; 0: there is none. */
static size_t bytes_of(const char *path, const char *name)
{
    char line[256];
    size_t kib = 0;
    const size_t length = strlen(name);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, name, length) == 0 && sscanf(line + length, ": %zu", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib * 1024;
}

plait_resident plait_resident_memory(void)
{
    static const char status[] = "/proc/self/status", rollup[] = "/proc/self/smaps_rollup";
    const size_t shared = bytes_of(status, "RssShmem"), share = bytes_of(rollup, "Pss_Shmem");
    return (plait_resident){.now = bytes_of(status, "VmRSS"),
                            .peak = bytes_of(status, "VmHWM"),
                            .others = shared > share && share > 0 ? shared - share : 0};
}
