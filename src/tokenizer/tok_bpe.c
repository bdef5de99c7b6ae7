/* tok_bpe.c - encodes one word by byte-pair merging, with byte fallback and unknown tokens.
 *
 * Agrees with tokenizers/src/models/bpe: of all neighbours that can merge, the pair with the lowest
 * rank merges first. If several pairs have the same rank, the leftmost pair merges first. For a
 * short word the code searches an array of ranks for the lowest rank. From HEAP_FROM symbols on it
 * uses a heap of (rank, position), so even a text that is one long word takes only O(n log n). */
#include "base/map.h"
#include "tokenizer/tok_model.h"
#include <string.h>

#define HEAP_FROM 48
#define NO_RANK UINT32_MAX
#define BMP 0x10000
#define CHECK_EVERY ((size_t)1 << 18) // number of symbols or merges between checks for an interrupt
enum { MOST_AFFIX = 100 }; // largest size of a prefix or a suffix in bytes
#define JOINED_BITS ((size_t)1 << 20)

typedef struct symbol {
    int32_t id;
    int32_t prev, next; // indices of the symbols before and after this one; -1: none
    bool dead;
} symbol;

typedef struct candidate {
    uint32_t rank, pos, id;
} candidate;

typedef struct bpe {
    osh_map *vocab;      // own: maps a token to its id
    osh_tok_pairs pairs; // own: maps (left id, right id) to the rank of the merge and the merged id
    /* For each character of the BMP, the id of the token that is only this character; -1: there is
     * none. NULL: not cached. */
    int32_t *char_ids;   // own
    /* [JOINED_BITS / 8] bytes, with one bit for each hash of two characters. A bit is set if a
     * merge makes two characters with this hash neighbours. */
    uint8_t *joined;     // own
    int32_t byte_ids[256];
    int32_t max_id, unk_id;
    char *unk, *prefix, *suffix; // own: unknown token, prefix and suffix of the model; NULL: none
    size_t n_unk, n_prefix, n_suffix;
    bool byte_fallback, all_bytes, fuse_unk, ignore_merges;
    symbol *symbols; // own; scratch
    uint32_t *ranks; // own; scratch of merge_scan: [HEAP_FROM]
    candidate *heap; // own; scratch
    size_t cap_symbols, n_heap, cap_heap;
} bpe;

static bool bpe_find(const void *state, const char *token, size_t n, int32_t *id)
{
    const bpe *m = state;
    int64_t v = 0;

    if (!osh_map_get(m->vocab, token, n, &v)) return false;
    *id = (int32_t)v;
    return true;
}

static size_t bpe_size(const void *state) { return osh_map_count(((const bpe *)state)->vocab); }

static int32_t bpe_max_id(const void *state) { return ((const bpe *)state)->max_id; }

static void bpe_free(osh_ctx *cx, void *state)
{
    bpe *m = state;

    osh_map_free(cx, m->vocab);
    osh_free(cx, m->pairs.slots);
    osh_free(cx, m->char_ids);
    osh_free(cx, m->joined);
    osh_free(cx, m->unk);
    osh_free(cx, m->prefix);
    osh_free(cx, m->suffix);
    osh_free(cx, m->symbols);
    osh_free(cx, m->ranks);
    osh_free(cx, m->heap);
    osh_free(cx, m);
}

static const struct osh_tok_pair *bpe_pair(const bpe *m, int32_t a, int32_t b)
{
    return osh_tok_pairs_get(&m->pairs, (uint64_t)(uint32_t)a << 32 | (uint32_t)b);
}

/* ---- cuts of a text ---- */

static size_t joined_bit(uint32_t x, uint32_t y)
{
    return (size_t)(((uint64_t)x << 32 | y) * 0x9E3779B97F4A7C15ull >> 44) & (JOINED_BITS - 1);
}

/* True if no merge joins a token that ends with x to a token that begins with y. No token of the
 * result then contains the boundary between x and y. */
static bool bpe_parts(const void *state, uint32_t x, uint32_t y)
{
    const bpe *m = state;
    size_t bit = joined_bit(x, y);

    if (m->prefix || m->suffix || m->ignore_merges || x >= BMP || y >= BMP) return false;
    return m->char_ids[x] >= 0 && m->char_ids[y] >= 0 && !(m->joined[bit >> 3] >> (bit & 7) & 1);
}

/* Sets the bit for two characters that a merge makes neighbours: the last character of `left` and
 * the first of `right`. */
