// Rows of layernorm and rmsnorm.
#include <cmath>

#include "tests/kernels/conformance.h"

namespace conformance
{

namespace
{

const struct Size {
    int64_t N, C;
    double offset; // mean of x: a variance from a mean of squares would lose it
} kSizes[] = {{1, 1, 0},   {7, 31, 0},   {31, 7, 0},   {3, 257, 0},  {64, 64, 0},
              {257, 5, 0}, {33, 768, 0}, {5, 64, 100}, {2, 4099, 0}, {3, 8208, 0}};
constexpr double kEps = 1e-5;

// Which outputs a backward call asks for and where dx goes.
struct Part {
    const char *name;
    bool dx, dw, dres;
    enum { OWN, OVER_DY, OVER_DRES } place;
};
const Part kParts[] = {
    {"dx_dw", true, true, false, Part::OWN},         {"dres", true, true, true, Part::OWN},
    {"dx_only", true, false, true, Part::OWN},       {"dw_only", false, true, false, Part::OWN},
    {"dx_over_dy", true, true, true, Part::OVER_DY}, {"dx_over_dres", true, true, true, Part::OVER_DRES},
};

std::string text(const Size &s)
{
    return "N " + std::to_string(s.N) + ", C " + std::to_string(s.C);
}

void layernorm_fwd(Bench &t)
{
    for (const Size &s : kSizes) {
        t.say(text(s));
        Array &x = t.values(s.N, s.C, t.T, 0, 1, s.offset), &w = t.values(1, s.C, t.T), &b = t.values(1, s.C, t.T);
        Array &y = t.output(s.N, s.C, t.T), &mean = t.output(s.N, 1, t.A), &rstd = t.output(s.N, 1, t.A);
        t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
            return k.layernorm_fwd(ex, at(y), at(mean), at(rstd), at(x), at(w), at(b), s.N, s.C, kEps);
        });
        const double K = static_cast<double>(s.C), size = 1 + s.offset;
        t.compare("layernorm_fwd.y", y, K, [&](int64_t r, int64_t c) {
            return rstd.at(r, 0) * (std::fabs(x.at(r, c)) + std::fabs(mean.at(r, 0))) * std::fabs(w.at(0, c)) +
                   std::fabs(b.at(0, c)) + std::fabs(y.at(r, c));
        });
        t.compare("layernorm_fwd.mean", mean, K,
                  [&](int64_t r, int64_t) { return size / std::sqrt(K) + std::fabs(mean.at(r, 0)); });
        t.compare("layernorm_fwd.rstd", rstd, K, [&](int64_t r, int64_t) { return rstd.at(r, 0); });
    }
}

void layernorm_bwd(Bench &t, const Part &part)
{
    for (const Size &s : kSizes) {
        t.say(text(s));
        Array &x = t.values(s.N, s.C, t.T, 0, 1, s.offset), &w = t.values(1, s.C, t.T), &b = t.values(1, s.C, t.T);
        Array &y = t.output(s.N, s.C, t.T), &mean = t.output(s.N, 1, t.A), &rstd = t.output(s.N, 1, t.A);
        t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
            return k.layernorm_fwd(ex, at(y), at(mean), at(rstd), at(x), at(w), at(b), s.N, s.C, kEps);
        });
        mean.round();
        rstd.round();

        Array &dy = t.values(s.N, s.C, t.T), *dres = part.dres ? &t.values(s.N, s.C, t.T) : nullptr;
        Array *dw = part.dw ? &t.values(1, s.C, t.A) : nullptr, *db = part.dw ? &t.values(1, s.C, t.A) : nullptr;
        Array *dx = !part.dx                      ? nullptr
                    : part.place == Part::OVER_DY ? &dy
                    : part.place == Part::OWN     ? &t.output(s.N, s.C, t.T)
                                                  : dres;
        const std::vector<double> dy0 = dy.d, dres0 = dres ? dres->d : dy.d;
        t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
            return k.layernorm_bwd(ex, at(dx), at(dw), at(db), at(dy), at(dres), at(x), at(w), at(mean), at(rstd), s.N,
                                   s.C);
        });
        auto xhat_size = [&](int64_t r, int64_t c) {
            return (std::fabs(x.at(r, c)) + std::fabs(mean.at(r, 0))) * rstd.at(r, 0);
        };
        if (dx) {
            std::vector<double> g, dot; // mean sizes of w dy and of w dy xhat, by row
            for (int64_t r = 0; r < s.N; r++) {
                double sum_g = 0, sum_dot = 0;
                for (int64_t i = 0; i < s.C; i++) {
                    const double g_i = std::fabs(w.at(0, i) * dy0[static_cast<size_t>(r * s.C + i)]);
                    sum_g += g_i;
                    sum_dot += g_i * xhat_size(r, i);
                }
                g.push_back(sum_g / static_cast<double>(s.C));
                dot.push_back(sum_dot / static_cast<double>(s.C));
            }
            t.compare("layernorm_bwd.dx", *dx, static_cast<double>(s.C), [&](int64_t r, int64_t c) {
                const size_t i = static_cast<size_t>(r * s.C + c), row = static_cast<size_t>(r);
                return rstd.at(r, 0) * (std::fabs(w.at(0, c) * dy0[i]) + g[row] + xhat_size(r, c) * dot[row]) +
                       (dres ? std::fabs(dres0[i]) : 0);
            });
        }
        if (dw) {
            auto sum = [&](int64_t c, bool with_x) {
                double sum_sq = 1;
                for (int64_t r = 0; r < s.N; r++) {
                    const double d = dy0[static_cast<size_t>(r * s.C + c)] * (with_x ? xhat_size(r, c) : 1);
                    sum_sq += d * d;
                }
                return std::sqrt(sum_sq);
            };
            const double K = static_cast<double>(s.N);
            t.compare("layernorm_bwd.dw", *dw, K,
                      [&](int64_t, int64_t c) { return sum(c, true) + std::fabs(dw->at(0, c)); });
            t.compare("layernorm_bwd.db", *db, K,
                      [&](int64_t, int64_t c) { return sum(c, false) + std::fabs(db->at(0, c)); });
        }
    }
}

