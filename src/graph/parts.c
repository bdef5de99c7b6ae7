/* parts.c - finds a weight that is a part of a stored tensor: one expert of many, every second
 * column, or a matrix that is stored transposed. A template entry describes such a weight with the
 * key "part":
 *
 *   "part": {"weight": name, "bias": name, "at": e, "first": f, "step": s, "column": c,
 *            "transposed": bool}
 *
 * "weight" and "bias" are names of tensors, relative to the layer.
 * "at" selects a matrix by its index along the first dimension of the tensor. Without "at", the
 * tensor itself is the matrix.
 * Row r of the weight is row f + r s of the matrix, or column f + r s of a transposed matrix.
 * Element r of the bias is element f + r s of its tensor.
 * "column": the columns of the weight begin at column c of the matrix, which may have more columns.
 * Without "column", weight and matrix have equally many columns.
 * A convolution [C, 1, K] counts as a matrix [C, K]. A bias may be [1, E] or [1, 1, E, 1]. */
#include "graph/template.h"

#include <string.h>

typedef struct rule {
    /* Values of the keys "at", "first", "step" and "column".
     * at < 0: the whole tensor is the matrix.
     * column < 0: weight and matrix have equally many columns. */
    int64_t at, first, step, column;
    bool transposed;
} rule;

static osh_status read_rule(osh_ctx *cx, rule *r, const osh_scope *s, const cJSON *json)
{
    osh_status rc = OSH_OK;
    const cJSON *at = cJSON_GetObjectItemCaseSensitive(json, "at"),
                *first = cJSON_GetObjectItemCaseSensitive(json, "first"),
                *step = cJSON_GetObjectItemCaseSensitive(json, "step"),
                *column = cJSON_GetObjectItemCaseSensitive(json, "column");
    *r = (rule){.at = -1, .step = 1, .column = -1};
    if (at) OSH_TRY(osh_scope_int(cx, &r->at, s, at, 0));
    if (first) OSH_TRY(osh_scope_int(cx, &r->first, s, first, 0));
    if (step) OSH_TRY(osh_scope_int(cx, &r->step, s, step, 1));
    if (column) OSH_TRY(osh_scope_int(cx, &r->column, s, column, 0));
    r->transposed = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "transposed"));
done:
    return rc;
}

/* Removes the dimensions of size 1 from the shape. Thus [1, E] and [1, 1, H, 1] become [E] and
 * [H]. */
static void part_flatten(osh_entry *e)
{
    int n = 0;
    for (int d = 0; d < e->ndim; d++)
        if (e->shape[d] != 1) e->shape[n++] = e->shape[d];
    if (n == 0 && e->ndim) e->shape[n++] = 1;
    e->ndim = n;
}

/* Sets the offsets and strides with which *part is read from the tensor `stored`.
 * rows: dimension of the tensor along which the rows of the part follow each other.
 * columns: dimension along which the columns of the part follow each other. */
static osh_status part_place(osh_ctx *cx, osh_entry *part, const osh_entry *stored, const rule *r,
                             int ndim, const int64_t *shape)
{
    osh_status rc = OSH_OK;
    int lead = r->at >= 0, rows = lead + (ndim > 1 && r->transposed),
        columns = lead + !r->transposed;
    // view: the stored tensor without some dimensions of size 1. They are the middle dimension of a
    // convolution [C, 1, K], and all dimensions of size 1 of a bias.
    osh_entry whole = *stored;
    const osh_entry *e = &whole;
    while (whole.ndim == 3 && ndim == 2 && !lead && whole.shape[1] == 1)
        whole.shape[1] = whole.shape[2], whole.ndim--;
    if (ndim == 1 && !lead) part_flatten(&whole);
    int64_t size = (int64_t)osh_dtype_bytes(e->dtype), matrix = size, step[OSH_MAX_DIMS] = {0};
    bool fits = e->ndim == lead + ndim && (!lead || r->at < e->shape[0]) &&
                r->first + (shape[0] - 1) * r->step < e->shape[rows] &&
                (ndim == 1 || (r->column < 0 ? e->shape[columns] == shape[1]
                                             : r->column + shape[1] <= e->shape[columns]));
    if (!fits)
        OSH_FAIL(
            cx, OSH_E_FORMAT,
            "tensor %s has %d dimensions, shape [%lld, %lld...]: [%lld, %lld] is not a part of it",
            e->name, e->ndim, e->ndim > 0 ? (long long)e->shape[0] : 0,
            e->ndim > 1 ? (long long)e->shape[1] : 0, (long long)shape[0],
            ndim > 1 ? (long long)shape[1] : 0);
    if (e->dtype != OSH_BF16 && e->dtype != OSH_F16 && e->dtype != OSH_F32)
        OSH_FAIL(cx, OSH_E_FORMAT, "tensor %s is %s, want BF16, F16 or F32", e->name,
                 osh_dtype_name(e->dtype));
    for (int d = e->ndim - 1; d >= lead; d--) step[d] = matrix, matrix *= e->shape[d];
    *part =
        (osh_entry){.dtype = e->dtype, .ndim = ndim, .shape = {shape[0], ndim > 1 ? shape[1] : 0}};
    part->at = e->begin + (lead ? r->at * matrix : 0) + r->first * step[rows];
    if (ndim > 1 && r->column > 0) part->at += r->column * step[columns];
    part->row = r->step * step[rows], part->column = ndim > 1 ? step[columns] : size;
    part->end = shape[0] * (ndim > 1 ? shape[1] : 1) * size;
    if (part->row != (ndim > 1 ? shape[1] : 1) * size || part->column != size) goto done;
    /* the bytes of the part are contiguous in the file */
    part->begin = part->at, part->end += part->at, part->row = 0;
done:
    return rc;
}

osh_status osh_part_new(osh_ctx *cx, osh_weight *w, const osh_scope *s, const osh_checkpoint *ck,
                        const char *tensor, const cJSON *json)
{
    osh_status rc = OSH_OK;
    rule r;
    const osh_ckpt_tensor *t = osh_checkpoint_find(ck, tensor);
    OSH_TRY(read_rule(cx, &r, s, json));
    w->tensor = -1;
    if (r.column >= 0)
        w->name = osh_sprintf(cx, "%s[%lld, %lld, %lld]", tensor, (long long)r.at,
                              (long long)r.first, (long long)r.column);
    else w->name = r.at < 0
                  ? osh_sprintf(cx, "%s[%lld]", tensor, (long long)r.first)
                  : osh_sprintf(cx, "%s[%lld, %lld]", tensor, (long long)r.at, (long long)r.first);
    if (!w->name) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the name of a weight");
    if (!t) OSH_FAIL(cx, OSH_E_FORMAT, "tensor %s is missing in %s", tensor, ck->dir);
    OSH_NEW(cx, w->part, 1);
    OSH_TRY(part_place(cx, w->part, t->e, &r, w->ndim, w->shape));
    w->dtype = w->part->dtype;
    w->part->name = t->e->name; // view
    w->tensor = t - ck->tensors;
done:
    if (rc) osh_free(cx, w->part), w->part = NULL;
    return rc;
}

const osh_entry *osh_weight_entry(const osh_graph *g, const osh_checkpoint *ck, int weight)
{
    const osh_weight *w = &g->weights[weight];
    return w->part ? w->part : ck->tensors[w->tensor].e;
}
