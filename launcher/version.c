/* plait version: what this build is made of and can do on this machine. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "kernels/kernels.h"
#include "launcher/commands.h"
#include "launcher/usage.h"

static plait_status check_arguments(int argc, char **argv)
{
    if (argc > 1)
        PLAIT_FAIL(USAGE, "plait version: unknown %s %s\n%s", argv[1][0] == '-' ? "option" : "argument", argv[1],
                   plait_usage_version);
    return PLAIT_OK;
}

plait_status plait_command_version(plait_world *world, int argc, char **argv)
{
    static const plait_dtype dtypes[] = {PLAIT_FP32, PLAIT_BF16, PLAIT_FP16, PLAIT_FP64};
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING];
    char device[128], carrier[64];
    int length;
    PLAIT_TRY(plait_comm_agree(world->comm, check_arguments(argc, argv)));
    if (world->rank != 0)
        return PLAIT_OK;
    MPI_Get_library_version(mpi, &length);
    printf("plait %s\n", PLAIT_VERSION);
    printf("%.*s\n", (int)strcspn(mpi, "\n"), mpi);
    plait_device_versions(device, sizeof device);
    plait_comm_device_versions(carrier, sizeof carrier);
    printf("libyaml %s, matrix products by %s\n", yaml_get_version_string(), PLAIT_GEMM_LIBRARY);
    printf("for GPUs: %s; between them: %s; on this node: %d\n", device, carrier, plait_device_count());
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        const plait_kernels *k;
        plait_status st = plait_kernels_find(PLAIT_KERNELS_AUTO, PLAIT_ISA_AUTO, dtypes[i], &k);
        printf("kernels for %s: %s\n", plait_dtype_name(dtypes[i]), st == PLAIT_OK ? k->name : "none");
    }
    return PLAIT_OK;
}
