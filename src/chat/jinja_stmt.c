/* jinja_stmt.c - parses statements: tokens to nodes. The nodes have these children:
 *
 *   TEXT          value: the text
 *   PRINT         first: the expression
 *   FOR           target; first: the iterable, and a filter if there is one; body; other: else
 *   IF            first: the condition; body; other: else, or the IF of an elif
 *   SET           target; first: the value
 *   SET_BLOCK     target; first: the filters; body
 *   NS_SET        target: the name; value: the attribute; first, body: as in SET and SET_BLOCK
 *   MACRO         value: the name; target: the parameters (NAME, first: the default); body
 *   CALL_BLOCK    target: the parameters; first: the call; body
 *   FILTER_BLOCK  first: the filters; body
 *   WITH          target: NAMEs, each with its value as first; body
 *   SCOPE         body */
#include <string.h>

#include "chat/jinja_impl.h"

static osh_jnode *parse_body(osh_jparser *p, const char *const *ends);

/* Consumes the end of a tag. */
static void take_tag_end(osh_jparser *p)
{
    if (p->r->rc) return;
    if (p->at->kind != OSH_JT_BLOCK_END) osh_jparse_fail(p, "'%}'");
    else p->at++;
}

/* Consumes the tag {% name %}, at which parse_body has stopped. */
static void take_tag(osh_jparser *p, const char *name)
{
    if (p->r->rc) return;
    p->at++;
    if (!osh_jparse_take_name(p, name)) osh_jparse_fail(p, name);
    take_tag_end(p);
}

static osh_jnode *parse_body_until(osh_jparser *p, const char *end)
{
    const char *ends[] = {end, NULL};
    osh_jnode *n = parse_body(p, ends);
    take_tag(p, end);
    return n;
}

static osh_jnode *parse_target_name(osh_jparser *p)
{
    static const char *const taken[] = {"true", "false", "none", "True", "False", "None"};
    osh_jnode *n = osh_jparse_new(p, OSH_JN_NAME);
    if (n) n->value = osh_jparse_want_name(p);
    for (size_t i = 0; n && i < sizeof taken / sizeof *taken; i++)
        if (osh_jv_is(n->value, taken[i]))
            osh_jrun_fail(p->r, OSH_E_FORMAT, "'%s' cannot be set", taken[i]);
    return n;
}

/* Parses the target of a loop or of `set`: "a", "a, b" or "(a, b)". */
static osh_jnode *parse_target(osh_jparser *p)
{
    bool bracket = osh_jparse_take_op(p, "(");
    osh_jnode *first = parse_target_name(p), *n = first;
    while (!p->r->rc && osh_jparse_take_op(p, ",")) {
        if (n == first) {
            n = osh_jparse_new(p, OSH_JN_TUPLE);
            osh_jparse_add(n, first);
        }
        if (p->at->kind != OSH_JT_NAME || osh_jparse_is_name(p, "in")) break;
        osh_jparse_add(n, parse_target_name(p));
    }
    if (bracket) osh_jparse_want_op(p, ")");
    return n;
}

static osh_jnode *parse_for(osh_jparser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    osh_jnode *n = osh_jparse_new(p, OSH_JN_FOR);
    if (!n) return NULL;
    n->target = parse_target(p);
    if (!p->r->rc && !osh_jparse_take_name(p, "in")) osh_jparse_fail(p, "'in'");
    osh_jparse_add(n, osh_jparse_tuple(p, false));
    if (osh_jparse_take_name(p, "if")) osh_jparse_add(n, osh_jparse_expr(p));
    if (osh_jparse_is_name(p, "recursive"))
        osh_jrun_fail(p->r, OSH_E_UNSUPPORTED, "a recursive loop is not supported");
    take_tag_end(p);
    p->n_loops++;
    n->body = parse_body(p, ends);
    p->n_loops--;
    if (!p->r->rc && osh_jv_is(p->at[1].value, "else")) {
        take_tag(p, "else");
        n->other = parse_body(p, ends + 1);
    }
    take_tag(p, "endfor");
    return n;
}

static osh_jnode *parse_if(osh_jparser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    osh_jnode *top = osh_jparse_new(p, OSH_JN_IF), *n = top;
    while (n && !p->r->rc) {
        osh_jparse_add(n, osh_jparse_tuple(p, false));
        take_tag_end(p);
        n->body = parse_body(p, ends);
        if (p->r->rc || !osh_jv_is(p->at[1].value, "elif")) break;
        p->at += 2;
        n->other = osh_jparse_new(p, OSH_JN_IF);
        n = n->other;
    }
    if (n && !p->r->rc && osh_jv_is(p->at[1].value, "else")) {
        take_tag(p, "else");
        n->other = parse_body(p, ends + 2);
    }
    take_tag(p, "endif");
    return top;
}

