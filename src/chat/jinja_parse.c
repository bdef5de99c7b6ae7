/* jinja_parse.c - parses expressions: tokens to nodes. Operators from the tightest binding to the
 * loosest:
 *
 *   .x [i] (..)   - +   |filter, is test   **   * / // %   ~   + -   == < in   not   and   or
 *   a if c else b */
#include <string.h>

#include "chat/jinja_impl.h"

osh_jnode *osh_jparse_new(osh_jparser *p, osh_jnode_kind kind)
{
    osh_jnode *n = osh_jrun_get(p->r, sizeof *n);
    if (n) n->kind = kind, n->line = p->at->line;
    return n;
}

void osh_jparse_add(osh_jnode *to, osh_jnode *child)
{
    if (!to || !child) return;
    if (to->last) to->last->next = child;
    else to->first = child;
    to->last = child;
}

static void parser_next(osh_jparser *p)
{
    if (p->at->kind != OSH_JT_END) p->at++;
    p->r->line = p->at->line;
}

static int op_code(const char *op) { return OSH_JOP(op[0], op[1]); }
bool osh_jparse_is_op(const osh_jparser *p, const char *op)
{
    return p->at->kind == OSH_JT_OP && p->at->op == op_code(op);
}
bool osh_jparse_is_name(const osh_jparser *p, const char *name)
{
    return p->at->kind == OSH_JT_NAME && osh_jv_is(p->at->value, name);
}
bool osh_jparse_take_op(osh_jparser *p, const char *op)
{
    if (p->r->rc || !osh_jparse_is_op(p, op)) return false;
    parser_next(p);
    return true;
}
bool osh_jparse_take_name(osh_jparser *p, const char *name)
{
    if (p->r->rc || !osh_jparse_is_name(p, name)) return false;
    parser_next(p);
    return true;
}

void osh_jparse_fail(osh_jparser *p, const char *wanted)
{
    const osh_jtoken *t = p->at;
    char op[3] = {(char)(t->op % 256), (char)(t->op / 256)};
    static const char *const what[] = {
        "the end of the template", "text", "'{{'", "'}}'", "'{%'", "'%}'"};
    p->r->line = t->line;
    if (t->kind <= OSH_JT_BLOCK_END)
        osh_jrun_fail(p->r, OSH_E_FORMAT, "found %s, want %s", what[t->kind], wanted);
    else if (t->kind == OSH_JT_OP)
        osh_jrun_fail(p->r, OSH_E_FORMAT, "found '%s', want %s", op, wanted);
    else if (t->kind == OSH_JT_NAME || t->kind == OSH_JT_STR)
        osh_jrun_fail(p->r, OSH_E_FORMAT, "found '%.*s', want %s",
                      (int)(t->value.n < 80 ? t->value.n : 80), t->value.u.s, wanted);
    else osh_jrun_fail(p->r, OSH_E_FORMAT, "found a number, want %s", wanted);
}

void osh_jparse_want_op(osh_jparser *p, const char *op)
{
    char wanted[8] = {'\'', op[0], op[1] ? op[1] : '\'', op[1] ? '\'' : 0};
    if (!p->r->rc && !osh_jparse_take_op(p, op)) osh_jparse_fail(p, wanted);
}

osh_jv osh_jparse_want_name(osh_jparser *p)
{
    osh_jv v = p->at->value;
    if (p->r->rc) return osh_jv_none();
    if (p->at->kind != OSH_JT_NAME) osh_jparse_fail(p, "a name");
    else parser_next(p);
    return v;
}

/* ---- primary expressions ---- */

static osh_jnode *parse_const(osh_jparser *p, osh_jv v)
{
    osh_jnode *n = osh_jparse_new(p, OSH_JN_CONST);
    if (n) n->value = v;
    parser_next(p);
    return n;
}

