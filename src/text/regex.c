/* regex.c - calls PCRE2: patterns are compiled once, with a JIT if there is one. A match that
 * exceeds a limit is an error.
 *
 * With the options UTF and UCP, \d, \w, \s and case follow Unicode, as in Python's re and in the
 * patterns of tokenizer.json. Limits: 10 million steps and 64 MiB of backtracking state for one
 * match.
 *
 * Callers continue after a match, so the beginning and the end of a match must be between two
 * characters. Therefore \C, which matches one byte, does not compile. \K moves the start of a
 * match. If \K is in a group that is called from a lookbehind, the match can begin before the start
 * of the search; such a match is an error. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"
#include <pcre2.h>

struct osh_regex {
    osh_ctx *cx; // view: context of osh_regex_new, from which PCRE2 gets all memory
    bool starved;                   // true if an allocation of PCRE2 has failed
    pcre2_general_context *general; // own
    pcre2_match_context *limits;    // own
    pcre2_match_data *match;        // own
    pcre2_code *code;               // own
    pcre2_jit_stack *stack;         // own: stack of the JIT; NULL: no JIT on this machine
    bool open; // true: the regex is also compiled for texts that continue (osh_regex_find_open)
    char *pattern;                  // own: pattern, for messages
};

#define MATCH_LIMIT 10000000u
#define HEAP_LIMIT_KIB 65536u
#define JIT_STACK_BYTES ((size_t)1 << 20)

static void *regex_take_bytes(PCRE2_SIZE n, void *user)
{
    osh_regex *r = user;
    void *p = osh_alloc(r->cx, n);

    r->starved |= !p;
    return p;
}

static void regex_give_bytes(void *p, void *user) { osh_free(((osh_regex *)user)->cx, p); }

static osh_status regex_set_limits(osh_ctx *cx, osh_regex *r)
{
    r->limits = pcre2_match_context_create(r->general);
    if (!r->limits) return osh_fail(cx, OSH_E_NOMEM, "cannot allocate a match context");
    pcre2_set_match_limit(r->limits, MATCH_LIMIT);
    pcre2_set_heap_limit(r->limits, HEAP_LIMIT_KIB);
    return OSH_OK;
}

/* Compiles the regex with the JIT if possible. Without a JIT, or without permission to map
 * executable memory, the interpreter finds the same matches. */
static osh_status regex_try_jit(osh_regex *r)
{
    if (!pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE)) {
        r->stack = pcre2_jit_stack_create(32 * 1024, JIT_STACK_BYTES, r->general);
        if (r->stack) pcre2_jit_stack_assign(r->limits, NULL, r->stack);
    }
    return r->starved ? OSH_E_NOMEM : OSH_OK;
}

osh_status osh_regex_new(osh_ctx *cx, osh_regex **out, const char *pattern, size_t n)
{
    osh_status rc = OSH_OK;
    osh_regex *r = NULL; // own
    int code = 0;
    PCRE2_SIZE at = 0;

    OSH_NEW(cx, r, 1);
    r->cx = cx;
    r->pattern = osh_sprintf(cx, "%.*s", n > 200 ? 200 : (int)n, pattern);
    if (!r->pattern) {
        rc = OSH_E_NOMEM;
        goto done;
    }
    r->general = pcre2_general_context_create(regex_take_bytes, regex_give_bytes, r);
    if (!r->general) OSH_FAIL(cx, OSH_E_NOMEM, "cannot allocate a regex context");
    OSH_TRY(regex_set_limits(cx, r));
    pcre2_compile_context *options = pcre2_compile_context_create(r->general);
    if (!options) OSH_FAIL(cx, OSH_E_NOMEM, "cannot allocate a compile context");
    r->code = pcre2_compile((PCRE2_SPTR)pattern, n, PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,
                            &code, &at, options);
    pcre2_compile_context_free(options);
    if (!r->code) {
        char why[200] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        OSH_FAIL(cx, r->starved ? OSH_E_NOMEM : OSH_E_FORMAT,
                 "regular expression '%s' is not valid at byte %zu: %s", r->pattern, (size_t)at,
                 why);
    }
    r->match = pcre2_match_data_create_from_pattern(r->code, r->general);
    if (!r->match) OSH_FAIL(cx, OSH_E_NOMEM, "cannot allocate match data");
    OSH_TRY(regex_try_jit(r));
    *out = r, r = NULL; // give
done:
    osh_regex_free(cx, r);
    return rc;
}

void osh_regex_free(osh_ctx *cx, osh_regex *r)
{
    if (!r) return;
    pcre2_jit_stack_free(r->stack);
    pcre2_match_data_free(r->match);
    pcre2_code_free(r->code);
    pcre2_match_context_free(r->limits);
    pcre2_general_context_free(r->general);
    osh_free(cx, r->pattern);
    osh_free(cx, r);
}

typedef struct search {
    const char *s; // view
    size_t n, from;
    uint32_t options;
    /* found: the whole pattern matches.
     * partial: the end of the text matches the beginning of the pattern. */
    bool found, partial;
} search;