static osh_jnode *parse_set(osh_jparser *p)
{
    osh_jnode *n = osh_jparse_new(p, OSH_JN_SET);
    if (!n) return NULL;
    n->target = parse_target(p);
    if (n->target && n->target->kind == OSH_JN_NAME && osh_jparse_take_op(p, ".")) {
        n->kind = OSH_JN_NS_SET;
        n->value = osh_jparse_want_name(p);
    }
    if (osh_jparse_take_op(p, "=")) {
        osh_jparse_add(n, osh_jparse_tuple(p, true));
        take_tag_end(p);
        return n;
    }
    if (n->kind == OSH_JN_SET) n->kind = OSH_JN_SET_BLOCK;
    if (osh_jparse_is_op(p, "|")) osh_jparse_add(n, osh_jparse_filters(p, NULL));
    take_tag_end(p);
    n->op = 1; // marks a `set` statement whose value is the text of a block
    n->body = parse_body_until(p, "endset");
    return n;
}

/* Parses the parameters of a macro: (a, b='d'). */
static osh_jnode *parse_params(osh_jparser *p)
{
    osh_jnode *list = osh_jparse_new(p, OSH_JN_LIST);
    osh_jparse_want_op(p, "(");
    while (list && !p->r->rc && !osh_jparse_take_op(p, ")")) {
        if (list->first) osh_jparse_want_op(p, ",");
        if (osh_jparse_take_op(p, ")")) break;
        bool last_default = list->last && list->last->first;
        osh_jnode *n = parse_target_name(p);
        if (osh_jparse_take_op(p, "=")) osh_jparse_add(n, osh_jparse_expr(p));
        else if (last_default)
            osh_jrun_fail(p->r, OSH_E_FORMAT,
                          "a parameter without a default after a parameter with a default");
        osh_jparse_add(list, n);
    }
    return list;
}

/* Parses the end of the tag and the body. `break` and `continue` in the body cannot refer to a loop
 * outside the body. */
static osh_jnode *parse_separate_body(osh_jparser *p, const char *end)
{
    take_tag_end(p);
    int loops = p->n_loops;
    p->n_loops = 0;
    osh_jnode *body = parse_body_until(p, end);
    p->n_loops = loops;
    return body;
}

static osh_jnode *parse_macro(osh_jparser *p)
{
    osh_jnode *n = osh_jparse_new(p, OSH_JN_MACRO);
    if (!n) return NULL;
    n->value = osh_jparse_want_name(p);
    n->target = parse_params(p);
    n->body = parse_separate_body(p, "endmacro");
    return n;
}

static osh_jnode *parse_call(osh_jparser *p)
{
    osh_jnode *n = osh_jparse_new(p, OSH_JN_CALL_BLOCK);
    if (!n) return NULL;
    n->target = osh_jparse_is_op(p, "(") ? parse_params(p) : osh_jparse_new(p, OSH_JN_LIST);
    n->value = osh_jv_word("caller");
    osh_jnode *call = osh_jparse_expr(p);
    if (!p->r->rc && call->kind != OSH_JN_CALL)
        osh_jrun_fail(p->r, OSH_E_FORMAT, "'call' without a call");
    osh_jparse_add(n, call);
    n->body = parse_separate_body(p, "endcall");
    return n;
}

static osh_jnode *parse_filter_block(osh_jparser *p)
{
    osh_jnode *n = osh_jparse_new(p, OSH_JN_FILTER_BLOCK);
    if (!n) return NULL;
    osh_jparse_add(n, osh_jparse_filters(p, osh_jparse_filter(p, NULL)));
    take_tag_end(p);
    n->body = parse_body_until(p, "endfilter");
    return n;
}

static osh_jnode *parse_with(osh_jparser *p)
{
    osh_jnode *n = osh_jparse_new(p, OSH_JN_WITH);
    if (!n) return NULL;
    n->target = osh_jparse_new(p, OSH_JN_LIST);
    while (!p->r->rc && p->at->kind != OSH_JT_BLOCK_END) {
        if (n->target && n->target->first) osh_jparse_want_op(p, ",");
        osh_jnode *name = parse_target_name(p);
        osh_jparse_want_op(p, "=");
        osh_jparse_add(name, osh_jparse_expr(p));
        osh_jparse_add(n->target, name);
    }
    take_tag_end(p);
    n->body = parse_body_until(p, "endwith");
    return n;
}

