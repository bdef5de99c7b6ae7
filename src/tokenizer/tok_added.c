/* tok_added.c - finds added and special tokens in the text, before any other stage, longest first.
 *
 * There are two sets, as in tokenizers' AddedVocabulary. Tokens with normalized == false are
 * found in the raw text. All other tokens are found in the normalized text, and their content is
 * normalized, too. Matches are leftmost-longest and do not overlap. A token with single_word
 * matches only if there is no word character directly before or after it. lstrip and rstrip
 * extend the match over white space on the left and on the right. */
#include "base/map.h"
#include "tokenizer/tok_impl.h"
#include <string.h>

typedef struct token {
    size_t at, n; // at: offset in `contents`; n: size; both in bytes
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
} token;

typedef struct trie {
    /* Maps node << 8 | byte to the child of the node for this byte. Maps TERMINAL | node to the
     * index of the token that ends at the node. */
    osh_tok_pairs edges;
    uint32_t n_nodes;
    bool starts[256]; // [b]: true if a token starts with byte b
    /* empty: true if the set has no token.
     * single_word, lstrip, rstrip: true if a token of the set has the option. */
    bool empty, single_word, lstrip, rstrip;
    size_t longest;   // bytes
} trie;

struct osh_tok_added {
    token *tokens; // own
    size_t n;
    osh_buf contents; // own; contents of all tokens, without separators
    trie sets[2]; // [0]: tokens with normalized == false; [1]: tokens with normalized == true
};

#define TERMINAL ((uint64_t)1 << 62)

void osh_tok_added_free(osh_ctx *cx, osh_tok_added *a)
{
    if (!a) return;
    osh_free(cx, a->tokens);
    osh_buf_deinit(cx, &a->contents);
    for (int i = 0; i < 2; i++) osh_free(cx, a->sets[i].edges.slots);
    osh_free(cx, a);
}

int32_t osh_tok_added_max_id(const osh_tok_added *a)
{
    int32_t top = -1;

    for (size_t i = 0; i < a->n; i++)
        if (a->tokens[i].id > top) top = a->tokens[i].id;
    return top;
}

static osh_status trie_add(osh_ctx *cx, trie *t, const char *s, size_t n, const token *k,
                           uint32_t which)
{
    osh_status rc = OSH_OK;
    uint64_t node = 0;

    if (n == 0) goto done;
    t->starts[(unsigned char)s[0]] = true;
    t->empty = false;
    t->single_word |= k->single_word, t->lstrip |= k->lstrip, t->rstrip |= k->rstrip;
    if (n > t->longest) t->longest = n;
    for (size_t i = 0; i < n; i++) {
        uint64_t key = node << 8 | (unsigned char)s[i];
        const struct osh_tok_pair *e = osh_tok_pairs_get(&t->edges, key);
        if (e) {
            node = e->a;
            continue;
        }
        node = ++t->n_nodes;
        OSH_TRY(osh_tok_pairs_put(cx, &t->edges, key, (uint32_t)node, 0));
    }
    // if two tokens have equal contents, the first is used
    if (!osh_tok_pairs_get(&t->edges, TERMINAL | node))
        OSH_TRY(osh_tok_pairs_put(cx, &t->edges, TERMINAL | node, which, 0));
done:
    return rc;
}

/* Returns the leftmost-longest match at or after `from`, and sets *at to its position. Returns NULL
 * if there is none. */
static const token *added_find(const osh_tok_added *a, const trie *t, const char *s, size_t n,
                               size_t from, osh_hit *at)
{
    for (size_t i = from; i < n; i++) {
        const token *best = NULL;
        uint64_t node = 0;
        if (!t->starts[(unsigned char)s[i]]) continue;
        for (size_t k = i; k < n; k++) {
            const struct osh_tok_pair *e =
                osh_tok_pairs_get(&t->edges, node << 8 | (unsigned char)s[k]);
            if (!e) break;
            node = e->a;
            e = osh_tok_pairs_get(&t->edges, TERMINAL | node);
            if (!e) continue;
            best = &a->tokens[e->a];
            at->end = k + 1;
        }
        if (best) {
            at->start = i;
            return best;
        }
    }
    return NULL;
}

