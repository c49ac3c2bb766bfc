/* What one key says about another: derived values and contradictions. */
#include "core/config.h"

#include "core/config_impl.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef long long ll; /* for printf */

#define TP  "parallelism.tensor_model_parallel_size"
#define PP  "parallelism.pipeline_model_parallel_size"
#define DP  "parallelism.data_parallel_size"
#define VPP "parallelism.virtual_pipeline_model_parallel_size"

static int row_of(const char *path)
{
    bool negated;
    int row = plait_config_find(path, &negated);
    assert(row >= 0);
    return row;
}

void plait_config_place(const plait_config *cfg, const char *path, char *out, size_t size)
{
    const struct plait_config_origin *o = &cfg->origins[row_of(path)];
    out[0] = '\0';
    if (o->kind == PLAIT_ORIGIN_FILE)
        snprintf(out, size, "%.300s:%d:%d: ", cfg->file, o->line, o->column);
    else if (o->kind == PLAIT_ORIGIN_OVERRIDE)
        snprintf(out, size, "override: ");
}

static bool is_given(const plait_config *cfg, const char *path)
{
    plait_origin_kind kind = cfg->origins[row_of(path)].kind;
    return kind == PLAIT_ORIGIN_FILE || kind == PLAIT_ORIGIN_OVERRIDE;
}

/* True if the value is to be derived (again). */
static bool derives(plait_config *cfg, const char *path)
{
    if (is_given(cfg, path))
        return false;
    cfg->origins[row_of(path)].kind = PLAIT_ORIGIN_DERIVED;
    return true;
}

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* Key/value heads are split among the slices or shared by them. */
static bool groups_fit(const plait_config *cfg, int64_t slices)
{
    const int64_t groups = cfg->model.num_query_groups;
    return groups % slices == 0 || slices % groups == 0;
}

/* The largest power of two up to 8 into which the model can be cut: every usual number of tensor ranks divides it. */
static int64_t usual_slices(const plait_config *cfg)
{
    int64_t slices = 8;
    while (cfg->model.num_attention_heads % slices != 0 || cfg->model.ffn_hidden_size % slices != 0 ||
           !groups_fit(cfg, slices))
        slices /= 2;
    return slices;
}

int64_t plait_config_slices(const plait_config *cfg)
{
    return cfg->numerics.reduction == PLAIT_REDUCTION_INVARIANT ? cfg->numerics.tensor_slices : cfg->parallelism.tp;
}

void plait_config_derive(plait_config *cfg)
{
    bool llama = cfg->model.arch == PLAIT_ARCH_LLAMA;
    int64_t h = cfg->model.hidden_size;
    if (derives(cfg, "model.ffn_hidden_size")) /* 4096 gives 11008, as in Llama 2 7B */
        cfg->model.ffn_hidden_size = llama ? round_up(8 * h / 3, 256) : 4 * h;
    if (derives(cfg, "model.num_query_groups"))
        cfg->model.num_query_groups = cfg->model.num_attention_heads;
    if (derives(cfg, "model.kv_channels"))
        cfg->model.kv_channels = h / cfg->model.num_attention_heads;
    if (derives(cfg, "model.max_position_embeddings"))
        cfg->model.max_position_embeddings = cfg->model.seq_length;
    if (derives(cfg, "model.tie_word_embeddings"))
        cfg->model.tie_word_embeddings = !llama;
    if (derives(cfg, "model.normalization"))
        cfg->model.normalization = llama ? PLAIT_NORM_RMSNORM : PLAIT_NORM_LAYERNORM;
    if (derives(cfg, "model.position_embedding_type"))
        cfg->model.position_embedding = llama ? PLAIT_POSITION_ROPE : PLAIT_POSITION_LEARNED;
    if (derives(cfg, "model.swiglu"))
        cfg->model.swiglu = llama;
    if (derives(cfg, "precision.communication_data_type"))
        cfg->precision.communication_dtype = plait_dtype_acc(cfg->precision.dtype);
    if (derives(cfg, "numerics.tensor_slices"))
        cfg->numerics.tensor_slices =
            cfg->numerics.reduction == PLAIT_REDUCTION_INVARIANT ? usual_slices(cfg) : cfg->parallelism.tp;
    if (derives(cfg, "lr_scheduler.decay_iters"))
        cfg->lr.decay_iters = cfg->train.train_iters;
    if (derives(cfg, "lr_scheduler.wsd_decay_iters"))
        cfg->lr.wsd_decay_iters = (cfg->lr.decay_iters + 9) / 10;
}

