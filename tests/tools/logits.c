/* logits.c - writes the f32 logits of one sample, token by token, to a file of raw floats:
 *
 *   logits DIR IDS OUT [MODELS_DIR]      IDS: token ids with commas between them */
#include "golden/models/logits.h"

enum { MAX_TOKENS = 4096 };

int main(int argc, char **argv)
{
    osh_ctx *cx = NULL;
    int32_t ids[MAX_TOKENS];
    int64_t offsets[2] = {0, 0}, n_vocab = 0;

    if (argc < 4 || osh_ctx_new(&cx, 1)) return 2;
    for (char *at = argv[2]; *at && offsets[1] < MAX_TOKENS; at += *at == ',')
        ids[offsets[1]++] = (int32_t)strtol(at, &at, 10);
    float *logits = logits_of(cx, argv[1], argc > 4 ? argv[4] : NULL, ids, offsets, 1, &n_vocab);
    tiny_check(cx, osh_file_write_all(cx, argv[3], logits,
                                      (size_t)(offsets[1] * n_vocab) * sizeof *logits));
    free(logits);
    osh_ctx_free(cx);
    return 0;
}
