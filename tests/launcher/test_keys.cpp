/* Every key of the configuration changes something that a user can see (metrics, bytes, traffic, log, weights), or is
 * refused. A key without a row here is a failure. */
#include "plait_test.h"

#include "core/config_impl.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace
{

/* What a change must be seen in; REFUSED: it ends with a usage error that names the key. */
enum Seen { LOSS, NORM, LR, SCALE, STEPS, EVALS, MEMORY, TRAFFIC, LOG, WEIGHTS, REFUSED };

struct Row {
    const char *key;
    Words change;    /* overrides */
    Seen seen;       /* in which it differs from the same run without them */
    Words base = {}; /* of both */
    int ranks = 0;   /* of both */
    Words says = {}; /* LOG: in the changed run's output; REFUSED: in the message */
};

const Words kRamp = {"train.train_iters=4"};
const Words kGpt = {"model.arch=gpt2", "model.num_query_groups=4"};
const Words kFp16 = {"precision.dtype=fp16"};
const Words kOverflow = {"precision.dtype=fp16", "precision.fp16.initial_scale_power=40",
                         "precision.fp16.hysteresis=1"};
const Words kPp2 = {"parallelism.pp=2"};
const Words kFull = {"recompute.granularity=full"};
const Words kSelective = {"recompute.granularity=selective"};
const Words kSgd = {"optimizer.type=SGD"};
const Words kZero3 = {"zero_optimization.stage=3"};
const Words kInvariant = {"numerics.reduction=invariant"};
const Words kSplit = {"data.split=80,20,0"};

std::vector<Row> rows(const std::string &other_text, const std::string &weights)
{
    return {
        {"model.arch", {"model.arch=gpt2"}, LOSS, {"model.num_query_groups=4"}},
        {"model.num_layers", {"model.num_layers=5"}, MEMORY},
        {"model.hidden_size", {"model.hidden_size=96"}, MEMORY},
        {"model.ffn_hidden_size", {"model.ffn_hidden_size=96"}, MEMORY},
        {"model.num_attention_heads", {"model.num_attention_heads=8"}, LOSS},
        {"model.num_query_groups", {"model.num_query_groups=4"}, MEMORY},
        {"model.kv_channels", {"model.kv_channels=32"}, MEMORY},
        {"model.seq_length", {"model.seq_length=16"}, LOSS},
        {"model.max_position_embeddings", {"model.max_position_embeddings=64"}, MEMORY, kGpt},
        {"model.vocab_size", {"model.vocab_size=300"}, MEMORY},
        {"model.make_vocab_size_divisible_by", {"model.make_vocab_size_divisible_by=128"}, MEMORY},
        {"model.padded_vocab_size", {"model.padded_vocab_size=384"}, REFUSED},
        {"model.tie_word_embeddings", {"model.tie_word_embeddings=true"}, MEMORY},
        {"model.normalization", {"model.normalization=LayerNorm"}, REFUSED},
        {"model.layernorm_epsilon", {"model.layernorm_epsilon=0.01"}, LOSS},
        {"model.position_embedding_type", {"model.position_embedding_type=learned_absolute"}, REFUSED},
        {"model.rotary_base", {"model.rotary_base=100"}, LOSS},
        {"model.swiglu", {"model.swiglu=false"}, REFUSED},
        {"model.hidden_dropout", {"model.hidden_dropout=0.1"}, LOSS},
        {"model.attention_dropout", {"model.attention_dropout=0.1"}, LOSS},
        {"model.init_method_std", {"model.init_method_std=0.1"}, LOSS},

        {"parallelism.tensor_model_parallel_size", {"parallelism.tp=2"}, TRAFFIC, {}, 2},
        {"parallelism.pipeline_model_parallel_size", {"parallelism.pp=2"}, TRAFFIC, {}, 2},
        {"parallelism.virtual_pipeline_model_parallel_size", {"parallelism.vpp=2"}, TRAFFIC, kPp2, 2},
        {"parallelism.data_parallel_size", {"parallelism.dp=3"}, REFUSED, {}, 2, {"3", "2"}},
        {"parallelism.data_parallel_algorithm", {"parallelism.data_parallel_algorithm=gather_to_root"}, TRAFFIC, {}, 2},
        {"parallelism.sequence_parallel", {"parallelism.sequence_parallel=true"}, TRAFFIC, {"parallelism.tp=2"}, 2},
        {"parallelism.order", {"parallelism.order=pp-dp-tp"}, MEMORY, {"parallelism.tp=2", "parallelism.pp=2"}, 4},
        {"parallelism.pipeline_schedule", {"parallelism.pipeline_schedule=gpipe"}, MEMORY, kPp2, 2},
        {"parallelism.pipeline_layout", {"parallelism.pipeline_layout=[3,1]"}, MEMORY, kPp2, 2},

        {"zero_optimization.stage", {"zero_optimization.stage=1"}, MEMORY, {}, 2},
        {"zero_optimization.max_unit_bytes", {"zero_optimization.max_unit_bytes=16KiB"}, TRAFFIC, kZero3, 2},
        {"zero_optimization.keep_full_gradients",
         {"zero_optimization.keep_full_gradients=true"},
         MEMORY,
         {"zero_optimization.stage=2"},
         2},
        {"zero_optimization.prefetch_units", {"zero_optimization.prefetch_units=0"}, MEMORY, kZero3, 2},

        {"batch.micro_batch_size", {"batch.micro_batch_size=4"}, MEMORY},
        {"batch.global_batch_size", {"batch.global_batch_size=4"}, LOSS},
        {"batch.gradient_accumulation_steps",
         {"batch.gradient_accumulation_steps=2"},
         LOSS,
         {"batch.global_batch_size=null"}},
        {"batch.rampup_batch_size", {"batch.rampup_batch_size=[4,4,8]"}, LOSS, kRamp},

        {"precision.dtype", {"precision.dtype=bf16"}, MEMORY},
        {"precision.communication_data_type", {"precision.communication_data_type=bf16"}, NORM, {}, 2},
        {"precision.allow_tf32", {"precision.allow_tf32=true", "device.backend=cpu"}, REFUSED}, /* test_cuda_training */
        {"precision.fp16.loss_scale", {"precision.fp16.loss_scale=1024"}, SCALE, kFp16},
        {"precision.fp16.initial_scale_power", {"precision.fp16.initial_scale_power=10"}, SCALE, kFp16},
        {"precision.fp16.loss_scale_window", {"precision.fp16.loss_scale_window=1"}, SCALE, kFp16},
        {"precision.fp16.hysteresis", {"precision.fp16.hysteresis=3"}, SCALE, kOverflow},
        {"precision.fp16.min_loss_scale", {"precision.fp16.min_loss_scale=1099511627776"}, SCALE, kOverflow},

        {"recompute.granularity", kFull, MEMORY},
        {"recompute.method", {"recompute.method=block"}, MEMORY, kFull + Words{"recompute.num_layers=2"}},
        {"recompute.num_layers", {"recompute.num_layers=4"}, MEMORY, kFull},
        {"recompute.modules", {"recompute.modules=[mlp_act,norms]"}, MEMORY, kSelective},

        {"optimizer.type", {"optimizer.type=SGD"}, MEMORY},
        {"optimizer.lr", {"optimizer.lr=0.01"}, LR},
        {"optimizer.min_lr", {"optimizer.min_lr=0.0005"}, LR, {"lr_scheduler.style=cosine"}},
        {"optimizer.betas", {"optimizer.betas=[0.5,0.95]"}, WEIGHTS},
        {"optimizer.eps", {"optimizer.eps=0.01"}, WEIGHTS},
        {"optimizer.momentum", {"optimizer.momentum=0.9"}, WEIGHTS, kSgd},
        {"optimizer.weight_decay", {"optimizer.weight_decay=0.5"}, WEIGHTS},
        {"optimizer.clip_grad", {"optimizer.clip_grad=0.01"}, WEIGHTS, kSgd},

        {"lr_scheduler.style", {"lr_scheduler.style=linear"}, LR},
        {"lr_scheduler.warmup_iters", {"lr_scheduler.warmup_iters=2"}, LR},
        {"lr_scheduler.decay_iters", {"lr_scheduler.decay_iters=50"}, LR, {"lr_scheduler.style=cosine"}},
        {"lr_scheduler.wsd_decay_iters", {"lr_scheduler.wsd_decay_iters=2"}, LR, {"lr_scheduler.style=WSD"}},

        {"train.train_iters", {"train.train_iters=4"}, STEPS},
        {"train.seed", {"train.seed=7"}, LOSS},
        {"train.log_interval", {"train.log_interval=2"}, LOG},
        {"train.eval_interval", {"train.eval_interval=1"}, EVALS, kSplit},

        {"data.data_path", {"data.data_path=" + other_text}, LOSS},
        {"data.split", {"data.split=50,50,0"}, LOSS},
        {"data.first_sample", {"data.first_sample=8"}, LOSS},

        {"checkpoint.save_weights",
         {"checkpoint.save_weights=" + weights + ".copy"},
         LOG,
         {},
         0,
         {"weights: " + weights + ".copy"}},
        {"checkpoint.load_weights", {"checkpoint.load_weights=" + weights}, LOSS},

        {"logging.metrics_file", {"logging.metrics_file=/nowhere/m.jsonl"}, REFUSED, {}, 0, {"/nowhere/m.jsonl"}},
        {"logging.log_throughput", {"logging.log_throughput=false"}, LOG},

        /* Legal ones need a build for GPUs, and are seen under its emulation: test_cuda_matrix. */
        {"device.backend", {"device.backend=cuda", "device.kernels=ref"}, REFUSED},
        {"comm.backend", {"comm.backend=nccl", "device.backend=cpu"}, REFUSED},
        {"device.kernels", {"device.kernels=ref"}, LOG, {}, 0, {"kernels ref"}},
        /* one of the two is not what auto takes */
        {"device.isa", {"device.isa=avx512"}, LOG, {"device.isa=avx2"}},
        {"device.threads", {"device.threads=2"}, LOG, {}, 0, {" 2 threads a rank"}},
        {"device.memory_limit", {"device.memory_limit=1MiB"}, REFUSED},
        {"device.workspace", {"device.workspace=16MiB"}, MEMORY},

        {"comm.chunk_bytes", {"comm.chunk_bytes=16KiB"}, MEMORY, {}, 2},
        /* A legal one is seen when a peer stalls: CliFailures.AStalledPeerEndsTheRun. */
        {"comm.distributed_timeout_minutes", {"comm.distributed_timeout_minutes=0"}, REFUSED},

        {"numerics.reduction", kInvariant, MEMORY},
        {"numerics.tensor_slices", {"numerics.tensor_slices=2"}, NORM, kInvariant},
        {"numerics.fingerprint", {"numerics.fingerprint=weights"}, LOG, {}, 0, {" steps, weights)"}},

        {"debug.tensor_hashes",
         {"debug.tensor_hashes=" + weights + ".hashes"},
         MEMORY,
         {"numerics.reduction=invariant"}},
    };
}

template <typename T> void print(std::ostream &to, const std::vector<T> &values)
{
    for (const T &v : values)
        to << v << " ";
}

/* A run as texts, one for each thing that a change may be seen in. */
std::map<Seen, std::string> seen_of(const Trained &r, const std::string &weights)
{
    std::map<Seen, std::ostringstream> all;
    const Metrics &m = r.metrics;
    for (auto &entry : {LOSS, NORM, LR})
        all[entry].precision(17);
    print(all[LOSS], m.losses());
    print(all[NORM], m.norms());
    print(all[LR], m.rates());
    all[STEPS] << m.steps.size();
    for (const StepLine &s : m.steps)
        all[SCALE] << s.loss_scale << (s.skipped ? " skipped " : " ");
    for (const EvalLine &e : m.evals)
        all[EVALS] << e.after_step << ":" << e.loss << " ";
    for (const MemoryRow &x : m.memory)
        all[MEMORY] << x.rank << "@" << x.d << x.p << x.t << x.tier << x.category << x.planned << "\n";
    for (const TrafficRow &x : m.traffic)
        all[TRAFFIC] << x.rank << x.group << x.op << x.calls << ":" << x.bytes << "\n";
    /* The log without what differs from run to run: digits, also those of the fingerprint. Kernels and threads stand in
     * a line of their own. */
    std::istringstream in(r.outcome.out);
    for (std::string line; std::getline(in, line);) {
        if (line.compare(0, 13, "fingerprint: ") == 0)
            line.erase(13, 16);
        bool is_precise = line.find("kernels") != std::string::npos || line.find("weights:") != std::string::npos;
        for (char c : line)
            all[LOG] << (is_precise || !isdigit(static_cast<unsigned char>(c)) ? std::string(1, c) : "");
        all[LOG] << "\n";
    }
    std::ifstream file(weights, std::ios::binary);
    all[WEIGHTS] << file.rdbuf();
    std::map<Seen, std::string> texts;
    for (const auto &entry : all)
        texts[entry.first] = entry.second.str();
    return texts;
}

const char *name_of(Seen s)
{
    static const char *const names[] = {"loss",   "norm",    "lr",  "scale",   "steps",  "evals",
                                        "memory", "traffic", "log", "weights", "refusal"};
    return names[s];
}

class Keys : public PlaitTest
{
  protected:
    std::map<Seen, std::string> observe(const Words &overrides, int ranks)
    {
        std::string key = std::to_string(ranks) + text_of(overrides);
        auto found = all_.find(key);
        if (found != all_.end())
            return found->second;
        std::string weights = path("seen.safetensors");
        std::filesystem::remove(weights);
        Words args = Words{"train.train_iters=3"} + overrides;
        if (text_of(args).find("save_weights") == std::string::npos)
            args.push_back("checkpoint.save_weights=" + weights);
        return all_[key] = seen_of(train(kTiny, args, ranks), weights);
    }
    void expect_refused(const Row &r, const std::string &what)
    {
        Outcome o = run(Words{"train", kTiny} + r.base + r.change, r.ranks);
        EXPECT_NE(o.code, 0) << what << "\n" << o;
        EXPECT_TRUE(o.code == 2 || o.code == 3 || o.code == 5) << what << "\n" << o;
        EXPECT_EQ(o.out.find("iteration"), std::string::npos) << what << "\n" << o;
        const char *last = std::strrchr(r.key, '.') + 1;
        EXPECT_NE(o.err.find(last), std::string::npos) << what << ": the key is not named\n" << o;
        for (const std::string &s : r.says)
            EXPECT_NE(o.err.find(s), std::string::npos) << what << ": no '" << s << "'\n" << o;
    }

  private:
    std::map<std::string, std::map<Seen, std::string>> all_;
};

} // namespace

