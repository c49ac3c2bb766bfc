/* core/utf8.h: which bytes are a character (RFC 3629). */
#ifndef PLAIT_CORE_UTF8_H
#define PLAIT_CORE_UTF8_H

#include "core/status.h"

PLAIT_BEGIN_DECLS

/* Bytes of the character at s, 0 if it is not one: neither overlong forms nor surrogates nor beyond U+10FFFF. A NUL is
 * no continuation byte, so nothing is read past the end. */
int plait_utf8_length(const char *s);

PLAIT_END_DECLS
#endif