static osh_jnode *parse_name(osh_jparser *p)
{
    if (osh_jparse_is_name(p, "true") || osh_jparse_is_name(p, "True"))
        return parse_const(p, osh_jv_bool(true));
    if (osh_jparse_is_name(p, "false") || osh_jparse_is_name(p, "False"))
        return parse_const(p, osh_jv_bool(false));
    if (osh_jparse_is_name(p, "none") || osh_jparse_is_name(p, "None"))
        return parse_const(p, osh_jv_none());
    osh_jnode *n = osh_jparse_new(p, OSH_JN_NAME);
    if (n) n->value = p->at->value;
    parser_next(p);
    return n;
}

static osh_jnode *parse_string(osh_jparser *p)
{
    osh_jnode *n = osh_jparse_new(p, OSH_JN_CONST);
    osh_jv v = p->at->value;
    // Joins adjacent strings such as 'p' 'q'.
    for (parser_next(p); p->at->kind == OSH_JT_STR && !p->r->rc; parser_next(p)) {
        char *s = osh_jrun_get(p->r, v.n + p->at->value.n + 1);
        if (!s) break;
        memcpy(s, v.u.s, v.n);
        memcpy(s + v.n, p->at->value.u.s, p->at->value.n);
        v = osh_jv_view(s, v.n + p->at->value.n);
    }
    if (n) n->value = v;
    return n;
}

static osh_jnode *parse_list(osh_jparser *p)
{
    osh_jnode *n = osh_jparse_new(p, OSH_JN_LIST);
    parser_next(p);
    while (!p->r->rc && !osh_jparse_take_op(p, "]")) {
        if (n && n->first) osh_jparse_want_op(p, ",");
        if (osh_jparse_take_op(p, "]")) break;
        osh_jparse_add(n, osh_jparse_expr(p));
    }
    return n;
}

static osh_jnode *parse_dict(osh_jparser *p)
{
    osh_jnode *n = osh_jparse_new(p, OSH_JN_DICT);
    parser_next(p);
    while (!p->r->rc && !osh_jparse_take_op(p, "}")) {
        if (n && n->first) osh_jparse_want_op(p, ",");
        if (osh_jparse_take_op(p, "}")) break;
        osh_jparse_add(n, osh_jparse_expr(p));
        osh_jparse_want_op(p, ":");
        osh_jparse_add(n, osh_jparse_expr(p));
    }
    return n;
}

static osh_jnode *parse_primary(osh_jparser *p)
{
    if (p->r->rc) return NULL;
    if (p->at->kind == OSH_JT_NAME) return parse_name(p);
    if (p->at->kind == OSH_JT_STR) return parse_string(p);
    if (p->at->kind == OSH_JT_INT || p->at->kind == OSH_JT_FLOAT)
        return parse_const(p, p->at->value);
    if (osh_jparse_is_op(p, "[")) return parse_list(p);
    if (osh_jparse_is_op(p, "{")) return parse_dict(p);
    if (osh_jparse_take_op(p, "(")) {
        osh_jnode *n =
            osh_jparse_is_op(p, ")") ? osh_jparse_new(p, OSH_JN_TUPLE) : osh_jparse_tuple(p, true);
        osh_jparse_want_op(p, ")");
        return n;
    }
    osh_jparse_fail(p, "an expression");
    return NULL;
}

/* ---- calls, items, filters and tests ---- */

static void parse_call_args(osh_jparser *p, osh_jnode *call)
{
    bool first = true;
    osh_jparse_want_op(p, "(");
    for (; !p->r->rc && !osh_jparse_take_op(p, ")"); first = false) {
        osh_jv keyword = {0};
        if (!first) osh_jparse_want_op(p, ",");
        if (osh_jparse_take_op(p, ")")) break;
        if (osh_jparse_is_op(p, "*") || osh_jparse_is_op(p, "**")) {
            osh_jrun_fail(p->r, OSH_E_UNSUPPORTED,
                          "arguments out of a list or dict ('*', '**') are not supported");
            return;
        }
        if (p->at->kind == OSH_JT_NAME && p->at[1].kind == OSH_JT_OP &&
            p->at[1].op == op_code("=")) {
            keyword = p->at->value;
            parser_next(p), parser_next(p);
        }
        osh_jnode *arg = osh_jparse_expr(p);
        if (arg && keyword.n) {
            arg->keyword = keyword;
        } else if (arg && call->last && call->last->keyword.n) {
            osh_jrun_fail(p->r, OSH_E_FORMAT, "an argument without a name after one with a name");
        }
        osh_jparse_add(call, arg);
    }
}

