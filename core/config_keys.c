/* The key table: every key of a configuration file, what it means, and the names of other systems' keys that Plait
 * knows but does not need. */
#include "core/config_impl.h"

#include <float.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

_Static_assert(sizeof(plait_arch) == sizeof(int), "enums of the configuration are stored as int");
_Static_assert(offsetof(plait_config, parallelism.layout) ==
                   offsetof(plait_config, parallelism.layout_len) + sizeof(int64_t),
               "PLAIT_KEY_LAYOUT: the length stands before the layers");
_Static_assert(offsetof(plait_config, batch.rampup_samples) ==
                   offsetof(plait_config, batch.rampup_start) + 2 * sizeof(int64_t),
               "rampup_batch_size is stored as three numbers in a row");
_Static_assert(offsetof(plait_config, optimizer.beta2) == offsetof(plait_config, optimizer.beta1) + sizeof(double),
               "betas are stored as two numbers in a row");

static const plait_word arch_words[] = {{"gpt2", PLAIT_ARCH_GPT2, NULL}, {"llama", PLAIT_ARCH_LLAMA, NULL}, {0}};
static const plait_word norm_words[] = {
    {"LayerNorm", PLAIT_NORM_LAYERNORM, NULL}, {"RMSNorm", PLAIT_NORM_RMSNORM, NULL}, {0}};
static const plait_word position_words[] = {
    {"learned_absolute", PLAIT_POSITION_LEARNED, NULL}, {"rope", PLAIT_POSITION_ROPE, NULL}, {0}};
#define ZERO_BUBBLE "zero-bubble schedules are not there yet; 1f1b or interleaved come nearest"
static const plait_word schedule_words[] = {
    {"auto", PLAIT_PIPE_AUTO, NULL},   {"1f1b", PLAIT_PIPE_1F1B, NULL},
    {"gpipe", PLAIT_PIPE_GPIPE, NULL}, {"interleaved", PLAIT_PIPE_INTERLEAVED, NULL},
    {"zb-h1", 0, ZERO_BUBBLE},         {"zb-h2", 0, ZERO_BUBBLE},
    {"zbv", 0, ZERO_BUBBLE},           {0}};
static const plait_word dp_words[] = {
    {"all_reduce", PLAIT_DP_ALL_REDUCE, NULL}, {"gather_to_root", PLAIT_DP_GATHER_TO_ROOT, NULL}, {0}};
static const plait_word offload_words[] = {
    {"none", 0, NULL}, {"cpu", 0, "offload is not there yet"}, {"nvme", 0, "offload is not there yet"}, {0}};
static const plait_word dtype_words[] = {{"fp32", PLAIT_FP32, NULL},
                                         {"bf16", PLAIT_BF16, NULL},
                                         {"fp16", PLAIT_FP16, NULL},
                                         {"fp64", PLAIT_FP64, NULL},
                                         {0}};
static const plait_word recompute_words[] = {{"none", PLAIT_RECOMPUTE_NONE, NULL},
                                             {"selective", PLAIT_RECOMPUTE_SELECTIVE, NULL},
                                             {"full", PLAIT_RECOMPUTE_FULL, NULL},
                                             {0}};
static const plait_word method_words[] = {
    {"uniform", PLAIT_RECOMPUTE_UNIFORM, NULL}, {"block", PLAIT_RECOMPUTE_BLOCK, NULL}, {0}};
static const plait_word module_words[] = {{"core_attn", PLAIT_MODULE_CORE_ATTN, NULL},
                                          {"mlp_act", PLAIT_MODULE_MLP_ACT, NULL},
                                          {"norms", PLAIT_MODULE_NORMS, NULL},
                                          {0}};
static const plait_word optimizer_words[] = {{"AdamW", PLAIT_OPTIM_ADAMW, NULL}, {"SGD", PLAIT_OPTIM_SGD, NULL}, {0}};
static const plait_word style_words[] = {{"constant", PLAIT_LR_CONSTANT, NULL},
                                         {"linear", PLAIT_LR_LINEAR, NULL},
                                         {"cosine", PLAIT_LR_COSINE, NULL},
                                         {"WSD", PLAIT_LR_WSD, NULL},
                                         {0}};
static const plait_word tokenizer_words[] = {{"bytes", 0, NULL}, {0}};
static const plait_word kernels_words[] = {
    {"auto", PLAIT_KERNELS_AUTO, NULL}, {"ref", PLAIT_KERNELS_REF, NULL}, {"cpu", PLAIT_KERNELS_CPU, NULL}, {0}};
static const plait_word isa_words[] = {
    {"auto", PLAIT_ISA_AUTO, NULL}, {"avx2", PLAIT_ISA_AVX2, NULL}, {"avx512", PLAIT_ISA_AVX512, NULL}, {0}};
static const plait_word backend_words[] = {
    {"auto", PLAIT_BACKEND_AUTO, NULL}, {"cpu", PLAIT_BACKEND_CPU, NULL}, {"cuda", PLAIT_BACKEND_CUDA, NULL}, {0}};
