/* What the numbers of a run say: loss scale and skipped steps, initial weights, bytes and calls of communication. */
#include "plait_test.h"

#include <algorithm>
#include <cmath>
#include <regex>

namespace
{

class CliNumbers : public PlaitTest
{
  protected:
    /* The weights after a run with these overrides. */
    Weights weights_after(const Words &overrides)
    {
        std::string file = path("w.safetensors");
        train(kTiny, overrides + Words{"checkpoint.save_weights=" + file});
        return read_weights(file);
    }
};

/* All matches of the pattern's first group, as numbers. */
std::vector<int> numbers(const std::string &text, const std::regex &pattern)
{
    std::vector<int> all;
    for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it)
        all.push_back(std::stoi((*it)[1]));
    return all;
}

bool ends_with(const std::string &text, const std::string &end)
{
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

} // namespace

/* ---- fp16: a skipped step is none for the schedule and for Adam ---- */

TEST_F(CliNumbers, SkippedStepsAreCountedAndAdvanceNothing)
{
    const int iterations = 30, warmup = 10;
    const double rate = 1e-3;
    const Words fp16 = {"precision.dtype=fp16",        "precision.fp16.initial_scale_power=32",
                        "precision.fp16.hysteresis=1", "lr_scheduler.warmup_iters=10",
                        "optimizer.lr=0.001",          "optimizer.weight_decay=0"};
    Trained r = train(kTiny, fp16 + Words{"train.train_iters=" + std::to_string(iterations)});
    ASSERT_EQ(r.metrics.steps.size(), static_cast<size_t>(iterations));
    double scale = std::ldexp(1.0, 32);
    int skipped = 0, updates = 0, skipped_first = 0;
    std::vector<int> skipped_so_far;
    for (const StepLine &s : r.metrics.steps) {
        const std::string what = "step " + std::to_string(s.step) + " after " + std::to_string(updates) + " updates";
        EXPECT_EQ(s.loss_scale, scale) << what;
        EXPECT_TRUE(std::isfinite(s.loss)) << what;
        EXPECT_EQ(std::isfinite(s.grad_norm), s.skipped == 0) << what << ": " << s.grad_norm;
        EXPECT_DOUBLE_EQ(s.lr, rate * std::min(updates + 1, warmup) / warmup) << what;
        s.skipped ? skipped++ : updates++;
        scale = s.skipped ? scale / 2 : scale;
        skipped_first = updates == 0 ? skipped : skipped_first;
        skipped_so_far.push_back(skipped);
    }
    ASSERT_GE(skipped_first, warmup) << "2^32 is far above what fp16 can hold";
    ASSERT_GT(updates, warmup);
    EXPECT_EQ(numbers(r.outcome.out, std::regex(R"(number of skipped iterations: +(\d+) \|)")), skipped_so_far);

    /* Adam's first update moves every weight whose gradient is not tiny by the rate of step 1. As update number
     * skipped_first + 1 it would be about half of that. */
    const double first_rate = rate / warmup;
    const Weights before = weights_after(fp16 + Words{"train.train_iters=" + std::to_string(skipped_first)});
    const Weights after = weights_after(fp16 + Words{"train.train_iters=" + std::to_string(skipped_first + 1)});
    expect_same_weights(before, weights_after({"optimizer.lr=0", "train.train_iters=1"}), "skipped steps alone");
    for (const auto &[name, t] : after) {
        std::vector<double> moved;
        for (size_t i = 0; i < t.values.size(); i++)
            moved.push_back(std::fabs(t.values[i] - before.at(name).values[i]));
        std::sort(moved.begin(), moved.end());
        EXPECT_LE(moved.back(), 1.01 * first_rate) << name;
        if (name != "model.embed_tokens.weight") { /* most rows of which were not used */
            EXPECT_GE(moved[moved.size() / 2], 0.98 * first_rate) << name << ": median";
        }
    }
}

/* ---- the start ---- */

/* Matrices are drawn from N(0, 0.02^2); GPT's two projections into the residual stream from N(0, 0.02^2 / (2 L)).
 * Norms begin with 1, biases with 0. */
