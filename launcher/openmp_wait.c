/* How OpenMP threads wait for each other. libgomp's default is to spin for long: on a machine that has anything else to
 * do, a thread spins away the core that the other one needs (measured: 18 s a step instead of 1.5). So they spin for
 * some ten microseconds and then sleep, unless the user's environment says otherwise.
 *
 * The libraries read their environment when they are loaded, before main; .preinit_array of the program comes before
 * that. */
#include <stdlib.h>

static void set_wait_policy(void)
{
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") || getenv("KMP_BLOCKTIME"))
        return;
    setenv("GOMP_SPINCOUNT", "10000", 0); /* libgomp (gcc) */
    setenv("KMP_BLOCKTIME", "0", 0);      /* libomp (clang), milliseconds */
}

__attribute__((section(".preinit_array"), used)) static void (*const before_libraries)(void) = set_wait_policy;
