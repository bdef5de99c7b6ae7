/* jinja_eval.c - evaluates expressions. */
#include <math.h>
#include <string.h>

#include "chat/jinja_impl.h"

static osh_jv eval_name(osh_jrun *r, osh_jv name)
{
    for (const osh_jscope *s = r->scope; s && osh_jrun_step(r, 0); s = s->up) {
        const osh_jv *v = osh_jdict_get(r, &s->vars, name);
        if (v) return *v;
    }
    const osh_jbuiltin *fn = osh_jglobal_find(name);
    if (fn) {
        osh_jbound *b = osh_jrun_get(r, sizeof *b);
        if (!b) return osh_jv_none();
        b->fn = fn;
        return (osh_jv){.kind = OSH_JV_GLOBAL, .u.bound = b};
    }
    return osh_jv_undef(name.u.s, name.n);
}

/* ---- operators ---- */

static osh_jv refuse_op(osh_jrun *r, const char *op, osh_jv a, osh_jv b)
{
    if (a.kind == OSH_JV_UNDEF || b.kind == OSH_JV_UNDEF) {
        osh_jv u = a.kind == OSH_JV_UNDEF ? a : b;
        return osh_jrun_fail(r, OSH_E_FORMAT, "'%.*s' is undefined, and '%s' needs a value",
                             (int)u.n, u.u.s, op);
    }
    return osh_jrun_fail(r, OSH_E_FORMAT, "'%s' does not support %s and %s", op, osh_jv_type(a),
                         osh_jv_type(b));
}

static osh_jv join_lists(osh_jrun *r, osh_jv a, osh_jv b)
{
    osh_jv v = osh_jv_list(r, a.kind);
    for (size_t i = 0; i < a.u.list->n && !r->rc; i++) osh_jv_push(r, v, a.u.list->at[i]);
    for (size_t i = 0; i < b.u.list->n && !r->rc; i++) osh_jv_push(r, v, b.u.list->at[i]);
    return v;
}

static osh_jv join_strings(osh_jrun *r, osh_jv a, osh_jv b)
{
    char *s = osh_jrun_get(r, a.n + b.n + 1);
    if (!s) return osh_jv_none();
    if (a.n) memcpy(s, a.u.s, a.n);
    if (b.n) memcpy(s + a.n, b.u.s, b.n);
    return osh_jv_view(s, a.n + b.n);
}

static osh_jv repeat_value(osh_jrun *r, osh_jv what, osh_jv times)
{
    int64_t n = osh_jv_whole(r, times, "the count");
    osh_jv v = osh_jv_list(r, what.kind);
    if (what.kind != OSH_JV_STR) {
        for (int64_t k = 0; k < n && what.u.list->n && osh_jrun_step(r, 0); k++)
            for (size_t i = 0; i < what.u.list->n && !r->rc; i++)
                osh_jv_push(r, v, what.u.list->at[i]);
        return v;
    }
    if (n <= 0 || !what.n) return osh_jv_view("", 0);
    bool fits = (uint64_t)n <= OSH_JINJA_MAX_BYTES / what.n;
    char *s = osh_jrun_get(r, fits ? what.n * (size_t)n : SIZE_MAX);
    for (int64_t k = 0; s && k < n; k++) memcpy(s + what.n * (size_t)k, what.u.s, what.n);
    return s ? osh_jv_view(s, what.n * (size_t)n) : osh_jv_none();
}

