/* padding.c - adds zeros to tensors when they are read. Stored rows are read to the beginning of
 * the buffer. Then they are moved apart, from the last row to the first, so no second buffer is
 * needed:
 *
 *   read      a b c d          rows [2, 2]
 *   moved     a b 0 c d 0      rows [2, 3] */
#include <string.h>

#include "io/ckpt_replace.h"
#include "quant/source_impl.h"

struct osh_padding {     // a tensor to which zeros are added
    osh_checkpoint *ck;  // view
    osh_ckpt_tensor of;  // the stored tensor, without zeros; of.e is NULL if the tensor is virtual
    osh_entry base;      // name (a view), dtype and shape of the tensor without zeros
    osh_ckpt_make make;  // computes rows without zeros if the tensor is virtual; NULL: it is stored
    void *user;          // argument of `make`
    osh_grown rows, columns;
};

/* Adds the zeros to n rows in place. On entry, `to` has the rows without added zeros. */
static void rows_spread(char *to, const struct osh_padding *p, int64_t n)
{
    size_t size = osh_dtype_bytes(p->base.dtype), from = (size_t)p->columns.from * size,
           wide = (size_t)p->columns.to * size;
    int64_t parts = osh_ckpt_columns(&p->base) / p->columns.from;
    for (int64_t i = n * parts - 1; i >= 0; i--) {
        char *part = to + (size_t)i * wide;
        memmove(part, to + (size_t)i * from, from);
        memset(part + from, 0, wide - from);
    }
}

/* Reads rows [first, first + n) of the tensor without the added zeros. */
static osh_status rows_read(osh_ctx *cx, char *to, const struct osh_padding *p, int64_t first,
                            int64_t n)
{
    int64_t row = osh_ckpt_columns(&p->base) * (int64_t)osh_dtype_bytes(p->base.dtype);
    if (p->make) return p->make(cx, to, p->user, &p->base, first, n);
    return osh_checkpoint_read_part(cx, to, p->ck, &p->of, first * row, (size_t)(n * row));
}

/* Reads rows [first, first + n) of a tensor, with the added zeros. This function has the type
 * osh_ckpt_make. */
static osh_status padded_rows(osh_ctx *cx, void *out, void *user, const osh_entry *e, int64_t first,
                              int64_t n)
{
    osh_status rc = OSH_OK;
    const struct osh_padding *p = user;
    char *to = out;
    size_t row = (size_t)osh_ckpt_columns(e) * osh_dtype_bytes(e->dtype);
    for (int64_t k; n > 0; first += k, n -= k, to += (size_t)k * row) {
        int64_t part = first / p->rows.to, at = first % p->rows.to;
        bool zeros = at >= p->rows.from;
        k = (zeros ? p->rows.to : p->rows.from) - at;
        if (k > n) k = n;
        if (zeros) {
            memset(to, 0, (size_t)k * row);
            continue;
        }
        OSH_TRY(rows_read(cx, to, p, part * p->rows.from + at, k));
        if (p->columns.to > p->columns.from) rows_spread(to, p, k);
    }
done:
    return rc;
}

static osh_status entry_grow(osh_ctx *cx, osh_entry *e, const struct osh_padding *p)
{
    osh_status rc = OSH_OK;
    int64_t n = 0;
    int last = e->ndim - 1;
    e->shape[last] = e->shape[last] / p->columns.from * p->columns.to;
    if (last > 0) e->shape[last - 1] = e->shape[last - 1] / p->rows.from * p->rows.to;
    if (!osh_shape_numel(&n, e->ndim, e->shape) ||
        __builtin_mul_overflow(n, (int64_t)osh_dtype_bytes(e->dtype), &n))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: with the zeros, its size is too large to address", e->name);
    e->begin = 0, e->end = n, e->at = e->row = e->column = 0;
done:
    return rc;
}

/* Makes a tensor virtual: its zeros are added when it is read. */
static osh_status tensor_pad(osh_ctx *cx, osh_checkpoint *ck, struct osh_padding *p,
                             const osh_padded *of)
{
    osh_status rc = OSH_OK;
    const osh_ckpt_tensor t = ck->tensors[of->tensor];
    osh_ckpt_virtual *v = t.shard < 0 ? &ck->virtuals[-1 - t.shard] : NULL;
    *p = (struct osh_padding){.ck = ck, .base = *t.e, .rows = of->rows, .columns = of->columns};
    if (v && (!v->make || v->kept))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: codes that are copied cannot be padded: want --only to name all modules of "
                 "the MLPs",
                 t.e->name);
    if (v) {
        p->make = v->make, p->user = v->user;
        OSH_TRY(entry_grow(cx, v->e, p));
    } else {
        osh_entry like = *t.e;
        p->of = t;
        OSH_TRY(entry_grow(cx, &like, p));
        OSH_TRY(osh_checkpoint_replace(cx, &v, ck, of->tensor, &like));
        v->dense = true;
    }
    v->make = padded_rows, v->user = p;
done:
    return rc;
}

osh_status osh_source_pad(osh_ctx *cx, osh_source *s, const osh_padded *of, int64_t n)
{
    osh_status rc = OSH_OK;
    OSH_NEW(cx, s->padding, n);
    for (; s->n_padded < n; s->n_padded++)
        OSH_TRY(tensor_pad(cx, s->ck, &s->padding[s->n_padded], &of[s->n_padded]));
done:
    return rc;
}

int64_t osh_source_n_padded(const osh_source *s) { return s->n_padded; }

size_t osh_padding_scratch(const osh_source *s)
{
    // the buffer of a direct read (O_DIRECT) of a stored tensor
    return s->n_padded ? osh_mem_gross(OSH_DIRECT_BYTES + OSH_BLOCK_BYTES) : 0;
}