/* ---- contradictions ---- */

typedef struct checker {
    plait_config *cfg;
    plait_errors errors;
} checker;

static void clash(checker *c, const char *path, const char *format, ...) PLAIT_PRINTF(3, 4);

/* One contradiction, at the place of the key that leads to it. The sentence begins behind the key's name. */
static void clash(checker *c, const char *path, const char *format, ...)
{
    char text[900], where[400] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    plait_config_place(c->cfg, path, where, sizeof where);
    plait_errors_add(&c->errors, "%s%s %s", where, path, text);
}

/* Keys that do something in some configurations only. */
typedef struct effect {
    const char *path;
    bool here;        /* in this one */
    const char *with; /* what it takes */
} effect;
enum { EFFECTS = 17 };

static void effects_of(const plait_config *cfg, effect out[EFFECTS])
{
    const bool selective = cfg->recompute.granularity == PLAIT_RECOMPUTE_SELECTIVE;
    const bool full = cfg->recompute.granularity == PLAIT_RECOMPUTE_FULL;
    const bool sgd = cfg->optimizer.type == PLAIT_OPTIM_SGD, wsd = cfg->lr.style == PLAIT_LR_WSD;
    const bool decays = cfg->lr.style != PLAIT_LR_CONSTANT, fp16 = cfg->precision.dtype == PLAIT_FP16;
    const bool dynamic = fp16 && cfg->precision.loss_scale == 0;
    const bool tf32 = cfg->precision.dtype == PLAIT_FP32 && cfg->device.backend != PLAIT_BACKEND_CPU;
    const effect all[EFFECTS] = {
        {"zero_optimization.prefetch_units", cfg->zero.stage == 3, "zero_optimization.stage 3"},
        {"precision.allow_tf32", tf32, "precision.dtype fp32 and device.backend cuda or auto"},
        {"precision.fp16.loss_scale", fp16, "precision.dtype fp16"},
        {"precision.fp16.initial_scale_power", dynamic, "precision.dtype fp16 and loss_scale 0"},
        {"precision.fp16.loss_scale_window", dynamic, "precision.dtype fp16 and loss_scale 0"},
        {"precision.fp16.hysteresis", dynamic, "precision.dtype fp16 and loss_scale 0"},
        {"precision.fp16.min_loss_scale", dynamic, "precision.dtype fp16 and loss_scale 0"},
        {"recompute.modules", selective, "recompute.granularity selective"},
        {"recompute.method", full, "recompute.granularity full"},
        {"recompute.num_layers", full, "recompute.granularity full"},
        {"optimizer.momentum", sgd, "optimizer.type SGD"},
        {"optimizer.betas", !sgd, "optimizer.type AdamW"},
        {"optimizer.eps", !sgd, "optimizer.type AdamW"},
        {"optimizer.min_lr", decays, "lr_scheduler.style linear, cosine or WSD"},
        {"lr_scheduler.decay_iters", decays, "lr_scheduler.style linear, cosine or WSD"},
        {"lr_scheduler.wsd_decay_iters", wsd, "lr_scheduler.style WSD"},
        {"numerics.tensor_slices", cfg->numerics.reduction == PLAIT_REDUCTION_INVARIANT,
         "numerics.reduction invariant"},
    };
    memcpy(out, all, sizeof all);
}

