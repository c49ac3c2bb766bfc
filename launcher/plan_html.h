/* launcher/plan_html.h: a plan as a page. docs/plan.md describes it. */
#ifndef PLAIT_LAUNCHER_PLAN_HTML_H
#define PLAIT_LAUNCHER_PLAN_HTML_H

#include <stdio.h>

#include "launcher/planned.h"

PLAIT_BEGIN_DECLS

/* The same numbers as plait_plan_print and plait_plan_print_json, with drawings: what each class of ranks holds, what
 * it sends, and, with a machine, where the time goes and how the pipeline fills and drains. Up to 2 MB. */
void plait_plan_html(const plait_planned *p, const char *title, FILE *out);
/* ... as a file, which takes the place of an older one as a whole. */
PLAIT_MUST_USE plait_status plait_plan_html_write(const plait_planned *p, const char *title, const char *path);

PLAIT_END_DECLS
#endif
