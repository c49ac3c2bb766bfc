/* launcher/machine_file.h: a machine (parallel/machine.h) as a YAML file. The format is in docs/machines.md. */
#ifndef PLAIT_LAUNCHER_MACHINE_FILE_H
#define PLAIT_LAUNCHER_MACHINE_FILE_H

#include <stdio.h>

#include "parallel/machine.h"

PLAIT_BEGIN_DECLS

/* Owner: plait_machine_deinit. PLAIT_IO when the file cannot be read; PLAIT_USAGE with every mistake in it, as
 * file:line:column and what was expected. */
PLAIT_MUST_USE plait_status plait_machine_read(const char *path, plait_machine *out);
/* Rates and times with five digits: what is read back and written again is the same text. */
void plait_machine_print(const plait_machine *m, FILE *out);
/* ... as a file, which takes the place of an older one as a whole. */
PLAIT_MUST_USE plait_status plait_machine_write(const plait_machine *m, const char *path);

/* Puts what was measured into the file at `path`, if there is one, as it is now: tables that say the same of the same
 * are replaced, the rest stays, and so does its name. Several processes may do so at once: they wait for each other.
 * *out is what the file has then; owner: plait_machine_deinit. */
PLAIT_MUST_USE plait_status plait_machine_add(const plait_machine *measured, const char *path, plait_machine *out);

/* The type of that name; PLAIT_DTYPES: none. */
plait_dtype plait_dtype_find(const char *name);

PLAIT_END_DECLS
#endif