TEST_F(CliNumbers, InitialWeightsHaveTheStatedDistribution)
{
    const Words start = {"optimizer.lr=0", "train.train_iters=1"};
    const double std_dev = 0.02, residual = std_dev / std::sqrt(2.0 * 4);
    for (bool gpt : {false, true}) {
        Weights all = weights_after(start + (gpt ? Words{"model.arch=gpt2", "model.num_query_groups=4"} : Words{}));
        int matrices = 0, residuals = 0, norms = 0, biases = 0;
        for (const auto &[name, t] : all) {
            const std::vector<double> &x = t.values;
            const bool is_bias = ends_with(name, ".bias");
            if (t.shape.size() == 1) {
                const double want = is_bias ? 0.0 : 1.0;
                EXPECT_TRUE(std::all_of(x.begin(), x.end(), [&](double v) { return v == want; })) << name;
                (is_bias ? biases : norms)++;
                continue;
            }
            double sum = 0, squares = 0, fourth = 0;
            for (double v : x) {
                sum += v;
                squares += v * v;
                fourth += v * v * v * v;
            }
            const double n = static_cast<double>(x.size()), variance = squares / n;
            const bool is_residual = gpt && ends_with(name, "c_proj.weight");
            const double want = is_residual ? residual : std_dev;
            /* five standard errors of each estimate */
            EXPECT_NEAR(sum / n, 0, 5 * want / std::sqrt(n)) << name;
            EXPECT_NEAR(std::sqrt(variance), want, 5 * want / std::sqrt(2 * n)) << name;
            EXPECT_NEAR(fourth / n / (variance * variance), 3, 5 * std::sqrt(24 / n)) << name << ": not normal";
            (is_residual ? residuals : matrices)++;
        }
        EXPECT_EQ(residuals, gpt ? 2 * 4 : 0);
        EXPECT_EQ(matrices, gpt ? 2 * 4 + 3 : 7 * 4 + 2)
            << "and the tables of tokens, of positions in GPT, and the head";
        EXPECT_EQ(norms, 2 * 4 + 1);
        EXPECT_EQ(biases, gpt ? 6 * 4 + 1 : 0) << "four of each layer's matrices and two of its norms, and the last";
    }
}

/* ---- communication ---- */

/* Two of each degree, bf16 (T = 2 bytes, gradients A = 4), ZeRO 1. M = 2 micro-batches of X = 64 rows x 64 x T bytes.
 */
TEST_F(CliNumbers, CommunicationIsWhatTheModelSays)
{
    const int64_t T = 2, A = 4, M = 2, rows = 2 * 32, C = 64, X = rows * C * T;
    const int64_t words = 129 * C; /* half of 258 rows */
    const int64_t layer = C * 32 + 2 * C * 16 + 32 * C + 3 * C * 64 + 2 * C;
    Metrics m = train(kTiny,
                      {"parallelism.tp=2", "parallelism.pp=2", "parallelism.dp=2", "zero_optimization.stage=1",
                       "precision.dtype=bf16", "train.train_iters=2"},
                      8)
                    .metrics;
    std::map<std::string, std::pair<int64_t, int64_t>> got, want; /* "rank group op": calls, bytes */
    for (const TrafficRow &r : m.traffic)
        got[std::to_string(r.rank) + " " + r.group + " " + r.op] = {r.calls, r.bytes};
    EXPECT_EQ(got.size(), m.traffic.size()) << "a row twice";
    for (int rank = 0; rank < 8; rank++) {
        const bool last = rank >= 4; /* stage */
        const int64_t units = last ? 4 : 3, n = words + 2 * layer + (last ? C : 0);
        auto row = [&](const char *what) -> auto &
        {
            return want[std::to_string(rank) + " " + what];
        };
        /* Loss, norm and found-inf; counted tokens. */
        row("world all_reduce") = {1, 3 * 8};
        row("data all_reduce") = {1, 8};
        /* Each unit once: layers, embedding or head, the last norm. */
        row("data reduce_scatter") = {units, n * A};
        row("data all_gather") = {units, n * T};
        /* Two layers, forward and backward twice each, and embedding or head; the loss: maximum, then sum and
         * target's logit of each row. */
        row("tensor all_reduce") = {M * (2 * 4 + 1 + (last ? 2 : 0)),
                                    M * (2 * 4 + 1) * X + (last ? M * 3 * rows * A : 0)};
        row("pipeline send") = {M, M * X};
        row("pipeline recv") = {M, M * X};
    }
    EXPECT_EQ(got, want);
}