/* Who gives such a key in an override wants an effect of it. In a file it may serve other runs of the same file. */
static void check_effects(checker *c)
{
    effect all[EFFECTS];
    effects_of(c->cfg, all);
    for (int i = 0; i < EFFECTS; i++)
        if (!all[i].here && c->cfg->origins[row_of(all[i].path)].kind == PLAIT_ORIGIN_OVERRIDE)
            clash(c, all[i].path, "has an effect only with %s: set it to null", all[i].with);
}

void plait_config_print_idle(const plait_config *cfg, FILE *out)
{
    effect all[EFFECTS];
    effects_of(cfg, all);
    for (int i = 0; i < EFFECTS; i++) {
        const struct plait_config_origin *o = &cfg->origins[row_of(all[i].path)];
        if (!all[i].here && o->kind == PLAIT_ORIGIN_FILE)
            fprintf(out, "%s:%d:%d: %s has no effect here, only with %s\n", cfg->file, o->line, o->column, all[i].path,
                    all[i].with);
    }
}

static const char *arch_name(const plait_config *cfg)
{
    return cfg->model.arch == PLAIT_ARCH_LLAMA ? "llama" : "gpt2";
}

static void check_arch(checker *c)
{
    const plait_config *cfg = c->cfg;
    bool llama = cfg->model.arch == PLAIT_ARCH_LLAMA;
    if ((cfg->model.normalization == PLAIT_NORM_RMSNORM) != llama)
        clash(c, "model.normalization", "%s does not go with model.arch %s, which has %s",
              llama ? "LayerNorm" : "RMSNorm", arch_name(cfg), llama ? "RMSNorm" : "LayerNorm");
    if ((cfg->model.position_embedding == PLAIT_POSITION_ROPE) != llama)
        clash(c, "model.position_embedding_type", "%s does not go with model.arch %s, which has %s",
              llama ? "learned_absolute" : "rope", arch_name(cfg), llama ? "rope" : "learned_absolute");
    if (cfg->model.swiglu != llama)
        clash(c, "model.swiglu", "%s does not go with model.arch %s", cfg->model.swiglu ? "true" : "false",
              arch_name(cfg));
    if (!llama && is_given(cfg, "model.rotary_base"))
        clash(c, "model.rotary_base", "has no effect with model.arch gpt2: set it to null");
}

static void check_shapes(checker *c)
{
    const plait_config *cfg = c->cfg;
    ll h = cfg->model.hidden_size, heads = cfg->model.num_attention_heads, groups = cfg->model.num_query_groups;
    ll tp = cfg->parallelism.tp, ffn = cfg->model.ffn_hidden_size, seq = cfg->model.seq_length;
    bool llama = cfg->model.arch == PLAIT_ARCH_LLAMA;

    if (!is_given(cfg, "model.kv_channels") && h % heads != 0)
        clash(c, "model.hidden_size",
              "%lld is not a multiple of model.num_attention_heads %lld (or give the size of a head, "
              "model.kv_channels)",
              h, heads);
    else if (llama && cfg->model.kv_channels % 2 != 0)
        clash(c, "model.kv_channels", "%lld is odd: RoPE turns pairs", (ll)cfg->model.kv_channels);
    else if (!llama && cfg->model.kv_channels * heads != h)
        clash(c, "model.kv_channels",
              "%lld * model.num_attention_heads %lld = %lld is not model.hidden_size %lld (gpt2)",
              (ll)cfg->model.kv_channels, heads, cfg->model.kv_channels * heads, h);
    if (heads % tp != 0)
        clash(c, "model.num_attention_heads", "%lld is not a multiple of " TP " %lld", heads, tp);
    if (heads % groups != 0)
        clash(c, "model.num_query_groups", "%lld does not divide model.num_attention_heads %lld", groups, heads);
    else if (!llama && groups != heads)
        clash(c, "model.num_query_groups", "%lld must be model.num_attention_heads %lld with model.arch gpt2", groups,
              heads);
    if (groups % tp != 0 && tp % groups != 0)
        clash(c, "model.num_query_groups",
              "%lld and " TP " %lld: neither is a multiple of the other, so key/value heads can be neither split nor "
              "replicated",
              groups, tp);
    if (ffn % tp != 0)
        clash(c, "model.ffn_hidden_size", "%lld is not a multiple of " TP " %lld", ffn, tp);
    if (cfg->parallelism.sequence_parallel && seq % tp != 0)
        clash(c, "model.seq_length", "%lld is not a multiple of " TP " %lld, as parallelism.sequence_parallel needs",
              seq, tp);
    if (seq > cfg->model.max_position_embeddings)
        clash(c, "model.seq_length", "%lld is above model.max_position_embeddings %lld", seq,
              (ll)cfg->model.max_position_embeddings);
    if (cfg->data.path[0] && cfg->model.vocab_size < 257)
        clash(c, "model.vocab_size", "%lld is below the 257 ids of data.tokenizer bytes", (ll)cfg->model.vocab_size);
}

