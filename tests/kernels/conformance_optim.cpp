// Rows of adamw, sgd, unscale and sum_squares.
#include <cmath>

#include "tests/kernels/conformance.h"

namespace conformance
{

namespace
{

const int64_t kLengths[] = {1, 7, 31, 64, 257, 70001};

void adamw(Bench &t)
{
    const double b1 = 0.9, b2 = 0.95;
    for (int step : {1, 10}) {
        for (int64_t n : kLengths) {
            t.say("n " + std::to_string(n) + ", step " + std::to_string(step));
            const plait_adamw h = {0.01, b1, b2, 1e-8, 0.1, 1 - std::pow(b1, step), 1 - std::pow(b2, step), 0.125};
            Array &w = t.values(1, n, t.A), &m = t.values(1, n, t.A), &v = t.values(1, n, t.A);
            Array &grad = t.values(1, n, t.A, 0, 8), *param = t.T == t.A ? nullptr : &t.output(1, n, t.T);
            for (int64_t i = 0; i < n; i++)
                v.set(0, i, std::fabs(v.at(0, i)));
            const std::vector<double> w0 = w.d, m0 = m.d, v0 = v.d;
            t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
                return k.adamw(ex, at(param), at(w), at(m), at(v), at(grad), n, &h);
            });
            auto g = [&](int64_t i) { return std::fabs(grad.at(0, i)) * h.grad_scale; };
            auto update = [&](int64_t i) {
                return h.lr * ((std::fabs(m0[static_cast<size_t>(i)]) + g(i)) / h.bias1 /
                                   (std::sqrt(v.at(0, i) / h.bias2) + h.eps) +
                               h.weight_decay * std::fabs(w0[static_cast<size_t>(i)]));
            };
            auto weight = [&](int64_t, int64_t i) { return std::fabs(w0[static_cast<size_t>(i)]) + update(i); };
            t.compare("adamw.m", m, 1,
                      [&](int64_t, int64_t i) { return std::fabs(m0[static_cast<size_t>(i)]) + g(i); });
            t.compare("adamw.v", v, 1, [&](int64_t, int64_t i) { return v0[static_cast<size_t>(i)] + g(i) * g(i); });
            t.compare("adamw.master", w, 1, weight);
            if (param) {
                for (int64_t i = 0; i < n; i++)
                    param->d[static_cast<size_t>(i)] = w.at(0, i);
                t.compare("adamw.param", *param, 1, weight);
            }
        }
    }
}

void sgd(Bench &t, double momentum)
{
    for (int64_t n : kLengths) {
        t.say("n " + std::to_string(n));
        const plait_sgd h = {0.1, momentum, 0.01, 0.5};
        Array &w = t.values(1, n, t.A), &grad = t.values(1, n, t.A),
              *buf = momentum > 0 ? &t.values(1, n, t.A) : nullptr;
        Array *param = t.T == t.A ? nullptr : &t.output(1, n, t.T);
        const std::vector<double> w0 = w.d, buf0 = buf ? buf->d : w.d;
        t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
            return k.sgd(ex, at(param), at(w), at(buf), at(grad), n, &h);
        });
        auto step = [&](int64_t, int64_t i) {
            return std::fabs(grad.at(0, i)) + std::fabs(w0[static_cast<size_t>(i)]) +
                   (buf ? std::fabs(buf0[static_cast<size_t>(i)]) : 0);
        };
        t.compare("sgd.master", w, 1, step);
        if (buf)
            t.compare("sgd.buf", *buf, 1, step);
        if (param) {
            for (int64_t i = 0; i < n; i++)
                param->d[static_cast<size_t>(i)] = w.at(0, i);
            t.compare("sgd.param", *param, 1, step);
        }
    }
}

void unscale(Bench &t)
{
    const double large = t.A == PLAIT_FP64 ? 1e308 : 3e38;
    const struct {
        const char *name;
        double put, scale;
        int32_t before, after;
    } cases[] = {
        {"finite", 1, 0.3, 0, 0},          {"kept", 1, 0.3, 1, 1},  {"inf", INFINITY, 0.3, 0, 1},
        {"minus_inf", -INFINITY, 1, 0, 1}, {"nan", NAN, 0.5, 0, 1}, {"overflow", large, 4, 0, 1},
    };
    for (const auto &c : cases) {
        for (int64_t n : kLengths) {
            for (int64_t place : {int64_t{0}, n / 2, n - 1}) {
                t.say(std::string(c.name) + " at " + std::to_string(place) + " of " + std::to_string(n));
                Array &x = t.values(1, n, t.A);
                x.set(0, place, c.put);
                const Raw &found = t.scalar(c.before);
                t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
                    return k.unscale(ex, at(x), c.scale, n, at.as<int32_t>(found));
                });
                const int32_t after = found.get<int32_t>()[0];
                if (after != c.after)
                    t.fail("unscale.found_inf is " + std::to_string(after));
                if (!c.after || c.before)
                    t.compare("unscale.x", x, 1, [&](int64_t r, int64_t i) { return std::fabs(x.at(r, i)); });
            }
        }
    }
}

void sum_squares(Bench &t)
{
    for (int64_t n : kLengths) {
        t.say("n " + std::to_string(n));
        Array &x = t.values(1, n, t.A), &sum = t.values(1, 1, PLAIT_FP64);
        t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
            return k.sum_squares(ex, static_cast<double *>(at(sum)), at(x), n);
        });
        const double K = static_cast<double>(n);
        t.compare(
            "sum_squares.sum", sum, K, [&](int64_t, int64_t) { return K + 1; }, PLAIT_FP64);
    }
}

} // namespace

void add_optim_rows(std::vector<Row> &rows)
{
    rows.push_back({"adamw", PLAIT_OP_adamw, adamw});
    rows.push_back({"sgd", PLAIT_OP_sgd, [](Bench &t) { sgd(t, 0); }});
    rows.push_back({"sgd_momentum", PLAIT_OP_sgd, [](Bench &t) { sgd(t, 0.9); }});
    rows.push_back({"unscale", PLAIT_OP_unscale, unscale});
    rows.push_back({"sum_squares", PLAIT_OP_sum_squares, sum_squares});
}

} // namespace conformance
