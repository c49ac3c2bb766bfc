/* core/yaml.h: YAML as a small tree with positions, for messages that say where. */
#ifndef PLAIT_CORE_YAML_H
#define PLAIT_CORE_YAML_H

#include <stdbool.h>
#include <stddef.h>

#include "core/status.h"

PLAIT_BEGIN_DECLS

#define PLAIT_YAML_MAX_BYTES   (1 << 20)
#define PLAIT_YAML_MAX_NODES   100000
#define PLAIT_YAML_MAX_DEPTH   16
#define PLAIT_YAML_MAX_ANCHORS 100
#define PLAIT_YAML_MAX_ENTRIES 1000 /* of one mapping */

typedef enum plait_yaml_kind { PLAIT_YAML_SCALAR, PLAIT_YAML_LIST, PLAIT_YAML_MAP } plait_yaml_kind;

typedef struct plait_yaml_node {
    plait_yaml_kind kind;
    bool plain;       /* a scalar without quotes */
    bool owns_text;   /* false: an alias shares the text of its anchor */
    int line, column; /* from 1 */
    char *text;       /* of a scalar */
    int first, next;  /* children and siblings, -1 for none; a mapping's children are key, value, key, value, ... */
    int count;        /* children */
} plait_yaml_node;

typedef struct plait_yaml {
    plait_yaml_node *nodes;
    int len, cap, root;
    int line, column; /* of the error */
    char message[320];
} plait_yaml;

/* Parses one document into `doc` (to be freed also after a failure). False: line, column and message say why. Memory,
 * nodes and depth are bounded; an alias may stand for a scalar only, so nothing can expand. */
bool plait_yaml_parse(plait_yaml *doc, const char *text, size_t len);
/* A document of one plain scalar whose text is taken as it is. To be freed, as above. */
bool plait_yaml_scalar(plait_yaml *doc, const char *text);
void plait_yaml_free(plait_yaml *doc);
/* A plain scalar that stands for nothing: "null", "~". */
bool plait_yaml_is_null(const plait_yaml_node *n);

/* The whole file, at most one byte more than may be parsed. The caller frees *out. */
PLAIT_MUST_USE plait_status plait_yaml_read(const char *path, char **out, size_t *len);

PLAIT_END_DECLS
#endif
