/* jinja_run.c - implements the arena, the step counter, the failure and the marked texts of a run
 * of the Jinja interpreter. */
#include <stdio.h>
#include <string.h>

#include "chat/chat.h"
#include "chat/jinja_impl.h"

typedef struct osh_jblock {
    struct osh_jblock *next;
    size_t cap;
    _Alignas(16) char bytes[];
} osh_jblock;

enum { FIRST_BLOCK = 8 << 10, LARGEST_STEP = 256 << 10 };

void *osh_jarena_get(osh_ctx *cx, osh_jarena *a, size_t n)
{
    n = (n + 15) & ~(size_t)15;
    if (!a->blocks || a->blocks->cap - a->used < n) {
        size_t cap = !a->blocks                      ? FIRST_BLOCK
                     : a->blocks->cap < LARGEST_STEP ? 2 * a->blocks->cap
                                                     : LARGEST_STEP;
        if (cap < n) cap = n;
        osh_jblock *b = osh_alloc(cx, sizeof *b + cap);
        if (!b) return NULL;
        b->next = a->blocks, b->cap = cap;
        a->blocks = b, a->used = 0, a->n_bytes += cap;
    }
    void *p = a->blocks->bytes + a->used;
    a->used += n;
    return memset(p, 0, n);
}

void osh_jarena_deinit(osh_ctx *cx, osh_jarena *a)
{
    for (osh_jblock *b = a->blocks, *next; b; b = next) {
        next = b->next;
        osh_free(cx, b);
    }
    *a = (osh_jarena){0};
}

osh_jv osh_jrun_fail(osh_jrun *r, osh_status code, const char *fmt, ...)
{
    const osh_jv none = {.kind = OSH_JV_NONE};
    char text[1024];
    va_list args;
    if (r->rc) return none;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (r->line) r->rc = osh_fail(r->cx, code, "%s line %d: %s", r->what, r->line, text);
    else r->rc = osh_fail(r->cx, code, "%s", text);
    return none;
}

bool osh_jrun_step(osh_jrun *r, size_t n)
{
    if (r->rc) return false;
    r->steps += 1 + (int64_t)(n / 64);
    int64_t most = r->max_steps ? r->max_steps : OSH_JINJA_MAX_STEPS;
    if (r->steps > most)
        osh_jrun_fail(r, OSH_E_UNSUPPORTED,
                      "more than %lld steps: the template does not end, or the row is too large",
                      (long long)most);
    else if (r->arena->n_bytes > OSH_JINJA_MAX_BYTES ||
             (r->out && r->out->len > OSH_JINJA_MAX_BYTES))
        osh_jrun_fail(r, OSH_E_UNSUPPORTED, "more than %d MiB of values",
                      OSH_JINJA_MAX_BYTES >> 20);
    return !r->rc;
}

bool osh_jrun_step_chars(osh_jrun *r, size_t n)
{
    enum { CHAR_COST = 8 }; // decoding one character takes as long as copying this many bytes
    return osh_jrun_step(r, n < SIZE_MAX / CHAR_COST ? CHAR_COST * n : SIZE_MAX);
}

void *osh_jrun_get(osh_jrun *r, size_t n)
{
    if (n > OSH_JINJA_MAX_BYTES)
        osh_jrun_fail(r, OSH_E_UNSUPPORTED, "more than %d MiB of values",
                      OSH_JINJA_MAX_BYTES >> 20);
    if (!osh_jrun_step(r, n)) return NULL;
    void *p = osh_jarena_get(r->cx, r->arena, n ? n : 1);
    if (!p) r->rc = OSH_E_NOMEM;
    return p;
}

void osh_jrun_vars(osh_jrun *r, osh_jv vars)
{
    osh_jscope *s = osh_jrun_get(r, sizeof *s);
    if (!s || r->rc) return;
    if (vars.kind != OSH_JV_DICT) {
        osh_jrun_fail(r, OSH_E_FORMAT, "the variables are not a JSON object");
        return;
    }
    s->vars = *vars.u.dict, s->up = r->scope;
    r->scope = s;
}

osh_status osh_chat_spans_add(osh_ctx *cx, osh_chat_spans *s, size_t begin, size_t end)
{
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 8;
        osh_chat_span *more = osh_realloc(cx, s->at, cap * sizeof *more);
        if (!more) return OSH_E_NOMEM;
        s->at = more, s->cap = cap;
    }
    s->at[s->n++] = (osh_chat_span){begin, end};
    return OSH_OK;
}
