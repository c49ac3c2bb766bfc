#include "kernels/ref/ref_impl.h"

#include <string.h>

/* y[r] = table[tokens[r] - row0] */
plait_status REF(embedding_fwd)(const plait_exec *ex, void *y, const int32_t *tokens, const void *table, int64_t row0,
                                int64_t rows, int64_t N, int64_t C)
{
    (void)ex;
    for (int64_t r = 0; r < N; r++) {
        const int64_t row = tokens[r] - row0;
        if (row >= 0 && row < rows)
            memcpy((real *)y + r * C, (const real *)table + row * C, (size_t)C * sizeof(real));
    }
    return PLAIT_OK;
}

/* dtable[tokens[r] - row0] += dy[r]. Row by row: the order of the sum is that of the tokens. */
plait_status REF(embedding_bwd)(const plait_exec *ex, void *dtable, const int32_t *tokens, const void *dy, int64_t row0,
                                int64_t rows, int64_t N, int64_t C)
{
    (void)ex;
    for (int64_t r = 0; r < N; r++) {
        const int64_t row = tokens[r] - row0;
        if (row < 0 || row >= rows)
            continue;
        real *into = (real *)dtable + row * C;
        const real *from = (const real *)dy + r * C;
        for (int64_t c = 0; c < C; c++)
            into[c] += from[c];
    }
    return PLAIT_OK;
}

/* y[t batch + b] += pos[t] */
plait_status REF(position_fwd)(const plait_exec *ex, void *y, const void *pos, int64_t seq, int64_t batch, int64_t C)
{
    (void)ex;
    for (int64_t r = 0; r < seq * batch; r++)
        for (int64_t c = 0; c < C; c++)
            ((real *)y)[r * C + c] += ((const real *)pos)[r / batch * C + c];
    return PLAIT_OK;
}

/* dpos[t] += sum_b dy[t batch + b] */
plait_status REF(position_bwd)(const plait_exec *ex, void *dpos, const void *dy, int64_t seq, int64_t batch, int64_t C)
{
    (void)ex;
    for (int64_t t = 0; t < seq; t++) {
        for (int64_t c = 0; c < C; c++) {
            double sum = ((real *)dpos)[t * C + c];
            for (int64_t b = 0; b < batch; b++)
                sum += ((const real *)dy)[(t * batch + b) * C + c];
            ((real *)dpos)[t * C + c] = (real)sum;
        }
    }
    return PLAIT_OK;
}
