// One definition of the loss, and of the gradients of what two ranks share. Runs on 2 ranks; each case is a split run
// against one rank alone.
#include "tests/models/training_testing.h"

using namespace training;

// ---- unequal numbers of counted tokens ----

namespace
{

/* Two samples of 10 and 100 counted tokens. `only`: the other one counts nothing; -1: both. */
Samples unequal(int64_t only)
{
    return [only](int64_t s, int64_t t) {
        const bool counted = t < (s == 0 ? 10 : 100) && (only < 0 || s == only);
        const int32_t token = static_cast<int32_t>((31 * t + 57 * s + t * t % 7) % 256);
        const int32_t next = static_cast<int32_t>((31 * (t + 1) + 57 * s + (t + 1) * (t + 1) % 7) % 256);
        return Token{token, counted ? next : -1};
    };
}

const Overrides kUnequal = {"model.seq_length=128", "precision.dtype=fp64", "batch.global_batch_size=2",
                            "model.num_layers=2"};

plait_step_result unequal_step(Ranks who, const Overrides &overrides, int64_t only)
{
    Training run(who, "tiny.yaml", join(kUnequal, overrides));
    return run.step(unequal(only));
}

} // namespace

// The loss is the sum over all counted tokens divided by their number, not a mean of means, however the two samples are
// dealt out.
TEST(CountedTokens, LossIsOneSumOverTheGlobalBatch)
{
    const Overrides together = {"batch.micro_batch_size=2"}, apart = {"batch.micro_batch_size=1"};
    const plait_step_result first = unequal_step(Ranks::alone, together, 0),
                            second = unequal_step(Ranks::alone, together, 1);
    const plait_step_result both = unequal_step(Ranks::alone, together, -1);
    EXPECT_EQ(first.counted_tokens, 10);
    EXPECT_EQ(second.counted_tokens, 100);
    EXPECT_EQ(both.counted_tokens, 110);
    const double want = (10 * first.loss + 100 * second.loss) / 110;
    EXPECT_LE(relative(both.loss, want), 1e-12);
    EXPECT_GT(relative(both.loss, (first.loss + second.loss) / 2), 1e-4) << "the samples are too much alike";

    const struct {
        const char *name;
        plait_step_result got;
    } others[] = {
        {"two micro-batches", unequal_step(Ranks::alone, apart, -1)},
        {"two data ranks", unequal_step(Ranks::all, apart, -1)},
        {"two data ranks, stage 3", unequal_step(Ranks::all, join(apart, {"zero_optimization.stage=3"}), -1)},
        {"two tensor ranks", unequal_step(Ranks::all, join(together, {"parallelism.tp=2"}), -1)},
        {"two stages", unequal_step(Ranks::all, join(apart, {"parallelism.pp=2"}), -1)},
    };
    for (const auto &o : others) {
        EXPECT_LE(relative(o.got.loss, want), 1e-12) << o.name;
        EXPECT_LE(relative(o.got.grad_norm, both.grad_norm), 1e-10) << o.name;
        EXPECT_EQ(o.got.counted_tokens, 110) << o.name;
    }
}

// One data rank without a single counted token: it joins in with nothing.
TEST(CountedTokens, ARankMayHaveNone)
{
    const plait_step_result want = unequal_step(Ranks::alone, {"batch.micro_batch_size=1"}, 1);
    const plait_step_result got = unequal_step(Ranks::all, {"batch.micro_batch_size=1"}, 1);
    EXPECT_LE(relative(got.loss, want.loss), 1e-12);
    EXPECT_LE(relative(got.grad_norm, want.grad_norm), 1e-10);
}

TEST(CountedTokens, NoneAtAllIsAnError)
{
    Training run(Ranks::all, "tiny.yaml", {});
    EXPECT_THROW(run.step([](int64_t, int64_t) { return Token{0, -1}; }), std::runtime_error);
    EXPECT_NE(std::string(plait_error_text()).find("no token of the global batch is counted"), std::string::npos);
}

// ---- shared by two ranks ----

// Gradients of a replicated key/value head are summed over its ranks: 50 steps do not drift apart.
TEST(KeyValueHeads, OneHeadOnTwoRanksIsTheUnsplitModel)
{
    const Overrides one_head = {"model.num_query_groups=1"};
    const auto want = alone(one_head, 50);
    Training run(Ranks::all, "tiny.yaml", join(one_head, {"parallelism.tp=2"}));
    const auto got = run.steps(50);
    EXPECT_LE(relative(got[0].grad_norm, want[0].grad_norm), 5e-6);
    EXPECT_LE(relative(got[49].loss, want[49].loss), 1e-3);
    EXPECT_GT(check_replicas(run.training()), 0);
}

// ---- a tied parameter counts once ----

// A vocabulary of 2048 makes the token matrix dominate; both ends of the pipeline have a copy. With clip 0.01 a norm
// that is too large would show in every weight.
TEST(TiedEmbedding, CountsOnceInNormAndClip)
{
    const Overrides tied = {"model.tie_word_embeddings=true",
                            "model.num_layers=2",
                            "model.vocab_size=2048",
                            "optimizer.type=SGD",
                            "optimizer.lr=1",
                            "optimizer.clip_grad=0.01"};
    Training one(Ranks::alone, "tiny.yaml", tied);
    Training two(Ranks::all, "tiny.yaml", join(tied, {"parallelism.pp=2"}));
    expect_steps(two.steps(1), one.steps(1), 1e-5, 1e-4);
    const Tensors got = two.weights(), want = one.weights();
    ASSERT_EQ(got.size(), want.size());
    for (const auto &[name, values] : want)
        for (size_t i = 0; i < values.size(); i++)
            ASSERT_NEAR(got.at(name)[i], values[i], 1e-6) << name << " element " << i;
}
