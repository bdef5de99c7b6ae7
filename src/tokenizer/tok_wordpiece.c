/* tok_wordpiece.c - implements the models WordPiece and WordLevel. WordPiece repeatedly removes the
 * longest token from the start of a word. If at some point no token matches, the whole word is
 * unknown. In WordLevel, a word is one token or unknown.
 *
 * Agrees with tokenizers/src/models/wordpiece and wordlevel. After the first token, WordPiece looks
 * for tokens with the prefix ("##"). */
#include "tokenizer/tok_model.h"
#include "tokenizer/tok_trie.h"
#include <string.h>

typedef struct wordpiece {
    osh_tok_trie trie; // own
    char *unk;         // own; the unknown token, for messages
    /* Trie node of the prefix "##" of tokens inside a word; 0 if the prefix is empty. */
    uint32_t behind;
    bool any_behind;   // true if a token begins with the prefix
    int64_t max_chars; // largest number of characters in a word; a longer word is unknown
    size_t size;
    /* unk_id: id of the unknown token; -1: the vocabulary does not have the token. */
    int32_t max_id, unk_id;
} wordpiece;

static void wordpiece_free(osh_ctx *cx, void *state)
{
    wordpiece *p = state;

    osh_tok_trie_deinit(cx, &p->trie);
    osh_free(cx, p->unk);
    osh_free(cx, p);
}

static bool wordpiece_find(const void *state, const char *token, size_t n, int32_t *id)
{
    const wordpiece *p = state;
    int32_t found = osh_tok_trie_find(&p->trie, token, n);

    if (found >= 0) *id = found;
    return found >= 0;
}

static size_t wordpiece_size(const void *state) { return ((const wordpiece *)state)->size; }

static int32_t wordpiece_max_id(const void *state) { return ((const wordpiece *)state)->max_id; }

static osh_status wordpiece_add_unknown(osh_ctx *cx, const wordpiece *p, osh_ids *ids)
{
    osh_status rc = OSH_OK;

    if (p->unk_id < 0)
        OSH_FAIL(cx, OSH_E_FORMAT, "the unknown token '%s' is not in the vocabulary", p->unk);
    OSH_TRY(osh_ids_reserve(cx, ids, 1));
    ids->ids[ids->n++] = p->unk_id;
done:
    return rc;
}

static int64_t utf8_count_chars(const char *s, size_t n)
{
    int64_t k = 0;

    for (size_t i = 0; i < n; i++) k += ((unsigned char)s[i] & 0xC0) != 0x80;
    return k;
}

static osh_status wordpiece_encode(osh_ctx *cx, void *state, osh_ids *ids, const char *word,
                                   size_t n)
{
    osh_status rc = OSH_OK;
    const wordpiece *p = state;
    int64_t begin = ids->n;
    bool known = utf8_count_chars(word, n) <= p->max_chars;

    for (size_t at = 0, end = 0; known && at < n; at = end) {
        uint32_t node = at ? p->behind : 0;
        int32_t id = -1;
        for (size_t k = at; k < n && (!at || p->any_behind); k++) {
            if (!osh_tok_trie_step(&p->trie, &node, (unsigned char)word[k])) break;
            if (p->trie.id[node] >= 0) id = p->trie.id[node], end = k + 1;
        }
        known = id >= 0;
        if (!known) break;
        OSH_TRY(osh_ids_reserve(cx, ids, 1));
        ids->ids[ids->n++] = id;
    }
    if (known) goto done;
    ids->n = begin;
    OSH_TRY(wordpiece_add_unknown(cx, p, ids));
done:
    return rc;
}

static osh_status wordlevel_encode(osh_ctx *cx, void *state, osh_ids *ids, const char *word,
                                   size_t n)
{
    osh_status rc = OSH_OK;
    const wordpiece *p = state;
    int32_t id = osh_tok_trie_find(&p->trie, word, n);

    if (id < 0) return wordpiece_add_unknown(cx, p, ids);
    OSH_TRY(osh_ids_reserve(cx, ids, 1));
    ids->ids[ids->n++] = id;
done:
    return rc;
}

