/* core/file.h: the few things that everything that reads or writes a file needs, with errors that name path and reason.
 *
 * Files are read with pread into the reader's own memory, never mapped: a file that someone truncates under way is an
 * error message then, not a SIGBUS. All failures are PLAIT_IO.
 */
#ifndef PLAIT_CORE_FILE_H
#define PLAIT_CORE_FILE_H

#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

PLAIT_BEGIN_DECLS

/* Opens a regular file for reading (a directory, pipe or device is refused) and tells its size in bytes. The caller
 * closes *fd. */
PLAIT_MUST_USE plait_status plait_file_open(const char *path, int *fd, int64_t *size);
/* Reads exactly `bytes` bytes at `offset`; a file that ends earlier is an error. `path` is only named in messages. */
PLAIT_MUST_USE plait_status plait_file_read(int fd, const char *path, int64_t offset, void *out, size_t bytes);

/* Whether two paths are one file, by links and spelling too; also where neither is there yet, but would be created. */
bool plait_file_same(const char *a, const char *b);

/* A file that is going to take the place of another: written apart, then renamed, so that whoever looks finds the old
 * one or the whole new one. Where the file system can, it has no name until then and vanishes with the process,
 * however that ends; else it is called as its path with a dot and six letters that no other run has. */
typedef struct plait_file_temporary {
    char *path; /* whose place it takes */
    char *name; /* NULL: none yet */
    int fd;     /* for reading and writing */
} plait_file_temporary;

/* An empty file, with the permissions that the umask leaves. */
PLAIT_MUST_USE plait_status plait_file_temporary_create(const char *path, plait_file_temporary *out);
/* Makes it durable under its path: fsync of the file, rename, fsync of the directory. Ends it either way; a failure up
 * to the renaming leaves the older file and nothing else. */
PLAIT_MUST_USE plait_status plait_file_temporary_publish(plait_file_temporary *t);
/* Removes it; `path` is as before. One that has ended is fine. */
void plait_file_temporary_discard(plait_file_temporary *t);

/* A whole text file: what `print` writes takes the place of `path`, or on a failure nothing does. */
PLAIT_MUST_USE plait_status plait_file_write_text(const char *path, void (*print)(const void *self, FILE *out),
                                                  const void *self);

/* Could a temporary of `path` be made, named and take its place? Leaves nothing behind and does not touch `path`. For a
 * refusal before the first step instead of after the last. */
PLAIT_MUST_USE plait_status plait_file_check_writable(const char *path);

PLAIT_END_DECLS
#endif
