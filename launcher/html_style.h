/* launcher/html_style.h: how the pages of launcher/html.h look. */
#ifndef PLAIT_LAUNCHER_HTML_STYLE_H
#define PLAIT_LAUNCHER_HTML_STYLE_H

#include <stdio.h>

#include "core/status.h"

PLAIT_BEGIN_DECLS

/* The style sheet: light and dark, wide and narrow, on paper. */
void plait_html_style(FILE *out);

PLAIT_END_DECLS
#endif
