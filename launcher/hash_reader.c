#include "launcher/hash_reader.h"

#include <stdlib.h>
#include <string.h>

#include "launcher/hash_file.h"

enum { STEP, MICRO, LAYER, OP, DIRECTION, SLICE, HASH, RANK, PLACE, COLUMNS };

/* ---- a line's fields ---- */

/* Cuts a line at its tabs; false: it has not as many columns. */
static bool split(char *text, char *field[COLUMNS])
{
    for (int i = 0; i < COLUMNS; i++) {
        field[i] = text;
        text = strchr(text, i + 1 < COLUMNS ? '\t' : '\n');
        if (!text)
            return false;
        *text++ = '\0';
    }
    return *text == '\0' && !strchr(field[PLACE], '\t');
}

static bool is_none(const char *text)
{
    return strcmp(text, "-") == 0;
}

static bool whole(const char *text, int64_t most, int64_t *out)
{
    *out = 0;
    if (!*text || strlen(text) > 18)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        *out = 10 * *out + (*text - '0');
    }
    return *out <= most;
}

/* 16 lower-case digits. */
static bool hash(const char *text, uint64_t *out)
{
    if (strlen(text) != 16 || text[strspn(text, "0123456789abcdef")] != '\0')
        return false;
    *out = strtoull(text, NULL, 16);
    return true;
}

static bool operation(const char *text, plait_hash_op *out)
{
    for (int i = 0; i < PLAIT_HASH_OPS; i++)
        if (strcmp(text, plait_hash_op_name((plait_hash_op)i)) == 0) {
            *out = (plait_hash_op)i;
            return true;
        }
    return false;
}

/* "-" is fine where `none` is. */
static bool whole_or_none(const char *text, bool none, int64_t most, int64_t *out)
{
    *out = -1;
    return none ? is_none(text) : whole(text, most, out);
}

/* The layer's number, or where else the operation is; of gradients and weights the tensor. */
static bool layer(const char *text, plait_hash_line *out)
{
    plait_hash_record *r = &out->record;
    r->layer = -1;
    if (plait_hash_op_of_layer(r->op))
        return whole(text, INT32_MAX, &r->layer);
    if (plait_hash_op_of_step(r->op))
        return *text && snprintf(out->tensor, sizeof out->tensor, "%s", text) < (int)sizeof out->tensor;
    return strcmp(text, r->op == PLAIT_HASH_EMBEDDING ? "embedding" : "head") == 0;
}

/* NULL, or the column that is not what the file should have there. */
static const char *read_fields(char *const field[COLUMNS], plait_hash_line *out)
{
    plait_hash_record *r = &out->record;
    int64_t slice, rank;
    if (!operation(field[OP], &r->op))
        return "operation";
    const bool of_step = plait_hash_op_of_step(r->op);
    if (!whole(field[STEP], INT64_MAX, &r->step))
        return "step";
    if (!whole_or_none(field[MICRO], of_step, INT64_MAX, &r->micro))
        return "micro_batch";
    if (!layer(field[LAYER], out))
        return "layer";
    r->backward = strcmp(field[DIRECTION], "backward") == 0;
    if (strcmp(field[DIRECTION], of_step ? "-" : r->backward ? "backward" : "forward") != 0)
        return "direction";
    if (!whole_or_none(field[SLICE], of_step || r->op == PLAIT_HASH_LOSS, INT32_MAX, &slice))
        return "slice";
    if (!hash(field[HASH], &r->hash))
        return "hash";
    if (!whole_or_none(field[RANK], of_step, INT32_MAX, &rank))
        return "rank";
    if (snprintf(out->place, sizeof out->place, "%s", field[PLACE]) >= (int)sizeof out->place)
        return "place";
    r->slice = (int)slice;
    r->rank = (int)rank;
    r->tensor = out->tensor;
    return NULL;
}

/* ---- lines ---- */

