/* launcher/compare_words.h: what a comparison says, in sentences with their bytes and seconds.
 */
#ifndef PLAIT_LAUNCHER_COMPARE_WORDS_H
#define PLAIT_LAUNCHER_COMPARE_WORDS_H

#include <stdio.h>

#include "launcher/variants.h"

PLAIT_BEGIN_DECLS

/* A sentence a line: which variant is smallest and why, which is fastest and why, what tensor parallelism and ZeRO-3
 * cost each, what of the parameters a rank of ZeRO-3 has, how long the stages of pipelines idle, how many runs
 * were as planned. Times are measured
 * ones where there are any, else predicted ones; without both nothing is said of time. */
void plait_compare_words(const plait_variants *v, FILE *out);

PLAIT_END_DECLS
#endif
