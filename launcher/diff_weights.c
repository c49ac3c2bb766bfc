/* plait diff of two weight files: tensors by name, in the order of the first file, elements by their bits. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/safetensors.h"
#include "launcher/diff.h"
#include "launcher/diff_number.h"

/* Read at a time from each file. */
enum { CHUNK_BYTES = 1 << 20 };

/* Where two elements differ. */
typedef struct difference {
    const plait_st_tensor *tensor; /* NULL: nowhere yet */
    int64_t element;
    uint64_t bits[2], ulps;
} difference;

typedef struct comparison {
    FILE *out;
    const char *const *path;
    plait_st_file *file[2];
    const plait_st_tensor **by_name[2];
    unsigned char *chunk[2];

    int64_t tensors, elements, unlike; /* in both files; of these, tensors of another type or shape, not compared */
    int64_t tensors_differ, elements_differ, only[2];
    difference largest;
    bool differ; /* the first difference has been printed */
} comparison;

/* ---- names ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const plait_st_tensor *const *)a)->name, (*(const plait_st_tensor *const *)b)->name);
}

static plait_status sort_names(comparison *c, int which)
{
    const int64_t count = plait_st_count(c->file[which]);
    c->by_name[which] = calloc((size_t)count + 1, sizeof *c->by_name[which]);
    if (!c->by_name[which])
        PLAIT_FAIL(OUT_OF_MEMORY, "%s: no memory for %lld names", c->path[which], (long long)count);
    for (int64_t i = 0; i < count; i++)
        c->by_name[which][i] = plait_st_at(c->file[which], i);
    qsort(c->by_name[which], (size_t)count, sizeof *c->by_name[which], by_name);
    return PLAIT_OK;
}

/* The other file's tensor of the same name; NULL: none. */
static const plait_st_tensor *twin(const comparison *c, int other, const plait_st_tensor *t)
{
    const plait_st_tensor **found =
        bsearch(&t, c->by_name[other], (size_t)plait_st_count(c->file[other]), sizeof *c->by_name[other], by_name);
    return found ? *found : NULL;
}

/* ---- words ---- */

