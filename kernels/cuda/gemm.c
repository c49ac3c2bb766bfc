/* Matrix products: most are the library's (gemm_library.h). Here is what stands between it and what the table promises:
 * biases and matrices that lie anywhere, types that it does not mix, gradients that are added, and, where it has no
 * algorithm, other kernels.
 */
#include "kernels/cuda/cuda_impl.h"
#include "kernels/cuda/gemm_library.h"
#include "kernels/cuda/gemm_small.h"
#include "kernels/epilogue.h"

/* What cuBLASLt's documentation asks of a workspace; and elements of which the lines of an auxiliary matrix are whole
 * groups. */
enum { WORKSPACE_ALIGN = 256, AUX_GROUP = 8 };

/* The scratch, aligned as a workspace. */
static plait_cuda_room room_of(const plait_exec *ex)
{
    const size_t skip = (size_t)(-(uintptr_t)ex->scratch % WORKSPACE_ALIGN);
    plait_cuda_room r = {NULL, 0};
    if (ex->scratch && ex->scratch_bytes > skip) {
        r.at = (char *)ex->scratch + skip;
        r.bytes = (ex->scratch_bytes - skip) / WORKSPACE_ALIGN * WORKSPACE_ALIGN;
    }
    return r;
}

/* Takes the front of it, for a vector that the library wants aligned; NULL where it is too small. */
static void *take_front(plait_cuda_room *r, size_t bytes)
{
    const size_t taken = (bytes + WORKSPACE_ALIGN - 1) / WORKSPACE_ALIGN * WORKSPACE_ALIGN;
    void *at = r->at;
    if (taken > r->bytes)
        return NULL;
    r->at += taken;
    r->bytes -= taken;
    return at;
}

/* cuBLASLt reads a bias in wide loads: one that begins anywhere is copied to the front of scratch. *done is false where
 * there is no room for it. */
static plait_status with_aligned_bias(const plait_exec *ex, const plait_gemm *g, plait_cuda_room r, bool *done)
{
    const size_t bytes = (size_t)g->n * plait_dtype_size(ex->k->dtype);
    plait_gemm aligned = *g;
    *done = false;
    if (!g->bias || plait_cuda_alignment(g->bias) == PLAIT_CUDA_ALIGN)
        return plait_cuda_library_gemm(ex, g, r, NULL, done);
    void *bias = take_front(&r, bytes);
    if (!bias)
        return PLAIT_OK;
    PLAIT_TRY_CUDA(cudaMemcpyAsync(bias, g->bias, bytes, cudaMemcpyDeviceToDevice, plait_cuda_stream_of(ex)));
    aligned.bias = bias;
    return plait_cuda_library_gemm(ex, &aligned, r, NULL, done);
}

/* The library writes the gradient of a bias, and it is to be added to what earlier micro-batches left. */
static plait_status with_bias_grad(const plait_exec *ex, const plait_gemm *g, plait_cuda_room r, bool *done)
{
    void *sums = take_front(&r, (size_t)g->m * sizeof(float));
    *done = false;
    if (!sums)
        return PLAIT_OK;
    PLAIT_TRY(plait_cuda_library_gemm(ex, g, r, sums, done));
    return *done ? ex->k->add(ex, g->bias_grad, sums, PLAIT_FP32, g->m) : PLAIT_OK;
}

/* The library counts in 32 bits, and its columns may not overlap. */
static bool is_for_library(const plait_gemm *g)
{
    return g->k > 0 && g->m <= INT32_MAX && g->n <= INT32_MAX && g->k <= INT32_MAX &&
           g->lda >= (g->trans_a ? g->m : g->k) && g->ldb >= (g->trans_b ? g->k : g->n) && g->ldc >= g->n;
}

/* It writes C itself and its GELU, or reads where GELU's slope is wanted, in whole groups; and what it writes to the
 * bias has C's type. */
static bool is_epilogue_for_library(const plait_exec *ex, const plait_gemm *g)
{
    const void *aux = g->gelu ? g->c : g->dgelu;
    if (aux)
        return g->n % AUX_GROUP == 0 && plait_cuda_alignment(aux) == PLAIT_CUDA_ALIGN && !(g->dgelu && g->bias);
    return !g->bias && (g->c_acc || ex->k->dtype == PLAIT_FP32);
}

/* Without an epilogue. */
static plait_status plain(const plait_exec *ex, const plait_gemm *g)
{
    bool done;
    if (g->m <= 0 || g->n <= 0)
        return PLAIT_OK;
    if (!is_for_library(g))
        return plait_cuda_small_gemm(ex, ex->k->dtype, g);
    if (g->bias && g->c_acc && ex->k->dtype != PLAIT_FP32) {
        /* Its bias has the type of C, ours is T: the bias goes to C first, and the product is added. */
        plait_gemm added = *g;
        PLAIT_TRY(plait_cuda_bias_rows(ex, ex->k->dtype, g));
        added.bias = NULL;
        added.accumulate = true;
        return plain(ex, &added);
    }
    PLAIT_TRY(with_aligned_bias(ex, g, room_of(ex), &done));
    return done ? PLAIT_OK : plait_cuda_small_gemm(ex, ex->k->dtype, g);
}

static plait_status gemm(const plait_exec *ex, const plait_gemm *g)
{
    bool done = false;
    if (!plait_has_epilogue(g))
        return plain(ex, g);
    if (g->m > 0 && g->n > 0 && is_for_library(g) && is_epilogue_for_library(ex, g))
        PLAIT_TRY(g->bias_grad ? with_bias_grad(ex, g, room_of(ex), &done)
                               : with_aligned_bias(ex, g, room_of(ex), &done));
    return done ? PLAIT_OK : plait_gemm_in_passes(ex, g);
}

void plait_cuda_fill_gemm(plait_kernels *k)
{
    k->gemm = gemm;
}
