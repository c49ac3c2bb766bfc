/* launcher/compare_print.h: a comparison as text or as JSON. docs/compare.md describes both. */
#ifndef PLAIT_LAUNCHER_COMPARE_PRINT_H
#define PLAIT_LAUNCHER_COMPARE_PRINT_H

#include <stdio.h>

#include "launcher/variants.h"

PLAIT_BEGIN_DECLS

/* A line a variant: bytes of its largest rank by category, bytes that a rank sends in a step, time predicted and
 * measured; then those that are not possible, with the reason; then plait_compare_words. */
void plait_compare_print(const plait_variants *v, FILE *out);
/* One object, "version" 1; the plan of each variant as plait_plan_print_json prints it. */
void plait_compare_print_json(const plait_variants *v, FILE *out);

PLAIT_END_DECLS
#endif
