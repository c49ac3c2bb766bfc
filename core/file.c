#define _GNU_SOURCE /* O_TMPFILE */
#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
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

/* ---- paths ---- */

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The directory that holds `path`, allocated; NULL without memory. */
static char *directory_of(const char *path)
{
    const char *name = name_of(path);
    if (name == path)
        return strdup(".");
    return strndup(path, name == path + 1 ? 1 : (size_t)(name - path) - 1);
}

/* The file that opening `path` for writing would create, allocated: links followed also where they lead to nothing, the
 * directory without links and dots. NULL: its directory is not there (or no memory). */
static char *created_by(const char *path)
{
    enum { LINKS = 40 }; /* as many as the kernel follows */
    char *at = strdup(path), *result = NULL;
    for (int i = 0; at && i < LINKS; i++) {
        char target[4096], *directory = directory_of(at), *next = NULL;
        ssize_t length = readlink(at, target, sizeof target - 1);
        if (length < 0) {
            char *real = directory ? realpath(directory, NULL) : NULL;
            if (real && asprintf(&result, "%s/%s", real, name_of(at)) < 0)
                result = NULL;
            free(real);
            free(directory);
            break;
        }
        target[length] = '\0';
        if (target[0] == '/')
            next = strdup(target);
        else if (directory && asprintf(&next, "%s/%s", directory, target) < 0)
            next = NULL;
        free(directory);
        free(at);
        at = next;
    }
    free(at);
    return result;
}

bool plait_file_same(const char *a, const char *b)
{
    struct stat x, y;
    bool have_a = stat(a, &x) == 0, have_b = stat(b, &y) == 0;
    if (have_a || have_b)
        return have_a && have_b && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    char *p = created_by(a), *q = created_by(b);
    bool same = p && q && strcmp(p, q) == 0;
    free(p);
    free(q);
    return same;
}

/* ---- a file that takes another one's place ---- */

/* Six letters that no other run has. */
static void random_letters(char out[7])
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    uint64_t bits;
    if (getrandom(&bits, sizeof bits, 0) != (ssize_t)sizeof bits) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        bits = (uint64_t)now.tv_nsec * 1000003u + (uint64_t)getpid();
    }
    for (int i = 0; i < 6; i++, bits /= sizeof letters - 1)
        out[i] = letters[bits % (sizeof letters - 1)];
    out[6] = '\0';
}

/* Gives the file a name beside its path that was free: creates it, or links the open one that has none. */
static plait_status take_name(plait_file_temporary *t)
{
    enum { TRIES = 100, LONGEST = 255 - 7 }; /* a name may have 255 bytes */
    char unnamed[40], letters[7];
    int before = (int)(name_of(t->path) - t->path), length = (int)strlen(t->path) - before;
    snprintf(unnamed, sizeof unnamed, "/proc/self/fd/%d", t->fd);
    for (int i = 0; i < TRIES; i++) {
        char *name;
        random_letters(letters);
        if (asprintf(&name, "%.*s.%s", before + (length < LONGEST ? length : LONGEST), t->path, letters) < 0)
            PLAIT_FAIL(OUT_OF_MEMORY, "no memory for a name beside %s", t->path);
        int made = t->fd < 0 ? open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666)
                             : linkat(AT_FDCWD, unnamed, AT_FDCWD, name, AT_SYMLINK_FOLLOW);
        if (made >= 0) {
            t->fd = t->fd < 0 ? made : t->fd;
            t->name = name;
            return PLAIT_OK;
        }
        free(name);
        if (errno != EEXIST)
            break;
    }
    PLAIT_FAIL(IO, "write %s: cannot create a file beside it: %s", t->path, strerror(errno));
}

/* A file without a name vanishes with its process, however that ends. -1: this file system has none, or there is
 * no /proc to name it through later. */
static int open_unnamed(const char *directory)
{
    char link[40];
    struct stat file, linked;
    int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
    if (fd < 0)
        return -1;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (fstat(fd, &file) == 0 && stat(link, &linked) == 0 && file.st_dev == linked.st_dev &&
        file.st_ino == linked.st_ino)
        return fd;
    close(fd);
    return -1;
}

