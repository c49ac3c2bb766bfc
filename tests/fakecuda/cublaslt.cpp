// cuBLASLt on the host: what its header and documentation say of descriptors, of the choice of algorithms and of what
// is refused. Products are computed in cublaslt_product.cpp.
//
// It is stricter than the library where a mistake would go unnoticed on one GPU and not on another. An algorithm
// carries what it was chosen for (shapes, types, alignments) and is refused for anything else; a workspace is filled
// with NaN while the product runs; what is not emulated ends the process with a sentence. Which combinations a real
// cuBLASLt has no algorithm for, beyond the documented ones, is not known here:
// FAKECUDA_FAULT=cublasLtMatmulAlgoGetHeuristic:N makes the N-th question end with "not supported".
#include "tests/fakecuda/cublaslt_impl.h"

#include <cstring>
#include <set>

namespace fakecuda::lt
{

bool adds_bias(uint32_t epilogue)
{
    return epilogue & CUBLASLT_EPILOGUE_BIAS;
}

bool writes_bias(uint32_t epilogue)
{
    return epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD || epilogue == CUBLASLT_EPILOGUE_BGRADA ||
           epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

bool has_aux(uint32_t epilogue)
{
    return epilogue & 128u;
}

uint32_t bias_type(const Problem &p)
{
    return p.op.bias_type < 0 ? p.d.type : static_cast<uint32_t>(p.op.bias_type);
}

uint32_t aux_type(const Problem &p)
{
    return p.op.aux_type < 0 ? p.d.type : static_cast<uint32_t>(p.op.aux_type);
}

uint64_t bias_length(const Problem &p)
{
    return p.op.epilogue == CUBLASLT_EPILOGUE_BGRADB ? p.n : p.m;
}

namespace
{

constexpr uint32_t ALGORITHM = 0x414c474fu;
constexpr uint32_t ENOUGH_ALIGNMENT = 16; // no algorithm asks for more

struct Algorithm {
    uint32_t mark, split; // sums in so many parts
    uint64_t problem;     // hash of what it is for
    uint64_t workspace;
    uint8_t align_a, align_b, align_c, align_d, align_bias, align_aux;
};

static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t), "");

// ---- problems ----

// Why a problem is refused: a status, and a sentence.
struct Verdict {
    cublasStatus_t status;
    const char *why;
};
constexpr Verdict kFine = {CUBLAS_STATUS_SUCCESS, ""};

Verdict check_layout(const Layout &l)
{
    const bool by_rows = l.order == CUBLASLT_ORDER_ROW;
    if (l.order != CUBLASLT_ORDER_COL && !by_rows)
        return {CUBLAS_STATUS_NOT_SUPPORTED, "a matrix is neither column-major nor row-major"};
    if (l.rows < 1 || l.cols < 1 || l.batch < 1)
        return {CUBLAS_STATUS_INVALID_VALUE, "a matrix is empty"};
    if (l.rows > INT32_MAX || l.cols > INT32_MAX)
        return {CUBLAS_STATUS_NOT_SUPPORTED, "an extent has more than 31 bits"};
    if (l.ld < static_cast<int64_t>(by_rows ? l.cols : l.rows))
        return {CUBLAS_STATUS_INVALID_VALUE, "a leading dimension is smaller than a line of its matrix"};
    return kFine;
}

// The table of types in the documentation of cublasLtMatmul, for sums in fp32.
Verdict check_types(const Problem &p)
{
    const bool fp32 = p.a.type == CUDA_R_32F, half = p.a.type == CUDA_R_16BF || p.a.type == CUDA_R_16F;
    if (p.op.scale != CUDA_R_32F ||
        (p.op.compute != CUBLAS_COMPUTE_32F && p.op.compute != CUBLAS_COMPUTE_32F_PEDANTIC &&
         p.op.compute != CUBLAS_COMPUTE_32F_FAST_TF32))
        die("cublasLtMatmul: compute type %d with scale type %d is not emulated", p.op.compute, p.op.scale);
    if (!fp32 && !half)
        die("cublasLtMatmul: matrices of type %u are not emulated", p.a.type);
    if (p.a.type != p.b.type || p.c.type != p.d.type || (p.d.type != p.a.type && p.d.type != CUDA_R_32F))
        return {CUBLAS_STATUS_NOT_SUPPORTED, "the types of the matrices do not go together"};
    if (p.op.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && !fp32)
        return {CUBLAS_STATUS_NOT_SUPPORTED, "TF32 is for fp32 matrices"};
    if (bias_type(p) != p.d.type)
        return {CUBLAS_STATUS_INVALID_VALUE, "a bias has D's type"};
    if (aux_type(p) != p.d.type)
        return {CUBLAS_STATUS_INVALID_VALUE, "an auxiliary matrix has D's type"};
    return kFine;
}

Verdict check_epilogue(const Problem &p)
{
    const uint32_t e = p.op.epilogue;
    switch (e) {
    case CUBLASLT_EPILOGUE_DEFAULT:
        return kFine;
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_DGELU_BGRAD:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
        break;
    default:
        die("cublasLtMatmul: epilogue %u is not emulated", e);
    }
    if (p.d.order != CUBLASLT_ORDER_COL)
        return {CUBLAS_STATUS_NOT_SUPPORTED, "epilogues need a column-major D"};
    if (has_aux(e) && (!p.op.aux || p.op.aux_ld % 8 != 0 || p.op.aux_ld < static_cast<int64_t>(p.m)))
        return {
            CUBLAS_STATUS_INVALID_VALUE,
            "an auxiliary matrix needs a pointer and a leading dimension that is a multiple of 8, not below D's rows"};
    if (has_aux(e) && p.d.batch > 1 && p.op.aux_stride % 8 != 0)
        return {CUBLAS_STATUS_INVALID_VALUE, "the batch stride of an auxiliary matrix is no multiple of 8"};
    return kFine;
}

Verdict check_problem(const Problem &p)
{
    for (const Layout *l : {&p.a, &p.b, &p.c, &p.d}) {
        const Verdict v = check_layout(*l);
        if (v.status != CUBLAS_STATUS_SUCCESS)
            return v;
        if (l->batch != p.d.batch)
            return {CUBLAS_STATUS_INVALID_VALUE, "the matrices are not of one batch"};
    }
    if (p.op.trans_a == CUBLAS_OP_C || p.op.trans_b == CUBLAS_OP_C || p.op.trans_c != CUBLAS_OP_N ||
        p.op.fill != CUBLAS_FILL_MODE_FULL || p.op.pointer_mode != CUBLASLT_POINTER_MODE_HOST || p.op.fast_accum != 0)
        die("cublasLtMatmul: conjugates, parts of C, alpha on the device and fast accumulation are not emulated");
    if (p.k != (p.op.trans_b == CUBLAS_OP_N ? p.b.rows : p.b.cols) || p.m != p.d.rows || p.n != p.d.cols ||
        p.c.rows != p.d.rows || p.c.cols != p.d.cols)
        return {CUBLAS_STATUS_INVALID_VALUE, "the shapes of the matrices do not go together"};
    if (p.c.order != p.d.order)
        return {CUBLAS_STATUS_NOT_SUPPORTED, "C and D are stored in different orders"};
    const Verdict v = check_types(p);
    return v.status == CUBLAS_STATUS_SUCCESS ? check_epilogue(p) : v;
}

Problem problem_of(cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                   cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, const char *function)
{
    Problem p;
    p.op = *opened<Operation>(op, OPERATION, function);
    p.a = *opened<Layout>(a, LAYOUT, function);
    p.b = *opened<Layout>(b, LAYOUT, function);
    p.c = *opened<Layout>(c, LAYOUT, function);
    p.d = *opened<Layout>(d, LAYOUT, function);
    p.m = p.op.trans_a == CUBLAS_OP_N ? p.a.rows : p.a.cols;
    p.k = p.op.trans_a == CUBLAS_OP_N ? p.a.cols : p.a.rows;
    p.n = p.op.trans_b == CUBLAS_OP_N ? p.b.cols : p.b.rows;
    return p;
}

// Of everything that an algorithm may depend on but the pointers.
uint64_t hash_of(const Problem &p)
{
    uint64_t h = 0;
    const auto add = [&h](uint64_t x) {
        h = (h ^ x) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    };
    for (const Layout *l : {&p.a, &p.b, &p.c, &p.d})
        for (const uint64_t x :
             {static_cast<uint64_t>(l->type), static_cast<uint64_t>(l->order), static_cast<uint64_t>(l->batch), l->rows,
              l->cols, static_cast<uint64_t>(l->ld), static_cast<uint64_t>(l->stride)})
            add(x);
    for (const int64_t x :
         {int64_t{p.op.compute}, int64_t{p.op.trans_a}, int64_t{p.op.trans_b}, int64_t{p.op.epilogue},
          int64_t{p.op.bias_type}, int64_t{p.op.aux_type}, p.op.bias_stride, p.op.aux_ld, p.op.aux_stride})
        add(static_cast<uint64_t>(x));
    return h;
}

// ---- algorithms ----

uint8_t alignment_of(const void *p)
{
    const uintptr_t lowest = reinterpret_cast<uintptr_t>(p) & (~reinterpret_cast<uintptr_t>(p) + 1);
    return static_cast<uint8_t>(lowest == 0 || lowest > ENOUGH_ALIGNMENT ? ENOUGH_ALIGNMENT : lowest);
}

uint8_t capped(uint32_t alignment)
{
    return static_cast<uint8_t>(alignment < ENOUGH_ALIGNMENT ? alignment : ENOUGH_ALIGNMENT);
}

Algorithm algorithm_of(const Problem &p, const Preference &pref)
{
    Algorithm x;
    std::memset(&x, 0, sizeof x);
    x.mark = ALGORITHM;
    x.split = 1;
    x.problem = hash_of(p);
    x.align_a = capped(pref.align_a);
    x.align_b = capped(pref.align_b);
    x.align_c = capped(pref.align_c);
    x.align_d = capped(pref.align_d);
    x.align_bias = alignment_of(p.op.bias); // "depend on its value to determine expected pointer alignment"
    x.align_aux = alignment_of(p.op.aux);
    return x;
}

// Two parts of the sum in the workspace, as the library likes to do where k is long.
bool may_split(const Problem &p, const Preference &pref, uint64_t *workspace)
{
    *workspace = (2 * p.m * p.n * static_cast<uint64_t>(p.d.batch) * sizeof(float) + 255) / 256 * 256;
    return p.k >= 64 && (pref.sums & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) && *workspace <= pref.workspace;
}

cublasStatus_t check_algorithm(const Problem &p, const Algorithm &x, const Product &call, size_t workspace_bytes)
{
    const char *f = "cublasLtMatmul";
    if (x.mark != ALGORITHM)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, f, "the algorithm comes from no question");
    if (x.problem != hash_of(p))
        return refuse(CUBLAS_STATUS_INVALID_VALUE, f, "the algorithm was chosen for another product");
    if (x.workspace > workspace_bytes)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, f, "the algorithm needs %llu bytes of workspace, there are %zu",
                      static_cast<unsigned long long>(x.workspace), workspace_bytes);
    const struct {
        const char *name;
        const void *p;
        uint8_t align;
    } pointers[] = {
        {"A", call.a, x.align_a},
        {"B", call.b, x.align_b},
        {"C", call.beta != 0 ? call.c : nullptr, x.align_c},
        {"D", call.d, x.align_d},
        {"bias", adds_bias(p.op.epilogue) || writes_bias(p.op.epilogue) ? p.op.bias : nullptr, x.align_bias},
        {"aux", has_aux(p.op.epilogue) ? p.op.aux : nullptr, x.align_aux}};
    for (const auto &q : pointers)
        if (reinterpret_cast<uintptr_t>(q.p) % q.align != 0)
            return refuse(CUBLAS_STATUS_INVALID_VALUE, f,
                          "%s at %p: the algorithm was chosen for an alignment of %d bytes", q.name, q.p, q.align);
    return CUBLAS_STATUS_SUCCESS;
}