/* What sums in one order for every topology take: slices that are alike on every number of tensor ranks. */
static void check_invariant(checker *c)
{
    const plait_config *cfg = c->cfg;
    const ll slices = cfg->numerics.tensor_slices, tp = cfg->parallelism.tp;
    const ll heads = cfg->model.num_attention_heads, ffn = cfg->model.ffn_hidden_size;
    if (cfg->numerics.reduction != PLAIT_REDUCTION_INVARIANT) {
        if (cfg->debug.tensor_hashes[0])
            clash(c, "debug.tensor_hashes",
                  "needs numerics.reduction invariant: with fast each topology has bits of its own, whose hashes say "
                  "nothing");
        return;
    }
    if (cfg->precision.dtype == PLAIT_FP64)
        clash(c, "numerics.reduction", "invariant has no fp64 (precision.dtype): its sums of gradients are rounded");
    if (cfg->precision.communication_dtype != plait_dtype_acc(cfg->precision.dtype))
        clash(c, "precision.communication_data_type",
              "%s rounds gradients by how ranks share them: numerics.reduction invariant takes fp32",
              plait_dtype_name(cfg->precision.communication_dtype));
    if ((slices & (slices - 1)) != 0)
        clash(c, "numerics.tensor_slices", "%lld is not a power of two", slices);
    if (slices % tp != 0)
        clash(
            c, TP,
            "%lld does not divide numerics.tensor_slices %lld, which has to be a power of two and the same in all runs "
            "that are compared",
            tp, slices);
    if (heads % slices != 0)
        clash(c, "numerics.tensor_slices", "%lld does not divide model.num_attention_heads %lld", slices, heads);
    if (ffn % slices != 0)
        clash(c, "numerics.tensor_slices", "%lld does not divide model.ffn_hidden_size %lld", slices, ffn);
    if (!groups_fit(cfg, slices))
        clash(c, "numerics.tensor_slices", "%lld and model.num_query_groups %lld: neither is a multiple of the other",
              slices, (ll)cfg->model.num_query_groups);
}