/* True if a word character is directly before `start` or directly after `end`. */
static bool is_beside_word(const char *s, size_t n, size_t start, size_t end)
{
    uint32_t cp = 0;

    if (start > 0) {
        size_t at = osh_utf8_before(s, start);
        osh_utf8_decode(s + at, start - at, &cp);
        if (osh_cp_is_word(cp)) return true;
    }
    if (end < n) {
        osh_utf8_decode(s + end, n - end, &cp);
        if (osh_cp_is_word(cp)) return true;
    }
    return false;
}

/* Extends [*start, *end) over white space if the token has the options lstrip and rstrip. */
static void swallow_spaces(const token *k, const char *s, size_t n, size_t *start, size_t *end)
{
    uint32_t cp = 0;

    while (k->lstrip && *start > 0) {
        size_t at = osh_utf8_before(s, *start);
        osh_utf8_decode(s + at, *start - at, &cp);
        if (!osh_cp_is_space(cp)) break;
        *start = at;
    }
    while (k->rstrip && *end < n) {
        size_t len = osh_utf8_next(s + *end, n - *end, &cp);
        if (!osh_cp_is_space(cp)) break;
        *end += len;
    }
}

/* Returns bytes [start, end) of the text piece p as a new text piece. */
static osh_tok_piece piece_part(osh_tok_piece p, size_t start, size_t end)
{
    osh_tok_piece part = {.at = p.at + (uint32_t)start, .len = (uint32_t)(end - start), .id = -1};

    if (start == 0) part.first = p.first, part.cont = p.cont;
    return part;
}

static osh_status split_piece(osh_ctx *cx, const osh_tok_added *a, const trie *t, osh_tok_text *out,
                              const char *base, osh_tok_piece p)
{
    osh_status rc = OSH_OK;
    const char *s = base + p.at;
    size_t done_to = 0, from = 0;
    osh_hit at;
    const token *k = NULL;

    while ((k = added_find(a, t, s, p.len, from, &at))) {
        size_t start = at.start, end = at.end;
        from = end; // rstrip does not move the start of the next search
        if (k->single_word && is_beside_word(s, p.len, start, end)) continue;
        swallow_spaces(k, s, p.len, &start, &end);
        if (k->lstrip && start < done_to)
            /* rstrip of an earlier match may have removed white space in which this match begins */
            start = done_to;
        if (done_to < start) OSH_TRY(osh_tok_piece_add(cx, out, piece_part(p, done_to, start)));
        if (start < end)
            OSH_TRY(osh_tok_piece_add(cx, out, (osh_tok_piece){.at = p.at + (uint32_t)start,
                                                               .len = (uint32_t)(end - start),
                                                               .id = k->id}));
        done_to = end;
    }
    if (done_to < p.len) OSH_TRY(osh_tok_piece_add(cx, out, piece_part(p, done_to, p.len)));
done:
    return rc;
}

osh_status osh_tok_added_split(osh_ctx *cx, const osh_tok_added *a, bool normalized,
                               osh_tok_work *w)
{
    osh_status rc = OSH_OK;
    osh_tok_text *in = w->cur, *out = w->next;
    const trie *t = &a->sets[normalized];

    if (t->empty) return OSH_OK;
    out->n_pieces = 0;
    for (size_t i = 0; i < in->n_pieces; i++) {
        osh_tok_piece p = in->pieces[i];
        if (p.id >= 0)
            OSH_TRY(osh_tok_piece_add(cx, out, p));
        else
            OSH_TRY(split_piece(cx, a, t, out, in->s, p));
    }
    osh_tok_piece *pieces = in->pieces;
    size_t cap = in->cap_pieces;
    in->pieces = out->pieces, in->cap_pieces = out->cap_pieces, in->n_pieces = out->n_pieces;
    out->pieces = pieces, out->cap_pieces = cap, out->n_pieces = 0;
done:
    return rc;
}

/* True if a token of the set is in the text around position p: it begins at p or earlier, and ends
 * at p or later. Positions are offsets in bytes. */
