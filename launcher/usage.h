/* launcher/usage.h: what `plait help` and `plait COMMAND --help` print, and the numbers behind options.
 */
#ifndef PLAIT_LAUNCHER_USAGE_H
#define PLAIT_LAUNCHER_USAGE_H

#include <stdint.h>

#include "core/status.h"

PLAIT_BEGIN_DECLS

extern const char plait_usage[], plait_usage_train[], plait_usage_config[], plait_usage_diff[], plait_usage_generate[],
    plait_usage_plan[], plait_usage_compare[], plait_usage_bench[], plait_usage_version[];

/* The whole text as a decimal number in [low, high], low at least 0; NULL: nothing stands behind the option. Nothing is
 * rounded or cut: PLAIT_USAGE says what was expected. */
PLAIT_MUST_USE plait_status plait_option_whole(const char *option, const char *text, int64_t low, int64_t high,
                                               int64_t *out);
PLAIT_MUST_USE plait_status plait_option_number(const char *option, const char *text, double low, double high,
                                                double *out);

PLAIT_END_DECLS
#endif
