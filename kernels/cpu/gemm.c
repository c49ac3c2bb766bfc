/* Matrix products: what a library does well goes to it, the rest is cut up here. */
#include "kernels/cpu/blas.h"
#include "kernels/cpu/typed.h"
#include "kernels/epilogue.h"

/* Below this many multiplications a library's call costs more than the work. */
#define SMALL_PRODUCT (16 * 16 * 16)

static plait_status sgemm(const plait_exec *ex, const plait_gemm *g)
{
    bool done = false;
    if (g->k > 0 && g->m * g->n * g->k > SMALL_PRODUCT)
        PLAIT_TRY(plait_blas_gemm(ex, PLAIT_FP32, g, &done));
    if (!done)
        ISA_FN(small_gemm)(ex, g);
    return PLAIT_OK;
}

#if PLAIT_CPU_IS(fp32)

plait_status FN(gemm)(const plait_exec *ex, const plait_gemm *g)
{
    if (plait_has_epilogue(g))
        return plait_gemm_in_passes(ex, g);
    return g->m > 0 && g->n > 0 ? sgemm(ex, g) : PLAIT_OK;
}

#else

/* A product of 16-bit matrices on a processor without instructions for it: blocks of A and B (and of C, where C is T)
 * are widened to fp32 panels in scratch and multiplied in fp32. C is rounded once, after the last block of k. */
typedef struct panels {
    plait_exec rest; /* with the scratch that the panels leave */
    const plait_gemm *g;
    int64_t m, n, k; /* extents of a block */
    float *a, *b, *c, *bias;
    const void *a_held; /* which block of A the panel holds */
} panels;

/* to (rows, cols) = from, whose leading dimension is ld */
static void widen(const plait_exec *ex, float *to, const elem *from, int64_t rows, int64_t cols, int64_t ld)
{
#pragma omp parallel for schedule(static) num_threads(team(ex, rows *cols))
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c += LANES) {
            int64_t w = width(c, cols);
            vf_store_n(to + r * cols + c, load(from + r * ld + c, w), w);
        }
}

static void narrow(const plait_exec *ex, elem *to, const float *from, int64_t rows, int64_t cols, int64_t ld)
{
#pragma omp parallel for schedule(static) num_threads(team(ex, rows *cols))
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c += LANES) {
            int64_t w = width(c, cols);
            store(to + r * ld + c, vf_load_n(from + r * cols + c, w), w);
        }
}

static int64_t round_up(int64_t n)
{
    return (n + 15) / 16 * 16;
}

/* Floats that the panels of a block take. */
static int64_t panel_floats(const panels *p)
{
    return round_up(p->m * p->k) + round_up(p->k * p->n) + (p->g->c_acc ? 0 : round_up(p->m * p->n)) +
           (p->g->bias ? round_up(p->n) : 0);
}

/* Halves the largest extent until the panels fit into three quarters of scratch; the rest is the library's. k is the
 * dearest to cut (C is read again), so it counts as half. Only shapes and scratch decide, never threads. */
static plait_status plan_panels(panels *p, const plait_exec *ex, const plait_gemm *g)
{
    const int64_t room = (int64_t)(ex->scratch_bytes / sizeof(float)) / 4 * 3;
    *p = (panels){.rest = *ex, .g = g, .m = g->m, .n = g->n, .k = g->k};
    while (panel_floats(p) > room) {
        int64_t *cut = p->n >= p->m ? &p->n : &p->m;
        if (p->k / 2 > *cut)
            cut = &p->k;
        if (*cut <= 16)
            PLAIT_FAIL(OUT_OF_MEMORY, "device.workspace %zu bytes: a product in %s needs %zu", ex->scratch_bytes,
                       plait_dtype_name(ELEM_DTYPE), (size_t)panel_floats(p) / 3 * 4 * sizeof(float));
        *cut = round_up(*cut / 2);
    }
    p->a = ex->scratch;
    p->b = p->a + round_up(p->m * p->k);
    p->c = p->b + round_up(p->k * p->n);
    p->bias = p->c + (g->c_acc ? 0 : round_up(p->m * p->n));
    size_t used = (size_t)panel_floats(p) * sizeof(float);
    p->rest.scratch = (char *)ex->scratch + used;
    p->rest.scratch_bytes = ex->scratch_bytes - used;
    return PLAIT_OK;
}

/* The block of C at (m0, n0) plus A B over [k0, k0 + K). */
static plait_status one_block(panels *p, int64_t m0, int64_t M, int64_t n0, int64_t N, int64_t k0, int64_t K)
{
    const plait_gemm *g = p->g;
    const plait_exec *ex = &p->rest;
    const elem *a = (const elem *)g->a + (g->trans_a ? k0 * g->lda + m0 : m0 * g->lda + k0);
    const elem *b = (const elem *)g->b + (g->trans_b ? n0 * g->ldb + k0 : k0 * g->ldb + n0);
    plait_gemm f = {.trans_a = g->trans_a, .trans_b = g->trans_b, .m = M, .n = N, .k = K, .a = p->a, .b = p->b};

    f.lda = g->trans_a ? M : K;
    f.ldb = g->trans_b ? K : N;
    if (p->a_held != a)
        widen(ex, p->a, a, g->trans_a ? K : M, f.lda, g->lda);
    p->a_held = a;
    widen(ex, p->b, b, g->trans_b ? N : K, f.ldb, g->ldb);
    f.accumulate = k0 > 0 || g->accumulate;
    if (g->bias && k0 == 0) {
        widen(ex, p->bias, (const elem *)g->bias + n0, 1, N, N);
        f.bias = p->bias;
    }
    if (g->c_acc) {
        f.c = (float *)g->c + m0 * g->ldc + n0;
        f.ldc = g->ldc;
        return sgemm(ex, &f);
    }
    elem *c = (elem *)g->c + m0 * g->ldc + n0;
    f.c = p->c;
    f.ldc = N;
    if (k0 == 0 && g->accumulate)
        widen(ex, p->c, c, M, N, g->ldc);
    PLAIT_TRY(sgemm(ex, &f));
    if (k0 + K >= g->k)
        narrow(ex, c, p->c, M, N, g->ldc);
    return PLAIT_OK;
}

plait_status FN(gemm)(const plait_exec *ex, const plait_gemm *g)
{
    bool done = false;
    panels p;
    if (plait_has_epilogue(g))
        return plait_gemm_in_passes(ex, g);
    if (g->m <= 0 || g->n <= 0)
        return PLAIT_OK;
    if (g->k > 0)
        PLAIT_TRY(plait_blas_gemm(ex, ELEM_DTYPE, g, &done));
    if (done)
        return PLAIT_OK;
    PLAIT_TRY(plan_panels(&p, ex, g));
    for (int64_t m = 0; m < g->m; m += p.m)
        for (int64_t n = 0; n < g->n; n += p.n) {
            int64_t M = min_i64(p.m, g->m - m), N = min_i64(p.n, g->n - n), k = 0;
            do /* once even where k is 0: beta and bias remain */
                PLAIT_TRY(one_block(&p, m, M, n, N, k, min_i64(p.k, g->k - k)));
            while ((k += p.k) < g->k);
        }
    return PLAIT_OK;
}

#endif