static void print_shape(FILE *out, const plait_st_tensor *t)
{
    fprintf(out, "%s [", plait_st_dtype_name(t->dtype));
    for (int i = 0; i < t->ndim; i++)
        fprintf(out, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
    fputc(']', out);
}

/* " [row, col]" of an element. */
static void print_index(FILE *out, const plait_st_tensor *t, int64_t element)
{
    int64_t stride = t->numel;
    fputs(" [", out);
    for (int i = 0; i < t->ndim; i++) {
        stride /= t->shape[i];
        fprintf(out, "%s%lld", i ? ", " : "", (long long)(element / stride));
        element %= stride;
    }
    fputc(']', out);
}

/* Types that have ULPs. */
static bool is_float(plait_st_dtype dtype, plait_dtype *as)
{
    switch (dtype) {
    case PLAIT_ST_F32:
        *as = PLAIT_FP32;
        return true;
    case PLAIT_ST_F64:
        *as = PLAIT_FP64;
        return true;
    case PLAIT_ST_BF16:
        *as = PLAIT_BF16;
        return true;
    case PLAIT_ST_F16:
        *as = PLAIT_FP16;
        return true;
    default:
        return false;
    }
}

static void print_difference(const comparison *c, const char *what, const difference *d)
{
    plait_dtype dtype;
    const bool number = is_float(d->tensor->dtype, &dtype);
    fprintf(c->out, "%s difference: %s", what, d->tensor->name);
    print_index(c->out, d->tensor, d->element);
    fprintf(c->out, ", %s", plait_st_dtype_name(d->tensor->dtype));
    if (number) {
        fputs(", ", c->out);
        plait_ulps_print(c->out, d->ulps);
    }
    fputc('\n', c->out);
    for (int i = 0; i < 2; i++) {
        fprintf(c->out, "  %s: ", c->path[i]);
        if (number)
            plait_number_print(c->out, dtype, d->bits[i]);
        else
            fprintf(c->out, "bits 0x%0*" PRIx64, 2 * (int)plait_st_dtype_size(d->tensor->dtype), d->bits[i]);
        fputc('\n', c->out);
    }
}

/* ---- comparing ---- */

static void note_element(comparison *c, const difference *d)
{
    plait_dtype dtype;
    c->elements_differ++;
    if (!c->differ)
        print_difference(c, "first", d);
    c->differ = true;
    if (is_float(d->tensor->dtype, &dtype) && (!c->largest.tensor || d->ulps > c->largest.ulps))
        c->largest = *d;
}

/* Elements [first, first + n), which lie in both chunks. */
static void compare_chunk(comparison *c, const plait_st_tensor *t, int64_t first, int64_t n)
{
    const size_t size = plait_st_dtype_size(t->dtype);
    plait_dtype dtype;
    if (memcmp(c->chunk[0], c->chunk[1], (size_t)n * size) == 0)
        return;
    for (int64_t i = 0; i < n; i++) {
        difference d = {.tensor = t, .element = first + i};
        for (int k = 0; k < 2; k++)
            memcpy(&d.bits[k], c->chunk[k] + (size_t)i * size, size); /* little endian, as the file */
        if (d.bits[0] == d.bits[1])
            continue;
        if (is_float(t->dtype, &dtype))
            d.ulps = plait_ulps(dtype, d.bits[0], d.bits[1]);
        note_element(c, &d);
    }
}

static plait_status compare_elements(comparison *c, const plait_st_tensor *a, const plait_st_tensor *b)
{
    const int64_t most = CHUNK_BYTES / (int64_t)plait_st_dtype_size(a->dtype), before = c->elements_differ;
    for (int64_t first = 0, n; first < a->numel; first += n) {
        n = a->numel - first < most ? a->numel - first : most;
        PLAIT_TRY(plait_st_read_raw(c->file[0], a, first, n, c->chunk[0]));
        PLAIT_TRY(plait_st_read_raw(c->file[1], b, first, n, c->chunk[1]));
        compare_chunk(c, a, first, n);
    }
    c->elements += a->numel;
    c->tensors_differ += c->elements_differ > before;
    return PLAIT_OK;
}

static bool alike(const plait_st_tensor *a, const plait_st_tensor *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

static void note_unlike(comparison *c, const plait_st_tensor *a, const plait_st_tensor *b)
{
    const plait_st_tensor *t[2] = {a, b};
    c->unlike++;
    c->tensors_differ++;
    if (!c->differ)
        fprintf(c->out, "first difference: %s\n", a->name);
    for (int i = 0; i < 2 && !c->differ; i++) {
        fprintf(c->out, "  %s: ", c->path[i]);
        print_shape(c->out, t[i]);
        fputc('\n', c->out);
    }
    c->differ = true;
}

static void note_only(comparison *c, int which, const plait_st_tensor *t)
{
    c->only[which]++;
    if (!c->differ)
        fprintf(c->out, "first difference: %s is only in %s\n", t->name, c->path[which]);
    c->differ = true;
}

/* The first file's tensors in its order, then what only the second has. */
static plait_status compare_files(comparison *c)
{
    for (int64_t i = 0; i < plait_st_count(c->file[0]); i++) {
        const plait_st_tensor *a = plait_st_at(c->file[0], i), *b = twin(c, 1, a);
        if (!b) {
            note_only(c, 0, a);
            continue;
        }
        c->tensors++;
        if (!alike(a, b))
            note_unlike(c, a, b);
        else
            PLAIT_TRY(compare_elements(c, a, b));
    }
    for (int64_t i = 0; i < plait_st_count(c->file[1]); i++)
        if (!twin(c, 0, plait_st_at(c->file[1], i)))
            note_only(c, 1, plait_st_at(c->file[1], i));
    return PLAIT_OK;
}

/* ---- the summary ---- */

/* "N tensors", "1 tensor" */
static void print_count(FILE *out, int64_t n, const char *thing)
{
    fprintf(out, "%lld %s%s", (long long)n, thing, n == 1 ? "" : "s");
}

static void print_only(const comparison *c, int which)
{
    enum { NAMED = 8 };
    int64_t named = 0;
    if (c->only[which] == 0)
        return;
    fprintf(c->out, "only in %s: ", c->path[which]);
    print_count(c->out, c->only[which], "tensor");
    for (int64_t i = 0; i < plait_st_count(c->file[which]) && named < NAMED; i++)
        if (!twin(c, !which, plait_st_at(c->file[which], i)))
            fprintf(c->out, "%s %s", named++ ? "," : ":", plait_st_at(c->file[which], i)->name);
    fprintf(c->out, "%s\n", named < c->only[which] ? ", ..." : "");
}

static void print_summary(const comparison *c)
{
    if (!c->differ) {
        fprintf(c->out, "equal to the last bit: ");
        print_count(c->out, c->tensors, "tensor");
        fputs(", ", c->out);
        print_count(c->out, c->elements, "element");
        fputc('\n', c->out);
        return;
    }
    fputs("in both: ", c->out);
    print_count(c->out, c->tensors, "tensor");
    fprintf(c->out, ", of which %lld differ", (long long)c->tensors_differ);
    if (c->unlike > 0)
        fprintf(c->out, " (%lld in type or shape, not compared)", (long long)c->unlike);
    fputs("; ", c->out);
    print_count(c->out, c->elements, "element");
    fprintf(c->out, " compared, of which %lld differ\n", (long long)c->elements_differ);
    print_only(c, 0);
    print_only(c, 1);
    if (c->largest.tensor)
        print_difference(c, "largest", &c->largest);
}

static plait_status prepare(comparison *c)
{
    for (int i = 0; i < 2; i++) {
        PLAIT_TRY(plait_st_open(c->path[i], &c->file[i]));
        PLAIT_TRY(sort_names(c, i));
        c->chunk[i] = malloc(CHUNK_BYTES);
        if (!c->chunk[i])
            PLAIT_FAIL(OUT_OF_MEMORY, "no memory for %d bytes of %s", CHUNK_BYTES, c->path[i]);
    }
    return PLAIT_OK;
}

plait_status plait_diff_weights(const char *const path[2], FILE *out, bool *differ)
{
    comparison c = {.out = out, .path = path};
    plait_status st = prepare(&c);
    if (st == PLAIT_OK)
        st = compare_files(&c);
    if (st == PLAIT_OK)
        print_summary(&c);
    *differ = c.differ;
    for (int i = 0; i < 2; i++) {
        free(c.chunk[i]);
        free(c.by_name[i]);
        plait_st_close(c.file[i]);
    }
    return st;
}
