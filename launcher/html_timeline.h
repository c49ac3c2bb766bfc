/* launcher/html_timeline.h: the pipeline of a predicted step as a drawing: a row a stage, a box a forward or backward.
 */
#ifndef PLAIT_LAUNCHER_HTML_TIMELINE_H
#define PLAIT_LAUNCHER_HTML_TIMELINE_H

#include <stdio.h>

#include "parallel/replay.h"

PLAIT_BEGIN_DECLS

/* What the colours mean. chunks: the most of a stage. */
void plait_html_timeline_legend(FILE *out, int chunks);
/* At most `most` boxes: of more, and of more stages than fit, the first and the last part are drawn and the gap is
 * marked and said. */
void plait_html_timeline(FILE *out, const plait_prediction *p, int chunks, int most);

PLAIT_END_DECLS
#endif
