/* jinja_filter.c - implements the filters, and the binding of arguments to parameters. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "chat/jinja_impl.h"

/* Returns parameter i of a list such as "old new count?". Sets *n to the size of its name in bytes.
 * Returns NULL if the list is shorter. */
static const char *param_at(const char *params, size_t i, size_t *n, bool *optional)
{
    for (; params; params = *params ? params + 1 : NULL) {
        *n = strcspn(params, " ");
        if (!*n) return NULL;
        *optional = params[*n - 1] == '?';
        if (*params == '*') return NULL;
        if (!i--) {
            *n -= *optional;
            return params;
        }
        params += *n;
        if (!*params) return NULL;
    }
    return NULL;
}

static bool params_take_any(const char *params)
{
    size_t n = params ? strlen(params) : 0;
    return n && params[n - 1] == '*';
}

/* Marks v as an argument that was given. An argument that was not given is an undefined value whose
 * name is NULL. So if v is undefined, the function sets its name to "". */
static osh_jv arg_given(osh_jv v)
{
    return v.kind == OSH_JV_UNDEF && !v.u.s ? osh_jv_undef("", 0) : v;
}

void osh_jargs_bind(osh_jrun *r, osh_jargs *a, const osh_jbuiltin *fn, osh_jv list, osh_jv named)
{
    size_t used = 0, i = 0, n = 0;
    bool optional = false;
    if (r->rc) return;
    a->more = osh_jv_list(r, OSH_JV_LIST), a->named = osh_jv_dict(r, OSH_JV_DICT);
    for (const char *p; !r->rc && (p = param_at(fn->params, i, &n, &optional)); i++) {
        const osh_jv *v = osh_jdict_get(r, named.u.dict, osh_jv_view(p, n));
        used += v != NULL;
        if (v && i < list.u.list->n)
            osh_jrun_fail(r, OSH_E_FORMAT, "%s: two values for '%.*s'", fn->name, (int)n, p);
        else if (i < list.u.list->n) a->at[i] = arg_given(list.u.list->at[i]);
        else if (v) a->at[i] = arg_given(*v);
        else if (!optional)
            osh_jrun_fail(r, OSH_E_FORMAT, "%s: want the argument '%.*s'", fn->name, (int)n, p);
    }
    bool any = params_take_any(fn->params);
    if (!any && !r->rc && (i < list.u.list->n || used < named.u.dict->n))
        osh_jrun_fail(r, OSH_E_UNSUPPORTED, "%s: arguments that are not supported, want (%s)",
                      fn->name, fn->params ? fn->params : "");
    for (; any && !r->rc && i < list.u.list->n; i++) osh_jv_push(r, a->more, list.u.list->at[i]);
    if (any) a->named = named;
}

static osh_jv arg_or(osh_jv v, osh_jv dflt) { return osh_jarg_given(v) ? v : dflt; }

/* ---- numbers and single values ---- */

static osh_jv filter_abs(osh_jrun *r, const osh_jargs *a)
{
    if (a->self.kind == OSH_JV_FLOAT) return osh_jv_float(fabs(a->self.u.f));
    int64_t i = osh_jv_whole(r, a->self, "the operand of abs");
    return i < 0 && i > INT64_MIN ? osh_jv_int(-i) : osh_jv_int(i);
}

static osh_jv filter_default(osh_jrun *r, const osh_jargs *a)
{
    (void)r;
    bool no = a->self.kind == OSH_JV_UNDEF || (osh_jv_true(a->at[1]) && !osh_jv_true(a->self));
    return no ? arg_or(a->at[0], osh_jv_view("", 0)) : a->self;
}

/* Parses a number as Python's float() does. White space may surround the number. */
static bool parse_float(osh_jrun *r, osh_jv s, double *out)
{
    osh_jv t = osh_jstr_strip(r, s, osh_jv_none(), 3);
    char text[64], *end;
    if (r->rc || !t.n || t.n >= sizeof text || memchr(t.u.s, 'x', t.n) || memchr(t.u.s, 'X', t.n))
        return false;
    memcpy(text, t.u.s, t.n);
    text[t.n] = 0;
    *out = strtod(text, &end);
    return !*end;
}

