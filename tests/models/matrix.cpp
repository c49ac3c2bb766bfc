#include "matrix.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <map>

namespace
{

const char *const kZeroNames[] = {"stage 0", "stage 1", "stage 2", "stage 3", "gather_to_root"};
const char *const kPipeNames[] = {"no pipeline", "gpipe", "1f1b", "interleaved"};
const char *const kRecomputeNames[] = {"all kept",        "again core_attn", "again mlp_act", "again norms",
                                       "again 3 modules", "again each",      "again groups",  "again block"};
// Recomputation as a dimension of pairs has four values; which modules and groups of which size meet both models.
const char *const kRecomputeKinds[] = {"recompute none", "selective", "selective", "selective",
                                       "selective",      "uniform",   "uniform",   "block"};
const Overrides kRecomputeOverrides[] = {
    {},
    {"recompute.granularity=selective", "recompute.modules=[core_attn]"},
    {"recompute.granularity=selective", "recompute.modules=[mlp_act]"},
    {"recompute.granularity=selective", "recompute.modules=[norms]"},
    {"recompute.granularity=selective", "recompute.modules=[core_attn, mlp_act, norms]"},
    {"recompute.granularity=full", "recompute.method=uniform", "recompute.num_layers=1"},
    {"recompute.granularity=full", "recompute.method=uniform", "recompute.num_layers=3"},
    {"recompute.granularity=full", "recompute.method=block", "recompute.num_layers=2"},
};

// One value of each dimension.
std::vector<std::string> values_of(const Row &r)
{
    return {"tp " + std::to_string(r.tp),     "pp " + std::to_string(r.pp), "dp " + std::to_string(r.dp),
            kZeroNames[(int)r.zero],          kPipeNames[(int)r.pipe],      r.sequence_parallel ? "sp" : "no sp",
            r.gpt ? "gpt2" : "llama",         r.tied ? "tied" : "untied",   r.dropout ? "dropout" : "no dropout",
            kRecomputeKinds[(int)r.recompute]};
}

void set_model(Row *r, int model)
{
    r->gpt = model & 4;
    r->tied = model & 2;
    r->dropout = model & 1;
}

// Every legal row with every model and every recomputation.
std::vector<Row> product()
{
    std::vector<Row> all;
    for (Row r : legal_rows())
        for (int model = 0; model < kModels; model++)
            for (int recompute = 0; recompute < (int)Recompute::kCount; recompute++) {
                set_model(&r, model);
                r.recompute = (Recompute)recompute;
                all.push_back(r);
            }
    return all;
}

} // namespace

std::string Row::name() const
{
    std::string text;
    for (const std::string &v : values_of(*this))
        text += v + ", ";
    return text + kRecomputeNames[(int)recompute];
}

Overrides model_overrides(int model)
{
    Row r = {};
    set_model(&r, model);
    Overrides o = {r.gpt ? "model.arch=gpt2" : "model.arch=llama",
                   r.gpt ? "model.num_query_groups=8" : "model.num_query_groups=4",
                   r.tied ? "model.tie_word_embeddings=true" : "model.tie_word_embeddings=false"};
    if (r.dropout)
        o = o + Overrides{"model.hidden_dropout=0.1", "model.attention_dropout=0.1"};
    return o;
}

Overrides Row::overrides() const
{
    Overrides o = {"parallelism.tp=" + std::to_string(tp), "parallelism.pp=" + std::to_string(pp),
                   "parallelism.dp=" + std::to_string(dp), "zero_optimization.stage=" + std::to_string(stage())};
    if (zero == Zero::kGatherToRoot)
        o.push_back("parallelism.data_parallel_algorithm=gather_to_root");
    if (pipe == Pipe::kInterleaved)
        o.push_back("parallelism.vpp=2");
    else if (pipe != Pipe::kNone)
        o.push_back(std::string("parallelism.pipeline_schedule=") + kPipeNames[(int)pipe]);
    if (sequence_parallel)
        o.push_back("parallelism.sequence_parallel=true");
    return o + model_overrides(model()) + kRecomputeOverrides[(int)recompute];
}

