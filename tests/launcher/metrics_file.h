/* tests/launcher/metrics_file.h: reads logging.metrics_file and is strict about its format: exactly the fields that
 * are documented, of the right types, in the right order of lines.
 */
#ifndef PLAIT_TESTS_LAUNCHER_METRICS_FILE_H
#define PLAIT_TESTS_LAUNCHER_METRICS_FILE_H

#include <cstdint>
#include <string>
#include <vector>

struct StepLine {
    int64_t step;
    double loss; /* from loss_hex, to the bit; null and "nan" are NaN */
    double grad_norm, lr, loss_scale;
    int64_t skipped, counted_tokens;
    double tokens_per_second, step_seconds;
};
struct EvalLine {
    int64_t after_step;
    double loss;
};
struct MemoryRow {
    int64_t rank, d, p, t;
    std::string tier, category;
    int64_t planned, high_water;
};
struct TrafficRow {
    int64_t rank;
    std::string group, op;
    int64_t calls, bytes;
};
struct ResidentRow {
    int64_t rank, before, peak, others;
};
struct Metrics {
    std::vector<StepLine> steps;
    std::vector<EvalLine> evals;
    std::vector<MemoryRow> memory;
    std::vector<TrafficRow> traffic;
    std::vector<ResidentRow> resident;
    std::string fingerprint;
    bool ended = false; /* the last line, memory and communication, is there */

    std::vector<double> losses() const;
    std::vector<double> norms() const;
    std::vector<double> rates() const;
    /* Planned bytes of a rank on the device: of one category, or of all with "". */
    int64_t planned(int64_t rank, const std::string &category) const;
    /* Highest bytes handed out on a rank, in all tiers. */
    int64_t high_water(int64_t rank) const;
};

/* What does not have the format is a failure of the test. */
Metrics read_metrics(const std::string &path);

#endif