static osh_jnode *parse_bound(osh_jparser *p)
{
    if (osh_jparse_is_op(p, ":") || osh_jparse_is_op(p, "]")) {
        osh_jnode *n = osh_jparse_new(p, OSH_JN_CONST);
        if (n) n->value = osh_jv_none();
        return n;
    }
    return osh_jparse_expr(p);
}

static osh_jnode *parse_index(osh_jparser *p)
{
    osh_jnode *from = parse_bound(p);
    if (p->r->rc || !osh_jparse_take_op(p, ":")) return from;
    osh_jnode *n = osh_jparse_new(p, OSH_JN_SLICE);
    osh_jparse_add(n, from);
    osh_jparse_add(n, parse_bound(p));
    if (osh_jparse_take_op(p, ":")) {
        osh_jparse_add(n, parse_bound(p));
    } else {
        osh_jnode *none = osh_jparse_new(p, OSH_JN_CONST);
        if (none) none->value = osh_jv_none();
        osh_jparse_add(n, none);
    }
    return n;
}

static osh_jnode *parse_dot(osh_jparser *p, osh_jnode *object)
{
    bool number = p->at->kind == OSH_JT_INT;
    osh_jnode *n = osh_jparse_new(p, number ? OSH_JN_ITEM : OSH_JN_ATTR);
    osh_jparse_add(n, object);
    if (number) osh_jparse_add(n, parse_const(p, p->at->value));
    else if (n) n->value = osh_jparse_want_name(p);
    return n;
}

static osh_jnode *parse_postfix(osh_jparser *p, osh_jnode *n)
{
    while (n && !p->r->rc) {
        if (osh_jparse_take_op(p, ".")) {
            n = parse_dot(p, n);
        } else if (osh_jparse_take_op(p, "[")) {
            osh_jnode *item = osh_jparse_new(p, OSH_JN_ITEM);
            if (osh_jparse_is_op(p, "]")) osh_jparse_fail(p, "an index");
            osh_jparse_add(item, n);
            osh_jparse_add(item, parse_index(p));
            osh_jparse_want_op(p, "]");
            n = item;
        } else if (osh_jparse_is_op(p, "(")) {
            osh_jnode *call = osh_jparse_new(p, OSH_JN_CALL);
            if (!call) return NULL;
            osh_jparse_add(call, n);
            parse_call_args(p, call);
            n = call;
        } else {
            break;
        }
    }
    return n;
}

osh_jnode *osh_jparse_filter(osh_jparser *p, osh_jnode *operand)
{
    osh_jnode *n = osh_jparse_new(p, OSH_JN_FILTER);
    osh_jv name = osh_jparse_want_name(p);
    if (!n || p->r->rc) return NULL;
    n->value = name;
    n->fn = osh_jfilter_find(name);
    if (!n->fn) {
        p->r->line = n->line;
        osh_jrun_fail(p->r, OSH_E_UNSUPPORTED, "the filter '%.*s' is not supported", (int)name.n,
                      name.u.s);
        return NULL;
    }
    if (!operand) { // in a filter block, the variable "|" has the text of the block
        operand = osh_jparse_new(p, OSH_JN_NAME);
        if (operand) operand->value = osh_jv_word("|");
    }
    osh_jparse_add(n, operand);
    if (osh_jparse_is_op(p, "(")) parse_call_args(p, n);
    return n;
}

