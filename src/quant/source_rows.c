/* source_rows.c - decodes rows of a dense weight from the tensors of a storage format (format.h). A
 * weight is (code - zero point) * scale.
 *
 * Each step is rounded as in the reference, and the result is rounded to the model's dtype:
 *
 *   compressed-tensors   computes in the dtype of the scale. Exceptions: nvfp4 is computed in F32
 *                        and rounded to BF16, and mx is computed in BF16
 *   fp8                  computes in F32, as transformers does
 *
 * A scale that is not finite is an error. A scale may be 0 or negative.
 *
 * Rows are decoded in chunks of about PIECE elements, so that a weight of 4,096 x 14,336 needs only
 * 3 MB of scratch. Rows that share a scale (blocks) or a word of zero points are decoded
 * together. */
#include "quant/source_impl.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/num.h"

/* PIECE: number of elements that are decoded together. ZERO_ROWS: number of rows whose packed zero
 * points fill whole words. */
enum { PIECE = 1 << 18, ZERO_ROWS = 32 };

static bool is_per_row(const osh_format_tensor *f)
{
    return !strcmp(f->leaf, "weight_scale") || !strcmp(f->leaf, "weight_zero_point");
}

static bool is_packed_zero(const osh_format_tensor *f)
{
    return !strcmp(f->leaf, "weight_zero_point") && f->dtype == OSH_I32;
}

/* Returns the number of rows that must be decoded together. */
static int64_t rows_together(const osh_source_module *q)
{
    int64_t n = q->scheme->weights.strategy == OSH_Q_BLOCK ? q->scheme->weights.block[0] : 1;
    for (int i = 0; i < q->n_leaves; i++)
        if (is_packed_zero(&q->leaves[i])) n *= ZERO_ROWS;
    return n;
}

static int64_t piece_rows(const osh_source_module *q)
{
    int64_t unit = rows_together(q), n = PIECE / q->I / unit * unit;
    if (n < unit) n = unit;
    return n < q->O ? n : q->O;
}

/* Rows [first, first + rows) of the weight are decoded from some rows of the tensor
 * q->leaves[leaf]. Sets *at to the first of these rows of the tensor, and *n to their number. */
static void rows_of_part(const osh_source_module *q, int leaf, int64_t first, int64_t rows,
                         int64_t *at, int64_t *n)
{
    const osh_format_tensor *f = &q->leaves[leaf];
    const osh_q_args *a = &q->scheme->weights;
    *at = 0, *n = f->shape[0];
    if (leaf == 0) *at = first, *n = rows;
    else if (is_packed_zero(f)) *at = first * a->bits / 32, *n = osh_pack_words(rows, a->bits);
    else if (is_per_row(f) && a->strategy == OSH_Q_BLOCK)
        *at = first / a->block[0], *n = (rows + a->block[0] - 1) / a->block[0];
    else if (is_per_row(f) && a->strategy != OSH_Q_TENSOR) *at = first, *n = rows;
}

static bool is_power(const osh_source_module *q, int leaf) { return leaf == 1 && q->powers; }

/* Converts scales that are stored as exponents + 127 to powers of two in F32. 255 becomes NaN. */
static osh_status widen_powers(osh_ctx *cx, osh_tensor **scale)
{
    osh_status rc = OSH_OK;
    osh_tensor *wide = NULL; // own
    const uint8_t *e = (*scale)->data;
    OSH_TRY(osh_tensor_new(cx, &wide, OSH_F32, (*scale)->ndim, (*scale)->shape));
    for (int64_t i = 0; i < osh_tensor_numel(wide); i++)
        ((float *)wide->data)[i] = e[i] == 255 ? NAN : ldexpf(1, e[i] - 127);
    osh_tensor_free(cx, *scale);
    *scale = wide, wide = NULL; // give
done:
    osh_tensor_free(cx, wide);
    return rc;
}

