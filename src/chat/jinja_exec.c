/* jinja_exec.c - runs statements. A loop, a macro and a block have a scope of their own. A name
 * that is set in a scope is removed at the end of the scope. `if` has no scope. A macro reads names
 * from the scope in which it was defined. */
#include <string.h>

#include "chat/jinja_impl.h"

static osh_jscope *scope_new(osh_jrun *r, osh_jscope *up)
{
    osh_jscope *s = osh_jrun_get(r, sizeof *s);
    if (s) s->up = up;
    return s;
}

static void set_name(osh_jrun *r, osh_jv name, osh_jv value)
{
    if (!r->rc) osh_jdict_set(r, &r->scope->vars, name, value);
}

static void set_target(osh_jrun *r, const osh_jnode *target, osh_jv value)
{
    if (target->kind == OSH_JN_NAME) {
        set_name(r, target->value, value);
        return;
    }
    osh_jlist *l = osh_jv_walk(r, value);
    size_t n = 0;
    for (const osh_jnode *c = target->first; c; c = c->next) n++;
    if (l && l->n != n) osh_jrun_fail(r, OSH_E_FORMAT, "%zu values for %zu names", l->n, n);
    size_t i = 0;
    for (const osh_jnode *c = target->first; c && !r->rc; c = c->next)
        set_name(r, c->value, l->at[i++]);
}

/* Returns the text of a body as a string. The body runs in the current scope. */
static osh_jv capture_body(osh_jrun *r, const osh_jnode *body)
{
    osh_buf text, *out = r->out;
    osh_buf_init(&text, 0);
    r->out = &text;
    osh_jinja_exec(r, body);
    r->out = out;
    return osh_jv_take(r, &text);
}

static osh_jv capture_in_scope(osh_jrun *r, const osh_jnode *body)
{
    osh_jscope *up = r->scope, *own = scope_new(r, up);
    if (!own) return osh_jv_none();
    r->scope = own;
    osh_jv v = capture_body(r, body);
    r->scope = up;
    return v;
}

/* ---- for ---- */

static osh_jlist *loop_items(osh_jrun *r, const osh_jnode *n)
{
    const osh_jnode *test = n->first->next;
    osh_jv all = osh_jinja_eval(r, n->first);
    osh_jlist *l = r->rc ? NULL : osh_jv_walk(r, all);
    if (!l || !test) return l;
    osh_jv kept = osh_jv_list(r, OSH_JV_LIST);
    osh_jscope *up = r->scope;
    for (size_t i = 0; i < l->n && !r->rc; i++) {
        r->scope = scope_new(r, up);
        if (!r->scope) break;
        set_target(r, n->target, l->at[i]);
        if (osh_jv_true(osh_jinja_eval(r, test))) osh_jv_push(r, kept, l->at[i]);
    }
    r->scope = up;
    return r->rc ? NULL : kept.u.list;
}

static void exec_for(osh_jrun *r, const osh_jnode *n)
{
    osh_jscope *up = r->scope;
    osh_jlist *l = loop_items(r, n);
    osh_jloop *loop = osh_jrun_get(r, sizeof *loop);
    if (!l || !loop) return;
    *loop = (osh_jloop){.items = l, .depth = r->n_loops++};
    for (; loop->at < l->n && !r->rc && r->flow != OSH_JFLOW_BREAK; loop->at++) {
        r->scope = scope_new(r, up);
        if (!r->scope) break;
        set_name(r, osh_jv_word("loop"), (osh_jv){.kind = OSH_JV_LOOP, .u.loop = loop});
        set_target(r, n->target, l->at[loop->at]);
        r->flow = OSH_JFLOW_ON;
        osh_jinja_exec(r, n->body);
    }
    r->flow = OSH_JFLOW_ON;
    r->n_loops--;
    if (!l->n && n->other && !r->rc) {
        r->scope = scope_new(r, up);
        if (r->scope) osh_jinja_exec(r, n->other);
    }
    r->scope = up;
}

/* ---- set, macro, call ---- */

