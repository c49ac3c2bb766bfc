// Rows of rope_table, rope and attention.
#include <cmath>

#include "tests/kernels/conformance.h"

namespace conformance
{

namespace
{

const struct {
    int64_t seq, batch, heads, D;
} kRopes[] = {{1, 1, 1, 2}, {7, 3, 2, 6}, {31, 2, 5, 64}, {257, 1, 1, 32}};

void rope_table(Bench &t)
{
    for (const auto &s : kRopes) {
        t.say("seq " + std::to_string(s.seq) + ", D " + std::to_string(s.D));
        Array &table = t.output(s.seq, s.D, t.A);
        t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
            return k.rope_table(ex, at(table), s.seq, s.D, 10000.0);
        });
        t.compare("rope_table.table", table, 1, [](int64_t, int64_t) { return 1; });
    }
}

void rope(Bench &t, bool inverse, int64_t gap)
{
    for (const auto &s : kRopes) {
        t.say("seq " + std::to_string(s.seq) + ", batch " + std::to_string(s.batch) + ", heads " +
              std::to_string(s.heads) + ", D " + std::to_string(s.D));
        Array &table = t.output(s.seq, s.D, t.A);
        t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
            return k.rope_table(ex, at(table), s.seq, s.D, 10000.0);
        });
        table.round();
        const int64_t width = s.heads * s.D;
        Array &x = t.values(s.seq * s.batch, width, t.T, width + gap);
        const std::vector<double> before = x.d;
        t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
            return k.rope(ex, at(x), x.ld, at(table), s.seq, s.batch, s.heads, s.D, inverse);
        });
        t.compare("rope.x", x, 1, [&](int64_t r, int64_t c) {
            const int64_t pair = c % s.D < s.D / 2 ? c + s.D / 2 : c - s.D / 2;
            return std::fabs(before[static_cast<size_t>(r * x.ld + c)]) +
                   std::fabs(before[static_cast<size_t>(r * x.ld + pair)]);
        });
    }
}

struct Heads {
    const char *name;
    int64_t batch, seq, heads, kv_heads, head_dim;
    double p;        // dropout
    bool fused;      // q, k and v are columns of one matrix
    double size;     // of queries: large ones make sharp rows, need the maximum taken out, and round the exponent
    int64_t gap = 1; // what rows are longer is a multiple of it; 8: rows begin where vectors of 16 bytes may
};
const Heads kHeads[] = {
    {"one", 1, 1, 1, 1, 1, 0, false, 1},
    {"small", 2, 7, 3, 3, 5, 0, false, 1},
    {"fused", 2, 31, 2, 2, 16, 0, true, 1},
    {"grouped", 3, 33, 6, 2, 8, 0, true, 1},
    {"one_kv_head", 1, 64, 4, 1, 64, 0, true, 1},
    {"long", 1, 257, 2, 1, 32, 0, false, 1},
    {"wide_heads", 1, 19, 1, 1, 257, 0, false, 1},
    {"dropout", 2, 31, 4, 2, 16, 0.25, true, 1},
    {"sharp", 1, 40, 2, 2, 8, 0, false, 30},
    {"vectors32", 1, 130, 2, 1, 32, 0, false, 1, 8},
    {"vectors64", 2, 132, 2, 1, 64, 0.3, true, 1, 8},
    {"vectors96", 1, 65, 2, 2, 96, 0, false, 1, 8},
    {"vectors128", 1, 97, 2, 1, 128, 0.5, true, 20, 8},
    {"vectors256", 1, 70, 2, 1, 256, 0, true, 1, 8},
};

struct Operands {
    Array *q, *k, *v;
    int64_t k0, v0; // first columns
    plait_dropout drop;
};

Operands operands_of(Bench &t, const Heads &s)
{
    const int64_t N = s.seq * s.batch, q_cols = s.heads * s.head_dim, kv_cols = s.kv_heads * s.head_dim;
    Operands o = {};
    o.drop.p = s.p;
    o.drop.seed = 99;
    o.drop.use = PLAIT_RNG_DROPOUT_ATTN;
    o.drop.layer = 3;
    o.drop.step = 17;
    o.drop.sample0 = 6;
    o.drop.head0 = 2;
    if (s.fused) {
        o.q = o.k = o.v = &t.values(N, q_cols + 2 * kv_cols, t.T);
        o.k0 = q_cols;
        o.v0 = q_cols + kv_cols;
    } else {
        o.q = &t.values(N, q_cols, t.T, q_cols + 3 * s.gap, s.size);
        o.k = &t.values(N, kv_cols, t.T, kv_cols + s.gap);
        o.v = &t.values(N, kv_cols, t.T);
    }
    return o;
}

