/* jinja.h - reads and renders the Jinja of chat templates, as transformers configures it:
 * trim_blocks, lstrip_blocks, no escaping, the tags `break`, `continue` and `generation`, and a
 * sandbox in which lists and dicts cannot be changed.
 *
 * A template comes from an unknown source, so it cannot read a file or the clock. Its nesting,
 * steps, memory and output are limited. A feature that is not supported is an error with its name
 * and line. An unknown tag, filter or test is an error when the template is read. */
#ifndef OSH_JINJA_H
#define OSH_JINJA_H
#include "base/buf.h"

typedef struct osh_jinja osh_jinja;
/* Reads a template. `what` is the name of the template in messages; the string is copied. */
osh_status osh_jinja_new(osh_ctx *cx, osh_jinja **out, const char *text, size_t n,
                         const char *what);
/* Frees a template. Accepts NULL. */
void osh_jinja_free(osh_ctx *cx, osh_jinja *t);

typedef struct osh_jinja_vars {
    const char *json; // view: a JSON object, whose members are the variables
    size_t n_json;
    const char *date; // date that strftime_now prints, with the time 00:00; NULL: OSH_JINJA_DATE
    bool strict;      // true: printing an undefined value is an error
    /* Largest number of steps (units of work, jinja_impl.h), for tests; 0: 20 million. */
    int64_t max_steps;
} osh_jinja_vars;
#define OSH_JINJA_DATE "2024-07-26"
/* Fails if the date does not have the form of OSH_JINJA_DATE. */
osh_status osh_jinja_check_date(osh_ctx *cx, const char *date);
/* Appends the rendered text to `out`. Returns OSH_E_FORMAT if transformers also fails. Returns
 * OSH_E_UNSUPPORTED if the template needs a feature that is not implemented. */
osh_status osh_jinja_render(osh_ctx *cx, const osh_jinja *t, osh_buf *out,
                            const osh_jinja_vars *vars);
#endif
