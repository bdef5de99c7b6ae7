/* counted.c - copies the rows of a value that count in statistics. The host makes the list of these
 * rows. If the value is on a device, the device copies the rows in the list. */
#include "graph/counted.h"

#include "ops/device_ops.h"

static bool row_is_zero(const char *row, size_t n)
{
    return !row[0] && !memcmp(row, row + 1, n - 1);
}

/* Lists the rows of x that `which` selects. Sets c->part and c->offsets. */
static void counted_list(int32_t *list, osh_counted *c, const osh_tensor *x, const osh_batch *b,
                         const osh_counting *which)
{
    size_t row = (size_t)x->shape[1] * osh_dtype_bytes(x->dtype);
    int64_t n = 0;
    for (int64_t k = 0; k < b->seqs.n; k++) {
        for (int64_t t = b->seqs.offsets[k]; t < b->seqs.offsets[k + 1]; t++) {
            if (which->counted && !which->counted[t]) continue;
            if (which->routed && row_is_zero((const char *)x->data + (size_t)t * row, row))
                continue;
            list[n++] = (int32_t)t;
        }
        c->offsets[k + 1] = n;
    }
    c->part.n_tokens = n, c->part.seqs.offsets = c->offsets;
}

/* Copies the n listed rows of x to a new tensor. there: copy of the list on the device of x. */
static osh_status counted_copy(osh_ctx *cx, osh_tensor **out, const osh_tensor *x,
                               const int32_t *list, int64_t n, const osh_tensor *there)
{
    osh_status rc = OSH_OK;
    osh_tensor *t = NULL; // own
    size_t row = (size_t)x->shape[1] * osh_dtype_bytes(x->dtype);
    OSH_TRY(osh_tensor_new_on(cx, &t, (osh_where){x->device, OSH_LIFE_SHORT}, x->dtype, 2,
                              (int64_t[]){n ? n : 1, x->shape[1]}));
    t->shape[0] = n;
    if (n && x->device)
        OSH_TRY(osh_device_ops_of(x->device)->gather(cx, t, x, &(osh_op_rows){there->data, n}));
    for (int64_t i = 0; !x->device && i < n; i++)
        memcpy((char *)t->data + (size_t)i * row, (const char *)x->data + (size_t)list[i] * row,
               row);
    *out = t, t = NULL; // give
done:
    osh_tensor_free(cx, t);
    return rc;
}

osh_status osh_counted_new(osh_ctx *cx, osh_counted *out, const osh_tensor *x,
                           const osh_tensor *original, const osh_batch *b,
                           const osh_counting *which)
{
    osh_status rc = OSH_OK;
    osh_counted c = {.part = *b}; // own
    int32_t *list = NULL; // own [tokens]
    osh_tensor *there = NULL; // own: copy of the list on the device
    osh_mem_class old = osh_mem_use(cx, OSH_MEM_HOST);
    if (x->device && which->routed)
        OSH_FAIL(cx, OSH_E_INTERNAL, "zero rows on a device are not searched");
    OSH_NEW(cx, c.offsets, b->seqs.n + 1);
    OSH_NEW(cx, list, b->n_tokens);
    counted_list(list, &c, x, b, which);
    int64_t n = c.part.n_tokens;
    if (x->device && n) {
        OSH_TRY(osh_tensor_new_on(cx, &there, (osh_where){x->device, OSH_LIFE_SHORT}, OSH_I32, 1,
                                  &n));
        OSH_TRY(osh_tensor_put(cx, there, 0, list, (size_t)n * sizeof *list));
    }
    OSH_TRY(counted_copy(cx, &c.x, x, list, n, there));
    if (original) OSH_TRY(counted_copy(cx, &c.original, original, list, n, there));
    *out = c, c = (osh_counted){0}; // give
done:
    osh_mem_use(cx, old);
    osh_tensor_free(cx, there);
    osh_free(cx, list);
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
    size_t lists = osh_mem_gross((size_t)n_tokens * sizeof(int32_t)) +
                   osh_mem_gross((size_t)(n_samples + 1) * sizeof(int64_t));
    return (original ? 2 : 1) * osh_tensor_gross((size_t)n_tokens * row_bytes) + lists;
}

size_t osh_counted_device_bytes(size_t row_bytes, int64_t n_rows, bool original)
{
    return (original ? 2 : 1) * osh_arena_gross((size_t)n_rows * row_bytes) +
           osh_arena_gross((size_t)n_rows * sizeof(int32_t));
}

/* ---- rows of an expert, on a device ---- */

/* Sets c->rows.at and c->tokens to lists of the rows that count, on the device. tokens: token of
 * each row of b->rows, in host memory. If b->rows->at is not NULL, the number of a row is its
 * token. */
static osh_status expert_put_lists(osh_ctx *cx, osh_expert_counted *c, const osh_batch *b,
                                   const uint8_t *counted, const int32_t *tokens)
{
    osh_status rc = OSH_OK;
    int64_t n = c->rows.n, to = 0;
    int32_t *list = NULL; // own [2, n]: numbers of the rows, then their tokens
    OSH_NEW(cx, list, 2 * n);
    for (int64_t i = 0; i < b->rows->n; i++) {
        if (!counted[tokens[i]]) continue;
        list[to] = b->rows->at ? tokens[i] : (int32_t)i;
        list[n + to++] = tokens[i];
    }
    OSH_TRY(osh_tensor_new_on(cx, &c->lists, (osh_where){b->device, OSH_LIFE_SHORT}, OSH_I32, 2,
                              (int64_t[]){2, n}));
    OSH_TRY(osh_tensor_put(cx, c->lists, 0, list, osh_tensor_bytes(c->lists)));
    c->rows.at = c->lists->data, c->tokens = (const int32_t *)c->lists->data + n;
done:
    osh_free(cx, list);
    return rc;
}

osh_status osh_expert_counted_new(osh_ctx *cx, osh_expert_counted *out, const osh_batch *b,
                                  const uint8_t *counted)
{
    osh_status rc = OSH_OK;
    osh_device *d = b->device;
    int64_t n = b->rows->n, k = 0;
    int32_t *tokens = NULL;                                                 // own [n]
    osh_expert_counted c = {.rows = {b->rows->at, 0}, .tokens = b->tokens}; // own
    OSH_NEW(cx, c.offsets, b->seqs.n + 1);
    OSH_NEW(cx, tokens, n);
    if (n) OSH_TRY(d->type->get(cx, d, tokens, b->tokens, (size_t)n * sizeof *tokens));
    for (int64_t i = 0; i < n; i++) {
        while (tokens[i] >= b->seqs.offsets[k + 1]) c.offsets[++k] = c.rows.n;
        c.rows.n += !counted || counted[tokens[i]];
    }
    while (k < b->seqs.n) c.offsets[++k] = c.rows.n;
    if (counted && c.rows.n) OSH_TRY(expert_put_lists(cx, &c, b, counted, tokens));
    *out = c, c = (osh_expert_counted){0}; // give
done:
    osh_free(cx, tokens);
    osh_expert_counted_deinit(cx, &c);
    return rc;
}

void osh_expert_counted_deinit(osh_ctx *cx, osh_expert_counted *c)
{
    osh_tensor_free(cx, c->lists);
    osh_free(cx, c->offsets);
    *c = (osh_expert_counted){0};
}

size_t osh_expert_counted_device_bytes(int64_t n_rows)
{
    return osh_arena_gross((size_t)(2 * n_rows) * sizeof(int32_t));
}
