/* json_walk.h - reads JSON text that may be too long for memory, value by value. The caller decides
 * what to do with each value. Memory contains one piece of the text, and any values that the caller
 * copies.
 *
 * The syntax is as strict as that of osh_json_parse, but keys may occur twice: only the caller
 * knows which keys matter. */
#ifndef OSH_JSON_WALK_H
#define OSH_JSON_WALK_H
#include "base/file.h"
#include "text/json_scan.h"

typedef struct osh_json_walk {
    osh_json_scan s;
    osh_file *file; // view: file that is read; NULL: the text is in memory
    char *piece;    // own
    size_t n;       // number of bytes in `piece`
    int64_t at;     // offset in the file at which `piece` ends
    osh_buf key;    // own
    int depth;
} osh_json_walk;

/* Begins to read a file, or n bytes in memory. The file or memory must outlive `w`. `what` is the
 * name of the text in messages. */
osh_status osh_json_walk_file(osh_ctx *cx, osh_json_walk *w, osh_file *file, const char *what);
osh_status osh_json_walk_text(osh_ctx *cx, osh_json_walk *w, const char *text, size_t n,
                              const char *what);
/* Frees the buffers of w. */
void osh_json_walk_deinit(osh_ctx *cx, osh_json_walk *w);
/* Returns the first byte of the next value: '{', '[', '"', '-', a digit, 't', 'f' or 'n'. If no
 * value follows, returns another byte or -1. */
int osh_json_walk_peek(osh_json_walk *w);
/* Each function below reads the next value or fails. osh_json_walk_members reads an object, and
 * osh_json_walk_items reads an array. Each call of their callback must read one value. The key that
 * the callback gets is valid until the next call. */
typedef osh_status (*osh_json_walk_fn)(osh_ctx *cx, void *user, osh_json_walk *w, const char *key);
osh_status osh_json_walk_members(osh_json_walk *w, osh_json_walk_fn member, void *user);
osh_status osh_json_walk_items(osh_json_walk *w, osh_json_walk_fn item,
                               void *user); // reads an array: `item` gets NULL as key
/* Skips the next value. */
osh_status osh_json_walk_skip(osh_json_walk *w);
/* Reads a string of at most to->max_bytes bytes and replaces the content of `to`. `name` is used in
 * messages. */
osh_status osh_json_walk_string(osh_json_walk *w, osh_buf *to, const char *name);
/* Reads a whole number without a sign, at most 2^53. "1.0", "1e3", "-1" and "\"1\"" are errors. */
osh_status osh_json_walk_count(osh_json_walk *w, int64_t *out, const char *name);
/* Reads true or false. */
osh_status osh_json_walk_bool(osh_json_walk *w, bool *out, const char *name);
/* Passes the text of the next value to `put`: in one line, without white space outside of strings,
 * with only the necessary escapes. */
typedef osh_status (*osh_json_put_fn)(osh_ctx *cx, void *user, const char *s, size_t n);
osh_status osh_json_walk_copy(osh_json_walk *w, osh_json_put_fn put, void *user);
/* Reads a string and passes the text between the quotes to `put`. */
osh_status osh_json_walk_inside(osh_json_walk *w, osh_json_put_fn put, void *user);
osh_status osh_json_put_inside(osh_ctx *cx, osh_json_put_fn put, void *user, const char *s,
                               size_t n);       // writes n bytes of s as the inside of a string
osh_status osh_json_walk_end(osh_json_walk *w); // fails if anything but white space follows
/* osh_json_walk_place returns the position of the next value. osh_json_walk_seek goes back to such
 * a position. */
int64_t osh_json_walk_place(osh_json_walk *w);
void osh_json_walk_seek(osh_json_walk *w, int64_t place);
#endif
