/* How OpenMP threads wait for each other. libgomp's default is to spin for long: on a machine that has anything else to
 * do, a thread spins away the core that the other one needs (measured: 18 s a step instead of 1.5). So they spin for
 * less than a millisecond and then sleep, unless the user's environment says otherwise.
 *
 * The libraries read their environment when they are loaded, before main, from what the kernel handed over: setenv
 * comes too late for that. So the program starts once more with the variables set. .preinit_array comes before the
 * libraries have done anything (also before `environ` is set: envp is all there is).
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_set(char *const *envp, const char *name)
{
    const size_t length = strlen(name);
    for (; *envp; envp++)
        if (strncmp(*envp, name, length) == 0 && (*envp)[length] == '=')
            return true;
    return false;
}

static char libgomp[] = "GOMP_SPINCOUNT=10000"; /* gcc's */
static char libomp[] = "KMP_BLOCKTIME=0";       /* clang's, milliseconds */

static void set_wait_policy(int argc, char **argv, char **envp)
{
    (void)argc;
    if (is_set(envp, "OMP_WAIT_POLICY") || is_set(envp, "GOMP_SPINCOUNT") || is_set(envp, "KMP_BLOCKTIME"))
        return;
    /* By its own name, not /proc/self/exe: the process is called after the path it is started by. */
    char program[4096];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program);
    if (length <= 0 || (size_t)length == sizeof program)
        return;
    program[length] = '\0';
    size_t count = 0;
    while (envp[count])
        count++;
    char **with = (char **)malloc((count + 3) * sizeof *with);
    if (!with)
        return;
    memcpy(with, envp, count * sizeof *with);
    with[count] = libgomp;
    with[count + 1] = libomp;
    with[count + 2] = NULL;
    execve(program, argv, with);
    free(with); /* it goes on as it is: slower when there are few cores, not wrong */
}

__attribute__((section(".preinit_array"), used)) static void (*const before_libraries)(int, char **,
                                                                                       char **) = set_wait_policy;
