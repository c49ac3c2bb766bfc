#include "kernels/epilogue.h"
#include "kernels/ref/ref_impl.h"

/* C[i,j] = sum_l op(A)[i,l] op(B)[l,j] + beta C[i,j] + bias[j], with l ascending. */
plait_status REF(gemm)(const plait_exec *ex, const plait_gemm *g)
{
    if (plait_has_epilogue(g))
        return plait_gemm_in_passes(ex, g);
    const real *a = g->a, *b = g->b, *bias = g->bias;
    const int64_t a_row = g->trans_a ? 1 : g->lda, a_col = g->trans_a ? g->lda : 1;
    const int64_t b_row = g->trans_b ? 1 : g->ldb, b_col = g->trans_b ? g->ldb : 1;

    for (int64_t i = 0; i < g->m; i++) {
        real *c = (real *)g->c + i * g->ldc;
        for (int64_t j0 = 0; j0 < g->n; j0 += REF_BLOCK) {
            const int64_t width = ref_min(REF_BLOCK, g->n - j0);
            double sum[REF_BLOCK] = {0.0};
            for (int64_t l = 0; l < g->k; l++) {
                const double a_il = a[i * a_row + l * a_col];
                for (int64_t j = 0; j < width; j++)
                    sum[j] += a_il * (double)b[l * b_row + (j0 + j) * b_col];
            }
            for (int64_t j = 0; j < width; j++) {
                if (bias)
                    sum[j] += bias[j0 + j];
                if (g->accumulate)
                    sum[j] += c[j0 + j];
                c[j0 + j] = (real)sum[j];
            }
        }
    }
    return PLAIT_OK;
}
