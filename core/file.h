/* core/file.h: the few things that everything that reads or writes a file needs, with errors that name path and reason.
 *
 * Files are read with pread into the reader's own memory, never mapped: a file that someone truncates under way is an
 * error message then, not a SIGBUS. All failures are PLAIT_IO.
 */
#ifndef PLAIT_CORE_FILE_H
#define PLAIT_CORE_FILE_H

#include "core/status.h"

#include <stddef.h>
#include <stdint.h>

PLAIT_BEGIN_DECLS

/* Opens a regular file for reading (a directory, pipe or device is refused) and tells its size in bytes. The caller
 * closes *fd. */
PLAIT_MUST_USE plait_status plait_file_open(const char *path, int *fd, int64_t *size);
/* Reads exactly `bytes` bytes at `offset`; a file that ends earlier is an error. `path` is only named in messages. */
PLAIT_MUST_USE plait_status plait_file_read(int fd, const char *path, int64_t offset, void *out, size_t bytes);

/* Can a file be created beside `path` and then be renamed to it? Leaves nothing behind and does not touch `path`. For
 * a refusal before the first step instead of after the last. */
PLAIT_MUST_USE plait_status plait_file_check_writable(const char *path);

/* Makes `temporary` durable and lets it take the place of `path` in one step: fsync of the file, rename, fsync of the
 * directory. A crash leaves the old file or the whole new one. `fd` is `temporary` and stays open. */
PLAIT_MUST_USE plait_status plait_file_publish(int fd, const char *temporary, const char *path);

PLAIT_END_DECLS
#endif