plait_status plait_file_temporary_create(const char *path, plait_file_temporary *out)
{
    struct stat info;
    const bool is_link = lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
    *out = (plait_file_temporary){.path = is_link ? created_by(path) : strdup(path), .fd = -1};
    path = out->path ? out->path : path;
    char *directory = directory_of(path);
    plait_status st = PLAIT_OK;
    if (!out->path || !directory)
        PLAIT_FAIL_TO(done, st, OUT_OF_MEMORY, "no memory to write %s", path);
    if (*name_of(path) == '\0')
        PLAIT_FAIL_TO(done, st, IO, "write '%s': not the name of a file", path);
    out->fd = open_unnamed(directory);
    if (out->fd < 0)
        PLAIT_TRY_TO(done, st, take_name(out));
done:
    free(directory);
    if (st != PLAIT_OK)
        plait_file_temporary_discard(out);
    return st;
}

void plait_file_temporary_discard(plait_file_temporary *t)
{
    if (t->name)
        unlink(t->name);
    if (t->fd >= 0)
        close(t->fd);
    free(t->name);
    free(t->path);
    *t = (plait_file_temporary){.fd = -1};
}

static plait_status sync_directory(const char *path)
{
    plait_status st = PLAIT_OK;
    char *directory = directory_of(path);
    if (directory == NULL)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the directory of %s", path);
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        PLAIT_FAIL_TO(done, st, IO, "open %s: %s", directory, strerror(errno));
    /* EINVAL: a file system without fsync of directories. The rename itself has happened. */
    if (fsync(fd) != 0 && errno != EINVAL)
        st = plait_error_set(PLAIT_IO, __FILE__, __LINE__, "fsync %s: %s", directory, strerror(errno));
    close(fd);
done:
    free(directory);
    return st;
}

plait_status plait_file_temporary_publish(plait_file_temporary *t)
{
    plait_status st = PLAIT_OK;
    struct stat before;
    if (stat(t->path, &before) == 0)
        (void)fchmod(t->fd, before.st_mode & 0777); /* who may read it stays */
    if (fsync(t->fd) != 0)
        PLAIT_FAIL_TO(done, st, IO, "fsync of what becomes %s: %s", t->path, strerror(errno));
    if (!t->name) /* no call links over an older file: it needs a name for a moment */
        PLAIT_TRY_TO(done, st, take_name(t));
    if (rename(t->name, t->path) != 0)
        PLAIT_FAIL_TO(done, st, IO, "rename %s to %s: %s", t->name, t->path, strerror(errno));
    free(t->name);
    t->name = NULL;
    PLAIT_TRY_TO(done, st, sync_directory(t->path));
done:
    plait_file_temporary_discard(t);
    return st;
}

static plait_status print_into(const plait_file_temporary *t, void (*print)(const void *self, FILE *out),
                               const void *self)
{
    const int fd = dup(t->fd);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    if (!out) {
        const int error = errno;
        if (fd >= 0)
            close(fd);
        PLAIT_FAIL(IO, "write %s: %s", t->path, strerror(error));
    }
    print(self, out);
    const bool failed_before = ferror(out);
    if (fclose(out) != 0 || failed_before)
        PLAIT_FAIL(IO, "write %s: %s", t->path, strerror(errno));
    return PLAIT_OK;
}

plait_status plait_file_write_text(const char *path, void (*print)(const void *self, FILE *out), const void *self)
{
    plait_file_temporary t;
    PLAIT_TRY(plait_file_temporary_create(path, &t));
    const plait_status st = print_into(&t, print, self);
    if (st != PLAIT_OK) {
        plait_file_temporary_discard(&t);
        return st;
    }
    return plait_file_temporary_publish(&t);
}

static bool is_open_as(int fd, const struct stat *file)
{
    struct stat open;
    return fstat(fd, &open) == 0 && open.st_dev == file->st_dev && open.st_ino == file->st_ino;
}

plait_status plait_file_check_writable(const char *path)
{
    struct stat info;
    const bool is_there = stat(path, &info) == 0 && *name_of(path) != '\0';
    if (is_there && !S_ISREG(info.st_mode))
        PLAIT_FAIL(IO, "write %s: exists and is not a regular file", path);
    if (is_there && access(path, W_OK) != 0) /* it would be replaced all the same */
        PLAIT_FAIL(IO, "write %s: %s", path, strerror(errno));
    if (is_there && (is_open_as(STDOUT_FILENO, &info) || is_open_as(STDERR_FILENO, &info)))
        PLAIT_FAIL(IO, "write %s: what the program says goes there", path);
    if (strlen(name_of(path)) > 255) /* of which the temporary's name would be a part */
        PLAIT_FAIL(IO, "write %s: %s", path, strerror(ENAMETOOLONG));
    plait_file_temporary t;
    PLAIT_TRY(plait_file_temporary_create(path, &t));
    plait_status st = t.name ? PLAIT_OK : take_name(&t);
    plait_file_temporary_discard(&t);
    return st;
}
