/* json.h - reads JSON with cJSON: it adds limits, errors that name the file and the key, and an
 * editor that changes one member of a text.
 *
 * A NUL in a string (raw or \u0000) is an error. With OSH_JSON_NUL it becomes the bytes C0 80
 * instead (as in Java's modified UTF-8), which no valid UTF-8 contains. Duplicate keys are an
 * error. Python's json writes the words NaN, Infinity and -Infinity. With OSH_JSON_NAN these words
 * are read as numbers that are too large for a double, and the getters refuse them. */
#ifndef OSH_JSON_H
#define OSH_JSON_H
#include "base/buf.h"
#include "base/file.h"
#include <cjson/cJSON.h>

enum { OSH_JSON_NUL = 1, OSH_JSON_NAN = 2 };
osh_status osh_json_parse(osh_ctx *cx, cJSON **out, const char *text, size_t n, const char *what,
                          int flags); // *out: own, freed with cJSON_Delete
/* Parses a file of at most max_bytes bytes, like osh_json_parse. */
osh_status osh_json_read(osh_ctx *cx, cJSON **out, const char *path, size_t max_bytes, int flags);
/* Returns the member of an object, or NULL if there is none. `name` may have dots: "a.b" is the
 * member b of the object a. */
const cJSON *osh_json_inner(const cJSON *o, const char *name);
/* Getters of members of an object. `what` is the name of the file in messages. The *_or functions
 * return the default if the member is absent or null. A member of another type is an error. */
osh_status osh_json_int(osh_ctx *cx, int64_t *out, const cJSON *o, const char *key,
                        const char *what);
osh_status osh_json_int_or(osh_ctx *cx, int64_t *out, const cJSON *o, const char *key, int64_t dflt,
                           const char *what);
osh_status osh_json_num_or(osh_ctx *cx, double *out, const cJSON *o, const char *key, double dflt,
                           const char *what);
osh_status osh_json_bool_or(osh_ctx *cx, bool *out, const cJSON *o, const char *key, bool dflt,
                            const char *what);
osh_status osh_json_str_or(osh_ctx *cx, const char **out, const cJSON *o, const char *key,
                           const char *dflt,
                           const char *what); // *out is a view of the JSON object o
/* A member to set. value: JSON text; NULL: remove the member. within: key of the object that has
 * the member; NULL: the member is at the top level. */
typedef struct osh_json_member {
    const char *key, *value, *within;
} osh_json_member;
/* Returns the text of a JSON object in which one member is set. All other bytes are copied
 * unchanged. An absent member is added at the end of its object. If there is no object
 * `m.within`, the text is copied unchanged. */
osh_status osh_json_edit(osh_ctx *cx, char **out, const char *text, size_t n, osh_json_member m,
                         const char *what);
/* Prints the tree o to *out (own) like Python's json.dumps(indent=2, sort_keys=True). indent_level
 * is the level at which the members of o are indented. It is 1 for a whole text (0 means the same),
 * and 2 for the value of a top-level member that osh_json_edit inserts. A whole number is printed
 * as an int, and any other number like Python's repr. A cJSON_Raw item is printed unchanged
 * ("1.0"). */
osh_status osh_json_print(osh_ctx *cx, char **out, const cJSON *o, int indent_level);
/* osh_json_write writes a JSON object that may be too large for memory: the members of `root`, and
 * arrays whose items the callback `item` makes one at a time. `lists` ends with an entry whose key
 * is NULL. The keys in `lists` must not be in `root`. If `item` sets *out to NULL, the item is
 * skipped. */
typedef struct osh_json_list {
    const char *key;
    int64_t n;
    osh_status (*item)(osh_ctx *cx, cJSON **out, const void *user, int64_t i); // own
} osh_json_list;
osh_status osh_json_write(osh_ctx *cx, osh_file *f, cJSON *root, const osh_json_list *lists,
                          const void *user);
/* osh_json_read_lists reads a JSON object of a file in pieces. `lists` names its long arrays and
 * ends with an entry whose key is NULL. Each item of such an array is passed to the callback `item`
 * in the order of the file, or skipped if `item` is NULL. *rest (own) is the tree of the whole
 * object, with null for each of these arrays. rest may be NULL. */
typedef struct osh_json_taken {
    const char *key;
    osh_status (*item)(osh_ctx *cx, void *user, const cJSON *o);
} osh_json_taken;
osh_status osh_json_read_lists(osh_ctx *cx, cJSON **rest, const char *path,
                               const osh_json_taken *lists, void *user);
/* Calls `member` for each member of a JSON object in the order of the text, without building the
 * tree of the object. The whole text is checked first. n: number of members; i: index of the
 * member. A key that occurs twice is passed twice. */
typedef osh_status (*osh_json_member_fn)(osh_ctx *cx, void *user, size_t i, size_t n,
                                         const char *key, const cJSON *o);
/* Calls `member` for each member of the object in `text`. */
osh_status osh_json_members(osh_ctx *cx, const char *text, size_t n, const char *what,
                            osh_json_member_fn member, void *user);
osh_status osh_json_put_float(osh_ctx *cx, osh_buf *b, double v); // appends v as Python's repr
/* Appends the text with quotes and escapes, like osh_json_print. */
osh_status osh_json_put_string(osh_ctx *cx, osh_buf *b, const char *text);
#endif
