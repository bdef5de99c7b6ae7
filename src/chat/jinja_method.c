/* jinja_method.c - evaluates the part after a dot: keys, attributes, and methods of strings, dicts
 * and lists.
 *
 * x.y is searched first as a method and then as a key, as in Jinja. x['y'] is searched first as a
 * key and then as a method. */
#include <string.h>

#include "chat/jinja_impl.h"
#include "tokenizer/tok_impl.h"

osh_jv osh_jv_want_str(osh_jrun *r, osh_jv v, const char *what)
{
    if (v.kind == OSH_JV_STR) return v;
    return osh_jrun_fail(r, OSH_E_FORMAT, "%s: %s, want a string", what, osh_jv_type(v));
}

static osh_jv arg_or_none(osh_jv v) { return osh_jarg_given(v) ? v : osh_jv_none(); }

static int64_t count_or(osh_jrun *r, osh_jv v)
{
    return osh_jarg_given(v) ? osh_jv_whole(r, v, "the count") : -1;
}

/* ---- methods of strings ---- */

static osh_jv str_lower(osh_jrun *r, const osh_jargs *a)
{
    return osh_jstr_map_case(r, a->self, 'l');
}
static osh_jv str_upper(osh_jrun *r, const osh_jargs *a)
{
    return osh_jstr_map_case(r, a->self, 'u');
}
static osh_jv str_capitalize(osh_jrun *r, const osh_jargs *a)
{
    return osh_jstr_map_case(r, a->self, 'c');
}
static osh_jv str_title(osh_jrun *r, const osh_jargs *a)
{
    return osh_jstr_map_case(r, a->self, 'T');
}

static osh_jv str_strip_sides(osh_jrun *r, const osh_jargs *a, int sides)
{
    return osh_jstr_strip(r, a->self, arg_or_none(a->at[0]), sides);
}
static osh_jv str_strip(osh_jrun *r, const osh_jargs *a) { return str_strip_sides(r, a, 3); }
static osh_jv str_lstrip(osh_jrun *r, const osh_jargs *a) { return str_strip_sides(r, a, 1); }
static osh_jv str_rstrip(osh_jrun *r, const osh_jargs *a) { return str_strip_sides(r, a, 2); }

static osh_jv str_replace(osh_jrun *r, const osh_jargs *a)
{
    osh_jv old = osh_jv_want_str(r, a->at[0], "replace"),
           by = osh_jv_want_str(r, a->at[1], "replace");
    int64_t n = count_or(r, a->at[2]);
    return r->rc ? old : osh_jstr_replace(r, a->self, old, by, n);
}

static bool str_has_end(osh_jrun *r, osh_jv s, osh_jv part, bool at_end)
{
    return part.n <= s.n && osh_jrun_step(r, part.n) &&
           (!part.n || !memcmp(s.u.s + (at_end ? s.n - part.n : 0), part.u.s, part.n));
}

static osh_jv str_begins_or_ends(osh_jrun *r, const osh_jargs *a, bool at_end)
{
    bool any = false;
    if (a->at[0].kind != OSH_JV_TUPLE) {
        osh_jv part = osh_jv_want_str(r, a->at[0], at_end ? "endswith" : "startswith");
        return osh_jv_bool(!r->rc && str_has_end(r, a->self, part, at_end));
    }
    for (size_t i = 0; i < a->at[0].u.list->n && !any && !r->rc; i++) {
        osh_jv part =
            osh_jv_want_str(r, a->at[0].u.list->at[i], at_end ? "endswith" : "startswith");
        any = !r->rc && str_has_end(r, a->self, part, at_end);
    }
    return osh_jv_bool(any);
}
static osh_jv str_startswith(osh_jrun *r, const osh_jargs *a)
{
    return str_begins_or_ends(r, a, false);
}
static osh_jv str_endswith(osh_jrun *r, const osh_jargs *a)
{
    return str_begins_or_ends(r, a, true);
}

static osh_jv str_without_end(osh_jrun *r, const osh_jargs *a, bool at_end)
{
    osh_jv part = osh_jv_want_str(r, a->at[0], "removeprefix and removesuffix"), s = a->self;
    if (r->rc || !str_has_end(r, s, part, at_end)) return s;
    return osh_jv_view(s.u.s + (at_end ? 0 : part.n), s.n - part.n);
}
static osh_jv str_removeprefix(osh_jrun *r, const osh_jargs *a)
{
    return str_without_end(r, a, false);
}
static osh_jv str_removesuffix(osh_jrun *r, const osh_jargs *a)
{
    return str_without_end(r, a, true);
}

