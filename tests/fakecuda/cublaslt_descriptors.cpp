// Descriptors of the emulated cuBLASLt, and their attributes.
#include "tests/fakecuda/cublaslt_impl.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace fakecuda::lt
{

static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "");
static_assert(sizeof(Operation) <= sizeof(cublasLtMatmulDescOpaque_t), "");
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "");

cublasStatus_t refuse(cublasStatus_t status, const char *function, const char *format, ...)
{
    va_list args;
    std::fprintf(stderr, "fakecuda: %s: ", function);
    va_start(args, format);
    std::vfprintf(stderr, format, args);
    va_end(args);
    std::fprintf(stderr, " (%s)\n", cublasLtGetStatusName(status));
    return status;
}

Preference default_preference()
{
    Preference x;
    std::memset(&x, 0, sizeof x);
    x.mark = PREFERENCE;
    x.sums = CUBLASLT_REDUCTION_SCHEME_MASK;
    x.align_a = x.align_b = x.align_c = x.align_d = 256;
    x.implementations = ~uint64_t{0};
    return x;
}

namespace
{

struct Attribute {
    int id;
    size_t offset, size;
};
#define ATTRIBUTE(id, type, member)                                                                                    \
    {                                                                                                                  \
        id, offsetof(type, member), sizeof(type::member)                                                               \
    }

const Attribute kLayout[] = {
    ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_TYPE, Layout, type),
    ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_ORDER, Layout, order),
    ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_ROWS, Layout, rows),
    ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_COLS, Layout, cols),
    ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_LD, Layout, ld),
    ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, Layout, batch),
    ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, Layout, stride),
};

const Attribute kOperation[] = {
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, Operation, compute),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_SCALE_TYPE, Operation, scale),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_POINTER_MODE, Operation, pointer_mode),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSA, Operation, trans_a),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSB, Operation, trans_b),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSC, Operation, trans_c),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_FILL_MODE, Operation, fill),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE, Operation, epilogue),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_BIAS_POINTER, Operation, bias),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, Operation, bias_stride),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, Operation, bias_type),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, Operation, aux),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, Operation, aux_ld),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, Operation, aux_stride),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, Operation, aux_type),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, Operation, sm_target),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_FAST_ACCUM, Operation, fast_accum),
};

const Attribute kPreference[] = {
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_SEARCH_MODE, Preference, search),
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, Preference, workspace),
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, Preference, sums),
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, Preference, align_a),
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, Preference, align_b),
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, Preference, align_c),
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, Preference, align_d),
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT, Preference, waves),
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_IMPL_MASK, Preference, implementations),
};

template <typename T, size_t N>
cublasStatus_t set(void *descriptor, uint32_t mark, const Attribute (&known)[N], int id, const void *value, size_t size,
                   const char *function)
{
    api_call();
    char *to = reinterpret_cast<char *>(opened<T>(descriptor, mark, function));
    if (!to || !value)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, function, "no descriptor or no value for attribute %d", id);
    for (const Attribute &a : known) {
        if (a.id != id)
            continue;
        if (a.size != size)
            return refuse(CUBLAS_STATUS_INVALID_VALUE, function, "attribute %d has %zu bytes, not %zu", id, a.size,
                          size);
        std::memcpy(to + a.offset, value, size);
        return CUBLAS_STATUS_SUCCESS;
    }
    die("%s: attribute %d is not emulated", function, id);
}

template <typename T, size_t N>
cublasStatus_t get(const void *descriptor, uint32_t mark, const Attribute (&known)[N], int id, void *value, size_t size,
                   size_t *written, const char *function)
{
    api_call();
    const char *from = reinterpret_cast<const char *>(opened<T>(descriptor, mark, function));
    if (!from)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, function, "no descriptor");
    for (const Attribute &a : known) {
        if (a.id != id)
            continue;
        if (size == 0 ? !written : !value || size != a.size)
            return refuse(CUBLAS_STATUS_INVALID_VALUE, function, "attribute %d has %zu bytes, not %zu", id, a.size,
                          size);
        if (size > 0)
            std::memcpy(value, from + a.offset, size);
        if (written)
            *written = a.size;
        return CUBLAS_STATUS_SUCCESS;
    }
    die("%s: attribute %d is not emulated", function, id);
}

} // namespace
} // namespace fakecuda::lt

