#include "core/config.h"

#include "core/config_impl.h"

#include <assert.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- one value ---- */

typedef struct loader {
    plait_config *cfg;
    const char *override;          /* the whole text "section.key=value"; NULL: the file is being read */
    char base_dir[PLAIT_PATH_MAX]; /* of relative paths; "": the working directory */
    plait_errors errors;
} loader;

static void *storage_of(plait_config *cfg, const plait_key *k)
{
    return (char *)cfg + k->offset;
}

static size_t storage_size(const plait_key *k)
{
    switch (k->type) {
    case PLAIT_KEY_BOOL:
        return sizeof(bool);
    case PLAIT_KEY_ENUM:
    case PLAIT_KEY_SET:
        return sizeof(int);
    case PLAIT_KEY_PATH:
        return PLAIT_PATH_MAX;
    case PLAIT_KEY_ORDER:
        return 64;
    case PLAIT_KEY_INTS:
    case PLAIT_KEY_DOUBLES:
        return 8 * (size_t)k->count;
    case PLAIT_KEY_SPLIT:
        return 3 * sizeof(double);
    case PLAIT_KEY_LAYOUT:
        return sizeof(int64_t) * (1 + PLAIT_MAX_STAGES);
    default:
        return 8;
    }
}

static void set_default(const plait_key *k, void *dst)
{
    memset(dst, 0, storage_size(k));
    if (strcmp(k->dflt, "null") == 0)
        return;
    if (strcmp(k->dflt, "auto") == 0) { /* a word of the enum is 0; the rest is derived later */
        if (k->type == PLAIT_KEY_INT)
            *(int64_t *)dst = PLAIT_AUTO;
        return;
    }
    plait_yaml doc;
    char why[512] = "";
    bool ok = plait_yaml_parse(&doc, k->dflt, strlen(k->dflt)) &&
              plait_value_parse(k, &doc, doc.root, "", dst, why, sizeof why);
    assert(ok && "a default of the key table is not a value of its key");
    (void)ok;
    plait_yaml_free(&doc);
}

static void complain(loader *l, int line, int column, const char *format, ...) PLAIT_PRINTF(4, 5);

/* Where it is, then the sentence. */
static void complain(loader *l, int line, int column, const char *format, ...)
{
    char text[900];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (l->override)
        plait_errors_add(&l->errors, "override \"%.100s\": %s", l->override, text);
    else
        plait_errors_add(&l->errors, "%.300s:%d:%d: %s", l->cfg->file, line, column, text);
}

/* Only the neutral value is legal: compares canonical texts. */
static void check_neutral(loader *l, const plait_key *k, const plait_yaml *doc, int node, int line, int column)
{
    union {
        int64_t whole;
        double number;
        char path[PLAIT_PATH_MAX];
    } given, neutral;
    char text[PLAIT_PATH_MAX] = "", want[64] = "null", why[512];
    const plait_yaml_node *n = &doc->nodes[node];
    if (strcmp(k->dflt, "null") == 0) {
        snprintf(text, sizeof text, "%.100s", n->kind == PLAIT_YAML_SCALAR ? n->text : "of this form");
    } else {
        if (!plait_value_parse(k, doc, node, "", &given, why, sizeof why)) {
            complain(l, line, column, "%s: %s", k->path, why);
            return;
        }
        plait_value_text(k, &given, text, sizeof text);
        set_default(k, &neutral);
        plait_value_text(k, &neutral, want, sizeof want);
    }
    if (strcmp(text, want) != 0)
        complain(l, line, column, "%s: %.100s is not supported, only %s: %s", k->path, text, want, k->text);
}