static const plait_word comm_words[] = {{"auto", PLAIT_COMM_AUTO, NULL},
                                        {"mpi", PLAIT_COMM_MPI, NULL},
                                        {"nccl", PLAIT_COMM_NCCL, NULL},
                                        {"staged", PLAIT_COMM_STAGED, NULL},
                                        {0}};
static const plait_word reduction_words[] = {
    {"fast", PLAIT_REDUCTION_FAST, NULL}, {"invariant", PLAIT_REDUCTION_INVARIANT, NULL}, {0}};
static const plait_word fingerprint_words[] = {
    {"losses", PLAIT_FINGERPRINT_LOSSES, NULL}, {"weights", PLAIT_FINGERPRINT_WEIGHTS, NULL}, {0}};

#define KIB (INT64_C(1) << 10)
#define MIB (INT64_C(1) << 20)
#define GIB (INT64_C(1) << 30)
#define BIG INT64_C(1000000000000) /* counts of steps and samples */

/* path, aliases, then what the type needs, then default and sentence */
#define ROW(path, aliases, type, role, offset, lo, hi, min, max, open, count, words, dflt, text)                       \
    {                                                                                                                  \
        path, aliases, PLAIT_KEY_##type, PLAIT_KEY_##role, offset, lo, hi, min, max, open, count, words, dflt, text    \
    }
#define AT(field) offsetof(plait_config, field)
#define INT(path, aliases, field, lo, hi, dflt, text)                                                                  \
    ROW(path, aliases, INT, USED, AT(field), lo, hi, 0, 0, false, 0, NULL, dflt, text)
#define BYTES(path, aliases, field, lo, hi, dflt, text)                                                                \
    ROW(path, aliases, BYTES, USED, AT(field), lo, hi, 0, 0, false, 0, NULL, dflt, text)
#define NUMBER(path, aliases, field, min, max, dflt, text)                                                             \
    ROW(path, aliases, DOUBLE, USED, AT(field), 0, 0, min, max, false, 0, NULL, dflt, text)
#define BELOW(path, aliases, field, min, max, dflt, text)                                                              \
    ROW(path, aliases, DOUBLE, USED, AT(field), 0, 0, min, max, true, 0, NULL, dflt, text)
#define BOOL(path, aliases, field, dflt, text)                                                                         \
    ROW(path, aliases, BOOL, USED, AT(field), 0, 0, 0, 0, false, 0, NULL, dflt, text)
#define ENUM(path, aliases, field, words, dflt, text)                                                                  \
    ROW(path, aliases, ENUM, USED, AT(field), 0, 0, 0, 0, false, 0, words, dflt, text)
#define FILE_PATH(path, aliases, field, text)                                                                          \
    ROW(path, aliases, PATH, USED, AT(field), 0, 0, 0, 0, false, 0, NULL, "null", text)
/* Only the default is legal. */
#define ONLY_INT(path, aliases, lo, hi, dflt, text)                                                                    \
    ROW(path, aliases, INT, NEUTRAL, 0, lo, hi, 0, 0, false, 0, NULL, dflt, text)
#define ONLY_BOOL(path, dflt, text)        ROW(path, "", BOOL, NEUTRAL, 0, 0, 0, 0, 0, false, 0, NULL, dflt, text)
#define ONLY_WORD(path, words, dflt, text) ROW(path, "", ENUM, NEUTRAL, 0, 0, 0, 0, 0, false, 0, words, dflt, text)
#define ONLY_NULL(path, text)              ROW(path, "", PATH, NEUTRAL, 0, 0, 0, 0, 0, false, 0, NULL, "null", text)
#define REFUSED(path, text)                ROW(path, "", PATH, REFUSED, 0, 0, 0, 0, 0, false, 0, NULL, NULL, text)