plait_attention call_of(const Heads &s, const Operands &in, const Array &o, const Array &lse, Side at)
{
    plait_attention a = {};
    a.batch = s.batch;
    a.seq = s.seq;
    a.heads = s.heads;
    a.kv_heads = s.kv_heads;
    a.head_dim = s.head_dim;
    a.scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
    a.dropout = s.p > 0 ? &in.drop : nullptr;
    a.q = at(*in.q);
    a.k = at(*in.k, in.k0);
    a.v = at(*in.v, in.v0);
    a.ldq = in.q->ld;
    a.ldk = in.k->ld;
    a.ldv = in.v->ld;
    a.o = at(o);
    a.ldo = o.ld;
    a.lse = at(lse);
    return a;
}

// Terms of the sums that lead to an output.
double terms(const Heads &s)
{
    return static_cast<double>(s.seq + s.head_dim);
}

// ---- Conditioning: how large an output's error is, to first order, when what is summed is off by one part each ----

// Query i of head h in sample b, with the keys it sees.
struct Query {
    int64_t b, h, i;
};

struct Key {
    double p; // exp(score - lse), without dropout
    double e; // the size of what is rounded in the exponent: products, score, and its distance from lse
};

double element(const Array &a, const Heads &s, int64_t token, int64_t b, int64_t column)
{
    return a.at(token * s.batch + b, column);
}

std::vector<Key> keys_of(const Heads &s, const Operands &in, const Array &lse, const Query &at)
{
    const int64_t D = s.head_dim, kv = at.h / (s.heads / s.kv_heads);
    std::vector<Key> keys;
    for (int64_t j = 0; j <= at.i; j++) {
        double sum = 0, sum_sq = 0;
        for (int64_t d = 0; d < D; d++) {
            const double x =
                element(*in.q, s, at.i, at.b, at.h * D + d) * element(*in.k, s, j, at.b, in.k0 + kv * D + d);
            sum += x;
            sum_sq += x * x;
        }
        const double scale = 1 / std::sqrt(static_cast<double>(D)), score = sum * scale;
        const double rest = score - lse.at(at.b * s.heads + at.h, at.i);
        keys.push_back({std::exp(rest), std::sqrt(sum_sq) * scale + std::fabs(score) + std::fabs(rest)});
    }
    return keys;
}

template <typename Body> void for_each_query(const Heads &s, Body body)
{
    for (int64_t b = 0; b < s.batch; b++)
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t i = 0; i < s.seq; i++)
                body(Query{b, h, i});
}

// A value and what it would be without its dropped part: whichever is larger.
double larger(double kept, double dropped)
{
    return std::fmax(std::fabs(kept), std::fabs(dropped));
}

// Sizes that belong to the elements of an output.
class Sizes
{
  public:
    explicit Sizes(const Array &a) : cols_(a.cols), size_(static_cast<size_t>(a.rows * a.cols)) {}
    double &at(int64_t r, int64_t c) { return size_[static_cast<size_t>(r * cols_ + c)]; }
    Scale scale()
    {
        return [this](int64_t r, int64_t c) { return at(r, c); };
    }

  private:
    int64_t cols_;
    std::vector<double> size_;
};

// lse = log sum exp(s): d lse = sum p ds. o = sum p v: d o = sum p (v - o) ds, besides the rounding of the terms.
void forward_sizes(const Heads &s, const Operands &in, const Array &o, const Array &lse, Sizes &o_size, Sizes &lse_size)
{
    const double keep = 1 / (1 - s.p);
    for_each_query(s, [&](const Query &at) {
        const int64_t D = s.head_dim, kv = at.h / (s.heads / s.kv_heads), row = at.b * s.heads + at.h;
        const std::vector<Key> keys = keys_of(s, in, lse, at);
        double &of_lse = lse_size.at(row, at.i);
        of_lse = 1 + std::fabs(lse.at(row, at.i));
        for (const Key &k : keys)
            of_lse += k.p * k.e;
        for (int64_t c = at.h * D; c < (at.h + 1) * D; c++) {
            const double out = element(o, s, at.i, at.b, c);
            double &of_o = o_size.at(at.i * s.batch + at.b, c);
            of_o = std::fabs(out);
            for (size_t j = 0; j < keys.size(); j++) {
                const int64_t v_column = in.v0 + kv * D + c - at.h * D;
                const double v = keep * element(*in.v, s, static_cast<int64_t>(j), at.b, v_column);
                of_o += keys[j].p * (std::fabs(v) + keys[j].e * larger(v - out, s.p > 0 ? out : 0));
            }
        }
    });
}

