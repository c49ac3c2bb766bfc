/* Reading and checking a machine file. Writing is in machine_print.c. */
#include "launcher/machine_file.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/errors.h"
#include "core/yaml.h"

typedef struct reader {
    const char *path;
    plait_yaml doc;
    plait_errors errors;
} reader;

static void complain(reader *r, int node, const char *format, ...) PLAIT_PRINTF(3, 4);

static void complain(reader *r, int node, const char *format, ...)
{
    char text[700];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const plait_yaml_node *n = &r->doc.nodes[node];
    plait_errors_add(&r->errors, "%.300s:%d:%d: %s", r->path, n->line, n->column, text);
}

/* ---- values ---- */

typedef enum form {
    TEXT,    /* char[128] */
    COUNT,   /* int, at least `least` */
    FLAG,    /* bool */
    NUMBER,  /* double, times `unit` */
    NUMBERS, /* list, each times `unit` */
    OP,      /* plait_op */
    DTYPE,   /* plait_dtype */
    KIND,    /* plait_comm_kind */
    LINK,    /* plait_link */
    NODES    /* int: the node, for somebody else to read */
} form;

/* A key of a mapping and where its value goes. */
typedef struct key {
    const char *name;
    form form;
    size_t offset;
    double unit;
    int least;
    bool needed;
} key;

typedef struct list {
    double *x;
    int num, node; /* node 0: not given, since the root of a file is a mapping */
} list;

static const char *kind_of(const plait_yaml_node *n)
{
    return n->kind == PLAIT_YAML_LIST ? "a list" : n->kind == PLAIT_YAML_MAP ? "a mapping" : "a value";
}

/* The text of a scalar; NULL, with a complaint, for anything else. */
static const char *scalar(reader *r, int node, const char *name, const char *expected)
{
    const plait_yaml_node *n = &r->doc.nodes[node];
    if (n->kind == PLAIT_YAML_SCALAR && !plait_yaml_is_null(n))
        return n->text;
    complain(r, node, "%s: expected %s, found %s", name, expected,
             n->kind == PLAIT_YAML_SCALAR ? "nothing" : kind_of(n));
    return NULL;
}

/* Beyond is a slip of the pen, and so far beyond that sums overflow: 10^9 GFLOP/s or GB/s, or 10^-9, and 10^15 of what
 * is small. */
static bool is_plausible(double x, double unit)
{
    return x == 0 || (unit > 1 ? x >= 1e-9 && x <= 1e9 : x <= 1e15);
}

static bool read_number(reader *r, int node, const char *name, bool above_zero, double unit, double *out)
{
    const char *expected = above_zero ? "a number above 0" : "a number from 0";
    const char *text = scalar(r, node, name, expected);
    if (!text)
        return false;
    char *end = NULL;
    errno = 0;
    /* Only decimal digits: strtod would also take nan, inf and 0x1p3. */
    const double x = *text && text[strspn(text, "+-.0123456789eE")] == '\0' ? strtod(text, &end) : -1;
    *out = x * unit;
    if (!end || *end || errno != 0 || x < 0 || (above_zero && x == 0)) {
        complain(r, node, "%s: expected %s, found '%.40s'", name, expected, text);
        return false;
    }
    if (!is_plausible(x, unit)) {
        complain(r, node, "%s: %.40s is not possible: expected %s", name, text,
                 unit > 1 ? "1e-9 to 1e9" : "at most 1e15");
        return false;
    }
    return true;
}

static void read_count(reader *r, int node, const char *name, int least, int *out)
{
    char expected[64];
    snprintf(expected, sizeof expected, "a whole number from %d to %d", least, INT_MAX);
    const char *text = scalar(r, node, name, expected);
    if (!text)
        return;
    errno = 0;
    const long long x = *text && text[strspn(text, "0123456789")] == '\0' ? strtoll(text, NULL, 10) : -1;
    if (errno != 0 || x < least || x > INT_MAX) {
        complain(r, node, "%s: expected %s, found '%.40s'", name, expected, text);
        return;
    }
    *out = (int)x;
}