/* A line of the head that must be `text`. */
static plait_status read_head(plait_hash_reader *r, const char *text)
{
    size_t length = 0;
    PLAIT_TRY(plait_line_reader_next(&r->lines, &length));
    if (length != strlen(text) + 1 || memcmp(r->lines.text, text, length - 1) != 0 || r->lines.text[length - 1] != '\n')
        PLAIT_FAIL(IO, "%s, line %lld: not '%s', as a file of tensor hashes has there", r->lines.path,
                   (long long)r->lines.number, text);
    return PLAIT_OK;
}

/* A whole line of the head behind "# "; r->lines.text is "# ...". */
static plait_status read_comment(plait_hash_reader *r)
{
    size_t length = 0;
    PLAIT_TRY(plait_line_reader_next(&r->lines, &length));
    if (length < 4 || memcmp(r->lines.text, "# ", 2) != 0 || r->lines.text[length - 1] != '\n')
        PLAIT_FAIL(IO, "%s, line %lld: the head of the file is not whole", r->lines.path, (long long)r->lines.number);
    r->lines.text[length - 1] = '\0';
    return PLAIT_OK;
}

plait_status plait_hash_reader_open(plait_hash_reader *r, const char *path)
{
    *r = (plait_hash_reader){.line.record.step = -1};
    PLAIT_TRY(plait_line_reader_open(&r->lines, path));
    PLAIT_TRY(read_head(r, PLAIT_HASH_FILE_FIRST));
    PLAIT_TRY(read_comment(r));
    r->model = strdup(r->lines.text + 2);
    if (!r->model)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory to read %s", path);
    PLAIT_TRY(read_comment(r)); /* the grid, which may be another */
    PLAIT_TRY(read_head(r, PLAIT_HASH_FILE_COLUMNS));
    PLAIT_TRY(plait_hash_reader_next(r));
    if (!r->more)
        PLAIT_FAIL(IO, "%s has no whole record", path);
    return PLAIT_OK;
}

void plait_hash_reader_close(plait_hash_reader *r)
{
    plait_line_reader_close(&r->lines);
    free(r->model);
    *r = (plait_hash_reader){0};
}

static plait_status read_record(plait_hash_reader *r)
{
    char *field[COLUMNS];
    plait_hash_line next = {.tensor = ""};
    if (!split(r->lines.text, field))
        PLAIT_FAIL(IO, "%s, line %lld: not %d columns with tabs between them", r->lines.path,
                   (long long)r->lines.number, COLUMNS);
    const char *wrong = read_fields(field, &next);
    if (wrong)
        PLAIT_FAIL(IO, "%s, line %lld: %s is not what a file of tensor hashes has there", r->lines.path,
                   (long long)r->lines.number, wrong);
    if (r->line.record.step >= 0 && plait_hash_compare_place(&r->line.record, &next.record) >= 0)
        PLAIT_FAIL(IO, "%s, line %lld: the record is not in the order of a run", r->lines.path,
                   (long long)r->lines.number);
    r->line = next;
    r->line.record.tensor = r->line.tensor;
    return PLAIT_OK;
}

plait_status plait_hash_reader_next(plait_hash_reader *r)
{
    size_t length = 0;
    PLAIT_TRY(plait_line_reader_next(&r->lines, &length));
    r->more = false;
    if (length == 0)
        return PLAIT_OK;
    if (r->lines.text[length - 1] != '\n') {
        r->lines.cut = true;
        return PLAIT_OK;
    }
    if (strcmp(r->lines.text, PLAIT_HASH_FILE_LAST "\n") != 0) {
        r->more = true;
        return read_record(r);
    }
    r->lines.ended = true;
    PLAIT_TRY(plait_line_reader_next(&r->lines, &length));
    if (length > 0)
        PLAIT_FAIL(IO, "%s, line %lld: there is a line after the last", r->lines.path, (long long)r->lines.number);
    return PLAIT_OK;
}
