// Every backward of the reference against central differences of its forward, in double on odd sizes. The loss is the
// sum of the outputs times fixed numbers dy; cross-entropy's is its own.
#include <algorithm>

#include "tests/kernels/ref_case.h"

namespace
{

struct RowCase {
    const char *name;
    int64_t N, C;
};

void PrintTo(const RowCase &c, std::ostream *os)
{
    *os << c.name;
}

class Rows : public testing::TestWithParam<RowCase>
{
};

TEST_P(Rows, LayerNorm)
{
    const int64_t N = GetParam().N, C = GetParam().C;
    Vector x = normal(N * C, 1), w = normal(C, 2), b = normal(C, 3), y(x.size()), mean(x.size()), rstd(x.size());
    const Vector dy = normal(N * C, 4), dres = normal(N * C, 5), dw0 = normal(C, 6), db0 = normal(C, 7);
    auto loss = [&] { // the residual path adds x itself
        EXPECT_EQ(ref().layernorm_fwd(ref_exec(), y.data(), mean.data(), rstd.data(), x.data(), w.data(), b.data(), N,
                                      C, 1e-2),
                  PLAIT_OK);
        return dot(y, dy) + dot(x, dres);
    };
    loss();
    Vector dx(x.size()), dw = dw0, db = db0;
    EXPECT_EQ(ref().layernorm_bwd(ref_exec(), dx.data(), dw.data(), db.data(), dy.data(), dres.data(), x.data(),
                                  w.data(), mean.data(), rstd.data(), N, C),
              PLAIT_OK);
    expect_gradient("dx", x, dx, loss);
    expect_gradient("dw", w, dw, loss, dw0);
    expect_gradient("db", b, db, loss, db0);
}

TEST_P(Rows, RmsNorm)
{
    const int64_t N = GetParam().N, C = GetParam().C;
    Vector x = normal(N * C, 1), w = normal(C, 2), y(x.size()), rstd(x.size());
    const Vector dy = normal(N * C, 4), dres = normal(N * C, 5), dw0 = normal(C, 6);
    auto loss = [&] {
        EXPECT_EQ(ref().rmsnorm_fwd(ref_exec(), y.data(), rstd.data(), x.data(), w.data(), N, C, 1e-2), PLAIT_OK);
        return dot(y, dy) + dot(x, dres);
    };
    loss();
    Vector dx(x.size()), dw = dw0;
    EXPECT_EQ(ref().rmsnorm_bwd(ref_exec(), dx.data(), dw.data(), dy.data(), dres.data(), x.data(), w.data(),
                                rstd.data(), N, C),
              PLAIT_OK);
    expect_gradient("dx", x, dx, loss);
    expect_gradient("dw", w, dw, loss, dw0);
}

TEST_P(Rows, Gelu)
{
    const int64_t n = GetParam().N * GetParam().C;
    Vector x = normal(n, 1, 2), y(x.size()), dx(x.size());
    const Vector dy = normal(n, 2);
    auto loss = [&] {
        EXPECT_EQ(ref().gelu_fwd(ref_exec(), y.data(), x.data(), n), PLAIT_OK);
        return dot(y, dy);
    };
    EXPECT_EQ(ref().gelu_bwd(ref_exec(), dx.data(), dy.data(), x.data(), n), PLAIT_OK);
    expect_gradient("dx", x, dx, loss);
}

TEST_P(Rows, Swiglu)
{
    const int64_t N = GetParam().N, F = GetParam().C;
    Vector gate_up = normal(2 * N * F, 1, 2), y(static_cast<size_t>(N * F)), d(gate_up.size());
    const Vector dy = normal(N * F, 2);
    auto loss = [&] {
        EXPECT_EQ(ref().swiglu_fwd(ref_exec(), y.data(), gate_up.data(), N, F), PLAIT_OK);
        return dot(y, dy);
    };
    EXPECT_EQ(ref().swiglu_bwd(ref_exec(), d.data(), dy.data(), gate_up.data(), N, F), PLAIT_OK);
    expect_gradient("d_gate_up", gate_up, d, loss);
}

TEST_P(Rows, BiasDropoutAdd)
{
    const int64_t N = GetParam().N, C = GetParam().C;
    plait_dropout drop = {};
    drop.p = 0.3;
    drop.seed = 9;
    drop.use = PLAIT_RNG_DROPOUT_MLP;
    drop.sample0 = 2;
    drop.t0 = 5;
    drop.batch = 1;
    Vector x = normal(N * C, 1), bias = normal(C, 2), residual = normal(N * C, 3), y(x.size());
    const Vector dy = normal(N * C, 4), dbias0 = normal(C, 5);
    for (const plait_dropout *d :
         {static_cast<const plait_dropout *>(nullptr), static_cast<const plait_dropout *>(&drop)}) {
        auto loss = [&] {
            EXPECT_EQ(ref().bias_dropout_add_fwd(ref_exec(), y.data(), x.data(), bias.data(), residual.data(), d, N, C),
                      PLAIT_OK);
            return dot(y, dy);
        };
        Vector dx(x.size()), dbias = dbias0;
        EXPECT_EQ(ref().bias_dropout_add_bwd(ref_exec(), dx.data(), dbias.data(), dy.data(), d, N, C), PLAIT_OK);
        expect_gradient("dx", x, dx, loss);
        expect_gradient("dbias", bias, dbias, loss, dbias0);
        expect_gradient("dresidual", residual, dy, loss);
    }
}

TEST_P(Rows, BiasGrad)
{
    const int64_t N = GetParam().N, C = GetParam().C;
    Vector bias = normal(C, 1), y(static_cast<size_t>(N * C));
    const Vector x = normal(N * C, 2), dy = normal(N * C, 3), db0 = normal(C, 4);
    auto loss = [&] {
        EXPECT_EQ(ref().bias_dropout_add_fwd(ref_exec(), y.data(), x.data(), bias.data(), nullptr, nullptr, N, C),
                  PLAIT_OK);
        return dot(y, dy);
    };
    Vector db = db0;
    EXPECT_EQ(ref().bias_grad(ref_exec(), db.data(), dy.data(), N, C), PLAIT_OK);
    expect_gradient("db", bias, db, loss, db0);
}

TEST_P(Rows, Embedding)
{
    const int64_t N = GetParam().N, C = GetParam().C;
    const int64_t rows = 5, row0 = 10;
    std::vector<int32_t> tokens;
    for (int64_t r = 0; r < N; r++)
        tokens.push_back(static_cast<int32_t>(8 + r * 5 % 9)); // 8, 9 and from 15 on are elsewhere; some twice
    Vector table = normal(rows * C, 1), y(static_cast<size_t>(N * C));
    const Vector dy = normal(N * C, 2), dtable0 = normal(rows * C, 3);
    auto loss = [&] {
        EXPECT_EQ(ref().embedding_fwd(ref_exec(), y.data(), tokens.data(), table.data(), row0, rows, N, C), PLAIT_OK);
        return dot(y, dy);
    };
    Vector dtable = dtable0;
    EXPECT_EQ(ref().embedding_bwd(ref_exec(), dtable.data(), tokens.data(), dy.data(), row0, rows, N, C), PLAIT_OK);
    expect_gradient("dtable", table, dtable, loss, dtable0);
}

TEST_P(Rows, Position)
{
    const int64_t seq = GetParam().N, C = GetParam().C;
    const int64_t batch = 3;
    Vector pos = normal(seq * C, 1);
    const Vector x = normal(seq * batch * C, 2), dy = normal(seq * batch * C, 3), dpos0 = normal(seq * C, 4);
    auto loss = [&] {
        Vector y = x;
        EXPECT_EQ(ref().position_fwd(ref_exec(), y.data(), pos.data(), seq, batch, C), PLAIT_OK);
        return dot(y, dy);
    };
    Vector dpos = dpos0;
    EXPECT_EQ(ref().position_bwd(ref_exec(), dpos.data(), dy.data(), seq, batch, C), PLAIT_OK);
    expect_gradient("dpos", pos, dpos, loss, dpos0);
}

const RowCase kRows[] = {{"one", 1, 1}, {"row", 1, 7}, {"column", 7, 1}, {"odd", 5, 11}, {"past_a_block", 3, 67}};
INSTANTIATE_TEST_SUITE_P(, Rows, testing::ValuesIn(kRows), [](const auto &i) { return std::string(i.param.name); });

TEST(Gradient, RopeInverseIsTheBackwardAndUndoesIt)
{
    const int64_t seq = 7, batch = 2, heads = 3, D = 10, N = seq * batch, ld = heads * D + 3;
    Vector table(static_cast<size_t>(seq * D)), x = normal(N * ld, 1);
    EXPECT_EQ(ref().rope_table(ref_exec(), table.data(), seq, D, 100.0), PLAIT_OK);
    const Vector dy = normal(N * ld, 2);
    auto loss = [&] {
        Vector y = x;
        EXPECT_EQ(ref().rope(ref_exec(), y.data(), ld, table.data(), seq, batch, heads, D, false), PLAIT_OK);
        return dot(y, dy);
    };
    Vector dx = dy, back = x;
    EXPECT_EQ(ref().rope(ref_exec(), dx.data(), ld, table.data(), seq, batch, heads, D, true), PLAIT_OK);
    expect_gradient("dx", x, dx, loss);

    EXPECT_EQ(ref().rope(ref_exec(), back.data(), ld, table.data(), seq, batch, heads, D, false), PLAIT_OK);
    EXPECT_EQ(ref().rope(ref_exec(), back.data(), ld, table.data(), seq, batch, heads, D, true), PLAIT_OK);
    for (size_t i = 0; i < x.size(); i++)
        EXPECT_NEAR(back[i], x[i], 1e-14);
}

// A layer y = x W^T + b, as parallel/tensor.c multiplies: dx = dy W, dW += dy^T x.
struct LinearCase {
    const char *name;
    int64_t rows, in, out, gap; // gap: of every leading dimension
};

void PrintTo(const LinearCase &c, std::ostream *os)
{
    *os << c.name;
}

class Linear : public testing::TestWithParam<LinearCase>
{
};

// The (rows, cols) part of a matrix with gaps.
Vector without_gap(const Vector &x, int64_t rows, int64_t cols)
{
    const int64_t ld = static_cast<int64_t>(x.size()) / rows;
    Vector dense;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            dense.push_back(x[static_cast<size_t>(r * ld + c)]);
    return dense;
}

TEST_P(Linear, Backward)
{
    const LinearCase &c = GetParam();
    const int64_t ldx = c.in + c.gap, ldw = c.in + c.gap, ldy = c.out + c.gap;
    Vector x = normal(c.rows * ldx, 1), w = normal(c.out * ldw, 2), bias = normal(c.out, 3);
    Vector y(static_cast<size_t>(c.rows * ldy));
    const Vector dy = normal(c.rows * ldy, 4), dw0 = normal(c.out * ldw, 5);
    plait_gemm forward = product(false, true, c.rows, c.out, c.in, x, ldx, w, ldw, y, ldy);
    forward.bias = bias.data();
    const Vector dense_dy = without_gap(dy, c.rows, c.out);
    auto loss = [&] {
        EXPECT_EQ(ref().gemm(ref_exec(), &forward), PLAIT_OK);
        return dot(without_gap(y, c.rows, c.out), dense_dy);
    };

    // What lies in the gaps of x and w has no part in the loss: its gradient is 0, for dw what was there before.
    Vector dx(x.size()), dw = dw0, db(bias.size());
    const plait_gemm back = product(false, false, c.rows, c.in, c.out, dy, ldy, w, ldw, dx, ldx);
    EXPECT_EQ(ref().gemm(ref_exec(), &back), PLAIT_OK);
    plait_gemm weight = product(true, false, c.out, c.in, c.rows, dy, ldy, x, ldx, dw, ldw);
    weight.c_acc = weight.accumulate = true;
    EXPECT_EQ(ref().gemm(ref_exec(), &weight), PLAIT_OK);
    EXPECT_EQ(ref().bias_grad(ref_exec(), db.data(), dense_dy.data(), c.rows, c.out), PLAIT_OK);
    expect_gradient("dx", x, dx, loss);
    expect_gradient("dw", w, dw, loss, dw0);
    expect_gradient("db", bias, db, loss);
}

// Two layers with GELU between them, by the epilogues of their products.
TEST_P(Linear, BackwardThroughGelu)
{
    const LinearCase &c = GetParam();
    const int64_t N = c.rows, C = c.in, F = c.out;
    Vector x = normal(N * C, 1), up = normal(F * C, 2), bias = normal(F, 3), down = normal(C * F, 4);
    Vector before(static_cast<size_t>(N * F)), act(before.size()), y(x.size());
    const Vector dy = normal(N * C, 5), dup0 = normal(F * C, 6), dbias0 = normal(F, 7);
    plait_gemm first = product(false, true, N, F, C, x, C, up, C, before, F);
    first.bias = bias.data();
    first.gelu = act.data();
    const plait_gemm second = product(false, true, N, C, F, act, F, down, F, y, C);
    auto loss = [&] {
        EXPECT_EQ(ref().gemm(ref_exec(), &first), PLAIT_OK);
        EXPECT_EQ(ref().gemm(ref_exec(), &second), PLAIT_OK);
        return dot(y, dy);
    };
    loss();

    Vector dbefore(before.size()), dup = dup0, dbias = dbias0;
    plait_gemm back = product(false, false, N, F, C, dy, C, down, F, dbefore, F);
    back.dgelu = before.data();
    plait_gemm weight = product(true, false, F, C, N, dbefore, F, x, C, dup, C);
    weight.accumulate = true;
    weight.bias_grad = dbias.data();
    EXPECT_EQ(ref().gemm(ref_exec(), &back), PLAIT_OK);
    EXPECT_EQ(ref().gemm(ref_exec(), &weight), PLAIT_OK);
    expect_gradient("up", up, dup, loss, dup0);
    expect_gradient("bias", bias, dbias, loss, dbias0);
}

const LinearCase kLinears[] = {
    {"one", 1, 1, 1, 0},  {"wide", 3, 7, 11, 0},         {"narrow", 7, 5, 1, 0},
    {"gaps", 5, 7, 9, 3}, {"past_a_block", 2, 67, 5, 1},
};
INSTANTIATE_TEST_SUITE_P(, Linear, testing::ValuesIn(kLinears),
                         [](const auto &i) { return std::string(i.param.name); });

// The vocabulary in equal parts, as tensor ranks hold it; their maxima and sums are combined here as an all-reduce
// does.
struct LossCase {
    const char *name;
    int64_t rows, vocab, parts, padding; // padding: columns behind the last word
};

void PrintTo(const LossCase &c, std::ostream *os)
{
    *os << c.name;
}

class CrossEntropy : public testing::TestWithParam<LossCase>
{
  protected:
    const LossCase &c = GetParam();
    const int64_t cols = (c.vocab + c.padding) / c.parts;
    std::vector<int32_t> targets;
    std::vector<Vector> logits; // of each part, (rows, cols)
    Vector row_max, row_sum, row_target;