static void read_flag(reader *r, int node, const char *name, bool *out)
{
    const char *text = scalar(r, node, name, "true or false");
    if (!text)
        return;
    *out = strcmp(text, "true") == 0;
    if (!*out && strcmp(text, "false") != 0)
        complain(r, node, "%s: expected true or false, found '%.40s'", name, text);
}

/* Also of those that begin with 0xc2 in UTF-8. */
static bool is_control(const char *s)
{
    const unsigned char first = (unsigned char)s[0], second = (unsigned char)s[1];
    return first < 0x20 || first == 0x7f || (first == 0xc2 && second >= 0x80 && second < 0xa0);
}

static void read_text(reader *r, int node, const char *name, char *out, size_t size)
{
    const char *text = scalar(r, node, name, "a text");
    const char *control = text;
    while (control && *control && !is_control(control))
        control++;
    if (control && *control) /* printed as it is: a terminal would obey it */
        complain(r, node, "%s: expected a text, found the control character 0x%02x", name, (unsigned char)*control);
    else if (text && strlen(text) >= size)
        complain(r, node, "%s: expected at most %zu bytes, found %zu", name, size - 1, strlen(text));
    else if (text)
        snprintf(out, size, "%s", text);
}

static void read_numbers(reader *r, int node, const char *name, double unit, list *out)
{
    const plait_yaml_node *n = &r->doc.nodes[node];
    out->node = node;
    if (n->kind != PLAIT_YAML_LIST || n->count == 0) {
        complain(r, node, "%s: expected a list of numbers, found %s", name,
                 n->kind == PLAIT_YAML_LIST ? "an empty one" : kind_of(n));
        return;
    }
    out->x = malloc((size_t)n->count * sizeof *out->x);
    if (!out->x) {
        complain(r, node, "%s: no memory for %d numbers", name, n->count);
        return;
    }
    bool ok = true;
    int num = 0;
    for (int i = n->first; i >= 0; i = r->doc.nodes[i].next)
        ok = read_number(r, i, name, false, unit, &out->x[num++]) && ok;
    out->num = ok ? num : 0;
}

plait_dtype plait_dtype_find(const char *name)
{
    int i = 0;
    while (i < PLAIT_DTYPES && strcmp(plait_dtype_name((plait_dtype)i), name) != 0)
        i++;
    return (plait_dtype)i;
}

static void read_dtype(reader *r, int node, const char *name, plait_dtype *out)
{
    const char *text = scalar(r, node, name, "a type such as fp32");
    if (!text)
        return;
    *out = plait_dtype_find(text);
    if (*out == PLAIT_DTYPES)
        complain(r, node, "%s: expected a type such as fp32, bf16, fp16, fp64, found '%.40s'", name, text);
}

static void read_op(reader *r, int node, const char *name, int *out)
{
    const char *expected = "an operation such as gemm, or memory for all that have no table of their own";
    const char *text = scalar(r, node, name, expected);
    if (!text)
        return;
    const plait_op op = plait_op_find(text);
    if (op == PLAIT_OPS && strcmp(text, "memory") != 0)
        complain(r, node, "%s: expected %s, found '%.40s'", name, expected, text);
    else
        *out = (int)op;
}

static void read_kind(reader *r, int node, const char *name, int *out)
{
    const char *expected = "all_reduce, reduce_scatter, all_gather, reduce, broadcast, send or barrier";
    const char *text = scalar(r, node, name, expected);
    for (int i = 0; text && i < PLAIT_COMM_KINDS; i++)
        if (i != PLAIT_COMM_RECV && strcmp(text, plait_comm_kind_name((plait_comm_kind)i)) == 0) {
            *out = i;
            return;
        }
    if (text)
        complain(r, node, "%s: expected %s, found '%.40s'", name, expected, text);
}

static bool is_map(reader *r, int node, const char *name)
{
    const plait_yaml_node *n = &r->doc.nodes[node];
    if (n->kind == PLAIT_YAML_MAP)
        return true;
    complain(r, node, "%s: expected keys and values, found %s", name, kind_of(n));
    return false;
}

