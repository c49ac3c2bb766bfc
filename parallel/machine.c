/* Which table serves, and what it says between its points. */
#include "parallel/machine.h"

#include <math.h>
#include <stdlib.h>

/* ---- the record ---- */

static void deinit_rates(plait_rate_table *t)
{
    for (int i = 0; i < PLAIT_RATE_AXES; i++)
        free(t->at[i]);
    free(t->rate);
}

static void deinit_links(plait_link_table *t)
{
    free(t->bytes);
    free(t->seconds);
}

void plait_machine_deinit(plait_machine *m)
{
    for (int i = 0; i < m->num_rates; i++)
        deinit_rates(&m->rates[i]);
    for (int i = 0; i < m->num_links; i++)
        deinit_links(&m->links[i]);
    free(m->rates);
    free(m->links);
    *m = (plait_machine){0};
}

bool plait_rate_is_flops(plait_op op)
{
    return op == PLAIT_OP_gemm || op == PLAIT_OP_attention_fwd || op == PLAIT_OP_attention_bwd;
}

int plait_rate_axes(plait_op op, const char *names[PLAIT_RATE_AXES])
{
    static const char *const product[] = {"m", "n", "k"}, *const attention[] = {"heads", "seq", "head_dim"},
                             *const memory[] = {"bytes"};
    const char *const *from = op == PLAIT_OP_gemm ? product : plait_rate_is_flops(op) ? attention : memory;
    const int n = plait_rate_is_flops(op) ? 3 : 1;
    for (int i = 0; i < n; i++)
        names[i] = from[i];
    return n;
}

static bool same_rates(const plait_rate_table *a, const plait_rate_table *b)
{
    return a->op == b->op && a->dtype == b->dtype && a->trans_a == b->trans_a && a->trans_b == b->trans_b &&
           a->threads == b->threads && a->ranks == b->ranks;
}

static bool same_links(const plait_link_table *a, const plait_link_table *b)
{
    return a->kind == b->kind && a->size == b->size && a->ranks == b->ranks && a->spans == b->spans &&
           a->dtype == b->dtype;
}

const plait_rate_table *plait_machine_find_rates(const plait_machine *m, const plait_rate_table *like)
{
    for (int i = 0; i < m->num_rates; i++)
        if (same_rates(&m->rates[i], like))
            return &m->rates[i];
    return NULL;
}

const plait_link_table *plait_machine_find_links(const plait_machine *m, const plait_link_table *like)
{
    for (int i = 0; i < m->num_links; i++)
        if (same_links(&m->links[i], like))
            return &m->links[i];
    return NULL;
}

static double *copy_of(const double *x, int n)
{
    double *copy = malloc((size_t)n * sizeof *copy);
    for (int i = 0; copy && i < n; i++)
        copy[i] = x[i];
    return copy;
}

int plait_rate_points(const plait_rate_table *t)
{
    int points = 1;
    for (int a = 0; a < t->num_axes; a++)
        points *= t->num[a];
    return points;
}

plait_status plait_machine_put_rates(plait_machine *m, const plait_rate_table *t)
{
    plait_rate_table copy = *t;
    const int points = plait_rate_points(t);
    for (int i = 0; i < PLAIT_RATE_AXES; i++)
        copy.at[i] = NULL;
    copy.rate = NULL;
    bool ok = true;
    for (int i = 0; i < t->num_axes; i++) {
        copy.at[i] = copy_of(t->at[i], t->num[i]);
        ok = ok && copy.at[i];
    }
    copy.rate = copy_of(t->rate, points);
    const plait_rate_table *old = plait_machine_find_rates(m, t);
    plait_rate_table *grown = m->rates;
    if (!old && (grown = realloc(m->rates, ((size_t)m->num_rates + 1) * sizeof *grown)))
        m->rates = grown;
    if (!ok || !copy.rate || !grown) {
        deinit_rates(&copy);
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for %d rates of %s", points, plait_op_name(t->op));
    }
    plait_rate_table *place = &m->rates[old ? old - m->rates : m->num_rates];
    if (old)
        deinit_rates(place);
    m->num_rates += !old;
    *place = copy;
    return PLAIT_OK;
}