static osh_status read_part(osh_ctx *cx, osh_tensor **out, const osh_source_module *q, int leaf,
                            int64_t first, int64_t rows)
{
    osh_status rc = OSH_OK;
    const osh_ckpt_tensor *t = &q->parts[leaf];
    const osh_format_tensor *f = &q->leaves[leaf];
    int64_t at, n;
    rows_of_part(q, leaf, first, rows, &at, &n);
    int64_t shape[2] = {n, f->shape[1]},
            row = (t->e->end - t->e->begin) / (f->shape[0] ? f->shape[0] : 1);
    OSH_TRY(osh_tensor_new(cx, out, t->e->dtype, f->ndim, shape));
    OSH_TRY(osh_container_read_part(cx, (*out)->data, q->source->ck->shards[t->shard], t->e,
                                    at * row, (size_t)(n * row)));
    // the stored shape in weight_shape is replaced by the shape of the decoded rows
    if (!strcmp(f->leaf, "weight_shape")) {
        if (t->e->dtype == OSH_I64) ((int64_t *)(*out)->data)[0] = rows;
        else ((int32_t *)(*out)->data)[0] = (int32_t)rows;
    }
    if (is_power(q, leaf)) OSH_TRY(widen_powers(cx, out));
done:
    return rc;
}

/* Fails if a stored scale is not finite, or if the global scale is not positive. */
static osh_status check_scales(osh_ctx *cx, const osh_source_module *q, const osh_qparams *p)
{
    osh_status rc = OSH_OK;
    const osh_tensor *t = p->scale;
    bool relative = q->scheme->weights.strategy == OSH_Q_TENSOR_GROUP;
    if (relative && !(p->global > 0 && isfinite(p->global)))
        OSH_FAIL(cx, OSH_E_NUMERIC, "%s is %g, want a positive number", q->parts[2].e->name,
                 (double)p->global);
    int64_t at = osh_find_nonfinite(t->data, t->dtype, osh_tensor_numel(t));
    if (at >= 0)
        OSH_FAIL(cx, OSH_E_NUMERIC, "%s holds %g, want finite numbers", q->parts[1].e->name,
                 (double)osh_tensor_at(t, at));
done:
    return rc;
}

/* Rounds the elements of `from` to the dtype dt. If `narrow` is true, rounds them to BF16 first. */
static void round_rows_to(void *to, osh_dtype dt, const osh_tensor *from, bool narrow)
{
    enum { N = 1024 };
    float wide[N];
    uint16_t half[N];
    int64_t n = osh_tensor_numel(from), k;
    for (int64_t i = 0; i < n; i += k) {
        k = n - i < N ? n - i : N;
        osh_to_f32(wide, (const char *)from->data + (size_t)i * osh_dtype_bytes(from->dtype),
                   from->dtype, k);
        if (narrow) osh_from_f32(half, OSH_BF16, wide, k), osh_to_f32(wide, half, OSH_BF16, k);
        osh_from_f32((char *)to + (size_t)i * osh_dtype_bytes(dt), dt, wide, k);
    }
}

