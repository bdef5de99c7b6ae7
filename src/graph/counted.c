/* counted.c - copies the rows of a value that count in statistics. */
#include "graph/counted.h"

static bool row_is_zero(const char *row, size_t n)
{
    return !row[0] && !memcmp(row, row + 1, n - 1);
}

/* Copies a row of x to t. Its index is `from` in x, and `to` in t. */
static void row_copy(osh_tensor *t, int64_t to, const osh_tensor *x, int64_t from)
{
    size_t n = (size_t)x->shape[1] * osh_dtype_bytes(x->dtype);
    memcpy((char *)t->data + (size_t)to * n, (const char *)x->data + (size_t)from * n, n);
}

osh_status osh_counted_new(osh_ctx *cx, osh_counted *out, const osh_tensor *x,
                           const osh_tensor *original, const osh_batch *b,
                           const osh_counting *which)
{
    osh_status rc = OSH_OK;
    osh_counted c = {.part = *b}; // own
    size_t row = (size_t)x->shape[1] * osh_dtype_bytes(x->dtype);
    int64_t n = 0;
    osh_mem_class old = osh_mem_use(cx, OSH_MEM_HOST);
    OSH_NEW(cx, c.offsets, b->seqs.n + 1);
    OSH_TRY(osh_tensor_new(cx, &c.x, x->dtype, 2, x->shape));
    if (original)
        OSH_TRY(osh_tensor_new(cx, &c.original, original->dtype, 2, original->shape));
    for (int64_t k = 0; k < b->seqs.n; k++) {
        for (int64_t t = b->seqs.offsets[k]; t < b->seqs.offsets[k + 1]; t++) {
            if (which->counted && !which->counted[t]) continue;
            const char *at = (const char *)x->data + (size_t)t * row;
            if (which->routed && row_is_zero(at, row)) continue;
            row_copy(c.x, n, x, t);
            if (original) row_copy(c.original, n, original, t);
            n++;
        }
        c.offsets[k + 1] = n;
    }
    c.x->shape[0] = c.part.n_tokens = n, c.part.seqs.offsets = c.offsets;
    if (original) c.original->shape[0] = n;
    *out = c, c = (osh_counted){0}; // give
done:
    osh_mem_use(cx, old);
    osh_counted_deinit(cx, &c);
    return rc;
}

void osh_counted_deinit(osh_ctx *cx, osh_counted *c)
{
    osh_tensor_free(cx, c->x);
    osh_tensor_free(cx, c->original);
    osh_free(cx, c->offsets);
    *c = (osh_counted){0};
}

size_t osh_counted_bytes(size_t row_bytes, int64_t n_tokens, int64_t n_samples, bool original)
{
    return (original ? 2 : 1) * osh_tensor_gross((size_t)n_tokens * row_bytes) +
           osh_mem_gross((size_t)(n_samples + 1) * sizeof(int64_t));
}
