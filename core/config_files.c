/* Files that a run would write over what it reads, or over what it also writes. */
#include "core/config.h"

#include "core/config_impl.h"
#include "core/file.h"

#include <stdlib.h>
#include <string.h>

typedef struct named_file {
    const char *key; /* NULL: the configuration file itself */
    const char *path;
} named_file;

static void compare(plait_errors *errors, const plait_config *cfg, named_file written, named_file other)
{
    char at[400], there[400];
    if (!written.path[0] || !other.path[0] || !plait_file_same(written.path, other.path))
        return;
    plait_config_place(cfg, written.key, at, sizeof at);
    if (other.key) {
        plait_config_place(cfg, other.key, there, sizeof there);
        there[strlen(there) - 2] = '\0'; /* without its ": "; every path is given somewhere */
        plait_errors_add(errors, "%s%s is the same file as %s (%s): %.250s", at, written.key, other.key, there,
                         written.path);
    } else {
        plait_errors_add(errors, "%s%s is the configuration file itself: %.250s", at, written.key, written.path);
    }
}

plait_status plait_config_check_files(const plait_config *cfg)
{
    const named_file weights = {"checkpoint.save_weights", cfg->checkpoint.save_weights};
    const named_file metrics = {"logging.metrics_file", cfg->logging.metrics_file};
    const named_file hashes = {"debug.tensor_hashes", cfg->debug.tensor_hashes};
    const named_file text = {"data.data_path", cfg->data.path};
    const named_file loaded = {"checkpoint.load_weights", cfg->checkpoint.load_weights};
    const named_file itself = {NULL, cfg->file};
    plait_errors *errors = calloc(1, sizeof *errors);
    if (!errors)
        PLAIT_FAIL(OUT_OF_MEMORY, "%zu bytes to check a configuration", sizeof *errors);
    compare(errors, cfg, weights, itself);
    compare(errors, cfg, weights, text);
    compare(errors, cfg, metrics, itself);
    compare(errors, cfg, metrics, text);
    compare(errors, cfg, metrics, loaded);
    compare(errors, cfg, metrics, weights);
    compare(errors, cfg, hashes, itself);
    compare(errors, cfg, hashes, text);
    compare(errors, cfg, hashes, loaded);
    compare(errors, cfg, hashes, weights);
    compare(errors, cfg, hashes, metrics);
    /* Not weights and loaded: to go on in place is what some want, and it is safe. They are read before the first step,
     * and what is written takes their place in one piece. */
    plait_status st = plait_errors_status(errors);
    free(errors);
    return st;
}