static void check_pipeline(checker *c)
{
    const plait_config *cfg = c->cfg;
    ll pp = cfg->parallelism.pp, v = cfg->parallelism.num_chunks, stages = pp * v;
    bool given = is_given(cfg, "parallelism.pipeline_schedule");
    if (v > 1 && pp == 1)
        clash(c, VPP, "%lld needs " PP " above 1", v);
    if (given && cfg->parallelism.schedule == PLAIT_PIPE_INTERLEAVED && v == 1)
        clash(c, "parallelism.pipeline_schedule", "interleaved needs " VPP " above 1");
    if (given && cfg->parallelism.schedule != PLAIT_PIPE_INTERLEAVED && v > 1)
        clash(c, "parallelism.pipeline_schedule",
              "%s has one chunk a rank, but " VPP " is %lld: interleaved has several",
              cfg->parallelism.schedule == PLAIT_PIPE_GPIPE ? "gpipe" : "1f1b", v);
    if (stages > PLAIT_MAX_STAGES) {
        clash(c, PP, "%lld * " VPP " %lld = %lld stages are more than %d", pp, v, stages, PLAIT_MAX_STAGES);
        return;
    }
    if (!is_given(cfg, "parallelism.pipeline_layout"))
        return;
    ll sum = 0, len = cfg->parallelism.layout_len;
    for (int64_t i = 0; i < cfg->parallelism.layout_len; i++)
        sum += cfg->parallelism.layout[i];
    if (len != stages)
        clash(c, "parallelism.pipeline_layout", "lists %lld stages, but " PP " %lld * " VPP " %lld = %lld", len, pp, v,
              stages);
    if (sum != cfg->model.num_layers)
        clash(c, "parallelism.pipeline_layout", "has %lld layers in all, but model.num_layers is %lld", sum,
              (ll)cfg->model.num_layers);
}

static void check_memory(checker *c)
{
    const plait_config *cfg = c->cfg;
    ll stage = cfg->zero.stage;
    if (cfg->parallelism.dp_algorithm == PLAIT_DP_GATHER_TO_ROOT && stage != 0)
        clash(c, "parallelism.data_parallel_algorithm", "gather_to_root needs zero_optimization.stage 0, not %lld",
              stage);
    if (cfg->zero.keep_full_gradients && stage != 2)
        clash(c, "zero_optimization.keep_full_gradients", "true needs zero_optimization.stage 2, not %lld", stage);
    if (cfg->recompute.granularity == PLAIT_RECOMPUTE_SELECTIVE && cfg->recompute.modules == 0)
        clash(c, "recompute.modules", "is empty, but recompute.granularity is selective");
    if (cfg->recompute.num_layers > cfg->model.num_layers)
        clash(c, "recompute.num_layers", "%lld is above model.num_layers %lld", (ll)cfg->recompute.num_layers,
              (ll)cfg->model.num_layers);
}

static void check_loss_scale(checker *c)
{
    const plait_config *cfg = c->cfg;
    const double first = ldexp(1, (int)cfg->precision.initial_scale_power);
    if (cfg->precision.dtype != PLAIT_FP16 || cfg->precision.loss_scale != 0 || cfg->precision.min_loss_scale <= first)
        return;
    char least[32], begin[32];
    plait_double_text(cfg->precision.min_loss_scale, least, sizeof least);
    plait_double_text(first, begin, sizeof begin);
    clash(c, "precision.fp16.min_loss_scale", "%s is above the first scale, 2^initial_scale_power %lld = %s", least,
          (ll)cfg->precision.initial_scale_power, begin);
}

/* Of a learning rate that does not stay. */
static void check_decay(checker *c)
{
    const plait_config *cfg = c->cfg;
    if (cfg->optimizer.min_lr > cfg->optimizer.lr) {
        char min_lr[32], lr[32];
        plait_double_text(cfg->optimizer.min_lr, min_lr, sizeof min_lr);
        plait_double_text(cfg->optimizer.lr, lr, sizeof lr);
        clash(c, "optimizer.min_lr", "%s is above optimizer.lr %s", min_lr, lr);
    }
    const bool wsd = cfg->lr.style == PLAIT_LR_WSD;
    const char *end = is_given(cfg, "lr_scheduler.decay_iters") ? "lr_scheduler.decay_iters" : "train.train_iters";
    ll warmup = cfg->lr.warmup_iters, decay = cfg->lr.decay_iters, tail = wsd ? cfg->lr.wsd_decay_iters : 0;
    if (wsd && warmup + tail > decay)
        clash(c, "lr_scheduler.warmup_iters", "%lld + lr_scheduler.wsd_decay_iters %lld = %lld is above %s %lld",
              warmup, tail, warmup + tail, end, decay);
    else if (warmup > decay)
        clash(c, "lr_scheduler.warmup_iters", "%lld is above %s %lld", warmup, end, decay);
}