/* Returns the last position of `part` in the first `end` bytes of s, or SIZE_MAX if `part` does not
 * occur there. */
static size_t str_find_last(osh_jrun *r, osh_jv s, osh_jv part, size_t end)
{
    size_t room = end; // `part` must end at or before this byte
    if (part.n > end || r->rc) return SIZE_MAX;
    if (!part.n) return end;
    while (room >= part.n) {
        const char *last = memrchr(s.u.s, part.u.s[part.n - 1], room);
        size_t after = last ? (size_t)(last - s.u.s) + 1 : 0;
        bool fits = after >= part.n;
        if (!osh_jrun_step(r, room - after + (fits ? part.n : 0)) || !fits) break;
        if (!memcmp(s.u.s + after - part.n, part.u.s, part.n)) return after - part.n;
        room = after - 1;
    }
    return SIZE_MAX;
}

static osh_jv str_position(osh_jrun *r, osh_jv s, size_t at)
{
    return osh_jv_int(at == SIZE_MAX ? -1 : osh_jstr_length(r, osh_jv_view(s.u.s, at)));
}
static osh_jv str_find(osh_jrun *r, const osh_jargs *a)
{
    osh_jv part = osh_jv_want_str(r, a->at[0], "find");
    return r->rc ? part : str_position(r, a->self, osh_jstr_find(r, a->self, part, 0));
}
static osh_jv str_rfind(osh_jrun *r, const osh_jargs *a)
{
    osh_jv part = osh_jv_want_str(r, a->at[0], "rfind");
    return r->rc ? part : str_position(r, a->self, str_find_last(r, a->self, part, a->self.n));
}

static osh_jv str_count(osh_jrun *r, const osh_jargs *a)
{
    osh_jv part = osh_jv_want_str(r, a->at[0], "count");
    int64_t n = 0;
    if (r->rc) return part;
    if (!part.n) return osh_jv_int(osh_jstr_length(r, a->self) + 1);
    for (size_t at = 0; (at = osh_jstr_find(r, a->self, part, at)) != SIZE_MAX; at += part.n) n++;
    return osh_jv_int(n);
}

static osh_jv str_part(osh_jv s, size_t from, size_t to)
{
    return osh_jv_view(s.u.s + from, to - from);
}

/* Returns s.split(): the words between white space. `most`: largest number of splits. */
static osh_jv str_split_space(osh_jrun *r, osh_jv s, int64_t most)
{
    osh_jv out = osh_jv_list(r, OSH_JV_LIST);
    for (int64_t k = 0; !r->rc; k++) {
        size_t end = 0, len;
        uint32_t cp;
        s = osh_jstr_strip(r, s, osh_jv_none(), 1);
        if (!s.n) break;
        if (most >= 0 && k >= most) {
            osh_jv_push(r, out, s); // the last word includes the rest of the text
            break;
        }
        while (end < s.n && (len = osh_utf8_next(s.u.s + end, s.n - end, &cp)) &&
               !osh_jcp_is_space(cp))
            end += len;
        if (!osh_jrun_step_chars(r, end)) break;
        osh_jv_push(r, out, str_part(s, 0, end));
        s = str_part(s, end, s.n);
    }
    return out;
}

static osh_jv str_split(osh_jrun *r, const osh_jargs *a)
{
    osh_jv sep = arg_or_none(a->at[0]), s = a->self, out;
    int64_t most = count_or(r, a->at[1]);
    if (sep.kind == OSH_JV_NONE) return str_split_space(r, s, most);
    osh_jv_want_str(r, sep, "split");
    if (!r->rc && !sep.n) return osh_jrun_fail(r, OSH_E_FORMAT, "split at an empty string");
    out = osh_jv_list(r, OSH_JV_LIST);
    size_t at = 0, found;
    for (int64_t k = 0;
         !r->rc && (most < 0 || k < most) && (found = osh_jstr_find(r, s, sep, at)) != SIZE_MAX;
         k++) {
        osh_jv_push(r, out, str_part(s, at, found));
        at = found + sep.n;
    }
    osh_jv_push(r, out, str_part(s, at, s.n));
    return out;
}

