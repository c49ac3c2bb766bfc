#include "launcher/metrics.h"

#include <errno.h>
#include <string.h>

#include "core/json_out.h"

static plait_status open_file(plait_metrics *m)
{
    m->out = fopen(m->path, "w");
    if (!m->out)
        PLAIT_FAIL(IO, "logging.metrics_file %s: %s", m->path, strerror(errno));
    return PLAIT_OK;
}

plait_status plait_metrics_open(plait_metrics *m, plait_comm *world, const char *path)
{
    *m = (plait_metrics){0};
    snprintf(m->path, sizeof m->path, "%s", path);
    return plait_comm_agree(world, path[0] && plait_comm_rank(world) == 0 ? open_file(m) : PLAIT_OK);
}

void plait_metrics_close(plait_metrics *m)
{
    if (m->out)
        fclose(m->out);
    m->out = NULL;
}

/* Every line is flushed: a run that is killed leaves whole steps. */
static plait_status end_line(plait_metrics *m)
{
    fputc('\n', m->out);
    errno = 0;
    if (fflush(m->out) != 0 || ferror(m->out))
        PLAIT_FAIL(IO, "logging.metrics_file %s: %s", m->path, errno ? strerror(errno) : "an earlier write failed");
    return PLAIT_OK;
}

static void field(FILE *out, const char *name, double value)
{
    fprintf(out, ",\"%s\":", name);
    plait_json_number(out, value);
}

plait_status plait_metrics_step(plait_metrics *m, int64_t step, const plait_step_result *r, double lr,
                                double tokens_per_second, double seconds)
{
    if (!m->out)
        return PLAIT_OK;
    fprintf(m->out, "{\"step\":%lld", (long long)step);
    field(m->out, "loss", r->loss);
    fprintf(m->out, ",\"loss_hex\":");
    plait_json_hex(m->out, r->loss);
    field(m->out, "grad_norm", r->grad_norm);
    field(m->out, "lr", lr);
    field(m->out, "loss_scale", r->loss_scale);
    fprintf(m->out, ",\"skipped\":%d,\"counted_tokens\":%lld", r->skipped, (long long)r->counted_tokens);
    field(m->out, "tokens_per_second", tokens_per_second);
    field(m->out, "step_seconds", seconds);
    fputc('}', m->out);
    return end_line(m);
}

plait_status plait_metrics_eval(plait_metrics *m, int64_t after_step, double loss)
{
    if (!m->out)
        return PLAIT_OK;
    fprintf(m->out, "{\"eval\":{\"after_step\":%lld", (long long)after_step);
    field(m->out, "loss", loss);
    fputs("}}", m->out);
    return end_line(m);
}

/* ---- what every rank held and sent ---- */

typedef struct rank_report {
    plait_ledger ledger;
    plait_traffic traffic[PLAIT_GROUPS];
} rank_report;

static void print_memory(FILE *out, const plait_topology *topo, const rank_report *r, bool *comma)
{
    for (int tier = 0; tier < PLAIT_TIERS; tier++)
        for (int kind = 0; kind < PLAIT_MEM_KINDS; kind++) {
            if (tier != PLAIT_TIER_DEVICE && r->ledger.planned[tier][kind] == 0)
                continue;
            fprintf(out,
                    "%s{\"rank\":%d,\"coords\":{\"d\":%d,\"p\":%d,\"t\":%d},\"tier\":\"%s\",\"category\":\"%s\","
                    "\"planned\":%zu,\"high_water\":%zu}",
                    *comma ? "," : "", topo->rank, topo->d, topo->p, topo->t, plait_tier_name((plait_tier)tier),
                    plait_mem_kind_name((plait_mem_kind)kind), r->ledger.planned[tier][kind],
                    r->ledger.high_water[tier][kind]);
            *comma = true;
        }
}

static void print_traffic(FILE *out, int rank, const rank_report *r, bool *comma)
{
    for (int group = 0; group < PLAIT_GROUPS; group++)
        for (int op = 0; op < PLAIT_COMM_KINDS; op++) {
            if (r->traffic[group].calls[op] == 0)
                continue;
            fprintf(out, "%s{\"rank\":%d,\"group\":\"%s\",\"op\":\"%s\",\"calls\":%lld,\"bytes\":%lld}",
                    *comma ? "," : "", rank, plait_group_name((plait_group)group),
                    plait_comm_kind_name((plait_comm_kind)op), (long long)r->traffic[group].calls[op],
                    (long long)r->traffic[group].bytes[op]);
            *comma = true;
        }
}

plait_status plait_metrics_end(plait_metrics *m, plait_engine *e)
{
    const plait_topology *topo = plait_engine_topology(e);
    plait_comm *world = plait_engine_groups(e)->world;
    rank_report mine = {.ledger = *plait_engine_ledger(e)}, one;
    memcpy(mine.traffic, plait_engine_traffic(e), sizeof mine.traffic);
    /* Two passes over the ranks, one a list, so that nothing has to be kept. */
    for (int pass = 0; pass < 2; pass++) {
        bool comma = false;
        if (m->out)
            fputs(pass == 0 ? "{\"memory\":[" : "],\"communication\":[", m->out);
        for (int rank = 0; rank < topo->world; rank++) {
            one = mine;
            PLAIT_TRY(plait_comm_broadcast_bytes(world, &one, sizeof one, rank));
            plait_topology there = plait_topology_at(topo, rank);
            if (m->out && pass == 0)
                print_memory(m->out, &there, &one, &comma);
            else if (m->out)
                print_traffic(m->out, rank, &one, &comma);
        }
    }
    if (!m->out)
        return PLAIT_OK;
    fputs("]}", m->out);
    return end_line(m);
}