/* FLOP/s of types. */
static void read_by_dtype(reader *r, int node, const char *name, double unit, double *out)
{
    if (!is_map(r, node, name))
        return;
    for (int k = r->doc.nodes[node].first; k >= 0; k = r->doc.nodes[r->doc.nodes[k].next].next) {
        plait_dtype dtype = PLAIT_DTYPES;
        read_dtype(r, k, name, &dtype);
        if (dtype == PLAIT_DTYPES)
            continue;
        if (out[dtype] > 0)
            complain(r, k, "%s: %s is given twice", name, plait_dtype_name(dtype));
        read_number(r, r->doc.nodes[k].next, name, true, unit, &out[dtype]);
    }
}

/* ---- mappings ---- */

static void read_link(reader *r, int node, const char *name, plait_link *out);

static void read_value(reader *r, int node, const key *k, void *record)
{
    void *to = (char *)record + k->offset;
    switch (k->form) {
    case TEXT:
        read_text(r, node, k->name, to, sizeof((plait_machine *)0)->name);
        break;
    case COUNT:
        read_count(r, node, k->name, k->least, to);
        break;
    case FLAG:
        read_flag(r, node, k->name, to);
        break;
    case NUMBER:
        read_number(r, node, k->name, k->least > 0, k->unit, to);
        break;
    case NUMBERS:
        read_numbers(r, node, k->name, k->unit, to);
        break;
    case OP:
        read_op(r, node, k->name, to);
        break;
    case DTYPE:
        read_dtype(r, node, k->name, to);
        break;
    case KIND:
        read_kind(r, node, k->name, to);
        break;
    case LINK:
        read_link(r, node, k->name, to);
        break;
    case NODES:
        *(int *)to = node;
        break;
    }
}

static void unknown_key(reader *r, int node, const char *what, const key *keys, int num)
{
    char known[400] = "";
    for (int i = 0; i < num; i++) {
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : i == num - 1 ? " or " : ", ", keys[i].name);
    }
    const char *text = r->doc.nodes[node].kind == PLAIT_YAML_SCALAR ? r->doc.nodes[node].text : "";
    complain(r, node, "%s: unknown key '%.60s': expected %s", what, text, known);
}

/* Keys of mapping `node` into `record`. False: something was wrong in this mapping. */
static bool read_map(reader *r, int node, const char *what, const key *keys, int num, void *record)
{
    enum { MOST = 32 };
    int given[MOST] = {0};
    const int before = r->errors.count;
    if (!is_map(r, node, what))
        return false;
    for (int k = r->doc.nodes[node].first; k >= 0; k = r->doc.nodes[r->doc.nodes[k].next].next) {
        const plait_yaml_node *n = &r->doc.nodes[k];
        int i = 0;
        while (i < num && (n->kind != PLAIT_YAML_SCALAR || strcmp(n->text, keys[i].name) != 0))
            i++;
        if (i == num)
            unknown_key(r, k, what, keys, num);
        else if (given[i])
            complain(r, k, "%s: %s is given twice, before in line %d", what, keys[i].name, given[i]);
        else
            read_value(r, n->next, &keys[i], record);
        if (i < num)
            given[i] = n->line;
    }
    for (int i = 0; i < num; i++)
        if (keys[i].needed && !given[i])
            complain(r, node, "%s: %s is missing", what, keys[i].name);
    return r->errors.count == before;
}

static void read_link(reader *r, int node, const char *name, plait_link *out)
{
    static const key keys[] = {
        {"microseconds", NUMBER, offsetof(plait_link, latency), 1e-6, 0, true},
        {"gbytes", NUMBER, offsetof(plait_link, bandwidth), 1e9, 1, true},
    };
    read_map(r, node, name, keys, sizeof keys / sizeof *keys, out);
}

static void check_ascending(reader *r, const list *l, const char *name, bool from_zero)
{
    for (int i = 0; i < l->num; i++)
        if (i == 0 ? !from_zero && l->x[0] == 0 : l->x[i] <= l->x[i - 1]) {
            int at = r->doc.nodes[l->node].first;
            for (int j = 0; j < i; j++)
                at = r->doc.nodes[at].next;
            if (i == 0)
                complain(r, at, "%s: expected a number above 0, found 0", name);
            else
                complain(r, at, "%s: expected ascending numbers, found %.9g after %.9g", name, l->x[i], l->x[i - 1]);
            return;
        }
}

