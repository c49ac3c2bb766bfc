// The reference against other ways to write the same thing: matrices by their definition, attention with its whole
// matrix of probabilities, cross-entropy by a softmax over all columns and split over ranks, optimizers by formula.
#include "tests/kernels/ref_case.h"

namespace
{

TEST(Gemm, EveryFormFollowsItsDefinition)
{
    const int64_t m = 5, n = 67, k = 3;
    for (int form = 0; form < 16; form++) {
        const bool ta = form & 1, tb = form & 2, accumulate = form & 4, with_bias = form & 8;
        const int64_t lda = (ta ? m : k) + 1, ldb = (tb ? k : n) + 2, ldc = n + 3;
        const Vector a = normal((ta ? k : m) * lda, 1), b = normal((tb ? n : k) * ldb, 2), bias = normal(n, 3);
        Vector c = normal(m * ldc, 4);
        const Vector c0 = c;
        plait_gemm g = product(ta, tb, m, n, k, a, lda, b, ldb, c, ldc);
        g.accumulate = accumulate;
        g.bias = with_bias ? bias.data() : nullptr;
        ASSERT_EQ(ref().gemm(ref_exec(), &g), PLAIT_OK);
        for (int64_t i = 0; i < m; i++) {
            for (int64_t j = 0; j < ldc; j++) {
                const size_t at = static_cast<size_t>(i * ldc + j);
                double want = j >= n || accumulate ? c0[at] : 0;
                if (j < n) {
                    want += with_bias ? bias[static_cast<size_t>(j)] : 0;
                    for (int64_t l = 0; l < k; l++)
                        want += a[static_cast<size_t>(ta ? l * lda + i : i * lda + l)] *
                                b[static_cast<size_t>(tb ? j * ldb + l : l * ldb + j)];
                }
                ASSERT_NEAR(c[at], want, 1e-13) << "form " << form << " at " << i << ", " << j;
            }
        }
    }
}

TEST(Attention, EqualsTheWholeMatrixOfProbabilities)
{
    const int64_t batch = 2, seq = 6, heads = 4, kv_heads = 2, D = 3, N = batch * seq;
    const int64_t ldq = heads * D, ldk = kv_heads * D;
    const double scale = 0.7;
    plait_dropout drop = {};
    drop.p = 0.25;
    drop.seed = 5;
    drop.use = PLAIT_RNG_DROPOUT_ATTN;
    drop.layer = 2;
    drop.step = 8;
    drop.sample0 = 3;
    drop.head0 = 4;
    const Vector q = normal(N * ldq, 1), k = normal(N * ldk, 2), v = normal(N * ldk, 3);
    Vector o(q.size()), lse(static_cast<size_t>(batch * heads * seq));
    plait_attention a = {};
    a.batch = batch;
    a.seq = seq;
    a.heads = heads;
    a.kv_heads = kv_heads;
    a.head_dim = D;
    a.scale = scale;
    a.dropout = &drop;
    a.q = q.data();
    a.k = k.data();
    a.v = v.data();
    a.o = o.data();
    a.lse = lse.data();
    a.ldq = a.ldo = ldq;
    a.ldk = a.ldv = ldk;
    ASSERT_EQ(ref().attention_fwd(ref_exec(), &a), PLAIT_OK);

    auto at = [&](const Vector &x, int64_t ld, int64_t t, int64_t b, int64_t h, int64_t d) {
        return x[static_cast<size_t>((t * batch + b) * ld + h * D + d)];
    };
    int dropped = 0;
    for (int64_t b = 0; b < batch; b++) {
        const plait_rng rng = plait_rng_make(5, PLAIT_RNG_DROPOUT_ATTN, 2, 8, static_cast<uint32_t>(3 + b));
        for (int64_t h = 0; h < heads; h++) {
            for (int64_t i = 0; i < seq; i++) {
                Vector e;
                double sum = 0;
                for (int64_t j = 0; j <= i; j++) {
                    double s = 0;
                    for (int64_t d = 0; d < D; d++)
                        s += at(q, ldq, i, b, h, d) * at(k, ldk, j, b, h / 2, d);
                    e.push_back(std::exp(scale * s));
                    sum += e.back();
                }
                EXPECT_NEAR(lse[static_cast<size_t>((b * heads + h) * seq + i)], std::log(sum), 1e-13);
                for (int64_t d = 0; d < D; d++) {
                    double want = 0;
                    for (int64_t j = 0; j <= i; j++) {
                        const uint64_t element = static_cast<uint64_t>(((4 + h) * seq + i) * seq + j);
                        const bool kept = plait_rng_word(&rng, element) >= (1u << 30); // a quarter is dropped
                        dropped += !kept;
                        want += kept ? e[static_cast<size_t>(j)] / sum / 0.75 * at(v, ldk, j, b, h / 2, d) : 0;
                    }
                    EXPECT_NEAR(at(o, ldq, i, b, h, d), want, 1e-13);
                }
            }
        }
    }
    EXPECT_GT(dropped, 0);
}

// A slice of the sequence and of the batch has the mask that the whole has there.
TEST(Dropout, MaskDoesNotDependOnTheSplit)
{
    const int64_t seq = 8, batch = 4, C = 5;
    auto run = [&](int64_t t0, int64_t ts, uint32_t b0, int64_t bs) {
        plait_dropout drop = {};
        drop.p = 0.5;
        drop.seed = 11;
        drop.use = PLAIT_RNG_DROPOUT_PROJ;
        drop.sample0 = 20 + b0;
        drop.t0 = t0;
        drop.batch = bs;
        const Vector ones(static_cast<size_t>(ts * bs * C), 1.0);
        Vector y(ones.size());
        EXPECT_EQ(ref().bias_dropout_add_fwd(ref_exec(), y.data(), ones.data(), nullptr, nullptr, &drop, ts * bs, C),
                  PLAIT_OK);
        return y;
    };
    const Vector whole = run(0, seq, 0, batch), part = run(3, 2, 1, 2);
    int kept = 0;
    for (int64_t t = 0; t < 2; t++)
        for (int64_t b = 0; b < 2; b++)
            for (int64_t c = 0; c < C; c++)
                EXPECT_EQ(part[static_cast<size_t>((t * 2 + b) * C + c)],
                          whole[static_cast<size_t>(((3 + t) * batch + 1 + b) * C + c)]);
    for (double y : whole) {
        EXPECT_TRUE(y == 0 || y == 2) << y;
        kept += y > 0;
    }
    EXPECT_GT(kept, 50);
    EXPECT_LT(kept, 110); // of 160
}

struct Split {
    const char *name;
    int64_t vocab, ranks, cols; // cols a rank; the padding is at the end
};

void PrintTo(const Split &s, std::ostream *os)
{
    *os << s.name;
}

class CrossEntropy : public testing::TestWithParam<Split>
{
};

TEST_P(CrossEntropy, EqualsADirectSoftmax)
{
    const Split &s = GetParam();
    const int64_t rows = 9;
    const double scale = 0.3;
    const Vector logits = normal(rows * s.vocab, 1, 5);
    std::vector<int32_t> targets;
    for (int64_t r = 0; r < rows; r++)
        targets.push_back(r == 4 ? -1 : static_cast<int32_t>(r == 0 ? s.vocab - 1 : r * 7 % s.vocab));

    // Each rank: its columns of the vocabulary, and what would be anything in the padding.
    std::vector<Vector> part(static_cast<size_t>(s.ranks)), sums = part, ends = part;
    std::vector<plait_cross_entropy> c;
    Vector row_max(rows, -INFINITY), row_sum(rows), row_target(rows), mine(rows);
    for (int64_t p = 0; p < s.ranks; p++) {
        Vector &z = part[static_cast<size_t>(p)];
        for (int64_t r = 0; r < rows; r++)
            for (int64_t j = p * s.cols; j < (p + 1) * s.cols; j++)
                z.push_back(j < s.vocab ? logits[static_cast<size_t>(r * s.vocab + j)] : 1e6);
        const int64_t valid = std::max<int64_t>(0, std::min(s.cols, s.vocab - p * s.cols));
        c.push_back({rows, s.cols, valid, p * s.cols, z.data(), targets.data(), mine.data(), nullptr, nullptr, false});
        ASSERT_EQ(ref().cross_entropy_max(ref_exec(), &c.back()), PLAIT_OK);
        for (size_t r = 0; r < static_cast<size_t>(rows); r++)
            row_max[r] = std::fmax(row_max[r], mine[r]);
    }
    for (int64_t p = 0; p < s.ranks; p++) {
        Vector sum(rows), target(rows);
        plait_cross_entropy &call = c[static_cast<size_t>(p)];
        call.row_max = row_max.data();
        call.row_sum = sum.data();
        call.row_target = target.data();
        ASSERT_EQ(ref().cross_entropy_sum(ref_exec(), &call), PLAIT_OK);
        for (size_t r = 0; r < static_cast<size_t>(rows); r++) {
            row_sum[r] += sum[r];
            row_target[r] += target[r];
        }
    }
    double want = 100, loss = 100; // added to
    for (int64_t p = 0; p < s.ranks; p++) {
        plait_cross_entropy &call = c[static_cast<size_t>(p)];
        call.row_sum = row_sum.data();
        call.row_target = row_target.data();
        double same = 100;
        ASSERT_EQ(ref().cross_entropy_loss(ref_exec(), &same, &call), PLAIT_OK);
        loss = same;
        ASSERT_EQ(ref().cross_entropy_grad(ref_exec(), &call, scale), PLAIT_OK);
    }
    for (int64_t r = 0; r < rows; r++) {
        const int32_t target = targets[static_cast<size_t>(r)];
        double sum = 0;
        for (int64_t j = 0; j < s.vocab; j++)
            sum += std::exp(logits[static_cast<size_t>(r * s.vocab + j)]);
        if (target >= 0)
            want -= std::log(std::exp(logits[static_cast<size_t>(r * s.vocab + target)]) / sum);
        for (int64_t j = 0; j < s.ranks * s.cols; j++) {
            const double p =
                j < s.vocab && target >= 0 ? std::exp(logits[static_cast<size_t>(r * s.vocab + j)]) / sum : 0;
            EXPECT_NEAR(part[static_cast<size_t>(j / s.cols)][static_cast<size_t>(r * s.cols + j % s.cols)],
                        scale * (p - (j == target ? 1 : 0)), 1e-13)
                << r << ", " << j;
        }
    }
    EXPECT_NEAR(loss, want, 1e-11);
}

const Split kSplits[] = {{"whole", 31, 1, 31},
                         {"padded", 31, 1, 40},
                         {"two", 31, 2, 16},
                         {"three", 31, 3, 11},
                         {"last_only_padding", 31, 3, 16},
                         {"one_word", 1, 2, 1}};
INSTANTIATE_TEST_SUITE_P(, CrossEntropy, testing::ValuesIn(kSplits),
                         [](const auto &i) { return std::string(i.param.name); });

// g, m, v and w of one weight over three steps.
TEST(AdamW, FollowsItsFormula)
{
    double w = 0.5, m = 0, v = 0, want_w = 0.5, want_m = 0, want_v = 0;
    const double grads[] = {8, -4, 2};
    for (int t = 1; t <= 3; t++) {
        const plait_adamw h = {0.1, 0.9, 0.99, 1e-3, 0.2, 1 - std::pow(0.9, t), 1 - std::pow(0.99, t), 0.25};
        ASSERT_EQ(ref().adamw(ref_exec(), nullptr, &w, &m, &v, &grads[t - 1], 1, &h), PLAIT_OK);
        const double g = grads[t - 1] * 0.25;
        want_m = 0.9 * want_m + 0.1 * g;
        want_v = 0.99 * want_v + 0.01 * g * g;
        const double m_hat = want_m / (1 - std::pow(0.9, t)), v_hat = want_v / (1 - std::pow(0.99, t));
        want_w = want_w - 0.1 * m_hat / (std::sqrt(v_hat) + 1e-3) - 0.1 * 0.2 * want_w;
        EXPECT_NEAR(m, want_m, 1e-15) << t;
        EXPECT_NEAR(v, want_v, 1e-15) << t;
        EXPECT_NEAR(w, want_w, 1e-14) << t;
    }
}

TEST(Sgd, FollowsItsFormula)
{
    const double grad = 3;
    double w = 2, buf = 0.5, plain = 2;
    const plait_sgd with = {0.1, 0.9, 0.01, 0.5}, without = {0.1, 0, 0.01, 0.5};
    ASSERT_EQ(ref().sgd(ref_exec(), nullptr, &w, &buf, &grad, 1, &with), PLAIT_OK);
    EXPECT_DOUBLE_EQ(buf, 0.9 * 0.5 + (1.5 + 0.02));
    EXPECT_DOUBLE_EQ(w, 2 - 0.1 * (0.9 * 0.5 + 1.52));
    ASSERT_EQ(ref().sgd(ref_exec(), nullptr, &plain, nullptr, &grad, 1, &without), PLAIT_OK);
    EXPECT_DOUBLE_EQ(plain, 2 - 0.1 * 1.52);
}

} // namespace
