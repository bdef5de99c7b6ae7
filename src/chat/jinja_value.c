/* jinja_value.c - implements operations of Python on values: truth, ==, <, in, len, iteration. */
#include <math.h>
#include <string.h>

#include "chat/jinja_impl.h"

osh_jv osh_jv_undef(const char *name, size_t n)
{
    return (osh_jv){.kind = OSH_JV_UNDEF, .u.s = name, .n = n};
}
osh_jv osh_jv_none(void) { return (osh_jv){.kind = OSH_JV_NONE}; }
osh_jv osh_jv_bool(bool b) { return (osh_jv){.kind = OSH_JV_BOOL, .u.b = b}; }
osh_jv osh_jv_int(int64_t i) { return (osh_jv){.kind = OSH_JV_INT, .u.i = i}; }
osh_jv osh_jv_float(double f) { return (osh_jv){.kind = OSH_JV_FLOAT, .u.f = f}; }
osh_jv osh_jv_view(const char *s, size_t n)
{
    return (osh_jv){.kind = OSH_JV_STR, .u.s = s, .n = n};
}
osh_jv osh_jv_word(const char *s) { return osh_jv_view(s, strlen(s)); }

osh_jv osh_jv_str(osh_jrun *r, const char *s, size_t n)
{
    char *p = osh_jrun_get(r, n + 1);
    if (!p) return osh_jv_none();
    if (n) memcpy(p, s, n);
    return osh_jv_view(p, n);
}

osh_jv osh_jv_take(osh_jrun *r, osh_buf *b)
{
    osh_jv v = osh_jv_str(r, b->data ? b->data : "", b->len);
    osh_buf_deinit(r->cx, b);
    return v;
}

osh_jv osh_jv_list(osh_jrun *r, osh_jv_kind kind)
{
    osh_jlist *l = osh_jrun_get(r, sizeof *l);
    if (!l) return osh_jv_none();
    return (osh_jv){.kind = kind, .u.list = l};
}

osh_jv osh_jv_dict(osh_jrun *r, osh_jv_kind kind)
{
    osh_jdict *d = osh_jrun_get(r, sizeof *d);
    if (!d) return osh_jv_none();
    return (osh_jv){.kind = kind, .u.dict = d};
}

/* Returns the array `at` of n items if it has room for one more item of `size` bytes. Otherwise
 * returns a larger copy; the old array remains allocated in the arena. */
static void *array_grow(osh_jrun *r, void *at, size_t n, size_t *cap, size_t size)
{
    if (n < *cap) return at;
    size_t more = *cap ? 2 * *cap : 4;
    void *p = osh_jrun_get(r, more * size);
    if (!p) return NULL;
    if (n) memcpy(p, at, n * size);
    *cap = more;
    return p;
}

void osh_jv_push(osh_jrun *r, osh_jv list, osh_jv item)
{
    if (r->rc) return;
    osh_jlist *l = list.u.list;
    osh_jv *at = array_grow(r, l->at, l->n, &l->cap, sizeof *at);
    if (!at) return;
    l->at = at;
    l->at[l->n++] = item;
}

const osh_jv *osh_jdict_get(osh_jrun *r, const osh_jdict *d, osh_jv key)
{
    enum { ENTRY_COST = 8 }; // reading an entry of a dict counts as reading this many bytes
    const osh_jv *found = NULL;
    size_t looked = 0;
    for (size_t i = 0; i < d->n && !found && !r->rc; i++) {
        osh_jv k = d->at[i].key;
        bool strings = k.kind == OSH_JV_STR && key.kind == OSH_JV_STR,
             as_long = strings && k.n == key.n;
        looked += ENTRY_COST + (as_long ? k.n : 0);
        if (strings ? as_long && !memcmp(k.u.s, key.u.s, k.n) : osh_jv_equal(r, k, key))
            found = &d->at[i].value;
    }
    return osh_jrun_step(r, looked) ? found : NULL;
}

void osh_jdict_set(osh_jrun *r, osh_jdict *d, osh_jv key, osh_jv value)
{
    if (!osh_jrun_step(r, 0)) return;
    const osh_jv *old = osh_jdict_get(r, d, key);
    if (old) {
        *(osh_jv *)old = value;
        return;
    }
    osh_jpair *at = array_grow(r, d->at, d->n, &d->cap, sizeof *at);
    if (!at) return;
    d->at = at;
    d->at[d->n++] = (osh_jpair){key, value};
}

bool osh_jv_is(osh_jv v, const char *word)
{
    return v.kind == OSH_JV_STR && v.n == strlen(word) && !memcmp(v.u.s, word, v.n);
}

bool osh_jarg_given(osh_jv v) { return v.kind != OSH_JV_UNDEF || v.u.s; }

bool osh_jv_is_range(osh_jv v) { return v.kind == OSH_JV_VIEW && v.n; }