static void note_joined(bpe *m, const char *left, size_t n_left, const char *right, size_t n_right)
{
    uint32_t x = 0, y = 0;

    if (!n_left || !n_right) return;
    size_t at = osh_utf8_before(left, n_left);
    osh_utf8_decode(left + at, n_left - at, &x);
    osh_utf8_decode(right, n_right, &y);
    size_t bit = joined_bit(x, y);
    m->joined[bit >> 3] |= (uint8_t)(1u << (bit & 7));
}

/* ---- merging ---- */

static osh_status symbols_reserve(osh_ctx *cx, bpe *m, size_t n)
{
    if (n <= m->cap_symbols) return OSH_OK;
    size_t cap = n + n / 2 + 256;
    symbol *p = osh_realloc(cx, m->symbols, cap * sizeof *p);
    if (!p) return OSH_E_NOMEM;
    m->symbols = p;
    m->cap_symbols = cap;
    return OSH_OK;
}

/* Merges n symbols, which fill the array without gaps. n must be below HEAP_FROM. ranks[i] is the
 * rank of the pair (i, i + 1). Returns the number of symbols after all merges. */
static size_t merge_scan(bpe *m, size_t n)
{
    symbol *s = m->symbols;
    uint32_t *ranks = m->ranks;

    for (size_t i = 0; i + 1 < n; i++) {
        const struct osh_tok_pair *p = bpe_pair(m, s[i].id, s[i + 1].id);
        ranks[i] = p ? p->a : NO_RANK;
    }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (ranks[i] < ranks[best]) best = i;
        if (ranks[best] == NO_RANK) break;
        s[best].id = (int32_t)bpe_pair(m, s[best].id, s[best + 1].id)->b;
        n--;
        memmove(&s[best + 1], &s[best + 2], (n - best - 1) * sizeof *s);
        memmove(&ranks[best], &ranks[best + 1], (n - best - 1) * sizeof *ranks);
        const struct osh_tok_pair *left = best ? bpe_pair(m, s[best - 1].id, s[best].id) : NULL;
        const struct osh_tok_pair *right =
            best + 1 < n ? bpe_pair(m, s[best].id, s[best + 1].id) : NULL;
        if (best) ranks[best - 1] = left ? left->a : NO_RANK;
        ranks[best] = right ? right->a : NO_RANK;
    }
    return n;
}

static bool candidate_sooner(candidate a, candidate b)
{
    return a.rank != b.rank ? a.rank < b.rank : a.pos < b.pos;
}