static osh_jv str_rsplit(osh_jrun *r, const osh_jargs *a)
{
    osh_jv sep = arg_or_none(a->at[0]), s = a->self, back = osh_jv_list(r, OSH_JV_LIST), out;
    int64_t most = count_or(r, a->at[1]);
    if (most < 0) return str_split(r, a);
    osh_jv_want_str(r, sep, "rsplit with a count");
    if (!r->rc && !sep.n) return osh_jrun_fail(r, OSH_E_FORMAT, "rsplit at an empty string");
    size_t end = s.n, found;
    for (int64_t k = 0; !r->rc && k < most && (found = str_find_last(r, s, sep, end)) != SIZE_MAX;
         k++) {
        osh_jv_push(r, back, str_part(s, found + sep.n, end));
        end = found;
    }
    osh_jv_push(r, back, str_part(s, 0, end));
    out = osh_jv_list(r, OSH_JV_LIST);
    for (size_t i = r->rc ? 0 : back.u.list->n; i > 0; i--)
        osh_jv_push(r, out, back.u.list->at[i - 1]);
    return out;
}

static osh_jv str_parted(osh_jrun *r, const osh_jargs *a, bool last)
{
    osh_jv sep = osh_jv_want_str(r, a->at[0], "partition"), s = a->self,
           out = osh_jv_list(r, OSH_JV_TUPLE);
    if (!r->rc && !sep.n) return osh_jrun_fail(r, OSH_E_FORMAT, "partition at an empty string");
    if (r->rc) return out;
    size_t at = last ? str_find_last(r, s, sep, s.n) : osh_jstr_find(r, s, sep, 0);
    osh_jv empty = osh_jv_view("", 0);
    bool found = at != SIZE_MAX;
    osh_jv_push(r, out, found ? str_part(s, 0, at) : last ? empty : s);
    osh_jv_push(r, out, found ? sep : empty);
    osh_jv_push(r, out, found ? str_part(s, at + sep.n, s.n) : last ? s : empty);
    return out;
}
static osh_jv str_partition(osh_jrun *r, const osh_jargs *a) { return str_parted(r, a, false); }
static osh_jv str_rpartition(osh_jrun *r, const osh_jargs *a) { return str_parted(r, a, true); }

