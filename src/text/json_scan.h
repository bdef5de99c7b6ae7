/* json_scan.h - declares a strict scan of JSON text (RFC 8259) that builds nothing. json.c uses the
 * scan to check a text before cJSON reads it. json_edit.c uses the scan to find the bytes of a
 * member. */
#ifndef OSH_JSON_SCAN_H
#define OSH_JSON_SCAN_H
#include "base/buf.h"

/* OSH_JSON_MAX_NUMBER: longest number that cJSON reads, in characters. */
enum { OSH_JSON_MAX_DEPTH = 256, OSH_JSON_MAX_NUMBER = 63 };

/* Callback that reads more of a text that is scanned in pieces. It drops the first `used` bytes of
 * the piece, and returns the other bytes together with new ones. Sets *end to true if no bytes of
 * the text follow after these. */
typedef osh_status (*osh_json_more_fn)(osh_ctx *cx, void *user, size_t used, const char **text,
                                       size_t *n, bool *end);
typedef osh_status (*osh_json_take_fn)(osh_ctx *cx, void *user, const char *s, size_t n);

typedef struct osh_json_scan {
    osh_ctx *cx;
    const char *what; // view: name of the file in messages
    const char *text; // view
    size_t n, at;
    osh_json_more_fn more; // reads more of the text; NULL: the whole text is in memory
    osh_json_take_fn take; // receives the content of strings in pieces; NULL: no callback
    void *more_user, *take_user;
    size_t base;       // number of bytes of the whole text that precede the current piece
    bool ended;        // true if `more` has reached the end of the text
    size_t n_commas;   // number of commas between the members of the outermost value
    osh_status failed; // error status of `more` or `take`; OSH_OK: none failed
    bool allow_nul;    // true if NUL is allowed inside strings, raw or as \u0000
    bool allow_nan;    // true if NaN, Infinity and -Infinity are allowed
    bool has_nul;      // true if the scan has found a NUL
    bool has_nan;
} osh_json_scan;

/* Fails with a message that has the line and the column (in bytes) of offset `at`. A text in pieces
 * counts as one line. */
osh_status osh_json_scan_fail(const osh_json_scan *s, size_t at, const char *problem);
int osh_json_scan_peek(osh_json_scan *s); // returns the next byte of the text, or -1 at the end
/* Begins a scan; fails on a byte order mark, as Python does. */
osh_status osh_json_scan_begin(osh_json_scan *s);
/* Skips white space. */
void osh_json_scan_space(osh_json_scan *s);
osh_status osh_json_scan_string(osh_json_scan *s); // scans a string; s is at the opening quote
/* Scans a number; s is at its first character. */
osh_status osh_json_scan_number(osh_json_scan *s, char text[OSH_JSON_MAX_NUMBER + 1]);
/* Scans a string or a key, and appends its content to `to`. Does not call the callback `take`. */
osh_status osh_json_scan_string_to(osh_json_scan *s, osh_buf *to);
/* Works like osh_json_scan_string_to, for a key. */
osh_status osh_json_scan_key_to(osh_json_scan *s, osh_buf *to);
osh_status osh_json_scan_value(osh_json_scan *s); // scans white space and one whole value
osh_status osh_json_scan_end(osh_json_scan *s);   // fails if anything but white space follows
#endif