/* What GPUs do not do; an auto that turns out to be one of theirs takes the host instead. */
static void check_backend(checker *c)
{
    const plait_config *cfg = c->cfg;
    const bool cuda = cfg->device.backend == PLAIT_BACKEND_CUDA, carries_cuda = cfg->comm.backend > PLAIT_COMM_MPI;
    if (cuda && cfg->precision.dtype == PLAIT_FP64)
        clash(c, "precision.dtype", "fp64 is computed on the host: device.backend cpu or auto");
    if (cuda && cfg->numerics.reduction == PLAIT_REDUCTION_INVARIANT)
        clash(c, "numerics.reduction", "invariant is computed on the host: device.backend cpu or auto");
    if (cuda && cfg->device.kernels != PLAIT_KERNELS_AUTO)
        clash(c, "device.kernels", "ref and cpu are kernels of the host, and device.backend is cuda");
    if (cuda && cfg->comm.backend == PLAIT_COMM_MPI)
        clash(c, "comm.backend", "mpi carries tensors of the host, and device.backend is cuda: nccl or staged");
    if (cfg->device.backend == PLAIT_BACKEND_CPU && carries_cuda)
        clash(c, "comm.backend", "nccl and staged carry tensors of GPUs, and device.backend is cpu: mpi or auto");
}

static void check_numbers(checker *c)
{
    const plait_config *cfg = c->cfg;
    const char *dtype = plait_dtype_name(cfg->precision.dtype);
    if ((cfg->precision.communication_dtype == PLAIT_FP64) != (cfg->precision.dtype == PLAIT_FP64))
        clash(c, "precision.communication_data_type", "%s does not go with precision.dtype %s",
              plait_dtype_name(cfg->precision.communication_dtype), dtype);
    if (cfg->precision.dtype == PLAIT_FP64 && cfg->device.kernels == PLAIT_KERNELS_CPU)
        clash(c, "device.kernels", "cpu has no fp64 (precision.dtype): take ref or auto");

    check_backend(c);
    check_loss_scale(c);
    if (cfg->lr.style != PLAIT_LR_CONSTANT)
        check_decay(c);
    if (cfg->train.eval_interval > 0 && !(cfg->data.split[1] > 0.0))
        clash(c, "train.eval_interval", "%lld needs a validation part, but its weight in data.split is 0",
              (ll)cfg->train.eval_interval);
}

/* Counts of elements and bytes are 64-bit numbers all over the program: no tensor and no sum of them comes near their
 * end. Far above any machine, so these estimates need neither biases nor care. */
static void check_size(checker *c)
{
    const double most_parameters = 0x1p56, most_elements = 0x1p58;
    const plait_config *cfg = c->cfg;
    double h = (double)cfg->model.hidden_size, ffn = (double)cfg->model.ffn_hidden_size;
    double head = (double)cfg->model.kv_channels, heads = (double)cfg->model.num_attention_heads;
    double qkv = head * (heads + 2 * (double)cfg->model.num_query_groups), vocab = (double)cfg->model.padded_vocab_size;
    double seq = (double)cfg->model.seq_length, samples = (double)cfg->batch.micro_batch_size;
    double parameters = (double)cfg->model.num_layers * h * (qkv + head * heads + 3 * ffn) +
                        h * (2 * vocab + (double)cfg->model.max_position_embeddings);
    if (parameters > most_parameters)
        clash(c, "model.num_layers",
              "%lld of model.hidden_size %lld: about %.2g parameters, more than the %.2g that are counted",
              (ll)cfg->model.num_layers, (ll)cfg->model.hidden_size, parameters, most_parameters);
    double widest = vocab > 3 * ffn ? vocab : 3 * ffn;
    widest = qkv > widest ? qkv : widest;
    widest = heads * seq > widest ? heads * seq : widest; /* attention's probabilities */
    if (samples * seq * widest > most_elements)
        clash(c, "model.seq_length",
              "%lld with batch.micro_batch_size %lld: a tensor of about %.2g elements, more than the %.2g that are "
              "counted",
              (ll)cfg->model.seq_length, (ll)cfg->batch.micro_batch_size, samples * seq * widest, most_elements);
}