static bool trie_touches(const trie *t, const char *s, size_t n, size_t p)
{
    for (size_t i = p > t->longest ? p - t->longest : 0; i <= p && i < n; i++) {
        uint64_t node = 0;
        if (!t->starts[(unsigned char)s[i]]) continue;
        for (size_t k = i; k < n; k++) {
            const struct osh_tok_pair *e =
                osh_tok_pairs_get(&t->edges, node << 8 | (unsigned char)s[k]);
            if (!e) break;
            node = e->a;
            if (k + 1 >= p && osh_tok_pairs_get(&t->edges, TERMINAL | node)) return true;
        }
    }
    return false;
}

osh_status osh_tok_added_cut(osh_ctx *cx, const osh_tok_added *a, osh_tok_cuts *cuts, const char *s,
                             size_t n, size_t *cut)
{
    osh_status rc = OSH_OK;
    const trie *t = &a->sets[!cuts];
    uint32_t before = 0, after = 0;
    bool may = true;

    *cut = 0;
    if (!cuts && t->single_word) goto done;
    for (size_t p = n > t->longest + 1 ? n - t->longest - 1 : 0; p > n / 2; p--) {
        if (((unsigned char)s[p] & 0xC0) == 0x80) continue;
        size_t at = osh_utf8_before(s, p);
        osh_utf8_decode(s + at, p - at, &before);
        osh_utf8_decode(s + p, n - p, &after);
        if (cuts) OSH_TRY(osh_tok_cuts_at(cx, cuts, s, n, p, &may));
        if (!may) continue;
        if ((t->lstrip && osh_cp_is_space(before)) || (t->rstrip && osh_cp_is_space(after)))
            continue;
        if (!t->empty && trie_touches(t, s, n, p)) continue;
        *cut = p;
        break;
    }
done:
    return rc;
}

static const char *token_content(const osh_tok_added *a, const token *k)
{
    return a->contents.data + k->at;
}

static osh_status load_token(osh_ctx *cx, osh_tok_added *a, token *k, const cJSON *o,
                             const char *what)
{
    osh_status rc = OSH_OK;
    const char *content = NULL;
    char *bytes = NULL; // own

    if (!cJSON_IsObject(o)) OSH_FAIL(cx, OSH_E_FORMAT, "%s: an added token is not an object", what);
    OSH_TRY(osh_json_str_or(cx, &content, o, "content", NULL, what));
    if (!content) OSH_FAIL(cx, OSH_E_FORMAT, "%s: an added token without \"content\"", what);
    OSH_TRY(osh_tok_string(cx, &bytes, &k->n, content));
    k->at = a->contents.len;
    OSH_TRY(osh_buf_append(cx, &a->contents, bytes, k->n));
    OSH_TRY(osh_json_bool_or(cx, &k->special, o, "special", false, what));
    OSH_TRY(osh_json_bool_or(cx, &k->single_word, o, "single_word", false, what));
    OSH_TRY(osh_json_bool_or(cx, &k->lstrip, o, "lstrip", false, what));
    OSH_TRY(osh_json_bool_or(cx, &k->rstrip, o, "rstrip", false, what));
    OSH_TRY(osh_json_bool_or(cx, &k->normalized, o, "normalized", !k->special, what));
done:
    osh_free(cx, bytes);
    return rc;
}

/* Gives each token an id: the id in the vocabulary, or the next free id. Ignores the member "id" of
 * the token in tokenizer.json, as the tokenizers library does. */
static osh_status number_tokens(osh_ctx *cx, osh_tok_added *a, const osh_tok_model *m)
{
    osh_status rc = OSH_OK;
    osh_map *seen = NULL; // own
    int64_t top = -1, size = (int64_t)osh_tok_model_size(m), known = 0;

    OSH_TRY(osh_map_new(cx, &seen, a->n));
    for (size_t i = 0; i < a->n; i++) {
        token *k = &a->tokens[i];
        if (osh_map_get(seen, token_content(a, k), k->n, &known)) {
            k->id = (int32_t)known;
        } else if (!osh_tok_model_find(m, token_content(a, k), k->n, &k->id)) {
            k->id = (int32_t)(top < 0 ? size : top >= size || size == 0 ? top + 1 : size);
        }
        OSH_TRY(osh_map_put(cx, seen, token_content(a, k), k->n, k->id));
        if (k->id > top) top = k->id;
    }
done:
    osh_map_free(cx, seen);
    return rc;
}

