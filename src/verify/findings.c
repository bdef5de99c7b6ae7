/* findings.c - collects the list of problems (findings) that `oneshot verify` reports. */
#include <stdio.h>
#include <string.h>

#include "verify/verify.h"

osh_status osh_verify_add(osh_ctx *cx, osh_verify *v, const char *where, const char *wanted,
                          const char *found, ...)
{
    osh_status rc = OSH_OK;
    char text[OSH_VERIFY_TEXT];
    va_list ap;
    if (!v->here) return OSH_OK;
    v->n++;
    if (v->n > OSH_VERIFY_MAX) return OSH_OK;
    va_start(ap, found);
    vsnprintf(text, sizeof text, found, ap);
    va_end(ap);
    if (v->n > v->cap) {
        size_t cap = v->cap ? 2 * v->cap : 16;
        osh_finding *more = osh_realloc(cx, v->findings, cap * sizeof *more);
        if (!more) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the findings");
        memset(more + v->cap, 0, (cap - v->cap) * sizeof *more);
        v->findings = more, v->cap = cap;
    }
    osh_finding *f = &v->findings[v->n - 1];
    f->item = v->item;
    f->where = osh_strdup(cx, where), f->found = osh_strdup(cx, text),
    f->wanted = osh_strdup(cx, wanted);
    if (!f->where || !f->found || !f->wanted)
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the findings");
done:
    if (rc) v->n = v->n > v->cap ? v->cap : v->n;
    return rc;
}

osh_status osh_verify_failed(osh_ctx *cx, osh_verify *v, osh_status rc, const char *where,
                             const char *wanted)
{
    if (!rc || rc == OSH_E_NOMEM || rc == OSH_E_INTERRUPTED) return rc;
    rc = osh_verify_add(cx, v, where, wanted, "%s", osh_error_text(cx));
    if (!rc) osh_error_clear(cx);
    return rc;
}
