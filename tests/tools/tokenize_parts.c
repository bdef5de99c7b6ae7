/* tokenize_parts.c - checks that the ids of a text are the same if the text is encoded whole and in
 * parts:
 *
 *   tokenize_parts MODEL_DIR FILE [BYTES ...]
 *
 * FILE has the text. A part has BYTES bytes; the default is several sizes from 1 to 100000. Prints
 * a line for each size. Exits with 1 on a difference. */
#include "base/file.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check(osh_ctx *cx, osh_tokenizer *t, const osh_ids *want, const char *text, size_t n,
                 size_t part)
{
    osh_ids ids = {0}; // own
    int same = 0;

    osh_tokenizer_part_bytes(t, part);
    if (!osh_tokenizer_encode(cx, t, &ids, text, n, true)) {
        same = ids.n == want->n && !memcmp(ids.ids, want->ids, (size_t)ids.n * sizeof *ids.ids);
        int64_t i = 0;
        while (i < ids.n && i < want->n && ids.ids[i] == want->ids[i]) i++;
        printf("parts of %zu bytes: %lld ids, %s", part, (long long)ids.n,
               same ? "the same" : "OTHERS");
        printf(same ? "\n" : ", from %lld on\n", (long long)i);
    } else {
        printf("parts of %zu bytes: %s\n", part, osh_error_text(cx));
    }
    osh_ids_deinit(cx, &ids);
    return !same;
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {1, 2, 3, 5, 17, 100, 256, 1000, 4096, 10007, 100000};
    osh_ctx *cx = NULL;
    osh_tokenizer *t = NULL; // own
    osh_ids want = {0};      // own
    char *text = NULL;       // own
    size_t n = 0;
    int bad = 0;

    if (argc < 3 || osh_ctx_new(&cx, 1)) return 2;
    if (osh_tokenizer_open(cx, &t, argv[1]) ||
        osh_file_read_all(cx, &text, &n, argv[2], (size_t)1 << 30)) {
        fprintf(stderr, "%s\n", osh_error_text(cx));
        return 2;
    }
    osh_tokenizer_part_bytes(t, n + 1);
    if (osh_tokenizer_encode(cx, t, &want, text, n, true)) {
        fprintf(stderr, "%s\n", osh_error_text(cx));
        return 2;
    }
    for (int i = 3; i < argc; i++) bad |= check(cx, t, &want, text, n, (size_t)atoll(argv[i]));
    for (size_t i = 0; argc == 3 && i < sizeof sizes / sizeof *sizes; i++)
        bad |= check(cx, t, &want, text, n, sizes[i]);
    osh_ids_deinit(cx, &want);
    osh_free(cx, text);
    osh_tokenizer_close(cx, t);
    osh_ctx_free(cx);
    return bad;
}