TEST_F(Keys, EveryUsedKeyChangesWhatItsRowSays)
{
    std::string other = write("other.txt", [] {
        std::string text;
        for (int i = 0; i < 20000; i++)
            text += static_cast<char>('a' + i * i % 23);
        return text;
    }());
    std::string weights = path("weights.safetensors");
    train(kTiny, {"train.train_iters=2", "train.seed=99", "checkpoint.save_weights=" + weights});
    const std::vector<Row> table = rows(other, weights);
    int count;
    const plait_key *keys = plait_config_keys(&count);
    std::map<std::string, const plait_key *> left;
    for (int i = 0; i < count; i++)
        if (keys[i].role == PLAIT_KEY_USED || keys[i].role == PLAIT_KEY_DERIVED)
            left[keys[i].path] = &keys[i];
    for (const Row &r : table) {
        std::string what = std::string(r.key) + ": " + text_of(r.change) + ", base " + text_of(r.base);
        EXPECT_EQ(left.erase(r.key), 1u) << r.key << ": no such key, or a second row";
        if (r.seen == REFUSED) {
            expect_refused(r, what);
            continue;
        }
        if (std::string(r.key) == "device.isa") {
            Outcome wide = run(Words{"train", kTiny, "train.train_iters=1"} + r.change);
            if (wide.code != 0) { /* the processor has no AVX-512 */
                expect_refused(r, what);
                continue;
            }
        }
        std::map<Seen, std::string> base = observe(r.base, r.ranks), changed = observe(r.base + r.change, r.ranks);
        EXPECT_NE(changed[r.seen], base[r.seen]) << what << ": nothing is seen of it in " << name_of(r.seen);
        for (const std::string &s : r.says) {
            EXPECT_NE(changed[LOG].find(s), std::string::npos) << what << ": no '" << s << "' in\n" << changed[LOG];
            EXPECT_EQ(base[LOG].find(s), std::string::npos) << what << ": '" << s << "' without it, too";
        }
    }
    for (const auto &entry : left)
        ADD_FAILURE() << entry.first << " has no row in this test";
}

