/* launcher/compare_html.h: the variants of a model side by side as a page. docs/plan.md describes it. */
#ifndef PLAIT_LAUNCHER_COMPARE_HTML_H
#define PLAIT_LAUNCHER_COMPARE_HTML_H

#include <stdio.h>

#include "launcher/variants.h"

PLAIT_BEGIN_DECLS

/* plait_compare_words; what each variant's largest rank holds, what ranks of other stages hold, what they send, how
 * long a step takes by prediction and, where it was measured, in truth; pipelines in time; all numbers; and what is not
 * possible, and why. */
void plait_compare_html(const plait_variants *v, const char *title, FILE *out);
/* ... as a file, which takes the place of an older one as a whole. */
PLAIT_MUST_USE plait_status plait_compare_html_write(const plait_variants *v, const char *title, const char *path);

PLAIT_END_DECLS
#endif