static osh_jnode *parse_jump(osh_jparser *p, osh_jnode_kind kind, const char *name)
{
    osh_jnode *n = osh_jparse_new(p, kind);
    if (!p->n_loops) osh_jrun_fail(p->r, OSH_E_FORMAT, "'%s' outside a loop", name);
    take_tag_end(p);
    return n;
}

static osh_jnode *parse_tag(osh_jparser *p)
{
    osh_jv tag = p->at->value;
    if (p->at->kind != OSH_JT_NAME) {
        osh_jparse_fail(p, "a tag's name");
        return NULL;
    }
    if (osh_jparse_take_name(p, "for")) return parse_for(p);
    if (osh_jparse_take_name(p, "if")) return parse_if(p);
    if (osh_jparse_take_name(p, "set")) return parse_set(p);
    if (osh_jparse_take_name(p, "macro")) return parse_macro(p);
    if (osh_jparse_take_name(p, "call")) return parse_call(p);
    if (osh_jparse_take_name(p, "filter")) return parse_filter_block(p);
    if (osh_jparse_take_name(p, "with")) return parse_with(p);
    if (osh_jparse_take_name(p, "break")) return parse_jump(p, OSH_JN_BREAK, "break");
    if (osh_jparse_take_name(p, "continue")) return parse_jump(p, OSH_JN_CONTINUE, "continue");
    // `generation` marks the text of an answer. Its output is the output of its body.
    if (osh_jparse_take_name(p, "generation")) {
        osh_jnode *n = osh_jparse_new(p, OSH_JN_GENERATION);
        p->r->generates = true;
        int loops = p->n_loops;
        p->n_loops = 0;
        take_tag_end(p);
        if (n) n->body = parse_body_until(p, "endgeneration");
        p->n_loops = loops;
        return n;
    }
    p->r->line = p->at->line;
    osh_jrun_fail(p->r, OSH_E_UNSUPPORTED, "the tag '%.*s' is not supported",
                  (int)(tag.n < 60 ? tag.n : 60), tag.u.s);
    return NULL;
}

static bool is_end_tag(const osh_jparser *p, const char *const *ends)
{
    for (; *ends; ends++)
        if (p->at[1].kind == OSH_JT_NAME && osh_jv_is(p->at[1].value, *ends)) return true;
    return false;
}

static osh_jnode *parse_item(osh_jparser *p)
{
    osh_jnode *n = NULL;
    p->r->line = p->at->line;
    if (p->at->kind == OSH_JT_TEXT) {
        n = osh_jparse_new(p, OSH_JN_TEXT);
        if (n) n->value = p->at->value;
        p->at++;
    } else if (p->at->kind == OSH_JT_PRINT) {
        n = osh_jparse_new(p, OSH_JN_PRINT);
        p->at++;
        osh_jparse_add(n, osh_jparse_tuple(p, true));
        if (!p->r->rc && p->at->kind != OSH_JT_PRINT_END) osh_jparse_fail(p, "'}}'");
        else if (!p->r->rc) p->at++;
    } else {
        p->at++;
        n = parse_tag(p);
    }
    return n;
}

/* Parses statements. Stops before the first tag that `ends` lists. */
static osh_jnode *parse_body(osh_jparser *p, const char *const *ends)
{
    static const char *const none[] = {NULL};
    osh_jnode *n = osh_jparse_new(p, OSH_JN_LIST);
    int line = p->at->line;
    if (++p->r->depth > OSH_JINJA_MAX_DEPTH)
        osh_jrun_fail(p->r, OSH_E_UNSUPPORTED, "tags nested more than %d deep",
                      OSH_JINJA_MAX_DEPTH);
    while (!p->r->rc) {
        if (p->at->kind == OSH_JT_END) {
            if (!ends) break;
            p->r->line = line;
            const char *const *last = ends;
            while (last[1]) last++;
            osh_jrun_fail(p->r, OSH_E_FORMAT,
                          "the template ends without the '%s' for the tag in this line", *last);
        } else if (p->at->kind == OSH_JT_BLOCK && is_end_tag(p, ends ? ends : none)) {
            break;
        } else {
            osh_jparse_add(n, parse_item(p));
        }
    }
    p->r->depth--;
    return n;
}

osh_jnode *osh_jinja_parse(osh_jrun *r, osh_jtoken *tokens)
{
    osh_jparser p = {.r = r, .at = tokens};
    return parse_body(&p, NULL);
}