static osh_jv int_too_large(osh_jrun *r)
{
    return osh_jrun_fail(r, OSH_E_UNSUPPORTED, "a whole number does not fit in 64 bits");
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static osh_jv int_power(osh_jrun *r, int64_t a, int64_t b)
{
    int64_t v = 1;
    for (int64_t i = 0; i < b && osh_jrun_step(r, 0); i++)
        if (__builtin_mul_overflow(v, a, &v)) return int_too_large(r);
    return osh_jv_int(v);
}

static osh_jv int_op(osh_jrun *r, int op, int64_t a, int64_t b)
{
    int64_t v = 0;
    bool over = false;
    switch (op) {
    case OSH_JOP('+', 0): over = __builtin_add_overflow(a, b, &v); break;
    case OSH_JOP('-', 0): over = __builtin_sub_overflow(a, b, &v); break;
    case OSH_JOP('*', 0): over = __builtin_mul_overflow(a, b, &v); break;
    case OSH_JOP('*', '*'):
        return b < 0 ? osh_jv_float(pow((double)a, (double)b)) : int_power(r, a, b);
    default:
        if (!b) return osh_jrun_fail(r, OSH_E_FORMAT, "division by zero");
        if (op == OSH_JOP('/', 0)) return osh_jv_float((double)a / (double)b);
        if (a == INT64_MIN && b == -1) return int_too_large(r);
        v = op == OSH_JOP('%', 0) ? a - floor_div(a, b) * b : floor_div(a, b);
    }
    return over ? int_too_large(r) : osh_jv_int(v);
}

static osh_jv float_op(osh_jrun *r, int op, double a, double b)
{
    switch (op) {
    case OSH_JOP('+', 0): return osh_jv_float(a + b);
    case OSH_JOP('-', 0): return osh_jv_float(a - b);
    case OSH_JOP('*', 0): return osh_jv_float(a * b);
    case OSH_JOP('*', '*'): return osh_jv_float(pow(a, b));
    default: break;
    }
    if (b == 0) return osh_jrun_fail(r, OSH_E_FORMAT, "division by zero");
    if (op == OSH_JOP('/', 0)) return osh_jv_float(a / b);
    double rest = fmod(a, b);
    if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
    return osh_jv_float(op == OSH_JOP('%', 0) ? rest : floor((a - rest) / b + 0.5));
}

static bool is_int_or_bool(osh_jv v) { return v.kind == OSH_JV_INT || v.kind == OSH_JV_BOOL; }
static bool is_sequence(osh_jv v)
{
    return v.kind == OSH_JV_STR || v.kind == OSH_JV_LIST || v.kind == OSH_JV_TUPLE;
}

static osh_jv eval_binary(osh_jrun *r, const osh_jnode *n)
{
    osh_jv a = osh_jinja_eval(r, n->first), b = r->rc ? a : osh_jinja_eval(r, n->first->next);
    char op[3] = {(char)(n->op % 256), (char)(n->op / 256)};
    r->line = n->line;
    if (r->rc) return a;
    if (osh_jv_is_num(a) && osh_jv_is_num(b)) {
        if (!is_int_or_bool(a) || !is_int_or_bool(b))
            return float_op(r, n->op, osh_jv_num(a), osh_jv_num(b));
        return int_op(r, n->op, osh_jv_whole(r, a, ""), osh_jv_whole(r, b, ""));
    }
    if (!strcmp(op, "+") && a.kind == b.kind && a.kind == OSH_JV_STR) return join_strings(r, a, b);
    if (!strcmp(op, "+") && a.kind == b.kind && is_sequence(a)) return join_lists(r, a, b);
    if (!strcmp(op, "*") && is_sequence(a) && is_int_or_bool(b)) return repeat_value(r, a, b);
    if (!strcmp(op, "*") && is_sequence(b) && is_int_or_bool(a)) return repeat_value(r, b, a);
    if (!strcmp(op, "%") && a.kind == OSH_JV_STR)
        return osh_jrun_fail(r, OSH_E_UNSUPPORTED, "formatting a string by '%%' is not supported");
    return refuse_op(r, op, a, b);
}

static osh_jv eval_concat(osh_jrun *r, const osh_jnode *n)
{
    osh_buf text;
    osh_buf_init(&text, 0);
    for (const osh_jnode *c = n->first; c && !r->rc; c = c->next) {
        osh_jv v = osh_jinja_eval(r, c);
        osh_jv s = osh_jv_to_str(r, v);
        if (osh_jrun_step(r, s.n)) r->rc = osh_buf_append(r->cx, &text, s.u.s, s.n);
    }
    return osh_jv_take(r, &text);
}

static bool compare_values(osh_jrun *r, int op, osh_jv a, osh_jv b)
{
    switch (op) {
    case OSH_JOP('=', '='): return osh_jv_equal(r, a, b);
    case OSH_JOP('!', '='): return !osh_jv_equal(r, a, b);
    case OSH_JOP_IN: return osh_jv_in(r, a, b);
    case OSH_JOP_NOT_IN: return !osh_jv_in(r, a, b);
    default: break;
    }
    if (a.kind == OSH_JV_UNDEF || b.kind == OSH_JV_UNDEF) {
        char text[3] = {(char)(op % 256), (char)(op / 256)};
        refuse_op(r, text, a, b);
        return false;
    }
    bool nan =
        osh_jv_is_num(a) && osh_jv_is_num(b) && (isnan(osh_jv_num(a)) || isnan(osh_jv_num(b)));
    int d = osh_jv_order(r, a, b);
    if (nan) return false;
    return op == OSH_JOP('<', 0)     ? d < 0
           : op == OSH_JOP('<', '=') ? d <= 0
           : op == OSH_JOP('>', 0)   ? d > 0
                                     : d >= 0;
}

static osh_jv eval_compare(osh_jrun *r, const osh_jnode *n)
{
    osh_jv left = osh_jinja_eval(r, n->first);
    for (const osh_jnode *c = n->first->next; c && !r->rc; c = c->next) {
        osh_jv right = osh_jinja_eval(r, c->first);
        r->line = c->line;
        if (r->rc || !compare_values(r, c->op, left, right)) return osh_jv_bool(false);
        left = right;
    }
    return osh_jv_bool(true);
}

static osh_jv eval_logic(osh_jrun *r, const osh_jnode *n)
{
    osh_jv v = osh_jv_none();
    for (const osh_jnode *c = n->first; c && !r->rc; c = c->next) {
        v = osh_jinja_eval(r, c);
        if (osh_jv_true(v) == (n->kind == OSH_JN_OR)) break;
    }
    return v;
}

static osh_jv eval_sign(osh_jrun *r, const osh_jnode *n)
{
    osh_jv v = osh_jinja_eval(r, n->first);
    r->line = n->line;
    if (r->rc) return v;
    if (!osh_jv_is_num(v)) return refuse_op(r, n->kind == OSH_JN_NEG ? "-" : "+", v, v);
    if (v.kind == OSH_JV_FLOAT) return n->kind == OSH_JN_NEG ? osh_jv_float(-v.u.f) : v;
    int64_t i = osh_jv_whole(r, v, "");
    return n->kind == OSH_JN_NEG ? int_op(r, OSH_JOP('-', 0), 0, i) : osh_jv_int(i);
}

/* ---- items and slices ---- */

/* Converts a bound of a slice as Python's slice.indices does: into [0, n], or into [-1, n - 1] for
 * a negative step. */
static int64_t slice_bound(osh_jrun *r, osh_jv v, int64_t n, int64_t step, bool end)
{
    int64_t lo = step < 0 ? -1 : 0, hi = step < 0 ? n - 1 : n;
    if (v.kind == OSH_JV_NONE) return (step < 0) != end ? hi : lo;
    int64_t i = osh_jv_whole(r, v, "a bound of a slice");
    if (i < 0) i = i < -n ? -1 : i + n;
    return i < lo ? lo : i > hi ? hi : i;
}

static osh_jv eval_slice(osh_jrun *r, osh_jv object, const osh_jnode *n)
{
    osh_jv b[3];
    const osh_jnode *c = n->first;
    for (int i = 0; i < 3 && !r->rc; i++, c = c->next) b[i] = osh_jinja_eval(r, c);
    r->line = n->line;
    if (r->rc) return object;
    if (object.kind == OSH_JV_UNDEF) return refuse_op(r, "[:]", object, object);
    if (!is_sequence(object) && !osh_jv_is_range(object))
        return osh_jrun_fail(r, OSH_E_FORMAT, "cannot slice %s", osh_jv_type(object));
    int64_t len = osh_jv_length(r, object).u.i,
            step = b[2].kind == OSH_JV_NONE ? 1 : osh_jv_whole(r, b[2], "a step");
    if (!r->rc && !step) return osh_jrun_fail(r, OSH_E_FORMAT, "the step of a slice is 0");
    if (step < -len - 1) step = -len - 1;
    if (step > len + 1) step = len + 1;
    int64_t from = slice_bound(r, b[0], len, step, false),
            to = slice_bound(r, b[1], len, step, true);
    if (r->rc) return object;
    if (object.kind == OSH_JV_STR) return osh_jstr_slice(r, object, from, to, step);
    osh_jv v = osh_jv_list(r, object.kind);
    v.n = object.n;
    for (int64_t i = from; (step > 0 ? i < to : i > to) && !r->rc; i += step)
        osh_jv_push(r, v, object.u.list->at[i]);
    return v;
}

static osh_jv eval_item(osh_jrun *r, const osh_jnode *n)
{
    osh_jv object = osh_jinja_eval(r, n->first);
    if (r->rc) return object;
    if (n->first->next->kind == OSH_JN_SLICE) return eval_slice(r, object, n->first->next);
    osh_jv key = osh_jinja_eval(r, n->first->next);
    r->line = n->line;
    return r->rc ? key : osh_jinja_item(r, object, key);
}

/* ---- calls ---- */

typedef struct call_args {
    osh_jv list, named;
} call_args;

static call_args eval_args(osh_jrun *r, const osh_jnode *first)
{
    call_args a = {osh_jv_list(r, OSH_JV_LIST), osh_jv_dict(r, OSH_JV_DICT)};
    for (const osh_jnode *c = first; c && !r->rc; c = c->next) {
        osh_jv v = osh_jinja_eval(r, c);
        if (r->rc) break;
        if (c->keyword.n) osh_jdict_set(r, a.named.u.dict, c->keyword, v);
        else osh_jv_push(r, a.list, v);
    }
    return a;
}

osh_jv osh_jinja_eval_call(osh_jrun *r, const osh_jnode *n, osh_jv caller)
{
    osh_jv fn = osh_jinja_eval(r, n->first);
    call_args a = eval_args(r, n->first->next);
    osh_jargs args = {.self = {.kind = OSH_JV_NONE}};
    r->line = n->line;
    if (r->rc) return fn;
    if (caller.kind == OSH_JV_MACRO)
        osh_jdict_set(r, a.named.u.dict, osh_jv_word("caller"), caller);
    if (fn.kind == OSH_JV_MACRO) return osh_jinja_call_macro(r, fn.u.macro, a.list, a.named);
    if (fn.kind == OSH_JV_METHOD || fn.kind == OSH_JV_GLOBAL) {
        args.self = fn.u.bound->self;
        osh_jargs_bind(r, &args, fn.u.bound->fn, a.list, a.named);
        return r->rc ? fn : fn.u.bound->fn->call(r, &args);
    }
    osh_jv name = n->first->value;
    if (fn.kind == OSH_JV_UNDEF)
        return osh_jrun_fail(
            r, OSH_E_UNSUPPORTED, "'%.*s' is undefined, or not supported, and cannot be called",
            name.kind == OSH_JV_STR ? (int)name.n : 0, name.kind == OSH_JV_STR ? name.u.s : "");
    return osh_jrun_fail(r, OSH_E_FORMAT, "cannot call %s", osh_jv_type(fn));
}

/* Applies a filter or a test to its operand, and returns the result. */
static osh_jv eval_applied(osh_jrun *r, const osh_jnode *n)
{
    osh_jargs args = {.self = osh_jinja_eval(r, n->first)};
    call_args a = eval_args(r, n->first->next);
    r->line = n->line;
    osh_jargs_bind(r, &args, n->fn, a.list, a.named);
    if (r->rc) return args.self;
    osh_jv v = n->fn->call(r, &args);
    return n->kind == OSH_JN_TEST ? osh_jv_bool(osh_jv_true(v) != (n->op != 0)) : v;
}

static osh_jv eval_list(osh_jrun *r, const osh_jnode *n)
{
    osh_jv v = osh_jv_list(r, n->kind == OSH_JN_LIST ? OSH_JV_LIST : OSH_JV_TUPLE);
    for (const osh_jnode *c = n->first; c && !r->rc; c = c->next) {
        osh_jv item = osh_jinja_eval(r, c);
        osh_jv_push(r, v, item);
    }
    return v;
}

static osh_jv eval_dict(osh_jrun *r, const osh_jnode *n)
{
    osh_jv v = osh_jv_dict(r, OSH_JV_DICT);
    for (const osh_jnode *c = n->first; c && !r->rc; c = c->next->next) {
        osh_jv key = osh_jinja_eval(r, c), value = r->rc ? key : osh_jinja_eval(r, c->next);
        if (!r->rc && (key.kind == OSH_JV_LIST || key.kind == OSH_JV_DICT))
            osh_jrun_fail(r, OSH_E_FORMAT, "%s cannot be a key of a dict", osh_jv_type(key));
        if (!r->rc) osh_jdict_set(r, v.u.dict, key, value);
    }
    return v;
}

static osh_jv eval_cond(osh_jrun *r, const osh_jnode *n)
{
    const osh_jnode *then = n->first->next;
    bool is = osh_jv_true(osh_jinja_eval(r, n->first));
    if (r->rc || is) return osh_jinja_eval(r, then);
    return then->next ? osh_jinja_eval(r, then->next) : osh_jv_undef("an 'if' without 'else'", 22);
}

static osh_jv eval_node(osh_jrun *r, const osh_jnode *n)
{
    switch (n->kind) {
    case OSH_JN_CONST: return n->value;
    case OSH_JN_NAME: return eval_name(r, n->value);
    case OSH_JN_LIST:
    case OSH_JN_TUPLE: return eval_list(r, n);
    case OSH_JN_DICT: return eval_dict(r, n);
    case OSH_JN_ATTR: {
        osh_jv object = osh_jinja_eval(r, n->first);
        r->line = n->line;
        return r->rc ? object : osh_jinja_attr(r, object, n->value);
    }
    case OSH_JN_ITEM: return eval_item(r, n);
    case OSH_JN_CALL: return osh_jinja_eval_call(r, n, osh_jv_none());
    case OSH_JN_FILTER:
    case OSH_JN_TEST: return eval_applied(r, n);
    case OSH_JN_NOT: return osh_jv_bool(!osh_jv_true(osh_jinja_eval(r, n->first)));
    case OSH_JN_NEG:
    case OSH_JN_POS: return eval_sign(r, n);
    case OSH_JN_BINARY: return eval_binary(r, n);
    case OSH_JN_CONCAT: return eval_concat(r, n);
    case OSH_JN_COMPARE: return eval_compare(r, n);
    case OSH_JN_AND:
    case OSH_JN_OR: return eval_logic(r, n);
    case OSH_JN_COND: return eval_cond(r, n);
    default: return osh_jrun_fail(r, OSH_E_FORMAT, "a slice outside []");
    }
}

osh_jv osh_jinja_eval(osh_jrun *r, const osh_jnode *n)
{
    if (!osh_jrun_step(r, 0)) return osh_jv_none();
    if (++r->depth > OSH_JINJA_MAX_DEPTH)
        return osh_jrun_fail(r, OSH_E_UNSUPPORTED,
                             "expressions and macros nested more than %d deep",
                             OSH_JINJA_MAX_DEPTH);
    r->line = n->line;
    osh_jv v = eval_node(r, n);
    r->depth--;
    return r->rc ? osh_jv_none() : v;
}