static osh_jv refuse_undefined(osh_jrun *r, osh_jv v)
{
    return osh_jrun_fail(r, OSH_E_FORMAT, "'%.*s' is undefined, want a number", (int)v.n, v.u.s);
}

static osh_jv filter_float(osh_jrun *r, const osh_jargs *a)
{
    double f;
    if (a->self.kind == OSH_JV_UNDEF) return refuse_undefined(r, a->self);
    if (osh_jv_is_num(a->self)) return osh_jv_float(osh_jv_num(a->self));
    if (a->self.kind == OSH_JV_STR && parse_float(r, a->self, &f)) return osh_jv_float(f);
    return arg_or(a->at[0], osh_jv_float(0));
}

static osh_jv filter_int(osh_jrun *r, const osh_jargs *a)
{
    double f = 0;
    osh_jv dflt = arg_or(a->at[0], osh_jv_int(0)), t = a->self;
    if (t.kind == OSH_JV_UNDEF) return refuse_undefined(r, t);
    if (osh_jarg_given(a->at[1]))
        return osh_jrun_fail(r, OSH_E_UNSUPPORTED, "int: another base is not supported");
    if (t.kind == OSH_JV_INT || t.kind == OSH_JV_BOOL) return osh_jv_int(osh_jv_whole(r, t, ""));
    if (t.kind == OSH_JV_FLOAT) f = t.u.f;
    else if (t.kind != OSH_JV_STR) return dflt;
    else {
        t = osh_jstr_strip(r, t, osh_jv_none(), 3);
        int64_t i = 0;
        size_t k = t.n && (*t.u.s == '-' || *t.u.s == '+');
        bool whole = k < t.n && t.n - k <= 18;
        for (size_t c = k; whole && c < t.n; c++) {
            whole = t.u.s[c] >= '0' && t.u.s[c] <= '9';
            i = i * 10 + (whole ? t.u.s[c] - '0' : 0);
        }
        if (whole) return osh_jv_int(*t.u.s == '-' ? -i : i);
        if (!parse_float(r, t, &f)) return dflt;
    }
    return f > -9e18 && f < 9e18 ? osh_jv_int((int64_t)f) : dflt;
}

static osh_jv filter_round(osh_jrun *r, const osh_jargs *a)
{
    osh_jv digits = arg_or(a->at[0], osh_jv_int(0)), how = arg_or(a->at[1], osh_jv_word("common"));
    if (!osh_jv_is_num(a->self))
        return osh_jrun_fail(r, OSH_E_FORMAT, "cannot round %s", osh_jv_type(a->self));
    if (osh_jv_whole(r, digits, "the precision of round") || !osh_jv_is(how, "common"))
        return osh_jrun_fail(r, OSH_E_UNSUPPORTED,
                             "round with a precision or a method is not supported");
    return a->self.kind == OSH_JV_FLOAT ? osh_jv_float(rint(a->self.u.f))
                                        : osh_jv_int(osh_jv_whole(r, a->self, ""));
}

/* ---- strings ---- */

static osh_jv filter_string(osh_jrun *r, const osh_jargs *a) { return osh_jv_to_str(r, a->self); }
static osh_jv filter_map_case(osh_jrun *r, const osh_jargs *a, char how)
{
    osh_jv s = osh_jv_to_str(r, a->self);
    return r->rc ? s : osh_jstr_map_case(r, s, how);
}
static osh_jv filter_upper(osh_jrun *r, const osh_jargs *a) { return filter_map_case(r, a, 'u'); }
static osh_jv filter_lower(osh_jrun *r, const osh_jargs *a) { return filter_map_case(r, a, 'l'); }
static osh_jv filter_title(osh_jrun *r, const osh_jargs *a) { return filter_map_case(r, a, 't'); }
static osh_jv filter_capitalize(osh_jrun *r, const osh_jargs *a)
{
    return filter_map_case(r, a, 'c');
}

