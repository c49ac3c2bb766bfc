// Rows of gemm and its epilogues, embedding, position, bias_grad.
#include <cmath>

#include "tests/kernels/conformance.h"

namespace conformance
{

namespace
{

struct GemmMode {
    const char *name;
    bool accumulate, bias, c_acc;
    int64_t gap; // of every leading dimension
};

const GemmMode kModes[] = {
    {"plain", false, false, false, 0}, {"accumulate", true, false, false, 0},
    {"bias", false, true, false, 0},   {"bias_accumulate", true, true, false, 0},
    {"wide", false, false, true, 0},   {"wide_accumulate", true, false, true, 0},
    {"gaps", false, false, false, 5},  {"gaps_all", true, true, true, 16},
};

const struct {
    int64_t m, n, k;
} kGemmSizes[] = {{1, 1, 1},    {7, 31, 64},  {31, 64, 7}, {64, 7, 257}, {257, 64, 31},
                  {1, 257, 64}, {64, 64, 64}, {257, 1, 7}, {31, 257, 1}, {128, 96, 512}};

// The matrices of a product, A (m, k) and B (k, n) as they are stored.
struct Factors {
    const Array &a, &b;
    bool trans_a, trans_b;
    int64_t m, n, k;

    plait_gemm into(const Array &c, Side at) const
    {
        plait_gemm g = {};
        g.trans_a = trans_a;
        g.trans_b = trans_b;
        g.m = m;
        g.n = n;
        g.k = k;
        g.a = at(a);
        g.lda = a.ld;
        g.b = at(b);
        g.ldb = b.ld;
        g.c = at(c);
        g.ldc = c.ld;
        return g;
    }
    // The root of the sum of squares of an element's terms, and their sum.
    double size(int64_t r, int64_t col) const
    {
        double squares = 0;
        for (int64_t l = 0; l < k; l++)
            squares += term(r, col, l) * term(r, col, l);
        return std::sqrt(squares);
    }
    double product(int64_t r, int64_t col) const
    {
        double sum = 0;
        for (int64_t l = 0; l < k; l++)
            sum += term(r, col, l);
        return sum;
    }