std::vector<Row> legal_rows()
{
    std::vector<Row> rows;
    for (int ranks = 2; ranks <= 8; ranks *= 2)
        for (int tp = 1; tp <= ranks; tp *= 2)
            for (int pp = 1; tp * pp <= ranks; pp *= 2)
                for (int zero = 0; zero < 5; zero++)
                    for (int pipe = 0; pipe < 4; pipe++)
                        for (int sp = 0; sp < 2; sp++) {
                            Row r = {tp,    pp,    ranks / (tp * pp), (Zero)zero, (Pipe)pipe, sp == 1, false,
                                     false, false, Recompute::kNone};
                            const bool legal = (zero == 0 || r.dp > 1) && (pipe == 0) == (pp == 1) &&
                                               pp * r.chunks() <= 8 && (sp == 0 || tp > 1);
                            if (legal)
                                rows.push_back(r);
                        }
    return rows;
}

std::vector<Row> rotated_rows(int rotation)
{
    std::vector<Row> rows = legal_rows();
    for (size_t i = 0; i < rows.size(); i++) {
        // Shifts that leave no pair out.
        const int round = (int)i / 8;
        set_model(&rows[i], ((int)i + rotation) % kModels);
        rows[i].recompute = (Recompute)(((int)i + round + 6 * rotation) % (int)Recompute::kCount);
    }
    return rows;
}

std::set<std::string> pairs_of(const Row &row)
{
    std::set<std::string> pairs;
    const std::vector<std::string> v = values_of(row);
    for (size_t i = 0; i < v.size(); i++)
        for (size_t k = i + 1; k < v.size(); k++)
            pairs.insert(v[i] + " with " + v[k]);
    pairs.insert(std::string(kRecomputeNames[(int)row.recompute]) + (row.gpt ? " with gpt2" : " with llama"));
    return pairs;
}

std::set<std::string> all_pairs()
{
    std::set<std::string> pairs;
    for (const Row &r : product())
        pairs.merge(pairs_of(r));
    return pairs;
}

void expect_all_pairs(const std::vector<Row> &rows, bool print)
{
    const std::set<std::string> wanted = all_pairs();
    std::set<std::string> covered;
    for (const Row &r : rows)
        covered.merge(pairs_of(r));
    EXPECT_GE(wanted.size(), 400u);
    for (const std::string &p : wanted)
        EXPECT_TRUE(covered.count(p)) << "no row has " << p;
    if (!print)
        return;
    std::string last;
    for (const std::string &p : covered) { // sorted: one line for all pairs of a value
        const size_t with = p.find(" with ");
        const std::string value = p.substr(0, with);
        std::printf("%s%s", value == last ? ", " : ((last.empty() ? "" : "\n") + value + " with ").c_str(),
                    p.c_str() + with + 6);
        last = value;
    }
    std::printf("\n%zu rows have all of %zu pairs\n", rows.size(), covered.size());
}

namespace
{

std::vector<Row> find_covering_rows()
{
    // Pairs as numbers: the search asks for them some hundred thousand times.
    const std::vector<Row> candidates = product();
    std::map<std::string, int> number;
    std::vector<std::vector<int>> pairs;
    for (const Row &r : candidates) {
        pairs.emplace_back();
        for (const std::string &p : pairs_of(r))
            pairs.back().push_back(number.emplace(p, (int)number.size()).first->second);
    }
    std::vector<bool> missing(number.size(), true);
    std::vector<Row> chosen;
    int of_ranks[9] = {};
    for (size_t left = number.size(); left > 0;) {
        size_t best = 0, best_new = 0;
        for (size_t k = 0; k < candidates.size(); k++) {
            // Among equals: the number of ranks that is rarer so far, then in a mixed order, another one each time.
            const size_t i = (4099 * k + 389 * chosen.size()) % candidates.size();
            size_t fresh = 0;
            for (int p : pairs[i])
                fresh += missing[(size_t)p];
            const bool rarer = of_ranks[candidates[i].ranks()] < of_ranks[candidates[best].ranks()];
            if (fresh > best_new || (fresh == best_new && rarer)) {
                best = i;
                best_new = fresh;
            }
        }
        for (int p : pairs[best])
            missing[(size_t)p] = false;
        left -= best_new;
        chosen.push_back(candidates[best]);
        of_ranks[candidates[best].ranks()]++;
    }
    return chosen;
}

} // namespace

const std::vector<Row> &covering_rows()
{
    static const std::vector<Row> rows = find_covering_rows();
    return rows;
}