plait_status plait_machine_put_links(plait_machine *m, const plait_link_table *t)
{
    plait_link_table copy = *t;
    copy.bytes = copy_of(t->bytes, t->num);
    copy.seconds = copy_of(t->seconds, t->num);
    const plait_link_table *old = plait_machine_find_links(m, t);
    plait_link_table *grown = m->links;
    if (!old && (grown = realloc(m->links, ((size_t)m->num_links + 1) * sizeof *grown)))
        m->links = grown;
    if (!copy.bytes || !copy.seconds || !grown) {
        deinit_links(&copy);
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for %d times of %s", t->num, plait_comm_kind_name(t->kind));
    }
    plait_link_table *place = &m->links[old ? old - m->links : m->num_links];
    if (old)
        deinit_links(place);
    m->num_links += !old;
    *place = copy;
    return PLAIT_OK;
}

/* ---- which table ---- */

/* How far a table is from what is asked for: ratios of sizes add up as logarithms. */
typedef struct distance {
    int rank; /* what counts before any ratio: 0 is exact */
    double ratio;
} distance;

static bool nearer(distance a, distance b)
{
    return a.rank != b.rank ? a.rank < b.rank : a.ratio < b.ratio;
}

static double ratio_of(double a, double b)
{
    return fabs(log(a / b));
}

/* Threads and ranks of the run: exactly, else any (0), else the nearest in their product. Two that are equally far: the
 * one with the nearer number of ranks. */
static distance distance_of_use(const plait_machine_use *use, int threads, int ranks)
{
    const bool any = threads == 0 || ranks == 0;
    const int t = threads ? threads : use->threads, r = ranks ? ranks : use->ranks;
    if (t == use->threads && r == use->ranks)
        return (distance){any, 0};
    return (distance){2, ratio_of((double)t * r, (double)use->threads * use->ranks) + 1e-3 * ratio_of(r, use->ranks)};
}

static const plait_rate_table *rates_for(const plait_machine *m, const plait_machine_use *use, const plait_op_record *r,
                                         plait_op op, bool any_dtype)
{
    const plait_rate_table *best = NULL;
    distance least = {0};
    for (int i = 0; i < m->num_rates; i++) {
        const plait_rate_table *t = &m->rates[i];
        if (t->op != op || (t->dtype != r->dtype && !any_dtype))
            continue;
        distance d = distance_of_use(use, t->threads, t->ranks);
        if (op == PLAIT_OP_gemm && (t->trans_a != r->trans_a || t->trans_b != r->trans_b))
            d.rank += 3; /* its own transposes, measured with whatever threads, say more */
        if (!best || nearer(d, least)) {
            best = t;
            least = d;
        }
    }
    return best;
}

/* ---- between the points ---- */

/* Where x lies among ascending points: between i and i + 1, `part` of the way in logarithms; at the border outside. */
static int locate(const double *at, int num, double x, double *part)
{
    *part = 0;
    if (x <= at[0])
        return 0;
    int i = 0;
    while (i + 2 < num && x >= at[i + 1])
        i++;
    if (num == 1 || x >= at[num - 1]) {
        *part = num > 1;
        return num > 1 ? num - 2 : 0;
    }
    *part = log(x / at[i]) / log(at[i + 1] / at[i]);
    return i;
}

/* exp of the multilinear interpolation of log(rate) over the logarithms of the axes: a sum over the corners of the cell
 * in which x lies. */
static double rate_at(const plait_rate_table *t, const double *x)
{
    int cell[PLAIT_RATE_AXES];
    double part[PLAIT_RATE_AXES], sum = 0;
    for (int a = 0; a < t->num_axes; a++)
        cell[a] = locate(t->at[a], t->num[a], x[a], &part[a]);
    for (int corner = 0; corner < 1 << t->num_axes; corner++) {
        double weight = 1;
        int index = 0;
        for (int a = 0; a < t->num_axes; a++) {
            const int upper = corner >> a & 1;
            weight *= upper ? part[a] : 1 - part[a];
            index = index * t->num[a] + cell[a] + (upper && t->num[a] > 1);
        }
        if (weight > 0)
            sum += weight * log(t->rate[index]);
    }
    return exp(sum);
}

