/* core/config.h: the configuration of a run: one YAML file, overrides `key=value`, defaults.
 *
 * One table (core/config_keys.c) has a row a key: path, aliases, type, place in plait_config, bounds, default, one
 * sentence. Parser, validator, `plait config` and the reference page are loops over it. The file is read completely
 * and all errors are reported at once, each with file:line:column.
 *
 * What needs the number of ranks (auto values, batch arithmetic) is settled by plait_config_resolve, which lists all
 * contradictions between keys, once every value is right; until then an `auto` value is PLAIT_AUTO.
 */
#ifndef PLAIT_CORE_CONFIG_H
#define PLAIT_CORE_CONFIG_H

#include "core/dtype.h"

#include <stdio.h>

PLAIT_BEGIN_DECLS

#define PLAIT_AUTO       (-1)
#define PLAIT_PATH_MAX   4096
#define PLAIT_MAX_STAGES 1024 /* pipeline stages times chunks in pipeline_layout */

typedef enum plait_arch { PLAIT_ARCH_GPT2, PLAIT_ARCH_LLAMA } plait_arch;
typedef enum plait_pipe_schedule {
    PLAIT_PIPE_AUTO, /* until resolved: interleaved when there are several chunks, else 1f1b */
    PLAIT_PIPE_GPIPE,
    PLAIT_PIPE_1F1B,
    PLAIT_PIPE_INTERLEAVED
} plait_pipe_schedule;
typedef enum plait_dp_algorithm { PLAIT_DP_ALL_REDUCE, PLAIT_DP_GATHER_TO_ROOT } plait_dp_algorithm;
typedef enum plait_recompute { PLAIT_RECOMPUTE_NONE, PLAIT_RECOMPUTE_SELECTIVE, PLAIT_RECOMPUTE_FULL } plait_recompute;
typedef enum plait_recompute_method { PLAIT_RECOMPUTE_UNIFORM, PLAIT_RECOMPUTE_BLOCK } plait_recompute_method;
/* recompute.modules, a set */
enum { PLAIT_MODULE_CORE_ATTN = 1, PLAIT_MODULE_MLP_ACT = 2, PLAIT_MODULE_NORMS = 4 };
typedef enum plait_optimizer_type { PLAIT_OPTIM_ADAMW, PLAIT_OPTIM_SGD } plait_optimizer_type;
typedef enum plait_lr_style { PLAIT_LR_CONSTANT, PLAIT_LR_LINEAR, PLAIT_LR_COSINE, PLAIT_LR_WSD } plait_lr_style;
typedef enum plait_reduction_mode { PLAIT_REDUCTION_FAST, PLAIT_REDUCTION_INVARIANT } plait_reduction_mode;
/* Where tensors are and what computes. auto: cuda where every node has a GPU, until it is settled at start. */
typedef enum plait_backend_choice { PLAIT_BACKEND_AUTO, PLAIT_BACKEND_CPU, PLAIT_BACKEND_CUDA } plait_backend_choice;
/* What carries tensors between ranks. auto: mpi on cpu; on cuda nccl where each rank of a node has a GPU of its own,
 * else staged. */
typedef enum plait_comm_choice {
    PLAIT_COMM_AUTO,
    PLAIT_COMM_MPI,
    PLAIT_COMM_NCCL,
    PLAIT_COMM_STAGED
} plait_comm_choice;
typedef enum plait_kernels_choice { PLAIT_KERNELS_AUTO, PLAIT_KERNELS_REF, PLAIT_KERNELS_CPU } plait_kernels_choice;
typedef enum plait_norm { PLAIT_NORM_LAYERNORM, PLAIT_NORM_RMSNORM } plait_norm;
typedef enum plait_position { PLAIT_POSITION_LEARNED, PLAIT_POSITION_ROPE } plait_position;
typedef enum plait_fingerprint_of { PLAIT_FINGERPRINT_LOSSES, PLAIT_FINGERPRINT_WEIGHTS } plait_fingerprint_of;
typedef enum plait_isa { PLAIT_ISA_AUTO, PLAIT_ISA_AVX2, PLAIT_ISA_AVX512 } plait_isa;

