// What the tests of the reference share: its table in double, inputs, and derivatives by central differences.
#ifndef PLAIT_TESTS_KERNELS_REF_CASE_H
#define PLAIT_TESTS_KERNELS_REF_CASE_H

#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <vector>

#include "kernels/ref/ref.h"

using Vector = std::vector<double>;

inline const plait_kernels &ref()
{
    return *plait_kernels_ref(PLAIT_FP64);
}

inline const plait_exec *ref_exec()
{
    static const plait_exec ex = [] {
        plait_exec one = {};
        one.k = &ref();
        one.threads = 1;
        return one;
    }();
    return &ex;
}

inline Vector normal(int64_t n, uint32_t stream, double size = 1)
{
    const plait_rng rng = plait_rng_make(77, PLAIT_RNG_DATA, 0, 0, stream);
    Vector x;
    for (int64_t i = 0; i < n; i++)
        x.push_back(size * plait_rng_normal(&rng, static_cast<uint64_t>(i)));
    return x;
}

// C (m, n) = op(A) op(B), with rows of lda, ldb and ldc elements.
inline plait_gemm product(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const Vector &a, int64_t lda,
                          const Vector &b, int64_t ldb, Vector &c, int64_t ldc)
{
    plait_gemm g = {};
    g.trans_a = trans_a;
    g.trans_b = trans_b;
    g.m = m;
    g.n = n;
    g.k = k;
    g.a = a.data();
    g.lda = lda;
    g.b = b.data();
    g.ldb = ldb;
    g.c = c.data();
    g.ldc = ldc;
    return g;
}

inline double dot(const Vector &x, const Vector &y)
{
    double sum = 0;
    for (size_t i = 0; i < x.size(); i++)
        sum += x[i] * y[i];
    return sum;
}

// d loss / d x against grad (which begins at `before`, if given, as gradients of weights add up).
inline void expect_gradient(const char *name, Vector &x, const Vector &grad, const std::function<double()> &loss,
                            const Vector &before = {})
{
    ASSERT_EQ(x.size(), grad.size());
    double largest = 1;
    for (double g : grad)
        largest = std::fmax(largest, std::fabs(g));
    for (size_t i = 0; i < x.size(); i++) {
        const double saved = x[i], h = 1e-5;
        x[i] = saved + h;
        const double up = loss();
        x[i] = saved - h;
        const double down = loss();
        x[i] = saved;
        const double want = (up - down) / (2 * h) + (before.empty() ? 0 : before[i]);
        ASSERT_NEAR(grad[i], want, 1e-8 * largest * std::fmax(1, std::fabs(up))) << name << "[" << i << "]";
    }
}

#endif
