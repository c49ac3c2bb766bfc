#include "core/config.h"

#include "core/config_impl.h"
#include "core/json_out.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Calls `each` with every key that has a value, and its text. */
static void for_each_value(const plait_config *cfg,
                           void (*each)(void *self, int row, const plait_key *k, const char *text), void *self)
{
    int count;
    const plait_key *keys = plait_config_keys(&count);
    char *text = (char *)malloc(PLAIT_VALUE_TEXT);
    if (!text)
        abort();
    for (int i = 0; i < count; i++) {
        const plait_key *k = &keys[i];
        if (k->role == PLAIT_KEY_REFUSED)
            continue;
        if (k->role == PLAIT_KEY_NEUTRAL)
            snprintf(text, PLAIT_VALUE_TEXT, "%s", k->dflt);
        else
            plait_value_text(k, (const char *)cfg + k->offset, text, PLAIT_VALUE_TEXT);
        each(self, i, k, text);
    }
    free(text);
}

static void origin_text(const plait_config *cfg, int row, char *out, size_t size)
{
    const struct plait_config_origin *o = &cfg->origins[row];
    switch (o->kind) {
    case PLAIT_ORIGIN_FILE:
        snprintf(out, size, "%s:%d", cfg->file, o->line);
        break;
    case PLAIT_ORIGIN_OVERRIDE:
        snprintf(out, size, "override");
        break;
    case PLAIT_ORIGIN_DERIVED:
        snprintf(out, size, "derived");
        break;
    case PLAIT_ORIGIN_DEFAULT:
        snprintf(out, size, "default");
    }
}

/* ---- text and JSON ---- */

typedef struct printer {
    const plait_config *cfg;
    FILE *out;
    json_t *json;
} printer;

static void print_line(void *self, int row, const plait_key *k, const char *text)
{
    const printer *p = (const printer *)self;
    char origin[PLAIT_PATH_MAX + 16];
    origin_text(p->cfg, row, origin, sizeof origin);
    fprintf(p->out, "%-50s %-20s %s\n", k->path, text, origin);
}

/* A text as JSON: a path may have bytes that are not UTF-8, of which jansson would make nothing. */
static json_t *json_text(const char *s)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    if (!f)
        abort();
    plait_json_string(f, s);
    if (fclose(f) != 0)
        abort();
    json_t *value = json_loadb(text, len, JSON_DECODE_ANY, NULL);
    free(text);
    return value;
}

/* The value with its JSON type. */
static json_t *json_value(const plait_config *cfg, const plait_key *k, const char *text)
{
    const char *src = (const char *)cfg + k->offset;
    if (strcmp(text, "null") == 0)
        return json_null();
    if (strcmp(text, "auto") == 0)
        return json_string(text);
    if (k->role == PLAIT_KEY_NEUTRAL)
        return k->type == PLAIT_KEY_ENUM ? json_string(text) : json_loads(text, JSON_DECODE_ANY, NULL);
    switch (k->type) {
    case PLAIT_KEY_INT:
    case PLAIT_KEY_BYTES:
        return json_integer(*(const int64_t *)(const void *)src);
    case PLAIT_KEY_DOUBLE:
        return json_real(*(const double *)(const void *)src);
    case PLAIT_KEY_BOOL:
        return json_boolean(*(const bool *)src);
    case PLAIT_KEY_INTS:
    case PLAIT_KEY_DOUBLES:
    case PLAIT_KEY_LAYOUT:
        return json_loads(text, 0, NULL); /* a list of numbers reads the same */
    case PLAIT_KEY_SET: {
        json_t *list = json_array();
        unsigned set = *(const unsigned *)(const void *)src;
        for (const plait_word *w = k->words; w->name; w++)
            if (set & (unsigned)w->value)
                json_array_append_new(list, json_string(w->name));
        return list;
    }
    default:
        return json_text(text);
    }
}

static void add_json(void *self, int row, const plait_key *k, const char *text)
{
    const printer *p = (const printer *)self;
    const struct plait_config_origin *o = &p->cfg->origins[row];
    static const char *const kinds[] = {"default", "derived", "file", "override"};
    bool in_file = o->kind == PLAIT_ORIGIN_FILE;
    json_t *entry = json_object();
    json_object_set_new(entry, "value", json_value(p->cfg, k, text));
    json_object_set_new(entry, "origin", json_string(kinds[o->kind]));
    json_object_set_new(entry, "file", in_file ? json_text(p->cfg->file) : json_null());
    json_object_set_new(entry, "line", in_file ? json_integer(o->line) : json_null());
    json_object_set_new(p->json, k->path, entry);
}

void plait_config_print(const plait_config *cfg, FILE *out, bool json)
{
    printer p = {cfg, out, NULL};
    if (!json) {
        for_each_value(cfg, print_line, &p);
        return;
    }
    p.json = json_object();
    for_each_value(cfg, add_json, &p);
    json_dumpf(p.json, out, JSON_INDENT(2));
    fputc('\n', out);
    json_decref(p.json);
}

