// Pipeline schedules in a planned step of a whole model, against the papers' closed forms: how long stages are idle,
// and how many micro-batches they hold. GPipe: Huang et al. 2019; 1F1B: Narayanan et al. 2019; interleaved: Narayanan
// et al. 2021, section 2.2. p stages, m micro-batches, v chunks a stage.
//
//   schedule      idle / all time          in flight on stage i, in chunks
//   GPipe         (p - 1) / (m + p - 1)    m
//   1F1B          (p - 1) / (m + p - 1)    min(m, p - i)
//   interleaved   (p - 1) / (v m + p - 1)  min(v m, 2 (p - i - 1) + (v - 1) p + 1)
//
// The stages are made equal by a machine on which attention alone takes time: embedding, head, update and every message
// are done at once.
#include "planned_model.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace
{

class AttentionMachine
{
  public:
    explicit AttentionMachine(bool overlap)
    {
        m_.overlap = overlap;
        m_.node = {0, kAtOnce};
        add(PLAIT_OP_gemm, 3, kAtOnce);
        add(PLAIT_OP_attention_fwd, 2, 1e9);
        add(PLAIT_OP_attention_bwd, 2, 1e9);
        add(PLAIT_OPS, 1, kAtOnce);
    }
    ~AttentionMachine() { plait_machine_deinit(&m_); }
    AttentionMachine(const AttentionMachine &) = delete;
    AttentionMachine &operator=(const AttentionMachine &) = delete;
    const plait_machine *get() const { return &m_; }

  private:
    static constexpr double kAtOnce = 1e30; // of anything in a second
    void add(plait_op op, int axes, double rate)
    {
        double at[] = {1};
        plait_rate_table t = {};
        t.op = op;
        t.dtype = PLAIT_FP32;
        t.num_axes = axes;
        for (int i = 0; i < axes; i++) {
            t.num[i] = 1;
            t.at[i] = at;
        }
        t.rate = &rate;
        EXPECT_EQ(plait_machine_put_rates(&m_, &t), PLAIT_OK) << plait_error_text();
    }
    plait_machine m_ = {};
};

struct Case {
    const char *schedule;
    int p, v, m;
};

std::string text_of(const Case &c)
{
    return std::string(c.schedule) + ", " + std::to_string(c.p) + " stages of " + std::to_string(c.v) + " chunks, " +
           std::to_string(c.m) + " micro-batches";
}

Words overrides(const Case &c, const Words &more)
{
    return Words{"model.arch=gpt2",
                 set("model.num_layers", 2 * c.p * c.v),
                 "model.hidden_size=32",
                 "model.num_attention_heads=4",
                 "model.seq_length=64",
                 "model.vocab_size=512",
                 "batch.micro_batch_size=2",
                 set("batch.global_batch_size", 2 * c.m),
                 set("parallelism.pp", c.p),
                 set("parallelism.vpp", c.v),
                 std::string("parallelism.pipeline_schedule=") + c.schedule} +
           more;
}

std::vector<Case> cases()
{
    std::vector<Case> all;
    for (const int p : {2, 3, 4, 8})
        for (const int m : {p, 2 * p, 4 * p}) {
            all.push_back({"gpipe", p, 1, m});
            all.push_back({"1f1b", p, 1, m});
            all.push_back({"interleaved", p, 2, m});
            all.push_back({"interleaved", p, 4, m});
        }
    // Fewer micro-batches than stages, and no multiple of them.
    for (const int m : {1, 2, 3, 7}) {
        all.push_back({"gpipe", 4, 1, m});
        all.push_back({"1f1b", 4, 1, m});
    }
    return all;
}

// Also where backward is longer, because it runs the forward again.
const Words kRecompute[] = {{}, {"recompute.granularity=full"}};

TEST(PlanBubbles, AreTheClosedForm)
{
    for (const bool overlap : {true, false}) {
        const AttentionMachine machine(overlap);
        for (const Words &recompute : kRecompute)
            for (const Case &c : cases()) {
                SCOPED_TRACE(text_of(c) + (overlap ? ", overlap" : "") + (recompute.empty() ? "" : ", recomputed"));
                const PlannedModel model("", overrides(c, recompute), c.p, machine.get());
                ASSERT_TRUE(model.ok());
                ASSERT_TRUE(model.plan().predicted);
                const plait_prediction &t = model.plan().prediction;
                const double p = c.p, v = c.v, m = c.m;
                EXPECT_NEAR(plait_prediction_bubble(&t), (p - 1) / (v * m + p - 1), 1e-9);
                // Forward and backward of a micro-batch on a stage take 1 / m of what the stage computes.
                const double work = t.stages[0].compute;
                EXPECT_GT(work, 0);
                EXPECT_NEAR(t.step_seconds / work, 1 + (p - 1) / (v * m), 1e-9);
                for (int i = 0; i < c.p; i++) {
                    EXPECT_NEAR(t.stages[i].compute / work, 1, 1e-9);
                    double exposed = 0;
                    for (const double seconds : t.stages[i].exposed)
                        exposed += seconds;
                    EXPECT_NEAR((t.stages[i].compute + t.stages[i].idle + exposed) / t.step_seconds, 1, 1e-9);
                }
            }
    }
}

TEST(PlanBubbles, InFlight)
{
    for (const Case &c : cases()) {
        SCOPED_TRACE(text_of(c));
        const PlannedModel model("", overrides(c, {}), c.p);
        ASSERT_TRUE(model.ok());
        for (int i = 0; i < c.p; i++) {
            const int want = std::string(c.schedule) == "gpipe" ? c.m
                             : std::string(c.schedule) == "1f1b"
                                 ? std::min(c.m, c.p - i)
                                 : std::min(c.v * c.m, 2 * (c.p - i - 1) + (c.v - 1) * c.p + 1);
            EXPECT_EQ(model.stage(i).in_flight, want) << "stage " << i;
        }
    }
}

} // namespace