static osh_status heap_push(osh_ctx *cx, bpe *m, candidate c)
{
    if (m->n_heap == m->cap_heap) {
        size_t cap = m->cap_heap * 2 + 256;
        candidate *p = osh_realloc(cx, m->heap, cap * sizeof *p);
        if (!p) return OSH_E_NOMEM;
        m->heap = p;
        m->cap_heap = cap;
    }
    size_t i = m->n_heap++;
    while (i > 0 && candidate_sooner(c, m->heap[(i - 1) / 2])) {
        m->heap[i] = m->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    m->heap[i] = c;
    return OSH_OK;
}

static candidate heap_pop(bpe *m)
{
    candidate top = m->heap[0], last = m->heap[--m->n_heap];
    size_t i = 0;

    for (;;) {
        size_t k = 2 * i + 1;
        if (k >= m->n_heap) break;
        if (k + 1 < m->n_heap && candidate_sooner(m->heap[k + 1], m->heap[k])) k++;
        if (!candidate_sooner(m->heap[k], last)) break;
        m->heap[i] = m->heap[k];
        i = k;
    }
    m->heap[i] = last;
    return top;
}

/* Pushes the pair of two symbols on the heap if a merge joins them. */
static osh_status heap_push_pair(osh_ctx *cx, bpe *m, int32_t left, int32_t right)
{
    if (left < 0 || right < 0) return OSH_OK;
    const struct osh_tok_pair *p = bpe_pair(m, m->symbols[left].id, m->symbols[right].id);
    return p ? heap_push(cx, m, (candidate){p->a, (uint32_t)left, p->b}) : OSH_OK;
}

/* Merges *n symbols with a heap of pairs. Sets *n to the number of symbols after all merges. */
static osh_status merge_heap(osh_ctx *cx, bpe *m, size_t *n)
{
    osh_status rc = OSH_OK;
    symbol *s = m->symbols;
    size_t left = 0;

    m->n_heap = 0;
    for (size_t i = 0; i < *n; i++) {
        s[i].prev = (int32_t)i - 1;
        s[i].next = i + 1 < *n ? (int32_t)i + 1 : -1;
        s[i].dead = false;
    }
    for (size_t i = 0; i + 1 < *n; i++) {
        OSH_TRY(heap_push_pair(cx, m, (int32_t)i, (int32_t)i + 1));
        if (i % CHECK_EVERY == 0 && osh_interrupted(cx))
            OSH_FAIL(cx, OSH_E_INTERRUPTED, "interrupted while tokenizing");
    }
    for (size_t k = 0; m->n_heap; k++) {
        candidate c = heap_pop(m);
        if (k % CHECK_EVERY == 0 && osh_interrupted(cx))
            OSH_FAIL(cx, OSH_E_INTERRUPTED, "interrupted while tokenizing");
        symbol *a = &s[c.pos];
        if (a->dead || a->next < 0) continue;
        symbol *b = &s[a->next];
        const struct osh_tok_pair *now = bpe_pair(m, a->id, b->id);
        // one of the two symbols has changed since the pair was pushed
        if (!now || now->b != c.id) continue;
        a->id = (int32_t)c.id;
        b->dead = true;
        a->next = b->next;
        if (b->next >= 0) s[b->next].prev = (int32_t)c.pos;
        OSH_TRY(heap_push_pair(cx, m, a->prev, (int32_t)c.pos));
        OSH_TRY(heap_push_pair(cx, m, (int32_t)c.pos, a->next));
    }
    for (size_t i = 0; i < *n; i++)
        if (!s[i].dead) s[left++] = s[i];
    *n = left;
done:
    return rc;
}

/* ---- characters to symbols ---- */

typedef struct character { // one character of a word
    const char *s;       // bytes [n]
    size_t n;
    uint32_t cp;
    /* head: true for the first character of the word; tail: true for the last character. */
    bool head, tail;
} character;

static bool char_id(const bpe *m, const character *c, int32_t *id)
{
    char key[2 * MOST_AFFIX + 4];
    size_t k = 0;

    if (m->char_ids && c->cp < BMP) {
        *id = m->char_ids[c->cp];
        return *id >= 0;
    }
    if (m->prefix && !c->head) memcpy(key, m->prefix, k = m->n_prefix);
    memcpy(key + k, c->s, c->n);
    k += c->n;
    if (m->suffix && c->tail) {
        memcpy(key + k, m->suffix, m->n_suffix);
        k += m->n_suffix;
    }
    return bpe_find(m, key, k, id);
}

/* Writes a token <0x..> for each byte of the character, with the prefix or suffix if the character
 * needs one. Returns false and writes nothing if a byte has no token. */
static bool char_to_bytes(const bpe *m, const character *c, symbol *to, size_t *k)
{
    const char *parts[3] = {c->head ? NULL : m->prefix, c->s, c->tail ? m->suffix : NULL};
    size_t sizes[3] = {m->n_prefix, c->n, m->n_suffix}, at = *k;

    if (!m->byte_fallback) return false;
    for (int j = 0; j < 3; j++)
        for (size_t i = 0; parts[j] && i < sizes[j]; i++) {
            int32_t id = m->byte_ids[(unsigned char)parts[j][i]];
            if (id < 0) return false;
            to[at++].id = id;
        }
    *k = at;
    return true;
}

static osh_status word_to_symbols(osh_ctx *cx, bpe *m, const char *s, size_t n, size_t *n_symbols)
{
    osh_status rc = OSH_OK;
    /* k: number of symbols written. pending: number of unknown tokens that are not yet written (0
     * or 1). */
    size_t k = 0, pending = 0;
    uint32_t cp = 0;

    OSH_TRY(symbols_reserve(cx, m, n * (1 + m->n_prefix) + m->n_suffix + 4));
    for (size_t i = 0, len = 0; i < n; i += len) {
        int32_t id = -1;
        len = osh_utf8_next(s + i, n - i, &cp);
        character c = {s + i, len, cp, i == 0, i + len == n};
        if (char_id(m, &c, &id)) {
            if (pending) m->symbols[k++].id = m->unk_id;
            pending = 0;
            m->symbols[k++].id = id;
        } else if (char_to_bytes(m, &c, m->symbols, &k)) {
            continue; // the unknown token stays pending, as in tokenizers
        } else if (m->unk) {
            if (m->unk_id < 0)
                OSH_FAIL(cx, OSH_E_FORMAT, "the unknown token '%s' is not in the vocabulary",
                         m->unk);
            if (pending && !m->fuse_unk) m->symbols[k++].id = m->unk_id;
            pending = 1;
        }
    }
    if (pending) m->symbols[k++].id = m->unk_id;
    *n_symbols = k;
done:
    return rc;
}

static osh_status symbols_to_ids(osh_ctx *cx, osh_ids *ids, const symbol *s, size_t n)
{
    osh_status rc = osh_ids_reserve(cx, ids, (int64_t)n);

    for (size_t i = 0; !rc && i < n; i++) ids->ids[ids->n++] = s[i].id;
    return rc;
}

static osh_status bpe_encode(osh_ctx *cx, void *state, osh_ids *ids, const char *word, size_t n)
{
    osh_status rc = OSH_OK;
    bpe *m = state;
    int32_t id = -1;
    size_t k = 1;

    if (m->ignore_merges && bpe_find(m, word, n, &id)) {
        OSH_TRY(symbols_reserve(cx, m, 1));
        m->symbols[0].id = id;
    } else {
        OSH_TRY(word_to_symbols(cx, m, word, n, &k));
        if (k < HEAP_FROM)
            k = merge_scan(m, k);
        else
            OSH_TRY(merge_heap(cx, m, &k));
    }
    OSH_TRY(symbols_to_ids(cx, ids, m->symbols, k));
done:
    return rc;
}

/* ---- loading ---- */

static osh_status bpe_load_vocab(osh_ctx *cx, bpe *m, const osh_tok_list *list, const char *what)
{
    osh_status rc = OSH_OK;
    osh_tok_items it; // own
    bool any = false;
    int64_t unused;

    osh_tok_items_init(&it, cx, list);
    if (!list->text) OSH_FAIL(cx, OSH_E_FORMAT, "%s: model without a \"vocab\" object", what);
    OSH_TRY(osh_map_new(cx, &m->vocab, list->n_items));
    m->max_id = -1;
    for (;;) {
        OSH_TRY(osh_tok_items_next(&it, &any));
        if (!any) break;
        const char *token = it.key.data ? it.key.data : "";
        int32_t id = -1;
        OSH_TRY(osh_tok_item_id(cx, &it, &id, what));
        if (osh_map_get(m->vocab, token, it.key.len, &unused))
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: the key '%s' occurs twice in one object", what, token);
        OSH_TRY(osh_map_put(cx, m->vocab, token, it.key.len, id));
        if (id > m->max_id) m->max_id = id;
    }
done:
    osh_tok_items_deinit(cx, &it);
    return rc;
}

/* Reads one merge, "a b" or ["a", "b"], and stores the ids of both tokens and of their
 * concatenation. */
static osh_status bpe_load_merge(osh_ctx *cx, bpe *m, osh_tok_items *it, int64_t rank,
                                 const char *what)
{
    osh_status rc = OSH_OK;
    int32_t left, right, both;

    OSH_TRY(osh_tok_items_join(it));
    char *w = it->text.data;
    size_t n = it->text.len, n_a = it->n_first;
    if (it->n_strings != 1 && it->n_strings != 2)
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s: merge %lld has the wrong type, want a string or a list of two strings",
                 what, (long long)rank);
    if (it->n_strings == 1 && it->value[0] == '[')
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s: merge %lld has the wrong type, want a string or a list of two strings",
                 what, (long long)rank);
    if (it->n_strings == 1) {
        char *space = n ? memchr(w, ' ', n) : NULL;
        if (!space || memchr(space + 1, ' ', n - (size_t)(space + 1 - w)))
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: merge %lld '%.80s' is not two tokens and a space", what,
                     (long long)rank, w ? w : "");
        n_a = (size_t)(space - w);
        /* The n - n_a bytes that move include the NUL at the end. */
        memmove(space, space + 1, n - n_a);
        n--;
    }
    size_t n_b = n - n_a;
    if (!n) OSH_FAIL(cx, OSH_E_FORMAT, "%s: merge %lld is empty", what, (long long)rank);
    if (memchr(w, 0, n))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: merge %lld holds U+0000", what, (long long)rank);
    note_joined(m, w, n_a, w + n_a, n_b);
    bool known = bpe_find(m, w, n_a, &left) && bpe_find(m, w + n_a, n_b, &right) &&
                 n_b >= m->n_prefix;
    if (known && m->n_prefix) memmove(w + n_a, w + n_a + m->n_prefix, n_b - m->n_prefix);
    if (!known || !bpe_find(m, w, n_a + n_b - m->n_prefix, &both))
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s: merge %lld '%.80s' uses a token that is not in the vocabulary", what,
                 (long long)rank, w);
    OSH_TRY(osh_tok_pairs_put(cx, &m->pairs, (uint64_t)(uint32_t)left << 32 | (uint32_t)right,
                              (uint32_t)rank, (uint32_t)both));