static int line_of(const reader *r, int node)
{
    return r->doc.nodes[node].line;
}

/* ---- tables of rates ---- */

enum { AXIS_NAMES = 7 };

typedef struct rate_entry {
    int op;
    plait_dtype dtype;
    bool trans_a, trans_b;
    int threads, ranks;
    double launch_seconds;
    list axes[AXIS_NAMES]; /* in the order of rate_keys */
    list gflops, gbytes;
} rate_entry;

#define RATE(member) offsetof(rate_entry, member)
static const key rate_keys[] = {
    {"op", OP, RATE(op), 0, 0, true},
    {"dtype", DTYPE, RATE(dtype), 0, 0, true},
    {"trans_a", FLAG, RATE(trans_a), 0, 0, false},
    {"trans_b", FLAG, RATE(trans_b), 0, 0, false},
    {"threads", COUNT, RATE(threads), 0, 0, false},
    {"ranks", COUNT, RATE(ranks), 0, 0, false},
    {"launch_microseconds", NUMBER, RATE(launch_seconds), 1e-6, 0, false},
    {"m", NUMBERS, RATE(axes[0]), 1, 0, false},
    {"n", NUMBERS, RATE(axes[1]), 1, 0, false},
    {"k", NUMBERS, RATE(axes[2]), 1, 0, false},
    {"heads", NUMBERS, RATE(axes[3]), 1, 0, false},
    {"seq", NUMBERS, RATE(axes[4]), 1, 0, false},
    {"head_dim", NUMBERS, RATE(axes[5]), 1, 0, false},
    {"bytes", NUMBERS, RATE(axes[6]), 1, 0, false},
    {"gflops", NUMBERS, RATE(gflops), 1e9, 0, false},
    {"gbytes", NUMBERS, RATE(gbytes), 1e9, 0, false},
};
enum { FIRST_AXIS = 7 };

static const char *name_of_op(int op)
{
    return op == PLAIT_OPS ? "memory" : plait_op_name((plait_op)op);
}

/* The axes of the operation, each given, and no other. */
static void take_axes(reader *r, int node, rate_entry *e, plait_rate_table *t)
{
    const char *names[PLAIT_RATE_AXES];
    t->num_axes = plait_rate_axes(t->op, names);
    for (int i = 0; i < AXIS_NAMES; i++) {
        const char *name = rate_keys[FIRST_AXIS + i].name;
        int a = 0;
        while (a < t->num_axes && strcmp(names[a], name) != 0)
            a++;
        if (a == t->num_axes) {
            if (e->axes[i].node)
                complain(r, e->axes[i].node, "rates: %s has no axis %s", name_of_op(e->op), name);
            continue;
        }
        if (!e->axes[i].node)
            complain(r, node, "rates: %s is missing, an axis of %s", name, name_of_op(e->op));
        check_ascending(r, &e->axes[i], name, false);
        t->at[a] = e->axes[i].x;
        t->num[a] = e->axes[i].num;
    }
}

static void take_rates(reader *r, int node, rate_entry *e, plait_rate_table *t)
{
    const bool flops = plait_rate_is_flops(t->op);
    const list *have = flops ? &e->gflops : &e->gbytes, *other = flops ? &e->gbytes : &e->gflops;
    int64_t want = 1;
    for (int a = 0; a < t->num_axes; a++)
        want *= t->num[a];
    if (other->node)
        complain(r, other->node, "rates: expected %s of %s", flops ? "gflops" : "gbytes", name_of_op(e->op));
    if (!have->node && !other->node) {
        complain(r, node, "rates: %s is missing", flops ? "gflops" : "gbytes");
    } else if (want > 0 && have->num > 0 && have->num != want) {
        complain(r, have->node, "rates: expected %lld rates, the product of the points of the axes, found %d",
                 (long long)want, have->num);
    }
    int at = have->node ? r->doc.nodes[have->node].first : -1;
    for (int i = 0; i < have->num; i++, at = r->doc.nodes[at].next)
        if (have->x[i] <= 0)
            complain(r, at, "rates: expected a rate above 0, found 0");
    t->rate = have->x;
}

