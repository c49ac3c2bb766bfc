/* Cuts a product into tiles of C, which threads share and a library computes. */
#include "kernels/cpu/blas.h"

#include <omp.h>
#include <pthread.h>

/* Two shapes of rows times two of columns: the last tile of a row or column may be smaller. */
typedef struct cut {
    int64_t m, n;             /* extents of a tile */
    int64_t m_count, n_count; /* tiles */
    plait_blas_tile *tile[2][2];
    size_t scratch; /* bytes that a thread needs */
} cut;

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* `n` in nearly equal parts of at most `most`, each a multiple of 48 (which all register blocks divide). */
static int64_t part(int64_t n, int64_t most)
{
    return min_i64(n, ceil_div(ceil_div(n, ceil_div(n, most)), 48) * 48);
}

/* Tiles are large enough that a library's packing of operands is a few percent, and at least about eight where that
 * leaves each of them some millions of multiplications. */
static void choose_extents(cut *c, const plait_gemm *g)
{
    int64_t m = 384, n = 768;
    for (;;) {
        c->m = part(g->m, m);
        c->n = part(g->n, n);
        c->m_count = ceil_div(g->m, c->m);
        c->n_count = ceil_div(g->n, c->n);
        if (c->m_count * c->n_count >= 8 || c->m * c->n * g->k < 4 << 20 || (c->m <= 96 && c->n <= 96))
            return;
        if (c->n >= c->m)
            n = c->n / 2 > 48 ? c->n / 2 : 48;
        else
            m = c->m / 2 > 48 ? c->m / 2 : 48;
    }
}

/* Tile (i, j) of g. */
static plait_gemm tile_of(const plait_gemm *g, plait_dtype dtype, const cut *c, int64_t i, int64_t j)
{
    plait_gemm t = *g;
    int64_t m0 = i * c->m, n0 = j * c->n;
    t.m = min_i64(c->m, g->m - m0);
    t.n = min_i64(c->n, g->n - n0);
    t.a = plait_at(g->a, dtype, g->trans_a ? m0 : m0 * g->lda);
    t.b = plait_at(g->b, dtype, g->trans_b ? n0 * g->ldb : n0);
    t.c = plait_at(g->c, g->c_acc ? PLAIT_FP32 : dtype, m0 * g->ldc + n0);
    t.bias = g->bias ? plait_at(g->bias, dtype, n0) : NULL;
    return t;
}

/* Opens the shapes of tiles; *all tells whether the library has them all. */
static plait_status open_tiles(const plait_exec *ex, plait_dtype dtype, const plait_gemm *g, cut *c, bool *all)
{
    *all = true;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            size_t bytes = 0;
            plait_gemm t = tile_of(g, dtype, c, i ? c->m_count - 1 : 0, j ? c->n_count - 1 : 0);
            /* A quarter, whatever the number of threads: which tiles the library computes must not depend on it. */
            PLAIT_TRY(plait_blas_tile_open(ex, dtype, &t, ex->scratch_bytes / 4, &c->tile[i][j], &bytes));
            bytes = (bytes + 63) / 64 * 64;
            c->scratch = bytes > c->scratch ? bytes : c->scratch;
            *all = *all && c->tile[i][j];
        }
    return PLAIT_OK;
}

static plait_status run_tiles(const plait_exec *ex, plait_dtype dtype, const plait_gemm *g, const cut *c)
{
    const int64_t tiles = c->m_count * c->n_count;
    int64_t threads = min_i64(ex->threads > 1 ? ex->threads : 1, tiles);
    int failed = 0;
    if (c->scratch > 0)
        threads = min_i64(threads, (int64_t)(ex->scratch_bytes / c->scratch));
        /* Neighbours in a column share their part of B. */
#pragma omp parallel for schedule(dynamic) num_threads((int)threads) reduction(max : failed)
    for (int64_t tile = 0; tile < tiles; tile++) {
        int64_t i = tile % c->m_count, j = tile / c->m_count;
        plait_gemm t = tile_of(g, dtype, c, i, j);
        int thread = omp_get_thread_num();
        void *scratch = c->scratch > 0 ? (char *)ex->scratch + (size_t)thread * c->scratch : NULL;
        int status = plait_blas_tile_run(c->tile[i == c->m_count - 1][j == c->n_count - 1], thread, scratch, &t);
        failed = status > failed ? status : failed;
    }
    if (failed)
        PLAIT_FAIL(INTERNAL, "matrix product %lld x %lld x %lld: the library failed with status %d", (long long)g->m,
                   (long long)g->n, (long long)g->k, failed);
    return PLAIT_OK;
}

static plait_status gemm_locked(const plait_exec *ex, plait_dtype dtype, const plait_gemm *g, bool *done)
{
    cut c = {0};
    bool all = false;
    choose_extents(&c, g);
    PLAIT_TRY(open_tiles(ex, dtype, g, &c, &all));
    if (!all)
        return PLAIT_OK;
    PLAIT_TRY(run_tiles(ex, dtype, g, &c));
    *done = true;
    return PLAIT_OK;
}

plait_status plait_blas_gemm(const plait_exec *ex, plait_dtype dtype, const plait_gemm *g, bool *done)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    *done = false;
    pthread_mutex_lock(&lock);
    /* The library asks OpenMP how many threads it may use, now and when it runs: one. */
    int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    plait_status st = gemm_locked(ex, dtype, g, done);
    omp_set_num_threads(threads);
    pthread_mutex_unlock(&lock);
    return st;
}
