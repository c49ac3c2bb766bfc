/* What depends on the number of ranks, and contradictions between keys. */
#include "config_test.h"

namespace
{
/* Overrides separated by spaces. */
std::vector<std::string> split(const std::string &text)
{
    std::vector<std::string> out;
    for (size_t at = 0; at < text.size();) {
        size_t end = std::min(text.find(' ', at), text.size());
        out.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return out;
}

const std::string kSmall = "model:\n  arch: llama\n  num_layers: 4\n  hidden_size: 64\n  num_attention_heads: 4\n"
                           "  num_query_groups: 2\n  ffn_hidden_size: 128\n  seq_length: 32\n";
} // namespace

struct Legal {
    const char *name;
    int world;
    std::string overrides;
    std::string key, want;
};
class ConfigLegal : public testing::TestWithParam<Legal>
{
};

TEST_P(ConfigLegal, Resolves)
{
    const Legal &c = GetParam();
    Loaded l(kSmall, split(c.overrides));
    ASSERT_EQ(l.status, PLAIT_OK) << l.error;
    ASSERT_EQ(l.resolve(c.world), PLAIT_OK) << l.error;
    EXPECT_EQ(l.value(c.key), c.want);
    const std::string once = l.dump();
    ASSERT_EQ(l.resolve(c.world), PLAIT_OK) << "a second time: " << l.error;
    EXPECT_EQ(l.dump(), once);
}

const Legal kLegal[] = {
    {"dp_from_ranks", 8, "topology.tp=2 topology.pp=2", "parallelism.data_parallel_size", "2"},
    {"dp_given", 4, "topology.tp=2 topology.dp=2", "parallelism.data_parallel_size", "2"},
    {"accumulation_from_the_others", 4,
     "topology.tp=2 topology.dp=2 batch.global_batch_size=16 batch.micro_batch_size=2",
     "batch.gradient_accumulation_steps", "4"},
    {"global_from_the_others", 4, "topology.tp=2 batch.gradient_accumulation_steps=3 batch.micro_batch_size=2",
     "batch.global_batch_size", "12"},
    {"micro_from_the_others", 4, "batch.gradient_accumulation_steps=2 batch.global_batch_size=24",
     "batch.micro_batch_size", "3"},
    {"global_alone", 4, "batch.global_batch_size=24", "batch.gradient_accumulation_steps", "6"},
    {"micro_alone", 4, "batch.micro_batch_size=3", "batch.global_batch_size", "12"},
    {"not_checked_against_the_world", 4,
     "topology.tp=2 topology.dp=2 batch.global_batch_size=8 batch.micro_batch_size=4",
     "batch.gradient_accumulation_steps", "1"},
    {"rampup", 2, "batch.micro_batch_size=2 batch.global_batch_size=32 batch.rampup_batch_size=[8,4,1000]",
     "batch.rampup_batch_size", "[8, 4, 1000]"},
    {"kv_heads_replicated", 4, "topology.tp=4 model.num_attention_heads=8", "model.num_query_groups", "2"},
    {"tp_8_kv_4", 8, "topology.tp=8 model.num_attention_heads=8 model.num_query_groups=4", "model.num_query_groups",
     "4"},
    {"one_kv_head", 2, "topology.tp=2 model.num_query_groups=1", "model.num_query_groups", "1"},
    {"vocab_padded_to_tp", 2, "topology.tp=2", "model.padded_vocab_size", "258"},
    {"vocab_not_padded", 1, "train.seed=1", "model.padded_vocab_size", "257"},
    {"vocab_padded_to_both", 8,
     "topology.tp=8 model.num_attention_heads=8 model.vocab_size=50257 "
     "model.make_vocab_size_divisible_by=12",
     "model.padded_vocab_size", "50280"},
    {"vocab_padded_to_128", 2, "topology.tp=2 model.vocab_size=50257 model.make_vocab_size_divisible_by=128",
     "model.padded_vocab_size", "50304"},
    {"sequence_parallel", 2, "topology.tp=2 topology.sequence_parallel=true", "parallelism.sequence_parallel", "true"},
    {"sequence_parallel_on_one_rank", 1, "topology.sequence_parallel=true model.seq_length=31",
     "parallelism.sequence_parallel", "true"},
    {"schedule_of_one_chunk", 2, "topology.pp=2", "parallelism.pipeline_schedule", "1f1b"},
    {"schedule_of_two_chunks", 2, "topology.pp=2 topology.vpp=2", "parallelism.pipeline_schedule", "interleaved"},
    {"schedule_auto_is_a_word", 2, "topology.pp=2 topology.vpp=2 topology.pipeline_schedule=auto",
     "parallelism.pipeline_schedule", "interleaved"},
    {"gpipe", 2, "topology.pp=2 topology.pipeline_schedule=gpipe", "parallelism.pipeline_schedule", "gpipe"},
    {"layout", 2, "topology.pp=2 topology.pipeline_layout=[3,1]", "parallelism.pipeline_layout", "[3, 1]"},
    {"layout_with_empty_stage", 2, "topology.pp=2 topology.pipeline_layout=[4,0]", "parallelism.pipeline_layout",
     "[4, 0]"},
    {"layout_of_chunks", 2, "topology.pp=2 topology.vpp=2 topology.pipeline_layout=[1,2,1,0]",
     "parallelism.pipeline_layout", "[1, 2, 1, 0]"},
    {"more_stages_than_layers", 4, "topology.pp=4 model.num_layers=2", "parallelism.pipeline_layout", "null"},
    {"uneven_layers", 2, "topology.pp=2 model.num_layers=5", "model.num_layers", "5"},
    {"ffn_of_llama", 1, "model.hidden_size=4096 model.ffn_hidden_size=auto", "model.ffn_hidden_size", "11008"},
    {"ffn_of_gpt2", 1, "model.arch=gpt2 model.num_query_groups=null model.ffn_hidden_size=null",
     "model.ffn_hidden_size", "256"},
    {"head_size_derived", 1, "train.seed=1", "model.kv_channels", "16"},
    {"head_size_given", 1, "model.kv_channels=24 model.num_attention_heads=6", "model.kv_channels", "24"},
    {"positions_default", 1, "train.seed=1", "model.max_position_embeddings", "32"},
    {"llama_is_untied", 1, "train.seed=1", "model.tie_word_embeddings", "false"},
    {"gpt2_is_tied", 1, "model.arch=gpt2 model.num_query_groups=4", "model.tie_word_embeddings", "true"},
    {"gpt2_untied", 1, "model.arch=gpt2 model.num_query_groups=4 model.untie_embeddings_and_output_weights=true",
     "model.tie_word_embeddings", "false"},
    {"decay_is_the_run", 1, "train.train_iters=77", "lr_scheduler.decay_iters", "77"},
    {"warmup_of_a_constant_rate", 1, "lr_scheduler.warmup_iters=200", "lr_scheduler.warmup_iters", "200"},
    {"wsd_tail", 1, "lr_scheduler.style=WSD train.train_iters=77", "lr_scheduler.wsd_decay_iters", "8"},
    {"gradients_travel_in_fp32", 1, "precision.dtype=bf16", "precision.communication_data_type", "fp32"},
    {"gradients_travel_in_fp64", 1, "precision.dtype=fp64", "precision.communication_data_type", "fp64"},
    {"fp16_keys", 1, "precision.dtype=fp16 precision.fp16.loss_scale=1024", "precision.fp16.loss_scale", "1024"},
    {"momentum", 1, "optimizer.type=SGD optimizer.momentum=0.9", "optimizer.momentum", "0.9"},
    {"gather_to_root", 2, "topology.data_parallel_algorithm=gather_to_root", "parallelism.data_parallel_algorithm",
     "gather_to_root"},
    {"named_what_arch_has", 1, "model.normalization=RMSNorm model.swiglu=true model.position_embedding_type=rope",
     "model.normalization", "RMSNorm"},
    {"threads_stay_auto", 1, "train.seed=1", "device.threads", "auto"},
    {"evaluation", 1, "train.eval_interval=5", "train.eval_interval", "5"},
    {"slices_of_four_heads", 1, "numerics.reduction=invariant", "numerics.tensor_slices", "4"},
    {"slices_of_six_heads", 2,
     "numerics.reduction=invariant topology.tp=2 model.hidden_size=384 model.num_attention_heads=6 "
     "model.num_query_groups=6",
     "numerics.tensor_slices", "2"},
    {"slices_of_twelve_heads", 1,
     "numerics.reduction=invariant model.arch=gpt2 model.hidden_size=768 model.num_attention_heads=12 "
     "model.num_query_groups=12 model.ffn_hidden_size=3072",
     "numerics.tensor_slices", "4"},
    {"slices_of_many_heads", 1, "numerics.reduction=invariant model.num_attention_heads=32 model.num_query_groups=32",
     "numerics.tensor_slices", "8"},
    {"slices_of_an_odd_ffn", 1, "numerics.reduction=invariant model.ffn_hidden_size=129", "numerics.tensor_slices",
     "1"},
    {"slices_of_three_groups", 1,
     "numerics.reduction=invariant model.hidden_size=96 model.num_attention_heads=24 model.num_query_groups=3",
     "numerics.tensor_slices", "1"},
    {"slices_beyond_eight", 1,
     "numerics.reduction=invariant numerics.tensor_slices=16 model.num_attention_heads=16 model.num_query_groups=2",
     "numerics.tensor_slices", "16"},
    {"vocab_padded_to_slices", 2, "numerics.reduction=invariant topology.tp=2", "model.padded_vocab_size", "260"},
    {"slices_without_invariant", 2, "topology.tp=2", "numerics.tensor_slices", "2"},
};
INSTANTIATE_TEST_SUITE_P(, ConfigLegal, testing::ValuesIn(kLegal),
                         [](const auto &i) { return std::string(i.param.name); });

/* A file may keep the slices of its invariant runs: without them they are named, and nothing else. */
TEST(ConfigSlices, OfAFileHaveNoEffectWithFast)
{
    for (const char *numerics : {"", "numerics:\n  tensor_slices: 4\n"}) {
        Loaded l(kSmall + numerics, {});
        ASSERT_EQ(l.resolve(1), PLAIT_OK) << l.error;
        EXPECT_EQ(plait_config_slices(&l.cfg), 1);
        EXPECT_EQ(l.value("model.padded_vocab_size"), "257");
    }
    Loaded l(kSmall + "numerics:\n  tensor_slices: 4\n  reduction: invariant\n", {});
    ASSERT_EQ(l.resolve(1), PLAIT_OK) << l.error;
    EXPECT_EQ(plait_config_slices(&l.cfg), 4);
    EXPECT_EQ(l.value("model.padded_vocab_size"), "260");
}

struct Clash {
    const char *name;
    int world;
    std::string overrides;
    std::string want; /* the whole error */
};
class ConfigClash : public testing::TestWithParam<Clash>
{
};

TEST_P(ConfigClash, IsRefusedWithTheNumbers)
{
    const Clash &c = GetParam();
    Loaded l(kSmall, split(c.overrides));
    ASSERT_EQ(l.status, PLAIT_OK) << l.error;
    EXPECT_EQ(l.resolve(c.world), PLAIT_USAGE);
    EXPECT_EQ(l.error, c.want);
}

#define TP  "parallelism.tensor_model_parallel_size"
#define PP  "parallelism.pipeline_model_parallel_size"
#define VPP "parallelism.virtual_pipeline_model_parallel_size"
const Clash kClashes[] = {
    {"world_is_no_multiple", 4,
     "topology.tp=3 model.num_attention_heads=6 model.hidden_size=96 model.num_query_groups=3 "
     "model.ffn_hidden_size=96",
     "override: " TP " 3 * " PP " 1 = 3 does not divide the 4 ranks"},
    {"one_rank_is_too_few", 1, "topology.tp=2", "override: " TP " 2 * " PP " 1 = 2 does not divide the 1 rank"},
    {"dp_contradicts_the_world", 4, "topology.tp=2 topology.dp=3",
     "override: parallelism.data_parallel_size 3: tensor 2 * pipeline 1 * data 3 = 6 ranks are needed, but there "
     "are 4 (null: what the ranks allow)"},
    {"batch_of_three_numbers", 4,
     "topology.tp=2 topology.dp=2 batch.global_batch_size=16 batch.micro_batch_size=2 "
     "batch.gradient_accumulation_steps=3",
     "override: batch.global_batch_size is not micro_batch_size * gradient_accumulation_steps * data ranks: 16 != 2 * "
     "3 * "
     "2 (data 2 = 4 ranks / (tensor 2 * pipeline 1))"},
    {"batch_of_two_numbers", 4, "topology.tp=2 topology.dp=2 batch.global_batch_size=10 batch.micro_batch_size=4",
     "override: batch.global_batch_size 10 is not a multiple of micro_batch_size 4 * data ranks 2 = 8 (data 2 = 4 "
     "ranks / "
     "(tensor 2 * pipeline 1))"},
    {"batch_below_one_micro_batch", 4, "batch.global_batch_size=2 batch.micro_batch_size=1",
     "override: batch.global_batch_size 2 is not a multiple of micro_batch_size 1 * data ranks 4 = 4 (data 4 = 4 ranks "
     "/ "
     "(tensor 1 * pipeline 1))"},
    {"batch_by_accumulation", 2, "batch.global_batch_size=10 batch.gradient_accumulation_steps=4",
     "override: batch.global_batch_size 10 is not a multiple of gradient_accumulation_steps 4 * data ranks 2 = 8 (data "
     "2 "
     "= 2 ranks / (tensor 1 * pipeline 1))"},
    {"rampup_start", 2, "batch.micro_batch_size=2 batch.global_batch_size=32 batch.rampup_batch_size=[6,2,100]",
     "override: batch.rampup_batch_size start 6 is not a multiple of micro_batch_size 2 * data ranks 2 = 4\n"
     "override: batch.rampup_batch_size increment 2 is not a multiple of micro_batch_size 2 * data ranks 2 = 4"},
    {"rampup_steps", 1, "batch.micro_batch_size=2 batch.global_batch_size=32 batch.rampup_batch_size=[4,6,100]",
     "override: batch.rampup_batch_size global_batch_size 32 - start 4 = 28 is not a multiple of increment 6"},
    {"rampup_without_a_micro_batch", 2,
     "batch.gradient_accumulation_steps=4 batch.global_batch_size=4 batch.rampup_batch_size=[2,1,100]",
     "override: batch.global_batch_size 4 is not a multiple of gradient_accumulation_steps 4 * data ranks 2 = 8 (data "
     "2 = 2 ranks / (tensor 1 * pipeline 1))"},
    {"rampup_of_many_sizes", 1, "batch.global_batch_size=1000 batch.rampup_batch_size=[1,1,5000]",
     "override: batch.rampup_batch_size from 1 to global_batch_size 1000 by 1 are 1000 sizes, above 512"},
    {"rampup_down", 1, "batch.global_batch_size=8 batch.rampup_batch_size=[8,4,100]",
     "override: batch.rampup_batch_size start 8 is not below global_batch_size 8"},
    {"heads_and_tp", 8, "topology.tp=8", "t.yaml:5:3: model.num_attention_heads 4 is not a multiple of " TP " 8"},
    {"kv_heads_and_tp", 2, "topology.tp=2 model.num_attention_heads=6 model.num_query_groups=3 model.hidden_size=96",
     "override: model.num_query_groups 3 and " TP " 2: neither is a multiple of the other, so key/value heads can be "
     "neither split nor replicated"},
    {"kv_heads_and_heads", 1, "model.num_query_groups=3",
     "override: model.num_query_groups 3 does not divide model.num_attention_heads 4"},
    {"kv_heads_of_gpt2", 1, "model.arch=gpt2",
     "t.yaml:6:3: model.num_query_groups 2 must be model.num_attention_heads 4 with model.arch gpt2"},
    {"hidden_and_heads", 1, "model.hidden_size=66",
     "override: model.hidden_size 66 is not a multiple of model.num_attention_heads 4 (or give the size of a head, "
     "model.kv_channels)"},
    {"odd_head", 1, "model.kv_channels=15", "override: model.kv_channels 15 is odd: RoPE turns pairs"},
    {"head_of_gpt2", 1, "model.arch=gpt2 model.num_query_groups=4 model.kv_channels=8",
     "override: model.kv_channels 8 * model.num_attention_heads 4 = 32 is not model.hidden_size 64 (gpt2)"},
    {"ffn_and_tp", 2, "topology.tp=2 model.ffn_hidden_size=129",
     "override: model.ffn_hidden_size 129 is not a multiple of " TP " 2"},
    {"seq_and_tp", 2, "topology.tp=2 topology.sequence_parallel=true model.seq_length=31",
     "override: model.seq_length 31 is not a multiple of " TP " 2, as parallelism.sequence_parallel needs"},
    {"seq_and_positions", 1, "model.max_position_embeddings=16",
     "t.yaml:8:3: model.seq_length 32 is above model.max_position_embeddings 16"},
    {"vocab_of_bytes", 1, "model.vocab_size=256 data.data_path=a.txt",
     "override: model.vocab_size 256 is below the 257 ids of data.tokenizer bytes"},
    {"chunks_without_pipeline", 1, "topology.vpp=2", "override: " VPP " 2 needs " PP " above 1"},
    {"interleaved_without_chunks", 2, "topology.pp=2 topology.pipeline_schedule=interleaved",
     "override: parallelism.pipeline_schedule interleaved needs " VPP " above 1"},
    {"chunks_with_1f1b", 2, "topology.pp=2 topology.vpp=2 topology.pipeline_schedule=1f1b",
     "override: parallelism.pipeline_schedule 1f1b has one chunk a rank, but " VPP " is 2: interleaved has several"},
    {"layout_length", 2, "topology.pp=2 topology.pipeline_layout=[1,2,1]",
     "override: parallelism.pipeline_layout lists 3 stages, but " PP " 2 * " VPP " 1 = 2"},
    {"layout_sum", 2, "topology.pp=2 topology.pipeline_layout=[1,2]",
     "override: parallelism.pipeline_layout has 3 layers in all, but model.num_layers is 4"},
    {"too_many_stages", 1024, "topology.pp=1024 topology.vpp=2",
     "override: " PP " 1024 * " VPP " 2 = 2048 stages are more than 1024"},
    {"gather_to_root_and_zero", 2, "topology.data_parallel_algorithm=gather_to_root zero_optimization.stage=1",
     "override: parallelism.data_parallel_algorithm gather_to_root needs zero_optimization.stage 0, not 1"},
    {"full_gradients_and_stage", 2, "zero_optimization.keep_full_gradients=true zero_optimization.stage=1",
     "override: zero_optimization.keep_full_gradients true needs zero_optimization.stage 2, not 1"},
    {"fp16_keys_in_bf16", 1, "precision.dtype=bf16 precision.fp16.hysteresis=1",
     "override: precision.fp16.hysteresis has an effect only with precision.dtype fp16 and loss_scale 0: set it to "
     "null"},
    {"scale_keys_of_a_fixed_scale", 1,
     "precision.dtype=fp16 precision.fp16.loss_scale=128 precision.fp16.loss_scale_window=10",
     "override: precision.fp16.loss_scale_window has an effect only with precision.dtype fp16 and loss_scale 0: set it "
     "to null"},
    {"least_scale_above_the_first", 1,
     "precision.dtype=fp16 precision.fp16.initial_scale_power=3 precision.fp16.min_loss_scale=16",
     "override: precision.fp16.min_loss_scale 16 is above the first scale, 2^initial_scale_power 3 = 8"},
    {"communication_in_fp64", 1, "precision.communication_data_type=fp64",
     "override: precision.communication_data_type fp64 does not go with precision.dtype fp32"},
    {"fp64_on_cpu_kernels", 1, "precision.dtype=fp64 device.kernels=cpu",
     "override: device.kernels cpu has no fp64 (precision.dtype): take ref or auto"},
    {"fp64_on_a_gpu", 1, "precision.dtype=fp64 device.backend=cuda",
     "override: precision.dtype fp64 is computed on the host: device.backend cpu or auto"},
    {"invariant_on_a_gpu", 1, "numerics.reduction=invariant device.backend=cuda",
     "override: numerics.reduction invariant is computed on the host: device.backend cpu or auto"},
    {"kernels_of_the_host_on_a_gpu", 1, "device.kernels=ref device.backend=cuda",
     "override: device.kernels ref and cpu are kernels of the host, and device.backend is cuda"},
    {"mpi_on_a_gpu", 1, "comm.backend=mpi device.backend=cuda",
     "override: comm.backend mpi carries tensors of the host, and device.backend is cuda: nccl or staged"},
    {"nccl_on_the_host", 1, "comm.backend=nccl device.backend=cpu",
     "override: comm.backend nccl and staged carry tensors of GPUs, and device.backend is cpu: mpi or auto"},
    {"momentum_of_adamw", 1, "optimizer.momentum=0.9",
     "override: optimizer.momentum has an effect only with optimizer.type SGD: set it to null"},
    {"adamw_keys_of_sgd", 1, "optimizer.type=SGD optimizer.betas=[0.9,0.95] optimizer.eps=1e-8",
     "override: optimizer.betas has an effect only with optimizer.type AdamW: set it to null\n"
     "override: optimizer.eps has an effect only with optimizer.type AdamW: set it to null"},
    {"decay_of_a_constant_rate", 1, "optimizer.min_lr=0 lr_scheduler.decay_iters=100",
     "override: optimizer.min_lr has an effect only with lr_scheduler.style linear, cosine or WSD: set it to null\n"
     "override: lr_scheduler.decay_iters has an effect only with lr_scheduler.style linear, cosine or WSD: set it to "
     "null"},
    {"prefetch_of_whole_parameters", 2, "zero_optimization.prefetch_units=1 zero_optimization.stage=2",
     "override: zero_optimization.prefetch_units has an effect only with zero_optimization.stage 3: set it to null"},
    {"min_lr_above_lr", 1, "optimizer.min_lr=0.1 optimizer.lr=0.01 lr_scheduler.style=cosine",
     "override: optimizer.min_lr 0.1 is above optimizer.lr 0.01"},
    {"warmup_after_decay", 1, "lr_scheduler.style=linear lr_scheduler.warmup_iters=200 lr_scheduler.decay_iters=150",
     "override: lr_scheduler.warmup_iters 200 is above lr_scheduler.decay_iters 150"},
    {"warmup_after_the_end", 1, "lr_scheduler.style=linear lr_scheduler.warmup_iters=200",
     "override: lr_scheduler.warmup_iters 200 is above train.train_iters 100"},
    {"wsd_too_short", 1, "lr_scheduler.style=WSD lr_scheduler.warmup_iters=95",
     "override: lr_scheduler.warmup_iters 95 + lr_scheduler.wsd_decay_iters 10 = 105 is above train.train_iters 100"},
    {"wsd_key_elsewhere", 1, "lr_scheduler.wsd_decay_iters=5",
     "override: lr_scheduler.wsd_decay_iters has an effect only with lr_scheduler.style WSD: set it to null"},
    {"evaluation_without_data", 1, "train.eval_interval=5 data.split=1,0,0",
     "override: train.eval_interval 5 needs a validation part, but its weight in data.split is 0"},
    {"modules_without_selective", 1, "recompute.modules=[norms]",
     "override: recompute.modules has an effect only with recompute.granularity selective: set it to null"},
    {"selective_of_nothing", 1, "recompute.granularity=selective recompute.modules=[]",
     "override: recompute.modules is empty, but recompute.granularity is selective"},
    {"recompute_layers", 1, "recompute.granularity=full recompute.num_layers=5",
     "override: recompute.num_layers 5 is above model.num_layers 4"},
    {"method_without_full", 1, "recompute.method=block",
     "override: recompute.method has an effect only with recompute.granularity full: set it to null"},
    {"norm_of_the_other_arch", 1, "model.normalization=LayerNorm",
     "override: model.normalization LayerNorm does not go with model.arch llama, which has RMSNorm"},
    {"positions_of_the_other_arch", 1, "model.position_embedding_type=learned_absolute",
     "override: model.position_embedding_type learned_absolute does not go with model.arch llama, which has rope"},
    {"swiglu_of_the_other_arch", 1, "model.swiglu=false",
     "override: model.swiglu false does not go with model.arch llama"},
    {"rotary_base_of_gpt2", 1, "model.arch=gpt2 model.num_query_groups=4 model.rotary_base=5000",
     "override: model.rotary_base has no effect with model.arch gpt2: set it to null"},
    {"batch_beyond_counting", 1 << 24, "batch.micro_batch_size=1048576 batch.gradient_accumulation_steps=1048576",
     "batch.global_batch_size is micro_batch_size 1048576 * gradient_accumulation_steps 1048576 * data ranks "
     "16777216, above the largest value 1073741824"},
    {"batch_all_given_beyond_counting", 1 << 24,
     "batch.micro_batch_size=1048576 batch.gradient_accumulation_steps=1048576 batch.global_batch_size=1",
     "override: batch.global_batch_size is micro_batch_size 1048576 * gradient_accumulation_steps 1048576 * data ranks "
     "16777216, above the largest value 1073741824"},
    {"parameters_beyond_counting", 1,
     "model.num_layers=65535 model.hidden_size=1048576 model.num_attention_heads=65536 model.num_query_groups=65536 "
     "model.kv_channels=65536 model.ffn_hidden_size=4194304",
     "override: model.num_layers 65535 of model.hidden_size 1048576: about 1.2e+21 parameters, more than the 7.2e+16 "
     "that are counted"},
    {"padding_beyond_counting", 65535,
     "model.hidden_size=1048560 model.num_attention_heads=65535 model.num_query_groups=65535 topology.tp=65535 "
     "model.ffn_hidden_size=65535 model.make_vocab_size_divisible_by=1048576",
     "t.yaml:3:3: model.num_layers 4 of model.hidden_size 1048560: about 1.4e+17 parameters, more than the 7.2e+16 "
     "that are counted"},
    {"a_tensor_beyond_counting", 1,
     "model.seq_length=16777216 batch.micro_batch_size=1048576 model.vocab_size=67108864",
     "override: model.seq_length 16777216 with batch.micro_batch_size 1048576: a tensor of about 1.2e+21 elements, "
     "more than the 2.9e+17 that are counted"},
    {"slices_without_invariant", 1, "numerics.tensor_slices=2",
     "override: numerics.tensor_slices has an effect only with numerics.reduction invariant: set it to null"},
    {"slices_that_are_no_power", 1,
     "numerics.reduction=invariant numerics.tensor_slices=3 model.num_attention_heads=6 model.hidden_size=96 "
     "model.num_query_groups=6 model.ffn_hidden_size=96",
     "override: numerics.tensor_slices 3 is not a power of two"},
    {"tensor_ranks_that_are_no_power", 3,
     "numerics.reduction=invariant topology.tp=3 model.num_attention_heads=6 model.hidden_size=96 "
     "model.num_query_groups=6 model.ffn_hidden_size=96",
     "override: " TP " 3 does not divide numerics.tensor_slices 2, which has to be a power of two and the same in all "
     "runs that are compared"},
    {"fewer_slices_than_tensor_ranks", 4, "numerics.reduction=invariant numerics.tensor_slices=2 topology.tp=4",
     "override: " TP " 4 does not divide numerics.tensor_slices 2, which has to be a power of two and the same in all "
     "runs that are compared"},
    {"slices_of_heads_and_ffn", 1,
     "numerics.reduction=invariant numerics.tensor_slices=8 model.ffn_hidden_size=100 model.num_query_groups=1",
     "override: numerics.tensor_slices 8 does not divide model.num_attention_heads 4\n"
     "override: numerics.tensor_slices 8 does not divide model.ffn_hidden_size 100"},
    {"slices_of_groups", 1,
     "numerics.reduction=invariant numerics.tensor_slices=2 model.num_attention_heads=6 model.hidden_size=96 "
     "model.num_query_groups=3",
     "override: numerics.tensor_slices 2 and model.num_query_groups 3: neither is a multiple of the other"},
    {"invariant_in_fp64", 1, "numerics.reduction=invariant precision.dtype=fp64",
     "override: numerics.reduction invariant has no fp64 (precision.dtype): its sums of gradients are rounded"},
    {"invariant_with_rounded_messages", 1,
     "numerics.reduction=invariant precision.dtype=bf16 precision.communication_data_type=bf16",
     "override: precision.communication_data_type bf16 rounds gradients by how ranks share them: numerics.reduction "
     "invariant takes fp32"},
    {"all_at_once", 4, "topology.tp=8 batch.global_batch_size=7 topology.dp=2 optimizer.momentum=0.5",
     "t.yaml:5:3: model.num_attention_heads 4 is not a multiple of " TP " 8\n"
     "override: optimizer.momentum has an effect only with optimizer.type SGD: set it to null\n"
     "override: parallelism.data_parallel_size 2: tensor 8 * pipeline 1 * data 2 = 16 ranks are needed, but there "
     "are 4 (null: what the ranks allow)\n"
     "override: batch.global_batch_size 7 is not a multiple of micro_batch_size 1 * data ranks 2 = 2"},
};
INSTANTIATE_TEST_SUITE_P(, ConfigClash, testing::ValuesIn(kClashes),
                         [](const auto &i) { return std::string(i.param.name); });

TEST(ConfigResolve, AnotherNumberOfRanksDerivesAnew)
{
    Loaded l(kSmall, {"batch.global_batch_size=24"});
    ASSERT_EQ(l.resolve(4), PLAIT_OK) << l.error;
    EXPECT_EQ(l.cfg.parallelism.dp, 4);
    EXPECT_EQ(l.cfg.batch.accumulation, 6);
    ASSERT_EQ(l.resolve(2), PLAIT_OK) << l.error;
    EXPECT_EQ(l.cfg.parallelism.dp, 2);
    EXPECT_EQ(l.cfg.batch.accumulation, 12);
}

TEST(ConfigResolve, WhatAFileGivesInVainIsNamed)
{
    const std::string text =
        kSmall + "optimizer:\n  eps: 1e-6\n  momentum: 0.9\nprecision:\n  fp16:\n    hysteresis: 1\n";
    const auto idle = [&](const std::vector<std::string> &overrides) {
        Loaded l(text, overrides);
        EXPECT_EQ(l.resolve(1), PLAIT_OK) << l.error;
        return printed([&](FILE *out) { plait_config_print_idle(&l.cfg, out); });
    };
    EXPECT_NE(idle({}).find("t.yaml:11:3: optimizer.momentum has no effect here, only with optimizer.type SGD\n"),
              std::string::npos)
        << idle({});
    EXPECT_NE(idle({}).find("t.yaml:14:5: precision.fp16.hysteresis has no effect here, only with precision.dtype fp16 "
                            "and loss_scale 0\n"),
              std::string::npos)
        << idle({});
    EXPECT_EQ(idle({"precision.dtype=fp16"}).find("hysteresis"), std::string::npos);
    EXPECT_EQ(idle({}).find("eps"), std::string::npos) << idle({});
    EXPECT_NE(idle({"optimizer.type=SGD"}).find("optimizer.eps has no effect here, only with optimizer.type AdamW\n"),
              std::string::npos);
    EXPECT_EQ(idle({"optimizer.momentum=null", "precision.dtype=fp16"}), "");
}

TEST(ConfigResolve, NaturalWorldIsTheProductOfTheDegrees)
{
    Loaded a(kSmall, {"topology.tp=2", "topology.pp=3"}),
        b(kSmall, {"topology.tp=2", "topology.pp=3", "topology.dp=5"}),
        c(kSmall, {"topology.tp=65536", "topology.pp=1024", "topology.dp=1000000"});
    int world;
    ASSERT_EQ(plait_config_natural_world(&a.cfg, &world), PLAIT_OK);
    EXPECT_EQ(world, 6);
    ASSERT_EQ(plait_config_natural_world(&b.cfg, &world), PLAIT_OK);
    EXPECT_EQ(world, 30);
    EXPECT_EQ(plait_config_natural_world(&c.cfg, &world), PLAIT_USAGE);
}

struct Stages {
    const char *name, *overrides;
    std::vector<int64_t> first;
};
TEST(ConfigResolve, EveryLayerIsOnExactlyOneStage)
{
    const Stages cases[] = {{"even", "model.num_layers=8", {0, 2, 4, 6, 8}},
                            {"uneven", "model.num_layers=30", {0, 7, 15, 22, 30}},
                            {"fewer_than_stages", "model.num_layers=2", {0, 0, 1, 1, 2}},
                            {"layout", "topology.pipeline_layout=[0,3,0,1]", {0, 0, 3, 3, 4}}};
    for (const Stages &c : cases) {
        Loaded l(kSmall, {c.overrides, "topology.pp=4"});
        ASSERT_EQ(l.resolve(4), PLAIT_OK) << c.name << l.error;
        for (int64_t k = 0; k <= 4; k++)
            EXPECT_EQ(plait_config_first_layer(&l.cfg, k, 4), c.first[static_cast<size_t>(k)]) << c.name << " " << k;
    }
}