// ---- calls ----

// Never destroyed, as handles may be closed when the process ends.
std::set<const void *> &handles()
{
    static auto *open = new std::set<const void *>;
    return *open;
}

void check_handle(cublasLtHandle_t handle, const char *function)
{
    if (!handles().count(handle))
        die("%s: %p is no open handle", function, static_cast<const void *>(handle));
}

uint64_t extent_of(const Layout &l)
{
    const uint64_t lines = l.order == CUBLASLT_ORDER_ROW ? l.rows : l.cols,
                   length = l.order == CUBLASLT_ORDER_ROW ? l.cols : l.rows;
    return ((lines - 1) * static_cast<uint64_t>(l.ld) + length + static_cast<uint64_t>((l.batch - 1) * l.stride)) *
           size_of(l.type);
}

bool overlap(const char *p, uint64_t p_bytes, const char *q, uint64_t q_bytes)
{
    return p < q + q_bytes && q < p + p_bytes;
}

// What the library leaves undefined, and a GPU would do silently.
cublasStatus_t check_pointers(const Product &x, const void *workspace, size_t workspace_bytes)
{
    const char *f = "cublasLtMatmul";
    const Problem &p = x.p;
    const uint32_t e = p.op.epilogue;
    if (!x.a || !x.b || !x.d || (x.beta != 0 && !x.c) || ((adds_bias(e) || writes_bias(e)) && !p.op.bias))
        return refuse(CUBLAS_STATUS_INVALID_VALUE, f, "a pointer is NULL");
    if (workspace_bytes > 0 && (!workspace || reinterpret_cast<uintptr_t>(workspace) % 256 != 0))
        return refuse(CUBLAS_STATUS_INVALID_VALUE, f, "the workspace %p is not aligned to 256 bytes", workspace);
    if (x.c == x.d && (p.c.ld != p.d.ld || p.c.stride != p.d.stride))
        return refuse(CUBLAS_STATUS_INVALID_VALUE, f, "C and D are one matrix with two layouts");
    for (const void *q :
         {static_cast<const void *>(x.a), static_cast<const void *>(x.b), static_cast<const void *>(x.d)})
        if (!is_device(q) && !is_pinned(q))
            die("%s: %p is not memory of the device", f, q);
    for (const auto &in : {std::make_pair(x.a, extent_of(p.a)), std::make_pair(x.b, extent_of(p.b))})
        if (overlap(in.first, in.second, x.d, extent_of(p.d)))
            die("%s: D overlaps A or B", f);
    if (x.beta != 0 && x.c != x.d && overlap(x.c, extent_of(p.c), x.d, extent_of(p.d)))
        die("%s: D overlaps C in part", f);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t ask(const Problem &p, const Preference &pref, int requested, cublasLtMatmulHeuristicResult_t *results,
                   int *count)
{
    const char *f = "cublasLtMatmulAlgoGetHeuristic";
    *count = 0;
    if (requested < 1 || !results)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, f, "%d results are asked for", requested);
    if (pref.search != CUBLASLT_SEARCH_BEST_FIT || pref.waves != 0 || pref.implementations != ~uint64_t{0})
        die("%s: only the search for the best fit, among all implementations, is emulated", f);
    const Verdict v = check_problem(p);
    if (v.status == CUBLAS_STATUS_NOT_SUPPORTED)
        return v.status; // a question, not a mistake
    if (v.status != CUBLAS_STATUS_SUCCESS)
        return refuse(v.status, f, "%s", v.why);
    if (fails(f))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    uint64_t workspace;
    const bool split = may_split(p, pref, &workspace);
    for (int i = split ? 0 : 1; i < 2 && *count < requested; i++) {
        Algorithm x = algorithm_of(p, pref);
        x.split = i == 0 ? 2 : 1;
        x.workspace = i == 0 ? workspace : 0;
        cublasLtMatmulHeuristicResult_t &r = results[(*count)++];
        std::memset(&r, 0, sizeof r);
        std::memcpy(&r.algo, &x, sizeof x);
        r.workspaceSize = x.workspace;
        r.state = CUBLAS_STATUS_SUCCESS;
        r.wavesCount = 1.0f;
    }
    return CUBLAS_STATUS_SUCCESS;
}

} // namespace
} // namespace fakecuda::lt