static void apply_leaf(loader *l, int row, bool negated, const plait_yaml *doc, int name, int node)
{
    int count;
    const plait_key *k = &plait_config_keys(&count)[row];
    struct plait_config_origin *origin = &l->cfg->origins[row];
    const plait_yaml_node *n = &doc->nodes[node], *at = name < 0 ? n : &doc->nodes[name];
    bool empty = n->kind == PLAIT_YAML_SCALAR && n->plain && n->text[0] == '\0';
    int line = empty ? at->line : n->line, column = empty ? at->column : n->column;

    if (k->role == PLAIT_KEY_REFUSED) {
        complain(l, at->line, at->column, "%s: not a key of Plait: %s", k->path, k->text);
        return;
    }
    if (k->role == PLAIT_KEY_DERIVED) {
        complain(l, at->line, at->column, "%s: cannot be set: %s", k->path, k->text);
        return;
    }
    if (!l->override && origin->line > 0) {
        complain(l, at->line, at->column, "%s: already set in line %d", k->path, origin->line);
        return;
    }
    origin->line = l->override ? 0 : at->line;
    origin->column = l->override ? 0 : at->column;
    if (empty) {
        complain(l, line, column, "%s: has no value", k->path);
        return;
    }
    bool to_default = plait_yaml_is_null(n) ||
                      (n->kind == PLAIT_YAML_SCALAR && strcmp(n->text, "auto") == 0 && strcmp(k->dflt, "auto") == 0);
    origin->kind = to_default ? PLAIT_ORIGIN_DEFAULT : l->override ? PLAIT_ORIGIN_OVERRIDE : PLAIT_ORIGIN_FILE;
    if (k->role == PLAIT_KEY_NEUTRAL) {
        if (!to_default)
            check_neutral(l, k, doc, node, line, column);
        return;
    }
    void *dst = storage_of(l->cfg, k);
    char why[700];
    if (to_default)
        set_default(k, dst);
    else if (!plait_value_parse(k, doc, node, l->base_dir, dst, why, sizeof why))
        complain(l, line, column, "%s: %s", k->path, why);
    else if (negated)
        *(bool *)dst = !*(bool *)dst;
}

/* ---- a mapping: the file, a section, a group ---- */

static void unknown_key(loader *l, const char *path, const plait_yaml_node *at)
{
    char hint[300];
    plait_config_suggest(path, hint, sizeof hint);
    complain(l, at ? at->line : 0, at ? at->column : 0, "%s: unknown key%s%s", path, hint[0] ? "; " : "", hint);
}

static void apply_map(loader *l, const plait_yaml *doc, int map, const char *prefix)
{
    const plait_yaml_node *nodes = doc->nodes;
    for (int name = nodes[map].first; name >= 0; name = nodes[nodes[name].next].next) {
        int value = nodes[name].next;
        const plait_yaml_node *at = &nodes[name];
        if (at->kind != PLAIT_YAML_SCALAR) {
            complain(l, at->line, at->column, "a key is a word, not a list or a mapping");
            continue;
        }
        char path[256], canonical[256];
        snprintf(path, sizeof path, "%s%s%.100s", prefix, prefix[0] ? "." : "", at->text);
        int twin = nodes[map].first;
        while (twin != name && (nodes[twin].kind != PLAIT_YAML_SCALAR || strcmp(nodes[twin].text, at->text) != 0))
            twin = nodes[nodes[twin].next].next;
        bool negated;
        int row = strchr(at->text, '.') ? -1 : plait_config_find(path, &negated);
        if (twin != name) {
            complain(l, at->line, at->column, "%s: already set in line %d", path, nodes[twin].line);
        } else if (strchr(at->text, '.')) {
            complain(l, at->line, at->column, "%s: unknown key; a key stands inside its section", path);
        } else if (row >= 0) {
            apply_leaf(l, row, negated, doc, name, value);
        } else if (plait_config_is_section(path, canonical, sizeof canonical)) {
            const plait_yaml_node *n = &nodes[value];
            if (n->kind == PLAIT_YAML_MAP)
                apply_map(l, doc, value, canonical);
            else if (n->kind != PLAIT_YAML_SCALAR || !n->plain || (n->text[0] && !plait_yaml_is_null(n)))
                complain(l, n->line, n->column, "%s: is a section: expected keys, found %s", canonical,
                         n->kind == PLAIT_YAML_LIST ? "a list" : "a value");
        } else {
            unknown_key(l, path, at);
        }
    }
}

/* ---- file and overrides ---- */