/* ---- comparing ranks ---- */

static void dump_line(void *self, int row, const plait_key *k, const char *text)
{
    (void)row;
    fprintf((FILE *)self, "%s: %s\n", k->path, text);
}

char *plait_config_dump(const plait_config *cfg)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    if (!f)
        return NULL;
    for_each_value(cfg, dump_line, f);
    return fclose(f) == 0 ? text : (free(text), NULL);
}

/* ---- the reference page ---- */

static const char intro[] =
    "# Configuration\n"
    "\n"
    "This page is printed from the key table in `core/config_keys.c`; a test compares them.\n"
    "\n"
    "A run is described by one YAML file and, after it, any number of overrides `section.key=value` on the command\n"
    "line, of which the last wins. Every key has a default. Unknown keys, keys given twice and wrong values are\n"
    "errors: all of them are reported at once, each with `file:line:column`. Contradictions between keys, or with the\n"
    "number of ranks, are looked for once every value is right, and are reported together as well.\n"
    "\n"
    "- Numbers are those of YAML 1.2: `1e-4`, `1.e-4`, `.0001`, `+1.0e-4` and `\"0.0001\"` are one number. A whole "
    "number\n"
    "  may be written `4`, `4.0`, `4e0`, `0x4` or `0o4`; `010` is refused because some read it as eight. `nan`, `inf`\n"
    "  and what does not fit into 64 bits are refused.\n"
    "- `true` and `false` are the only truth values; `yes`, `on` and the like are refused.\n"
    "- Sizes are whole numbers of bytes or carry a unit: `B`, `KiB`, `MiB`, `GiB`, `TiB`, `PiB`, `EiB`.\n"
    "- `null` sets a key back to its default. A key without anything behind it is an error.\n"
    "- A key that needs another one (`optimizer.momentum` needs SGD) and does nothing without it is an error in an "
    "override, and\n"
    "  named in a line of its own if the file gives it, since a file may serve several runs.\n"
    "- A relative path in the file is relative to the file, in an override to the working directory.\n"
    "- The value of an override is YAML too, but a path is taken as it stands (`data.data_path=/tmp/a #1.txt`) unless "
    "it\n"
    "  begins with a quote or a bracket: `'data.data_path=\"null\"'` is a file of that name.\n"
    "- An anchor may be repeated by reference (`&n 4`, `*n`) when it stands for a single value. Files are UTF-8, at "
    "most\n"
    "  1 MiB, nested at most 16 deep, one document.\n"
    "- An alias is another name of a key that other systems use; the printed configuration shows the first name.\n"
    "- `topology` is another name of the section `parallelism`.\n";

static void print_section_table(FILE *out, const plait_key *keys, int first, int last)
{
    fputs("\n| key | value | default | meaning |\n|---|---|---|---|\n", out);
    for (int i = first; i < last; i++) {
        const plait_key *k = &keys[i];
        if (k->role == PLAIT_KEY_REFUSED)
            continue;
        char want[512];
        plait_config_describe(k, want, sizeof want);
        fprintf(out, "| `%s`", k->path);
        for (const char *s = k->aliases; *s;) {
            s += strspn(s, " ");
            size_t len = strcspn(s, " ");
            bool negated = *s == '!';
            fprintf(out, "%s%s `%.*s`", s == k->aliases ? "<br>also" : ",", negated ? " (negated)" : "",
                    (int)len - negated, s + negated);
            s += len;
        }
        if (k->role == PLAIT_KEY_NEUTRAL)
            fprintf(out, " | only `%s`", k->dflt);
        else if (k->role == PLAIT_KEY_DERIVED)
            fprintf(out, " | not to be set");
        else
            fprintf(out, " | %s", want);
        fprintf(out, " | `%s` | %s |\n", k->dflt, k->text);
    }
}

void plait_config_print_reference(FILE *out)
{
    int count;
    const plait_key *keys = plait_config_keys(&count);
    fputs(intro, out);
    for (int first = 0, last; first < count; first = last) {
        int len = (int)strcspn(keys[first].path, ".") + 1;
        for (last = first; last < count && strncmp(keys[last].path, keys[first].path, (size_t)len) == 0;)
            last++;
        fprintf(out, "\n## %.*s\n", len - 1, keys[first].path);
        print_section_table(out, keys, first, last);
    }
    fputs("\n## Keys of other systems\n\nThese are known and refused, with the sentence.\n\n| key | instead "
          "|\n|---|---|\n",
          out);
    for (int i = 0; i < count; i++)
        if (keys[i].role == PLAIT_KEY_REFUSED)
            fprintf(out, "| `%s` | %s |\n", keys[i].path, keys[i].text);
}
