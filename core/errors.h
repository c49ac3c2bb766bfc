/* core/errors.h: several failures as one, so that who wrote a file learns of all its mistakes at once. */
#ifndef PLAIT_CORE_ERRORS_H
#define PLAIT_CORE_ERRORS_H

#include <stddef.h>

#include "core/status.h"

PLAIT_BEGIN_DECLS

/* Lines of text, up to a length; what does not fit is counted. */
typedef struct plait_errors {
    char text[15000];
    size_t len;
    int count, hidden;
} plait_errors;

void plait_errors_add(plait_errors *e, const char *format, ...) PLAIT_PRINTF(2, 3);
/* PLAIT_OK if there are none, else PLAIT_USAGE with all of them. */
PLAIT_MUST_USE plait_status plait_errors_status(plait_errors *e);

PLAIT_END_DECLS
#endif
