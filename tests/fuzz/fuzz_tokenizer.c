/* fuzz_tokenizer.c - arbitrary bytes as tokenizer.json and as text: no crash, no leak, the same ids
 * twice, and the same in parts of a few bytes.
 *
 *   input: tokenizer.json, "\n%%\n", text. Without the separator the text is the file itself. */
#include "fuzz/fuzz.h"
#include "tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char mark[] = "\n%%\n";
    osh_ctx *cx = fuzz_ctx();
    osh_tokenizer *t = NULL;
    osh_ids one = {0}, two = {0};
    const char *at = n ? memmem(data, n, mark, 4) : NULL;
    size_t n_json = at ? (size_t)(at - (const char *)data) : n;
    const char *text = at ? at + 4 : (const char *)data;
    size_t n_text = at ? n - n_json - 4 : n;

    if (!osh_tokenizer_parse(cx, &t, (const char *)data, n_json, "fuzz")) {
        osh_status rc = osh_tokenizer_encode(cx, t, &one, text, n_text, true);
        osh_error_clear(cx);
        if (osh_tokenizer_encode(cx, t, &two, text, n_text, true) != rc) abort();
        if (!rc && (one.n != two.n || (one.n && memcmp(one.ids, two.ids, (size_t)one.n * 4))))
            abort();
        two.n = 0;
        osh_tokenizer_part_bytes(t, 1 + n % 13);
        osh_error_clear(cx);
        bool parts = !osh_tokenizer_encode(cx, t, &two, text, n_text, true); // limits of a part, where not
        if (!rc && parts && (one.n != two.n || (one.n && memcmp(one.ids, two.ids, (size_t)one.n * 4)))) abort();
        for (int64_t i = 0; !rc && i < one.n; i++)
            if (one.ids[i] < 0) abort();
    }
    osh_ids_deinit(cx, &one);
    osh_ids_deinit(cx, &two);
    osh_tokenizer_close(cx, t);
    fuzz_ctx_free(cx);
    return 0;
}
