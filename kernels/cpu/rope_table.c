/* The table of rotary embeddings: once a run, so in double and without vectors. */
#include "kernels/cpu/impl.h"

#include <math.h>

plait_status ISA_FN(rope_table)(const plait_exec *ex, void *table, int64_t seq, int64_t D, double base)
{
    float *pair = table;
    (void)ex;
    for (int64_t t = 0; t < seq; t++)
        for (int64_t j = 0; j < D / 2; j++, pair += 2) {
            double angle = (double)t * pow(base, -2.0 * (double)j / (double)D);
            pair[0] = (float)cos(angle);
            pair[1] = (float)sin(angle);
        }
    return PLAIT_OK;
}
