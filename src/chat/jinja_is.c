/* jinja_is.c - implements the tests of Jinja: the names that may follow `is` in an expression. */
#include <string.h>

#include "chat/jinja_impl.h"

#define IS(name, condition)                                       \
    static osh_jv test_##name(osh_jrun *r, const osh_jargs *a)    \
    {                                                             \
        (void)r;                                                  \
        osh_jv v = a->self;                                       \
        return osh_jv_bool(condition);                            \
    }
IS(boolean, v.kind == OSH_JV_BOOL)
IS(callable, v.kind == OSH_JV_METHOD || v.kind == OSH_JV_GLOBAL || v.kind == OSH_JV_MACRO ||
                 v.kind == OSH_JV_UNDEF)
IS(defined, v.kind != OSH_JV_UNDEF)
IS(undefined, v.kind == OSH_JV_UNDEF)
IS(even, osh_jv_whole(r, v, "the operand of even") % 2 == 0)
IS(odd, osh_jv_whole(r, v, "the operand of odd") % 2 != 0)
IS(false, v.kind == OSH_JV_BOOL && !v.u.b)
IS(true, v.kind == OSH_JV_BOOL && v.u.b)
IS(float, v.kind == OSH_JV_FLOAT)
IS(integer, v.kind == OSH_JV_INT)
IS(number, osh_jv_is_num(v))
IS(string, v.kind == OSH_JV_STR)
IS(mapping, v.kind == OSH_JV_DICT)
IS(none, v.kind == OSH_JV_NONE)
IS(iterable, v.kind == OSH_JV_UNDEF || (v.kind >= OSH_JV_STR && v.kind <= OSH_JV_DICT))
IS(sequence, v.kind == OSH_JV_UNDEF ||
                 (v.kind >= OSH_JV_STR && v.kind <= OSH_JV_DICT && v.kind != OSH_JV_ITER &&
                  (v.kind != OSH_JV_VIEW || osh_jv_is_range(v))))
IS(eq, osh_jv_equal(r, v, a->at[0]))
IS(ne, !osh_jv_equal(r, v, a->at[0]))
IS(lt, osh_jv_order(r, v, a->at[0]) < 0)
IS(le, osh_jv_order(r, v, a->at[0]) <= 0)
IS(gt, osh_jv_order(r, v, a->at[0]) > 0)
IS(ge, osh_jv_order(r, v, a->at[0]) >= 0)
IS(in, osh_jv_in(r, v, a->at[0]))
#undef IS

static osh_jv test_divisibleby(osh_jrun *r, const osh_jargs *a)
{
    int64_t v = osh_jv_whole(r, a->self, "the operand of divisibleby"),
            by = osh_jv_whole(r, a->at[0], "the divisor");
    if (!r->rc && !by) return osh_jrun_fail(r, OSH_E_FORMAT, "a division by zero");
    return osh_jv_bool(by == -1 || (by && v % by == 0));
}

/* Evaluates Python's `is`. Fails if the result depends on how Python stores the values. */
static osh_jv test_sameas(osh_jrun *r, const osh_jargs *a)
{
    osh_jv x = a->self, y = a->at[0];
    if (x.kind == OSH_JV_INT || x.kind == OSH_JV_FLOAT || x.kind == OSH_JV_STR)
        if (x.kind == y.kind)
            return osh_jrun_fail(r, OSH_E_UNSUPPORTED, "sameas of two numbers or strings");
    return osh_jv_bool(x.kind == y.kind &&
                       (x.kind >= OSH_JV_LIST ? x.u.list == y.u.list : osh_jv_equal(r, x, y)));
}

static osh_jv test_case(osh_jrun *r, osh_jv v, char how)
{
    osh_jv s = osh_jv_to_str(r, v), same = osh_jstr_map_case(r, s, how);
    osh_jv other = osh_jstr_map_case(r, s, how == 'u' ? 'l' : 'u');
    return osh_jv_bool(!r->rc && osh_jv_equal(r, s, same) && !osh_jv_equal(r, s, other));
}
static osh_jv test_upper(osh_jrun *r, const osh_jargs *a) { return test_case(r, a->self, 'u'); }
static osh_jv test_lower(osh_jrun *r, const osh_jargs *a) { return test_case(r, a->self, 'l'); }

static const osh_jbuiltin tests[] = {
    {.name = "boolean", .call = test_boolean},
    {.name = "callable", .call = test_callable},
    {.name = "defined", .call = test_defined},
    {.name = "divisibleby", .call = test_divisibleby, .params = "num"},
    {.name = "eq", .call = test_eq, .params = "other"},
    {.name = "equalto", .call = test_eq, .params = "other"},
    {.name = "==", .call = test_eq, .params = "other"},
    {.name = "even", .call = test_even},
    {.name = "false", .call = test_false},
    {.name = "float", .call = test_float},
    {.name = "ge", .call = test_ge, .params = "other"},
    {.name = ">=", .call = test_ge, .params = "other"},
    {.name = "gt", .call = test_gt, .params = "other"},
    {.name = "greaterthan", .call = test_gt, .params = "other"},
    {.name = ">", .call = test_gt, .params = "other"},
    {.name = "in", .call = test_in, .params = "seq"},
    {.name = "integer", .call = test_integer},
    {.name = "iterable", .call = test_iterable},
    {.name = "le", .call = test_le, .params = "other"},
    {.name = "<=", .call = test_le, .params = "other"},
    {.name = "lower", .call = test_lower},
    {.name = "lt", .call = test_lt, .params = "other"},
    {.name = "lessthan", .call = test_lt, .params = "other"},
    {.name = "<", .call = test_lt, .params = "other"},
    {.name = "mapping", .call = test_mapping},
    {.name = "ne", .call = test_ne, .params = "other"},
    {.name = "!=", .call = test_ne, .params = "other"},
    {.name = "none", .call = test_none},
    {.name = "number", .call = test_number},
    {.name = "odd", .call = test_odd},
    {.name = "sameas", .call = test_sameas, .params = "other"},
    {.name = "sequence", .call = test_sequence},
    {.name = "string", .call = test_string},
    {.name = "true", .call = test_true},
    {.name = "undefined", .call = test_undefined},
    {.name = "upper", .call = test_upper},
    {0},
};

const osh_jbuiltin *osh_jtest_find(osh_jv name)
{
    for (const osh_jbuiltin *t = tests; t->name; t++)
        if (osh_jv_is(name, t->name)) return t;
    return NULL;
}
