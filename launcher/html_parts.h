/* launcher/html_parts.h: what of a plan is a part of a bar, and in which colour. */
#ifndef PLAIT_LAUNCHER_HTML_PARTS_H
#define PLAIT_LAUNCHER_HTML_PARTS_H

#include "launcher/html_bars.h"
#include "launcher/planned.h"

PLAIT_BEGIN_DECLS

enum { PLAIT_TIME_PARTS = 1 + PLAIT_GROUPS + 2 }; /* compute, communication that nothing hides, idle, host */

/* Bytes of a class of ranks. */
void plait_html_memory_parts(const plait_rank_class *c, plait_html_part out[PLAIT_MEM_KINDS]);
/* The legend of what the classes hold, and a bar a class, at most `most` of them. */
void plait_html_classes_legend(FILE *out, const plait_rank_plan *p);
void plait_html_classes_bars(plait_html_bars *b, const plait_rank_plan *p, int most);

/* Seconds of a stage, whose sum is the step; stage -1: of all stages, their mean. */
void plait_html_time_parts(const plait_prediction *p, int stage, plait_html_part out[PLAIT_TIME_PARTS]);
/* Bytes that a rank of the class sends by ring algorithms (plait_class_sent), by group; returns their sum. */
double plait_html_volume_parts(const plait_rank_class *c, plait_html_part out[PLAIT_GROUPS]);

/* Adds values, for a legend of all bars. */
void plait_html_parts_add(plait_html_part *to, const plait_html_part *parts, int num);
/* Of the parts that are more than 0. */
void plait_html_parts_legend(FILE *out, const plait_html_part *parts, int num);

PLAIT_END_DECLS
#endif
