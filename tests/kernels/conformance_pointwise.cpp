// Rows of gelu, swiglu and bias_dropout_add.
#include <cmath>

#include "tests/kernels/conformance.h"

namespace conformance
{

namespace
{

const int64_t kLengths[] = {1, 7, 31, 64, 257, 100003};

// Normal numbers with the far ends of the function in between.
Array &spread(Bench &t, int64_t n)
{
    Array &x = t.values(1, n, t.T, 0, 3);
    const double ends[] = {0.0, -0.0, 30.0, -30.0, 90.0, -90.0, 1e-4, -1e-4};
    for (int64_t i = 5; i < n && i / 5 <= 8; i += 5)
        x.set(0, i, ends[i / 5 - 1]);
    return x;
}

void gelu_fwd(Bench &t)
{
    for (int64_t n : kLengths) {
        t.say("n " + std::to_string(n));
        Array &x = spread(t, n), &y = t.output(1, n, t.T);
        t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) { return k.gelu_fwd(ex, at(y), at(x), n); });
        // 1 + tanh cancels on the left: an error is small against x, not against y.
        t.compare("gelu_fwd.y", y, 1, [&](int64_t r, int64_t c) { return std::fabs(x.at(r, c)); });
    }
}

void gelu_bwd(Bench &t, bool in_place)
{
    for (int64_t n : kLengths) {
        t.say("n " + std::to_string(n));
        Array &x = spread(t, n), &dy = t.values(1, n, t.T), &dx = in_place ? dy : t.output(1, n, t.T);
        const std::vector<double> dy0 = dy.d;
        t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
            return k.gelu_bwd(ex, at(dx), at(dy), at(x), n);
        });
        // The derivative is at most about 1.1, its terms at most about 2.
        t.compare("gelu_bwd.dx", dx, 1, [&](int64_t, int64_t c) { return 2 * std::fabs(dy0[static_cast<size_t>(c)]); });
    }
}

const struct {
    int64_t N, F;
} kGates[] = {{1, 1}, {7, 31}, {31, 7}, {64, 64}, {3, 257}, {130, 512}};

void swiglu_fwd(Bench &t)
{
    for (const auto &s : kGates) {
        t.say("N " + std::to_string(s.N) + ", F " + std::to_string(s.F));
        Array &gate_up = t.values(s.N, 2 * s.F, t.T, 0, 3), &y = t.output(s.N, s.F, t.T);
        if (s.F > 4) {
            gate_up.set(0, 1, 90);
            gate_up.set(0, 2, -90);
        }
        t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
            return k.swiglu_fwd(ex, at(y), at(gate_up), s.N, s.F);
        });
        t.compare("swiglu_fwd.y", y, 1, [&](int64_t r, int64_t c) {
            return std::fabs(gate_up.at(r, s.F + c)) * std::fmin(1, std::fabs(gate_up.at(r, c))) +
                   std::fabs(y.at(r, c));
        });
    }
}

void swiglu_bwd(Bench &t, bool in_place)
{
    for (const auto &s : kGates) {
        t.say("N " + std::to_string(s.N) + ", F " + std::to_string(s.F));
        Array &gate_up = t.values(s.N, 2 * s.F, t.T, 0, 3), &dy = t.values(s.N, s.F, t.T);
        Array &d = in_place ? gate_up : t.output(s.N, 2 * s.F, t.T);
        if (s.F > 4) {
            gate_up.set(0, 1, 90);
            gate_up.set(0, 2, -90);
        }
        const std::vector<double> before = gate_up.d;
        t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
            return k.swiglu_bwd(ex, at(d), at(dy), at(gate_up), s.N, s.F);
        });
        t.compare("swiglu_bwd.d_gate_up", d, 1, [&](int64_t r, int64_t c) {
            const size_t gate = static_cast<size_t>(r * 2 * s.F + c % s.F), up = gate + static_cast<size_t>(s.F);
            const double size = c < s.F ? 2 * std::fabs(before[up]) : std::fmin(1, std::fabs(before[gate]));
            return std::fabs(dy.at(r, c % s.F)) * size + std::fabs(d.at(r, c));
        });
    }
}

plait_dropout hidden_dropout(double p, int64_t batch)
{
    plait_dropout drop = {};
    drop.p = p;
    drop.seed = 0x123456789abcdefull;
    drop.use = PLAIT_RNG_DROPOUT_PROJ;
    drop.layer = 11;
    drop.step = 5;
    drop.sample0 = 40;
    drop.t0 = 12;
    drop.batch = batch;
    return drop;
}

struct Residual {
    const char *name;
    double p;
    bool bias, residual;
    enum { OWN, OVER_X, OVER_RESIDUAL } place;
};
const Residual kResiduals[] = {
    {"plain", 0, true, true, Residual::OWN},          {"no_bias", 0, false, true, Residual::OWN},
    {"no_residual", 0.1, true, false, Residual::OWN}, {"dropout", 0.1, true, true, Residual::OWN},
    {"y_over_x", 0.5, true, true, Residual::OVER_X},  {"y_over_residual", 0.25, false, true, Residual::OVER_RESIDUAL},
};
const struct {
    int64_t N, C, batch;
} kRows[] = {{1, 1, 1}, {6, 31, 3}, {31, 7, 1}, {64, 64, 2}, {4, 257, 4}, {200, 130, 5}};