static plait_status no_rates(const plait_machine *m, const plait_op_record *r)
{
    if (r->op == PLAIT_OP_gemm)
        PLAIT_FAIL(UNSUPPORTED, "the machine \"%s\" has no rates of the operation gemm in %s", m->name,
                   plait_dtype_name(r->dtype));
    PLAIT_FAIL(UNSUPPORTED, "the machine \"%s\" has no rates of the operation %s in %s%s", m->name,
               plait_op_name(r->op), plait_dtype_name(r->dtype), plait_rate_is_flops(r->op) ? "" : ", nor of memory");
}

plait_status plait_machine_op_seconds(const plait_machine *m, const plait_machine_use *use, const plait_op_record *r,
                                      double *seconds)
{
    const bool flops = plait_rate_is_flops(r->op);
    const double work = flops ? r->flops : r->bytes_read + r->bytes_written;
    *seconds = m->launch_seconds;
    if (work <= 0)
        return PLAIT_OK;
    const plait_rate_table *t = rates_for(m, use, r, r->op, false);
    if (!t && !flops)
        t = rates_for(m, use, r, PLAIT_OPS, false);
    if (!t && !flops)
        t = rates_for(m, use, r, PLAIT_OPS, true);
    if (!t)
        return no_rates(m, r);
    const double shape[] = {(double)r->m, (double)r->n, (double)r->k};
    *seconds =
        (t->launch_seconds > 0 ? t->launch_seconds : m->launch_seconds) + work / rate_at(t, flops ? shape : &work);
    return PLAIT_OK;
}

double plait_machine_reached(const plait_machine *m, plait_dtype dtype, const plait_rate_table **best)
{
    double most = 0;
    *best = NULL;
    for (int i = 0; i < m->num_rates; i++) {
        const plait_rate_table *t = &m->rates[i];
        for (int k = 0; t->dtype == dtype && plait_rate_is_flops(t->op) && k < plait_rate_points(t); k++)
            if (t->rate[k] > most) {
                most = t->rate[k];
                *best = t;
            }
    }
    return most;
}

double plait_machine_peak(const plait_machine *m, const plait_machine_use *use, plait_dtype dtype)
{
    if (m->peak[dtype] > 0)
        return m->peak[dtype];
    double peak = 0;
    for (int trans = 0; trans < 4; trans++) {
        const plait_op_record r = {.op = PLAIT_OP_gemm, .dtype = dtype, .trans_a = trans & 1, .trans_b = trans & 2};
        const plait_rate_table *t = rates_for(m, use, &r, PLAIT_OP_gemm, false);
        for (int i = 0; t && i < t->num[0] * t->num[1] * t->num[2]; i++)
            peak = fmax(peak, t->rate[i]);
    }
    return peak;
}

/* ---- links ---- */

/* A ring: how often it pays the latency of a message, and how often the whole buffer passes a rank's link.
 *
 * All-gather and reduce-scatter move (N - 1)/N of the buffer in N - 1 steps, all-reduce is one of each: the ring
 * algorithms of Thakur, Rabenseifner and Gropp 2005. Broadcast and reduce go around the ring as a pipeline, so every
 * link carries the buffer once: the convention of NCCL's tests (bus bandwidth in their PERFORMANCE.md). A barrier
 * disseminates in log2 N steps. */
typedef struct ring {
    double steps, share;
} ring;

static ring ring_of(plait_comm_kind kind, int size)
{
    const double others = size - 1;
    switch (kind) {
    case PLAIT_COMM_ALL_REDUCE:
        return (ring){2 * others, 2 * others / size};
    case PLAIT_COMM_REDUCE_SCATTER:
    case PLAIT_COMM_ALL_GATHER:
        return (ring){others, others / size};
    case PLAIT_COMM_REDUCE:
    case PLAIT_COMM_BROADCAST:
        return (ring){others, 1};
    case PLAIT_COMM_BARRIER:
        return (ring){ceil(log2(size)), 0};
    default:
        return (ring){1, 1};
    }
}

