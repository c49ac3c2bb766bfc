/* debug.tensor_hashes: the same file on every grid, and plait diff names what differs first. */
#include "plait_test.h"

#include <cmath>
#include <set>
#include <sstream>

namespace
{

const Words kTwoSteps = {"train.train_iters=2", "numerics.reduction=invariant"};
const Words kGpt = {"model.arch=gpt2",          "model.num_query_groups=4",    "precision.dtype=bf16",
                    "model.hidden_dropout=0.1", "model.attention_dropout=0.1", "model.tie_word_embeddings=true",
                    "batch.micro_batch_size=1"};
const Words kFp16 = {"precision.dtype=fp16", "precision.fp16.initial_scale_power=24"}; /* overflows at first */

struct Grid {
    int ranks;
    Words overrides;
};
const Grid kGrids[] = {
    {0, {"recompute.granularity=selective", "device.threads=2"}},
    {2, {"parallelism.tp=2", "parallelism.sequence_parallel=true"}},
    {2, {"parallelism.pp=2", "parallelism.vpp=2", "recompute.granularity=full"}},
    {2, {"zero_optimization.stage=3", "recompute.granularity=full", "recompute.method=block"}},
    {4, {"parallelism.tp=4", "zero_optimization.stage=1"}},
    {8,
     {"parallelism.tp=2", "parallelism.pp=2", "parallelism.sequence_parallel=true", "zero_optimization.stage=2",
      "parallelism.order=pp-dp-tp"}},
};

std::vector<std::string> lines_of(const std::string &text)
{
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string l; std::getline(in, l);)
        lines.push_back(l);
    return lines;
}

/* Column i of a line. */
std::string column(const std::string &line, int i)
{
    std::istringstream in(line);
    std::string field;
    for (int k = 0; k <= i; k++)
        std::getline(in, field, '\t');
    return field;
}

class CliHashes : public PlaitTest
{
  protected:
    /* NAME.tsv of a run, which ends with `code`. */
    Outcome hashed(const std::string &name, const Words &overrides, int ranks = 0, int code = 0)
    {
        Outcome o = run(Words{"train", kTiny, "debug.tensor_hashes=" + path(name + ".tsv")} + kTwoSteps + overrides,
                        ranks, 120);
        EXPECT_EQ(o.code, code) << text_of(overrides) << "\n" << o;
        return o;
    }
    Outcome diff(const std::string &a, const std::string &b) { return run({"diff", a + ".tsv", b + ".tsv"}); }
    /* The lines of records, without rank and place. */
    std::vector<std::string> records(const std::string &name) const
    {
        std::vector<std::string> all;
        for (const std::string &l : lines_of(read(name + ".tsv")))
            if (l[0] != '#')
                all.push_back(l.substr(0, l.find('\t', l.find(column(l, 6)))));
        return all;
    }
    void expect_first(const std::string &a, const std::string &b, const Words &says)
    {
        Outcome o = diff(a, b);
        EXPECT_EQ(o.code, 8) << o;
        for (const std::string &s : says)
            EXPECT_NE(o.out.find(s), std::string::npos) << "no '" << s << "'\n" << o;
    }
};

} // namespace

TEST_F(CliHashes, AreTheSameOnEveryGrid)
{
    struct {
        const char *name;
        Words overrides;
        size_t records;
    } models[] = {
        /* (micro-batches x (2 x results x slices + loss) + 2 x tensors) x steps */
        {"llama", {}, (4 * (2 * (4 * 11 + 3) * 4 + 1) + 2 * 39) * 2},
        {"gpt2", kGpt, (8 * (2 * (4 * 10 + 3) * 4 + 1) + 2 * 52) * 2},
        {"fp16", kFp16, (4 * (2 * (4 * 11 + 3) * 4 + 1) + 2 * 39) * 2},
    };
    for (const auto &m : models) {
        hashed("one", m.overrides);
        const std::vector<std::string> want = records("one");
        EXPECT_EQ(want.size(), m.records + 1) << m.name << ": a line has the columns' names";
        for (const Grid &g : kGrids) {
            hashed("other", m.overrides + g.overrides, g.ranks);
            EXPECT_EQ(records("other"), want) << m.name << " " << text_of(g.overrides);
            Outcome o = diff("one", "other");
            EXPECT_EQ(o.code, 0) << o;
            EXPECT_EQ(o.out, "equal to the last bit: 2 steps, " + std::to_string(m.records) + " records\n");
        }
    }
}

/* Every rank computes something, and writes down where it is. */
TEST_F(CliHashes, NameTheRankThatComputed)
{
    hashed("all", {"parallelism.tp=2", "parallelism.pp=2"}, 8);
    const std::string text = read("all.tsv");
    EXPECT_NE(text.find("\n# ranks=8 tensor=2 pipeline=2 data=2 order=tp-cp-ep-dp-pp\n"), std::string::npos);
    std::set<std::string> seen;
    for (const std::string &l : lines_of(text)) {
        if (l[0] == '#' || column(l, 1) == "-" || column(l, 0) == "step")
            continue;
        /* two micro-batches, two layers and two slices each */
        const std::string micro = column(l, 1), layer = column(l, 2), slice = column(l, 5), place = column(l, 8);
        seen.insert(column(l, 7) + " " + place);
        EXPECT_EQ(place[1], micro < "2" ? '0' : '1') << l;
        if (layer != "embedding" && layer != "head") {
            EXPECT_EQ(place[4], layer < "2" ? '0' : '1') << l;
        }
        if (slice != "-") {
            EXPECT_EQ(place[7], slice < "2" ? '0' : '1') << l;
        }
    }
    EXPECT_EQ(seen, (std::set<std::string>{"0 d0 p0 t0", "1 d0 p0 t1", "2 d1 p0 t0", "3 d1 p0 t1", "4 d0 p1 t0",
                                           "5 d0 p1 t1", "6 d1 p1 t0", "7 d1 p1 t1"}));
}

