/* map.c - maps strings to int64 by open addressing over an array of entries; the keys are stored in
 * one block.
 *
 *   slots   [ . 3 . 1 . 2 . . ]    index in `entries` + 1; 0: empty; 2^n slots, at most half full
 *   entries [ {hash, at, len, value} ... ]   in order of insertion
 *   keys    "modelmodel.layers..."   entry.at points into it; a map of views uses entry.key instead
 */
#include "base/map.h"

#include <string.h>

typedef struct entry {
    uint64_t hash;
    union {
        size_t at;
        const char *key;
    };
    size_t len;
    int64_t value;
} entry;

struct osh_map {
    uint32_t *slots; // own
    entry *entries;  // own
    char *keys;      // own
    bool views;      // true if the keys belong to the caller
    size_t n_slots, n, cap_entries, n_keys, cap_keys;
};

/* Hashes eight bytes at a time by a multiply and a shift. The length is hashed too, so "a" and
 * "a\0" differ. */
static uint64_t map_hash(const char *key, size_t len)
{
    uint64_t h = 0x9E3779B97F4A7C15ull ^ len, x;
    size_t i = 0;
    for (; i + 8 <= len; i += 8) {
        memcpy(&x, key + i, 8);
        h = (h ^ x) * 0xBF58476D1CE4E5B9ull;
        h ^= h >> 32;
    }
    x = 0;
    if (i < len) memcpy(&x, key + i, len - i);
    h = (h ^ x) * 0x94D049BB133111EBull;
    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9ull;
    return h ^ (h >> 32);
}

/* Returns the slot of the key, or the empty slot in which to store it. */
static size_t map_slot(const osh_map *m, uint64_t hash, const char *key, size_t len)
{
    size_t mask = m->n_slots - 1, s = (size_t)hash & mask;
    for (; m->slots[s]; s = (s + 1) & mask) {
        const entry *e = &m->entries[m->slots[s] - 1];
        if (e->hash != hash || e->len != len) continue;
        if (len == 0 || memcmp(m->views ? e->key : m->keys + e->at, key, len) == 0) break;
    }
    return s;
}

static osh_status map_rehash(osh_ctx *cx, osh_map *m, size_t n_slots)
{
    uint32_t *slots = osh_calloc(cx, n_slots, sizeof *slots);
    if (!slots) return OSH_E_NOMEM;
    for (size_t i = 0; i < m->n; i++) {
        size_t s = (size_t)m->entries[i].hash & (n_slots - 1);
        while (slots[s]) s = (s + 1) & (n_slots - 1);
        slots[s] = (uint32_t)(i + 1);
    }
    osh_free(cx, m->slots);
    m->slots = slots;
    m->n_slots = n_slots;
    return OSH_OK;
}

osh_status osh_map_new(osh_ctx *cx, osh_map **out, size_t n_expected)
{
    osh_status rc = OSH_OK;
    osh_map *m = NULL; // own
    size_t n_slots = 16;

    *out = NULL;
    OSH_NEW(cx, m, 1);
    while (n_slots < 2 * n_expected && n_slots < ((size_t)1 << 31)) n_slots *= 2;
    OSH_TRY(map_rehash(cx, m, n_slots));
    m->cap_entries = n_expected < 8 ? 8 : n_expected;
    OSH_NEW(cx, m->entries, m->cap_entries);
    *out = m, m = NULL;
done:
    osh_map_free(cx, m);
    return rc;
}

osh_status osh_map_new_views(osh_ctx *cx, osh_map **out, size_t n_expected)
{
    osh_status rc = osh_map_new(cx, out, n_expected);
    if (!rc) (*out)->views = true;
    return rc;
}

void osh_map_free(osh_ctx *cx, osh_map *m)
{
    if (!m) return;
    osh_free(cx, m->slots);
    osh_free(cx, m->entries);
    osh_free(cx, m->keys);
    osh_free(cx, m);
}

/* Reserves memory for one more key of len bytes. */
static osh_status map_reserve(osh_ctx *cx, osh_map *m, size_t len)
{
    size_t need;
    if (m->n >= UINT32_MAX - 1)
        return osh_fail(cx, OSH_E_FORMAT, "more than %u keys in one table", UINT32_MAX - 1);
    if (2 * (m->n + 1) > m->n_slots) {
        osh_status rc = map_rehash(cx, m, m->n_slots * 2);
        if (rc) return rc;
    }
    if (m->n == m->cap_entries) {
        entry *e = osh_realloc(cx, m->entries, 2 * m->cap_entries * sizeof *e);
        if (!e) return OSH_E_NOMEM;
        m->entries = e;
        m->cap_entries *= 2;
    }
    if (m->views) return OSH_OK;
    if (__builtin_add_overflow(m->n_keys, len, &need))
        return osh_fail(cx, OSH_E_NOMEM, "cannot allocate %zu bytes", len);
    if (need > m->cap_keys) {
        size_t cap = need < m->cap_keys * 2 ? m->cap_keys * 2 : need + 64;
        char *keys = osh_realloc(cx, m->keys, cap);
        if (!keys) return OSH_E_NOMEM;
        m->keys = keys;
        m->cap_keys = cap;
    }
    return OSH_OK;
}

osh_status osh_map_put(osh_ctx *cx, osh_map *m, const char *key, size_t len, int64_t value)
{
    uint64_t hash = map_hash(key, len);
    size_t s = map_slot(m, hash, key, len);
    if (m->slots[s]) {
        m->entries[m->slots[s] - 1].value = value;
        return OSH_OK;
    }
    osh_status rc = map_reserve(cx, m, len);
    if (rc) return rc;
    s = map_slot(m, hash, key, len); // the slot is searched again, because the table may have grown
    m->entries[m->n] = (entry){.hash = hash, .len = len, .value = value};
    if (m->views) m->entries[m->n].key = key;
    else {
        if (len) memcpy(m->keys + m->n_keys, key, len);
        m->entries[m->n].at = m->n_keys;
        m->n_keys += len;
    }
    m->slots[s] = (uint32_t)++m->n;
    return OSH_OK;
}

bool osh_map_get(const osh_map *m, const char *key, size_t len, int64_t *value)
{
    size_t s = map_slot(m, map_hash(key, len), key, len);
    if (!m->slots[s]) return false;
    *value = m->entries[m->slots[s] - 1].value;
    return true;
}

size_t osh_map_count(const osh_map *m)
{
    return m->n;
}