static plait_status read_rate(reader *r, int node, plait_machine *m, int *lines)
{
    rate_entry e = {0};
    plait_status st = PLAIT_OK;
    const int before = r->errors.count;
    if (read_map(r, node, "rates", rate_keys, sizeof rate_keys / sizeof *rate_keys, &e)) {
        plait_rate_table t = {.op = (plait_op)e.op,
                              .dtype = e.dtype,
                              .trans_a = e.trans_a,
                              .trans_b = e.trans_b,
                              .threads = e.threads,
                              .ranks = e.ranks,
                              .launch_seconds = e.launch_seconds};
        take_axes(r, node, &e, &t);
        take_rates(r, node, &e, &t);
        if ((e.trans_a || e.trans_b) && e.op != PLAIT_OP_gemm)
            complain(r, node, "rates: %s has no transposes", name_of_op(e.op));
        const plait_rate_table *same = plait_machine_find_rates(m, &t);
        if (same)
            complain(r, node, "rates: a second table of the same as in line %d", lines[same - m->rates]);
        if (r->errors.count == before) {
            lines[m->num_rates] = line_of(r, node);
            st = plait_machine_put_rates(m, &t);
        }
    }
    for (int i = 0; i < AXIS_NAMES; i++)
        free(e.axes[i].x);
    free(e.gflops.x);
    free(e.gbytes.x);
    return st;
}

/* ---- tables of links ---- */

typedef struct link_entry {
    int kind, size, ranks;
    bool spans;
    plait_dtype dtype;
    list bytes, microseconds;
} link_entry;

#define LINKS(member) offsetof(link_entry, member)
static const key link_keys[] = {
    {"kind", KIND, LINKS(kind), 0, 0, true},
    {"size", COUNT, LINKS(size), 0, 2, true},
    {"ranks", COUNT, LINKS(ranks), 0, 0, false},
    {"spans", FLAG, LINKS(spans), 0, 0, false},
    {"dtype", DTYPE, LINKS(dtype), 0, 0, true},
    {"bytes", NUMBERS, LINKS(bytes), 1, 0, true},
    {"microseconds", NUMBERS, LINKS(microseconds), 1e-6, 0, true},
};

static plait_status read_links(reader *r, int node, plait_machine *m, int *lines)
{
    link_entry e = {0};
    plait_status st = PLAIT_OK;
    const int before = r->errors.count;
    if (read_map(r, node, "links", link_keys, sizeof link_keys / sizeof *link_keys, &e)) {
        const plait_link_table t = {.kind = (plait_comm_kind)e.kind,
                                    .size = e.size,
                                    .ranks = e.ranks,
                                    .spans = e.spans,
                                    .dtype = e.dtype,
                                    .num = e.bytes.num,
                                    .bytes = e.bytes.x,
                                    .seconds = e.microseconds.x};
        check_ascending(r, &e.bytes, "bytes", true);
        if (e.microseconds.num != e.bytes.num)
            complain(r, e.microseconds.node, "links: expected %d times, one for each of bytes, found %d", e.bytes.num,
                     e.microseconds.num);
        const plait_link_table *same = plait_machine_find_links(m, &t);
        if (same)
            complain(r, node, "links: a second table of the same as in line %d", lines[same - m->links]);
        if (r->errors.count == before) {
            lines[m->num_links] = line_of(r, node);
            st = plait_machine_put_links(m, &t);
        }
    }
    free(e.bytes.x);
    free(e.microseconds.x);
    return st;
}

/* A share of a peak is at most 1. Rates have five digits. */
static void check_peaks(reader *r, const plait_machine *m, int node)
{
    for (int d = 0; node && d < PLAIT_DTYPES; d++) {
        const plait_rate_table *best = NULL;
        const double reached = plait_machine_reached(m, (plait_dtype)d, &best);
        if (m->peak[d] > 0 && reached > m->peak[d] * (1 + 1e-4))
            complain(r, node, "peak_gflops: %s %.5g is not the peak: a rate of %s is %.5g",
                     plait_dtype_name((plait_dtype)d), m->peak[d] / 1e9, plait_op_name(best->op), reached / 1e9);
    }
}