bool osh_jv_is_num(osh_jv v)
{
    return v.kind == OSH_JV_BOOL || v.kind == OSH_JV_INT || v.kind == OSH_JV_FLOAT;
}

double osh_jv_num(osh_jv v)
{
    return v.kind == OSH_JV_FLOAT ? v.u.f : v.kind == OSH_JV_BOOL ? (double)v.u.b : (double)v.u.i;
}

int64_t osh_jv_whole(osh_jrun *r, osh_jv v, const char *what)
{
    if (v.kind == OSH_JV_BOOL) return v.u.b;
    if (v.kind == OSH_JV_INT) return v.u.i;
    osh_jrun_fail(r, OSH_E_FORMAT, "%s is %s, want a whole number", what, osh_jv_type(v));
    return 0;
}

const char *osh_jv_type(osh_jv v)
{
    static const char *const names[] = {
        [OSH_JV_UNDEF] = "undefined", [OSH_JV_NONE] = "none",     [OSH_JV_BOOL] = "a boolean",
        [OSH_JV_INT] = "an integer",  [OSH_JV_FLOAT] = "a float", [OSH_JV_STR] = "a string",
        [OSH_JV_LIST] = "a list",     [OSH_JV_TUPLE] = "a tuple", [OSH_JV_ITER] = "an iterator",
        [OSH_JV_VIEW] = "a view",     [OSH_JV_DICT] = "a dict",   [OSH_JV_NS] = "a namespace",
        [OSH_JV_LOOP] = "loop",       [OSH_JV_MACRO] = "a macro", [OSH_JV_METHOD] = "a method",
        [OSH_JV_GLOBAL] = "a function",
    };
    return names[v.kind];
}

bool osh_jv_true(osh_jv v)
{
    switch (v.kind) {
    case OSH_JV_UNDEF:
    case OSH_JV_NONE: return false;
    case OSH_JV_BOOL: return v.u.b;
    case OSH_JV_INT: return v.u.i != 0;
    case OSH_JV_FLOAT: return v.u.f != 0;
    case OSH_JV_STR: return v.n > 0;
    case OSH_JV_LIST:
    case OSH_JV_TUPLE:
    case OSH_JV_VIEW: return v.u.list->n > 0;
    case OSH_JV_DICT: return v.u.dict->n > 0;
    default: return true;
    }
}

static bool equal_numbers(osh_jv a, osh_jv b)
{
    if (a.kind == OSH_JV_FLOAT || b.kind == OSH_JV_FLOAT) return osh_jv_num(a) == osh_jv_num(b);
    return (a.kind == OSH_JV_BOOL ? a.u.b : a.u.i) == (b.kind == OSH_JV_BOOL ? b.u.b : b.u.i);
}

static bool equal_dicts(osh_jrun *r, const osh_jdict *a, const osh_jdict *b)
{
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++) {
        const osh_jv *v = osh_jdict_get(r, b, a->at[i].key);
        if (!v || !osh_jv_equal(r, a->at[i].value, *v)) return false;
    }
    return true;
}

static bool equal_lists(osh_jrun *r, const osh_jlist *a, const osh_jlist *b)
{
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++)
        if (!osh_jv_equal(r, a->at[i], b->at[i])) return false;
    return true;
}

/* Compares as Python's == does. The depth of the recursion is limited, because values can be nested
 * deeply. */
bool osh_jv_equal(osh_jrun *r, osh_jv a, osh_jv b)
{
    bool same = false;
    if (!osh_jrun_step(r, a.kind == OSH_JV_STR && b.kind == OSH_JV_STR && a.n == b.n ? a.n : 0))
        return false;
    if (osh_jv_is_num(a) && osh_jv_is_num(b)) return equal_numbers(a, b);
    if (a.kind != b.kind) return false;
    if (++r->depth > OSH_JINJA_MAX_DEPTH) {
        osh_jrun_fail(r, OSH_E_UNSUPPORTED, "values nested more than %d deep", OSH_JINJA_MAX_DEPTH);
        return false;
    }
    switch (a.kind) {
    case OSH_JV_UNDEF:
    case OSH_JV_NONE: same = true; break;
    case OSH_JV_STR: same = a.n == b.n && (!a.n || !memcmp(a.u.s, b.u.s, a.n)); break;
    case OSH_JV_LIST:
    case OSH_JV_TUPLE: same = equal_lists(r, a.u.list, b.u.list); break;
    case OSH_JV_DICT: same = equal_dicts(r, a.u.dict, b.u.dict); break;
    /* Values of other kinds are equal only if both are the same object. */
    default: same = a.u.list == b.u.list;
    }
    r->depth--;
    return same;
}

static int sign_of(double d) { return (d > 0) - (d < 0); }

