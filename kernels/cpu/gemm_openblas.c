/* Tiles of matrix products by OpenBLAS (or another library with its C interface): fp32 only, the 16-bit types are
 * widened. */
#include "kernels/cpu/blas.h"

#include <cblas.h>

struct plait_blas_tile {
    char unused;
};

void plait_blas_limit_avx2(void) {} /* OpenBLAS chooses when it is loaded */

/* C starts as the bias, or has it added. */
static void put_bias(const plait_gemm *g)
{
    const float *bias = g->bias;
    for (int64_t m = 0; m < g->m; m++) {
        float *c = (float *)g->c + m * g->ldc;
        for (int64_t n = 0; n < g->n; n++)
            c[n] = g->accumulate ? c[n] + bias[n] : bias[n];
    }
}

plait_status plait_blas_tile_open(const plait_exec *ex, plait_dtype dtype, const plait_gemm *g, size_t scratch_limit,
                                  plait_blas_tile **out, size_t *scratch_bytes)
{
    static plait_blas_tile any_shape;
    const int64_t extents[] = {g->m, g->n, g->k, g->lda, g->ldb, g->ldc};
    (void)ex, (void)scratch_limit;
    *out = dtype == PLAIT_FP32 ? &any_shape : NULL;
    *scratch_bytes = 0;
    for (int i = 0; i < 6; i++)
        if (extents[i] != (blasint)extents[i])
            *out = NULL;
    openblas_set_num_threads(1);
    return PLAIT_OK;
}

int plait_blas_tile_run(const plait_blas_tile *t, int thread, void *scratch, const plait_gemm *g)
{
    (void)t, (void)thread, (void)scratch;
    if (g->bias)
        put_bias(g);
    cblas_sgemm(CblasRowMajor, g->trans_a ? CblasTrans : CblasNoTrans, g->trans_b ? CblasTrans : CblasNoTrans,
                (blasint)g->m, (blasint)g->n, (blasint)g->k, 1.0f, g->a, (blasint)g->lda, g->b, (blasint)g->ldb,
                g->accumulate || g->bias ? 1.0f : 0.0f, g->c, (blasint)g->ldc);
    return 0;
}