  private:
    double term(int64_t r, int64_t col, int64_t l) const
    {
        return (trans_a ? a.at(l, r) : a.at(r, l)) * (trans_b ? b.at(col, l) : b.at(l, col));
    }
};

Factors factors(Bench &t, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, int64_t gap = 0)
{
    const int64_t a_cols = trans_a ? m : k, b_cols = trans_b ? k : n;
    Array &a = t.values(trans_a ? k : m, a_cols, t.T, a_cols + gap),
          &b = t.values(trans_b ? n : k, b_cols, t.T, b_cols + gap);
    return {a, b, trans_a, trans_b, m, n, k};
}

std::string text_of(int64_t m, int64_t n, int64_t k, int threads)
{
    return "m " + std::to_string(m) + ", n " + std::to_string(n) + ", k " + std::to_string(k) + ", threads " +
           std::to_string(threads);
}

void gemm(Bench &t, bool trans_a, bool trans_b, const GemmMode &mode, int threads)
{
    for (const auto &s : kGemmSizes) {
        t.say(text_of(s.m, s.n, s.k, threads));
        const plait_dtype c_type = mode.c_acc ? t.A : t.T;
        const Factors f = factors(t, trans_a, trans_b, s.m, s.n, s.k, mode.gap);
        Array &c =
            mode.accumulate ? t.values(s.m, s.n, c_type, s.n + mode.gap) : t.output(s.m, s.n, c_type, s.n + mode.gap);
        Array *bias = mode.bias ? &t.values(1, s.n, t.T) : nullptr;
        const std::vector<double> before = c.d;
        t.both(
            [&](const plait_kernels &k, const plait_exec *ex, Side at) {
                plait_gemm g = f.into(c, at);
                g.c_acc = mode.c_acc;
                g.accumulate = mode.accumulate;
                g.bias = at(bias);
                return k.gemm(ex, &g);
            },
            threads);
        t.compare("gemm.c", c, static_cast<double>(s.k), [&](int64_t r, int64_t col) {
            return f.size(r, col) + std::fabs(c.at(r, col)) + (bias ? std::fabs(bias->at(0, col)) : 0) +
                   (mode.accumulate ? std::fabs(before[static_cast<size_t>(r * c.ld + col)]) : 0);
        });
    }
}

void gemm_gelu(Bench &t, bool with_bias, int threads)
{
    for (const auto &s : kGemmSizes) {
        t.say(text_of(s.m, s.n, s.k, threads));
        const Factors f = factors(t, false, true, s.m, s.n, s.k);
        Array &c = t.output(s.m, s.n, t.T), &y = t.output(s.m, s.n, t.T);
        Array *bias = with_bias ? &t.values(1, s.n, t.T) : nullptr;
        t.both(
            [&](const plait_kernels &k, const plait_exec *ex, Side at) {
                plait_gemm g = f.into(c, at);
                g.bias = at(bias);
                g.gelu = at(y);
                return k.gemm(ex, &g);
            },
            threads);
        const auto scale = [&](int64_t r, int64_t col) {
            return f.size(r, col) + std::fabs(c.at(r, col)) + (bias ? std::fabs(bias->at(0, col)) : 0);
        };
        t.compare("gemm.c", c, static_cast<double>(s.k), scale);
        t.compare("gemm.gelu", y, static_cast<double>(s.k), scale);
    }
}

void gemm_dgelu(Bench &t, int threads)
{
    for (const auto &s : kGemmSizes) {
        t.say(text_of(s.m, s.n, s.k, threads));
        const Factors f = factors(t, false, false, s.m, s.n, s.k);
        Array &c = t.output(s.m, s.n, t.T), &x = t.values(s.m, s.n, t.T);
        t.both(
            [&](const plait_kernels &k, const plait_exec *ex, Side at) {
                plait_gemm g = f.into(c, at);
                g.dgelu = at(x);
                return k.gemm(ex, &g);
            },
            threads);
        t.compare("gemm.c", c, static_cast<double>(s.k), [&](int64_t r, int64_t col) {
            return f.size(r, col) + std::fabs(f.product(r, col)) + std::fabs(c.at(r, col));
        });
    }
}

void gemm_bias_grad(Bench &t, int threads)
{
    for (const auto &s : kGemmSizes) {
        t.say(text_of(s.m, s.n, s.k, threads));
        const Factors f = factors(t, true, false, s.m, s.n, s.k);
        Array &c = t.values(s.m, s.n, t.A), &db = t.values(1, s.m, t.A);
        const std::vector<double> before = c.d;
        t.both(
            [&](const plait_kernels &k, const plait_exec *ex, Side at) {
                plait_gemm g = f.into(c, at);
                g.c_acc = g.accumulate = true;
                g.bias_grad = at(db);
                return k.gemm(ex, &g);
            },
            threads);
        t.compare("gemm.c", c, static_cast<double>(s.k), [&](int64_t r, int64_t col) {
            return f.size(r, col) + std::fabs(c.at(r, col)) + std::fabs(before[static_cast<size_t>(r * c.ld + col)]);
        });
        t.compare("gemm.bias_grad", db, static_cast<double>(s.k),
                  [&](int64_t, int64_t row) { return std::sqrt(static_cast<double>(s.k)) + std::fabs(db.at(0, row)); });
    }
}

// Tokens over twice the rows of the table, so that about half of them are elsewhere.
std::vector<int32_t> some_tokens(int64_t N, int64_t row0, int64_t rows)
{
    std::vector<int32_t> tokens;
    const plait_rng rng = plait_rng_make(5, PLAIT_RNG_DATA, 0, 0, 0);
    for (int64_t r = 0; r < N; r++)
        tokens.push_back(
            static_cast<int32_t>(row0 - rows / 2 + plait_rng_word(&rng, static_cast<uint64_t>(r)) % (2 * rows)));
    return tokens;
}

const struct {
    int64_t N, C, rows;
} kLookups[] = {{1, 1, 1}, {7, 31, 3}, {31, 64, 257}, {257, 7, 5}, {64, 257, 64}, {600, 96, 11}, {2500, 9, 300}};

void embedding_fwd(Bench &t)
{
    for (const auto &s : kLookups) {
        t.say("N " + std::to_string(s.N) + ", C " + std::to_string(s.C) + ", rows " + std::to_string(s.rows));
        const int64_t row0 = 40;
        const std::vector<int32_t> tokens = some_tokens(s.N, row0, s.rows);
        const Raw &which = t.raw(tokens);
        Array &table = t.values(s.rows, s.C, t.T), &y = t.values(s.N, s.C, t.T); // other rows are left alone
        t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
            return k.embedding_fwd(ex, at(y), at.as<int32_t>(which), at(table), row0, s.rows, s.N, s.C);
        });
        t.compare("embedding_fwd.y", y, 1, [](int64_t, int64_t) { return 1; });
    }
}

