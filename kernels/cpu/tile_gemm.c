/* Products of small fp32 matrices: what attention's tiles are made of, and products too small for a library.
 *
 * A block of ROWS x VECS vectors of C stays in registers while k runs; each step broadcasts ROWS numbers of A and loads
 * VECS vectors of B. 6 x 2 fills AVX2's 16 registers, 12 x 2 AVX-512's 32.
 */
#include "kernels/cpu/impl.h"
#include "kernels/cpu/vec.h"

#if LANES == 16
#define ROWS 12
#else
#define ROWS 6
#endif

typedef struct operands {
    const float *a, *b;
    float *c;
    int64_t a_row, a_col, ldb, ldc, K;
    bool accumulate;
} operands;

/* rows and vecs are constants in every call, so that the loops over them are unrolled and acc lies in registers. */
static inline __attribute__((always_inline)) void block(const operands *o, const int rows, const int vecs)
{
    const float *a = o->a, *b = o->b;
    vf acc[ROWS][2];
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vecs; j++)
            acc[i][j] = o->accumulate ? vf_load(o->c + i * o->ldc + j * LANES) : (vf){0};
    for (int64_t k = 0; k < o->K; k++, a += o->a_col, b += o->ldb) {
        vf bk[2];
#pragma GCC unroll 2
        for (int j = 0; j < vecs; j++)
            bk[j] = vf_load(b + j * LANES);
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++) {
            vf ai = vf_set(a[i * o->a_row]);
#pragma GCC unroll 2
            for (int j = 0; j < vecs; j++)
                acc[i][j] = vf_fma(ai, bk[j], acc[i][j]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vecs; j++)
            vf_store(o->c + i * o->ldc + j * LANES, acc[i][j]);
}

/* One row and the last, partial vector of columns. */
static void ragged(const operands *o, int rows, int64_t w)
{
    for (int i = 0; i < rows; i++) {
        float *c = o->c + i * o->ldc;
        vf acc = o->accumulate ? vf_load_n(c, w) : (vf){0};
        for (int64_t k = 0; k < o->K; k++)
            acc = vf_fma(vf_set(o->a[i * o->a_row + k * o->a_col]), vf_load_n(o->b + k * o->ldb, w), acc);
        vf_store_n(c, acc, w);
    }
}

#define CASE(r)                                                                                                        \
    case r:                                                                                                            \
        if (vecs == 2)                                                                                                 \
            block(o, r, 2);                                                                                            \
        else                                                                                                           \
            block(o, r, 1);                                                                                            \
        break;

static void any_block(const operands *o, int rows, int vecs)
{
    switch (rows) {
        CASE(1)
        CASE(2)
        CASE(3)
        CASE(4)
        CASE(5)
        CASE(6)
#if ROWS == 12
        CASE(7)
        CASE(8)
        CASE(9)
        CASE(10)
        CASE(11)
        CASE(12)
#endif
    }
}

void ISA_FN(tile_gemm)(int64_t M, int64_t N, int64_t K, const float *a, int64_t a_row, int64_t a_col, const float *b,
                       int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
    for (int64_t n = 0; n < N;) {
        int64_t left = N - n, vecs = left >= 2 * LANES ? 2 : left >= LANES ? 1 : 0;
        for (int64_t m = 0; m < M; m += ROWS) {
            int rows = (int)min_i64(ROWS, M - m);
            operands o = {a + m * a_row, b + n, c + m * ldc + n, a_row, a_col, ldb, ldc, K, accumulate};
            if (vecs > 0)
                any_block(&o, rows, (int)vecs);
            else
                ragged(&o, rows, left);
        }
        n += vecs > 0 ? vecs * LANES : left;
    }
}

/* Blocks of B that are copied (and so transposed, where B is stored the other way) to the stack. */
#define BLOCK_N 64
#define BLOCK_K 64

static void copy_b(float *to, const plait_gemm *g, int64_t k0, int64_t K, int64_t n0, int64_t N)
{
    const float *b = g->b;
    for (int64_t k = 0; k < K; k++)
        for (int64_t n = 0; n < N; n++)
            to[k * BLOCK_N + n] = g->trans_b ? b[(n0 + n) * g->ldb + k0 + k] : b[(k0 + k) * g->ldb + n0 + n];
}

/* Columns [n0, n0 + N) of C. */
static void columns(const plait_gemm *g, int64_t n0, int64_t N)
{
    float packed[BLOCK_K * BLOCK_N];
    float *c = (float *)g->c + n0;
    const float *bias = g->bias;
    int64_t a_row = g->trans_a ? 1 : g->lda, a_col = g->trans_a ? g->lda : 1;
    if (g->k == 0 && !g->accumulate)
        for (int64_t m = 0; m < g->m; m++)
            memset(c + m * g->ldc, 0, (size_t)N * sizeof *c);
    for (int64_t k0 = 0; k0 < g->k; k0 += BLOCK_K) {
        int64_t K = min_i64(BLOCK_K, g->k - k0);
        copy_b(packed, g, k0, K, n0, N);
        ISA_FN(tile_gemm)
        (g->m, N, K, (const float *)g->a + k0 * a_col, a_row, a_col, packed, BLOCK_N, c, g->ldc,
         g->accumulate || k0 > 0);
    }
    for (int64_t m = 0; bias && m < g->m; m++)
        for (int64_t n = 0; n < N; n++)
            c[m * g->ldc + n] += bias[n0 + n];
}

void ISA_FN(small_gemm)(const plait_exec *ex, const plait_gemm *g)
{
#pragma omp parallel for schedule(static) num_threads(team(ex, g->m * g->n * g->k / 16))
    for (int64_t n = 0; n < g->n; n += BLOCK_N)
        columns(g, n, min_i64(BLOCK_N, g->n - n));
}
