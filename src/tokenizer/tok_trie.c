/* tok_trie.c - builds a trie of sorted tokens level by level. A node takes 9 bytes. The children of
 * a node are neighbours, so a search among them is fast. */
#include "tokenizer/tok_trie.h"
#include <stdlib.h>
#include <string.h>

void osh_tok_words_init(osh_tok_words *w)
{
    *w = (osh_tok_words){.items = NULL};
    osh_buf_init(&w->bytes, 0);
}

void osh_tok_words_deinit(osh_ctx *cx, osh_tok_words *w)
{
    osh_buf_deinit(cx, &w->bytes);
    osh_free(cx, w->items);
    w->items = NULL;
}

osh_status osh_tok_words_add(osh_ctx *cx, osh_tok_words *w, const char *s, size_t n, int32_t id)
{
    osh_status rc = OSH_OK;

    if (w->n == w->cap) {
        size_t cap = w->cap * 2 + 64;
        struct osh_tok_word *p = osh_realloc(cx, w->items, cap * sizeof *p);
        if (!p) return OSH_E_NOMEM;
        w->items = p, w->cap = cap;
    }
    w->items[w->n] = (struct osh_tok_word){.at = w->bytes.len, .n = (uint32_t)n, .id = id};
    OSH_TRY(osh_buf_append(cx, &w->bytes, s, n));
    w->n++;
done:
    return rc;
}

static int words_by_bytes(const void *a, const void *b)
{
    const struct osh_tok_word *x = a, *y = b;
    int c = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);

    if (c) return c;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Returns the number of nodes of the trie of the sorted words. One node is the root. Each word adds
 * a node for each byte that it does not share with the previous word. Sets *twice to a word that
 * occurs twice, or to NULL. */
static size_t trie_count_nodes(const osh_tok_words *w, const struct osh_tok_word **twice)
{
    size_t n = 1;

    *twice = NULL;
    for (size_t i = 0; i < w->n; i++) {
        const struct osh_tok_word *x = &w->items[i], *y = i ? x - 1 : NULL;
        size_t k = 0;
        while (y && k < x->n && k < y->n && x->s[k] == y->s[k]) k++;
        n += x->n - k;
        if (y && k == x->n && k == y->n) *twice = x;
    }
    return n;
}

typedef struct span {
    uint32_t lo, hi; // range of sorted words that begin with the bytes on the path to a node
} span;

/* Writes the nodes level by level. The nodes of a level have the order of their parents. */
static void trie_lay_out(osh_tok_trie *t, span *spans, const osh_tok_words *w)
{
    size_t n = 1;

    spans[0] = (span){0, (uint32_t)w->n};
    t->label[0] = 0;
    for (size_t i = 0, depth = 0, level_end = 1; i < n; i++) {
        if (i == level_end) depth++, level_end = n;
        uint32_t k = spans[i].lo, hi = spans[i].hi;
        t->id[i] = -1;
        t->child[i] = (uint32_t)n;
        for (; k < hi && w->items[k].n == depth; k++) t->id[i] = w->items[k].id;
        while (k < hi) {
            char c = w->items[k].s[depth];
            uint32_t from = k;
            while (k < hi && w->items[k].s[depth] == c) k++;
            t->label[n] = (uint8_t)c;
            spans[n++] = (span){from, k};
        }
    }
    t->child[n] = (uint32_t)n;
}

osh_status osh_tok_trie_build(osh_ctx *cx, osh_tok_trie *t, osh_tok_words *w,
                              const struct osh_tok_word **twice)
{
    osh_status rc = OSH_OK;
    span *spans = NULL; // own

    for (size_t i = 0; i < w->n; i++)
        w->items[i].s = w->bytes.data ? w->bytes.data + w->items[i].at : "";
    if (w->n) qsort(w->items, w->n, sizeof *w->items, words_by_bytes);
    t->n = trie_count_nodes(w, twice);
    if (t->n >= UINT32_MAX)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "a vocabulary of %zu bytes is too large", w->bytes.len);
    OSH_NEW(cx, t->child, t->n + 1);
    OSH_NEW(cx, t->id, t->n);
    OSH_NEW(cx, t->label, t->n);
    OSH_NEW(cx, spans, t->n);
    trie_lay_out(t, spans, w);
done:
    osh_free(cx, spans);
    return rc;
}

void osh_tok_trie_deinit(osh_ctx *cx, osh_tok_trie *t)
{
    osh_free(cx, t->child);
    osh_free(cx, t->id);
    osh_free(cx, t->label);
    *t = (osh_tok_trie){.n = 0};
}

int32_t osh_tok_trie_find(const osh_tok_trie *t, const char *s, size_t n)
{
    uint32_t node = 0;

    for (size_t i = 0; i < n; i++)
        if (!osh_tok_trie_step(t, &node, (unsigned char)s[i])) return -1;
    return t->id[node];
}