// With lse given: dv = sum_i p d_o. ds = p (d_o . v - d_o . o), whose parts are off by p's error and by those of the
// two sums; dq = scale sum_j ds k, dk = scale sum_i ds q.
void backward_sizes(const Heads &s, const Operands &in, const Array &o, const Array &lse, const Array &d_o, Sizes &dq,
                    Sizes &dk, Sizes &dv)
{
    const double keep = 1 / (1 - s.p), scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
    for_each_query(s, [&](const Query &at) {
        const int64_t D = s.head_dim, kv = at.h / (s.heads / s.kv_heads), row = at.i * s.batch + at.b;
        const std::vector<Key> keys = keys_of(s, in, lse, at);
        double delta = 0, delta_sq = 0;
        for (int64_t d = 0; d < D; d++) {
            const double x = d_o.at(row, at.h * D + d) * o.at(row, at.h * D + d);
            delta += x;
            delta_sq += x * x;
        }
        for (size_t n = 0; n < keys.size(); n++) {
            const int64_t j = static_cast<int64_t>(n), key = j * s.batch + at.b;
            double dp = 0, dp_sq = 0;
            for (int64_t d = 0; d < D; d++) {
                const double x = keep * d_o.at(row, at.h * D + d) * in.v->at(key, in.v0 + kv * D + d);
                dp += x;
                dp_sq += x * x;
            }
            const double ds = keys[n].p * larger(dp - delta, s.p > 0 ? delta : 0);
            const double parts = std::sqrt(dp_sq) + std::fabs(dp) + std::sqrt(delta_sq) + std::fabs(delta);
            const double ds_size = ds * (1 + keys[n].e) + keys[n].p * parts;
            for (int64_t d = 0; d < D; d++) {
                const int64_t q_column = at.h * D + d, kv_column = kv * D + d;
                dq.at(row, q_column) += scale * ds_size * std::fabs(in.k->at(key, in.k0 + kv_column));
                dk.at(key, kv_column) += scale * ds_size * std::fabs(in.q->at(row, q_column));
                dv.at(key, kv_column) += keep * keys[n].p * (1 + keys[n].e) * std::fabs(d_o.at(row, q_column));
            }
        }
    });
}

void attention_fwd(Bench &t, const Heads &s)
{
    const Operands in = operands_of(t, s);
    Array &o = t.output(s.seq * s.batch, s.heads * s.head_dim, t.T, s.heads * s.head_dim + 2 * s.gap);
    Array &lse = t.output(s.batch * s.heads, s.seq, t.A);
    t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
        const plait_attention a = call_of(s, in, o, lse, at);
        return k.attention_fwd(ex, &a);
    });
    Sizes o_size(o), lse_size(lse);
    forward_sizes(s, in, o, lse, o_size, lse_size);
    t.compare("attention_fwd.o", o, terms(s), o_size.scale());
    t.compare("attention_fwd.lse", lse, terms(s), lse_size.scale());
}

void attention_bwd(Bench &t, const Heads &s)
{
    const Operands in = operands_of(t, s);
    const int64_t N = s.seq * s.batch, q_cols = s.heads * s.head_dim, kv_cols = s.kv_heads * s.head_dim;
    Array &o = t.output(N, q_cols, t.T), &lse = t.output(s.batch * s.heads, s.seq, t.A);
    t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
        const plait_attention a = call_of(s, in, o, lse, at);
        return k.attention_fwd(ex, &a);
    });
    o.round();
    lse.round();

    Array &d_o = t.values(N, q_cols, t.T, q_cols + s.gap), &dq = t.output(N, q_cols, t.T, q_cols + 4 * s.gap);
    Array &dk = t.output(N, kv_cols, t.T), &dv = t.output(N, kv_cols, t.T, kv_cols + 7 * s.gap);
    t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
        plait_attention a = call_of(s, in, o, lse, at);
        a.d_o = at(d_o);
        a.dq = at(dq);
        a.dk = at(dk);
        a.dv = at(dv);
        a.lddo = d_o.ld;
        a.lddq = dq.ld;
        a.lddk = dk.ld;
        a.lddv = dv.ld;
        return k.attention_bwd(ex, &a);
    });
    Sizes dq_size(dq), dk_size(dk), dv_size(dv);
    backward_sizes(s, in, o, lse, d_o, dq_size, dk_size, dv_size);
    t.compare("attention_bwd.dq", dq, terms(s), dq_size.scale());
    t.compare("attention_bwd.dk", dk, terms(s), dk_size.scale());
    t.compare("attention_bwd.dv", dv, terms(s), dv_size.scale());
}

} // namespace

void add_attention_rows(std::vector<Row> &rows)
{
    rows.push_back({"rope_table", PLAIT_OP_rope_table, rope_table});
    rows.push_back({"rope", PLAIT_OP_rope, [](Bench &t) { rope(t, false, 0); }});
    rows.push_back({"rope_inverse", PLAIT_OP_rope, [](Bench &t) { rope(t, true, 0); }});
    rows.push_back({"rope_in_wider_rows", PLAIT_OP_rope, [](Bench &t) { rope(t, false, 9); }});
    for (const Heads &s : kHeads) {
        rows.push_back(
            {std::string("attention_fwd_") + s.name, PLAIT_OP_attention_fwd, [&s](Bench &t) { attention_fwd(t, s); }});
        rows.push_back(
            {std::string("attention_bwd_") + s.name, PLAIT_OP_attention_bwd, [&s](Bench &t) { attention_bwd(t, s); }});
    }
}

} // namespace conformance
