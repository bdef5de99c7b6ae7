/* tokenize.h - checks any tokenizer on any text. The ids must be the same if the text is encoded
 * again, as a whole or in parts of a few bytes. No id may be negative. */
#ifndef OSH_FUZZ_TOKENIZE_H
#define OSH_FUZZ_TOKENIZE_H
#include "fuzz/fuzz.h"
#include "tokenizer/tokenizer.h"

static inline bool fuzz_same_ids(const osh_ids *a, const osh_ids *b)
{
    return a->n == b->n && (!a->n || !memcmp(a->ids, b->ids, (size_t)a->n * sizeof *a->ids));
}

static inline void fuzz_tokenize(osh_ctx *cx, osh_tokenizer *t, const char *text, size_t n,
                                 size_t part_bytes)
{
    osh_ids one = {0}, two = {0};
    osh_status rc = osh_tokenizer_encode(cx, t, &one, text, n, true);

    osh_error_clear(cx);
    CHECK(osh_tokenizer_encode(cx, t, &two, text, n, true) == rc);
    CHECK(rc || fuzz_same_ids(&one, &two));
    two.n = 0;
    osh_tokenizer_part_bytes(t, part_bytes);
    osh_error_clear(cx);
    // parts: false if a limit is exceeded while the text is encoded in parts
    bool parts = !osh_tokenizer_encode(cx, t, &two, text, n, true);
    CHECK(rc || !parts || fuzz_same_ids(&one, &two));
    for (int64_t i = 0; !rc && i < one.n; i++) CHECK(one.ids[i] >= 0);
    osh_ids_deinit(cx, &one);
    osh_ids_deinit(cx, &two);
}
#endif
