/* core/log.h: lines for people, on stderr.
 *
 * A line is written by one call, so lines of several ranks do not mix. The prefix names the rank, "[d0 p1 t0] ", and is
 * set once the topology is known.
 */
#ifndef PLAIT_CORE_LOG_H
#define PLAIT_CORE_LOG_H

#include "core/status.h"

PLAIT_BEGIN_DECLS

typedef enum plait_log_level { PLAIT_LOG_ERROR, PLAIT_LOG_WARN, PLAIT_LOG_INFO } plait_log_level;

/* Copied; at most 63 bytes. "" at start. */
void plait_log_set_prefix(const char *prefix);
const char *plait_log_prefix(void);
/* One line without its newline; cut at about 20,000 bytes. Errors and warnings carry the word. */
void plait_log(plait_log_level level, const char *format, ...) PLAIT_PRINTF(2, 3);

PLAIT_END_DECLS
#endif
