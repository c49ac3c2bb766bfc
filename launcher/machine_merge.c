/* Adding to a machine file. */
#define _GNU_SOURCE /* flock */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/log.h"
#include "launcher/machine_file.h"
#include "launcher/stop.h"

/* The directory is locked, not the file: a file that another takes the place of would be locked in vain, one that is
 * not there could not be, and nothing is left behind. The lock goes with the descriptor, or the process. -1: not
 * locked, since this file system locks no directories (NFS). */
static int lock_beside(const char *path)
{
    char directory[4096];
    const char *slash = strrchr(path, '/');
    const int length = !slash ? 1 : slash == path ? 1 : (int)(slash - path);
    snprintf(directory, sizeof directory, "%.*s", length, slash ? path : ".");
    const int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int failed = fd < 0 ? -1 : flock(fd, LOCK_EX | LOCK_NB);
    if (failed && fd >= 0 && errno == EWOULDBLOCK) {
        fprintf(stderr, "plait: waiting for another process to let go of the lock on %s, the directory of %s\n",
                directory, path);
        do
            failed = flock(fd, LOCK_EX);
        while (failed && errno == EINTR);
    }
    if (!failed)
        return fd;
    plait_log(PLAIT_LOG_WARN, "%s cannot be locked (%s): what another plait bench writes to %s now could be lost",
              directory, strerror(errno), path);
    if (fd >= 0)
        close(fd);
    return -1;
}

static plait_status put_tables(plait_machine *to, const plait_machine *from)
{
    for (int i = 0; i < from->num_rates; i++)
        PLAIT_TRY(plait_machine_put_rates(to, &from->rates[i]));
    for (int i = 0; i < from->num_links; i++)
        PLAIT_TRY(plait_machine_put_links(to, &from->links[i]));
    return PLAIT_OK;
}

/* A measured rate that is above the peak that somebody wrote is the peak, as far as is known. */
static void raise_peaks(plait_machine *m, const char *path)
{
    for (int d = 0; d < PLAIT_DTYPES; d++) {
        const plait_rate_table *best;
        const double reached = plait_machine_reached(m, (plait_dtype)d, &best);
        if (m->peak[d] <= 0 || reached <= m->peak[d])
            continue;
        plait_log(PLAIT_LOG_WARN, "%s: peak_gflops of %s is raised from %.5g to %.5g, which %s has reached", path,
                  plait_dtype_name((plait_dtype)d), m->peak[d] / 1e9, reached / 1e9, plait_op_name(best->op));
        m->peak[d] = reached;
    }
}

static plait_status add(const plait_machine *measured, const char *path, plait_machine *out)
{
    char left[600];
    if (access(path, F_OK) == 0)
        PLAIT_TRY(plait_machine_read(path, out));
    if (!out->name[0])
        memcpy(out->name, measured->name, sizeof out->name);
    memcpy(out->source, measured->source, sizeof out->source);
    if (measured->ranks_per_node > 0)
        out->ranks_per_node = measured->ranks_per_node;
    if (out->launch_seconds <= 0) /* that of tables without their own stays */
        out->launch_seconds = measured->launch_seconds;
    PLAIT_TRY(put_tables(out, measured));
    raise_peaks(out, path);
    snprintf(left, sizeof left, ", %.500s has all that was measured", path);
    plait_stop_hold();
    const plait_status st = plait_machine_write(out, path);
    plait_stop_release(st == PLAIT_OK ? left : "");
    return st;
}

plait_status plait_machine_add(const plait_machine *measured, const char *path, plait_machine *out)
{
    *out = (plait_machine){0};
    const int lock = lock_beside(path);
    const plait_status st = add(measured, path, out);
    if (lock >= 0)
        close(lock);
    if (st != PLAIT_OK)
        plait_machine_deinit(out);
    return st;
}
