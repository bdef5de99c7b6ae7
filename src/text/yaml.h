/* yaml.h - reads YAML with libyaml into a tree whose nodes have their line and column. Aliases and
 * duplicate keys are errors.
 *
 * The tags of the core schema (!!str !!int !!float !!bool !!null !!seq !!map, and !) set the kind
 * of a node and are not stored. A scalar with any other tag is a string. An empty file gives a
 * null. */
#ifndef OSH_YAML_H
#define OSH_YAML_H
#include "base/base.h"
#include "base/buf.h"

typedef enum {
    OSH_Y_NULL,
    OSH_Y_BOOL,
    OSH_Y_INT,
    OSH_Y_FLOAT,
    OSH_Y_STR,
    OSH_Y_SEQ,
    OSH_Y_MAP
} osh_yaml_kind;
typedef struct osh_yaml {
    /* A node. Plain scalars have the types of PyYAML's safe loader: yes/no/on/off are booleans, 1e3
     * is a string. */
    osh_yaml_kind kind;
    char *text; // own: text of a scalar, unchanged
    /* own: explicit tag, such as "tag:yaml.org,2002:python/object/apply:..."; or NULL. */
    char *tag;
    bool b; int64_t i; double f;
    struct osh_yaml **items; // items of a sequence, or values of a map
    struct osh_yaml **keys;  // keys of a map, in the order of the file
    size_t n;
    int line, column; // line and column in the file, counted from 1
} osh_yaml;

/* Parses one YAML document. `what` names the text in messages. The caller frees *out with
 * osh_yaml_free. Fails with OSH_E_FORMAT if the text is too long or not valid. */
osh_status osh_yaml_parse(osh_ctx *cx, osh_yaml **out, const char *text, size_t n,
                          const char *what);
void osh_yaml_free(osh_ctx *cx, osh_yaml *y);
/* Appends text as a quoted scalar, in single quotes if they can express it. */
osh_status osh_yaml_quote(osh_ctx *cx, osh_buf *b, const char *text);
/* Appends text as a YAML scalar that is read back as the same string. A simple text gets no quotes:
 * it begins with a letter or "_", has only letters, digits and "_.-", and is no word with a meaning
 * in YAML. */
osh_status osh_yaml_name(osh_ctx *cx, osh_buf *b, const char *text);
/* Returns the value of a key of a map, or NULL if the map has no such key. */
const osh_yaml *osh_yaml_get(const osh_yaml *map, const char *key);
#endif