int osh_jv_order(osh_jrun *r, osh_jv a, osh_jv b)
{
    if (!osh_jrun_step(r, 0)) return 0;
    if (osh_jv_is_num(a) && osh_jv_is_num(b)) {
        if (a.kind == OSH_JV_INT && b.kind == OSH_JV_INT) return (a.u.i > b.u.i) - (a.u.i < b.u.i);
        return sign_of(osh_jv_num(a) - osh_jv_num(b));
    }
    // the order of UTF-8 bytes is the order of code points
    if (a.kind == OSH_JV_STR && b.kind == OSH_JV_STR) {
        size_t n = a.n < b.n ? a.n : b.n;
        if (!osh_jrun_step(r, n)) return 0;
        int d = n ? memcmp(a.u.s, b.u.s, n) : 0;
        return d ? d : (a.n > b.n) - (a.n < b.n);
    }
    if (a.kind == b.kind && (a.kind == OSH_JV_LIST || a.kind == OSH_JV_TUPLE)) {
        for (size_t i = 0; i < a.u.list->n && i < b.u.list->n; i++)
            if (!osh_jv_equal(r, a.u.list->at[i], b.u.list->at[i]))
                return osh_jv_order(r, a.u.list->at[i], b.u.list->at[i]);
        return (a.u.list->n > b.u.list->n) - (a.u.list->n < b.u.list->n);
    }
    osh_jrun_fail(r, OSH_E_FORMAT, "%s and %s have no order", osh_jv_type(a), osh_jv_type(b));
    return 0;
}

bool osh_jv_in(osh_jrun *r, osh_jv item, osh_jv all)
{
    if (!osh_jrun_step(r, 0)) return false;
    switch (all.kind) {
    case OSH_JV_UNDEF: return false;
    case OSH_JV_STR:
        if (item.kind != OSH_JV_STR)
            osh_jrun_fail(r, OSH_E_FORMAT, "%s in a string, want a string", osh_jv_type(item));
        return !r->rc && osh_jstr_find(r, all, item, 0) != SIZE_MAX;
    case OSH_JV_DICT: return osh_jdict_get(r, all.u.dict, item) != NULL;
    case OSH_JV_LIST:
    case OSH_JV_TUPLE:
    case OSH_JV_VIEW:
        for (size_t i = 0; i < all.u.list->n && !r->rc; i++)
            if (osh_jv_equal(r, item, all.u.list->at[i])) return true;
        return false;
    default:
        osh_jrun_fail(r, OSH_E_FORMAT, "'in' of %s, want a list, a dict or a string",
                      osh_jv_type(all));
    }
    return false;
}

/* Returns a list of the characters of a string, or of the keys of a dict. */
static osh_jlist *walk_parts(osh_jrun *r, osh_jv v)
{
    osh_jv list = osh_jv_list(r, OSH_JV_LIST);
    if (v.kind == OSH_JV_DICT)
        for (size_t i = 0; i < v.u.dict->n && !r->rc; i++)
            osh_jv_push(r, list, v.u.dict->at[i].key);
    else
        for (size_t i = 0, n; i < v.n && !r->rc; i += n) {
            for (n = 1; i + n < v.n && (v.u.s[i + n] & 0xc0) == 0x80;) n++;
            osh_jv_push(r, list, osh_jv_view(v.u.s + i, n));
        }
    return r->rc ? NULL : list.u.list;
}

osh_jlist *osh_jv_walk(osh_jrun *r, osh_jv v)
{
    if (!osh_jrun_step(r, 0)) return NULL;
    switch (v.kind) {
    case OSH_JV_UNDEF: return osh_jv_list(r, OSH_JV_LIST).u.list;
    case OSH_JV_LIST:
    case OSH_JV_TUPLE:
    case OSH_JV_VIEW: return v.u.list;
    case OSH_JV_STR:
    case OSH_JV_DICT: return walk_parts(r, v);
    case OSH_JV_ITER: {
        osh_jlist *l = osh_jrun_get(r, sizeof *l);
        if (!l) return NULL;
        *l = *v.u.list;
        v.u.list->n = 0;
        return l;
    }
    default:
        osh_jrun_fail(r, OSH_E_FORMAT, "%s in place of a list, a dict or a string", osh_jv_type(v));
    }
    return NULL;
}

osh_jv osh_jv_length(osh_jrun *r, osh_jv v)
{
    switch (v.kind) {
    case OSH_JV_UNDEF: return osh_jv_int(0);
    case OSH_JV_STR: return osh_jv_int(osh_jstr_length(r, v));
    case OSH_JV_LIST:
    case OSH_JV_TUPLE:
    case OSH_JV_VIEW: return osh_jv_int((int64_t)v.u.list->n);
    case OSH_JV_DICT: return osh_jv_int((int64_t)v.u.dict->n);
    case OSH_JV_LOOP: return osh_jv_int((int64_t)v.u.loop->items->n);
    default: return osh_jrun_fail(r, OSH_E_FORMAT, "%s has no length", osh_jv_type(v));
    }
}
