// Rows of cross-entropy: one rank's columns, with padding, targets elsewhere and targets that do not count.
#include <cmath>

#include "tests/kernels/bounds.h"
#include "tests/kernels/conformance.h"

namespace conformance
{

namespace
{

// The last has more rows than a block of a GPU has threads.
const struct Size {
    int64_t rows, cols, valid, v0;
} kSizes[] = {{1, 1, 1, 0},   {7, 31, 31, 0},     {31, 64, 57, 64},     {5, 257, 257, 257},
              {64, 7, 0, 21}, {33, 1000, 999, 5}, {3, 20000, 19990, 5}, {1100, 6, 5, 3}};

struct Problem {
    Array &logits, &row_max, &row_sum, &row_target;
    std::vector<int32_t> targets;
    const Raw *targets_of_rows; // the same as an operand
};

// Logits whose maximum and sum over all ranks are larger than this rank's own.
Problem problem_of(Bench &t, const Size &s)
{
    Problem p = {t.values(s.rows, s.cols, t.A, 0, 4),
                 t.output(s.rows, 1, t.A),
                 t.output(s.rows, 1, t.A),
                 t.output(s.rows, 1, t.A),
                 {},
                 nullptr};
    for (int64_t r = 0; r < s.rows; r++) {
        for (int64_t c = s.valid; c < s.cols; c++)
            p.logits.set(r, c, 50);                              // padding must not be seen
        const int64_t target = s.v0 + r * 13 % (s.cols + 3) - 1; // some before, some behind, some in the padding
        p.targets.push_back(r % 5 == 3 ? -1 : static_cast<int32_t>(target));
    }
    p.targets_of_rows = &t.raw(p.targets);
    return p;
}

plait_cross_entropy call_of(const Size &s, const Problem &p, Side at)
{
    return {s.rows,        s.cols,        s.valid,          s.v0, at(p.logits), at.as<int32_t>(*p.targets_of_rows),
            at(p.row_max), at(p.row_sum), at(p.row_target), false};
}

void fill_max(Problem &p, const Size &s)
{
    for (int64_t r = 0; r < s.rows; r++) {
        double max = 3;
        for (int64_t c = 0; c < s.valid; c++)
            max = std::fmax(max, p.logits.at(r, c) + (r % 2 ? 0.75 : 0));
        p.row_max.set(r, 0, max);
    }
}

// exp(logit - max) and what the rounding of its exponent does to it.
double exp_size(const Problem &p, int64_t r, int64_t c)
{
    const double exponent = p.logits.at(r, c) - p.row_max.at(r, 0);
    return std::exp(exponent) * (1 + std::fabs(exponent));
}

std::string text(const Size &s)
{
    return "rows " + std::to_string(s.rows) + ", cols " + std::to_string(s.cols) + ", valid " + std::to_string(s.valid);
}

void max_row(Bench &t)
{
    for (const Size &s : kSizes) {
        t.say(text(s));
        Problem p = problem_of(t, s);
        t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
            const plait_cross_entropy c = call_of(s, p, at);
            return k.cross_entropy_max(ex, &c);
        });
        t.compare("cross_entropy_max.row_max", p.row_max, 1, [](int64_t, int64_t) { return 1; });
    }
}

void sum_row(Bench &t)
{
    for (const Size &s : kSizes) {
        t.say(text(s));
        Problem p = problem_of(t, s);
        fill_max(p, s);
        t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
            const plait_cross_entropy c = call_of(s, p, at);
            return k.cross_entropy_sum(ex, &c);
        });
        t.compare("cross_entropy_sum.row_sum", p.row_sum, static_cast<double>(s.cols), [&](int64_t r, int64_t) {
            double size = 0;
            for (int64_t c = 0; c < s.valid; c++)
                size += exp_size(p, r, c);
            return size;
        });
        t.compare("cross_entropy_sum.row_target", p.row_target, 1,
                  [&](int64_t r, int64_t) { return std::fabs(p.row_target.at(r, 0)); });
    }
}

void fill_sums(Problem &p, const Size &s)
{
    for (int64_t r = 0; r < s.rows; r++) {
        double sum = 0.5;
        for (int64_t c = 0; c < s.valid; c++)
            sum += std::exp(p.logits.at(r, c) - p.row_max.at(r, 0));
        p.row_sum.set(r, 0, sum);
        p.row_target.set(r, 0, -0.3 * static_cast<double>(r % 7));
    }
}

void loss_row(Bench &t)
{
    for (const Size &s : kSizes) {
        t.say(text(s));
        Problem p = problem_of(t, s);
        fill_max(p, s);
        fill_sums(p, s);
        Array &loss = t.values(1, 1, PLAIT_FP64);
        const double before = loss.at(0, 0);
        t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
            const plait_cross_entropy c = call_of(s, p, at);
            return k.cross_entropy_loss(ex, static_cast<double *>(at(loss)), &c);
        });
        double size = std::fabs(before);
        for (int64_t r = 0; r < s.rows; r++)
            if (p.targets[static_cast<size_t>(r)] >= 0)
                size += std::fabs(std::log(p.row_sum.at(r, 0))) + std::fabs(p.row_target.at(r, 0));
        t.compare(
            "cross_entropy_loss.loss", loss, static_cast<double>(s.rows), [&](int64_t, int64_t) { return size; },
            PLAIT_FP64);
    }
}

void grad_row(Bench &t)
{
    const double scale = 3;
    for (const Size &s : kSizes) {
        t.say(text(s));
        Problem p = problem_of(t, s);
        fill_max(p, s);
        fill_sums(p, s);
        std::vector<double> sizes; // before the gradient is written over the logits
        for (int64_t r = 0; r < s.rows; r++)
            for (int64_t c = 0; c < s.cols; c++)
                sizes.push_back(
                    scale * (exp_size(p, r, c) / p.row_sum.at(r, 0) + (p.targets[static_cast<size_t>(r)] == s.v0 + c)));
        t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
            const plait_cross_entropy c = call_of(s, p, at);
            return k.cross_entropy_grad(ex, &c, scale);
        });
        // The table under test has written elements of T into rows of A.
        const int64_t ld = s.cols * static_cast<int64_t>(plait_dtype_size(t.A) / plait_dtype_size(t.T));
        const double bound = bound_of("cross_entropy_grad.dlogits", t.T, t.A, 1);
        for (int64_t r = 0; r < s.rows; r++) {
            for (int64_t c = 0; c < s.cols; c++) {
                const double want = p.logits.at(r, c), got = load(p.logits.bytes(), t.T, r * ld + c);
                const bool exact = c >= s.valid || p.targets[static_cast<size_t>(r)] < 0;
                const double size = sizes[static_cast<size_t>(r * s.cols + c)];
                t.check("cross_entropy_grad.dlogits", r, c, got, want, exact ? 0 : bound * size + half_subnormal(t.T));
            }
        }
    }
}

} // namespace

void add_loss_rows(std::vector<Row> &rows)
{
    rows.push_back({"cross_entropy_max", PLAIT_OP_cross_entropy_max, max_row});
    rows.push_back({"cross_entropy_sum", PLAIT_OP_cross_entropy_sum, sum_row});
    rows.push_back({"cross_entropy_loss", PLAIT_OP_cross_entropy_loss, loss_row});
    rows.push_back({"cross_entropy_grad", PLAIT_OP_cross_entropy_grad, grad_row});
}

} // namespace conformance
