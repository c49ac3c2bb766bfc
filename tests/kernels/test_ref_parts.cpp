// What kernels/kernels.h promises beside the values, for the reference: an output may lie over an input, and a part of
// a backward that is not asked for changes nothing in the others. The conformance rows rely on it.
#include "tests/kernels/ref_case.h"

namespace
{

constexpr int64_t N = 6, C = 5;

struct Norm { // everything a backward reads, the same in each call
    Vector x = normal(N * C, 1), w = normal(C, 2), dy = normal(N * C, 3), dres = normal(N * C, 4);
    Vector mean = normal(N, 5), rstd = normal(N, 6), dw = normal(C, 7), db = normal(C, 8), dx = Vector(N * C);
};

void layernorm(Norm &n, double *dx, double *dw, double *db)
{
    ASSERT_EQ(ref().layernorm_bwd(ref_exec(), dx, dw, db, n.dy.data(), n.dres.data(), n.x.data(), n.w.data(),
                                  n.mean.data(), n.rstd.data(), N, C),
              PLAIT_OK);
}

void rmsnorm(Norm &n, double *dx, double *dw, double *)
{
    ASSERT_EQ(
        ref().rmsnorm_bwd(ref_exec(), dx, dw, n.dy.data(), n.dres.data(), n.x.data(), n.w.data(), n.rstd.data(), N, C),
        PLAIT_OK);
}

struct NormCase {
    const char *name;
    void (*backward)(Norm &n, double *dx, double *dw, double *db);
};

void PrintTo(const NormCase &c, std::ostream *os)
{
    *os << c.name;
}

class NormBackward : public testing::TestWithParam<NormCase>
{
};

TEST_P(NormBackward, PartsAndPlacesAgree)
{
    const auto backward = GetParam().backward;
    Norm whole, over_dy, over_dres, only_dx, only_dw;
    backward(whole, whole.dx.data(), whole.dw.data(), whole.db.data());
    backward(over_dy, over_dy.dy.data(), over_dy.dw.data(), over_dy.db.data());
    backward(over_dres, over_dres.dres.data(), over_dres.dw.data(), over_dres.db.data());
    backward(only_dx, only_dx.dx.data(), nullptr, nullptr);
    backward(only_dw, nullptr, only_dw.dw.data(), only_dw.db.data());
    EXPECT_NE(whole.dw, Norm().dw);
    EXPECT_EQ(over_dy.dy, whole.dx);
    EXPECT_EQ(over_dres.dres, whole.dx);
    EXPECT_EQ(only_dx.dx, whole.dx);
    for (const Norm *n : {&over_dy, &over_dres, &only_dw}) {
        EXPECT_EQ(n->dw, whole.dw);
        EXPECT_EQ(n->db, whole.db);
    }
}
const NormCase kNorms[] = {{"layernorm", layernorm}, {"rmsnorm", rmsnorm}};
INSTANTIATE_TEST_SUITE_P(, NormBackward, testing::ValuesIn(kNorms),
                         [](const auto &i) { return std::string(i.param.name); });

plait_dropout some_dropout()
{
    plait_dropout drop = {};
    drop.p = 0.3;
    drop.use = PLAIT_RNG_DROPOUT_MLP;
    drop.batch = 2;
    return drop;
}

TEST(BiasDropoutAdd, OutputMayLieOverAnInput)
{
    const plait_dropout drop = some_dropout();
    const Vector x = normal(N * C, 1), bias = normal(C, 2), residual = normal(N * C, 3);
    Vector y(x.size()), over_x = x, over_residual = residual;
    auto run = [&](Vector &out, const Vector &in, const Vector &res) {
        ASSERT_EQ(ref().bias_dropout_add_fwd(ref_exec(), out.data(), in.data(), bias.data(), res.data(), &drop, N, C),
                  PLAIT_OK);
    };
    run(y, x, residual);
    run(over_x, over_x, residual);
    run(over_residual, x, over_residual);
    EXPECT_EQ(over_x, y);
    EXPECT_EQ(over_residual, y);
}

TEST(BiasDropoutAdd, BackwardPartsAndPlacesAgree)
{
    const plait_dropout drop = some_dropout();
    const Vector dy = normal(N * C, 1), before = normal(C, 2);
    Vector dx(dy.size()), dbias = before, only_dx(dy.size()), only_dbias = before, over_dy = dy, dbias2 = before;
    auto run = [&](double *out, double *db, const double *in) {
        ASSERT_EQ(ref().bias_dropout_add_bwd(ref_exec(), out, db, in, &drop, N, C), PLAIT_OK);
    };
    run(dx.data(), dbias.data(), dy.data());
    run(over_dy.data(), dbias2.data(), over_dy.data());
    run(only_dx.data(), nullptr, dy.data());
    run(nullptr, only_dbias.data(), dy.data());
    EXPECT_NE(dbias, before);
    EXPECT_EQ(over_dy, dx);
    EXPECT_EQ(only_dx, dx);
    EXPECT_EQ(dbias2, dbias);
    EXPECT_EQ(only_dbias, dbias);
}

TEST(Activations, GradientMayLieOverItsInput)
{
    const Vector dy = normal(N * C, 1), x = normal(N * C, 2), gate_up = normal(2 * N * C, 3);
    Vector dx(x.size()), over_dy = dy, d(gate_up.size()), over_gate_up = gate_up;
    ASSERT_EQ(ref().gelu_bwd(ref_exec(), dx.data(), dy.data(), x.data(), N * C), PLAIT_OK);
    ASSERT_EQ(ref().gelu_bwd(ref_exec(), over_dy.data(), over_dy.data(), x.data(), N * C), PLAIT_OK);
    EXPECT_EQ(over_dy, dx);
    ASSERT_EQ(ref().swiglu_bwd(ref_exec(), d.data(), dy.data(), gate_up.data(), N, C), PLAIT_OK);
    ASSERT_EQ(ref().swiglu_bwd(ref_exec(), over_gate_up.data(), dy.data(), over_gate_up.data(), N, C), PLAIT_OK);
    EXPECT_EQ(over_gate_up, d);
}

} // namespace
