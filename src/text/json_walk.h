/* json_walk.h - goes through JSON text that may be too long for memory, value by value. The caller
 * says what each value becomes; what is held is a piece of the text, and what the caller keeps.
 *
 * The same strict syntax as osh_json_parse takes, but for a key that occurs twice: only the caller
 * knows which keys matter to it. */
#ifndef OSH_JSON_WALK_H
#define OSH_JSON_WALK_H
#include "base/file.h"
#include "text/json_scan.h"

typedef struct osh_json_walk {
    osh_json_scan s;
    osh_file *file; // view: NULL: a text in memory
    char *piece;    // own
    size_t n;       // bytes of it
    int64_t at;     // of the file, behind them
    osh_buf key;    // own
    int depth;
} osh_json_walk;

/* The text is the file's, or n bytes in memory. what: names it in messages; views of both. */
osh_status osh_json_walk_file(osh_ctx *cx, osh_json_walk *w, osh_file *file, const char *what);
osh_status osh_json_walk_text(osh_ctx *cx, osh_json_walk *w, const char *text, size_t n,
                              const char *what);
void osh_json_walk_deinit(osh_ctx *cx, osh_json_walk *w);
/* '{', '[', '"', '-' or a digit, 't', 'f', 'n' of the value that comes; else no value comes. */
int osh_json_walk_peek(osh_json_walk *w);
/* Each of these takes the value that comes, whatever it is, or fails. member and item must take
 * one value each. An object's members; key: until the next call. */
typedef osh_status (*osh_json_walk_fn)(osh_ctx *cx, void *user, osh_json_walk *w, const char *key);
osh_status osh_json_walk_members(osh_json_walk *w, osh_json_walk_fn member, void *user);
osh_status osh_json_walk_items(osh_json_walk *w, osh_json_walk_fn item,
                               void *user); // an array's; key: NULL
osh_status osh_json_walk_skip(osh_json_walk *w);
/* A string of at most max_bytes of `to`, replaces what that holds. name: of messages. */
osh_status osh_json_walk_string(osh_json_walk *w, osh_buf *to, const char *name);
/* A whole number without a sign, at most 2^53: "1.0", "1e3", "-1" and "\"1\"" are none. */
osh_status osh_json_walk_count(osh_json_walk *w, int64_t *out, const char *name);
osh_status osh_json_walk_bool(osh_json_walk *w, bool *out, const char *name);
/* The value's text in one line: no white space around it or in it, but in strings; no escape that
 * needs not be. */
typedef osh_status (*osh_json_put_fn)(osh_ctx *cx, void *user, const char *s, size_t n);
osh_status osh_json_walk_copy(osh_json_walk *w, osh_json_put_fn put, void *user);
osh_status osh_json_walk_inside(osh_json_walk *w, osh_json_put_fn put,
                                void *user); // of a string, without quotes
osh_status osh_json_put_inside(osh_ctx *cx, osh_json_put_fn put, void *user, const char *s,
                               size_t n);       // so, of any text
osh_status osh_json_walk_end(osh_json_walk *w); // nothing but space may follow
/* Where the value that comes begins, and back to there. */
int64_t osh_json_walk_place(osh_json_walk *w);
void osh_json_walk_seek(osh_json_walk *w, int64_t place);
#endif