    void SetUp() override
    {
        for (int64_t part = 0; part < c.parts; part++)
            logits.push_back(normal(c.rows * cols, static_cast<uint32_t>(part + 1), 2));
        for (int64_t r = 0; r < c.rows; r++)
            targets.push_back(r % 4 == 2 ? -1 : static_cast<int32_t>(r * 5 % c.vocab)); // some are not counted
    }

    plait_cross_entropy part_of(int64_t part, Vector &x, Vector &max, Vector &sum, Vector &target) const
    {
        const int64_t v0 = part * cols;
        return {c.rows,     cols,       std::min(cols, std::max<int64_t>(0, c.vocab - v0)),
                v0,         x.data(),   targets.data(),
                max.data(), sum.data(), target.data(),
                false};
    }

    // Fills the rows' maxima and sums over all parts.
    double loss()
    {
        const size_t rows = static_cast<size_t>(c.rows);
        row_max.assign(rows, -INFINITY);
        row_sum.assign(rows, 0);
        row_target.assign(rows, 0);
        Vector max(rows), sum(rows), target(rows);
        for (int64_t part = 0; part < c.parts; part++) {
            const plait_cross_entropy one = part_of(part, logits[static_cast<size_t>(part)], max, sum, target);
            EXPECT_EQ(ref().cross_entropy_max(ref_exec(), &one), PLAIT_OK);
            for (size_t r = 0; r < rows; r++)
                row_max[r] = std::fmax(row_max[r], max[r]);
        }
        for (int64_t part = 0; part < c.parts; part++) {
            const plait_cross_entropy one = part_of(part, logits[static_cast<size_t>(part)], row_max, sum, target);
            EXPECT_EQ(ref().cross_entropy_sum(ref_exec(), &one), PLAIT_OK);
            for (size_t r = 0; r < rows; r++) {
                row_sum[r] += sum[r];
                row_target[r] += target[r];
            }
        }
        double total = 0;
        const plait_cross_entropy all = part_of(0, logits[0], row_max, row_sum, row_target);
        EXPECT_EQ(ref().cross_entropy_loss(ref_exec(), &total, &all), PLAIT_OK);
        return total;
    }
};

TEST_P(CrossEntropy, GradientOfTheLogits)
{
    const double scale = 3;
    loss();
    for (int64_t part = 0; part < c.parts; part++) {
        Vector &x = logits[static_cast<size_t>(part)], dx = x; // written over the logits
        const plait_cross_entropy one = part_of(part, dx, row_max, row_sum, row_target);
        EXPECT_EQ(ref().cross_entropy_grad(ref_exec(), &one, scale), PLAIT_OK);
        Vector max = row_max, sum = row_sum, target = row_target; // the loss below fills them anew
        expect_gradient("dlogits", x, dx, [&] { return scale * loss(); });
        row_max = max;
        row_sum = sum;
        row_target = target;
    }
}

const LossCase kLosses[] = {
    {"one_word", 1, 1, 1, 0},   {"one_part", 7, 31, 1, 0},         {"padded", 5, 13, 1, 3},
    {"two_parts", 6, 14, 2, 0}, {"two_parts_padded", 5, 11, 2, 1}, {"a_part_of_padding", 5, 6, 3, 3},
};
INSTANTIATE_TEST_SUITE_P(, CrossEntropy, testing::ValuesIn(kLosses),
                         [](const auto &i) { return std::string(i.param.name); });

struct HeadCase {
    const char *name;
    int64_t batch, seq, heads, kv_heads, head_dim;
    double p;
};

void PrintTo(const HeadCase &c, std::ostream *os)
{
    *os << c.name;
}

class Attention : public testing::TestWithParam<HeadCase>
{
};

TEST_P(Attention, Backward)
{
    const HeadCase &c = GetParam();
    const int64_t N = c.batch * c.seq, q_cols = c.heads * c.head_dim, kv_cols = c.kv_heads * c.head_dim;
    plait_dropout drop = {};
    drop.p = c.p;
    drop.seed = 3;
    drop.use = PLAIT_RNG_DROPOUT_ATTN;
    drop.head0 = 1;
    Vector q = normal(N * q_cols, 1), k = normal(N * kv_cols, 2), v = normal(N * kv_cols, 3);
    Vector o(q.size()), lse(static_cast<size_t>(c.batch * c.heads * c.seq)), dq(q.size()), dk(k.size()), dv(v.size());
    const Vector d_o = normal(N * q_cols, 4);

    plait_attention a = {};
    a.batch = c.batch;
    a.seq = c.seq;
    a.heads = c.heads;
    a.kv_heads = c.kv_heads;
    a.head_dim = c.head_dim;
    a.scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
    a.dropout = c.p > 0 ? &drop : nullptr;
    a.q = q.data();
    a.k = k.data();
    a.v = v.data();
    a.o = o.data();
    a.lse = lse.data();
    a.ldq = a.ldo = a.lddo = a.lddq = q_cols;
    a.ldk = a.ldv = a.lddk = a.lddv = kv_cols;
    auto loss = [&] {
        EXPECT_EQ(ref().attention_fwd(ref_exec(), &a), PLAIT_OK);
        return dot(o, d_o);
    };
    loss();
    a.d_o = d_o.data();
    a.dq = dq.data();
    a.dk = dk.data();
    a.dv = dv.data();
    EXPECT_EQ(ref().attention_bwd(ref_exec(), &a), PLAIT_OK);
    expect_gradient("dq", q, dq, loss);
    expect_gradient("dk", k, dk, loss);
    expect_gradient("dv", v, dv, loss);
}

const HeadCase kHeads[] = {
    {"one_token", 1, 1, 1, 1, 3, 0},     {"plain", 2, 5, 2, 2, 3, 0},     {"grouped", 1, 7, 6, 2, 5, 0},
    {"one_kv_head", 2, 6, 3, 1, 4, 0},   {"dropout", 2, 7, 2, 2, 3, 0.4}, {"grouped_dropout", 1, 9, 4, 2, 3, 0.2},
    {"past_a_block", 1, 3, 1, 1, 67, 0},
};
INSTANTIATE_TEST_SUITE_P(, Attention, testing::ValuesIn(kHeads),
                         [](const auto &i) { return std::string(i.param.name); });

} // namespace
