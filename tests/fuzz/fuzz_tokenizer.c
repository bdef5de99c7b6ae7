/* fuzz_tokenizer.c - reads any bytes as tokenizer.json and as text. The process must not crash or
 * leak, and the checks of tokenize.h must be true.
 *
 * The input is tokenizer.json, the separator "\n%%\n", and the text. Without the separator,
 * tokenizer.json is also the text. */
#include "fuzz/tokenize.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char mark[] = "\n%%\n";
    osh_ctx *cx = fuzz_ctx();
    osh_tokenizer *t = NULL;
    const char *at = n ? memmem(data, n, mark, 4) : NULL;
    size_t n_json = at ? (size_t)(at - (const char *)data) : n;
    const char *text = at ? at + 4 : (const char *)data;
    size_t n_text = at ? n - n_json - 4 : n;

    if (!osh_tokenizer_parse(cx, &t, (const char *)data, n_json, "fuzz"))
        fuzz_tokenize(cx, t, text, n_text, 1 + n % 13);
    osh_tokenizer_close(cx, t);
    fuzz_ctx_free(cx);
    return 0;
}