static void exec_ns_set(osh_jrun *r, const osh_jnode *n, osh_jv value)
{
    osh_jv ns = osh_jinja_eval(r, n->target);
    if (r->rc) return;
    r->line = n->line;
    if (ns.kind != OSH_JV_NS)
        osh_jrun_fail(r, OSH_E_FORMAT, "'%.*s' is %s: only attributes of a namespace can be set",
                      (int)n->target->value.n, n->target->value.u.s, osh_jv_type(ns));
    else osh_jdict_set(r, ns.u.dict, n->value, value);
}

static void exec_set(osh_jrun *r, const osh_jnode *n)
{
    osh_jv v;
    if (n->op) {
        v = capture_in_scope(r, n->body);
        if (n->first) { // the operand of the innermost filter is the variable "|"
            osh_jscope *up = r->scope, *own = scope_new(r, up);
            if (!own) return;
            r->scope = own;
            set_name(r, osh_jv_word("|"), v);
            v = osh_jinja_eval(r, n->first);
            r->scope = up;
        }
    } else {
        v = osh_jinja_eval(r, n->first);
    }
    if (r->rc) return;
    if (n->kind == OSH_JN_NS_SET) exec_ns_set(r, n, v);
    else set_target(r, n->target, v);
}

static osh_jv macro_new(osh_jrun *r, const osh_jnode *n)
{
    osh_jmacro *m = osh_jrun_get(r, sizeof *m);
    if (!m) return osh_jv_none();
    *m = (osh_jmacro){n, r->scope};
    return (osh_jv){.kind = OSH_JV_MACRO, .u.macro = m};
}

/* Sets each parameter, in order: a positional argument, a named argument, the default, or
 * undefined. */
static void bind_params(osh_jrun *r, const osh_jnode *def, const osh_jlist *list, osh_jdict *named)
{
    size_t i = 0, used = 0;
    for (const osh_jnode *c = def->target->first; c && !r->rc; c = c->next, i++) {
        const osh_jv *by_name = osh_jdict_get(r, named, c->value);
        osh_jv v = osh_jv_undef(c->value.u.s, c->value.n);
        if (by_name && i < list->n) {
            osh_jrun_fail(r, OSH_E_FORMAT, "two values for '%.*s'", (int)c->value.n, c->value.u.s);
            return;
        }
        if (i < list->n) v = list->at[i];
        else if (by_name) v = *by_name;
        else if (c->first) v = osh_jinja_eval(r, c->first);
        used += by_name != NULL;
        set_name(r, c->value, v);
    }
    if (i < list->n || used < named->n)
        osh_jrun_fail(
            r, OSH_E_FORMAT,
            "the macro '%.*s' takes %zu arguments, got different ones ('varargs' and 'kwargs' are "
            "not supported)",
            (int)def->value.n, def->value.u.s, i);
}

osh_jv osh_jinja_call_macro(osh_jrun *r, const osh_jmacro *m, osh_jv list, osh_jv named)
{
    osh_jscope *back = r->scope, *own = scope_new(r, m->scope);
    int loops = r->n_loops;
    osh_jv v = osh_jv_none(), word = osh_jv_word("caller");
    if (!own || r->rc) return v;
    r->scope = own, r->n_loops = 0;
    const osh_jv *caller =
        m->def->kind == OSH_JN_MACRO ? osh_jdict_get(r, named.u.dict, word) : NULL;
    /* The argument `caller` becomes a variable, because it is no parameter of the macro. */
    if (caller) {
        set_name(r, word, *caller);
        osh_jv rest = osh_jv_dict(r, OSH_JV_DICT);
        for (size_t i = 0; i < named.u.dict->n && !r->rc; i++)
            if (!osh_jv_is(named.u.dict->at[i].key, "caller"))
                osh_jdict_set(r, rest.u.dict, named.u.dict->at[i].key, named.u.dict->at[i].value);
        named = rest;
    }
    if (!r->rc) bind_params(r, m->def, list.u.list, named.u.dict);
    if (!r->rc) v = capture_body(r, m->def->body);
    r->scope = back, r->n_loops = loops;
    return v;
}

static void exec_print(osh_jrun *r, osh_jv v)
{
    if (r->rc) return;
    if (v.kind == OSH_JV_UNDEF && r->strict) {
        osh_jrun_fail(r, OSH_E_FORMAT, "'%.*s' is undefined", (int)v.n, v.u.s);
        return;
    }
    osh_jv s = osh_jv_to_str(r, v);
    if (osh_jrun_step(r, s.n)) r->rc = osh_buf_append(r->cx, r->out, s.u.s, s.n);
}