done:
    return rc;
}

static osh_status bpe_load_merges(osh_ctx *cx, bpe *m, const osh_tok_list *list, const char *what)
{
    osh_status rc = OSH_OK;
    osh_tok_items it; // own
    bool any = false;
    int64_t rank = 0;

    osh_tok_items_init(&it, cx, list);
    if (!list->text) OSH_FAIL(cx, OSH_E_FORMAT, "%s: model without a \"merges\" list", what);
    OSH_TRY(osh_tok_pairs_init(cx, &m->pairs, list->n_items));
    OSH_NEW(cx, m->joined, JOINED_BITS / 8);
    for (;;) {
        OSH_TRY(osh_tok_items_next(&it, &any));
        if (!any) break;
        if (it.n_strings && it.text.data && !strncmp(it.text.data, "#version", 8)) continue;
        OSH_TRY(bpe_load_merge(cx, m, &it, rank++, what));
    }
done:
    osh_tok_items_deinit(cx, &it);
    return rc;
}

static osh_status load_affix(osh_ctx *cx, char **out, size_t *n, const cJSON *o, const char *key,
                             const char *what)
{
    osh_status rc = OSH_OK;
    const char *s = NULL;

    OSH_TRY(osh_json_str_or(cx, &s, o, key, NULL, what));
    if (!s || !*s) goto done;
    if (strlen(s) > MOST_AFFIX)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: \"%s\" has %zu bytes, at most %d are supported", what,
                 key, strlen(s), MOST_AFFIX);
    OSH_TRY(osh_tok_string(cx, out, n, s));
