/* tok_unigram.c - encodes a word as its path of highest score (Viterbi), with unknown characters
 * and byte fallback.
 *
 * Agrees with tokenizers/src/models/unigram, which is SentencePiece's encode_optimized: each token
 * of the vocabulary is an edge from the character where it starts. A character that is no token by
 * itself is unknown, and its score is the lowest score minus 10. Sums are computed in double from
 * the start of the word, so equal paths have equal sums. If several paths have the same score, the
 * first one found is used. Successive unknown characters become one token. */
#include "tokenizer/tok_model.h"
#include "tokenizer/tok_trie.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHECK_EVERY = 1 << 18 }; // number of bytes between checks for an interrupt
#define UNKNOWN_PENALTY 10.0

typedef struct place { // a position between two characters of a word
    double score;      // score of the best path from the start to this position
    /* from: offset of the start of the path's last token.
     * to: offset of the end of the next token of the chosen path. */
    uint32_t from, to;
    int32_t id;        // id of the path's last token; -1: no path yet
} place;

typedef struct unigram {
    osh_tok_trie trie; // own
    double *scores;    // own; score of each id
    size_t n, cap;
    double unknown_score;
    int32_t unk_id;    // id of the unknown token; -1: the vocabulary has none
    int32_t byte_ids[256];
    bool byte_fallback;
    place *places;     // own; scratch
    size_t cap_places;
} unigram;

static void unigram_free(osh_ctx *cx, void *state)
{
    unigram *u = state;

    osh_tok_trie_deinit(cx, &u->trie);
    osh_free(cx, u->scores);
    osh_free(cx, u->places);
    osh_free(cx, u);
}

static bool unigram_find(const void *state, const char *token, size_t n, int32_t *id)
{
    const unigram *u = state;
    int32_t found = osh_tok_trie_find(&u->trie, token, n);

    if (found >= 0) *id = found;
    return found >= 0;
}

static size_t unigram_size(const void *state) { return ((const unigram *)state)->n; }

static int32_t unigram_max_id(const void *state)
{
    return (int32_t)((const unigram *)state)->n - 1;
}

/* Offers a path that ends at position p. The last token of the path begins at `from`. The path is
 * stored if p has no path yet, or a path with a lower score. */
static void place_offer(place *p, uint32_t from, int32_t id, double score)
{
    if (p->id >= 0 && !(score > p->score)) return;
    p->score = score;
    p->from = from;
    p->id = id;
}

static osh_status places_reserve(osh_ctx *cx, unigram *u, size_t n)
{
    if (n <= u->cap_places) return OSH_OK;
    size_t cap = n + n / 2 + 64;
    place *p = osh_realloc(cx, u->places, cap * sizeof *p);
    if (!p) return OSH_E_NOMEM;
    u->places = p;
    u->cap_places = cap;
    return OSH_OK;
}

/* Finds the best path to each position of the word. */
static osh_status unigram_find_paths(osh_ctx *cx, unigram *u, const char *s, size_t n)
{
    osh_status rc = OSH_OK;
    place *places = NULL;
    uint32_t cp;

    OSH_TRY(places_reserve(cx, u, n + 1));
    places = u->places;
    for (size_t i = 0; i <= n; i++) places[i].id = -1;
    places[0].score = 0;
    for (size_t at = 0, len = 0, checked = 0; at < n; at += len) {
        double here = places[at].score;
        bool single = false;
        uint32_t node = 0;
        len = osh_utf8_next(s + at, n - at, &cp);
        if (at - checked > CHECK_EVERY) {
            checked = at;
            if (osh_interrupted(cx))
                OSH_FAIL(cx, OSH_E_INTERRUPTED, "interrupted while tokenizing");
        }
        for (size_t k = at; k < n && osh_tok_trie_step(&u->trie, &node, (unsigned char)s[k]); k++) {
            int32_t id = u->trie.id[node];
            if (id < 0) continue;
            place_offer(&places[k + 1], (uint32_t)at, id, u->scores[id] + here);
            single |= k + 1 == at + len;
        }
        if (single) continue;
        if (u->unk_id < 0)
            OSH_FAIL(cx, OSH_E_FORMAT,
                     "the tokenizer has no \"unk_id\" for U+%04X, not in the vocabulary", cp);
        place_offer(&places[at + len], (uint32_t)at, u->unk_id, u->unknown_score + here);
    }
done:
    return rc;
}

/* Appends the ids of a run of unknown characters (n bytes). The run may also contain tokens that
 * have the unknown id. */
static osh_status unigram_add_unknown(osh_ctx *cx, const unigram *u, osh_ids *ids, const char *s,
                                      size_t n)
{
    osh_status rc = OSH_OK;
    int32_t id = osh_tok_trie_find(&u->trie, s, n);
    bool bytes = id < 0 && u->byte_fallback;

    for (size_t i = 0; bytes && i < n; i++) bytes = u->byte_ids[(unsigned char)s[i]] >= 0;
    OSH_TRY(osh_ids_reserve(cx, ids, bytes ? (int64_t)n : 1));
    for (size_t i = 0; bytes && i < n; i++) ids->ids[ids->n++] = u->byte_ids[(unsigned char)s[i]];
    if (!bytes) ids->ids[ids->n++] = id < 0 ? u->unk_id : id;
done:
    return rc;
}