static const plait_key keys[] = {
    ENUM("model.arch", "", model.arch, arch_words, "gpt2",
         "The family: gpt2 has learned positions, LayerNorm, GELU and biases; llama has RoPE, RMSNorm, SwiGLU and "
         "grouped queries."),
    INT("model.num_layers", "n_layer num_hidden_layers", model.num_layers, 1, 65535, "12", "Transformer layers."),
    INT("model.hidden_size", "n_embd", model.hidden_size, 1, 1 << 20, "768", "Width of the residual stream."),
    INT("model.ffn_hidden_size", "intermediate_size n_inner", model.ffn_hidden_size, 1, 1 << 22, "auto",
        "Width inside the MLP; auto: 4 hidden_size for gpt2, 8/3 hidden_size rounded up to a multiple of 256 for "
        "llama."),
    INT("model.num_attention_heads", "n_head", model.num_attention_heads, 1, 65536, "12", "Query heads."),
    INT("model.num_query_groups", "num_key_value_heads", model.num_query_groups, 1, 65536, "auto",
        "Key/value heads, each shared by the same number of query heads; auto: num_attention_heads. Fewer than the "
        "tensor ranks are replicated."),
    INT("model.kv_channels", "head_dim", model.kv_channels, 1, 65536, "auto",
        "Size of a head; auto: hidden_size / num_attention_heads."),
    INT("model.seq_length", "max_context_length sequence_length", model.seq_length, 1, 1 << 24, "1024",
        "Tokens of a sample."),
    INT("model.max_position_embeddings", "n_positions", model.max_position_embeddings, 1, 1 << 24, "auto",
        "Positions the model has (rows of the table in gpt2), at least seq_length; auto: seq_length."),
    INT("model.vocab_size", "", model.vocab_size, 1, 1 << 26, "257",
        "Token ids; the bytes tokenizer needs 257 (256 bytes and the end of a document)."),
    INT("model.make_vocab_size_divisible_by", "", model.make_vocab_size_divisible_by, 1, 1 << 20, "1",
        "The vocabulary is padded to a multiple of this and of numerics.tensor_slices; pad rows get no probability and "
        "no "
        "gradient."),
    ROW("model.padded_vocab_size", "", INT, DERIVED, AT(model.padded_vocab_size), 1, INT64_MAX, 0, 0, false, 0, NULL,
        "auto", "Follows from vocab_size, make_vocab_size_divisible_by and numerics.tensor_slices."),
    BOOL("model.tie_word_embeddings", "!untie_embeddings_and_output_weights", model.tie_word_embeddings, "auto",
         "Whether embedding and head are one matrix; auto: true for gpt2, false for llama."),
    ENUM("model.normalization", "", model.normalization, norm_words, "auto",
         "Must be the one of arch: LayerNorm for gpt2, RMSNorm for llama."),
    NUMBER("model.layernorm_epsilon", "layer_norm_epsilon rms_norm_eps norm_epsilon", model.layernorm_epsilon, 1e-30, 1,
           "1e-5", "Added to the variance (or mean square) in a norm."),
    ENUM("model.position_embedding_type", "", model.position_embedding, position_words, "auto",
         "Must be the one of arch: learned_absolute for gpt2, rope for llama."),
    NUMBER("model.rotary_base", "rope_theta", model.rotary_base, 1, 1e12, "10000",
           "Base of the angles of RoPE; only with arch llama."),
    REFUSED("model.rope_scaling", "Plait has no scaling of RoPE's angles; choose model.rotary_base."),
    BOOL("model.swiglu", "", model.swiglu, "auto", "Must be the one of arch: false for gpt2, true for llama."),
    BELOW("model.hidden_dropout", "", model.hidden_dropout, 0, 1, "0",
          "Probability of dropping an element of the embedding and of what attention and MLP add."),
    BELOW("model.attention_dropout", "", model.attention_dropout, 0, 1, "0",
          "Probability of dropping an attention probability."),
    NUMBER("model.init_method_std", "initializer_range", model.init_method_std, 0, 100, "0.02",
           "Standard deviation of the initial matrices; residual projections of gpt2 get it divided by "
           "sqrt(2 num_layers)."),

    INT("parallelism.tensor_model_parallel_size", "tp tp_size tensor_parallel_degree model_parallel_size",
        parallelism.tp, 1, 65536, "1", "Ranks that share each layer (tensor parallelism)."),
    INT("parallelism.pipeline_model_parallel_size", "pp pp_size pipe_parallel_size pipeline_parallel_degree",
        parallelism.pp, 1, PLAIT_MAX_STAGES, "1", "Ranks that share the layers one after the other (pipeline)."),
    INT("parallelism.virtual_pipeline_model_parallel_size", "vpp num_model_chunks", parallelism.num_chunks, 1,
        PLAIT_MAX_STAGES, "1", "Model chunks of a pipeline rank; more than 1 interleaves."),
    INT("parallelism.data_parallel_size", "dp", parallelism.dp, 1, 1 << 20, "auto",
        "Replicas that share the samples; auto: ranks / (tensor x pipeline)."),
    ENUM("parallelism.data_parallel_algorithm", "", parallelism.dp_algorithm, dp_words, "all_reduce",
         "gather_to_root reduces, updates on one rank and broadcasts; ZeRO stage 0 only."),
    ONLY_INT("parallelism.context_parallel_size", "cp", 1, 65536, "1", "Context parallelism is not there yet."),
    ONLY_INT("parallelism.expert_model_parallel_size", "ep", 1, 65536, "1", "There are no experts yet."),
    BOOL("parallelism.sequence_parallel", "", parallelism.sequence_parallel, "false",
         "Tensor ranks share norms, dropout and residual by parts of the sequence; no effect on one tensor rank."),
    ROW("parallelism.order", "", ORDER, USED, AT(parallelism.order), 0, 0, 0, 0, false, 0, NULL, "tp-cp-ep-dp-pp",
        "How ranks are numbered, fastest axis first."),
    ENUM("parallelism.pipeline_schedule", "pp_engine pipeline_parallel_schedule", parallelism.schedule, schedule_words,
         "auto", "Order of forward and backward; auto: interleaved with several chunks, else 1f1b."),
    ROW("parallelism.pipeline_layout", "", LAYOUT, USED, AT(parallelism.layout_len), 0, 65535, 0, 0, false, 0, NULL,
        "null", "Layers of each (virtual) stage in order, such as [3, 5]; null: floor(k L / S) to floor((k+1) L / S)."),
    REFUSED("parallelism.num_layers_in_first_pipeline_stage", "Write parallelism.pipeline_layout, such as [3, 5]."),
    REFUSED("parallelism.num_layers_in_last_pipeline_stage", "Write parallelism.pipeline_layout, such as [3, 5]."),

    INT("zero_optimization.stage", "zero_stage", zero.stage, 0, 3, "0",
        "What data ranks share: 0 nothing, 1 optimizer states, 2 gradients too, 3 parameters too."),
    BYTES("zero_optimization.max_unit_bytes", "", zero.max_unit_bytes, 256, INT64_C(1) << 50, "64MiB",
          "The embedding is cut into blocks of rows of at most this size, in the type of the parameters."),
    BOOL("zero_optimization.keep_full_gradients", "", zero.keep_full_gradients, "false",
         "Stage 2 only: reduce once a step instead of once a micro-batch, with the memory of stage 1."),
    INT("zero_optimization.prefetch_units", "", zero.prefetch_units, 0, 1024, "1",
        "Stage 3 only: units gathered ahead of the one in use."),
    REFUSED("zero_optimization.reduce_bucket_size", "A unit (embedding block, layer, head) is what is reduced; see "
                                                    "zero_optimization.max_unit_bytes."),
    REFUSED("zero_optimization.allgather_bucket_size", "A unit (embedding block, layer, head) is what is gathered; see "
                                                       "zero_optimization.max_unit_bytes."),
    REFUSED("zero_optimization.overlap_comm", "Communication always starts as early as it can."),
    REFUSED("zero_optimization.contiguous_gradients", "Gradients of a unit always lie in one buffer."),
    REFUSED("zero_optimization.sub_group_size", "The optimizer always goes unit by unit."),
    REFUSED("zero_optimization.stage3_prefetch_bucket_size", "Write zero_optimization.prefetch_units."),
    REFUSED("zero_optimization.stage3_param_persistence_threshold",
            "Small parameters are part of their unit and are gathered with it."),
    REFUSED("zero_optimization.stage3_max_live_parameters",
            "At most 1 + zero_optimization.prefetch_units units are gathered at any time."),
    ONLY_WORD("zero_optimization.offload_optimizer.device", offload_words, "none", "Offload is not there yet."),
    ONLY_NULL("zero_optimization.offload_optimizer.nvme_path", "Offload is not there yet."),
    REFUSED("zero_optimization.offload_optimizer.pin_memory", "Plait decides which host memory is pinned."),
    REFUSED("zero_optimization.offload_optimizer.buffer_count", "Plait plans its buffers from the units."),
    REFUSED("zero_optimization.offload_optimizer.ratio", "All units of a kind move, or none."),
    REFUSED("zero_optimization.offload_optimizer.pipeline_read", "Reading always overlaps where it can."),
    REFUSED("zero_optimization.offload_optimizer.pipeline_write", "Writing always overlaps where it can."),
    ONLY_WORD("zero_optimization.offload_param.device", offload_words, "none", "Offload is not there yet."),
    ONLY_NULL("zero_optimization.offload_param.nvme_path", "Offload is not there yet."),
    REFUSED("zero_optimization.offload_param.pin_memory", "Plait decides which host memory is pinned."),
    REFUSED("zero_optimization.offload_param.buffer_count", "Plait plans its buffers from the units."),
    REFUSED("zero_optimization.offload_param.buffer_size", "Plait plans its buffers from the units."),
    REFUSED("zero_optimization.offload_param.max_in_cpu", "All units of a kind move, or none."),
    ONLY_INT("zero_optimization.zero_hpz_partition_size", "", 1, 65536, "1",
             "Secondary shards inside a node are not there yet."),
    ONLY_INT("zero_optimization.mics_shard_size", "", -1, 65536, "-1",
             "Sharding over a part of the data ranks is not there yet."),

    INT("batch.micro_batch_size", "train_micro_batch_size_per_gpu", batch.micro_batch_size, 1, 1 << 20, "auto",
        "Samples that go through the model at once on a data rank; auto: from the other two, else 1."),
    INT("batch.global_batch_size", "train_batch_size", batch.global_batch_size, 1, 1 << 30, "auto",
        "Samples of a step over all ranks; auto: micro-batch x accumulation x data ranks."),
    INT("batch.gradient_accumulation_steps", "batch_accumulation_per_replica num_microbatches", batch.accumulation, 1,
        1 << 20, "auto", "Micro-batches of a step on a data rank; auto: from the other two, else 1."),
    ROW("batch.rampup_batch_size", "", INTS, USED, AT(batch.rampup_start), 1, BIG, 0, 0, false, 3, NULL, "null",
        "[start, increment, samples]: the global batch grows from start by increment, evenly over so many samples."),

    ENUM("precision.dtype", "", precision.dtype, dtype_words, "fp32",
         "Type of parameters and activations; fp64 is computed by the ref kernels."),
    ONLY_BOOL("precision.accumulate_allreduce_grads_in_fp32", "true",
              "Gradients always accumulate in fp32 (fp64 with precision.dtype fp64)."),
    ENUM("precision.communication_data_type", "", precision.communication_dtype, dtype_words, "auto",
         "Type in which gradients travel; auto: the type in which they accumulate."),
    BOOL("precision.allow_tf32", "", precision.allow_tf32, "false",
         "Only with dtype fp32, on GPUs: products round what they multiply to 11 bits (TF32), for several times the "
         "speed."),
    NUMBER("precision.fp16.loss_scale", "", precision.loss_scale, 0, 1e30, "0",
           "A fixed loss scale; 0: dynamic. This and the next four only with precision.dtype fp16."),
    INT("precision.fp16.initial_scale_power", "", precision.initial_scale_power, 0, 64, "16",
        "A dynamic loss scale starts at 2 to this power."),
    INT("precision.fp16.loss_scale_window", "", precision.loss_scale_window, 1, BIG, "1000",
        "Steps without overflow after which the scale doubles."),
    INT("precision.fp16.hysteresis", "", precision.hysteresis, 1, 1000000, "2",
        "Overflows before the scale is halved."),
    NUMBER("precision.fp16.min_loss_scale", "", precision.min_loss_scale, 1e-30, 1e30, "1",
           "A dynamic loss scale goes no lower."),

    ENUM("recompute.granularity", "", recompute.granularity, recompute_words, "none",
         "What is computed again in backward: nothing, recompute.modules, or whole layers."),
    ENUM("recompute.method", "", recompute.method, method_words, "uniform",
         "With full: uniform keeps the input of every num_layers layers, block recomputes the first num_layers of a "
         "chunk."),
    INT("recompute.num_layers", "", recompute.num_layers, 1, 65535, "1", "With full: see recompute.method."),
    ROW("recompute.modules", "", SET, USED, AT(recompute.modules), 0, 0, 0, 0, false, 0, module_words, "[core_attn]",
        "With selective: which parts of a layer."),

    ENUM("optimizer.type", "", optimizer.type, optimizer_words, "AdamW", "The update rule."),
    NUMBER("optimizer.lr", "", optimizer.lr, 0, 1e6, "3e-4", "Highest learning rate."),
    NUMBER("optimizer.min_lr", "", optimizer.min_lr, 0, 1e6, "0",
           "Learning rate at the end of the decay; not with style constant."),
    ROW("optimizer.betas", "", DOUBLES, USED, AT(optimizer.beta1), 0, 0, 0, 1, true, 2, NULL, "[0.9, 0.95]",
        "AdamW's decay of first and second moment; only with type AdamW."),
    NUMBER("optimizer.eps", "", optimizer.eps, 1e-30, 1, "1e-8",
           "AdamW's term in the denominator; only with type AdamW."),
    NUMBER("optimizer.momentum", "", optimizer.momentum, 0, 1, "0", "SGD's momentum; only with type SGD."),
    NUMBER(
        "optimizer.weight_decay", "", optimizer.weight_decay, 0, 1000, "0.1",
        "Of matrices only, never of norms and biases. AdamW: decoupled; SGD: added to the gradient, before momentum."),
    NUMBER("optimizer.clip_grad", "gradient_clipping max_norm", optimizer.clip_grad, 0, 1e30, "1.0",
           "Largest L2 norm of the global gradient; 0: no clipping."),

    ENUM("lr_scheduler.style", "", lr.style, style_words, "constant",
         "Shape of the learning rate after warm-up: constant, linear, cosine, or warm-up-stable-decay."),
    INT("lr_scheduler.warmup_iters", "", lr.warmup_iters, 0, BIG, "0", "Steps of linear warm-up."),
    INT("lr_scheduler.decay_iters", "", lr.decay_iters, 1, BIG, "auto",
        "Step at which min_lr is reached; auto: train_iters. Not with style constant."),
    INT("lr_scheduler.wsd_decay_iters", "", lr.wsd_decay_iters, 1, BIG, "auto",
        "Only with style WSD: steps of its final decay; auto: a tenth of decay_iters, rounded up."),

    INT("train.train_iters", "", train.train_iters, 1, BIG, "100", "Steps of the run."),
    INT("train.seed", "", train.seed, 0, INT64_MAX, "1234", "Seed of weights, sample order and dropout."),
    INT("train.log_interval", "", train.log_interval, 1, BIG, "1", "Steps between two log lines."),
    INT("train.eval_interval", "", train.eval_interval, 0, BIG, "0",
        "Steps between two evaluations on the validation part; 0: none."),
    REFUSED("train.eval_iters", "An evaluation always reads the first 16,384 tokens of the validation part."),
    ONLY_NULL("train.exit_duration_in_mins", "A run ends after train.train_iters, or at a signal."),
    REFUSED("train.deterministic_mode", "Sums always have a fixed order for a given topology."),

    FILE_PATH("data.data_path", "", data.path, "The text file to train on; one document."),
    ONLY_WORD("data.tokenizer", tokenizer_words, "bytes", "Each byte is a token; 256 ends a document."),
    ROW("data.split", "", SPLIT, USED, AT(data.split), 0, 0, 0, 1e30, false, 0, NULL, "95,5,0",
        "Weights of the training, validation and test parts, contiguous in this order."),
    INT("data.first_sample", "", data.first_sample, 0, BIG, "0", "Sample with which the first step begins."),
    ONLY_NULL("data.data_cache_path", "There is no index to keep: samples follow from the seed."),
    REFUSED("data.mmap", "The text is read once, when the run starts."),
    ONLY_BOOL("data.reset_position_ids", "false", "Positions do not begin anew inside a sample yet."),
    ONLY_BOOL("data.reset_attention_mask", "false", "Documents of a sample are not kept apart yet."),
    ONLY_BOOL("data.eod_mask_loss", "false", "The end of a document is a token to predict."),
    ONLY_BOOL("data.mock_data", "false", "Write a text file and name it in data.data_path."),

    FILE_PATH("checkpoint.save_weights", "", checkpoint.save_weights,
              "Where all weights are written at the end (safetensors, any topology can read it)."),
    FILE_PATH("checkpoint.load_weights", "", checkpoint.load_weights,
              "Weights to begin with (safetensors, from any topology)."),
    ONLY_NULL("checkpoint.save", "Resumable checkpoints are not there yet; see checkpoint.save_weights."),
    ONLY_NULL("checkpoint.load", "Resumable checkpoints are not there yet; see checkpoint.load_weights."),
    ONLY_NULL("checkpoint.save_interval", "Resumable checkpoints are not there yet."),
    ONLY_NULL("checkpoint.keep_latest_k", "Resumable checkpoints are not there yet."),
    ONLY_NULL("checkpoint.ckpt_step", "Resumable checkpoints are not there yet."),
    ONLY_BOOL("checkpoint.async_save", "false", "Resumable checkpoints are not there yet."),
    REFUSED("checkpoint.verify_integrity", "Files of weights are always checked."),
    ONLY_BOOL("checkpoint.no_load_optim", "false", "Only weights are loaded so far."),
    ONLY_BOOL("checkpoint.no_load_rng", "false", "Only weights are loaded so far."),

    FILE_PATH("logging.metrics_file", "", logging.metrics_file, "One JSON object a step; null: none."),
    BOOL("logging.log_throughput", "", logging.log_throughput, "true", "Whether log lines show speed."),
    ONLY_NULL("logging.tensorboard_dir", "TensorBoard events are not there yet; see logging.metrics_file."),
    ONLY_INT("logging.timing_log_level", "", 0, 2, "0", "Timers of parts of a step are not there yet."),
    REFUSED("logging.comms_logger", "Communication is always counted; see logging.metrics_file."),
    ONLY_NULL("logging.trace_dir", "Traces are not there yet."),

    ENUM("device.backend", "", device.backend, backend_words, "auto",
         "Where tensors are: in the host's memory or a GPU's; auto: cuda if every node has a GPU, else cpu."),
    ENUM("device.kernels", "", device.kernels, kernels_words, "auto",
         "Of the host. ref: plain loops; cpu: SIMD, threads and a GEMM library; auto: ref for fp64, else cpu."),
    ENUM("device.isa", "", device.isa, isa_words, "auto", "Vector instructions; auto: the widest there are."),
    INT("device.threads", "", device.threads, 1, 4096, "auto",
        "Threads of a rank; auto: OMP_NUM_THREADS, else cores / ranks on the machine, rounded up."),
    BYTES("device.memory_limit", "", device.memory_limit, 1, INT64_C(1) << 52, "null",
          "Bytes a rank may plan on its device; more is refused before the first step."),
    BYTES("device.workspace", "", device.workspace, 0, 64 * GIB, "32MiB", "Scratch of kernels and libraries."),

    BYTES("comm.chunk_bytes", "", comm.chunk_bytes, 4 * KIB, GIB, "4MiB", "Largest message."),
    NUMBER("comm.distributed_timeout_minutes", "", comm.timeout_minutes, 1e-3, 1e6, "10",
           "How long a rank waits for another before the job ends."),
    ENUM("comm.backend", "", comm.backend, comm_words, "auto",
         "What carries tensors. mpi: between ranks on CPUs; nccl: between GPUs; staged: between GPUs through host "
         "memory "
         "and MPI, also of ranks that share one; auto: what fits, nccl before staged."),

    ENUM("numerics.reduction", "", numerics.reduction, reduction_words, "fast",
         "invariant: losses, norms and weights have the same bits for every topology."),
    INT("numerics.tensor_slices", "", numerics.tensor_slices, 1, 1024, "auto",
        "Slices of each split matrix. fast: one a tensor rank. invariant: a power of two and a multiple of the tensor "
        "ranks; auto: the largest power of two up to 8 that divides heads and ffn and fits the key/value heads."),
    ENUM("numerics.fingerprint", "", numerics.fingerprint, fingerprint_words, "losses",
         "What the fingerprint that a run ends with is made of: the losses of all steps, or these and the weights."),

    FILE_PATH(
        "debug.tensor_hashes", "", debug.tensor_hashes,
        "A line for each slice of each result of a training step, with a hash that is the same for every topology: "
        "plait diff of two such files names the first that differs. With numerics.reduction invariant; null: none."),
};