/* Keys without a feature behind them: their default is accepted, everything else refused with the table's sentence. */
TEST_F(Keys, EveryOtherKeyIsRefusedWithASentence)
{
    int count, refused = 0;
    const plait_key *keys = plait_config_keys(&count);
    /* All at once: every one of them must be in the list of errors. */
    Words args = {"config", kTiny}, neutral = {"config", kTiny};
    for (int i = 0; i < count; i++) {
        const plait_key &k = keys[i];
        if (k.role != PLAIT_KEY_NEUTRAL && k.role != PLAIT_KEY_REFUSED)
            continue;
        refused++;
        std::string value = k.type == PLAIT_KEY_BOOL   ? (std::strcmp(k.dflt, "true") == 0 ? "false" : "true")
                            : k.type == PLAIT_KEY_INT  ? "2"
                            : k.type == PLAIT_KEY_ENUM ? "something"
                                                       : "x";
        args.push_back(std::string(k.path) + "=" + value);
        if (k.role == PLAIT_KEY_NEUTRAL)
            neutral.push_back(std::string(k.path) + "=" + k.dflt);
    }
    ASSERT_GT(refused, 30);
    Outcome o = run(args);
    EXPECT_EQ(o.code, 2) << o;
    for (int i = 0; i < count; i++) {
        const plait_key &k = keys[i];
        if (k.role != PLAIT_KEY_NEUTRAL && k.role != PLAIT_KEY_REFUSED)
            continue;
        size_t at = o.err.find(k.path);
        ASSERT_NE(at, std::string::npos) << k.path << "\n" << o;
        std::string line = o.err.substr(at, o.err.find('\n', at) - at);
        if (k.type != PLAIT_KEY_ENUM) { /* an unknown word is answered with the words there are */
            EXPECT_NE(line.find(k.text), std::string::npos) << k.path << ": " << line;
        }
    }
    Outcome fine = run(neutral);
    EXPECT_EQ(fine.code, 0) << fine;
}
