/* Descriptions of products, the library's choice of algorithms for them, and what is kept of it.
 *
 * Its epilogues exist for column-major results only, and a row-major C (m, n) is the column-major C^T (n, m): so what
 * it is asked for is C^T = op(B)^T op(A)^T. Its A is our B, its rows are our columns, and its bias, a number for each
 * row, is ours, a number for each column. Its epilogues that a layer has use for: GELU_AUX (GELU(C), and C itself as
 * the auxiliary matrix), DGELU (C times the slope of GELU at the auxiliary matrix), BGRADB (sums of its B, our A).
 *
 * The algorithm is its own choice. It is asked once for a shape, since asking takes longer than a small product, and
 * what it said is kept: a step after the first asks, and allocates, nothing. The choice depends on the shape, types,
 * alignment and workspace alone, so the same product has the same bits in every run on one kind of GPU.
 */
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "kernels/cuda/cuda_impl.h"
#include "kernels/cuda/gemm_library.h"
#include "kernels/epilogue.h"

/* A step has some tens of shapes. Of a full set the one used longest ago is replaced. */
enum { SETS = 64, WAYS = 8 };

/* From this many multiplications on it is worth a warning that the library does not take them. */
#define WORTH_A_WARNING ((int64_t)1 << 24)

/* Everything that the choice depends on. Zeroed before it is filled, since it is compared as bytes. */
typedef struct key {
    int64_t m, n, k, lda, ldb, ldc;
    uint64_t workspace; /* bytes it may have */
    int32_t dtype;
    int32_t epilogue;
    bool trans_a, trans_b, c_acc, accumulate;
    bool tf32; /* products of fp32 on tensor cores, which round what they multiply to 11 bits */
    uint8_t align_a, align_b, align_d;
} key;

typedef struct product {
    key key;
    uint64_t used; /* when it was last asked for */
    bool found;    /* the library has an algorithm */
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t a, b, c; /* the library's: our B, A and C, transposed */
} product;

struct plait_cuda_gemms {
    uint64_t uses;
    product products[SETS][WAYS];
};

plait_status plait_cuda_gemms_create(struct plait_cuda_gemms **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the algorithms of matrix products");
    return PLAIT_OK;
}

void plait_cuda_gemms_destroy(struct plait_cuda_gemms *g)
{
    free(g);
}

/* ---- keys ---- */

