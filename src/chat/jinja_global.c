/* jinja_global.c - implements the global functions of chat templates. */
#include "chat/jinja_impl.h"

static osh_jv global_range(osh_jrun *r, const osh_jargs *a)
{
    bool two = osh_jarg_given(a->at[1]);
    int64_t from = two ? osh_jv_whole(r, a->at[0], "range") : 0,
            to = osh_jv_whole(r, a->at[two], "range");
    int64_t step = osh_jarg_given(a->at[2]) ? osh_jv_whole(r, a->at[2], "range") : 1, n = 0;
    enum { MOST = 100000 };
    if (!r->rc && !step) return osh_jrun_fail(r, OSH_E_FORMAT, "range with step 0");
    osh_jv out = osh_jv_list(r, OSH_JV_VIEW);
    for (int64_t i = from; !r->rc && (step > 0 ? i < to : i > to);) {
        if (++n > MOST)
            return osh_jrun_fail(r, OSH_E_FORMAT, "range of more than %d numbers", MOST);
        osh_jv_push(r, out, osh_jv_int(i));
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    out.n = 1;
    return out;
}

/* Evaluates namespace(...) and dict(...): returns an object with the entries of the dicts and the
 * named arguments. */
static osh_jv global_dict_of(osh_jrun *r, const osh_jargs *a, osh_jv_kind kind)
{
    osh_jv out = osh_jv_dict(r, kind);
    for (size_t k = 0; k < a->more.u.list->n && !r->rc; k++) {
        osh_jv from = a->more.u.list->at[k];
        if (from.kind != OSH_JV_DICT)
            return osh_jrun_fail(r, OSH_E_UNSUPPORTED, "dict() of %s", osh_jv_type(from));
        for (size_t i = 0; i < from.u.dict->n && !r->rc; i++)
            osh_jdict_set(r, out.u.dict, from.u.dict->at[i].key, from.u.dict->at[i].value);
    }
    for (size_t i = 0; i < a->named.u.dict->n && !r->rc; i++)
        osh_jdict_set(r, out.u.dict, a->named.u.dict->at[i].key, a->named.u.dict->at[i].value);
    return out;
}
static osh_jv global_namespace(osh_jrun *r, const osh_jargs *a)
{
    return global_dict_of(r, a, OSH_JV_NS);
}
static osh_jv global_dict(osh_jrun *r, const osh_jargs *a)
{
    return global_dict_of(r, a, OSH_JV_DICT);
}

static osh_jv global_raise(osh_jrun *r, const osh_jargs *a)
{
    osh_jv s = osh_jv_to_str(r, a->at[0]);
    return r->rc ? s : osh_jrun_fail(r, OSH_E_FORMAT, "the template refuses the row: %.*s",
                                     (int)(s.n < 800 ? s.n : 800), s.u.s);
}

static osh_jv global_strftime(osh_jrun *r, const osh_jargs *a)
{
    osh_jv format = osh_jv_want_str(r, a->at[0], "strftime_now");
    return r->rc ? format : osh_jinja_strftime(r, format);
}

static osh_jv global_refused(osh_jrun *r, const osh_jargs *a)
{
    (void)a;
    return osh_jrun_fail(r, OSH_E_UNSUPPORTED, "cycler, joiner and lipsum are not supported");
}

static const osh_jbuiltin globals[] = {
    {"cycler", global_refused, "*", 0},
    {"dict", global_dict, "*", 0},
    {"joiner", global_refused, "*", 0},
    {"lipsum", global_refused, "*", 0},
    {"namespace", global_namespace, "*", 0},
    {"raise_exception", global_raise, "message", 0},
    {"range", global_range, "start stop? step?", 0},
    {"strftime_now", global_strftime, "format", 0},
    {0},
};

const osh_jbuiltin *osh_jglobal_find(osh_jv name)
{
    for (const osh_jbuiltin *g = globals; g->name; g++)
        if (osh_jv_is(name, g->name)) return g;
    return NULL;
}