static osh_jv filter_trim(osh_jrun *r, const osh_jargs *a)
{
    osh_jv s = osh_jv_to_str(r, a->self);
    return r->rc ? s : osh_jstr_strip(r, s, arg_or(a->at[0], osh_jv_none()), 3);
}

static osh_jv filter_replace(osh_jrun *r, const osh_jargs *a)
{
    osh_jv s = osh_jv_to_str(r, a->self), old = osh_jv_to_str(r, a->at[0]),
           by = osh_jv_to_str(r, a->at[1]);
    osh_jv count = arg_or(a->at[2], osh_jv_none());
    int64_t n = count.kind == OSH_JV_NONE ? -1 : osh_jv_whole(r, count, "the count of replace");
    return r->rc ? s : osh_jstr_replace(r, s, old, by, n);
}

static void text_append(osh_jrun *r, osh_buf *b, osh_jv s)
{
    if (osh_jrun_step(r, s.n)) r->rc = osh_buf_append(r->cx, b, s.u.s, s.n);
}

/* True if s has a line end other than \n. Python splits lines at such line ends too, but the filter
 * `indent` joins lines with \n. */
static bool has_other_lines(osh_jrun *r, osh_jv s)
{
    static const char *const ends[] = {"\r",   "\v",       "\f",           "\x1c",        "\x1d",
                                       "\x1e", "\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xa9"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (osh_jstr_find(r, s, osh_jv_word(ends[i]), 0) != SIZE_MAX) return true;
    return false;
}

static osh_jv filter_indent(osh_jrun *r, const osh_jargs *a)
{
    osh_jv s = a->self, width = arg_or(a->at[0], osh_jv_int(4));
    if (s.kind != OSH_JV_STR)
        return osh_jrun_fail(r, OSH_E_FORMAT, "indent of %s, want a string", osh_jv_type(s));
    if (has_other_lines(r, s))
        return osh_jrun_fail(r, OSH_E_UNSUPPORTED, "indent of lines that do not end in \\n");
    int64_t n = width.kind == OSH_JV_STR ? 1 : osh_jv_whole(r, width, "the width of indent");
    bool blank = osh_jv_true(a->at[2]);
    osh_buf out;
    if (n > 1000)
        return osh_jrun_fail(r, OSH_E_UNSUPPORTED, "an indent of %lld, at most 1000", (long long)n);
    osh_jv unit = width.kind == OSH_JV_STR ? width : osh_jv_word(" ");
    osh_buf_init(&out, OSH_JINJA_MAX_BYTES);
    for (size_t at = 0; at <= s.n && !r->rc;) {
        const char *nl = at < s.n ? memchr(s.u.s + at, '\n', s.n - at) : NULL;
        size_t end = nl ? (size_t)(nl - s.u.s) : s.n;
        bool in = at ? blank || end > at : osh_jv_true(a->at[1]);
        if (at) text_append(r, &out, osh_jv_word("\n"));
        for (int64_t k = 0; in && k < n && !r->rc; k++) text_append(r, &out, unit);
        text_append(r, &out, osh_jv_view(s.u.s + at, end - at));
        at = end + 1;
    }
    return osh_jv_take(r, &out);
}

static osh_jv filter_safe(osh_jrun *r, const osh_jargs *a) { return osh_jv_to_str(r, a->self); }
static osh_jv filter_tojson(osh_jrun *r, const osh_jargs *a)
{
    return osh_jv_to_json(r, a->self, a->at);
}

/* ---- lists ---- */

static osh_jv filter_length(osh_jrun *r, const osh_jargs *a) { return osh_jv_length(r, a->self); }

static osh_jv list_copy(osh_jrun *r, osh_jv_kind kind, const osh_jlist *l)
{
    osh_jv v = osh_jv_list(r, kind);
    for (size_t i = 0; l && i < l->n && !r->rc; i++) osh_jv_push(r, v, l->at[i]);
    return v;
}

static osh_jv filter_list(osh_jrun *r, const osh_jargs *a)
{
    return list_copy(r, OSH_JV_LIST, osh_jv_walk(r, a->self));
}

static osh_jv filter_items(osh_jrun *r, const osh_jargs *a)
{
    if (a->self.kind == OSH_JV_UNDEF) return osh_jv_list(r, OSH_JV_ITER);
    if (a->self.kind != OSH_JV_DICT)
        return osh_jrun_fail(r, OSH_E_FORMAT, "cannot take the items of %s", osh_jv_type(a->self));
    osh_jv view = osh_jinja_attr(r, a->self, osh_jv_word("items"));
    osh_jargs none = {.self = a->self};
    osh_jv v = r->rc ? view : view.u.bound->fn->call(r, &none);
    if (!r->rc) v.kind = OSH_JV_ITER;
    return v;
}

static osh_jv list_end(osh_jrun *r, osh_jv v, bool last)
{
    if (last && v.kind == OSH_JV_ITER)
        return osh_jrun_fail(r, OSH_E_FORMAT, "cannot take the last item of %s", osh_jv_type(v));
    const osh_jlist *l = osh_jv_walk(r, v);
    if (!l || !l->n) return osh_jv_undef("no item", 7);
    return l->at[last ? l->n - 1 : 0];
}
static osh_jv filter_first(osh_jrun *r, const osh_jargs *a) { return list_end(r, a->self, false); }
static osh_jv filter_last(osh_jrun *r, const osh_jargs *a) { return list_end(r, a->self, true); }

static osh_jv filter_reverse(osh_jrun *r, const osh_jargs *a)
{
    if (a->self.kind == OSH_JV_STR) {
        int64_t n = osh_jstr_length(r, a->self);
        return osh_jstr_slice(r, a->self, n - 1, -1, -1);
    }
    osh_jv v = osh_jv_list(r, OSH_JV_ITER);
    const osh_jlist *l = osh_jv_walk(r, a->self);
    for (size_t i = l ? l->n : 0; i > 0 && !r->rc; i--) osh_jv_push(r, v, l->at[i - 1]);
    return v;
}

/* Returns object["a"]["b"] for the path "a.b"; a number is an index. Returns the object if the path
 * is None. */
static osh_jv attribute_of(osh_jrun *r, osh_jv object, osh_jv path)
{
    if (path.kind == OSH_JV_NONE || !osh_jarg_given(path)) return object;
    if (path.kind == OSH_JV_INT) return osh_jinja_item(r, object, path);
    if (path.kind != OSH_JV_STR)
        return osh_jrun_fail(r, OSH_E_FORMAT, "an attribute that is %s", osh_jv_type(path));
    for (size_t at = 0; at <= path.n && !r->rc;) {
        const char *dot = memchr(path.u.s + at, '.', path.n - at);
        size_t end = dot ? (size_t)(dot - path.u.s) : path.n;
        osh_jv part = osh_jv_view(path.u.s + at, end - at);
        bool number = part.n > 0 && part.n < 10;
        int64_t index = 0;
        for (size_t i = 0; number && i < part.n; i++) {
            number = part.u.s[i] >= '0' && part.u.s[i] <= '9';
            index = 10 * index + (part.u.s[i] - '0');
        }
        if (!osh_jrun_step(r, part.n)) break;
        object = osh_jinja_item(r, object, number ? osh_jv_int(index) : part);
        at = end + 1;
    }
    return object;
}

static osh_jv filter_join(osh_jrun *r, const osh_jargs *a)
{
    osh_jv between = osh_jv_to_str(r, arg_or(a->at[0], osh_jv_view("", 0)));
    const osh_jlist *l = osh_jv_walk(r, a->self);
    osh_buf out;
    osh_buf_init(&out, OSH_JINJA_MAX_BYTES);
    for (size_t i = 0; l && i < l->n && !r->rc; i++) {
        if (i) text_append(r, &out, between);
        osh_jv item = attribute_of(r, l->at[i], a->at[1]);
        text_append(r, &out, osh_jv_to_str(r, item));
    }
    return osh_jv_take(r, &out);
}

static osh_jv filter_map(osh_jrun *r, const osh_jargs *a)
{
    osh_jv out = osh_jv_list(r, OSH_JV_ITER), word = osh_jv_word("attribute"),
           dflt = osh_jv_word("default");
    const osh_jlist *l = osh_jv_walk(r, a->self), *more = r->rc ? NULL : a->more.u.list;
    const osh_jv *path = r->rc ? NULL : osh_jdict_get(r, a->named.u.dict, word), *other = NULL;
    if (!l || r->rc) return out;
    other = osh_jdict_get(r, a->named.u.dict, dflt);
    const osh_jbuiltin *fn = !path && more->n ? osh_jfilter_find(more->at[0]) : NULL;
    if (!path && !fn)
        return osh_jrun_fail(r, OSH_E_UNSUPPORTED,
                             "map: want attribute=, or a filter that is supported");
    osh_jv rest = osh_jv_list(r, OSH_JV_LIST);
    for (size_t k = 1; fn && k < more->n; k++) osh_jv_push(r, rest, more->at[k]);
    for (size_t i = 0; i < l->n && osh_jrun_step(r, 0); i++) {
        osh_jv v = l->at[i];
        if (path) {
            v = attribute_of(r, v, *path);
            if (v.kind == OSH_JV_UNDEF && other) v = *other;
        } else {
            osh_jargs args = {.self = v};
            osh_jargs_bind(r, &args, fn, rest, a->named);
            if (!r->rc) v = fn->call(r, &args);
        }
        osh_jv_push(r, out, v);
    }
    return out;
}

/* Implements four filters. The arguments of `select` and `reject` are the name of a test and the
 * arguments of the test. `selectattr` and `rejectattr` have the name of an attribute before
 * them. */
static osh_jv filter_choose(osh_jrun *r, const osh_jargs *a, bool by_attribute, bool keep)
{
    osh_jv out = osh_jv_list(r, OSH_JV_ITER);
    const osh_jlist *l = osh_jv_walk(r, a->self), *more = r->rc ? NULL : a->more.u.list;
    if (!l) return out;
    if (by_attribute && !more->n)
        return osh_jrun_fail(r, OSH_E_FORMAT, "want the name of an attribute");
    const osh_jbuiltin *test =
        more->n > by_attribute ? osh_jtest_find(more->at[by_attribute]) : NULL;
    if (more->n > by_attribute && !test) {
        osh_jv name = osh_jv_to_str(r, more->at[by_attribute]);
        return osh_jrun_fail(r, OSH_E_UNSUPPORTED, "the test '%.*s' is not supported", (int)name.n,
                             name.u.s);
    }
    osh_jv rest = osh_jv_list(r, OSH_JV_LIST);
    for (size_t k = by_attribute + 1u; k < more->n; k++) osh_jv_push(r, rest, more->at[k]);
    for (size_t i = 0; i < l->n && osh_jrun_step(r, 0); i++) {
        osh_jargs args = {.self = by_attribute ? attribute_of(r, l->at[i], more->at[0]) : l->at[i]};
        osh_jv v = args.self;
        if (test) osh_jargs_bind(r, &args, test, rest, a->named);
        if (test && !r->rc) v = test->call(r, &args);
        if (osh_jv_true(v) == keep) osh_jv_push(r, out, l->at[i]);
    }
    return out;
}
static osh_jv filter_select(osh_jrun *r, const osh_jargs *a)
{
    return filter_choose(r, a, false, true);
}
static osh_jv filter_reject(osh_jrun *r, const osh_jargs *a)
{
    return filter_choose(r, a, false, false);
}
static osh_jv filter_selectattr(osh_jrun *r, const osh_jargs *a)
{
    return filter_choose(r, a, true, true);
}
static osh_jv filter_rejectattr(osh_jrun *r, const osh_jargs *a)
{
    return filter_choose(r, a, true, false);
}

/* ---- order ---- */

static osh_jv sort_key(osh_jrun *r, osh_jv v, osh_jv path, bool case_sensitive)
{
    v = attribute_of(r, v, path);
    return v.kind == OSH_JV_STR && !case_sensitive ? osh_jstr_map_case(r, v, 'l') : v;
}

/* Sorts pairs by key; the sort is stable. An insertion sort is enough, because templates sort short
 * lists. */
static void sort_pairs(osh_jrun *r, osh_jpair *at, size_t n, bool reverse)
{
    for (size_t i = 1; i < n && !r->rc; i++) {
        osh_jpair p = at[i];
        size_t k = i;
        for (; k > 0 && !r->rc; k--) {
            int d = osh_jv_order(r, p.key, at[k - 1].key);
            if (reverse ? d <= 0 : d >= 0) break;
            at[k] = at[k - 1];
        }
        at[k] = p;
    }
}

static osh_jv list_sorted(osh_jrun *r, const osh_jlist *l, osh_jv path, bool case_sensitive,
                          bool reverse)
{
    osh_jv out = osh_jv_list(r, OSH_JV_LIST);
    osh_jpair *pairs = l ? osh_jrun_get(r, (l->n + 1) * sizeof *pairs) : NULL;
    if (path.kind == OSH_JV_STR && osh_jstr_find(r, path, osh_jv_word(","), 0) != SIZE_MAX)
        return osh_jrun_fail(r, OSH_E_UNSUPPORTED, "sort by several attributes is not supported");
    for (size_t i = 0; pairs && i < l->n && !r->rc; i++)
        pairs[i] = (osh_jpair){sort_key(r, l->at[i], path, case_sensitive), l->at[i]};
    if (pairs) sort_pairs(r, pairs, l->n, reverse);
    for (size_t i = 0; pairs && i < l->n && !r->rc; i++) osh_jv_push(r, out, pairs[i].value);
    return out;
}

static osh_jv filter_sort(osh_jrun *r, const osh_jargs *a)
{
    return list_sorted(r, osh_jv_walk(r, a->self), a->at[2], osh_jv_true(a->at[1]),
                       osh_jv_true(a->at[0]));
}

static osh_jv filter_dictsort(osh_jrun *r, const osh_jargs *a)
{
    osh_jv by = arg_or(a->at[1], osh_jv_word("key"));
    if (!osh_jv_is(by, "key") && !osh_jv_is(by, "value"))
        return osh_jrun_fail(r, OSH_E_FORMAT, "dictsort: want by 'key' or 'value'");
    if (a->self.kind != OSH_JV_DICT)
        return osh_jrun_fail(r, OSH_E_FORMAT, "cannot sort the items of %s", osh_jv_type(a->self));
    osh_jv items = filter_items(r, a);
    return r->rc ? items
                 : list_sorted(r, items.u.list, osh_jv_int(osh_jv_is(by, "value")),
                               osh_jv_true(a->at[0]), osh_jv_true(a->at[2]));
}

static osh_jv list_extreme(osh_jrun *r, const osh_jargs *a, int sign)
{
    const osh_jlist *l = osh_jv_walk(r, a->self);
    osh_jv best = osh_jv_undef("no item", 7), key = best;
    for (size_t i = 0; l && i < l->n && osh_jrun_step(r, 0); i++) {
        osh_jv k = sort_key(r, l->at[i], a->at[1], osh_jv_true(a->at[0]));
        if (i && sign * osh_jv_order(r, k, key) <= 0) continue;
        best = l->at[i], key = k;
    }
    return best;
}
static osh_jv filter_max(osh_jrun *r, const osh_jargs *a) { return list_extreme(r, a, 1); }
static osh_jv filter_min(osh_jrun *r, const osh_jargs *a) { return list_extreme(r, a, -1); }

static osh_jv filter_unique(osh_jrun *r, const osh_jargs *a)
{
    osh_jv out = osh_jv_list(r, OSH_JV_ITER), seen = osh_jv_list(r, OSH_JV_LIST);
    const osh_jlist *l = osh_jv_walk(r, a->self);
    for (size_t i = 0; l && i < l->n && !r->rc; i++) {
        osh_jv key = sort_key(r, l->at[i], a->at[1], osh_jv_true(a->at[0]));
        if (osh_jv_in(r, key, seen)) continue;
        osh_jv_push(r, seen, key);
        osh_jv_push(r, out, l->at[i]);
    }
    return out;
}

static osh_jv filter_sum(osh_jrun *r, const osh_jargs *a)
{
    const osh_jlist *l = osh_jv_walk(r, a->self);
    osh_jv start = arg_or(a->at[1], osh_jv_int(0));
    int64_t whole = start.kind == OSH_JV_FLOAT ? 0 : osh_jv_whole(r, start, "the start of sum");
    double real = start.kind == OSH_JV_FLOAT ? start.u.f : (double)whole;
    bool is_real = start.kind == OSH_JV_FLOAT;
    for (size_t i = 0; l && i < l->n && osh_jrun_step(r, 0); i++) {
        osh_jv v = attribute_of(r, l->at[i], a->at[0]);
        if (!r->rc && !osh_jv_is_num(v))
            osh_jrun_fail(r, OSH_E_FORMAT, "cannot sum %s", osh_jv_type(v));
        if (r->rc) break;
        is_real |= v.kind == OSH_JV_FLOAT;
        real += osh_jv_num(v);
        if (v.kind != OSH_JV_FLOAT && __builtin_add_overflow(whole, osh_jv_whole(r, v, ""), &whole))
            osh_jrun_fail(r, OSH_E_UNSUPPORTED, "a whole number beyond 64 bits");
    }
    return is_real ? osh_jv_float(real) : osh_jv_int(whole);
}

static const osh_jbuiltin filters[] = {
    {.name = "abs", .call = filter_abs},
    {.name = "capitalize", .call = filter_capitalize},
    {.name = "count", .call = filter_length},
    {.name = "d", .call = filter_default, .params = "default_value? boolean?"},
    {.name = "default", .call = filter_default, .params = "default_value? boolean?"},
    {.name = "dictsort", .call = filter_dictsort, .params = "case_sensitive? by? reverse?"},
    {.name = "first", .call = filter_first},
    {.name = "float", .call = filter_float, .params = "default?"},
    {.name = "indent", .call = filter_indent, .params = "width? first? blank?"},
    {.name = "int", .call = filter_int, .params = "default? base?"},
    {.name = "items", .call = filter_items},
    {.name = "join", .call = filter_join, .params = "d? attribute?"},
    {.name = "last", .call = filter_last},
    {.name = "length", .call = filter_length},
    {.name = "list", .call = filter_list},
    {.name = "lower", .call = filter_lower},
    {.name = "map", .call = filter_map, .params = "*"},
    {.name = "max", .call = filter_max, .params = "case_sensitive? attribute?"},
    {.name = "min", .call = filter_min, .params = "case_sensitive? attribute?"},
    {.name = "reject", .call = filter_reject, .params = "*"},
    {.name = "rejectattr", .call = filter_rejectattr, .params = "*"},
    {.name = "replace", .call = filter_replace, .params = "old new count?"},
    {.name = "reverse", .call = filter_reverse},
    {.name = "round", .call = filter_round, .params = "precision? method?"},
    {.name = "safe", .call = filter_safe},
    {.name = "select", .call = filter_select, .params = "*"},
    {.name = "selectattr", .call = filter_selectattr, .params = "*"},
    {.name = "sort", .call = filter_sort, .params = "reverse? case_sensitive? attribute?"},
    {.name = "string", .call = filter_string},
    {.name = "sum", .call = filter_sum, .params = "attribute? start?"},
    {.name = "title", .call = filter_title},
    {.name = "tojson",
     .call = filter_tojson,
     .params = "ensure_ascii? indent? separators? sort_keys?"},
    {.name = "trim", .call = filter_trim, .params = "chars?"},
    {.name = "unique", .call = filter_unique, .params = "case_sensitive? attribute?"},
    {.name = "upper", .call = filter_upper},
    {0},
};

const osh_jbuiltin *osh_jfilter_find(osh_jv name)
{
    for (const osh_jbuiltin *f = filters; f->name; f++)
        if (osh_jv_is(name, f->name)) return f;
    return NULL;
}