static cublasLtEpilogue_t epilogue_of(const plait_gemm *g)
{
    if (g->gelu)
        return g->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    if (g->dgelu)
        return CUBLASLT_EPILOGUE_DGELU;
    if (g->bias_grad)
        return CUBLASLT_EPILOGUE_BGRADB;
    return g->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/* What is written by the product itself: with GELU, C is the auxiliary matrix. */
static void *result_of(const plait_gemm *g)
{
    return g->gelu ? g->gelu : g->c;
}

static key key_of(const plait_exec *ex, plait_dtype dtype, const plait_gemm *g, size_t workspace)
{
    key k;
    memset(&k, 0, sizeof k);
    k.m = g->m;
    k.n = g->n;
    k.k = g->k;
    k.lda = g->lda;
    k.ldb = g->ldb;
    k.ldc = g->ldc;
    k.workspace = workspace;
    k.dtype = (int32_t)dtype;
    k.trans_a = g->trans_a;
    k.trans_b = g->trans_b;
    k.c_acc = g->c_acc || dtype == PLAIT_FP32;
    k.accumulate = g->accumulate;
    k.epilogue = (int32_t)epilogue_of(g);
    k.tf32 = ex->allow_tf32 && dtype == PLAIT_FP32;
    k.align_a = plait_cuda_alignment(g->a);
    k.align_b = plait_cuda_alignment(g->b);
    k.align_d = plait_cuda_alignment(result_of(g));
    return k;
}

static uint64_t hash_of(const key *k)
{
    uint64_t words[sizeof(key) / 8], h = 0;
    _Static_assert(sizeof(key) % 8 == 0, "a key is whole words");
    memcpy(words, k, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        h = (h ^ words[i]) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    return h;
}

static bool uses_aux(int32_t epilogue)
{
    return epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
           epilogue == CUBLASLT_EPILOGUE_DGELU;
}

/* For people. */
static const char *name_of(int32_t epilogue)
{
    switch (epilogue) {
    case CUBLASLT_EPILOGUE_BIAS:
        return ", bias";
    case CUBLASLT_EPILOGUE_GELU_AUX:
        return ", GELU";
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        return ", bias and GELU";
    case CUBLASLT_EPILOGUE_DGELU:
        return ", slope of GELU";
    case CUBLASLT_EPILOGUE_BGRADB:
        return ", gradient of a bias";
    default:
        return "";
    }
}

/* Puts the product into the sentence of a failure. */
static plait_status with_shape(const key *k, plait_status st)
{
    if (st != PLAIT_OK)
        plait_error_prefix(
            "product of m %lld, n %lld, k %lld in %s%s (%s%s, ld %lld %lld %lld%s%s%s, workspace %llu): ",
            (long long)k->m, (long long)k->n, (long long)k->k, plait_dtype_name((plait_dtype)k->dtype),
            k->tf32 ? " as TF32" : "", k->trans_a ? "T" : "N", k->trans_b ? "T" : "N", (long long)k->lda,
            (long long)k->ldb, (long long)k->ldc, k->c_acc ? ", fp32 result" : "", k->accumulate ? ", added" : "",
            name_of(k->epilogue), (unsigned long long)k->workspace);
    return st;
}

/* ---- asking the library ---- */

static cudaDataType type_of(plait_dtype dtype)
{
    return dtype == PLAIT_FP32 ? CUDA_R_32F : dtype == PLAIT_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

#define SET(setter, what, attribute, value) PLAIT_TRY_CUBLAS(setter(what, attribute, &(value), sizeof(value)))

static plait_status describe(product *p)
{
    const key *k = &p->key;
    const cudaDataType type = type_of((plait_dtype)k->dtype);
    const cublasOperation_t op_a = k->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                            op_b = k->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t epilogue = (cublasLtEpilogue_t)k->epilogue;
    const cublasComputeType_t compute = k->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const uint64_t m = (uint64_t)k->m, n = (uint64_t)k->n, depth = (uint64_t)k->k;

    PLAIT_TRY_CUBLAS(cublasLtMatmulDescInit(&p->op, compute, CUDA_R_32F));
    SET(cublasLtMatmulDescSetAttribute, &p->op, CUBLASLT_MATMUL_DESC_TRANSA, op_a);
    SET(cublasLtMatmulDescSetAttribute, &p->op, CUBLASLT_MATMUL_DESC_TRANSB, op_b);
    SET(cublasLtMatmulDescSetAttribute, &p->op, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (uses_aux(k->epilogue))
        SET(cublasLtMatmulDescSetAttribute, &p->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, k->ldc);
    /* A row of ours is a column of the library's. */
    PLAIT_TRY_CUBLAS(cublasLtMatrixLayoutInit(&p->a, type, k->trans_b ? depth : n, k->trans_b ? n : depth, k->ldb));
    PLAIT_TRY_CUBLAS(cublasLtMatrixLayoutInit(&p->b, type, k->trans_a ? m : depth, k->trans_a ? depth : m, k->lda));
    PLAIT_TRY_CUBLAS(cublasLtMatrixLayoutInit(&p->c, k->c_acc ? CUDA_R_32F : type, n, m, k->ldc));
    return PLAIT_OK;
}

/* Sums that are split along k are added in fp32, from the workspace, in a separate pass: the other two schemes round
 * them to C's type on the way. None of the schemes adds in the order of arrival. */
static plait_status limit_choice(cublasLtMatmulPreference_t pref, const key *k)
{
    const uint32_t sums = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint32_t a = k->align_b, b = k->align_a, c = k->align_d;
    PLAIT_TRY_CUBLAS(cublasLtMatmulPreferenceInit(pref));
    SET(cublasLtMatmulPreferenceSetAttribute, pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, k->workspace);
    SET(cublasLtMatmulPreferenceSetAttribute, pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, sums);
    SET(cublasLtMatmulPreferenceSetAttribute, pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, a);
    SET(cublasLtMatmulPreferenceSetAttribute, pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, b);
    SET(cublasLtMatmulPreferenceSetAttribute, pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c);
    SET(cublasLtMatmulPreferenceSetAttribute, pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c);
    return PLAIT_OK;
}

/* What the epilogue reads and writes beside C: of each call, while the product's description stays. `sums`: where the
 * gradient of a bias goes. */
static plait_status place_epilogue(product *p, const plait_gemm *g, void *sums)
{
    const void *bias = g->bias_grad ? sums : g->bias, *aux = g->gelu ? g->c : g->dgelu;
    if (bias)
        SET(cublasLtMatmulDescSetAttribute, &p->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    if (aux)
        SET(cublasLtMatmulDescSetAttribute, &p->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
    return PLAIT_OK;
}

/* The best that fits, if there is one: an unsupported combination is no failure. */
static plait_status choose(product *p, cublasLtHandle_t lt, const plait_gemm *g, void *sums)
{
    enum { ASKED = 8 };
    cublasLtMatmulHeuristicResult_t results[ASKED];
    cublasLtMatmulPreferenceOpaque_t pref;
    int count = 0;

    PLAIT_TRY(describe(p));
    PLAIT_TRY(limit_choice(&pref, &p->key));
    PLAIT_TRY(place_epilogue(p, g, sums));
    const cublasStatus_t asked =
        cublasLtMatmulAlgoGetHeuristic(lt, &p->op, &p->a, &p->b, &p->c, &p->c, &pref, ASKED, results, &count);
    /* Which of the two it says to an epilogue that a type or shape has not, is not documented. */
    if (asked == CUBLAS_STATUS_NOT_SUPPORTED || (asked == CUBLAS_STATUS_INVALID_VALUE && plait_has_epilogue(g)))
        return PLAIT_OK;
    PLAIT_TRY_CUBLAS(asked);
    for (int i = 0; i < count && !p->found; i++) {
        if (results[i].state != CUBLAS_STATUS_SUCCESS || results[i].workspaceSize > p->key.workspace)
            continue;
        p->found = true;
        p->algo = results[i].algo;
        p->workspace = results[i].workspaceSize;
    }
    return PLAIT_OK;
}

static plait_status make_product(product *p, const key *k, cublasLtHandle_t lt, const plait_gemm *g, void *sums)
{
    memset(p, 0, sizeof *p);
    p->key = *k;
    const plait_status st = choose(p, lt, g, sums);
    if (st != PLAIT_OK) {
        memset(p, 0, sizeof *p); /* the next call asks again */
        return with_shape(k, st);
    }
    if (!p->found && k->m * k->n >= WORTH_A_WARNING / k->k)
        plait_log(
            PLAIT_LOG_WARN,
            "cuBLASLt has no algorithm for the product of m %lld, n %lld, k %lld in %s (ld %lld %lld %lld%s, workspace "
            "%llu): %s",
            (long long)k->m, (long long)k->n, (long long)k->k, plait_dtype_name((plait_dtype)k->dtype),
            (long long)k->lda, (long long)k->ldb, (long long)k->ldc, name_of(k->epilogue),
            (unsigned long long)k->workspace,
            plait_has_epilogue(g) ? "the last is computed after it" : "a plain kernel computes it, slowly");
    return PLAIT_OK;
}

static plait_status find_product(const plait_cuda_stream *s, const key *k, const plait_gemm *g, void *sums,
                                 product **out)
{
    product *p = s->gemms->products[hash_of(k) % SETS], *end = p + WAYS, *oldest = p;
    for (; p < end; p++) {
        if (memcmp(&p->key, k, sizeof *k) == 0)
            break;
        if (p->used < oldest->used)
            oldest = p;
    }
    if (p == end) {
        p = oldest;
        PLAIT_TRY(make_product(p, k, s->lt, g, sums));
    }
    p->used = ++s->gemms->uses;
    *out = p;
    return PLAIT_OK;
}

/* ---- the product ---- */

plait_status plait_cuda_library_gemm(const plait_exec *ex, const plait_gemm *g, plait_cuda_room room, void *sums,
                                     bool *done)
{
    static const float one = 1.0f, zero = 0.0f;
    const plait_cuda_stream *s = ex->stream;
    const key k = key_of(ex, ex->k->dtype, g, room.bytes);
    void *d = result_of(g);
    product *p;
    PLAIT_TRY(find_product(s, &k, g, sums, &p));
    *done = p->found;
    if (!p->found)
        return PLAIT_OK;
    PLAIT_TRY(place_epilogue(p, g, sums));
    const cublasStatus_t st =
        cublasLtMatmul(s->lt, &p->op, &one, g->b, &p->a, g->a, &p->b, g->accumulate ? &one : &zero, d, &p->c, d, &p->c,
                       &p->algo, p->workspace > 0 ? room.at : NULL, p->workspace, s->stream);
    if (st != CUBLAS_STATUS_SUCCESS)
        return with_shape(&k, plait_cublas_fail(__FILE__, __LINE__, "cublasLtMatmul", st));
    return PLAIT_OK;
}
