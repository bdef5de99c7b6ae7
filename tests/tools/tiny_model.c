/* tiny_model.c - writes a checkpoint of tests/golden/models, and its samples as calibration.jsonl:
 *
 *   tiny_model CASE DIR [float32]      dtype bfloat16 by default */
#include "golden/models/tiny.h"

int main(int argc, char **argv)
{
    osh_ctx *cx = NULL;
    tiny_case t;
    char path[512];

    if (argc < 3 || osh_ctx_new(&cx, 1)) return 2;
    tiny_open(cx, &t, argv[1]);
    tiny_write(cx, &t, argv[2], argc > 3 && !strcmp(argv[3], "float32") ? OSH_F32 : OSH_BF16);
    snprintf(path, sizeof path, "%s/calibration.jsonl", argv[2]);
    FILE *f = fopen(path, "w");
    if (!f) return 1;
    for (int s = 0; s < t.n_samples; s++) {
        fprintf(f, "{\"input_ids\": [");
        for (int64_t i = t.offsets[s]; i < t.offsets[s + 1]; i++)
            fprintf(f, "%s%d", i > t.offsets[s] ? ", " : "", (int)t.ids[i]);
        fprintf(f, "]}\n");
    }
    int rc = fclose(f) != 0;
    tiny_close(&t);
    osh_ctx_free(cx);
    return rc;
}
