/* core/config_impl.h: the key table and what turns YAML into values. Only for core/config*.c and their tests.
 *
 * text -> plait_yaml (core/yaml.h) -> table row -> field of plait_config. Every step collects its
 * errors instead of stopping at the first, except for text that is not YAML at all.
 */
#ifndef PLAIT_CORE_CONFIG_IMPL_H
#define PLAIT_CORE_CONFIG_IMPL_H

#include "core/config.h"
#include "core/errors.h"
#include "core/yaml.h"

PLAIT_BEGIN_DECLS

/* ---- the table: config_keys.c ---- */

/* Each type has one kind of storage at plait_key.offset. */
typedef enum plait_key_type {
    PLAIT_KEY_INT,     /* int64_t */
    PLAIT_KEY_BYTES,   /* int64_t, written 32MiB */
    PLAIT_KEY_DOUBLE,  /* double */
    PLAIT_KEY_BOOL,    /* bool */
    PLAIT_KEY_ENUM,    /* an enum (an int) out of `words` */
    PLAIT_KEY_SET,     /* unsigned, the sum of `words` */
    PLAIT_KEY_PATH,    /* char[PLAIT_PATH_MAX], "" for none */
    PLAIT_KEY_ORDER,   /* char[64], the order of the axes */
    PLAIT_KEY_INTS,    /* int64_t[count] */
    PLAIT_KEY_DOUBLES, /* double[count] */
    PLAIT_KEY_SPLIT,   /* double[3], normalised weights */
    PLAIT_KEY_LAYOUT   /* int64_t length, then int64_t[PLAIT_MAX_STAGES] */
} plait_key_type;

typedef enum plait_key_role {
    PLAIT_KEY_USED,
    PLAIT_KEY_NEUTRAL, /* known, but only its default is legal until the feature comes; has no storage */
    PLAIT_KEY_DERIVED, /* shown, never set */
    PLAIT_KEY_REFUSED  /* known from another system; the sentence says what Plait does instead */
} plait_key_role;

/* A word of an enum or a set. Several words may have one value: the first is the one that is printed. A word with a
 * refusal is known, but cannot be chosen. The list ends with a NULL name. */
typedef struct plait_word {
    const char *name;
    int value;
    const char *refusal;
} plait_word;

typedef struct plait_key {
    const char *path;    /* "section.key" or "section.group.key" */
    const char *aliases; /* other names of the last part, separated by spaces; '!' in front of one: negated */
    plait_key_type type;
    plait_key_role role;
    size_t offset;   /* in plait_config */
    int64_t lo, hi;  /* whole numbers, bytes, elements of lists of whole numbers */
    double min, max; /* numbers and elements of lists of numbers */
    bool max_open;   /* max itself is not legal */
    int count;       /* elements of INTS and DOUBLES */
    const plait_word *words;
    const char *dflt; /* as it would be written in YAML; "auto": derived; "null": none */
    const char *text; /* one sentence */
} plait_key;

/* The rows, section by section. */
const plait_key *plait_config_keys(int *count);
/* Row of a path whose last part may be an alias and whose section may be one; -1 if there is none. `negated`: a negated
 * alias was used. */
int plait_config_find(const char *path, bool *negated);
/* Whether `path` is a section or a group of keys, aliases included; `canonical` (optional) takes its proper name. */
bool plait_config_is_section(const char *path, char *canonical, size_t size);
/* A hint for a path that does not exist: wrong case, other section, nearest name. "" if nothing is near. */
void plait_config_suggest(const char *path, char *out, size_t size);
/* What a value of this key looks like: "a whole number from 1 to 8". */
void plait_config_describe(const plait_key *key, char *out, size_t size);

/* ---- values: config_value.c ---- */

/* Reads node `node` as a value of `key` into its storage `dst`. A relative path is put behind `base_dir` unless that is
 * "". False: `why` says what was expected and found; dst is then undefined. */
bool plait_value_parse(const plait_key *key, const plait_yaml *doc, int node, const char *base_dir, void *dst,
                       char *why, size_t why_size);
/* The storage as the text from which it could be read again. */
void plait_value_text(const plait_key *key, const void *src, char *out, size_t size);
/* Enough for any value and for a table of layers. */
#define PLAIT_VALUE_TEXT 24576
/* Shortest text that reads back as the same double. */
void plait_double_text(double x, char *out, size_t size);

/* ---- origins and resolving ---- */

typedef enum plait_origin_kind {
    PLAIT_ORIGIN_DEFAULT,
    PLAIT_ORIGIN_DERIVED,
    PLAIT_ORIGIN_FILE,
    PLAIT_ORIGIN_OVERRIDE
} plait_origin_kind;

struct plait_config_origin {
    plait_origin_kind kind;
    int line, column; /* in the file, 0 for none */
};

/* "run.yaml:7:3: " or "override: ", where the key's value was given; "" for one that was not. */
void plait_config_place(const plait_config *cfg, const char *path, char *out, size_t size);

/* Fills the auto values that do not depend on the number of ranks. */
void plait_config_derive(plait_config *cfg);

PLAIT_END_DECLS
#endif
