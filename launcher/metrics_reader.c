#include "launcher/metrics_reader.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

typedef enum form { NUMBER, HEX, WHOLE } form;

static const struct {
    const char *name, *key; /* key: in the file */
    form form;
    plait_metrics_kind of;
} fields[PLAIT_METRICS_FIELDS] = {
    [PLAIT_METRICS_LOSS] = {"loss", "loss_hex", HEX, PLAIT_METRICS_STEP},
    [PLAIT_METRICS_GRAD_NORM] = {"grad_norm", "grad_norm", NUMBER, PLAIT_METRICS_STEP},
    [PLAIT_METRICS_LR] = {"lr", "lr", NUMBER, PLAIT_METRICS_STEP},
    [PLAIT_METRICS_LOSS_SCALE] = {"loss_scale", "loss_scale", NUMBER, PLAIT_METRICS_STEP},
    [PLAIT_METRICS_SKIPPED] = {"skipped", "skipped", WHOLE, PLAIT_METRICS_STEP},
    [PLAIT_METRICS_COUNTED_TOKENS] = {"counted_tokens", "counted_tokens", WHOLE, PLAIT_METRICS_STEP},
    [PLAIT_METRICS_EVAL_LOSS] = {"loss", "loss", NUMBER, PLAIT_METRICS_EVAL},
};

const char *plait_metrics_field_name(plait_metrics_field f)
{
    return fields[f].name;
}

bool plait_metrics_field_is_whole(plait_metrics_field f)
{
    return fields[f].form == WHOLE;
}

bool plait_metrics_field_of(plait_metrics_field f, plait_metrics_kind kind)
{
    return fields[f].of == kind;
}

int plait_metrics_compare_place(const plait_metrics_line *a, const plait_metrics_line *b)
{
    const bool a_ended = a->kind == PLAIT_METRICS_END, b_ended = b->kind == PLAIT_METRICS_END;
    if (a_ended || b_ended)
        return a_ended - b_ended;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    return (int)a->kind - (int)b->kind;
}

plait_status plait_metrics_reader_open(plait_metrics_reader *r, const char *path)
{
    *r = (plait_metrics_reader){.last = {.step = -1}};
    return plait_line_reader_open(&r->lines, path);
}

void plait_metrics_reader_close(plait_metrics_reader *r)
{
    plait_line_reader_close(&r->lines);
}

/* ---- one line ---- */

static plait_status read_field(const plait_metrics_reader *r, const json_t *object, plait_metrics_field f,
                               double *value)
{
    const json_t *v = json_object_get(object, fields[f].key);
    const char *hex = json_string_value(v);
    char *end = NULL;
    bool good = false;
    *value = NAN;
    switch (fields[f].form) {
    case HEX:
        good = hex && *hex;
        *value = good ? strtod(hex, &end) : NAN;
        good = good && *end == '\0';
        break;
    case WHOLE:
        good = json_is_integer(v);
        *value = json_number_value(v);
        break;
    case NUMBER:
        good = json_is_number(v) || json_is_null(v);
        *value = json_is_number(v) ? json_number_value(v) : NAN;
    }
    if (!good)
        PLAIT_FAIL(IO, "%s, line %lld: %s is %s", r->lines.path, (long long)r->lines.number, fields[f].key,
                   v ? "not what a metrics file has there" : "missing");
    return PLAIT_OK;
}

static plait_status read_place(const plait_metrics_reader *r, const json_t *object, const char *key,
                               plait_metrics_line *out)
{
    const json_t *step = json_object_get(object, key);
    if (!json_is_integer(step) || json_integer_value(step) < 0)
        PLAIT_FAIL(IO, "%s, line %lld: %s is not a whole number from 0", r->lines.path, (long long)r->lines.number,
                   key);
    out->step = json_integer_value(step);
    return PLAIT_OK;
}

static plait_status read_object(plait_metrics_reader *r, const json_t *object, plait_metrics_line *out)
{
    const json_t *eval = json_object_get(object, "eval");
    if (json_object_get(object, "memory")) {
        out->kind = PLAIT_METRICS_END;
        r->lines.ended = true;
        return PLAIT_OK;
    }
    out->kind = eval ? PLAIT_METRICS_EVAL : PLAIT_METRICS_STEP;
    PLAIT_TRY(read_place(r, eval ? eval : object, eval ? "after_step" : "step", out));
    for (int f = 0; f < PLAIT_METRICS_FIELDS; f++)
        if (fields[f].of == out->kind)
            PLAIT_TRY(read_field(r, eval ? eval : object, (plait_metrics_field)f, &out->value[f]));
    if (plait_metrics_compare_place(&r->last, out) >= 0)
        PLAIT_FAIL(IO, "%s, line %lld: step %lld after step %lld", r->lines.path, (long long)r->lines.number,
                   (long long)out->step, (long long)r->last.step);
    r->last = *out;
    return PLAIT_OK;
}

/* The line before the end of the file may lack its rest; then it is left out. */
static plait_status read_text(plait_metrics_reader *r, size_t length, plait_metrics_line *out)
{
    json_error_t error;
    json_t *object = json_loadb(r->lines.text, length, JSON_REJECT_DUPLICATES, &error);
    if (!object && r->lines.text[length - 1] != '\n') {
        r->lines.cut = true;
        out->kind = PLAIT_METRICS_END;
        return PLAIT_OK;
    }
    if (!object)
        PLAIT_FAIL(IO, "%s, line %lld: %s", r->lines.path, (long long)r->lines.number, error.text);
    plait_status st = read_object(r, object, out);
    json_decref(object);
    return st;
}

/* *any: there was one. */
static plait_status read_line(plait_metrics_reader *r, plait_metrics_line *out, bool *any)
{
    size_t length;
    PLAIT_TRY(plait_line_reader_next(&r->lines, &length));
    *any = length > 0;
    if (!*any)
        return PLAIT_OK;
    if (r->lines.ended)
        PLAIT_FAIL(IO, "%s, line %lld: there is a line after the last", r->lines.path, (long long)r->lines.number);
    return read_text(r, length, out);
}

plait_status plait_metrics_reader_next(plait_metrics_reader *r, plait_metrics_line *out)
{
    bool any;
    *out = (plait_metrics_line){.kind = PLAIT_METRICS_END};
    do
        PLAIT_TRY(read_line(r, out, &any));
    while (any && r->lines.ended); /* nothing may follow */
    if (out->kind == PLAIT_METRICS_END && r->last.step < 0)
        PLAIT_FAIL(IO, "%s has no whole line of a step", r->lines.path);
    return PLAIT_OK;
}
