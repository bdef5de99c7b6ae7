/* jinja.h - the Jinja that chat templates use, as transformers sets it up: trim_blocks, lstrip_blocks, no escaping,
 * `break` and `continue`, `generation`, a sandbox whose lists and dicts never change.
 *
 * A template comes from strangers: it reads no file and no clock, and nesting, steps, memory and output are bounded.
 * What it uses and is not here is an error that names it and its line; a tag, filter or test when it is read. */
#ifndef OSH_JINJA_H
#define OSH_JINJA_H
#include "base/buf.h"

typedef struct osh_jinja osh_jinja;
/* what names the template in messages; copied. */
osh_status osh_jinja_new(osh_ctx *cx, osh_jinja **out, const char *text, size_t n, const char *what);
void osh_jinja_free(osh_ctx *cx, osh_jinja *t);

typedef struct osh_jinja_vars {
    const char *json; // view: a JSON object; its members are variables
    size_t n_json;
    const char *date; // "2024-07-26": what strftime_now gives, at midnight; NULL: OSH_JINJA_DATE
    bool strict;      // an undefined value that is printed is an error
    int64_t max_steps; // for tests; 0: 20 million
} osh_jinja_vars;
#define OSH_JINJA_DATE "2024-07-26"
osh_status osh_jinja_check_date(osh_ctx *cx, const char *date);
/* Appends to out. OSH_E_FORMAT: what transformers refuses too; OSH_E_UNSUPPORTED: what is not here. */
osh_status osh_jinja_render(osh_ctx *cx, const osh_jinja *t, osh_buf *out, const osh_jinja_vars *vars);
#endif