typedef struct plait_config {
    struct {
        plait_arch arch;
        int64_t num_layers, hidden_size, ffn_hidden_size, num_attention_heads, num_query_groups;
        int64_t kv_channels; /* head size; default hidden_size / num_attention_heads */
        int64_t seq_length, max_position_embeddings, vocab_size, make_vocab_size_divisible_by;
        int64_t padded_vocab_size; /* resolved: a multiple of make_vocab_size_divisible_by and tp */
        bool tie_word_embeddings;
        plait_norm normalization;          /* follows from arch, as do the next two */
        plait_position position_embedding; /* position_embedding_type */
        bool swiglu;
        double layernorm_epsilon, rotary_base, hidden_dropout, attention_dropout, init_method_std;
    } model;
    struct {
        int64_t tp, pp, dp; /* dp may be PLAIT_AUTO until resolved */
        int64_t num_chunks; /* virtual_pipeline_model_parallel_size; 1 without interleaving */
        bool sequence_parallel;
        char order[64]; /* fastest first, "tp-cp-ep-dp-pp" */
        plait_pipe_schedule schedule;
        int64_t layout_len;               /* 0: default rule */
        int64_t layout[PLAIT_MAX_STAGES]; /* pipeline_layout: layers of each (virtual) stage in order */
        plait_dp_algorithm dp_algorithm;
    } parallelism;
    struct {
        int64_t stage;
        int64_t max_unit_bytes, prefetch_units;
        bool keep_full_gradients;
    } zero;
    struct {
        int64_t micro_batch_size, global_batch_size,
            accumulation;                                       /* accumulation: micro-batches a step and data rank */
        int64_t rampup_start, rampup_increment, rampup_samples; /* rampup_start 0: none */
    } batch;
    struct {
        plait_dtype dtype, communication_dtype;
        double loss_scale; /* fp16: 0 dynamic, otherwise fixed */
        int64_t initial_scale_power, loss_scale_window, hysteresis;
        double min_loss_scale;
        bool allow_tf32;
    } precision;
    struct {
        plait_recompute granularity;
        plait_recompute_method method;
        int64_t num_layers;
        unsigned modules; /* PLAIT_MODULE_* */
    } recompute;
    struct {
        plait_optimizer_type type;
        double lr, min_lr, beta1, beta2, eps, weight_decay, clip_grad, momentum; /* clip_grad 0: no clipping */
    } optimizer;
    struct {
        plait_lr_style style;
        int64_t warmup_iters, decay_iters, wsd_decay_iters; /* decay_iters: default train_iters */
    } lr;
    struct {
        int64_t train_iters, seed, log_interval, eval_interval; /* eval_interval 0: never */
    } train;
    struct {
        char path[PLAIT_PATH_MAX]; /* a text file; resolved against the file's or the working directory */
        double split[3];           /* normalised weights: train, validation, test */
        int64_t first_sample;
    } data;
    struct {
        char save_weights[PLAIT_PATH_MAX], load_weights[PLAIT_PATH_MAX]; /* "" : none */
    } checkpoint;
    struct {
        char metrics_file[PLAIT_PATH_MAX]; /* "": none */
        bool log_throughput;
    } logging;
    struct {
        plait_backend_choice backend;
        plait_kernels_choice kernels;
        plait_isa isa;
        int64_t threads;      /* PLAIT_AUTO until resolved: ceil(cores / local ranks), OMP_NUM_THREADS honoured */
        int64_t memory_limit; /* bytes of the device tier; 0: none */
        int64_t workspace;    /* bytes of library and kernel scratch, 32 MiB */
    } device;
    struct {
        plait_comm_choice backend;
        int64_t chunk_bytes; /* largest message, 4 MiB */
        double timeout_minutes;
    } comm;
    struct {
        plait_reduction_mode reduction;
        int64_t tensor_slices; /* of invariant alone: plait_config_slices */
        plait_fingerprint_of fingerprint;
    } numerics;
    struct {
        char tensor_hashes[PLAIT_PATH_MAX]; /* "": none */
    } debug;

    /* Where each value came from; parallel to the key table. Owned by the config: plait_config_deinit. */
    struct plait_config_origin *origins;
    char file[PLAIT_PATH_MAX];
} plait_config;

/* Reads `path` (NULL: defaults only), then `overrides` ("section.key=value", aliases allowed, the last of several
 * wins). Checks names, types and bounds, and fills the auto values that do not need the number of ranks. On failure
 * PLAIT_USAGE (or PLAIT_IO for an unreadable file) whose text lists every error, a line each; cfg is then to be
 * deinitialised by nobody. A field is changed by an override, not by hand: resolving derives again what was not given.
 */
PLAIT_MUST_USE plait_status plait_config_load(plait_config *cfg, const char *path, const char *const *overrides,
                                              int num_overrides);
/* Settles what depends on the number of ranks: dp, the batch triple, padded vocabulary, pipeline schedule;
 * device.threads stays as it is. PLAIT_USAGE lists all contradictions between keys, with the arithmetic: heads and tp,
 * layers and pipeline_layout, batch = micro x accumulation x dp, world = tp pp dp ("but there are 4"),
 * sequence_parallel and seq_length, ... May be called again, also with another number. */
PLAIT_MUST_USE plait_status plait_config_resolve(plait_config *cfg, int world_size);
/* Whether a run would write over what it reads: an output that is the text, the configuration file, weights to load
 * (but save_weights may be load_weights), or another output, under whatever name. Looks at the file system, changes
 * nothing. PLAIT_USAGE lists all pairs. */
PLAIT_MUST_USE plait_status plait_config_check_files(const plait_config *cfg);
/* A line for each key that the file gives and that does nothing in this configuration; nothing if there are none. (In
 * an override such a key is an error.) After plait_config_resolve. */
void plait_config_print_idle(const plait_config *cfg, FILE *out);
/* Without ranks to count (plait config, plan): tp x pp x dp, with dp from the file or 1. PLAIT_USAGE if it is no int.
 */
PLAIT_MUST_USE plait_status plait_config_natural_world(const plait_config *cfg, int *world_size);
/* Deinitialising a zeroed one is fine. */
void plait_config_deinit(plait_config *cfg);

/* Prints every key with its value and origin ("file.yaml:12", "override", "default", "derived"), as aligned text or as
 * one JSON object {"dotted.key": {"value", "origin", "file", "line"}}, in which bytes of a path that are not UTF-8 are
 * U+FFFD each. */
void plait_config_print(const plait_config *cfg, FILE *out, bool json);
/* The reference page docs/configuration.md, from the table. */
void plait_config_print_reference(FILE *out);

/* A line "section.key: value" a key: ranks compare their texts to find out that they were given different
 * configurations. The caller frees it; NULL: no memory. */
char *plait_config_dump(const plait_config *cfg);

/* First layer of (virtual) stage k of S; the stage has layers [first(k), first(k + 1)). From pipeline_layout, or by the
 * default rule floor(k L / S). */
int64_t plait_config_first_layer(const plait_config *cfg, int64_t k, int64_t S);
/* Slices into which split matrices are cut: numerics.tensor_slices with reduction invariant, else one a tensor rank. */
int64_t plait_config_slices(const plait_config *cfg);

PLAIT_END_DECLS
#endif