/* ---- the file ---- */

typedef struct top_entry {
    int version, rates, links, peak;
    plait_machine m;
} top_entry;

#define TOP(member)     offsetof(top_entry, member)
#define MACHINE(member) (offsetof(top_entry, m) + offsetof(plait_machine, member))
static const key top_keys[] = {
    {"version", NODES, TOP(version), 0, 0, true},
    {"name", TEXT, MACHINE(name), 0, 0, true},
    {"source", TEXT, MACHINE(source), 0, 0, true},
    {"ranks_per_node", COUNT, MACHINE(ranks_per_node), 0, 0, false},
    {"overlap", FLAG, MACHINE(overlap), 0, 0, false},
    {"launch_microseconds", NUMBER, MACHINE(launch_seconds), 1e-6, 0, false},
    {"step_microseconds", NUMBER, MACHINE(step_seconds), 1e-6, 0, false},
    {"peak_gflops", NODES, TOP(peak), 0, 0, false},
    {"node", LINK, MACHINE(node), 0, 0, false},
    {"network", LINK, MACHINE(network), 0, 0, false},
    {"rates", NODES, TOP(rates), 0, 0, false},
    {"links", NODES, TOP(links), 0, 0, false},
};

/* Calls `read` for each entry of a list. */
static plait_status read_tables(reader *r, int node, const char *name, plait_machine *m,
                                plait_status (*read)(reader *r, int node, plait_machine *m, int *lines))
{
    if (node == 0)
        return PLAIT_OK;
    const plait_yaml_node *n = &r->doc.nodes[node];
    if (n->kind != PLAIT_YAML_LIST) {
        complain(r, node, "%s: expected a list of tables, found %s", name, kind_of(n));
        return PLAIT_OK;
    }
    int *lines = calloc((size_t)n->count + 1, sizeof *lines);
    if (!lines)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for %d tables", n->count);
    plait_status st = PLAIT_OK;
    for (int i = n->first; i >= 0 && st == PLAIT_OK; i = r->doc.nodes[i].next)
        st = read(r, i, m, lines);
    free(lines);
    return st;
}

static plait_status read_root(reader *r, plait_machine *out)
{
    top_entry top = {0};
    read_map(r, r->doc.root, "machine", top_keys, sizeof top_keys / sizeof *top_keys, &top);
    int version = 1;
    if (top.version)
        read_count(r, top.version, "version", 1, &version);
    if (version != 1)
        complain(r, top.version, "version: expected 1, the format that this program knows, found %d", version);
    *out = top.m;
    if (top.peak)
        read_by_dtype(r, top.peak, "peak_gflops", 1e9, out->peak);
    PLAIT_TRY(read_tables(r, top.rates, "rates", out, read_rate));
    PLAIT_TRY(read_tables(r, top.links, "links", out, read_links));
    check_peaks(r, out, top.peak);
    return PLAIT_OK;
}

plait_status plait_machine_read(const char *path, plait_machine *out)
{
    char *text = NULL;
    size_t len = 0;
    *out = (plait_machine){0};
    PLAIT_TRY(plait_yaml_read(path, &text, &len));
    plait_status st = PLAIT_OK;
    reader *r = calloc(1, sizeof *r);
    if (!r) {
        free(text);
        PLAIT_FAIL(OUT_OF_MEMORY, "%zu bytes to read %s", sizeof *r, path);
    }
    r->path = path;
    if (!plait_yaml_parse(&r->doc, text, len))
        plait_errors_add(&r->errors, "%.300s:%d:%d: %s", path, r->doc.line, r->doc.column, r->doc.message);
    else if (r->doc.root < 0)
        plait_errors_add(&r->errors, "%.300s:1:1: the file is empty: expected version, name, source, rates", path);
    else
        st = read_root(r, out);
    if (st == PLAIT_OK)
        st = plait_errors_status(&r->errors);
    if (st != PLAIT_OK)
        plait_machine_deinit(out);
    plait_yaml_free(&r->doc);
    free(r);
    free(text);
    return st;
}