static void exec_call(osh_jrun *r, const osh_jnode *n)
{
    osh_jv caller = macro_new(r, n);
    if (!r->rc) exec_print(r, osh_jinja_eval_call(r, n->first, caller));
}

static void exec_filter_block(osh_jrun *r, const osh_jnode *n)
{
    osh_jscope *up = r->scope, *own = scope_new(r, up);
    if (!own) return;
    r->scope = own;
    osh_jv text = capture_body(r, n->body);
    set_name(r, osh_jv_word("|"), text);
    osh_jv v = osh_jinja_eval(r, n->first);
    r->scope = up;
    exec_print(r, v);
}

static void exec_scope(osh_jrun *r, const osh_jnode *n)
{
    osh_jscope *up = r->scope, *own = scope_new(r, up);
    if (!own) return;
    for (const osh_jnode *c = n->target ? n->target->first : NULL; c && !r->rc; c = c->next) {
        /* The value is evaluated before the new scope becomes the current one. */
        osh_jv v = osh_jinja_eval(r, c->first);
        if (!r->rc) osh_jdict_set(r, &own->vars, c->value, v);
    }
    r->scope = own;
    osh_jinja_exec(r, n->body);
    r->scope = up;
}

static void exec_generation(osh_jrun *r, const osh_jnode *n)
{
    size_t begin = r->out->len;
    if (r->marks && r->out != r->marked)
        osh_jrun_fail(r, OSH_E_UNSUPPORTED,
                      "the positions of a generation block inside a macro, call, filter or set "
                      "block are not known");
    exec_scope(r, n);
    if (!r->rc && r->marks && r->out->len > begin)
        r->rc = osh_chat_spans_add(r->cx, r->marks, begin, r->out->len);
}

static void exec_one(osh_jrun *r, const osh_jnode *n)
{
    r->line = n->line;
    switch (n->kind) {
    case OSH_JN_TEXT:
        if (osh_jrun_step(r, n->value.n))
            r->rc = osh_buf_append(r->cx, r->out, n->value.u.s, n->value.n);
        break;
    case OSH_JN_PRINT: exec_print(r, osh_jinja_eval(r, n->first)); break;
    case OSH_JN_FOR: exec_for(r, n); break;
    case OSH_JN_IF: {
        while (n && n->kind == OSH_JN_IF && !r->rc && !osh_jv_true(osh_jinja_eval(r, n->first)))
            n = n->other;
        if (n && !r->rc) osh_jinja_exec(r, n->kind == OSH_JN_IF ? n->body : n);
        break;
    }
    case OSH_JN_SET:
    case OSH_JN_SET_BLOCK:
    case OSH_JN_NS_SET: exec_set(r, n); break;
    case OSH_JN_MACRO: set_name(r, n->value, macro_new(r, n)); break;
    case OSH_JN_CALL_BLOCK: exec_call(r, n); break;
    case OSH_JN_FILTER_BLOCK: exec_filter_block(r, n); break;
    case OSH_JN_GENERATION: exec_generation(r, n); break;
    case OSH_JN_SCOPE:
    case OSH_JN_WITH: exec_scope(r, n); break;
    case OSH_JN_BREAK: r->flow = OSH_JFLOW_BREAK; break;
    case OSH_JN_CONTINUE: r->flow = OSH_JFLOW_CONTINUE; break;
    default: break;
    }
}

/* Runs a list of statements. Stops at `break` and `continue`, which the loop handles. */
void osh_jinja_exec(osh_jrun *r, const osh_jnode *list)
{
    if (++r->depth > OSH_JINJA_MAX_DEPTH)
        osh_jrun_fail(r, OSH_E_UNSUPPORTED, "tags and macros nested more than %d deep",
                      OSH_JINJA_MAX_DEPTH);
    for (const osh_jnode *n = list->first; n && osh_jrun_step(r, 0) && r->flow == OSH_JFLOW_ON;
         n = n->next)
        exec_one(r, n);
    r->depth--;
}
