#include "launcher/metrics.h"

#include <string.h>

#include "core/json_out.h"
#include "core/resident.h"

plait_status plait_metrics_open(plait_metrics *m, plait_comm *world, const char *path)
{
    *m = (plait_metrics){0};
    const bool writes = path[0] && plait_comm_rank(world) == 0;
    return plait_comm_agree(world, writes ? plait_line_file_open(&m->file, "logging.metrics_file", path) : PLAIT_OK);
}

void plait_metrics_close(plait_metrics *m)
{
    plait_line_file_close(&m->file);
}

/* Every line is flushed: a run that is killed leaves whole steps. */
static plait_status end_line(plait_metrics *m)
{
    fputc('\n', m->file.out);
    return plait_line_file_flush(&m->file);
}

static void field(FILE *out, const char *name, double value)
{
    fprintf(out, ",\"%s\":", name);
    plait_json_number(out, value);
}

plait_status plait_metrics_step(plait_metrics *m, int64_t step, const plait_step_result *r, double lr,
                                double tokens_per_second, double seconds)
{
    if (!m->file.out)
        return PLAIT_OK;
    fprintf(m->file.out, "{\"step\":%lld", (long long)step);
    field(m->file.out, "loss", r->loss);
    fprintf(m->file.out, ",\"loss_hex\":");
    plait_json_hex(m->file.out, r->loss);
    field(m->file.out, "grad_norm", r->grad_norm);
    field(m->file.out, "lr", lr);
    field(m->file.out, "loss_scale", r->loss_scale);
    fprintf(m->file.out, ",\"skipped\":%d,\"counted_tokens\":%lld", r->skipped, (long long)r->counted_tokens);
    field(m->file.out, "tokens_per_second", tokens_per_second);
    field(m->file.out, "step_seconds", seconds);
    fputc('}', m->file.out);
    return end_line(m);
}

plait_status plait_metrics_eval(plait_metrics *m, int64_t after_step, double loss)
{
    if (!m->file.out)
        return PLAIT_OK;
    fprintf(m->file.out, "{\"eval\":{\"after_step\":%lld", (long long)after_step);
    field(m->file.out, "loss", loss);
    fputs("}}", m->file.out);
    return end_line(m);
}

/* ---- what every rank held and sent ---- */

typedef struct rank_report {
    plait_ledger ledger;
    plait_traffic traffic[PLAIT_GROUPS];
    size_t resident_before;
    plait_resident resident;
} rank_report;

/* Between the elements of a list. */
static void next(FILE *out, const char **separator)
{
    fputs(*separator, out);
    *separator = ",";
}

static void print_memory(FILE *out, const plait_topology *topo, const rank_report *r, const char **separator)
{
    for (int tier = 0; tier < PLAIT_TIERS; tier++)
        for (int kind = 0; kind < PLAIT_MEM_KINDS; kind++) {
            if (tier != PLAIT_TIER_DEVICE && r->ledger.planned[tier][kind] == 0)
                continue;
            next(out, separator);
            fprintf(out,
                    "{\"rank\":%d,\"coords\":{\"d\":%d,\"p\":%d,\"t\":%d},\"tier\":\"%s\",\"category\":\"%s\","
                    "\"planned\":%zu,\"high_water\":%zu}",
                    topo->rank, topo->d, topo->p, topo->t, plait_tier_name((plait_tier)tier),
                    plait_mem_kind_name((plait_mem_kind)kind), r->ledger.planned[tier][kind],
                    r->ledger.high_water[tier][kind]);
        }
}

static void print_traffic(FILE *out, const plait_topology *topo, const rank_report *r, const char **separator)
{
    for (int group = 0; group < PLAIT_GROUPS; group++)
        for (int op = 0; op < PLAIT_COMM_KINDS; op++) {
            if (r->traffic[group].calls[op] == 0)
                continue;
            next(out, separator);
            fprintf(out, "{\"rank\":%d,\"group\":\"%s\",\"op\":\"%s\",\"calls\":%lld,\"bytes\":%lld}", topo->rank,
                    plait_group_name((plait_group)group), plait_comm_kind_name((plait_comm_kind)op),
                    (long long)r->traffic[group].calls[op], (long long)r->traffic[group].bytes[op]);
        }
}

static void print_resident(FILE *out, const plait_topology *topo, const rank_report *r, const char **separator)
{
    next(out, separator);
    fprintf(out, "{\"rank\":%d,\"before\":%zu,\"peak\":%zu,\"others\":%zu}", topo->rank, r->resident_before,
            r->resident.peak, r->resident.others);
}

plait_status plait_metrics_end(plait_metrics *m, plait_engine *e, size_t resident_before, const plait_fingerprint *f)
{
    static const struct {
        const char *name;
        void (*print)(FILE *out, const plait_topology *topo, const rank_report *r, const char **separator);
    } lists[] = {{"memory", print_memory}, {"communication", print_traffic}, {"resident", print_resident}};
    const plait_topology *topo = plait_engine_topology(e);
    plait_comm *world = plait_engine_groups(e)->world;
    rank_report mine = {
        .ledger = *plait_engine_ledger(e), .resident_before = resident_before, .resident = plait_resident_memory()};
    memcpy(mine.traffic, plait_engine_traffic(e), sizeof mine.traffic);
    /* A pass over the ranks for each list, so that nothing has to be kept. */
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const char *separator = "";
        if (m->file.out)
            fprintf(m->file.out, "%s\"%s\":[", i == 0 ? "{" : "],", lists[i].name);
        for (int rank = 0; rank < topo->world; rank++) {
            rank_report one = mine;
            PLAIT_TRY(plait_comm_broadcast_bytes(world, &one, sizeof one, rank));
            plait_topology there = plait_topology_at(topo, rank);
            if (m->file.out)
                lists[i].print(m->file.out, &there, &one, &separator);
        }
    }
    if (!m->file.out)
        return PLAIT_OK;
    char text[17];
    plait_fingerprint_text(f, text);
    fprintf(m->file.out, "],\"fingerprint\":\"%s\"}", text);
    return end_line(m);
}