static plait_status apply_file(loader *l, const char *path)
{
    char *text = NULL;
    size_t len = 0;
    if (strlen(path) >= sizeof l->cfg->file)
        PLAIT_FAIL(USAGE, "the path of the configuration file is longer than %d bytes", PLAIT_PATH_MAX - 1);
    PLAIT_TRY(plait_yaml_read(path, &text, &len));
    snprintf(l->cfg->file, sizeof l->cfg->file, "%s", path);
    const char *slash = strrchr(path, '/');
    int dir_len = slash == path ? 1 : slash ? (int)(slash - path) : 0;
    snprintf(l->base_dir, sizeof l->base_dir, "%.*s", dir_len, path);

    plait_yaml doc;
    if (!plait_yaml_parse(&doc, text, len)) {
        complain(l, doc.line, doc.column, "%s", doc.message);
    } else if (doc.root < 0 || plait_yaml_is_null(&doc.nodes[doc.root])) {
        complain(l, 1, 1, "the file is empty: expected sections such as model, parallelism, train");
    } else if (doc.nodes[doc.root].kind != PLAIT_YAML_MAP) {
        const plait_yaml_node *n = &doc.nodes[doc.root];
        complain(l, n->line, n->column, "expected sections such as model, parallelism, train, found %s",
                 n->kind == PLAIT_YAML_LIST ? "a list" : "a single value");
    } else {
        apply_map(l, &doc, doc.root, "");
    }
    plait_yaml_free(&doc);
    free(text);
    return PLAIT_OK;
}

/* The value of an override as YAML. Only a path is text as it stands, unless it begins as a quoted text, a list or a
 * mapping does: YAML would end it at " #", refuse "@" or "*" and fold blanks, none of which one expects behind key=. */
static bool parse_override(plait_yaml *doc, int row, const char *value)
{
    int count;
    bool is_path = row >= 0 && plait_config_keys(&count)[row].type == PLAIT_KEY_PATH;
    if (is_path && value[0] != '\0' && !strchr("\"'[{", value[0]))
        return plait_yaml_scalar(doc, value);
    return plait_yaml_parse(doc, value, strlen(value));
}

static void apply_override(loader *l, const char *text)
{
    l->override = text;
    l->base_dir[0] = '\0';
    const char *eq = strchr(text, '=');
    char path[256], canonical[256];
    if (!eq || eq == text || (size_t)(eq - text) >= sizeof path) {
        complain(l, 0, 0, "expected section.key=value");
        return;
    }
    snprintf(path, sizeof path, "%.*s", (int)(eq - text), text);
    bool negated;
    int row = plait_config_find(path, &negated);
    if (row < 0 && !plait_config_is_section(path, canonical, sizeof canonical)) {
        unknown_key(l, path, NULL);
        return;
    }
    plait_yaml doc;
    if (!parse_override(&doc, row, eq + 1))
        complain(l, 0, 0, "%s: %s", path, doc.message);
    else if (doc.root < 0)
        complain(l, 0, 0, "%s: has no value", path);
    else if (row >= 0)
        apply_leaf(l, row, negated, &doc, -1, doc.root);
    else if (doc.nodes[doc.root].kind == PLAIT_YAML_MAP)
        apply_map(l, &doc, doc.root, canonical);
    else
        complain(l, 0, 0, "%s: is a section: expected section.key=value", path);
    plait_yaml_free(&doc);
}

plait_status plait_config_load(plait_config *cfg, const char *path, const char *const *overrides, int num_overrides)
{
    plait_status st = PLAIT_OK;
    int count;
    const plait_key *keys = plait_config_keys(&count);
    memset(cfg, 0, sizeof *cfg);
    loader *l = (loader *)calloc(1, sizeof *l);
    cfg->origins = (struct plait_config_origin *)calloc((size_t)count, sizeof *cfg->origins);
    if (!l || !cfg->origins)
        PLAIT_FAIL_TO(done, st, OUT_OF_MEMORY, "%zu bytes to read a configuration", sizeof *l);
    l->cfg = cfg;
    for (int i = 0; i < count; i++)
        if (keys[i].role == PLAIT_KEY_USED || keys[i].role == PLAIT_KEY_DERIVED)
            set_default(&keys[i], storage_of(cfg, &keys[i]));
    if (path)
        PLAIT_TRY_TO(done, st, apply_file(l, path));
    for (int i = 0; i < num_overrides; i++)
        apply_override(l, overrides[i]);
    PLAIT_TRY_TO(done, st, plait_errors_status(&l->errors));
    plait_config_derive(cfg);
done:
    free(l);
    if (st != PLAIT_OK)
        plait_config_deinit(cfg);
    return st;
}

void plait_config_deinit(plait_config *cfg)
{
    free(cfg->origins);
    cfg->origins = NULL;
}