static bool is_test_argument(const osh_jparser *p)
{
    if (p->at->kind == OSH_JT_NAME)
        return !osh_jparse_is_name(p, "else") && !osh_jparse_is_name(p, "or") &&
               !osh_jparse_is_name(p, "and") && !osh_jparse_is_name(p, "if") &&
               !osh_jparse_is_name(p, "in") && !osh_jparse_is_name(p, "not");
    return p->at->kind == OSH_JT_STR || p->at->kind == OSH_JT_INT || p->at->kind == OSH_JT_FLOAT ||
           osh_jparse_is_op(p, "[") || osh_jparse_is_op(p, "{");
}

static osh_jnode *parse_test(osh_jparser *p, osh_jnode *operand)
{
    osh_jnode *n = osh_jparse_new(p, OSH_JN_TEST);
    bool negated = osh_jparse_take_name(p, "not");
    osh_jv name = osh_jparse_want_name(p);
    if (!n || p->r->rc) return NULL;
    n->op = negated, n->value = name;
    n->fn = osh_jtest_find(name);
    if (!n->fn) {
        p->r->line = n->line;
        osh_jrun_fail(p->r, OSH_E_UNSUPPORTED, "the test '%.*s' is not supported", (int)name.n,
                      name.u.s);
        return NULL;
    }
    osh_jparse_add(n, operand);
    if (osh_jparse_is_op(p, "(")) {
        parse_call_args(p, n);
    } else if (is_test_argument(p)) {
        if (osh_jparse_is_name(p, "is")) osh_jparse_fail(p, "no second 'is'");
        osh_jparse_add(n, parse_postfix(p, parse_primary(p)));
    }
    return n;
}

osh_jnode *osh_jparse_filters(osh_jparser *p, osh_jnode *n)
{
    while (!p->r->rc) {
        if (osh_jparse_take_op(p, "|")) n = osh_jparse_filter(p, n);
        else if (osh_jparse_take_name(p, "is")) n = parse_test(p, n);
        else if (osh_jparse_is_op(p, "(")) n = parse_postfix(p, n);
        else break;
    }
    return n;
}

/* ---- operators ---- */

static bool parser_enter(osh_jparser *p)
{
    if (++p->r->depth > OSH_JINJA_MAX_DEPTH)
        osh_jrun_fail(p->r, OSH_E_UNSUPPORTED, "expressions nested more than %d deep",
                      OSH_JINJA_MAX_DEPTH);
    return !p->r->rc;
}

static osh_jnode *parse_signed(osh_jparser *p, bool filters)
{
    osh_jnode *n = NULL;
    if (!parser_enter(p)) return NULL;
    if (osh_jparse_is_op(p, "-") || osh_jparse_is_op(p, "+")) {
        n = osh_jparse_new(p, osh_jparse_is_op(p, "-") ? OSH_JN_NEG : OSH_JN_POS);
        parser_next(p);
        osh_jparse_add(n, parse_signed(p, false));
    } else {
        n = parse_primary(p);
    }
    n = parse_postfix(p, n);
    if (filters) n = osh_jparse_filters(p, n);
    p->r->depth--;
    return n;
}

/* Parses operands that are joined by binary operators of one level, from left to right. The
 * operators are ** at level 0; * / // % at level 1; ~ at level 2; + - at level 3. */
static osh_jnode *parse_level(osh_jparser *p, int level)
{
    static const char *const ops[4][5] = {{"**"}, {"*", "/", "//", "%"}, {"~"}, {"+", "-"}};
    osh_jnode *left = level ? parse_level(p, level - 1) : parse_signed(p, true);
    for (bool any = true; any && !p->r->rc;) {
        any = false;
        for (int i = 0; ops[level][i] && !any; i++) any = osh_jparse_is_op(p, ops[level][i]);
        if (!any) break;
        int op = p->at->op;
        osh_jnode *n = left && left->kind == OSH_JN_CONCAT && level == 2 ? left : NULL;
        if (!n) {
            n = osh_jparse_new(p, level == 2 ? OSH_JN_CONCAT : OSH_JN_BINARY);
            osh_jparse_add(n, left);
        }
        parser_next(p);
        if (n) n->op = op;
        osh_jparse_add(n, level ? parse_level(p, level - 1) : parse_signed(p, true));
        left = n;
    }
    return left;
}