void embedding_bwd(Bench &t)
{
    for (const auto &s : kLookups) {
        t.say("N " + std::to_string(s.N) + ", C " + std::to_string(s.C) + ", rows " + std::to_string(s.rows));
        const int64_t row0 = 40;
        const std::vector<int32_t> tokens = some_tokens(s.N, row0, s.rows);
        const Raw &which = t.raw(tokens);
        Array &dtable = t.values(s.rows, s.C, t.A), &dy = t.values(s.N, s.C, t.T);
        t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
            return k.embedding_bwd(ex, at(dtable), at.as<int32_t>(which), at(dy), row0, s.rows, s.N, s.C);
        });
        t.compare("embedding_bwd.dtable", dtable, static_cast<double>(s.N), [&](int64_t row, int64_t c) {
            double scale = 1;
            for (int64_t r = 0; r < s.N; r++)
                if (tokens[static_cast<size_t>(r)] == row0 + row)
                    scale += std::fabs(dy.at(r, c));
            return scale;
        });
    }
}

const struct {
    int64_t seq, batch, C;
} kPositions[] = {{1, 1, 1}, {7, 3, 31}, {64, 2, 64}, {31, 1, 257}, {5, 64, 7}};

void position_fwd(Bench &t)
{
    for (const auto &s : kPositions) {
        t.say("seq " + std::to_string(s.seq) + ", batch " + std::to_string(s.batch) + ", C " + std::to_string(s.C));
        Array &y = t.values(s.seq * s.batch, s.C, t.T), &pos = t.values(s.seq, s.C, t.T);
        const std::vector<double> before = y.d;
        t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
            return k.position_fwd(ex, at(y), at(pos), s.seq, s.batch, s.C);
        });
        t.compare("position_fwd.y", y, 1, [&](int64_t r, int64_t c) {
            return std::fabs(before[static_cast<size_t>(r * s.C + c)]) + std::fabs(pos.at(r / s.batch, c));
        });
    }
}

void position_bwd(Bench &t)
{
    for (const auto &s : kPositions) {
        t.say("seq " + std::to_string(s.seq) + ", batch " + std::to_string(s.batch) + ", C " + std::to_string(s.C));
        Array &dpos = t.values(s.seq, s.C, t.A), &dy = t.values(s.seq * s.batch, s.C, t.T);
        t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
            return k.position_bwd(ex, at(dpos), at(dy), s.seq, s.batch, s.C);
        });
        t.compare("position_bwd.dpos", dpos, static_cast<double>(s.batch), [&](int64_t pos, int64_t c) {
            double sum_sq = 1;
            for (int64_t b = 0; b < s.batch; b++)
                sum_sq += dy.at(pos * s.batch + b, c) * dy.at(pos * s.batch + b, c);
            return std::sqrt(sum_sq) + std::fabs(dpos.at(pos, c));
        });
    }
}

void bias_grad(Bench &t)
{
    const struct {
        int64_t N, C;
    } sizes[] = {{1, 1}, {7, 31}, {64, 64}, {257, 7}, {31, 257}, {600, 300}};
    for (const auto &s : sizes) {
        t.say("N " + std::to_string(s.N) + ", C " + std::to_string(s.C));
        Array &db = t.values(1, s.C, t.A), &dy = t.values(s.N, s.C, t.T);
        t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
            return k.bias_grad(ex, at(db), at(dy), s.N, s.C);
        });
        t.compare("bias_grad.db", db, static_cast<double>(s.N),
                  [&](int64_t, int64_t c) { return std::sqrt(static_cast<double>(s.N)) + std::fabs(db.at(0, c)); });
    }
}

} // namespace

void add_linear_rows(std::vector<Row> &rows)
{
    const char *const variants[] = {"NN", "NT", "TN", "TT"};
    for (int v = 0; v < 4; v++)
        for (const GemmMode &mode : kModes)
            rows.push_back({std::string("gemm_") + variants[v] + "_" + mode.name, PLAIT_OP_gemm, [v, &mode](Bench &t) {
                                for (int threads : {1, 2})
                                    gemm(t, v & 2, v & 1, mode, threads);
                            }});
    const auto for_threads = [&rows](const char *name, auto run) {
        rows.push_back({name, PLAIT_OP_gemm, [run](Bench &t) {
                            for (int threads : {1, 2})
                                run(t, threads);
                        }});
    };
    for_threads("gemm_gelu", [](Bench &t, int threads) { gemm_gelu(t, false, threads); });
    for_threads("gemm_bias_gelu", [](Bench &t, int threads) { gemm_gelu(t, true, threads); });
    for_threads("gemm_dgelu", gemm_dgelu);
    for_threads("gemm_bias_grad", gemm_bias_grad);
    rows.push_back({"embedding_fwd", PLAIT_OP_embedding_fwd, embedding_fwd});
    rows.push_back({"embedding_bwd", PLAIT_OP_embedding_bwd, embedding_bwd});
    rows.push_back({"position_fwd", PLAIT_OP_position_fwd, position_fwd});
    rows.push_back({"position_bwd", PLAIT_OP_position_bwd, position_bwd});
    rows.push_back({"bias_grad", PLAIT_OP_bias_grad, bias_grad});
}

} // namespace conformance
