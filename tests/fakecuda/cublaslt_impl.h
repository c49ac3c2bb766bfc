// tests/fakecuda/cublaslt_impl.h: what the parts of the emulated cuBLASLt share.
//
// cublaslt.cpp              the choice of algorithms, what is refused, the call
// cublaslt_descriptors.cpp  descriptors and their attributes
// cublaslt_product.cpp      the arithmetic
#ifndef PLAIT_TESTS_FAKECUDA_CUBLASLT_IMPL_H
#define PLAIT_TESTS_FAKECUDA_CUBLASLT_IMPL_H

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>

#include "tests/fakecuda/streams.h"

namespace fakecuda::lt
{

// The first word of a descriptor tells its kind.
constexpr uint32_t LAYOUT = 0x4c41594fu, OPERATION = 0x4f504552u, PREFERENCE = 0x50524546u;

// What lies in cublasLtMatrixLayoutOpaque_t.
struct Layout {
    uint32_t mark;
    uint32_t type; // cudaDataType
    int32_t order, batch;
    uint64_t rows, cols;
    int64_t ld, stride;
};

// What lies in cublasLtMatmulDescOpaque_t.
struct Operation {
    uint32_t mark;
    int32_t compute, scale, pointer_mode, trans_a, trans_b, trans_c, fill;
    uint32_t epilogue;
    int32_t bias_type, aux_type, sm_target;
    int8_t fast_accum;
    void *bias, *aux;
    int64_t bias_stride, aux_ld, aux_stride;
};

// What lies in cublasLtMatmulPreferenceOpaque_t.
struct Preference {
    uint32_t mark, search, sums, align_a, align_b, align_c, align_d;
    float waves;
    uint64_t workspace, implementations;
};

Preference default_preference();

// Dies when it is another kind of descriptor, or none; NULL stays NULL.
template <typename T> T *opened(const void *descriptor, uint32_t mark, const char *function)
{
    T *t = static_cast<T *>(const_cast<void *>(descriptor));
    if (t && t->mark != mark)
        die("%s: the descriptor at %p is not initialized, destroyed, or of another kind", function, descriptor);
    return t;
}

// Says why, for whoever reads the log of a failed test, and returns what the library would.
cublasStatus_t refuse(cublasStatus_t status, const char *function, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

struct Problem {
    Operation op;
    Layout a, b, c, d;
    uint64_t m, n, k; // of one product of the batch: op(A) (m, k), op(B) (k, n), D (m, n)
};

// A call of cublasLtMatmul whose turn has come.
struct Product {
    Problem p;
    float alpha, beta;
    const char *a, *b, *c;
    char *d;
};

size_t size_of(uint32_t type);
// Bias and aux have D's type unless set.
uint32_t bias_type(const Problem &p);
uint32_t aux_type(const Problem &p);
// Parts of an epilogue.
bool adds_bias(uint32_t epilogue);
bool writes_bias(uint32_t epilogue);
bool has_aux(uint32_t epilogue);
// Elements of the bias vector: D's rows, or its columns for BGRADB.
uint64_t bias_length(const Problem &p);

// D = epilogue(alpha op(A) op(B) + beta C). Sums are in fp32, k ascending. Says to the streams what it touches.
void multiply(const Product &x);

} // namespace fakecuda::lt
#endif
