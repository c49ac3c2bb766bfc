/* kernels/cpu/blas.h: the one library of matrix products, chosen by PLAIT_GEMM when configuring.
 *
 * A library's own threads may cut a sum differently for each number of threads. So a product is cut here
 * (gemm_tiles.c), into tiles that only the shapes decide, and the library computes a tile on one thread.
 * gemm_onednn.c and gemm_openblas.c implement the tiles; nothing else knows which one is there.
 */
#ifndef PLAIT_KERNELS_CPU_BLAS_H
#define PLAIT_KERNELS_CPU_BLAS_H

#include "kernels/kernels.h"

PLAIT_BEGIN_DECLS

/* g in `dtype`: fp32, or a 16-bit type that the processor multiplies at full speed. Threads share the tiles of C.
 * *done false: the library has no fast way within ex->scratch, nothing was written. Fails (PLAIT_INTERNAL) when the
 * library does. For one thread of the program at a time: others wait. */
PLAIT_MUST_USE plait_status plait_blas_gemm(const plait_exec *ex, plait_dtype dtype, const plait_gemm *g, bool *done);

/* Keeps the library from using more than AVX2, if it has not yet been called and can be told. */
void plait_blas_limit_avx2(void);

/* What the library keeps for one shape: strides, flags and extents of a plait_gemm, without its pointers. */
typedef struct plait_blas_tile plait_blas_tile;

/* The library's way for the shape of g, NULL if it has none that takes at most scratch_limit bytes; *scratch_bytes is
 * what it takes. It belongs to the library's file and stays valid while at most four are open. */
PLAIT_MUST_USE plait_status plait_blas_tile_open(const plait_exec *ex, plait_dtype dtype, const plait_gemm *g,
                                                 size_t scratch_limit, plait_blas_tile **out, size_t *scratch_bytes);

/* Runs it with the pointers of g on the calling thread, number `thread` below ex->threads. 0, or the library's own
 * status. */
int plait_blas_tile_run(const plait_blas_tile *t, int thread, void *scratch, const plait_gemm *g);

PLAIT_END_DECLS
#endif