/* Consumes the operator of a comparison and returns it. Returns 0 if there is none. */
static int take_compare(osh_jparser *p)
{
    static const char *const ops[] = {"==", "!=", "<", "<=", ">", ">="};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (osh_jparse_take_op(p, ops[i])) return op_code(ops[i]);
    if (osh_jparse_take_name(p, "in")) return OSH_JOP_IN;
    if (osh_jparse_is_name(p, "not") && p->at[1].kind == OSH_JT_NAME &&
        osh_jv_is(p->at[1].value, "in")) {
        parser_next(p), parser_next(p);
        return OSH_JOP_NOT_IN;
    }
    return 0;
}

static osh_jnode *parse_compare(osh_jparser *p)
{
    osh_jnode *left = parse_level(p, 3), *n = NULL;
    for (int op; !p->r->rc && (op = take_compare(p));) {
        if (!n) {
            n = osh_jparse_new(p, OSH_JN_COMPARE);
            osh_jparse_add(n, left);
        }
        // This node has the operator, and its child is the operand that eval_compare reads.
        osh_jnode *wrap = osh_jparse_new(p, OSH_JN_POS);
        if (wrap) wrap->op = op;
        osh_jparse_add(wrap, parse_level(p, 3));
        osh_jparse_add(n, wrap);
    }
    return n ? n : left;
}

static osh_jnode *parse_not(osh_jparser *p)
{
    if (!osh_jparse_is_name(p, "not")) return parse_compare(p);
    osh_jnode *n = osh_jparse_new(p, OSH_JN_NOT);
    if (!parser_enter(p)) return NULL;
    parser_next(p);
    osh_jparse_add(n, parse_not(p));
    p->r->depth--;
    return n;
}

static osh_jnode *parse_logic(osh_jparser *p, bool is_or)
{
    osh_jnode *left = is_or ? parse_logic(p, false) : parse_not(p), *n = NULL;
    while (!p->r->rc && osh_jparse_take_name(p, is_or ? "or" : "and")) {
        if (!n) {
            n = osh_jparse_new(p, is_or ? OSH_JN_OR : OSH_JN_AND);
            osh_jparse_add(n, left);
        }
        osh_jparse_add(n, is_or ? parse_logic(p, false) : parse_not(p));
    }
    return n ? n : left;
}

osh_jnode *osh_jparse_expr(osh_jparser *p)
{
    if (!parser_enter(p)) return NULL;
    osh_jnode *then = parse_logic(p, true);
    while (!p->r->rc && osh_jparse_is_name(p, "if")) {
        osh_jnode *n = osh_jparse_new(p, OSH_JN_COND);
        parser_next(p);
        osh_jparse_add(n, parse_logic(p, true));
        osh_jparse_add(n, then);
        if (osh_jparse_take_name(p, "else")) osh_jparse_add(n, osh_jparse_expr(p));
        then = n;
    }
    p->r->depth--;
    return then;
}

static bool tuple_ends(const osh_jparser *p)
{
    return p->at->kind == OSH_JT_PRINT_END || p->at->kind == OSH_JT_BLOCK_END ||
           osh_jparse_is_op(p, ")");
}

osh_jnode *osh_jparse_tuple(osh_jparser *p, bool cond)
{
    osh_jnode *first = cond ? osh_jparse_expr(p) : parse_logic(p, true), *n = NULL;
    while (!p->r->rc && osh_jparse_take_op(p, ",")) {
        if (!n) {
            n = osh_jparse_new(p, OSH_JN_TUPLE);
            osh_jparse_add(n, first);
        }
        if (tuple_ends(p)) break;
        osh_jparse_add(n, cond ? osh_jparse_expr(p) : parse_logic(p, true));
    }
    return n ? n : first;
}