void bias_dropout_add_fwd(Bench &t, const Residual &m)
{
    for (const auto &s : kRows) {
        t.say("N " + std::to_string(s.N) + ", C " + std::to_string(s.C) + ", batch " + std::to_string(s.batch));
        const plait_dropout drop = hidden_dropout(m.p, s.batch);
        Array &x = t.values(s.N, s.C, t.T), *bias = m.bias ? &t.values(1, s.C, t.T) : nullptr;
        Array *residual = m.residual ? &t.values(s.N, s.C, t.T) : nullptr;
        Array &y = m.place == Residual::OVER_X          ? x
                   : m.place == Residual::OVER_RESIDUAL ? *residual
                                                        : t.output(s.N, s.C, t.T);
        const std::vector<double> x0 = x.d, residual0 = residual ? residual->d : x.d;
        t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
            return k.bias_dropout_add_fwd(ex, at(y), at(x), at(bias), at(residual), m.p > 0 ? &drop : nullptr, s.N,
                                          s.C);
        });
        t.compare("bias_dropout_add_fwd.y", y, 1, [&](int64_t r, int64_t c) {
            const size_t i = static_cast<size_t>(r * s.C + c);
            return (std::fabs(x0[i]) + (bias ? std::fabs(bias->at(0, c)) : 0)) / (1 - m.p) +
                   (residual ? std::fabs(residual0[i]) : 0);
        });
    }
}

struct Part {
    const char *name;
    double p;
    bool dx, dbias, in_place;
};
const Part kParts[] = {
    {"plain", 0, true, true, false},       {"dropout", 0.1, true, true, false},
    {"dx_over_dy", 0.5, true, true, true}, {"dbias_only", 0.1, false, true, false},
    {"dx_only", 0.1, true, false, false},
};

void bias_dropout_add_bwd(Bench &t, const Part &m)
{
    for (const auto &s : kRows) {
        t.say("N " + std::to_string(s.N) + ", C " + std::to_string(s.C) + ", batch " + std::to_string(s.batch));
        const plait_dropout drop = hidden_dropout(m.p, s.batch);
        Array &dy = t.values(s.N, s.C, t.T), *dbias = m.dbias ? &t.values(1, s.C, t.A) : nullptr;
        Array *dx = !m.dx ? nullptr : m.in_place ? &dy : &t.output(s.N, s.C, t.T);
        const std::vector<double> dy0 = dy.d;
        t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
            return k.bias_dropout_add_bwd(ex, at(dx), at(dbias), at(dy), m.p > 0 ? &drop : nullptr, s.N, s.C);
        });
        if (dx)
            t.compare("bias_dropout_add_bwd.dx", *dx, 1, [&](int64_t r, int64_t c) {
                return std::fabs(dy0[static_cast<size_t>(r * s.C + c)]) / (1 - m.p);
            });
        if (dbias)
            t.compare("bias_dropout_add_bwd.dbias", *dbias, static_cast<double>(s.N), [&](int64_t, int64_t c) {
                return std::sqrt(static_cast<double>(s.N)) / (1 - m.p) + std::fabs(dbias->at(0, c));
            });
    }
}

} // namespace

void add_pointwise_rows(std::vector<Row> &rows)
{
    rows.push_back({"gelu_fwd", PLAIT_OP_gelu_fwd, gelu_fwd});
    rows.push_back({"gelu_bwd", PLAIT_OP_gelu_bwd, [](Bench &t) { gelu_bwd(t, false); }});
    rows.push_back({"gelu_bwd_dx_over_dy", PLAIT_OP_gelu_bwd, [](Bench &t) { gelu_bwd(t, true); }});
    rows.push_back({"swiglu_fwd", PLAIT_OP_swiglu_fwd, swiglu_fwd});
    rows.push_back({"swiglu_bwd", PLAIT_OP_swiglu_bwd, [](Bench &t) { swiglu_bwd(t, false); }});
    rows.push_back({"swiglu_bwd_in_place", PLAIT_OP_swiglu_bwd, [](Bench &t) { swiglu_bwd(t, true); }});
    for (const Residual &m : kResiduals)
        rows.push_back({std::string("bias_dropout_add_fwd_") + m.name, PLAIT_OP_bias_dropout_add_fwd,
                        [&m](Bench &t) { bias_dropout_add_fwd(t, m); }});
    for (const Part &m : kParts)
        rows.push_back({std::string("bias_dropout_add_bwd_") + m.name, PLAIT_OP_bias_dropout_add_bwd,
                        [&m](Bench &t) { bias_dropout_add_bwd(t, m); }});
}

} // namespace conformance