/* ---- ranks and batch ---- */

/* Settles dp; 0 if the ranks do not fit. */
static int64_t settle_dp(checker *c, int world)
{
    plait_config *cfg = c->cfg;
    ll tp = cfg->parallelism.tp, pp = cfg->parallelism.pp, dp = cfg->parallelism.dp;
    if (!derives(cfg, DP)) {
        if (tp * pp * dp != world)
            clash(c, DP,
                  "%lld: tensor %lld * pipeline %lld * data %lld = %lld ranks are needed, but there %s %d (null: what "
                  "the ranks allow)",
                  dp, tp, pp, dp, tp * pp * dp, world == 1 ? "is" : "are", world);
        return dp; /* what else is wrong can still be said */
    }
    cfg->parallelism.dp = PLAIT_AUTO;
    if (world % (tp * pp) != 0) {
        clash(c, TP, "%lld * " PP " %lld = %lld does not divide the %d %s", tp, pp, tp * pp, world,
              world == 1 ? "rank" : "ranks");
        return 0;
    }
    return cfg->parallelism.dp = world / (tp * pp);
}

/* Sizes of the global batch while it grows; `together`: samples of one micro-batch of all data ranks. */
static void check_rampup(checker *c, ll together)
{
    enum { MOST_SIZES = 512 }; /* a schedule is made for each before the first step */
    const plait_config *cfg = c->cfg;
    ll start = cfg->batch.rampup_start, by = cfg->batch.rampup_increment, global = cfg->batch.global_batch_size;
    ll micro = cfg->batch.micro_batch_size, d = together / micro;
    if (start % together != 0)
        clash(c, "batch.rampup_batch_size",
              "start %lld is not a multiple of micro_batch_size %lld * data ranks %lld = %lld", start, micro, d,
              together);
    if (by % together != 0)
        clash(c, "batch.rampup_batch_size",
              "increment %lld is not a multiple of micro_batch_size %lld * data ranks %lld = %lld", by, micro, d,
              together);
    if (start >= global)
        clash(c, "batch.rampup_batch_size", "start %lld is not below global_batch_size %lld", start, global);
    else if ((global - start) % by != 0)
        clash(c, "batch.rampup_batch_size",
              "global_batch_size %lld - start %lld = %lld is not a multiple of increment %lld", global, start,
              global - start, by);
    else if ((global - start) / by + 1 > MOST_SIZES)
        clash(c, "batch.rampup_batch_size", "from %lld to global_batch_size %lld by %lld are %lld sizes, above %d",
              start, global, by, (global - start) / by + 1, MOST_SIZES);
}

