#include "launcher/banner.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 64 }; /* ranks, and groups of a kind, beyond so many are counted, not listed */

const char *plait_grouped(int64_t n)
{
    static char ring[4][32];
    static int next;
    char digits[24], *out = ring[next = (next + 1) % 4];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)n), k = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0 && digits[i - 1] != '-')
            out[k++] = ',';
        out[k++] = digits[i];
    }
    out[k] = '\0';
    return out;
}

static void print_grid(const plait_topology *topo, const plait_config *cfg, FILE *out)
{
    const int replica = topo->tp * topo->pp;
    fprintf(out, "ranks: %d = tensor %d x pipeline %d x data %d, order %s\n", topo->world, topo->tp, topo->pp, topo->dp,
            cfg->parallelism.order);
    const int drawn = topo->dp * replica <= MAX_ROWS ? topo->dp : MAX_ROWS / replica;
    for (int d = 0; d < drawn; d++) {
        fprintf(out, "  data %-3d", d);
        for (int t = 0; t < topo->tp; t++)
            fprintf(out, " t%-4d", t);
        fputc('\n', out);
        for (int p = 0; p < topo->pp; p++) {
            fprintf(out, "    p%-4d ", p);
            for (int t = 0; t < topo->tp; t++)
                fprintf(out, " %-5d", plait_topology_rank_of(topo, d, p, t));
            fputc('\n', out);
        }
    }
    if (drawn > 0 && drawn < topo->dp)
        fprintf(out, "  and %d more, up to data %d\n", topo->dp - drawn, topo->dp - 1);
    else if (drawn == 0)
        fprintf(out, "  not drawn: data 0 to %d, %d ranks each\n", topo->dp - 1, replica);
}

/* Which ranks share a node's memory, as MPI says: a host file may mean something else than its author. */
static void print_nodes(const plait_world *world, FILE *out)
{
    int printed = 0;
    if (world->nodes == 1)
        return;
    fprintf(out, "  %-10s", "node");
    for (int rank = 0; rank < world->size && printed < MAX_ROWS; rank++) {
        if (world->node_of[rank] != rank)
            continue;
        printed++;
        fprintf(out, " [%d", rank);
        for (int other = rank + 1; other < world->size; other++)
            if (world->node_of[other] == rank)
                fprintf(out, " %d", other);
        fputc(']', out);
    }
    if (printed < world->nodes)
        fprintf(out, " and %d more", world->nodes - printed);
    fputc('\n', out);
}

/* Each group of a kind once: by the rank that comes first in it. First and last stage talk about a tied head only. */
static void print_groups(const plait_topology *topo, const plait_config *cfg, FILE *out)
{
    int ranks[topo->world];
    for (int kind = 0; kind < PLAIT_GROUPS; kind++) {
        int printed = 0, more = 0;
        if (kind == PLAIT_GROUP_EMBEDDING && !cfg->model.tie_word_embeddings)
            continue;
        for (int rank = 0; rank < topo->world; rank++) {
            plait_topology there = plait_topology_at(topo, rank);
            int n = plait_topology_group(&there, (plait_group)kind, ranks);
            if (n == 1 || ranks[0] != rank)
                continue;
            if (printed == MAX_ROWS) {
                more++;
                continue;
            }
            if (printed++ == 0)
                fprintf(out, "  %-10s", plait_group_name((plait_group)kind));
            fputs(" [", out);
            for (int i = 0; i < n; i++)
                fprintf(out, "%s%d", i ? " " : "", ranks[i]);
            fputc(']', out);
        }
        if (more)
            fprintf(out, " and %d more", more);
        if (printed)
            fputc('\n', out);
    }
}

void plait_banner_print_places(const plait_topology *topo, const plait_config *cfg, FILE *out)
{
    print_grid(topo, cfg, out);
    print_groups(topo, cfg, out);
}

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

static plait_status print_schedule(const plait_engine *e, FILE *out)
{
    const plait_config *cfg = plait_engine_config(e);
    const plait_schedule_set *set = plait_engine_schedules(e);
    int stages = (int)cfg->parallelism.pp, chunks = (int)cfg->parallelism.num_chunks;
    int micros = set->all[set->num_train - 1].micros;
    static const char *const names[] = {"auto", "gpipe", "1f1b", "interleaved"};
    fprintf(out, "schedule: %s, %d stage%s x %d chunk%s, %d micro-batch%s of %lld\n", names[cfg->parallelism.schedule],
            stages, plural(stages), chunks, plural(chunks), micros, micros == 1 ? "" : "es",
            (long long)cfg->batch.micro_batch_size);
    if (stages == 1)
        return PLAIT_OK;
    plait_status st = PLAIT_OK;
    plait_schedule *all = calloc((size_t)stages, sizeof *all);
    if (!all)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory to draw %d stages", stages);
    for (int i = 0; i < stages; i++)
        PLAIT_TRY_TO(done, st, plait_schedule_init(&all[i], cfg->parallelism.schedule, i, stages, chunks, micros));
    PLAIT_TRY_TO(done, st, plait_schedule_draw(all, stages, out, 118));
done:
    for (int i = 0; i < stages; i++)
        plait_schedule_deinit(&all[i]);
    free(all);
    return st;
}