static osh_status add_normalized(osh_ctx *cx, osh_tok_added *a, const osh_tok_steps *normalizers,
                                 size_t which)
{
    osh_status rc = OSH_OK;
    osh_tok_text one = {0}, two = {0};
    osh_tok_work w = {.cur = &one, .next = &two};
    const token *k = &a->tokens[which];

    OSH_TRY(osh_tok_text_add(cx, &one, token_content(a, k), k->n));
    OSH_TRY(osh_tok_piece_add(cx, &one,
                              (osh_tok_piece){.len = (uint32_t)one.n, .id = -1, .first = true}));
    OSH_TRY(osh_tok_normalize(cx, normalizers, &w));
    OSH_TRY(trie_add(cx, &a->sets[1], w.cur->s, w.cur->n, k, (uint32_t)which));
done:
    osh_tok_text_deinit(cx, &one);
    osh_tok_text_deinit(cx, &two);
    return rc;
}

/* Reads all added tokens. Tokens without content are ignored, as in tokenizers. */
static osh_status load_tokens(osh_ctx *cx, osh_tok_added *a, const osh_tok_list *list,
                              const char *what)
{
    osh_status rc = OSH_OK;
    osh_tok_items it; // own
    bool any = false;
    cJSON *o = NULL; // own

    osh_tok_items_init(&it, cx, list);
    for (;;) {
        OSH_TRY(osh_tok_items_next(&it, &any));
        if (!any) break;
        token *k = &a->tokens[a->n];
        *k = (token){0};
        OSH_TRY(osh_json_parse(cx, &o, it.value, it.n_value, what, OSH_JSON_NUL));
        OSH_TRY(load_token(cx, a, k, o, what));
        cJSON_Delete(o);
        o = NULL;
        a->n += k->n > 0;
    }
done:
    cJSON_Delete(o);
    osh_tok_items_deinit(cx, &it);
    return rc;
}

osh_status osh_tok_added_load(osh_ctx *cx, osh_tok_added **out, const osh_tok_file *f,
                              const osh_tok_model *m, const osh_tok_steps *normalizers,
                              const char *what)
{
    osh_status rc = OSH_OK;
    osh_tok_added *a = NULL; // own
    const cJSON *other = cJSON_GetObjectItemCaseSensitive(f->tree, "added_tokens");

    OSH_NEW(cx, a, 1);
    if (other && !cJSON_IsNull(other))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: \"added_tokens\" is not a list", what);
    OSH_NEW(cx, a->tokens, f->added.n_items);
    if (f->added.text) OSH_TRY(load_tokens(cx, a, &f->added, what));
    OSH_TRY(number_tokens(cx, a, m));
    for (int i = 0; i < 2; i++) {
        a->sets[i].empty = true;
        OSH_TRY(osh_tok_pairs_init(cx, &a->sets[i].edges, 64));
    }
    for (int special = 1; special >= 0; special--) // special tokens get ids first
        for (size_t i = 0; i < a->n; i++) {
            token *k = &a->tokens[i];
            if (k->special != special) continue;
            if (k->normalized)
                OSH_TRY(add_normalized(cx, a, normalizers, i));
            else
                OSH_TRY(trie_add(cx, &a->sets[0], token_content(a, k), k->n, k, (uint32_t)i));
        }
    *out = a, a = NULL; // give
done:
    osh_tok_added_free(cx, a);
    return rc;
}

osh_status osh_tok_added_each(osh_ctx *cx, const osh_tok_added *a,
                              osh_status (*fn)(osh_ctx *cx, void *user,
                                               const osh_tok_added_token *t),
                              void *user)
{
    osh_status rc = OSH_OK;
    for (size_t i = 0; i < a->n; i++) {
        const token *k = &a->tokens[i];
        OSH_TRY(fn(cx, user,
                   &(osh_tok_added_token){k->id, token_content(a, k), k->n, k->special}));
    }
done:
    return rc;
}