static void settle_batch(checker *c, int64_t dp, int world)
{
    plait_config *cfg = c->cfg;
    bool micro_given = !derives(cfg, "batch.micro_batch_size");
    bool accum_given = !derives(cfg, "batch.gradient_accumulation_steps");
    bool global_given = !derives(cfg, "batch.global_batch_size");
    ll micro = micro_given ? cfg->batch.micro_batch_size : 1;
    ll accum = accum_given ? cfg->batch.accumulation : 1;
    ll global = cfg->batch.global_batch_size, d = dp;
    char ranks[160] = "";
    if (d * cfg->parallelism.tp * cfg->parallelism.pp == world)
        snprintf(ranks, sizeof ranks, " (data %lld = %d %s / (tensor %lld * pipeline %lld))", d, world,
                 world == 1 ? "rank" : "ranks", (ll)cfg->parallelism.tp, (ll)cfg->parallelism.pp);

    enum { LARGEST = 1 << 30 }; /* as the key table has it */
    if (d > LARGEST / (micro * accum)) {
        clash(
            c, "batch.global_batch_size",
            "is micro_batch_size %lld * gradient_accumulation_steps %lld * data ranks %lld, above the largest value %d",
            micro, accum, d, LARGEST);
        return;
    }
    if (!global_given) {
        global = micro * accum * d;
    } else if (micro_given && accum_given) {
        if (global != micro * accum * d)
            clash(c, "batch.global_batch_size",
                  "is not micro_batch_size * gradient_accumulation_steps * data ranks: %lld != %lld * %lld * %lld%s",
                  global, micro, accum, d, ranks);
    } else if (accum_given) {
        micro = global / (accum * d);
        if (global % (accum * d) != 0)
            clash(c, "batch.global_batch_size",
                  "%lld is not a multiple of gradient_accumulation_steps %lld * data ranks %lld = %lld%s", global,
                  accum, d, accum * d, ranks);
    } else {
        accum = global / (micro * d);
        if (global % (micro * d) != 0)
            clash(c, "batch.global_batch_size",
                  "%lld is not a multiple of micro_batch_size %lld * data ranks %lld = %lld%s", global, micro, d,
                  micro * d, ranks);
    }
    cfg->batch.micro_batch_size = micro;
    cfg->batch.accumulation = accum;
    cfg->batch.global_batch_size = global;

    if (micro >= 1 && is_given(cfg, "batch.rampup_batch_size")) /* no micro-batch at all has been said above */
        check_rampup(c, micro * d);
}

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

plait_status plait_config_resolve(plait_config *cfg, int world_size)
{
    checker *c = (checker *)calloc(1, sizeof *c);
    if (!c)
        PLAIT_FAIL(OUT_OF_MEMORY, "%zu bytes to check a configuration", sizeof *c);
    c->cfg = cfg;
    plait_config_derive(cfg);

    check_arch(c);
    check_shapes(c);
    check_invariant(c);
    check_pipeline(c);
    check_memory(c);
    check_numbers(c);
    check_effects(c);
    int64_t dp = settle_dp(c, world_size);
    if (dp > 0)
        settle_batch(c, dp, world_size);

    if (derives(cfg, "parallelism.pipeline_schedule"))
        cfg->parallelism.schedule = cfg->parallelism.num_chunks > 1 ? PLAIT_PIPE_INTERLEAVED : PLAIT_PIPE_1F1B;
    int64_t div = cfg->model.make_vocab_size_divisible_by, parts = plait_config_slices(cfg);
    cfg->model.padded_vocab_size = round_up(cfg->model.vocab_size, div / gcd(div, parts) * parts);
    cfg->origins[row_of("model.padded_vocab_size")].kind = PLAIT_ORIGIN_DERIVED;
    check_size(c);

    plait_status st = plait_errors_status(&c->errors);
    free(c);
    return st;
}

plait_status plait_config_natural_world(const plait_config *cfg, int *world_size)
{
    int64_t dp = is_given(cfg, DP) ? cfg->parallelism.dp : 1;
    int64_t world = cfg->parallelism.tp * cfg->parallelism.pp * dp; /* bounds keep this below 2^47 */
    if (world > INT_MAX)
        PLAIT_FAIL(USAGE, "tensor %lld * pipeline %lld * data %lld = %lld ranks are more than %d",
                   (ll)cfg->parallelism.tp, (ll)cfg->parallelism.pp, (ll)dp, (ll)world, INT_MAX);
    *world_size = (int)world;
    return PLAIT_OK;
}

int64_t plait_config_first_layer(const plait_config *cfg, int64_t k, int64_t S)
{
    if (cfg->parallelism.layout_len == 0)
        return k * cfg->model.num_layers / S;
    int64_t first = 0;
    for (int64_t i = 0; i < k && i < cfg->parallelism.layout_len; i++)
        first += cfg->parallelism.layout[i];
    return first;
}