/* A stage that has nothing to do but to pass on is legal, and seldom meant. */
static void print_empty_stages(const plait_config *cfg, FILE *out)
{
    const int64_t stages = cfg->parallelism.pp * cfg->parallelism.num_chunks;
    int printed = 0;
    for (int64_t k = 0; k < stages; k++)
        if (plait_config_first_layer(cfg, k, stages) == plait_config_first_layer(cfg, k + 1, stages))
            fprintf(out, "%s%lld", printed++ ? " " : "  without layers: virtual stages ", (long long)k);
    if (printed)
        fputc('\n', out);
}

typedef struct rank_row {
    int64_t params, counted;
    size_t planned[PLAIT_MEM_KINDS], total, host, resident_before;
} rank_row;

static void print_row(FILE *out, const plait_topology *topo, const rank_row *r)
{
    fprintf(out, "  %4d d%-2d p%-2d t%-2d %15s", topo->rank, topo->d, topo->p, topo->t, plait_grouped(r->params));
    for (int kind = 0; kind < PLAIT_MEM_KINDS; kind++)
        fprintf(out, " %13s", plait_grouped((int64_t)r->planned[kind]));
    fprintf(out, " %14s\n", plait_grouped((int64_t)r->total));
}

static void print_devices(const plait_world *on, const plait_config *cfg, FILE *out)
{
    if (cfg->device.backend != PLAIT_BACKEND_CUDA)
        return;
    const int devices = plait_device_count(), ranks = on->local_size;
    fprintf(out, "GPUs: %d for %d rank%s of this node", devices < ranks ? devices : ranks, ranks, plural(ranks));
    if (on->size > 1)
        fprintf(out, "; tensors go %s",
                cfg->comm.backend == PLAIT_COMM_NCCL ? "by NCCL" : "through host memory and MPI (staged)");
    fputc('\n', out);
}

plait_status plait_banner_print(const plait_world *on, plait_engine *e, size_t resident_before, FILE *out)
{
    const plait_topology *topo = plait_engine_topology(e);
    const plait_config *cfg = plait_engine_config(e);
    plait_comm *world = plait_engine_groups(e)->world;
    const bool prints = topo->rank == 0;
    rank_row mine = {.params = plait_param_list_numel(plait_engine_params(e)),
                     .counted = plait_param_list_counted(plait_engine_params(e)),
                     .resident_before = resident_before};
    int64_t counted = 0;
    size_t most_before = 0, most_total = 0, most_host = 0;

    for (int kind = 0; kind < PLAIT_MEM_KINDS; kind++) {
        mine.planned[kind] = plait_engine_ledger(e)->planned[PLAIT_TIER_DEVICE][kind];
        mine.total += mine.planned[kind];
        mine.host += plait_engine_ledger(e)->planned[PLAIT_TIER_HOST][kind];
    }
    if (prints) {
        plait_banner_print_places(topo, cfg, out);
        print_nodes(on, out);
        PLAIT_TRY(print_schedule(e, out));
        print_empty_stages(cfg, out);
        fprintf(out, "precision: %s%s, kernels %s, %d threads a rank; ZeRO stage %lld\n",
                plait_dtype_name(cfg->precision.dtype), plait_engine_exec(e)->allow_tf32 ? " (products in TF32)" : "",
                plait_engine_exec(e)->k->name, plait_engine_exec(e)->threads, (long long)cfg->zero.stage);
        print_devices(on, cfg, out);
        if (cfg->numerics.reduction == PLAIT_REDUCTION_INVARIANT)
            fprintf(out, "reduction: invariant, %lld tensor slices\n", (long long)cfg->numerics.tensor_slices);
        fprintf(out, "bytes of each rank, all of them allocated now:\n  rank %-10s %15s", "", "computes with");
        for (int kind = 0; kind < PLAIT_MEM_KINDS; kind++)
            fprintf(out, " %13s", plait_mem_kind_name((plait_mem_kind)kind));
        fprintf(out, " %14s\n", "all");
    }
    for (int rank = 0; rank < topo->world; rank++) {
        rank_row row = mine;
        PLAIT_TRY(plait_comm_broadcast_bytes(world, &row, sizeof row, rank));
        plait_topology there = plait_topology_at(topo, rank);
        counted += there.d == 0 ? row.counted : 0;
        most_before = row.resident_before > most_before ? row.resident_before : most_before;
        most_host = row.host > most_host ? row.host : most_host;
        if (prints && rank < MAX_ROWS)
            print_row(out, &there, &row);
        else
            most_total = row.total > most_total ? row.total : most_total;
    }
    if (prints) {
        if (topo->world > MAX_ROWS)
            fprintf(out, "  and %d more ranks, each at most %s\n", topo->world - MAX_ROWS,
                    plait_grouped((int64_t)most_total));
        if (cfg->zero.stage >= 2 && !cfg->zero.keep_full_gradients)
            fprintf(out, "  %sgradients: the own 1/%d and two units on their way\n",
                    cfg->zero.stage == 3 ? "parameters: the own part and the units gathered at a time; " : "",
                    topo->dp);
        fprintf(out, "  beside these at most %s a rank for the text, %s for the program, MPI and other libraries\n",
                plait_grouped((int64_t)most_host), plait_grouped((int64_t)most_before));
        fprintf(out, "parameters of the model: %s\n", plait_grouped(counted));
        fflush(out);
    }
    return PLAIT_OK;
}
