#include "launcher/hash_file.h"

#include <inttypes.h>

#include "parallel/tensor_hashes.h"

/* What the list of records and the shape of each result follow from, as overrides. */
static void print_model(FILE *out, const plait_config *cfg)
{
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {
        {"model.num_layers", cfg->model.num_layers},
        {"model.hidden_size", cfg->model.hidden_size},
        {"model.ffn_hidden_size", cfg->model.ffn_hidden_size},
        {"model.num_attention_heads", cfg->model.num_attention_heads},
        {"model.num_query_groups", cfg->model.num_query_groups},
        {"model.kv_channels", cfg->model.kv_channels},
        {"model.seq_length", cfg->model.seq_length},
        {"model.padded_vocab_size", cfg->model.padded_vocab_size},
        {"batch.micro_batch_size", cfg->batch.micro_batch_size},
        {"numerics.tensor_slices", cfg->numerics.tensor_slices},
    };
    fprintf(out, "# model.arch=%s precision.dtype=%s", cfg->model.arch == PLAIT_ARCH_LLAMA ? "llama" : "gpt2",
            plait_dtype_name(cfg->precision.dtype));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        fprintf(out, " %s=%lld", numbers[i].key, (long long)numbers[i].value);
    fputc('\n', out);
}

static plait_status begin(plait_hash_file *f, const plait_config *cfg)
{
    PLAIT_TRY(plait_line_file_open(&f->file, "debug.tensor_hashes", cfg->debug.tensor_hashes));
    FILE *out = f->file.out;
    const long long tp = cfg->parallelism.tp, pp = cfg->parallelism.pp, dp = cfg->parallelism.dp;
    fputs(PLAIT_HASH_FILE_FIRST "\n", out);
    print_model(out, cfg);
    fprintf(out, "# ranks=%lld tensor=%lld pipeline=%lld data=%lld order=%s\n", tp * pp * dp, tp, pp, dp,
            cfg->parallelism.order);
    fputs(PLAIT_HASH_FILE_COLUMNS "\n", out);
    return plait_line_file_flush(&f->file);
}

plait_status plait_hash_file_open(plait_hash_file *f, plait_comm *world, const plait_config *cfg)
{
    const bool writes = cfg->debug.tensor_hashes[0] && plait_comm_rank(world) == 0;
    *f = (plait_hash_file){0};
    return plait_comm_agree(world, writes ? begin(f, cfg) : PLAIT_OK);
}

void plait_hash_file_close(plait_hash_file *f)
{
    plait_line_file_close(&f->file);
}

typedef struct writer {
    FILE *out;
    const plait_topology *topo;
    int64_t step;
} writer;

/* plait_hash_visit */
static void print_record(void *self, const plait_hash_record *r)
{
    const writer *w = self;
    fprintf(w->out, "%lld\t", (long long)w->step);
    if (plait_hash_op_of_step(r->op)) {
        fprintf(w->out, "-\t%s\t%s\t-\t-\t%016" PRIx64 "\t-\t-\n", r->tensor, plait_hash_op_name(r->op), r->hash);
        return;
    }
    fprintf(w->out, "%lld\t", (long long)r->micro);
    if (plait_hash_op_of_layer(r->op))
        fprintf(w->out, "%lld", (long long)r->layer);
    else
        fputs(r->op == PLAIT_HASH_EMBEDDING ? "embedding" : "head", w->out);
    fprintf(w->out, "\t%s\t%s\t", plait_hash_op_name(r->op), r->backward ? "backward" : "forward");
    if (r->slice < 0)
        fputc('-', w->out);
    else
        fprintf(w->out, "%d", r->slice);
    const plait_topology there = plait_topology_at(w->topo, r->rank);
    fprintf(w->out, "\t%016" PRIx64 "\t%d\td%d p%d t%d\n", r->hash, r->rank, there.d, there.p, there.t);
}

plait_status plait_hash_file_step(plait_hash_file *f, const plait_engine *e, int64_t step)
{
    if (!f->file.out)
        return PLAIT_OK;
    writer w = {f->file.out, plait_engine_topology(e), step};
    plait_hashes_visit(plait_engine_hashes(e), print_record, &w);
    return plait_line_file_flush(&f->file);
}

plait_status plait_hash_file_end(plait_hash_file *f)
{
    if (!f->file.out)
        return PLAIT_OK;
    fputs(PLAIT_HASH_FILE_LAST "\n", f->file.out);
    return plait_line_file_flush(&f->file);
}