static osh_status wordpiece_load_vocab(osh_ctx *cx, wordpiece *p, const osh_tok_list *list,
                                       const char *what)
{
    osh_status rc = OSH_OK;
    osh_tok_words words; // own
    osh_tok_items it;    // own
    const struct osh_tok_word *twice = NULL;
    bool any = false;

    osh_tok_words_init(&words);
    osh_tok_items_init(&it, cx, list);
    if (!list->text) OSH_FAIL(cx, OSH_E_FORMAT, "%s: model without a \"vocab\" object", what);
    p->max_id = -1;
    for (;;) {
        int32_t id;
        OSH_TRY(osh_tok_items_next(&it, &any));
        if (!any) break;
        OSH_TRY(osh_tok_item_id(cx, &it, &id, what));
        OSH_TRY(osh_tok_words_add(cx, &words, it.key.data ? it.key.data : "", it.key.len, id));
        if (id > p->max_id) p->max_id = id;
    }
    p->size = words.n;
    OSH_TRY(osh_tok_trie_build(cx, &p->trie, &words, &twice));
    if (twice)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: the key '%.*s' occurs twice in one object", what,
                 (int)twice->n, twice->s);
done:
    osh_tok_words_deinit(cx, &words);
    osh_tok_items_deinit(cx, &it);
    return rc;
}

static osh_status wordpiece_load_base(osh_ctx *cx, wordpiece **out, const osh_tok_file *f,
                                      const char *what)
{
    osh_status rc = OSH_OK;
    const cJSON *o = cJSON_GetObjectItemCaseSensitive(f->tree, "model");
    wordpiece *p = NULL; // own
    size_t n = 0;

    OSH_NEW(cx, p, 1);
    OSH_TRY(osh_tok_member(cx, &p->unk, &n, o, "unk_token", what));
    OSH_TRY(wordpiece_load_vocab(cx, p, &f->vocab, what));
    p->unk_id = osh_tok_trie_find(&p->trie, p->unk, n);
    *out = p, p = NULL; // give
done:
    if (p) wordpiece_free(cx, p);
    return rc;
}

static osh_status wordpiece_load(osh_ctx *cx, void **state, const osh_tok_file *f, const char *what)
{
    osh_status rc = OSH_OK;
    const cJSON *o = cJSON_GetObjectItemCaseSensitive(f->tree, "model");
    wordpiece *p = NULL;  // own
    char *prefix = NULL;  // own
    size_t n = 0;

    OSH_TRY(wordpiece_load_base(cx, &p, f, what));
    OSH_TRY(osh_tok_member(cx, &prefix, &n, o, "continuing_subword_prefix", what));
    OSH_TRY(osh_json_int(cx, &p->max_chars, o, "max_input_chars_per_word", what));
    if (p->max_chars < 0)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: \"max_input_chars_per_word\" is %lld, want a number from 0",
                 what, (long long)p->max_chars);
    p->any_behind = true;
    for (size_t i = 0; i < n && p->any_behind; i++)
        p->any_behind = osh_tok_trie_step(&p->trie, &p->behind, (unsigned char)prefix[i]);
    *state = p, p = NULL; // give
done:
    osh_free(cx, prefix);
    if (p) wordpiece_free(cx, p);
    return rc;
}

static osh_status wordlevel_load(osh_ctx *cx, void **state, const osh_tok_file *f, const char *what)
{
    wordpiece *p = NULL;
    osh_status rc = wordpiece_load_base(cx, &p, f, what);

    *state = p;
    return rc;
}

const osh_tok_model_type osh_tok_wordpiece = {
    .name = "WordPiece", .load = wordpiece_load, .free = wordpiece_free, .encode = wordpiece_encode,
    .find = wordpiece_find, .size = wordpiece_size, .max_id = wordpiece_max_id};

const osh_tok_model_type osh_tok_wordlevel = {
    .name = "WordLevel", .load = wordlevel_load, .free = wordpiece_free, .encode = wordlevel_encode,
    .find = wordpiece_find, .size = wordpiece_size, .max_id = wordpiece_max_id};
