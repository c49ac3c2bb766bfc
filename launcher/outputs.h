/* launcher/outputs.h: files that a command writes must not be files that it reads, nor each other. */
#ifndef PLAIT_LAUNCHER_OUTPUTS_H
#define PLAIT_LAUNCHER_OUTPUTS_H

#include "core/config.h"

PLAIT_BEGIN_DECLS

/* What a file is ("--html", "the text"), and its path; NULL or "": there is none. */
typedef struct plait_named_file {
    const char *what, *path;
} plait_named_file;

/* Those that a run of this configuration reads or writes: of the text, of weights, metrics and hashes. Borrowed. */
enum { PLAIT_CONFIG_FILES = 5 };
void plait_outputs_of_config(const plait_config *cfg, plait_named_file files[PLAIT_CONFIG_FILES]);

/* PLAIT_USAGE names the first pair. PLAIT_IO: one cannot be written where it is to be. Nothing is changed. */
PLAIT_MUST_USE plait_status plait_outputs_check(const plait_named_file *written, int num_written,
                                                const plait_named_file *read, int num_read);

PLAIT_END_DECLS
#endif