TEST_F(CliHashes, TheFirstDifferenceIsNamedAcrossGrids)
{
    ASSERT_EQ(
        run({"train", kTiny, "train.train_iters=1", "optimizer.lr=0", "checkpoint.save_weights=" + path("w")}).code, 0);
    hashed("a", {"checkpoint.load_weights=" + path("w")});
    const Words grid = {"parallelism.tp=2", "parallelism.pp=2", "parallelism.sequence_parallel=true"};
    struct {
        const char *name, *tensor;
        size_t element;
        Words says;
    } weights[] = {
        /* [128, 64] of the second layer, its last row: the last slice alone */
        {"up",
         "model.layers.2.mlp.up_proj.weight",
         64 * 127 + 13,
         {"first difference: step 1, micro-batch 0, layer 2, up forward, slice 3\n", ", rank 0 (d0 p0 t0)\n",
          ", rank 5 (d0 p1 t1)\n"}},
        /* what is added up differs everywhere */
        {"down",
         "model.layers.1.mlp.down_proj.weight",
         0,
         {"first difference: step 1, micro-batch 0, layer 1, down forward, slice 0\n"}},
        {"norm",
         "model.norm.weight",
         5,
         {"first difference: step 1, micro-batch 0, final_layernorm forward, slice 0\n"}},
    };
    for (const auto &w : weights) {
        edit_weights(path("w"), path("w2"), [&](const std::string &name, std::vector<double> &values) {
            if (name == w.tensor)
                values[w.element] += 0.5;
        });
        hashed(w.name, grid + Words{"checkpoint.load_weights=" + path("w2")}, 8);
        expect_first("a", w.name, w.says);
    }

    struct {
        const char *name;
        Words overrides, says;
    } runs[] = {
        {"seed", {"train.seed=7"}, {"first difference: step 1, micro-batch 0, embedding forward, slice 0\n"}},
        {"lr",
         {"optimizer.lr=0.002", "checkpoint.load_weights=" + path("w")},
         {"first difference: step 1, weight of lm_head.weight\n"}},
        /* the sum of gradients is another, and so is what each token gives to it */
        {"batch",
         {"batch.global_batch_size=4", "checkpoint.load_weights=" + path("w")},
         {"first difference: step 1, micro-batch 0, logits backward, slice 0\n",
          "records, from step 1, micro-batch 2, embedding forward, slice 0 on\n"}},
    };
    for (const auto &r : runs) {
        hashed(r.name, r.overrides);
        expect_first("a", r.name, r.says);
    }
}

/* The numbers break in the first step: what led there is in the file. */
TEST_F(CliHashes, AreWrittenOfAStepThatFails)
{
    ASSERT_EQ(run({"train", kTiny, "train.train_iters=1", "checkpoint.save_weights=" + path("w")}).code, 0);
    edit_weights(path("w"), path("w2"), [&](const std::string &name, std::vector<double> &values) {
        if (name == "model.layers.2.mlp.up_proj.weight")
            values[0] = std::nan("");
    });
    hashed("a", {"checkpoint.load_weights=" + path("w")}, 2);
    hashed("b", {"checkpoint.load_weights=" + path("w2")}, 2, 4);
    expect_first("a", "b",
                 {"first difference: step 1, micro-batch 0, layer 2, up forward, slice 0\n",
                  "b.tsv: the last line is missing: the run did not come to its end"});
}

TEST_F(CliHashes, OtherModelsAndKindsAreRefused)
{
    hashed("a", {"logging.metrics_file=" + path("m.jsonl")});
    hashed("other", {"model.num_layers=3"});
    Outcome o = diff("a", "other");
    EXPECT_EQ(o.code, 2) << o;
    EXPECT_NE(o.err.find("a.tsv has model.num_layers=4, other.tsv has model.num_layers=3"), std::string::npos) << o;
    o = run({"diff", "a.tsv", "m.jsonl"});
    EXPECT_EQ(o.code, 2) << o;
    EXPECT_NE(o.err.find("a.tsv is a file of tensor hashes, m.jsonl is a metrics file"), std::string::npos) << o;
}

TEST_F(CliHashes, WhatCannotBeRecordedIsRefusedBeforeTheFirstStep)
{
    Outcome o = run({"train", kTiny, "debug.tensor_hashes=h.tsv"});
    EXPECT_EQ(o.code, 2) << o;
    EXPECT_NE(o.err.find("debug.tensor_hashes needs numerics.reduction invariant"), std::string::npos) << o;
    EXPECT_FALSE(exists("h.tsv"));
    o = run({"train", kTiny, "numerics.reduction=invariant", "debug.tensor_hashes=/nowhere/h.tsv"});
    EXPECT_EQ(o.code, 5) << o;
    EXPECT_NE(o.err.find("debug.tensor_hashes /nowhere/h.tsv: No such file"), std::string::npos) << o;
    o = run({"train", kTiny, "numerics.reduction=invariant", "debug.tensor_hashes=/dev/full"}, 2);
    EXPECT_EQ(o.code, 5) << o;
    EXPECT_NE(o.err.find("debug.tensor_hashes /dev/full: No space left"), std::string::npos) << o;
    EXPECT_EQ(o.out, "") << o;
}
