#include "launcher/outputs.h"

#include <stdbool.h>

#include "core/file.h"

void plait_outputs_of_config(const plait_config *cfg, plait_named_file files[PLAIT_CONFIG_FILES])
{
    files[0] = (plait_named_file){"the text", cfg->data.path};
    files[1] = (plait_named_file){"checkpoint.load_weights", cfg->checkpoint.load_weights};
    files[2] = (plait_named_file){"checkpoint.save_weights", cfg->checkpoint.save_weights};
    files[3] = (plait_named_file){"logging.metrics_file", cfg->logging.metrics_file};
    files[4] = (plait_named_file){"debug.tensor_hashes", cfg->debug.tensor_hashes};
}

static bool is_there(const plait_named_file *f)
{
    return f->path && f->path[0];
}

static plait_status check_pair(const plait_named_file *written, const plait_named_file *other)
{
    if (is_there(other) && plait_file_same(written->path, other->path))
        PLAIT_FAIL(USAGE, "%s is the same file as %s: %s", written->what, other->what, written->path);
    return PLAIT_OK;
}

plait_status plait_outputs_check(const plait_named_file *written, int num_written, const plait_named_file *read,
                                 int num_read)
{
    for (int i = 0; i < num_written; i++) {
        if (!is_there(&written[i]))
            continue;
        for (int k = 0; k < num_read; k++)
            PLAIT_TRY(check_pair(&written[i], &read[k]));
        for (int k = 0; k < i; k++)
            PLAIT_TRY(check_pair(&written[i], &written[k]));
        PLAIT_TRY(plait_file_check_writable(written[i].path));
    }
    return PLAIT_OK;
}
