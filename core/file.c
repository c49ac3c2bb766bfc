#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

plait_status plait_file_open(const char *path, int *fd, int64_t *size)
{
    plait_status st = PLAIT_OK;
    /* O_NONBLOCK: opening a pipe without a writer must not wait; it means nothing for a regular file. */
    int f = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f < 0)
        PLAIT_FAIL(IO, "open %s: %s", path, strerror(errno));
    struct stat info;
    if (fstat(f, &info) != 0)
        PLAIT_FAIL_TO(failed, st, IO, "stat %s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        PLAIT_FAIL_TO(failed, st, IO, "open %s: not a regular file%s", path,
                      S_ISDIR(info.st_mode) ? " but a directory" : "");
    *fd = f;
    *size = info.st_size;
    return PLAIT_OK;
failed:
    close(f);
    return st;
}

plait_status plait_file_read(int fd, const char *path, int64_t offset, void *out, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = pread(fd, (char *)out + done, bytes - done, offset + (int64_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            PLAIT_FAIL(IO, "read %s: %s", path, strerror(errno));
        if (n == 0)
            PLAIT_FAIL(IO, "read %s: the file ends at byte %lld, %lld expected (was it truncated?)", path,
                       (long long)(offset + (int64_t)done), (long long)(offset + (int64_t)bytes));
        done += (size_t)n;
    }
    return PLAIT_OK;
}

/* The directory that holds `path`, allocated; NULL without memory. */
static char *directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL)
        return strdup(".");
    return strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

plait_status plait_file_check_writable(const char *path)
{
    plait_status st = PLAIT_OK;
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    struct stat info;
    if (*name == '\0')
        PLAIT_FAIL(IO, "write '%s': not the name of a file", path);
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        PLAIT_FAIL(IO, "write %s: exists and is not a regular file", path);

    size_t len = strlen(path);
    char *probe = malloc(len + sizeof ".XXXXXX");
    if (probe == NULL)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for a path of %zu bytes", len);
    memcpy(probe, path, len);
    memcpy(probe + len, ".XXXXXX", sizeof ".XXXXXX");
    int fd = mkstemp(probe);
    if (fd < 0) {
        st = plait_error_set(PLAIT_IO, __FILE__, __LINE__, "write %s: cannot create a file beside it: %s", path,
                             strerror(errno));
    } else {
        close(fd);
        unlink(probe);
    }
    free(probe);
    return st;
}

plait_status plait_file_publish(int fd, const char *temporary, const char *path)
{
    plait_status st = PLAIT_OK;
    if (fsync(fd) != 0)
        PLAIT_FAIL(IO, "fsync %s: %s", temporary, strerror(errno));
    if (rename(temporary, path) != 0)
        PLAIT_FAIL(IO, "rename %s to %s: %s", temporary, path, strerror(errno));
    char *directory = directory_of(path);
    if (directory == NULL)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the directory of %s", path);
    int dir_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0)
        PLAIT_FAIL_TO(done, st, IO, "open %s: %s", directory, strerror(errno));
    /* EINVAL: a file system without fsync of directories. The rename itself has happened. */
    if (fsync(dir_fd) != 0 && errno != EINVAL)
        st = plait_error_set(PLAIT_IO, __FILE__, __LINE__, "fsync %s: %s", directory, strerror(errno));
    close(dir_fd);
done:
    free(directory);
    return st;
}