static const plait_link_table *links_for(const plait_machine *m, const plait_machine_use *use,
                                         const plait_link_table *like)
{
    const plait_link_table *best = NULL;
    distance least = {0};
    for (int i = 0; i < m->num_links; i++) {
        const plait_link_table *t = &m->links[i];
        if (t->kind != like->kind || t->spans != like->spans)
            continue;
        /* Type, then size, then what else runs on the node; among other sizes the nearest. */
        distance d = distance_of_use(use, use->threads, t->ranks);
        d.rank += t->dtype != like->dtype ? 6 : 0;
        d.rank += t->size != like->size ? 3 : 0;
        d.ratio += 1e3 * ratio_of(t->size, like->size);
        if (!best || nearer(d, least)) {
            best = t;
            least = d;
        }
    }
    return best;
}

/* Linear between the points; the last point's bytes a second beyond it, the first point's seconds before it. */
static double seconds_at(const plait_link_table *t, double bytes)
{
    const int last = t->num - 1;
    if (bytes <= t->bytes[0])
        return t->seconds[0];
    if (bytes >= t->bytes[last])
        return t->bytes[last] > 0 ? t->seconds[last] * bytes / t->bytes[last] : t->seconds[last];
    int i = 0;
    while (bytes >= t->bytes[i + 1])
        i++;
    const double part = (bytes - t->bytes[i]) / (t->bytes[i + 1] - t->bytes[i]);
    return t->seconds[i] + part * (t->seconds[i + 1] - t->seconds[i]);
}

/* Of a table for another size of the group: the latency as its steps, the rest as its share of the buffer. */
static double scaled_seconds(const plait_link_table *t, int size, double bytes)
{
    const ring have = ring_of(t->kind, t->size), want = ring_of(t->kind, size);
    const double all = seconds_at(t, bytes), latency = fmin(seconds_at(t, 0), all);
    const double share = have.share > 0 ? want.share / have.share : 1;
    return latency * want.steps / have.steps + (all - latency) * share;
}

/* Bytes a second at which a ring moves on: as NCCL's rings, one for each network adapter that the group has on a node.
 */
static double ring_bandwidth(const plait_machine *m, plait_comm_kind kind, int size, int nodes)
{
    if (nodes < 2)
        return m->node.bandwidth;
    const double all = m->network.bandwidth * (kind == PLAIT_COMM_SEND || kind == PLAIT_COMM_RECV ? 1 : size / nodes);
    return m->node.bandwidth > 0 && size > nodes ? fmin(all, m->node.bandwidth) : all;
}

plait_status plait_machine_comm_seconds(const plait_machine *m, const plait_machine_use *use, plait_comm_kind kind,
                                        int size, int nodes, plait_dtype dtype, double bytes, double *seconds)
{
    *seconds = 0;
    if (size < 2 || (bytes <= 0 && kind != PLAIT_COMM_BARRIER))
        return PLAIT_OK;
    const plait_link_table like = {
        .kind = kind == PLAIT_COMM_RECV ? PLAIT_COMM_SEND : kind, .size = size, .spans = nodes > 1, .dtype = dtype};
    const plait_link_table *t = links_for(m, use, &like);
    const double bandwidth = ring_bandwidth(m, kind, size, nodes);
    if (t) {
        *seconds = t->size == size ? seconds_at(t, bytes) : scaled_seconds(t, size, bytes);
    } else if (bandwidth > 0) {
        const ring r = ring_of(kind, size);
        *seconds = r.steps * (nodes > 1 ? m->network : m->node).latency + r.share * bytes / bandwidth;
    } else {
        PLAIT_FAIL(UNSUPPORTED, "the machine \"%s\" has no times of %s among %d ranks %s", m->name,
                   plait_comm_kind_name(kind), size, nodes > 1 ? "on several nodes" : "of a node");
    }
    return PLAIT_OK;
}