#define NUM_KEYS ((int)(sizeof keys / sizeof keys[0]))

static const struct {
    const char *alias, *section;
} section_aliases[] = {{"topology", "parallelism"}};

const plait_key *plait_config_keys(int *count)
{
    *count = NUM_KEYS;
    return keys;
}

/* ---- finding ---- */

static const char *last_part(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

/* The path with the alias of its section replaced. */
static void canonical_path(const char *path, char *out, size_t size)
{
    size_t len = strcspn(path, ".");
    for (size_t i = 0; i < sizeof section_aliases / sizeof section_aliases[0]; i++)
        if (strlen(section_aliases[i].alias) == len && strncmp(path, section_aliases[i].alias, len) == 0) {
            snprintf(out, size, "%s%s", section_aliases[i].section, path + len);
            return;
        }
    snprintf(out, size, "%s", path);
}

/* The names of a row: its own, then its aliases. `state` begins as NULL; false at the end. */
static bool next_name(const plait_key *k, const char **state, char name[64], bool *negated)
{
    if (!*state) {
        *negated = false;
        snprintf(name, 64, "%s", last_part(k->path));
        *state = k->aliases;
        return true;
    }
    const char *s = *state + strspn(*state, " ");
    if (*s == '\0')
        return false;
    *negated = *s == '!';
    s += *negated;
    size_t len = strcspn(s, " ");
    snprintf(name, 64, "%.*s", (int)len, s);
    *state = s + len;
    return true;
}

static bool same_parent(const plait_key *k, const char *path)
{
    size_t a = (size_t)(last_part(k->path) - k->path), b = (size_t)(last_part(path) - path);
    return a == b && strncmp(k->path, path, a) == 0;
}

int plait_config_find(const char *path, bool *negated)
{
    char full[256], name[64];
    canonical_path(path, full, sizeof full);
    for (int i = 0; i < NUM_KEYS; i++) {
        if (!same_parent(&keys[i], full))
            continue;
        for (const char *state = NULL; next_name(&keys[i], &state, name, negated);)
            if (strcmp(name, last_part(full)) == 0)
                return i;
    }
    *negated = false;
    return -1;
}

bool plait_config_is_section(const char *path, char *canonical, size_t size)
{
    char full[256];
    canonical_path(path, full, sizeof full);
    if (canonical)
        snprintf(canonical, size, "%s", full);
    size_t len = strlen(full);
    for (int i = 0; len > 0 && i < NUM_KEYS; i++)
        if (strncmp(keys[i].path, full, len) == 0 && keys[i].path[len] == '.')
            return true;
    return false;
}

/* ---- hints ---- */

#define NAME_MAX_DISTANCE 48

/* Edits, with swaps of neighbours as one (optimal string alignment). */
static int distance(const char *a, const char *b)
{
    int la = (int)strlen(a), lb = (int)strlen(b);
    if (la >= NAME_MAX_DISTANCE || lb >= NAME_MAX_DISTANCE)
        return NAME_MAX_DISTANCE;
    int rows[3][NAME_MAX_DISTANCE];
    int *before = rows[0], *prev = rows[1], *now = rows[2];
    for (int j = 0; j <= lb; j++)
        prev[j] = before[j] = j;
    for (int i = 1; i <= la; i++) {
        now[0] = i;
        for (int j = 1; j <= lb; j++) {
            int cost = a[i - 1] != b[j - 1];
            int best = prev[j - 1] + cost;
            if (prev[j] + 1 < best)
                best = prev[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
        int *spare = before;
        before = prev;
        prev = now;
        now = spare;
    }
    return prev[lb];
}

/* Offers `name` as a correction of `word`; keeps the nearest that is near enough. */
static bool nearer(const char *word, const char *name, int *best)
{
    int limit = 1 + (int)strlen(word) / 4;
    int d = strcasecmp(word, name) == 0 ? 0 : distance(word, name);
    if (d > limit || d >= *best)
        return false;
    *best = d;
    return true;
}

static bool suggest_section(const char *word, char *out, size_t size)
{
    int best = NAME_MAX_DISTANCE;
    char section[64];
    for (int i = 0; i < NUM_KEYS; i++) {
        snprintf(section, sizeof section, "%.*s", (int)strcspn(keys[i].path, "."), keys[i].path);
        if (nearer(word, section, &best))
            snprintf(out, size, "did you mean the section \"%s\"?", section);
    }
    for (size_t i = 0; i < sizeof section_aliases / sizeof section_aliases[0]; i++)
        if (nearer(word, section_aliases[i].alias, &best))
            snprintf(out, size, "did you mean the section \"%s\"?", section_aliases[i].section);
    return best < NAME_MAX_DISTANCE;
}

/* Exactly this name, up to case, but elsewhere. */
static bool suggest_elsewhere(const char *word, const char *full, char *out, size_t size)
{
    int found = 0;
    char name[64];
    bool negated;
    out[0] = '\0';
    for (int i = 0; i < NUM_KEYS; i++) {
        if (same_parent(&keys[i], full))
            continue;
        for (const char *state = NULL; next_name(&keys[i], &state, name, &negated);)
            if (strcasecmp(name, word) == 0 && found < 3) {
                size_t used = strlen(out), parent = (size_t)(last_part(keys[i].path) - keys[i].path) - 1;
                snprintf(out + used, size - used, "%s\"%.*s\"", found++ ? ", " : "it belongs into the section ",
                         (int)parent, keys[i].path);
            }
    }
    return found > 0;
}

void plait_config_suggest(const char *path, char *out, size_t size)
{
    char full[256], name[64];
    canonical_path(path, full, sizeof full);
    const char *word = last_part(full);
    bool negated;
    int best = NAME_MAX_DISTANCE;
    out[0] = '\0';
    for (int i = 0; i < NUM_KEYS; i++) {
        if (!same_parent(&keys[i], full))
            continue;
        for (const char *state = NULL; next_name(&keys[i], &state, name, &negated);)
            if (nearer(word, name, &best))
                snprintf(out, size, "did you mean \"%s\"?", name);
    }
    char elsewhere[256];
    if (best > 0 && suggest_elsewhere(word, full, elsewhere, sizeof elsewhere)) {
        snprintf(out, size, "%s", elsewhere);
        return;
    }
    if (best < NAME_MAX_DISTANCE || (word == full && suggest_section(word, out, size)))
        return;
    for (int i = 0; i < NUM_KEYS; i++) /* nothing near in its section: anywhere */
        for (const char *state = NULL; next_name(&keys[i], &state, name, &negated);)
            if (nearer(word, name, &best))
                snprintf(out, size, "the nearest key is \"%s\"", keys[i].path);
}

void plait_config_describe(const plait_key *k, char *out, size_t size)
{
    char lo[32], hi[32];
    plait_double_text(k->min, lo, sizeof lo);
    plait_double_text(k->max, hi, sizeof hi);
    switch (k->type) {
    case PLAIT_KEY_INT:
        if (k->lo == k->hi)
            snprintf(out, size, "the whole number %lld", (long long)k->lo);
        else if (k->hi == INT64_MAX)
            snprintf(out, size, "a whole number from %lld", (long long)k->lo);
        else
            snprintf(out, size, "a whole number from %lld to %lld", (long long)k->lo, (long long)k->hi);
        break;
    case PLAIT_KEY_BYTES:
        snprintf(out, size, "a size in bytes such as 32MiB");
        break;
    case PLAIT_KEY_DOUBLE:
        snprintf(out, size, "a number from %s to %s%s", lo, k->max_open ? "below " : "", hi);
        break;
    case PLAIT_KEY_BOOL:
        snprintf(out, size, "true or false");
        break;
    case PLAIT_KEY_ENUM:
    case PLAIT_KEY_SET:
        snprintf(out, size, "%s", k->type == PLAIT_KEY_SET ? "a list out of" : "one of");
        for (const plait_word *w = k->words; w->name; w++) {
            size_t used = strlen(out);
            if (!w->refusal)
                snprintf(out + used, size - used, "%s %s", w == k->words ? "" : ",", w->name);
        }
        break;
    case PLAIT_KEY_PATH:
        snprintf(out, size, "the path of a file");
        break;
    case PLAIT_KEY_ORDER:
        snprintf(out, size, "tp, dp and pp, and at will cp and ep, joined by '-'");
        break;
    case PLAIT_KEY_INTS:
        snprintf(out, size, "a list of %d whole numbers from %lld", k->count, (long long)k->lo);
        break;
    case PLAIT_KEY_DOUBLES:
        snprintf(out, size, "a list of %d numbers from %s to %s%s", k->count, lo, k->max_open ? "below " : "", hi);
        break;
    case PLAIT_KEY_SPLIT:
        snprintf(out, size, "up to three weights such as \"95,5,0\"");
        break;
    case PLAIT_KEY_LAYOUT:
        snprintf(out, size, "a list of whole numbers such as [3, 5]");
    }
}
