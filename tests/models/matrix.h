/* tests/models/matrix.h: every way to train T1 (configs/tiny8.yaml), and a small part of it that has every pair.
 *
 * Legal topologies. T1 has 8 layers, 8 heads, 4 key/value heads. For tp x pp x dp = 2, 4, 8, each degree a power of
 * two, a choice counts where it makes a difference:
 *
 *   ZeRO 0, 1, 2, 3, gather_to_root   with dp > 1, else stage 0 alone
 *   gpipe, 1f1b, interleaved (v = 2)  with pp > 1, interleaved only while pp v <= 8 layers, so not with pp 8
 *   sequence parallel on, off         with tp > 1
 *
 *   2 ranks   tp 2: 2        pp 2: 3        dp 2: 5                                               10
 *   4 ranks   tp 4: 2        pp 4: 3        dp 4: 5
 *             tp 2 pp 2: 6   tp 2 dp 2: 10  pp 2 dp 2: 15                                         41
 *   8 ranks   tp 8: 2        pp 8: 2        dp 8: 5        tp 4 pp 2: 6   tp 4 dp 2: 10
 *             tp 2 pp 4: 6   pp 4 dp 2: 15  tp 2 dp 4: 10  pp 2 dp 4: 15  tp, pp, dp 2: 30       101
 *                                                                                       in all    152
 *
 * To each belong a model (GPT or Llama), tied or untied, dropout 0 or 0.1, and one way of recomputation:
 * none, some modules (four sets), whole layers uniformly (each, or groups of three) or a block of them.
 */
#ifndef PLAIT_TESTS_MATRIX_H
#define PLAIT_TESTS_MATRIX_H

#include "../words.h"

#include <set>
#include <string>
#include <vector>

using Overrides = Words;

enum class Zero { kStage0, kStage1, kStage2, kStage3, kGatherToRoot };
enum class Pipe { kNone, kGpipe, k1f1b, kInterleaved };
enum class Recompute {
    kNone,
    kCoreAttention,
    kMlpActivation,
    kNorms,
    kAllModules,
    kUniform,       // each layer
    kUniformGroups, // groups of three layers
    kBlock,         // the first two layers of a chunk
    kCount
};

struct Row {
    int tp, pp, dp;
    Zero zero;
    Pipe pipe;
    bool sequence_parallel;
    bool gpt, tied, dropout;
    Recompute recompute;

    int ranks() const { return tp * pp * dp; }
    int stage() const { return zero == Zero::kGatherToRoot ? 0 : (int)zero; }
    int chunks() const { return pipe == Pipe::kInterleaved ? 2 : 1; }
    std::string name() const;
    Overrides overrides() const;
    // The same model on one rank, without recomputation: one of kModels.
    int model() const { return gpt * 4 + tied * 2 + dropout; }
};
constexpr int kModels = 8;
Overrides model_overrides(int model);

// The 152, with the first model and no recomputation.
std::vector<Row> legal_rows();
// The same 152 with models and recomputation dealt out; rotation is 0 or 1.
std::vector<Row> rotated_rows(int rotation);

// "tp 2 with stage 3": every pair of values of two dimensions that a row has; and its exact way of recomputation with
// its model.
std::set<std::string> pairs_of(const Row &row);
// All pairs of all legal rows with all models and all recomputation.
std::set<std::string> all_pairs();
// Checks that the rows have all of them, and prints what they have, a line a value.
void expect_all_pairs(const std::vector<Row> &rows, bool print);
// Few rows that have all pairs: one after the other the row with most pairs that are still missing.
const std::vector<Row> &covering_rows();

#endif
