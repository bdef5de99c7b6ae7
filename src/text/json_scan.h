/* json_scan.h - a strict walk over JSON text (RFC 8259) that builds nothing: json.c checks a file with it before cJSON
 * sees it, json_edit.c finds the bytes of a member with it. */
#ifndef OSH_JSON_SCAN_H
#define OSH_JSON_SCAN_H
#include "base/base.h"

enum { OSH_JSON_MAX_DEPTH = 256, OSH_JSON_MAX_NUMBER = 63 }; // 63: what cJSON reads of a number

typedef struct osh_json_scan {
    osh_ctx *cx;
    const char *what; // view: names the file in messages
    const char *text; // view
    size_t n, at;
    bool allow_nul; // NUL inside strings, raw or \u0000
    bool allow_nan; // NaN, Infinity, -Infinity
    bool has_nul;   // one was seen
    bool has_nan;
} osh_json_scan;

osh_status osh_json_scan_fail(const osh_json_scan *s, size_t at, const char *problem); // with line and column
void osh_json_scan_bom(osh_json_scan *s);
void osh_json_scan_space(osh_json_scan *s);
osh_status osh_json_scan_string(osh_json_scan *s); // at its opening quote
osh_status osh_json_scan_value(osh_json_scan *s);  // leading space, then one value with all that is in it
osh_status osh_json_scan_end(osh_json_scan *s);    // nothing but space may follow
#endif