static bool cp_ends_line(uint32_t cp)
{
    return (cp >= 10 && cp <= 13) || (cp >= 28 && cp <= 30) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

static osh_jv str_splitlines(osh_jrun *r, const osh_jargs *a)
{
    osh_jv out = osh_jv_list(r, OSH_JV_LIST), s = a->self;
    bool keep = osh_jv_true(a->at[0]);
    size_t from = 0;
    if (!osh_jrun_step_chars(r, s.n)) return out;
    for (size_t i = 0, len; i < s.n && !r->rc; i += len) {
        uint32_t cp;
        len = osh_utf8_next(s.u.s + i, s.n - i, &cp);
        if (!cp_ends_line(cp)) continue;
        if (cp == '\r' && i + 1 < s.n && s.u.s[i + 1] == '\n') len = 2;
        osh_jv_push(r, out, str_part(s, from, keep ? i + len : i));
        from = i + len;
    }
    if (from < s.n) osh_jv_push(r, out, str_part(s, from, s.n));
    return out;
}

static osh_jv str_join(osh_jrun *r, const osh_jargs *a)
{
    const osh_jlist *l = osh_jv_walk(r, a->at[0]);
    osh_buf out;
    osh_buf_init(&out, OSH_JINJA_MAX_BYTES);
    for (size_t i = 0; l && i < l->n && !r->rc; i++) {
        osh_jv s = osh_jv_want_str(r, l->at[i], "join");
        if (i && osh_jrun_step(r, 0)) r->rc = osh_buf_append(r->cx, &out, a->self.u.s, a->self.n);
        if (osh_jrun_step(r, s.n)) r->rc = osh_buf_append(r->cx, &out, s.u.s, s.n);
    }
    return osh_jv_take(r, &out);
}

static bool str_all_are(osh_jrun *r, osh_jv s, bool (*is)(uint32_t cp))
{
    bool all = s.n > 0;
    size_t i = 0;
    while (all && i < s.n) {
        uint32_t cp;
        i += osh_utf8_next(s.u.s + i, s.n - i, &cp);
        all = is(cp);
    }
    return osh_jrun_step_chars(r, i) && all;
}
static bool cp_is_digit(uint32_t cp) { return cp >= '0' && cp <= '9'; }

static osh_jv str_isspace(osh_jrun *r, const osh_jargs *a)
{
    return osh_jv_bool(str_all_are(r, a->self, osh_jcp_is_space));
}

static osh_jv str_isdigit(osh_jrun *r, const osh_jargs *a)
{
    for (size_t i = 0; i < a->self.n; i++)
        if (a->self.u.s[i] & 0x80)
            return osh_jrun_fail(r, OSH_E_UNSUPPORTED, "isdigit of text that is not ASCII");
    return osh_jv_bool(str_all_are(r, a->self, cp_is_digit));
}

/* ---- methods of dicts and lists ---- */

static osh_jv dict_get(osh_jrun *r, const osh_jargs *a)
{
    const osh_jv *v = osh_jdict_get(r, a->self.u.dict, a->at[0]);
    return v ? *v : arg_or_none(a->at[1]);
}

static osh_jv dict_view(osh_jrun *r, const osh_jargs *a, bool keys, bool values)
{
    osh_jv out = osh_jv_list(r, OSH_JV_VIEW);
    const osh_jdict *d = a->self.u.dict;
    for (size_t i = 0; i < d->n && !r->rc; i++) {
        osh_jv item = keys ? d->at[i].key : d->at[i].value;
        if (keys && values) {
            item = osh_jv_list(r, OSH_JV_TUPLE);
            osh_jv_push(r, item, d->at[i].key);
            osh_jv_push(r, item, d->at[i].value);
        }
        osh_jv_push(r, out, item);
    }
    return out;
}
static osh_jv dict_items(osh_jrun *r, const osh_jargs *a) { return dict_view(r, a, true, true); }
static osh_jv dict_keys(osh_jrun *r, const osh_jargs *a) { return dict_view(r, a, true, false); }
static osh_jv dict_values(osh_jrun *r, const osh_jargs *a) { return dict_view(r, a, false, true); }

static osh_jv dict_copy(osh_jrun *r, const osh_jargs *a)
{
    osh_jv out = osh_jv_dict(r, OSH_JV_DICT);
    for (size_t i = 0; i < a->self.u.dict->n && !r->rc; i++)
        osh_jdict_set(r, out.u.dict, a->self.u.dict->at[i].key, a->self.u.dict->at[i].value);
    return out;
}

static osh_jv list_index(osh_jrun *r, const osh_jargs *a)
{
    for (size_t i = 0; i < a->self.u.list->n && !r->rc; i++)
        if (osh_jv_equal(r, a->self.u.list->at[i], a->at[0])) return osh_jv_int((int64_t)i);
    return osh_jrun_fail(r, OSH_E_FORMAT, "index: the value is not in the list");
}

static osh_jv list_count(osh_jrun *r, const osh_jargs *a)
{
    int64_t n = 0;
    for (size_t i = 0; i < a->self.u.list->n && !r->rc; i++)
        n += osh_jv_equal(r, a->self.u.list->at[i], a->at[0]);
    return osh_jv_int(n);
}

static osh_jv refuse_change(osh_jrun *r, const osh_jargs *a)
{
    return osh_jrun_fail(r, OSH_E_FORMAT, "%s cannot be changed in a template",
                         osh_jv_type(a->self));
}

static osh_jv loop_cycle(osh_jrun *r, const osh_jargs *a)
{
    if (!a->more.u.list->n) return osh_jrun_fail(r, OSH_E_FORMAT, "cycle without values");
    return a->more.u.list->at[a->self.u.loop->at % a->more.u.list->n];
}

enum {
    STR = 1 << OSH_JV_STR,
    DICT = 1 << OSH_JV_DICT,
    LIST = 1 << OSH_JV_LIST,
    SEQ = LIST | 1 << OSH_JV_TUPLE,
    LOOP = 1 << OSH_JV_LOOP
};
static const osh_jbuiltin methods[] = {
    {"append", refuse_change, "*", LIST},
    {"capitalize", str_capitalize, "", STR},
    {"clear", refuse_change, "*", LIST | DICT},
    {"copy", dict_copy, "", DICT},
    {"count", str_count, "sub", STR},
    {"count", list_count, "value", SEQ},
    {"cycle", loop_cycle, "*", LOOP},
    {"endswith", str_endswith, "suffix", STR},
    {"extend", refuse_change, "*", LIST},
    {"find", str_find, "sub", STR},
    {"get", dict_get, "key default?", DICT},
    {"index", list_index, "value", SEQ},
    {"insert", refuse_change, "*", LIST},
    {"isdigit", str_isdigit, "", STR},
    {"isspace", str_isspace, "", STR},
    {"items", dict_items, "", DICT},
    {"join", str_join, "iterable", STR},
    {"keys", dict_keys, "", DICT},
    {"lower", str_lower, "", STR},
    {"lstrip", str_lstrip, "chars?", STR},
    {"partition", str_partition, "sep", STR},
    {"pop", refuse_change, "*", LIST | DICT},
    {"popitem", refuse_change, "*", DICT},
    {"remove", refuse_change, "*", LIST},
    {"removeprefix", str_removeprefix, "prefix", STR},
    {"removesuffix", str_removesuffix, "suffix", STR},
    {"replace", str_replace, "old new count?", STR},
    {"reverse", refuse_change, "*", LIST},
    {"rfind", str_rfind, "sub", STR},
    {"rpartition", str_rpartition, "sep", STR},
    {"rsplit", str_rsplit, "sep? maxsplit?", STR},
    {"rstrip", str_rstrip, "chars?", STR},
    {"setdefault", refuse_change, "*", DICT},
    {"sort", refuse_change, "*", LIST},
    {"split", str_split, "sep? maxsplit?", STR},
    {"splitlines", str_splitlines, "keepends?", STR},
    {"startswith", str_startswith, "prefix", STR},
    {"strip", str_strip, "chars?", STR},
    {"title", str_title, "", STR},
    {"update", refuse_change, "*", DICT},
    {"upper", str_upper, "", STR},
    {"values", dict_values, "", DICT},
    {0},
};

static const osh_jbuiltin *method_find(osh_jv self, osh_jv name)
{
    for (const osh_jbuiltin *m = methods; m->name; m++)
        if (m->of >> self.kind & 1 && osh_jv_is(name, m->name)) return m;
    return NULL;
}

/* ---- attributes ---- */

static osh_jv loop_attr(osh_jrun *r, const osh_jloop *l, osh_jv name, bool *found)
{
    int64_t at = (int64_t)l->at, n = (int64_t)l->items->n;
    (void)r;
    *found = true;
    if (osh_jv_is(name, "index")) return osh_jv_int(at + 1);
    if (osh_jv_is(name, "index0")) return osh_jv_int(at);
    if (osh_jv_is(name, "revindex")) return osh_jv_int(n - at);
    if (osh_jv_is(name, "revindex0")) return osh_jv_int(n - at - 1);
    if (osh_jv_is(name, "first")) return osh_jv_bool(!at);
    if (osh_jv_is(name, "last")) return osh_jv_bool(at == n - 1);
    if (osh_jv_is(name, "length")) return osh_jv_int(n);
    /* loops are never recursive here, so the depth is always 1 */
    if (osh_jv_is(name, "depth")) return osh_jv_int(1);
    if (osh_jv_is(name, "depth0")) return osh_jv_int(0);
    if (osh_jv_is(name, "previtem")) return at ? l->items->at[at - 1] : osh_jv_undef("previtem", 8);
    if (osh_jv_is(name, "nextitem"))
        return at < n - 1 ? l->items->at[at + 1] : osh_jv_undef("nextitem", 8);
    *found = false;
    return osh_jv_none();
}

static osh_jv refuse_undefined_part(osh_jrun *r, osh_jv object, osh_jv name)
{
    osh_jv s = osh_jv_to_str(r, name);
    return osh_jrun_fail(
        r, OSH_E_FORMAT, "'%.*s' is undefined, and so has no '%.*s'", (int)object.n, object.u.s,
        s.kind == OSH_JV_STR ? (int)(s.n < 80 ? s.n : 80) : 0, s.kind == OSH_JV_STR ? s.u.s : "");
}

/* Returns a method, or an attribute of a loop or a macro. Sets *found to false if the object has
 * neither. */
static osh_jv value_attr(osh_jrun *r, osh_jv object, osh_jv name, bool *found)
{
    *found = false;
    if (object.kind == OSH_JV_LOOP) {
        osh_jv v = loop_attr(r, object.u.loop, name, found);
        if (*found) return v;
    }
    if (object.kind == OSH_JV_MACRO && osh_jv_is(name, "name")) {
        *found = true;
        return object.u.macro->def->value;
    }
    const osh_jbuiltin *m = method_find(object, name);
    if (!m) return osh_jv_none();
    osh_jbound *b = osh_jrun_get(r, sizeof *b);
    if (!b) return osh_jv_none();
    *found = true;
    b->self = object, b->fn = m;
    return (osh_jv){.kind = OSH_JV_METHOD, .u.bound = b};
}

static osh_jv value_element(osh_jrun *r, osh_jv object, osh_jv key, bool *found)
{
    *found = true;
    if (object.kind == OSH_JV_DICT || object.kind == OSH_JV_NS) {
        const osh_jv *v = osh_jdict_get(r, object.u.dict, key);
        if (v) return *v;
    } else if (key.kind == OSH_JV_INT || key.kind == OSH_JV_BOOL) {
        int64_t i = osh_jv_whole(r, key, ""), n = 0;
        bool list =
            object.kind == OSH_JV_LIST || object.kind == OSH_JV_TUPLE || osh_jv_is_range(object);
        if (list || object.kind == OSH_JV_STR) n = osh_jv_length(r, object).u.i;
        if (i < 0) i += n;
        if (i >= 0 && i < n)
            return list ? object.u.list->at[i] : osh_jstr_slice(r, object, i, i + 1, 1);
    }
    *found = false;
    return osh_jv_none();
}

/* Returns undefined for an absent key. Fails if the name is a method of Python that is not
 * supported. */
static osh_jv value_absent(osh_jrun *r, osh_jv object, osh_jv name)
{
    static const char *const known[] = {
        "format",    "index",      "rindex",   "isalpha",   "isalnum",      "isdecimal",
        "isnumeric", "islower",    "isupper",  "istitle",   "isidentifier", "isprintable",
        "isascii",   "casefold",   "swapcase", "center",    "ljust",        "rjust",
        "zfill",     "expandtabs", "encode",   "translate", "maketrans",    "format_map",
        "changed",   "fromkeys"};
    bool of = object.kind == OSH_JV_STR || object.kind == OSH_JV_LOOP || object.kind == OSH_JV_DICT;
    for (size_t i = 0; of && i < sizeof known / sizeof *known; i++) {
        bool here = object.kind == OSH_JV_LOOP   ? !strcmp(known[i], "changed")
                    : object.kind == OSH_JV_DICT ? !strcmp(known[i], "fromkeys")
                                                 : strcmp(known[i], "changed") != 0;
        if (here && osh_jv_is(name, known[i]))
            return osh_jrun_fail(r, OSH_E_UNSUPPORTED, "the method '%s' of %s is not supported",
                                 known[i], osh_jv_type(object));
    }
    return osh_jv_undef(name.kind == OSH_JV_STR ? name.u.s : "item",
                        name.kind == OSH_JV_STR ? name.n : 4);
}

osh_jv osh_jinja_attr(osh_jrun *r, osh_jv object, osh_jv name)
{
    bool found = false;
    if (r->rc) return object;
    if (object.kind == OSH_JV_UNDEF) return refuse_undefined_part(r, object, name);
    osh_jv v = value_attr(r, object, name, &found);
    if (!found && !r->rc) v = value_element(r, object, name, &found);
    if (found || r->rc) return v;
    return value_absent(r, object, name);
}

osh_jv osh_jinja_item(osh_jrun *r, osh_jv object, osh_jv key)
{
    bool found = false;
    if (r->rc) return object;
    if (object.kind == OSH_JV_UNDEF) return refuse_undefined_part(r, object, key);
    osh_jv v = value_element(r, object, key, &found);
    if (!found && !r->rc && key.kind == OSH_JV_STR) v = value_attr(r, object, key, &found);
    if (found || r->rc) return v;
    return value_absent(r, object, key);
}
