/* json.h - cJSON with caps, errors that name the file and the key, and an editor that leaves the rest of a file alone.
 *
 * A NUL inside a string (raw or \u0000) is an error unless OSH_JSON_NUL is given; then it becomes U+FFFD's place-holder
 * bytes C0 80 (what Java calls modified UTF-8), which no valid UTF-8 holds. Duplicate keys are an error. With
 * OSH_JSON_NAN NaN, Infinity and -Infinity, which Python's json writes, are numbers too large for a double: an error
 * where they are asked for. */
#ifndef OSH_JSON_H
#define OSH_JSON_H
#include "base/buf.h"
#include "base/file.h"
#include <cjson/cJSON.h>

enum { OSH_JSON_NUL = 1, OSH_JSON_NAN = 2 };
osh_status osh_json_parse(osh_ctx *cx, cJSON **out, const char *text, size_t n, const char *what,
                          int flags); // own: cJSON_Delete
osh_status osh_json_read(osh_ctx *cx, cJSON **out, const char *path, size_t max_bytes, int flags);
/* Getters: what names the file in messages. *_or: absent or null gives the default; another type is an error. */
osh_status osh_json_int(osh_ctx *cx, int64_t *out, const cJSON *o, const char *key, const char *what);
osh_status osh_json_int_or(osh_ctx *cx, int64_t *out, const cJSON *o, const char *key, int64_t dflt, const char *what);
osh_status osh_json_num_or(osh_ctx *cx, double *out, const cJSON *o, const char *key, double dflt, const char *what);
osh_status osh_json_bool_or(osh_ctx *cx, bool *out, const cJSON *o, const char *key, bool dflt, const char *what);
osh_status osh_json_str_or(osh_ctx *cx, const char **out, const cJSON *o, const char *key, const char *dflt,
                           const char *what); // view of o
typedef struct osh_json_member { const char *key, *value; } osh_json_member; // value: JSON text; NULL: it goes
/* Text of a JSON object with that top-level member set; every other byte stays, NaN too. Adds it as the last member
 * where it is absent. */
osh_status osh_json_edit(osh_ctx *cx, char **out, const char *text, size_t n, osh_json_member m, const char *what);
/* Prints like Python's json.dumps(indent=2, sort_keys=True) (ensure_ascii): own. indent_level: of the outermost value's
 * members: 1 (or 0, the same) for a text of its own, 2 for the value of a top-level member that osh_json_edit puts in.
 * A whole number prints as an int, any other as Python's repr; a cJSON_Raw item prints as it is ("1.0"). */
osh_status osh_json_print(osh_ctx *cx, char **out, const cJSON *o, int indent_level);
/* Prints to a file what may be too long for memory: root, and beside its members arrays whose items are made one after
 * the other. lists ends with a key NULL; no key is a member of root already. item: *out stays NULL: there is none. */
typedef struct osh_json_list {
    const char *key;
    int64_t n;
    osh_status (*item)(osh_ctx *cx, cJSON **out, const void *user, int64_t i); // own
} osh_json_list;
osh_status osh_json_write(osh_ctx *cx, osh_file *f, cJSON *root, const osh_json_list *lists, const void *user);
/* Reads such a file, a piece at a time: *rest, own, is it with null for the arrays of `lists` (the last one has a key
 * NULL), whose items are handed over in the order of the file; item NULL: they go by. rest NULL: nobody wants it. */
typedef struct osh_json_taken {
    const char *key;
    osh_status (*item)(osh_ctx *cx, void *user, const cJSON *o);
} osh_json_taken;
osh_status osh_json_read_lists(osh_ctx *cx, cJSON **rest, const char *path, const osh_json_taken *lists, void *user);
/* The members of an object whose tree is not wanted, in the order of the text, which is checked as a whole first: n of
 * them, i from 0. A key that occurs twice is handed over twice. */
typedef osh_status (*osh_json_member_fn)(osh_ctx *cx, void *user, size_t i, size_t n, const char *key, const cJSON *o);
osh_status osh_json_members(osh_ctx *cx, const char *text, size_t n, const char *what, osh_json_member_fn member,
                            void *user);
osh_status osh_json_put_float(osh_ctx *cx, osh_buf *b, double v); // Python's repr
osh_status osh_json_put_string(osh_ctx *cx, osh_buf *b, const char *text); // with its quotes, in the same spelling
#endif