/* Runs one match. The JIT has a small stack of its own. If that stack is too small, the interpreter
 * runs. */
static osh_status search_run(osh_ctx *cx, osh_regex *r, search *q)
{
    PCRE2_SPTR s = (PCRE2_SPTR)q->s;
    int got = pcre2_match(r->code, s, q->n, q->from, q->options, r->match, r->limits);

    if (got == PCRE2_ERROR_JIT_STACKLIMIT)
        got = pcre2_match(r->code, s, q->n, q->from, q->options | PCRE2_NO_JIT, r->match,
                          r->limits);
    q->found = got >= 0 || got == PCRE2_ERROR_PARTIAL;
    q->partial = got == PCRE2_ERROR_PARTIAL;
    if (got >= 0 || got == PCRE2_ERROR_NOMATCH || got == PCRE2_ERROR_PARTIAL) return OSH_OK;
    char why[200] = "";
    pcre2_get_error_message(got, (PCRE2_UCHAR *)why, sizeof why);
    if (got == PCRE2_ERROR_NOMEMORY)
        return osh_fail(cx, OSH_E_NOMEM, "regular expression '%s': %s", r->pattern, why);
    bool limit = got == PCRE2_ERROR_MATCHLIMIT || got == PCRE2_ERROR_DEPTHLIMIT ||
                 got == PCRE2_ERROR_HEAPLIMIT;
    return osh_fail(cx, limit ? OSH_E_UNSUPPORTED : OSH_E_FORMAT,
                    "regular expression '%s' on %zu bytes from byte %zu: %s", r->pattern, q->n,
                    q->from, why);
}

static bool is_between_characters(const search *q, size_t at)
{
    return at >= q->n || ((unsigned char)q->s[at] & 0xC0) != 0x80;
}

static osh_status search_hit(osh_ctx *cx, const osh_regex *r, const search *q, osh_hit *at)
{
    const PCRE2_SIZE *match = pcre2_get_ovector_pointer(r->match);

    *at = (osh_hit){SIZE_MAX, SIZE_MAX};
    if (!q->found) return OSH_OK;
    size_t end = match[1];
    /* A \K in a lookahead can move the start of the match to a position after the end. */
    size_t start = match[0] < end ? match[0] : end;
    if (start < q->from || end > q->n || !is_between_characters(q, start) ||
        !is_between_characters(q, end))
        return osh_fail(cx, OSH_E_UNSUPPORTED,
                        "regular expression '%s' matches bytes %zu to %zu of %zu; want a match of "
                        "whole characters from byte %zu on",
                        r->pattern, start, end, q->n, q->from);
    *at = (osh_hit){start, end};
    return OSH_OK;
}

static osh_status search_find(osh_ctx *cx, osh_regex *r, search *q, osh_hit *at)
{
    osh_status rc = search_run(cx, r, q);
    return rc ? rc : search_hit(cx, r, q, at);
}

osh_status osh_regex_find(osh_ctx *cx, osh_regex *r, const char *s, size_t n, size_t from,
                          osh_hit *at)
{
    return search_find(cx, r, &(search){.s = s, .n = n, .from = from}, at);
}

osh_status osh_regex_find_valid(osh_ctx *cx, osh_regex *r, const char *s, size_t n, size_t from,
                                osh_hit *at)
{
    search q = {.s = s, .n = n, .from = from, .options = PCRE2_NO_UTF_CHECK};
    return search_find(cx, r, &q, at);
}

osh_status osh_regex_match(osh_ctx *cx, osh_regex *r, const char *s, size_t n, bool *yes)
{
    search q = {.s = s, .n = n, .options = PCRE2_ANCHORED};
    osh_status rc = search_run(cx, r, &q);
    *yes = q.found;
    return rc;
}

osh_status osh_regex_find_open(osh_ctx *cx, osh_regex *r, const char *s, size_t n, size_t from,
                               osh_hit *at)
{
    osh_status rc = OSH_OK;
    search q = {.s = s, .n = n, .from = from, .options = PCRE2_NO_UTF_CHECK | PCRE2_PARTIAL_HARD};

    /* If the JIT cannot compile for partial matches, the interpreter runs. */
    if (!r->open && r->stack) pcre2_jit_compile(r->code, PCRE2_JIT_PARTIAL_HARD);
    r->open = true;
    OSH_TRY(search_find(cx, r, &q, at));
    if (!q.found) at->end = n;
    if (q.partial) *at = (osh_hit){SIZE_MAX, at->start};
done:
    return rc;
}

bool osh_regex_local(const osh_regex *r)
{
    uint32_t behind = 1, empty = 1;

    pcre2_pattern_info(r->code, PCRE2_INFO_MAXLOOKBEHIND, &behind);
    pcre2_pattern_info(r->code, PCRE2_INFO_MATCHEMPTY, &empty);
    return !behind && !empty;
}