done:
    return rc;
}

/* Stores the ids of single characters and of the byte tokens. So no string is hashed when a word is
 * encoded. */
static osh_status index_chars(osh_ctx *cx, bpe *m)
{
    osh_status rc = OSH_OK;
    char s[8];

    for (int b = 0; b < 256; b++) {
        static const char hex[] = "0123456789ABCDEF";
        char code[6] = {'<', '0', 'x', hex[b >> 4], hex[b & 15], '>'};
        if (!bpe_find(m, code, 6, &m->byte_ids[b])) m->byte_ids[b] = -1;
    }
    // with a prefix or suffix a character has up to four ids, so char_ids is not used
    if (m->prefix || m->suffix) goto done;
    OSH_NEW(cx, m->char_ids, BMP);
    for (uint32_t cp = 0; cp < BMP; cp++)
        if (!bpe_find(m, s, osh_utf8_encode(s, cp), &m->char_ids[cp])) m->char_ids[cp] = -1;
done:
    return rc;
}

static osh_status bpe_load(osh_ctx *cx, void **state, const osh_tok_file *f, const char *what)
{
    osh_status rc = OSH_OK;
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(f->tree, "model");
    bpe *m = NULL; // own
    double dropout = 0;

    OSH_NEW(cx, m, 1);
    OSH_TRY(osh_json_num_or(cx, &dropout, model, "dropout", 0, what));
    if (dropout != 0)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: \"dropout\" is %g, which makes ids random: want 0 or null", what, dropout);
    OSH_TRY(osh_json_bool_or(cx, &m->byte_fallback, model, "byte_fallback", false, what));
    OSH_TRY(osh_json_bool_or(cx, &m->fuse_unk, model, "fuse_unk", false, what));
    OSH_TRY(osh_json_bool_or(cx, &m->ignore_merges, model, "ignore_merges", false, what));
    OSH_TRY(load_affix(cx, &m->prefix, &m->n_prefix, model, "continuing_subword_prefix", what));
    OSH_TRY(load_affix(cx, &m->suffix, &m->n_suffix, model, "end_of_word_suffix", what));
    OSH_TRY(load_affix(cx, &m->unk, &m->n_unk, model, "unk_token", what));
    OSH_TRY(bpe_load_vocab(cx, m, &f->vocab, what));
    OSH_TRY(bpe_load_merges(cx, m, &f->merges, what));
    if (!m->unk || !bpe_find(m, m->unk, m->n_unk, &m->unk_id)) m->unk_id = -1;
    OSH_TRY(index_chars(cx, m));
    OSH_NEW(cx, m->ranks, HEAP_FROM);
    *state = m, m = NULL; // give
done:
    if (m) bpe_free(cx, m);
    return rc;
}

const osh_tok_model_type osh_tok_bpe = {
    .name = "BPE", .load = bpe_load, .free = bpe_free, .encode = bpe_encode, .find = bpe_find,
    .size = bpe_size,
    .max_id = bpe_max_id, .parts = bpe_parts};
