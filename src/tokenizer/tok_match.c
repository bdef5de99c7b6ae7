/* tok_match.c - patterns of tokenizer.json: reads a pattern, a literal string or a regex, and
 * searches for it. */
#include <string.h>

#include "tokenizer/tok_impl.h"
#include "tokenizer/tok_pattern.h"

bool osh_tok_is_one_atom(const char *s)
{
    uint32_t cp;

    if (*s == '\\') {
        if (!s[1] || !strchr("sdnrt", s[1])) return false;
        s += 2;
    } else if (*s == '[') {
        size_t n = strcspn(s + 1, "[]\\&") + 1;
        if (s[n] != ']' || n == 1 || (n == 2 && s[1] == '^')) return false;
        s += n + 1;
    } else {
        size_t n = *s && !strchr("^$.|?*+(){}", *s) ? osh_utf8_decode(s, strlen(s), &cp) : 0;
        if (!n) return false;
        s += n;
    }
    if (*s == '+') return !s[1];
    if (*s != '{') return !*s;
    if (s[1] < '1' || s[1] > '3') return false;
    s += 2;
    s += *s == ',';
    s += strspn(s, "0123456789");
    return s[0] == '}' && !s[1];
}

osh_status osh_tok_pattern_load(osh_ctx *cx, osh_tok_pattern *p, const cJSON *o, const char *what)
{
    const cJSON *re = cJSON_IsObject(o) ? cJSON_GetObjectItemCaseSensitive(o, "Regex") : NULL;
    const cJSON *lit = cJSON_IsObject(o) ? cJSON_GetObjectItemCaseSensitive(o, "String") : NULL;

    if (cJSON_IsString(re)) return osh_tok_pattern_regex(cx, p, re->valuestring, what);
    if (!cJSON_IsString(lit) || !*lit->valuestring)
        return osh_fail(cx, OSH_E_FORMAT,
                        "%s: a pattern is neither a \"Regex\" nor a non-empty \"String\"", what);
    p->local = true;
    return osh_tok_string(cx, &p->literal, &p->n_literal, lit->valuestring);
}

osh_status osh_tok_pattern_find(osh_ctx *cx, const osh_tok_pattern *p, const char *s, size_t n,
                                size_t from, osh_hit *at)
{
    osh_status rc = OSH_OK;

    if (!p->re) {
        const char *hit = from < n ? memmem(s + from, n - from, p->literal, p->n_literal) : NULL;
        at->start = hit ? (size_t)(hit - s) : SIZE_MAX;
        at->end = hit ? at->start + p->n_literal : SIZE_MAX;
        return OSH_OK;
    }
    OSH_TRY(osh_regex_find_valid(cx, p->re, s, n, from, at));
done:
    return rc;
}

osh_status osh_tok_pattern_find_open(osh_ctx *cx, const osh_tok_pattern *p, const char *s, size_t n,
                                     size_t from, osh_hit *at)
{
    if (p->re && p->local) return osh_regex_find_open(cx, p->re, s, n, from, at);
    *at = (osh_hit){SIZE_MAX, from};
    if (p->re) return OSH_OK;
    osh_status rc = osh_tok_pattern_find(cx, p, s, n, from, at);
    if (at->start != SIZE_MAX) return rc;
    // a match may begin at this position or later
    at->end = n - from < p->n_literal ? from : n - p->n_literal + 1;
    while (at->end > from && at->end < n && ((unsigned char)s[at->end] & 0xC0) == 0x80) --at->end;
    return rc;
}

void osh_tok_pattern_deinit(osh_ctx *cx, osh_tok_pattern *p)
{
    osh_regex_free(cx, p->re);
    osh_free(cx, p->literal);
    memset(p, 0, sizeof *p);
}
