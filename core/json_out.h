/* core/json_out.h: values as JSON text. Whoever prints keeps track of commas and braces. */
#ifndef PLAIT_CORE_JSON_OUT_H
#define PLAIT_CORE_JSON_OUT_H

#include "core/status.h"

#include <stdio.h>

PLAIT_BEGIN_DECLS

/* 17 significant digits, which give the same double back; null when x is not finite, since JSON has no such number. */
void plait_json_number(FILE *out, double x);
/* "0x1.8p+1", "inf", "nan": C99's hexadecimal form as a string, exact to the last bit. */
void plait_json_hex(FILE *out, double x);
/* Quoted and escaped. Bytes that are not UTF-8 (RFC 3629) become U+FFFD each, so the output is always valid JSON. */
void plait_json_string(FILE *out, const char *s);

PLAIT_END_DECLS
#endif
