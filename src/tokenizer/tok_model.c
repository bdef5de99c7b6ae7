/* tok_model.c - chooses the model of a tokenizer by its type, and caches the ids of short words. */
#include "tokenizer/tok_model.h"
#include <string.h>

#define CACHE_SLOTS 16384
#define CACHE_KEY 78
#define CACHE_IDS 10

typedef struct cached { // cached ids of one word; 128 bytes
    uint32_t hash;
    uint8_t len, n_ids; // len: number of bytes of the word; 0: the slot is free
    char key[CACHE_KEY];
    int32_t ids[CACHE_IDS];
    uint32_t unused;
} cached;

struct osh_tok_model {
    const osh_tok_model_type *type;
    void *state;   // own
    cached *cache; // own
};

bool osh_tok_model_find(const osh_tok_model *m, const char *token, size_t n, int32_t *id)
{
    return m->type->find(m->state, token, n, id);
}

size_t osh_tok_model_size(const osh_tok_model *m) { return m->type->size(m->state); }

int32_t osh_tok_model_max_id(const osh_tok_model *m) { return m->type->max_id(m->state); }

bool osh_tok_model_parts(const osh_tok_model *m, uint32_t x, uint32_t y)
{
    return m->type->parts && m->type->parts(m->state, x, y);
}

void osh_tok_model_free(osh_ctx *cx, osh_tok_model *m)
{
    if (!m) return;
    if (m->state) m->type->free(cx, m->state);
    osh_free(cx, m->cache);
    osh_free(cx, m);
}

static uint32_t word_hash(const char *s, size_t n)
{
    uint64_t h = n * 0x9E3779B97F4A7C15ull, x = 0;

    for (; n >= 8; s += 8, n -= 8) {
        memcpy(&x, s, 8);
        h = (h ^ x) * 0xBF58476D1CE4E5B9ull;
        h ^= h >> 29;
    }
    x = 0;
    memcpy(&x, s, n);
    h = (h ^ x) * 0x94D049BB133111EBull;
    return (uint32_t)(h >> 32);
}

osh_status osh_tok_model_encode(osh_ctx *cx, osh_tok_model *m, osh_ids *ids, const char *word,
                                size_t n)
{
    osh_status rc = OSH_OK;
    uint32_t hash = word_hash(word, n);
    cached *c = n <= CACHE_KEY ? &m->cache[hash % CACHE_SLOTS] : NULL;
    int64_t from = ids->n;

    if (n == 0) return OSH_OK;
    if (c && c->len == n && c->hash == hash && !memcmp(c->key, word, n)) {
        OSH_TRY(osh_ids_reserve(cx, ids, c->n_ids));
        for (int i = 0; i < c->n_ids; i++) ids->ids[ids->n++] = c->ids[i];
        goto done;
    }
    OSH_TRY(m->type->encode(cx, m->state, ids, word, n));
    int64_t k = ids->n - from;
    if (c && k <= CACHE_IDS) {
        c->hash = hash;
        c->len = (uint8_t)n;
        c->n_ids = (uint8_t)k;
        memcpy(c->key, word, n);
        if (k) memcpy(c->ids, ids->ids + from, (size_t)k * sizeof *c->ids);
    }
done:
    return rc;
}

/* Returns the type of a model. If the file names no type, as in early versions, the members of the
 * model show the type. */
static const char *model_type_of(const osh_tok_file *f, const cJSON *model)
{
    bool unk = cJSON_GetObjectItemCaseSensitive(model, "unk_token");

    if (f->merges.text || cJSON_GetObjectItemCaseSensitive(model, "merges")) return "BPE";
    if (f->scores.text) return "Unigram";
    if (unk && cJSON_GetObjectItemCaseSensitive(model, "continuing_subword_prefix") &&
        cJSON_GetObjectItemCaseSensitive(model, "max_input_chars_per_word"))
        return "WordPiece";
    return unk ? "WordLevel" : "without a type";
}

osh_status osh_tok_model_load(osh_ctx *cx, osh_tok_model **out, const osh_tok_file *f,
                              const char *what)
{
    static const osh_tok_model_type *const types[] = {&osh_tok_bpe, &osh_tok_unigram,
                                                      &osh_tok_wordpiece, &osh_tok_wordlevel, NULL};
    osh_status rc = OSH_OK;
    const cJSON *o = cJSON_GetObjectItemCaseSensitive(f->tree, "model");
    osh_tok_model *m = NULL; // own
    const char *name = NULL;
    size_t i = 0;

    OSH_NEW(cx, m, 1);
    OSH_TRY(osh_json_str_or(cx, &name, o, "type", NULL, what));
    if (!name) name = model_type_of(f, o);
    while (types[i] && strcmp(types[i]->name, name)) i++;
    if (!types[i]) OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: model \"%s\" is not supported", what, name);
    m->type = types[i];
    rc = m->type->load(cx, &m->state, f, what);
    if (rc) osh_note(cx, "loading model \"%s\"", name);
    if (rc) goto done;
    OSH_NEW(cx, m->cache, CACHE_SLOTS);
    *out = m, m = NULL; // give
done:
    osh_tok_model_free(cx, m);
    return rc;
}

osh_status osh_tok_item_id(osh_ctx *cx, const osh_tok_items *it, int32_t *id, const char *what)
{
    double v = it->number;

    if (!(v >= 0 && v <= INT32_MAX - 1 && v == (double)(int32_t)v))
        return osh_fail(cx, OSH_E_FORMAT, "%s: the id of token '%.80s' must be an integer from 0",
                        what, it->key.data ? it->key.data : "");
    *id = (int32_t)v;
    return OSH_OK;
}
