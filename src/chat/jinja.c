/* jinja.c - reads a template once, and renders it many times. */
#include "chat/jinja.h"

#include <string.h>

#include "chat/jinja_impl.h"

osh_status osh_jinja_new(osh_ctx *cx, osh_jinja **out, const char *text, size_t n, const char *what)
{
    osh_status rc = OSH_OK;
    osh_jinja *t = NULL; // own
    char *name = NULL;   // view: copy of `what` in the template's arena

    if (n > OSH_JINJA_MAX_TEMPLATE)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: a template of %zu bytes, at most %d", what, n,
                 OSH_JINJA_MAX_TEMPLATE);
    OSH_NEW(cx, t, 1);
    name = osh_jarena_get(cx, &t->arena, strlen(what) + 1);
    if (!name) {
        rc = OSH_E_NOMEM;
        goto done;
    }
    t->what = strcpy(name, what);
    osh_jrun r = {.cx = cx, .arena = &t->arena, .what = t->what, .line = 1};
    osh_jtoken *tokens = osh_jinja_lex(&r, text, n);
    if (!r.rc) t->body = osh_jinja_parse(&r, tokens);
    OSH_TRY(r.rc);
    t->marks = r.generates;
    *out = t, t = NULL; // give
done:
    osh_jinja_free(cx, t);
    return rc;
}

void osh_jinja_free(osh_ctx *cx, osh_jinja *t)
{
    if (!t) return;
    osh_jarena_deinit(cx, &t->arena);
    osh_free(cx, t);
}

osh_status osh_jinja_render(osh_ctx *cx, const osh_jinja *t, osh_buf *out,
                            const osh_jinja_vars *vars)
{
    osh_jarena arena = {0}; // own
    osh_jrun r = {.cx = cx, .arena = &arena, .what = t->what, .out = out, .strict = vars->strict,
                  .max_steps = vars->max_steps,
                  .date = vars->date ? vars->date : OSH_JINJA_DATE};
    osh_jrun_vars(&r, osh_jv_json(&r, vars->json, vars->n_json));
    // scope for the variables that the template sets
    osh_jrun_vars(&r, osh_jv_dict(&r, OSH_JV_DICT));
    if (!r.rc) osh_jinja_exec(&r, t->body);
    osh_jarena_deinit(cx, &arena);
    return r.rc;
}
