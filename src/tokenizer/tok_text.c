/* tok_text.c - runs the steps of a tokenizer on the text that the tokenizer encodes. Also grows the
 * arrays of the tokenizer: the bytes and pieces of the text after a step, the hash table of pairs,
 * and the ids. */
#include "tokenizer/tok_impl.h"
#include <string.h>

osh_status osh_tok_text_reserve(osh_ctx *cx, osh_tok_text *t, size_t n_more)
{
    if (t->limit && (t->n > t->limit || n_more > t->limit - t->n))
        return osh_fail(cx, OSH_E_UNSUPPORTED,
                        "the tokenizer's normalizers make more than %zu bytes of %zu", t->limit,
                        t->made_of);
    if (n_more <= t->cap - t->n) return OSH_OK;
    if (n_more > OSH_TOK_MAX_BYTES - t->n)
        return osh_fail(cx, OSH_E_UNSUPPORTED,
                        "a text of more than %zu bytes (normalized) cannot be tokenized at once",
                        OSH_TOK_MAX_BYTES);
    size_t cap = t->cap + t->cap / 2;
    if (cap < t->n + n_more) cap = t->n + n_more;
    char *s = osh_realloc(cx, t->s, cap + 64);
    if (!s) return OSH_E_NOMEM;
    t->s = s;
    t->cap = cap + 64;
    return OSH_OK;
}

osh_status osh_tok_text_add(osh_ctx *cx, osh_tok_text *t, const char *s, size_t n)
{
    osh_status rc = osh_tok_text_reserve(cx, t, n);

    if (rc || n == 0) return rc;
    memcpy(t->s + t->n, s, n);
    t->n += n;
    return OSH_OK;
}

osh_status osh_tok_utf8_clean(osh_ctx *cx, osh_tok_text *out, const char *s, size_t n)
{
    osh_status rc = OSH_OK;
    uint32_t cp = 0;
    size_t from = 0, at = 0;

    while (at < n) {
        size_t len = osh_utf8_decode(s + at, n - at, &cp);
        if (len) {
            at += len;
            continue;
        }
        OSH_TRY(osh_tok_text_add(cx, out, s + from, at - from));
        OSH_TRY(osh_tok_text_add(cx, out, "\xEF\xBF\xBD", 3));
        from = at += osh_utf8_next(s + at, n - at, &cp);
    }
    OSH_TRY(osh_tok_text_add(cx, out, s + from, n - from));
done:
    return rc;
}

osh_status osh_tok_piece_add(osh_ctx *cx, osh_tok_text *t, osh_tok_piece added)
{
    if (t->n_pieces == t->cap_pieces) {
        size_t cap = t->cap_pieces * 2 + 64;
        osh_tok_piece *p = osh_realloc(cx, t->pieces, cap * sizeof *p);
        if (!p) return OSH_E_NOMEM;
        t->pieces = p;
        t->cap_pieces = cap;
    }
    t->pieces[t->n_pieces++] = added;
    return OSH_OK;
}

void osh_tok_text_deinit(osh_ctx *cx, osh_tok_text *t)
{
    osh_free(cx, t->s);
    osh_free(cx, t->pieces);
    memset(t, 0, sizeof *t);
}

osh_status osh_tok_steps_run(osh_ctx *cx, const osh_tok_steps *steps, osh_tok_work *w)
{
    osh_status rc = OSH_OK;

    for (size_t i = 0; i < steps->n; i++) OSH_TRY(steps->items[i].run(cx, &steps->items[i], w));
done:
    return rc;
}

osh_status osh_tok_map_pieces(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w,
                              osh_tok_map_fn fn)
{
    osh_status rc = OSH_OK;
    osh_tok_text *in = w->cur, *out = w->next;

    out->n = out->n_pieces = 0;
    for (size_t i = 0; i < in->n_pieces; i++) {
        osh_tok_piece p = in->pieces[i];
        size_t at = out->n;
        const char *s = in->s + p.at;
        if (p.id < 0) OSH_TRY(fn(cx, st, out, s, p.len, &p));
        p.at = (uint32_t)at, p.len = (uint32_t)(out->n - at);
        if (p.id >= 0 || p.len) // empty pieces are dropped, as in PreTokenizedString::split
            OSH_TRY(osh_tok_piece_add(cx, out, p));
    }
    w->cur = out;
    w->next = in;
done:
    return rc;
}

osh_status osh_tok_pairs_init(osh_ctx *cx, osh_tok_pairs *p, size_t n_expected)
{
    size_t n = 64;

    while (n < n_expected * 2) n *= 2;
    p->slots = osh_alloc(cx, n * sizeof *p->slots);
    if (!p->slots) return OSH_E_NOMEM;
    memset(p->slots, 0xff, n * sizeof *p->slots);
    p->n = 0;
    p->mask = n - 1;
    return OSH_OK;
}

/* Returns the slot of the key, or the free slot in which to store it. */
static struct osh_tok_pair *pairs_slot(const osh_tok_pairs *p, uint64_t key)
{
    size_t i = (size_t)((key * 0x9E3779B97F4A7C15ull) >> 20) & p->mask;

    while (p->slots[i].key != UINT64_MAX && p->slots[i].key != key) i = (i + 1) & p->mask;
    return &p->slots[i];
}

static osh_status pairs_grow(osh_ctx *cx, osh_tok_pairs *p)
{
    osh_tok_pairs wide = {0};
    osh_status rc = osh_tok_pairs_init(cx, &wide, p->mask + 1);

    if (rc) return rc;
    for (size_t i = 0; i <= p->mask; i++)
        if (p->slots[i].key != UINT64_MAX) *pairs_slot(&wide, p->slots[i].key) = p->slots[i];
    wide.n = p->n;
    osh_free(cx, p->slots);
    *p = wide;
    return OSH_OK;
}

osh_status osh_tok_pairs_put(osh_ctx *cx, osh_tok_pairs *p, uint64_t key, uint32_t a, uint32_t b)
{
    if (p->n * 2 > p->mask) {
        osh_status rc = pairs_grow(cx, p);
        if (rc) return rc;
    }
    struct osh_tok_pair *slot = pairs_slot(p, key);
    p->n += slot->key != key;
    *slot = (struct osh_tok_pair){key, a, b};
    return OSH_OK;
}

osh_status osh_ids_reserve(osh_ctx *cx, osh_ids *ids, int64_t n_more)
{
    if (n_more <= ids->cap - ids->n) return OSH_OK;
    int64_t cap = ids->cap + ids->cap / 2 + 64;
    if (cap < ids->n + n_more) cap = ids->n + n_more;
    int32_t *p = osh_realloc(cx, ids->ids, (size_t)cap * sizeof *p);
    if (!p) return OSH_E_NOMEM;
    ids->ids = p;
    ids->cap = cap;
    return OSH_OK;
}

void osh_ids_deinit(osh_ctx *cx, osh_ids *ids)
{
    osh_free(cx, ids->ids);
    *ids = (osh_ids){0};
}