/* Decodes rows [first, first + rows) to `to` [rows, I] in the dtype of the dense weight. */
static osh_status decode_rows(osh_ctx *cx, void *to, const osh_source_module *q, int64_t first,
                              int64_t rows)
{
    osh_status rc = OSH_OK;
    osh_tensor *raw[OSH_FORMAT_MAX_TENSORS] = {0}; // own
    /* own: decoded rows, before they are rounded to the dtype of the dense weight. */
    osh_tensor *made = NULL;
    void *codes = NULL;       // own
    osh_qparams params = {0}; // own
    for (int i = 0; i < q->n_leaves; i++)
        if (q->parts[i].e) OSH_TRY(read_part(cx, &raw[i], q, i, first, rows));
    if (!(codes = osh_alloc(cx, (size_t)(rows * q->I))))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for codes");
    OSH_TRY(q->format->unpack(cx, codes, &params,
                              &(osh_format_weight){q->scheme, rows, q->I, q->dtype},
                              (const osh_tensor *const *)raw));
    for (int i = 0; i < q->n_leaves; i++) osh_tensor_free(cx, raw[i]), raw[i] = NULL;
    OSH_TRY(check_scales(cx, q, &params));
    bool relative = q->scheme->weights.strategy == OSH_Q_TENSOR_GROUP;
    osh_dtype dt = relative || q->wide ? OSH_F32 : params.scale->dtype;
    osh_tensor view = osh_tensor_view(dt, 2, (int64_t[]){rows, q->I}, to);
    bool narrow = relative && q->dtype != OSH_BF16;
    if (dt != q->dtype || narrow) OSH_TRY(osh_tensor_new(cx, &made, dt, 2, view.shape));
    OSH_TRY(osh_q_decode(cx, made ? made : &view, codes, &params, &q->scheme->weights));
    if (made) round_rows_to(to, q->dtype, made, narrow);
done:
    for (int i = 0; i < OSH_FORMAT_MAX_TENSORS; i++) osh_tensor_free(cx, raw[i]);
    osh_tensor_free(cx, made);
    osh_free(cx, codes);
    osh_qparams_deinit(cx, &params);
    return rc;
}

osh_status osh_source_rows_make(osh_ctx *cx, char *to, const osh_source_module *q, int64_t first,
                                int64_t n)
{
    osh_status rc = OSH_OK;
    int64_t unit = rows_together(q), piece = piece_rows(q), end = first + n, rows;
    size_t row = (size_t)q->I * osh_dtype_bytes(q->dtype);
    void *room = NULL; // own: memory for a chunk of rows from which the caller needs only some rows
    for (int64_t at = first / unit * unit; at < end; at += rows) {
        rows = (end - at + unit - 1) / unit * unit;
        if (rows > piece) rows = piece;
        if (rows > q->O - at) rows = q->O - at;
        OSH_TRY(osh_check_interrupt(cx));
        if (at >= first && at + rows <= end) {
            OSH_TRY(decode_rows(cx, to + (size_t)(at - first) * row, q, at, rows));
            continue;
        }
        if (!room && !(room = osh_alloc(cx, (size_t)piece * row)))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for rows");
        OSH_TRY(decode_rows(cx, room, q, at, rows));
        int64_t from = at > first ? at : first, to_row = at + rows < end ? at + rows : end;
        memcpy(to + (size_t)(from - first) * row, (char *)room + (size_t)(from - at) * row,
               (size_t)(to_row - from) * row);
    }
done:
    osh_free(cx, room);
    return rc;
}

size_t osh_source_rows_bytes(const osh_source_module *q)
{
    // sum: number of bytes of all allocations. longest: largest number of bytes that one read of a
    // stored tensor needs.
    size_t sum = 0, longest = 0;
    int64_t rows = piece_rows(q);
    size_t n = (size_t)(rows * q->I);
    sum += osh_mem_gross(n) + osh_mem_gross(n * sizeof(float));
    if (rows_together(q) > 1) sum += osh_mem_gross(n * osh_dtype_bytes(q->dtype));
    for (int i = 0; i < q->n_leaves; i++) {
        if (!q->parts[i].e) continue;
        int64_t at, k, all = q->leaves[i].shape[0] ? q->leaves[i].shape[0] : 1;
        rows_of_part(q, i, 0, rows, &at, &k);
        size_t part = (size_t)((q->parts[i].e->end - q->parts[i].e->begin) / all * k);
        // a scale or zero point is in memory twice: as read, and in osh_qparams
        sum += (i ? 2 : 1) * osh_tensor_gross(part);
        if (is_power(q, i)) sum += 2 * osh_tensor_gross(part * sizeof(float));
        longest = part > longest ? part : longest;
    }
    // bytes of the buffer for a direct read (O_DIRECT)
    longest = osh_file_room(longest);
    return sum + osh_mem_gross((longest < OSH_DIRECT_BYTES ? longest : OSH_DIRECT_BYTES) +
                               OSH_BLOCK_BYTES);
}
