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
    double p;    // dropout
    bool fused;  // q, k and v are columns of one matrix
    double size; // of queries: large ones make sharp rows and need the maximum taken out
};
const Heads kHeads[] = {
    {"one", 1, 1, 1, 1, 1, 0, false, 1},           {"small", 2, 7, 3, 3, 5, 0, false, 1},
    {"fused", 2, 31, 2, 2, 16, 0, true, 1},        {"grouped", 3, 33, 6, 2, 8, 0, true, 1},
    {"one_kv_head", 1, 64, 4, 1, 64, 0, true, 1},  {"long", 1, 257, 2, 1, 32, 0, false, 1},
    {"wide_heads", 1, 19, 1, 1, 257, 0, false, 1}, {"dropout", 2, 31, 4, 2, 16, 0.25, true, 1},
    {"sharp", 1, 40, 2, 2, 8, 0, false, 30},
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
        o.q = &t.values(N, q_cols, t.T, q_cols + 3, s.size);
        o.k = &t.values(N, kv_cols, t.T, kv_cols + 1);
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

// Terms of the sums that lead to an output, and how large a rounding error of a score is in the exponent.
double terms(const Heads &s)
{
    return static_cast<double>(s.seq + s.head_dim);
}

void attention_fwd(Bench &t, const Heads &s)
{
    const Operands in = operands_of(t, s);
    Array &o = t.output(s.seq * s.batch, s.heads * s.head_dim, t.T, s.heads * s.head_dim + 2);
    Array &lse = t.output(s.batch * s.heads, s.seq, t.A);
    t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
        const plait_attention a = call_of(s, in, o, lse, at);
        return k.attention_fwd(ex, &a);
    });
    const double v = in.v->max_abs() * s.size / (1 - s.p);
    t.compare("attention_fwd.o", o, terms(s), [&](int64_t, int64_t) { return v; });
    t.compare("attention_fwd.lse", lse, terms(s),
              [&](int64_t r, int64_t c) { return std::fabs(lse.at(r, c)) + s.size; });
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

    Array &d_o = t.values(N, q_cols, t.T, q_cols + 1), &dq = t.output(N, q_cols, t.T, q_cols + 4);
    Array &dk = t.output(N, kv_cols, t.T), &dv = t.output(N, kv_cols, t.T, kv_cols + 7);
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
    // dp, delta and with them ds are of the size of do . v, about sqrt(head_dim), which scale takes away again.
    const double ds = s.size / (1 - s.p);
    t.compare("attention_bwd.dq", dq, terms(s), [&, max = dq.max_abs()](int64_t, int64_t) { return max + ds; });
    t.compare("attention_bwd.dk", dk, terms(s),
              [&, max = dk.max_abs()](int64_t, int64_t) { return max + ds * s.size; });
    t.compare("attention_bwd.dv", dv, terms(s), [&, max = dv.max_abs()](int64_t, int64_t) { return max * s.size; });
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