static osh_status unigram_encode(osh_ctx *cx, void *state, osh_ids *ids, const char *word, size_t n)
{
    osh_status rc = OSH_OK;
    unigram *u = state;

    OSH_TRY(unigram_find_paths(cx, u, word, n));
    const place *places = u->places;
    for (size_t end = n; end > 0; end = places[end].from)
        u->places[places[end].from].to = (uint32_t)end;
    for (size_t at = 0, end = 0; at < n; at = end) {
        int32_t id = places[end = places[at].to].id;
        if (u->unk_id >= 0 && id == u->unk_id) {
            while (end < n && places[places[end].to].id == u->unk_id) end = places[end].to;
            OSH_TRY(unigram_add_unknown(cx, u, ids, word + at, end - at));
            continue;
        }
        OSH_TRY(osh_ids_reserve(cx, ids, 1));
        ids->ids[ids->n++] = id;
    }
done:
    return rc;
}

/* Returns the number in s as serde_json reads it. The result is not always the nearest double:
 * serde_json reads the digits as an integer of 64 bits, rounds the integer to a double, and
 * multiplies or divides the double by a power of ten. Scores must agree to the last bit, because a
 * close choice between paths may depend on it. */
static double serde_number(const char *s)
{
    bool minus = *s == '-', stop = false, point = false;
    uint64_t digits = 0;
    long exponent = 0;

    for (s += minus; (*s >= '0' && *s <= '9') || *s == '.'; s++) {
        unsigned d = (unsigned)*s - '0';
        if (*s == '.') {
            point = true;
            continue;
        }
        if (!stop && (digits > UINT64_MAX / 10 || digits * 10 > UINT64_MAX - d)) stop = true;
        if (!stop) digits = digits * 10 + d;
        exponent += !point && stop ? 1 : point && !stop ? -1 : 0;
    }
    if (*s == 'e' || *s == 'E') exponent += strtol(s + 1, NULL, 10);
    double f = (double)digits;
    for (; exponent < -308 && f != 0; exponent += 308) f /= 1e308;
    if (exponent < -308) exponent = 0; // the number is too small for a double and becomes 0
    char power[32];
    snprintf(power, sizeof power, "1e%ld", labs(exponent));
    f = exponent < 0 ? f / strtod(power, NULL) : digits ? f * strtod(power, NULL) : 0;
    return minus ? -f : f;
}

/* Reads one item of the vocabulary, ["token", score]. */
static osh_status unigram_load_entry(osh_ctx *cx, unigram *u, osh_tok_words *words,
                                     osh_tok_items *it, const char *what)
{
    osh_status rc = OSH_OK;
    char number[OSH_JSON_MAX_NUMBER + 1];

    OSH_TRY(osh_tok_items_pair(it, number));
    double score = it->n_strings == 1 ? serde_number(number) : NAN;
    if (!isfinite(score))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: entry %zu of the vocabulary is not a token and its score",
                 what, u->n);
    if (u->n >= INT32_MAX - 1)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: the vocabulary is too large", what);
    if (u->n == u->cap) {
        size_t cap = u->cap * 2 + 64;
        double *p = osh_realloc(cx, u->scores, cap * sizeof *p);
        if (!p) return OSH_E_NOMEM;
        u->scores = p, u->cap = cap;
    }
    OSH_TRY(osh_tok_words_add(cx, words, it->text.data ? it->text.data : "", it->text.len,
                              (int32_t)u->n));
    u->scores[u->n++] = score;
    if (score - UNKNOWN_PENALTY < u->unknown_score) u->unknown_score = score - UNKNOWN_PENALTY;
done:
    return rc;
}

static osh_status unigram_load_scores(osh_ctx *cx, unigram *u, const osh_tok_list *list,
                                      const char *what)
{
    osh_status rc = OSH_OK;
    osh_tok_words words; // own
    osh_tok_items it;    // own
    const struct osh_tok_word *twice;
    bool any = false;

    osh_tok_words_init(&words);
    osh_tok_items_init(&it, cx, list);
    if (!list->text)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: a Unigram model without a \"vocab\" list", what);
    u->unknown_score = INFINITY;
    for (;;) {
        OSH_TRY(osh_tok_items_next(&it, &any));
        if (!any) break;
        OSH_TRY(unigram_load_entry(cx, u, &words, &it, what));
    }
    // if two tokens are equal, the last is used
    OSH_TRY(osh_tok_trie_build(cx, &u->trie, &words, &twice));
done:
    osh_tok_words_deinit(cx, &words);
    osh_tok_items_deinit(cx, &it);
    return rc;
}

static osh_status unigram_load(osh_ctx *cx, void **state, const osh_tok_file *f, const char *what)
{
    osh_status rc = OSH_OK;
    const cJSON *o = cJSON_GetObjectItemCaseSensitive(f->tree, "model");
    unigram *u = NULL; // own
    int64_t unk = -1;

    OSH_NEW(cx, u, 1);
    OSH_TRY(osh_json_bool_or(cx, &u->byte_fallback, o, "byte_fallback", false, what));
    OSH_TRY(osh_json_int_or(cx, &unk, o, "unk_id", -1, what));
    OSH_TRY(unigram_load_scores(cx, u, &f->scores, what));
    if (unk < -1 || unk >= (int64_t)u->n)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: \"unk_id\" is %lld, but the vocabulary has %zu tokens",
                 what, (long long)unk, u->n);
    u->unk_id = (int32_t)unk;
    for (int b = 0; b < 256; b++) {
        char code[8];
        snprintf(code, sizeof code, "<0x%02X>", b);
        u->byte_ids[b] = osh_tok_trie_find(&u->trie, code, 6);
    }
    *state = u, u = NULL; // give
done:
    if (u) unigram_free(cx, u);
    return rc;
}

const osh_tok_model_type osh_tok_unigram = {
    .name = "Unigram", .load = unigram_load, .free = unigram_free, .encode = unigram_encode,
    .find = unigram_find,
    .size = unigram_size, .max_id = unigram_max_id};