using namespace fakecuda;
using namespace fakecuda::lt;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    api_call();
    if (fails("cublasLtCreate"))
        return CUBLAS_STATUS_ALLOC_FAILED;
    char *h = new char;
    handles().insert(h);
    *handle = reinterpret_cast<cublasLtHandle_t>(h);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    api_call();
    check_handle(handle, "cublasLtDestroy");
    handles().erase(handle);
    delete reinterpret_cast<char *>(handle);
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

size_t cublasLtGetCudartVersion(void)
{
    return CUDART_VERSION;
}

// As cuBLASLt 13 says them.
#define STATUSES(X)                                                                                                    \
    X(SUCCESS, "success")                                                                                              \
    X(NOT_INITIALIZED, "the library was not initialized")                                                              \
    X(ALLOC_FAILED, "the resource allocation failed")                                                                  \
    X(INVALID_VALUE, "an unsupported value or parameter was passed to the function")                                   \
    X(ARCH_MISMATCH, "the function requires an architectural feature absent from the device")                          \
    X(MAPPING_ERROR, "an access to GPU memory space failed")                                                           \
    X(EXECUTION_FAILED, "the function failed to launch on the GPU")                                                    \
    X(INTERNAL_ERROR, "an internal operation failed")                                                                  \
    X(NOT_SUPPORTED, "the requested functionality is not supported")                                                   \
    X(LICENSE_ERROR, "the license check failed")

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    switch (status) {
#define NAME(name, text)                                                                                               \
    case CUBLAS_STATUS_##name:                                                                                         \
        return "CUBLAS_STATUS_" #name;
        STATUSES(NAME)
#undef NAME
    }
    return "unrecognized status";
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    switch (status) {
#define TEXT(name, text)                                                                                               \
    case CUBLAS_STATUS_##name:                                                                                         \
        return text;
        STATUSES(TEXT)
#undef TEXT
    }
    return "unrecognized status";
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t op,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t pref, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int *count)
{
    const char *f = "cublasLtMatmulAlgoGetHeuristic";
    api_call();
    check_handle(handle, f);
    if (!op || !a || !b || !c || !d || !pref || !count)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, f, "a descriptor is NULL");
    return ask(problem_of(op, a, b, c, d, f), *opened<Preference>(pref, PREFERENCE, f), requested, results, count);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t op, const void *alpha, const void *A,
                              cublasLtMatrixLayout_t a, const void *B, cublasLtMatrixLayout_t b, const void *beta,
                              const void *C, cublasLtMatrixLayout_t c, void *D, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream)
{
    const char *f = "cublasLtMatmul";
    api_call();
    check_handle(handle, f);
    if (!op || !a || !b || !c || !d || !alpha || !beta)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, f, "a descriptor, or alpha or beta, is NULL");
    Product x = {problem_of(op, a, b, c, d, f),
                 0,
                 0,
                 static_cast<const char *>(A),
                 static_cast<const char *>(B),
                 static_cast<const char *>(C),
                 static_cast<char *>(D)};
    const Verdict v = check_problem(x.p);
    if (v.status != CUBLAS_STATUS_SUCCESS)
        return refuse(v.status, f, "%s", v.why);
    std::memcpy(&x.alpha, alpha, sizeof x.alpha);
    std::memcpy(&x.beta, beta, sizeof x.beta);
    cublasStatus_t status = check_pointers(x, workspace, workspace_bytes);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    Algorithm used = algorithm_of(x.p, default_preference()); // without one, the choice by default preferences
    if (algo)
        std::memcpy(&used, algo, sizeof used);
    status = check_algorithm(x.p, used, x, workspace_bytes);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (fails(f))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    const size_t used_bytes = used.workspace;
    enqueue(stream, f, [x, workspace, used_bytes] {
        if (used_bytes > 0) {
            touch(workspace, used_bytes, Access::write, "workspace");
            std::memset(workspace, 0xff, used_bytes); // NaN for whoever uses it at the same time
        }
        multiply(x);
        return true;
    });
    return CUBLAS_STATUS_SUCCESS;
}

} // extern "C"
