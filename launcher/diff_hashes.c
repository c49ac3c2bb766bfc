/* plait diff of two files of debug.tensor_hashes: both are read in step, since their records are in the order of the
 * run. */
#include <inttypes.h>
#include <string.h>

#include "launcher/diff.h"
#include "launcher/hash_reader.h"

typedef struct comparison {
    FILE *out;
    const char *const *path;
    plait_hash_reader reader[2];

    int64_t both, differing, steps, last_step; /* records of both; steps of which both have some */
    struct {
        int64_t count;
        plait_hash_line first;
    } only[2];
    bool differ; /* the first difference has been printed */
} comparison;

/* ---- words ---- */

/* "step 2, micro-batch 1, layer 3, qkv backward, slice 5", "step 2, gradient of wte.weight" */
static void print_place(FILE *out, const plait_hash_line *l)
{
    const plait_hash_record *r = &l->record;
    fprintf(out, "step %lld, ", (long long)r->step);
    if (plait_hash_op_of_step(r->op)) {
        fprintf(out, "%s of %s", plait_hash_op_name(r->op), l->tensor);
        return;
    }
    fprintf(out, "micro-batch %lld, ", (long long)r->micro);
    if (plait_hash_op_of_layer(r->op))
        fprintf(out, "layer %lld, ", (long long)r->layer);
    fprintf(out, "%s %s", plait_hash_op_name(r->op), r->backward ? "backward" : "forward");
    if (r->slice >= 0)
        fprintf(out, ", slice %d", r->slice);
}

static void print_hash(FILE *out, const plait_hash_line *l)
{
    fprintf(out, "%016" PRIx64, l->record.hash);
    if (l->record.rank >= 0)
        fprintf(out, ", rank %d (%s)", l->record.rank, l->place);
}

/* ---- comparing ---- */

/* Of two models every record would differ. */
static plait_status same_model(const comparison *c)
{
    const char *a = c->reader[0].model, *b = c->reader[1].model;
    size_t word = 0, i = 0;
    for (; a[i] && a[i] == b[i]; i++)
        if (a[i] == ' ')
            word = i + 1;
    if (a[i] == b[i])
        return PLAIT_OK;
    PLAIT_FAIL(USAGE, "%s has %.*s, %s has %.*s: only runs of one model can be compared by their hashes", c->path[0],
               (int)strcspn(a + word, " "), a + word, c->path[1], (int)strcspn(b + word, " "), b + word);
}

/* Two records of one place. */
static void compare_records(comparison *c)
{
    const plait_hash_line *line[2] = {&c->reader[0].line, &c->reader[1].line};
    c->both++;
    c->steps += line[0]->record.step != c->last_step;
    c->last_step = line[0]->record.step;
    if (line[0]->record.hash == line[1]->record.hash)
        return;
    c->differing++;
    if (!c->differ) {
        fputs("first difference: ", c->out);
        print_place(c->out, line[0]);
        for (int i = 0; i < 2; i++) {
            fprintf(c->out, "\n  %s: ", c->path[i]);
            print_hash(c->out, line[i]);
        }
        fputc('\n', c->out);
    }
    c->differ = true;
}

static void note_only(comparison *c, int which)
{
    const plait_hash_line *l = &c->reader[which].line;
    if (c->only[which].count++ == 0)
        c->only[which].first = *l;
    if (!c->differ) {
        fputs("first difference: ", c->out);
        print_place(c->out, l);
        fprintf(c->out, " is only in %s\n", c->path[which]);
    }
    c->differ = true;
}

static plait_status compare_files(comparison *c)
{
    plait_hash_reader *a = &c->reader[0], *b = &c->reader[1];
    while (a->more || b->more) {
        const int place = !a->more ? 1 : !b->more ? -1 : plait_hash_compare_place(&a->line.record, &b->line.record);
        if (place == 0)
            compare_records(c);
        else
            note_only(c, place > 0);
        if (place <= 0)
            PLAIT_TRY(plait_hash_reader_next(a));
        if (place >= 0)
            PLAIT_TRY(plait_hash_reader_next(b));
    }
    return PLAIT_OK;
}

/* ---- the summary ---- */

static void print_count(FILE *out, int64_t n, const char *thing)
{
    fprintf(out, "%lld %s%s", (long long)n, thing, n == 1 ? "" : "s");
}

static void print_only(const comparison *c, int which)
{
    if (c->only[which].count == 0)
        return;
    fprintf(c->out, "only in %s: ", c->path[which]);
    print_count(c->out, c->only[which].count, "record");
    fputs(", from ", c->out);
    print_place(c->out, &c->only[which].first);
    fputs(" on\n", c->out);
}

static void print_summary(const comparison *c)
{
    fputs(c->differ ? "in both: " : "equal to the last bit: ", c->out);
    print_count(c->out, c->steps, "step");
    fputs(", ", c->out);
    print_count(c->out, c->both, "record");
    if (c->differ)
        fprintf(c->out, ", of which %lld differ", (long long)c->differing);
    fputc('\n', c->out);
    for (int i = 0; i < 2; i++)
        print_only(c, i);
    for (int i = 0; i < 2; i++)
        plait_line_reader_print_missing(&c->reader[i].lines, c->out);
}

plait_status plait_diff_hashes(const char *const path[2], FILE *out, bool *differ)
{
    comparison c = {.out = out, .path = path, .last_step = -1};
    plait_status st = PLAIT_OK;
    for (int i = 0; i < 2 && st == PLAIT_OK; i++)
        st = plait_hash_reader_open(&c.reader[i], path[i]);
    if (st == PLAIT_OK)
        st = same_model(&c);
    if (st == PLAIT_OK)
        st = compare_files(&c);
    if (st == PLAIT_OK)
        print_summary(&c);
    *differ = c.differ;
    for (int i = 0; i < 2; i++)
        plait_hash_reader_close(&c.reader[i]);
    return st;
}
