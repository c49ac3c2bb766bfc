#include "core/yaml.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

typedef struct builder {
    plait_yaml *doc;
    yaml_parser_t parser;
    const char *text;
    size_t len;
    struct {
        char *name;
        int node;
    } anchors[PLAIT_YAML_MAX_ANCHORS];
    int num_anchors;
} builder;

static bool fail_at(plait_yaml *doc, int line, int column, const char *format, ...) PLAIT_PRINTF(4, 5);

static bool fail_at(plait_yaml *doc, int line, int column, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(doc->message, sizeof doc->message, format, args);
    va_end(args);
    doc->line = line;
    doc->column = column;
    return false;
}

static int line_of(yaml_mark_t m)
{
    return (int)m.line + 1;
}

static int column_of(yaml_mark_t m)
{
    return (int)m.column + 1;
}

/* Length of the UTF-8 sequence at s, 0 if it is none (RFC 3629: no overlong forms, no surrogates). */
static size_t utf8_len(const unsigned char *s, size_t left)
{
    if (s[0] < 0x80)
        return 1;
    size_t n = s[0] >= 0xc2 && s[0] <= 0xdf   ? 2
               : s[0] >= 0xe0 && s[0] <= 0xef ? 3
               : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4
                                              : 0;
    if (n == 0 || n > left)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
        (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

/* libyaml gives no line for these, so they are looked for first. */
static bool check_bytes(plait_yaml *doc, const char *text, size_t len)
{
    const unsigned char *s = (const unsigned char *)text;
    if (len >= 2 && ((s[0] == 0xff && s[1] == 0xfe) || (s[0] == 0xfe && s[1] == 0xff)))
        return fail_at(doc, 1, 1, "the text is UTF-16: save it as UTF-8");
    int line = 1, column = 1;
    for (size_t i = 0; i < len;) {
        size_t n = utf8_len(s + i, len - i);
        if (n == 0)
            return fail_at(doc, line, column, "byte 0x%02x is not UTF-8: save the file as UTF-8", s[i]);
        if ((s[i] < 0x20 && s[i] != '\t' && s[i] != '\n' && s[i] != '\r') || s[i] == 0x7f)
            return fail_at(doc, line, column, "control character 0x%02x", s[i]);
        column++;
        if (s[i] == '\n') {
            line++;
            column = 1;
        }
        i += n;
    }
    return true;
}

/* Whether line `line` (from 1) is indented with a tab. */
static bool tab_indents(const builder *b, int line)
{
    size_t i = 0;
    for (int at = 1; at < line && i < b->len; i++)
        if (b->text[i] == '\n')
            at++;
    for (; i < b->len && (b->text[i] == ' ' || b->text[i] == '\t'); i++)
        if (b->text[i] == '\t')
            return true;
    return false;
}

static bool next_event(builder *b, yaml_event_t *ev)
{
    if (yaml_parser_parse(&b->parser, ev))
        return true;
    int line = line_of(b->parser.problem_mark), column = column_of(b->parser.problem_mark);
    if (b->parser.error == YAML_MEMORY_ERROR)
        return fail_at(b->doc, line, column, "out of memory");
    if (tab_indents(b, line))
        return fail_at(b->doc, line, column, "the line is indented with a tab: YAML allows only spaces");
    return fail_at(b->doc, line, column, "not YAML: %s%s%s", b->parser.context ? b->parser.context : "",
                   b->parser.context ? ", " : "", b->parser.problem ? b->parser.problem : "unknown error");
}

static int add_node(builder *b, plait_yaml_kind kind, yaml_mark_t mark)
{
    plait_yaml *doc = b->doc;
    int line = line_of(mark), column = column_of(mark);
    if (doc->len == PLAIT_YAML_MAX_NODES) {
        fail_at(doc, line, column, "more than %d values", PLAIT_YAML_MAX_NODES);
        return -1;
    }
    if (doc->len == doc->cap) {
        int cap = doc->cap ? 2 * doc->cap : 64;
        plait_yaml_node *grown = (plait_yaml_node *)realloc(doc->nodes, (size_t)cap * sizeof *grown);
        if (!grown) {
            fail_at(doc, line, column, "out of memory");
            return -1;
        }
        doc->nodes = grown;
        doc->cap = cap;
    }
    doc->nodes[doc->len] = (plait_yaml_node){.kind = kind, .line = line, .column = column, .first = -1, .next = -1};
    return doc->len++;
}

static bool add_anchor(builder *b, const yaml_char_t *name, int node)
{
    if (!name)
        return true;
    const plait_yaml_node *n = &b->doc->nodes[node];
    if (b->num_anchors == PLAIT_YAML_MAX_ANCHORS)
        return fail_at(b->doc, n->line, n->column, "more than %d anchors", PLAIT_YAML_MAX_ANCHORS);
    char *copy = strdup((const char *)name);
    if (!copy)
        return fail_at(b->doc, n->line, n->column, "out of memory");
    b->anchors[b->num_anchors].name = copy;
    b->anchors[b->num_anchors++].node = node;
    return true;
}

static int build_scalar(builder *b, const yaml_event_t *ev)
{
    int node = add_node(b, PLAIT_YAML_SCALAR, ev->start_mark);
    if (node < 0)
        return -1;
    plait_yaml_node *n = &b->doc->nodes[node];
    if (ev->data.scalar.tag) {
        fail_at(b->doc, n->line, n->column, "tags such as %.40s are not used here", (const char *)ev->data.scalar.tag);
        return -1;
    }
    /* An escape in quotes can make one; as a C string the value would be cut there. */
    if (memchr(ev->data.scalar.value, '\0', ev->data.scalar.length)) {
        fail_at(b->doc, n->line, n->column, "a NUL character (\\0) stands in the value");
        return -1;
    }
    n->plain = ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    n->text = strdup((const char *)ev->data.scalar.value);
    if (!n->text) {
        fail_at(b->doc, n->line, n->column, "out of memory");
        return -1;
    }
    n->owns_text = true;
    return add_anchor(b, ev->data.scalar.anchor, node) ? node : -1;
}

static int build_alias(builder *b, const yaml_event_t *ev)
{
    const char *name = (const char *)ev->data.alias.anchor;
    int line = line_of(ev->start_mark), column = column_of(ev->start_mark);
    int i = b->num_anchors - 1; /* the latest definition counts */
    while (i >= 0 && strcmp(b->anchors[i].name, name) != 0)
        i--;
    if (i < 0) {
        fail_at(b->doc, line, column, "*%.40s: there is no anchor &%.40s above", name, name);
        return -1;
    }
    if (b->doc->nodes[b->anchors[i].node].kind != PLAIT_YAML_SCALAR) {
        fail_at(b->doc, line, column,
                "*%.40s stands for a list or a mapping (line %d): only a plain value may be repeated by reference",
                name, b->doc->nodes[b->anchors[i].node].line);
        return -1;
    }
    int node = add_node(b, PLAIT_YAML_SCALAR, ev->start_mark);
    if (node < 0)
        return -1;
    const plait_yaml_node *from = &b->doc->nodes[b->anchors[i].node];
    b->doc->nodes[node].text = from->text;
    b->doc->nodes[node].plain = from->plain;
    return node;
}

/* The node that begins with `ev`; reads on to its end. -1 after a failure. */
static int build_node(builder *b, const yaml_event_t *ev, int depth)
{
    if (ev->type == YAML_SCALAR_EVENT)
        return build_scalar(b, ev);
    if (ev->type == YAML_ALIAS_EVENT)
        return build_alias(b, ev);

    bool is_map = ev->type == YAML_MAPPING_START_EVENT;
    yaml_event_type_t end = is_map ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;
    const yaml_char_t *anchor = is_map ? ev->data.mapping_start.anchor : ev->data.sequence_start.anchor;
    const yaml_char_t *tag = is_map ? ev->data.mapping_start.tag : ev->data.sequence_start.tag;
    int line = line_of(ev->start_mark), column = column_of(ev->start_mark);
    if (tag) {
        fail_at(b->doc, line, column, "tags such as %.40s are not used here", (const char *)tag);
        return -1;
    }
    if (depth == PLAIT_YAML_MAX_DEPTH) {
        fail_at(b->doc, line, column, "nested deeper than %d", PLAIT_YAML_MAX_DEPTH);
        return -1;
    }
    int node = add_node(b, is_map ? PLAIT_YAML_MAP : PLAIT_YAML_LIST, ev->start_mark);
    if (node < 0)
        return -1;

    for (int last = -1;;) {
        yaml_event_t child_ev;
        if (!next_event(b, &child_ev))
            return -1;
        if (child_ev.type == end) {
            yaml_event_delete(&child_ev);
            break;
        }
        int child = build_node(b, &child_ev, depth + 1);
        yaml_event_delete(&child_ev);
        if (child < 0)
            return -1;
        plait_yaml_node *nodes = b->doc->nodes;
        if (last < 0)
            nodes[node].first = child;
        else
            nodes[last].next = child;
        last = child;
        nodes[node].count++;
        if (is_map && nodes[node].count > 2 * PLAIT_YAML_MAX_ENTRIES) {
            fail_at(b->doc, line, column, "a mapping of more than %d entries", PLAIT_YAML_MAX_ENTRIES);
            return -1;
        }
    }
    return add_anchor(b, anchor, node) ? node : -1;
}

static bool build_stream(builder *b)
{
    bool done = false;
    while (!done) {
        yaml_event_t ev;
        if (!next_event(b, &ev))
            return false;
        bool ok = true;
        switch (ev.type) {
        case YAML_STREAM_START_EVENT:
        case YAML_DOCUMENT_END_EVENT:
            break;
        case YAML_STREAM_END_EVENT:
            done = true;
            break;
        case YAML_DOCUMENT_START_EVENT:
            if (b->doc->root >= 0)
                ok = fail_at(b->doc, line_of(ev.start_mark), column_of(ev.start_mark),
                             "a second document begins: a file here is a single one");
            break;
        default:
            b->doc->root = build_node(b, &ev, 0);
            ok = b->doc->root >= 0;
        }
        yaml_event_delete(&ev);
        if (!ok)
            return false;
    }
    return true;
}

plait_status plait_yaml_read(const char *path, char **out, size_t *len)
{
    plait_status st = PLAIT_OK;
    char *text = NULL;
    FILE *f = fopen(path, "rb");
    if (!f)
        PLAIT_FAIL(IO, "open %s: %s", path, strerror(errno));
    text = (char *)malloc(PLAIT_YAML_MAX_BYTES + 1);
    if (!text)
        PLAIT_FAIL_TO(done, st, OUT_OF_MEMORY, "%d bytes for the text of %s", PLAIT_YAML_MAX_BYTES + 1, path);
    *len = fread(text, 1, PLAIT_YAML_MAX_BYTES + 1, f);
    if (ferror(f))
        PLAIT_FAIL_TO(done, st, IO, "read %s: %s", path, strerror(errno));
    *out = text;
    text = NULL;
done:
    free(text);
    fclose(f);
    return st;
}

bool plait_yaml_parse(plait_yaml *doc, const char *text, size_t len)
{
    memset(doc, 0, sizeof *doc);
    doc->root = -1;
    if (len > PLAIT_YAML_MAX_BYTES)
        return fail_at(doc, 1, 1, "larger than %d bytes", PLAIT_YAML_MAX_BYTES);
    if (!check_bytes(doc, text, len))
        return false;

    builder b = {.doc = doc, .text = text, .len = len};
    if (!yaml_parser_initialize(&b.parser))
        return fail_at(doc, 1, 1, "out of memory");
    yaml_parser_set_encoding(&b.parser, YAML_UTF8_ENCODING);
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { /* a byte-order mark is no content */
        text += 3;
        len -= 3;
    }
    yaml_parser_set_input_string(&b.parser, (const unsigned char *)text, len);
    bool ok = build_stream(&b);
    for (int i = 0; i < b.num_anchors; i++)
        free(b.anchors[i].name);
    yaml_parser_delete(&b.parser);
    return ok;
}

bool plait_yaml_scalar(plait_yaml *doc, const char *text)
{
    memset(doc, 0, sizeof *doc);
    doc->root = -1;
    builder b = {.doc = doc};
    int node = add_node(&b, PLAIT_YAML_SCALAR, (yaml_mark_t){0});
    if (node < 0)
        return false;
    plait_yaml_node *n = &doc->nodes[node];
    n->plain = true;
    n->text = strdup(text);
    if (!n->text)
        return fail_at(doc, 1, 1, "out of memory");
    n->owns_text = true;
    doc->root = node;
    return true;
}

void plait_yaml_free(plait_yaml *doc)
{
    for (int i = 0; i < doc->len; i++)
        if (doc->nodes[i].owns_text)
            free(doc->nodes[i].text);
    free(doc->nodes);
    memset(doc, 0, sizeof *doc);
    doc->root = -1;
}

bool plait_yaml_is_null(const plait_yaml_node *n)
{
    return n->kind == PLAIT_YAML_SCALAR && n->plain &&
           (strcmp(n->text, "null") == 0 || strcmp(n->text, "~") == 0 || strcmp(n->text, "Null") == 0 ||
            strcmp(n->text, "NULL") == 0);
}