void rmsnorm_fwd(Bench &t)
{
    for (const Size &s : kSizes) {
        t.say(text(s));
        Array &x = t.values(s.N, s.C, t.T, 0, 1, s.offset), &w = t.values(1, s.C, t.T);
        Array &y = t.output(s.N, s.C, t.T), &rstd = t.output(s.N, 1, t.A);
        t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
            return k.rmsnorm_fwd(ex, at(y), at(rstd), at(x), at(w), s.N, s.C, kEps);
        });
        t.compare("rmsnorm_fwd.y", y, static_cast<double>(s.C),
                  [&](int64_t r, int64_t c) { return std::fabs(y.at(r, c)); });
        t.compare("rmsnorm_fwd.rstd", rstd, static_cast<double>(s.C),
                  [&](int64_t r, int64_t) { return rstd.at(r, 0); });
    }
}

void rmsnorm_bwd(Bench &t, const Part &part)
{
    for (const Size &s : kSizes) {
        t.say(text(s));
        Array &x = t.values(s.N, s.C, t.T, 0, 1, s.offset), &w = t.values(1, s.C, t.T);
        Array &y = t.output(s.N, s.C, t.T), &rstd = t.output(s.N, 1, t.A);
        t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
            return k.rmsnorm_fwd(ex, at(y), at(rstd), at(x), at(w), s.N, s.C, kEps);
        });
        rstd.round();

        Array &dy = t.values(s.N, s.C, t.T), *dres = part.dres ? &t.values(s.N, s.C, t.T) : nullptr;
        Array *dw = part.dw ? &t.values(1, s.C, t.A) : nullptr;
        Array *dx = !part.dx                      ? nullptr
                    : part.place == Part::OVER_DY ? &dy
                    : part.place == Part::OWN     ? &t.output(s.N, s.C, t.T)
                                                  : dres;
        const std::vector<double> dy0 = dy.d, dres0 = dres ? dres->d : dy.d;
        t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
            return k.rmsnorm_bwd(ex, at(dx), at(dw), at(dy), at(dres), at(x), at(w), at(rstd), s.N, s.C);
        });
        if (dx) {
            std::vector<double> dot; // mean size of w dy x, by row
            for (int64_t r = 0; r < s.N; r++) {
                double sum = 0;
                for (int64_t i = 0; i < s.C; i++)
                    sum += std::fabs(w.at(0, i) * dy0[static_cast<size_t>(r * s.C + i)] * x.at(r, i));
                dot.push_back(sum / static_cast<double>(s.C));
            }
            t.compare("rmsnorm_bwd.dx", *dx, static_cast<double>(s.C), [&](int64_t r, int64_t c) {
                const size_t i = static_cast<size_t>(r * s.C + c);
                const double scale = rstd.at(r, 0), of_x = std::fabs(x.at(r, c)) * scale * scale;
                return scale * (std::fabs(w.at(0, c) * dy0[i]) + of_x * dot[static_cast<size_t>(r)]) +
                       (dres ? std::fabs(dres0[i]) : 0);
            });
        }
        if (dw)
            t.compare("rmsnorm_bwd.dw", *dw, static_cast<double>(s.N), [&](int64_t, int64_t c) {
                double sum_sq = 1;
                for (int64_t r = 0; r < s.N; r++) {
                    const double d = dy0[static_cast<size_t>(r * s.C + c)] * x.at(r, c) * rstd.at(r, 0);
                    sum_sq += d * d;
                }
                return std::sqrt(sum_sq) + std::fabs(dw->at(0, c));
            });
    }
}

} // namespace

void add_norm_rows(std::vector<Row> &rows)
{
    rows.push_back({"layernorm_fwd", PLAIT_OP_layernorm_fwd, layernorm_fwd});
    rows.push_back({"rmsnorm_fwd", PLAIT_OP_rmsnorm_fwd, rmsnorm_fwd});
    for (const Part &part : kParts) {
        rows.push_back({std::string("layernorm_bwd_") + part.name, PLAIT_OP_layernorm_bwd,
                        [&part](Bench &t) { layernorm_bwd(t, part); }});
        rows.push_back({std::string("rmsnorm_bwd_") + part.name, PLAIT_OP_rmsnorm_bwd,
                        [&part](Bench &t) { rmsnorm_bwd(t, part); }});
    }
}

} // namespace conformance
