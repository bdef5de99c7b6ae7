/* json_scan.h - a strict walk over JSON text (RFC 8259) that builds nothing: json.c checks a file with it before cJSON
 * sees it, json_edit.c finds the bytes of a member with it. */
#ifndef OSH_JSON_SCAN_H
#define OSH_JSON_SCAN_H
#include "base/buf.h"

enum { OSH_JSON_MAX_DEPTH = 256, OSH_JSON_MAX_NUMBER = 63 }; // 63: what cJSON reads of a number

/* A text that comes in pieces: drops the first `used` bytes of the one at hand and shows what follows, *n bytes, more
 * than are left of it or *end. */
typedef osh_status (*osh_json_more_fn)(osh_ctx *cx, void *user, size_t used, const char **text, size_t *n, bool *end);
typedef osh_status (*osh_json_take_fn)(osh_ctx *cx, void *user, const char *s, size_t n);

typedef struct osh_json_scan {
    osh_ctx *cx;
    const char *what; // view: names the file in messages
    const char *text; // view
    size_t n, at;
    osh_json_more_fn more; // NULL: all of the text is there
    osh_json_take_fn take; // gets what strings are, a piece at a time; NULL: nobody
    void *more_user, *take_user;
    size_t base; // bytes before text
    bool ended;  // more has no more
    size_t n_commas; // between the members of outermost values
    osh_status failed; // more or take did
    bool allow_nul; // NUL inside strings, raw or \u0000
    bool allow_nan; // NaN, Infinity, -Infinity
    bool has_nul;   // one was seen
    bool has_nan;
} osh_json_scan;

/* at: bytes from the start of the whole text. With line and column; of a text in pieces all of it is one line. */
osh_status osh_json_scan_fail(const osh_json_scan *s, size_t at, const char *problem);
int osh_json_scan_peek(osh_json_scan *s); // the byte that comes, or -1
osh_status osh_json_scan_begin(osh_json_scan *s); // refuses a byte order mark, as Python does
void osh_json_scan_space(osh_json_scan *s);
osh_status osh_json_scan_string(osh_json_scan *s); // at its opening quote
osh_status osh_json_scan_number(osh_json_scan *s, char text[OSH_JSON_MAX_NUMBER + 1]); // at its first character
osh_status osh_json_scan_key(osh_json_scan *s);    // up to and with the colon; the key is taken
/* The same, with what the string is behind what `to` has; nobody else gets it. */
osh_status osh_json_scan_string_to(osh_json_scan *s, osh_buf *to);
osh_status osh_json_scan_key_to(osh_json_scan *s, osh_buf *to);
osh_status osh_json_scan_value(osh_json_scan *s);  // leading space, then one value with all that is in it
osh_status osh_json_scan_end(osh_json_scan *s);    // nothing but space may follow
#endif
