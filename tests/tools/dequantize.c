/* dequantize.c - dequantizes a compressed checkpoint with the functions of oneshot:
 *
 *   dequantize CHECKPOINT OUT.safetensors      OUT gets only the quantized weights, in the model's
 *                                              dtype
 *
 * tests/golden/decompress/check.py compares the weights with those of compressed-tensors for the
 * same files. */
#include "io/safetensors.h"
#include "quant/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static osh_status write_weights(osh_ctx *cx, osh_checkpoint *ck, const char *path)
{
    osh_status rc = OSH_OK;
    osh_entry *e = NULL;    // own; the names are views
    char *header = NULL;    // own
    void *data = NULL;      // own
    size_t n_header = 0;
    FILE *f = fopen(path, "wb"); // own

    if (!f) OSH_FAIL(cx, OSH_E_IO, "cannot write %s", path);
    OSH_NEW(cx, e, ck->n_virtuals + 1);
    for (int i = 0; i < ck->n_virtuals; i++) e[i] = *ck->virtuals[i].e;
    OSH_TRY(osh_safetensors_layout_array(cx, &header, &n_header, e, ck->n_virtuals));
    if (fwrite(header, 1, n_header, f) != n_header) OSH_FAIL(cx, OSH_E_IO, "cannot write %s", path);
    for (int i = 0; i < ck->n_virtuals; i++) {
        size_t n = (size_t)(e[i].end - e[i].begin);
        osh_free(cx, data);
        if (!(data = osh_alloc(cx, n))) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", e[i].name);
        OSH_TRY(osh_checkpoint_read(cx, data, ck, osh_checkpoint_find(ck, e[i].name)));
        if (fwrite(data, 1, n, f) != n) OSH_FAIL(cx, OSH_E_IO, "cannot write %s", path);
    }
done:
    if (f && fclose(f) && !rc) rc = osh_fail(cx, OSH_E_IO, "cannot write %s", path);
    osh_free(cx, data);
    osh_free(cx, header);
    osh_free(cx, e);
    return rc;
}

int main(int argc, char **argv)
{
    osh_ctx *cx = NULL;
    osh_source *s = NULL;
    if (argc != 3 || osh_ctx_new(&cx, 1)) {
        fprintf(stderr, "usage: dequantize CHECKPOINT OUT.safetensors\n");
        return 2;
    }
    osh_status rc = osh_source_open(cx, &s, argv[1]);
    if (!rc) rc = write_weights(cx, osh_source_checkpoint(s), argv[2]);
    if (rc) fprintf(stderr, "%s\n", osh_error_text(cx));
    osh_source_close(cx, s);
    osh_ctx_free(cx);
    return rc ? 1 : 0;
}
