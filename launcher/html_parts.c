#include "launcher/html_parts.h"

#include <stdlib.h>

#include "launcher/banner.h"
#include "launcher/html.h"
#include "launcher/variants.h"

void plait_html_memory_parts(const plait_rank_class *c, plait_html_part out[PLAIT_MEM_KINDS])
{
    for (int k = 0; k < PLAIT_MEM_KINDS; k++) {
        const char *name = plait_mem_kind_name((plait_mem_kind)k);
        out[k] = (plait_html_part){.css = name, .name = name, .value = (double)c->bytes[k]};
    }
}

void plait_html_classes_legend(FILE *out, const plait_rank_plan *p)
{
    plait_html_part all[PLAIT_MEM_KINDS] = {0}, parts[PLAIT_MEM_KINDS];
    for (int i = 0; i < p->num_classes; i++) {
        plait_html_memory_parts(&p->classes[i], parts);
        plait_html_parts_add(all, parts, PLAIT_MEM_KINDS);
    }
    plait_html_parts_legend(out, all, PLAIT_MEM_KINDS);
}

static void put_class(const plait_html_bars *b, const plait_rank_class *c)
{
    plait_html_part parts[PLAIT_MEM_KINDS];
    char name[64], note[40];
    snprintf(name, sizeof name, "d%d p%d t%d", c->first.d, c->first.p, c->first.t);
    snprintf(note, sizeof note, "%s rank%s", plait_grouped(c->num_ranks), c->num_ranks == 1 ? "" : "s");
    plait_html_memory_parts(c, parts);
    plait_html_bars_row(b, name, note, plait_short_bytes((double)c->total), parts, PLAIT_MEM_KINDS);
}

void plait_html_classes_bars(plait_html_bars *b, const plait_rank_plan *p, int most)
{
    b->rows = p->num_classes;
    plait_html_bars_begin(b);
    for (int i = 0; i < p->num_classes; i++) {
        if (plait_html_is_drawn(i, p->num_classes, most))
            put_class(b, &p->classes[i]);
        else if (plait_html_is_drawn(i - 1, p->num_classes, most))
            plait_html_bars_gap(b, p->num_classes - most);
    }
    plait_html_bars_end(b);
}

/* What the time of communication is called in a legend. */
static const char *const group_names[PLAIT_GROUPS] = {
    [PLAIT_GROUP_WORLD] = "world communication",         [PLAIT_GROUP_TENSOR] = "tensor communication",
    [PLAIT_GROUP_DATA] = "data communication",           [PLAIT_GROUP_PIPELINE] = "pipeline communication",
    [PLAIT_GROUP_EMBEDDING] = "embedding communication", [PLAIT_GROUP_KV] = "key-value communication",
};

static void stage_parts(const plait_stage_time *s, double host, plait_html_part out[PLAIT_TIME_PARTS])
{
    int n = 0;
    out[n++] = (plait_html_part){"compute", "computing", s->compute};
    for (int g = 0; g < PLAIT_GROUPS; g++)
        out[n++] =
            (plait_html_part){plait_group_name((plait_group)g), group_names[g], plait_stage_exposed(s, (plait_group)g)};
    out[n++] = (plait_html_part){"idle", "idle", s->idle};
    out[n++] = (plait_html_part){"host", "host: samples, metrics", host};
}

void plait_html_time_parts(const plait_prediction *p, int stage, plait_html_part out[PLAIT_TIME_PARTS])
{
    plait_html_part one[PLAIT_TIME_PARTS];
    const int first = stage < 0 ? 0 : stage, last = stage < 0 ? p->num_stages - 1 : stage;
    for (int i = first; i <= last; i++) {
        stage_parts(&p->stages[i], p->host_seconds, one);
        for (int k = 0; k < PLAIT_TIME_PARTS; k++) {
            one[k].value /= last - first + 1;
            one[k].value += i > first ? out[k].value : 0;
            out[k] = one[k];
        }
    }
}

double plait_html_volume_parts(const plait_rank_class *c, plait_html_part out[PLAIT_GROUPS])
{
    double by_group[PLAIT_GROUPS];
    const double sum = plait_class_sent(c, by_group);
    for (int g = 0; g < PLAIT_GROUPS; g++) {
        const char *name = plait_group_name((plait_group)g);
        out[g] = (plait_html_part){name, name, by_group[g]};
    }
    return sum;
}

void plait_html_parts_add(plait_html_part *to, const plait_html_part *parts, int num)
{
    for (int k = 0; k < num; k++)
        to[k] = (plait_html_part){parts[k].css, parts[k].name, to[k].value + parts[k].value};
}

void plait_html_parts_legend(FILE *out, const plait_html_part *parts, int num)
{
    enum { MOST = 16 };
    plait_html_key keys[MOST];
    int n = 0;
    for (int k = 0; k < num && n < MOST; k++)
        if (parts[k].value > 0)
            keys[n++] = (plait_html_key){parts[k].css, parts[k].name};
    plait_html_legend(out, keys, n);
}