using namespace fakecuda;
using namespace fakecuda::lt;

extern "C" {

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size, cudaDataType type,
                                                 uint64_t rows, uint64_t cols, int64_t ld)
{
    api_call();
    if (size < sizeof(cublasLtMatrixLayoutOpaque_t))
        return refuse(CUBLAS_STATUS_ALLOC_FAILED, "cublasLtMatrixLayoutInit", "%zu bytes are too few", size);
    const Layout x = {LAYOUT, static_cast<uint32_t>(type), CUBLASLT_ORDER_COL, 1, rows, cols, ld, 0};
    std::memset(layout->data, 0, size);
    std::memcpy(layout->data, &x, sizeof x);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld)
{
    *layout = new cublasLtMatrixLayoutOpaque_t;
    return cublasLtMatrixLayoutInit_internal(*layout, sizeof **layout, type, rows, cols, ld);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    api_call();
    if (layout)
        opened<Layout>(layout, LAYOUT, "cublasLtMatrixLayoutDestroy")->mark = 0;
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                size_t size)
{
    return set<Layout>(layout, LAYOUT, kLayout, attribute, value, size, "cublasLtMatrixLayoutSetAttribute");
}

cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, void *value, size_t size,
                                                size_t *written)
{
    return get<Layout>(layout, LAYOUT, kLayout, attribute, value, size, written, "cublasLtMatrixLayoutGetAttribute");
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t op, size_t size, cublasComputeType_t compute,
                                               cudaDataType_t scale)
{
    api_call();
    if (size < sizeof(cublasLtMatmulDescOpaque_t))
        return refuse(CUBLAS_STATUS_ALLOC_FAILED, "cublasLtMatmulDescInit", "%zu bytes are too few", size);
    Operation x;
    std::memset(&x, 0, sizeof x);
    x.mark = OPERATION;
    x.compute = compute;
    x.scale = scale;
    x.pointer_mode = CUBLASLT_POINTER_MODE_HOST;
    x.trans_a = x.trans_b = x.trans_c = CUBLAS_OP_N;
    x.fill = CUBLAS_FILL_MODE_FULL;
    x.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    x.bias_type = x.aux_type = -1;
    std::memset(op->data, 0, size);
    std::memcpy(op->data, &x, sizeof x);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *op, cublasComputeType_t compute, cudaDataType_t scale)
{
    *op = new cublasLtMatmulDescOpaque_t;
    return cublasLtMatmulDescInit_internal(*op, sizeof **op, compute, scale);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t op)
{
    api_call();
    if (op)
        opened<Operation>(op, OPERATION, "cublasLtMatmulDescDestroy")->mark = 0;
    delete op;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t op, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t size)
{
    return set<Operation>(op, OPERATION, kOperation, attribute, value, size, "cublasLtMatmulDescSetAttribute");
}

cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t op, cublasLtMatmulDescAttributes_t attribute,
                                              void *value, size_t size, size_t *written)
{
    return get<Operation>(op, OPERATION, kOperation, attribute, value, size, written, "cublasLtMatmulDescGetAttribute");
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t pref, size_t size)
{
    api_call();
    if (size < sizeof(cublasLtMatmulPreferenceOpaque_t))
        return refuse(CUBLAS_STATUS_ALLOC_FAILED, "cublasLtMatmulPreferenceInit", "%zu bytes are too few", size);
    const Preference x = default_preference();
    std::memset(pref->data, 0, size);
    std::memcpy(pref->data, &x, sizeof x);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *pref)
{
    *pref = new cublasLtMatmulPreferenceOpaque_t;
    return cublasLtMatmulPreferenceInit_internal(*pref, sizeof **pref);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref)
{
    api_call();
    if (pref)
        opened<Preference>(pref, PREFERENCE, "cublasLtMatmulPreferenceDestroy")->mark = 0;
    delete pref;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t size)
{
    return set<Preference>(pref, PREFERENCE, kPreference, attribute, value, size,
                           "cublasLtMatmulPreferenceSetAttribute");
}

} // extern "C"
