/* kernels/epilogue.h: the epilogues of a product as operations of their own, for tables and shapes that have no better
 * way. */
#ifndef PLAIT_KERNELS_EPILOGUE_H
#define PLAIT_KERNELS_EPILOGUE_H

#include "kernels/kernels.h"

static inline bool plait_has_epilogue(const plait_gemm *g)
{
    return g->gelu || g->dgelu || g->bias_grad;
}

/* The product by ex->k, and then what follows it. */
PLAIT_MUST_USE static inline plait_status plait_gemm_in_passes(const plait_exec *ex, const plait_gemm *g)
{
    plait_gemm product = *g;
    product.gelu = product.bias_grad = NULL;
    product.dgelu = NULL;
    PLAIT_TRY(ex->k->gemm(ex, &product));
    if (g->gelu)
        PLAIT_TRY(ex->k->gelu_fwd(ex, g->gelu, g->c, g->m * g->n));
    if (g->dgelu)
        PLAIT_TRY(ex->k->gelu_bwd(ex, g->c, g->c, g->dgelu, g->m * g->n));
    return g->bias_grad ? ex->k->bias_grad(ex, g->bias_grad, g->a, g->k, g->m) : PLAIT_OK;
}

#endif
