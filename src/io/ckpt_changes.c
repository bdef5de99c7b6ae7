/* ckpt_changes.c - applies changes to tensors of a checkpoint when they are read: first the steps
 * of osh_checkpoint_rewrite, then the folded factors in the order in which they were added.
 * Checksums are computed before the changes are applied. */
#include <assert.h>

#include "base/xxh3.h"
#include "io/checkpoint.h"

/* Largest number of folds of a tensor: one that multiplies and one that divides. */
enum { MOST = 2 };
enum { PIECE = 256 }; // number of elements that are converted at a time

struct osh_ckpt_changes {
    struct changed {
        osh_fold_rule of[MOST];
        int n, n_steps;
        osh_rewrite *steps; // own
    } *tensors; // own [n]: changes of each tensor
    int64_t n;
};

osh_status osh_checkpoint_expect_changes(osh_ctx *cx, osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;
    if (ck->changes) goto done;
    OSH_NEW(cx, ck->changes, 1);
    OSH_NEW(cx, ck->changes->tensors, ck->n_tensors);
    ck->changes->n = ck->n_tensors;
done:
    return rc;
}

osh_status osh_checkpoint_change(osh_ctx *cx, osh_checkpoint *ck, int64_t tensor,
                                 const osh_fold_rule *r)
{
    struct changed *c = &ck->changes->tensors[tensor];
    if (c->n == MOST)
        return osh_fail(cx, OSH_E_INTERNAL, "%s is changed too often", ck->tensors[tensor].e->name);
    c->of[c->n++] = *r;
    return OSH_OK;
}

osh_status osh_checkpoint_rewrite(osh_ctx *cx, osh_checkpoint *ck, int64_t tensor,
                                  const osh_rewrite *w)
{
    struct changed *c = &ck->changes->tensors[tensor];
    osh_rewrite *grown = osh_realloc(cx, c->steps, (size_t)(c->n_steps + 1) * sizeof *grown);
    if (!grown)
        return osh_fail(cx, OSH_E_NOMEM, "no memory for the changes of %s",
                        ck->tensors[tensor].e->name);
    c->steps = grown;
    c->steps[c->n_steps++] = *w;
    return OSH_OK;
}

void osh_checkpoint_free_changes(osh_ctx *cx, osh_checkpoint *ck)
{
    for (int64_t i = 0; ck->changes && ck->changes->tensors && i < ck->changes->n; i++)
        osh_free(cx, ck->changes->tensors[i].steps);
    if (ck->changes) osh_free(cx, ck->changes->tensors);
    osh_free(cx, ck->changes);
    ck->changes = NULL;
}

static const struct changed *changes_of(const osh_checkpoint *ck, int64_t tensor)
{
    const struct changed *c =
        ck->changes && tensor < ck->changes->n ? &ck->changes->tensors[tensor] : NULL;
    return c && (c->n || c->n_steps) ? c : NULL;
}

bool osh_checkpoint_is_changed(const osh_checkpoint *ck, int64_t tensor)
{
    return changes_of(ck, tensor) != NULL;
}

static int64_t entry_row_width(const osh_entry *e)
{
    return e->ndim > 1 ? e->shape[1] : 1;
}

static int64_t rewrite_unit(const osh_rewrite *w, const osh_entry *e)
{
    if (w->kind == OSH_REWRITE_FILL) return 1;
    return w->kind == OSH_REWRITE_COLUMNS ? w->r->n * entry_row_width(e) : entry_row_width(e);
}

int64_t osh_checkpoint_unit(const osh_checkpoint *ck, int64_t tensor)
{
    const struct changed *c = changes_of(ck, tensor);
    int64_t unit = 1;
    // each unit divides all larger units, so the largest unit is a multiple of all
    for (int k = 0; c && k < c->n_steps; k++) {
        int64_t u = rewrite_unit(&c->steps[k], ck->tensors[tensor].e);
        if (u > unit) unit = u;
    }
    return unit;
}

static size_t rewrite_bytes(const osh_checkpoint *ck, const osh_rewrite *w)
{
    if (w->r) return osh_rotation_room(w->r);
    const osh_entry *e = ck->tensors[w->norm].e;
    return w->kind == OSH_REWRITE_NORM ? osh_mem_gross((size_t)(e->end - e->begin)) : 0;
}

size_t osh_checkpoint_rewrite_bytes(const osh_checkpoint *ck)
{
    size_t most = 0;
    for (int64_t i = 0; ck->changes && i < ck->changes->n; i++)
        for (int k = 0; k < ck->changes->tensors[i].n_steps; k++) {
            size_t bytes = rewrite_bytes(ck, &ck->changes->tensors[i].steps[k]);
            if (bytes > most) most = bytes;
        }
    return most;
}

/* Multiplies column c of m by the f64 sum of w->value and element c of the tensor w->norm. If
 * w->value is 0, the f64 product of two f32 numbers is exact, so only the conversion to the dtype
 * of m rounds. */
static osh_status multiply_norm(osh_ctx *cx, const osh_checkpoint *ck, const osh_rewrite *w,
                                osh_tensor *m)
{
    osh_status rc = OSH_OK;
    osh_dtype dt = m->dtype;
    int64_t rows = m->shape[0], width = m->shape[1];
    const osh_ckpt_tensor *t = &ck->tensors[w->norm];
    size_t bytes = (size_t)(t->e->end - t->e->begin), size = osh_dtype_bytes(t->e->dtype);
    float x[PIECE], g[PIECE];
    char *norm = osh_alloc(cx, bytes); // own
    if (!norm) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", t->e->name);
    OSH_TRY(osh_container_read(cx, norm, ck->shards[t->shard], t->e));
    OSH_TRY(osh_checkpoint_saw(cx, ck, w->norm, XXH3_64bits(norm, bytes)));
    for (int64_t c = 0, k; c < width; c += k) {
        k = width - c < PIECE ? width - c : PIECE;
        osh_to_f32(g, norm + (size_t)c * size, t->e->dtype, k);
        for (int64_t row = 0; row < rows; row++) {
            char *at = (char *)m->data + (size_t)(row * width + c) * osh_dtype_bytes(dt);
            osh_to_f32(x, at, dt, k);
            for (int64_t i = 0; i < k; i++)
                x[i] = (float)((double)x[i] * ((double)g[i] + w->value));
            osh_from_f32(at, dt, x, k);
        }
    }
done:
    osh_free(cx, norm);
    return rc;
}

static void centre_rows(osh_tensor *m)
{
    osh_dtype dt = m->dtype;
    int64_t rows = m->shape[0], width = m->shape[1];
    float x[PIECE];
    for (int64_t row = 0; row < rows; row++) {
        char *from = (char *)m->data + (size_t)(row * width) * osh_dtype_bytes(dt);
        double mean = 0;
        for (int pass = 0; pass < 2; pass++) {
            for (int64_t c = 0, k; c < width; c += k) {
                char *at = from + (size_t)c * osh_dtype_bytes(dt);
                k = width - c < PIECE ? width - c : PIECE;
                osh_to_f32(x, at, dt, k);
                for (int64_t i = 0; i < k && !pass; i++) mean += x[i];
                for (int64_t i = 0; i < k && pass; i++) x[i] = (float)(x[i] - mean);
                if (pass) osh_from_f32(at, dt, x, k);
            }
            if (!pass) mean /= (double)width;
        }
    }
}

static void fill_with(void *data, osh_dtype dt, double value, int64_t n)
{
    float x[PIECE];
    for (int i = 0; i < PIECE; i++) x[i] = (float)value;
    for (int64_t at = 0, k; at < n; at += k) {
        k = n - at < PIECE ? n - at : PIECE;
        osh_from_f32((char *)data + (size_t)at * osh_dtype_bytes(dt), dt, x, k);
    }
}

static osh_status rewrite_part(osh_ctx *cx, const osh_checkpoint *ck, const osh_entry *e,
                               const osh_rewrite *w, void *data, int64_t n)
{
    osh_status rc = OSH_OK;
    int64_t width = entry_row_width(e);
    osh_tensor m = osh_tensor_view(e->dtype, 2, (int64_t[]){n / width, width}, data);
    switch (w->kind) {
    case OSH_REWRITE_FILL: fill_with(data, e->dtype, w->value, n); break;
    case OSH_REWRITE_CENTRE: centre_rows(&m); break;
    case OSH_REWRITE_NORM: rc = multiply_norm(cx, ck, w, &m); break;
    case OSH_REWRITE_ROWS: rc = osh_rotate_rows(cx, &m, w->r, w->transposed); break;
    case OSH_REWRITE_COLUMNS: rc = osh_rotate_columns(cx, &m, w->r, w->transposed); break;
    }
    return rc;
}

osh_status osh_checkpoint_apply(osh_ctx *cx, const osh_checkpoint *ck, int64_t tensor, void *data,
                                int64_t first, int64_t n)
{
    osh_status rc = OSH_OK;
    const struct changed *c = changes_of(ck, tensor);
    const osh_entry *e = ck->tensors[tensor].e;
    if (!c) goto done;
    assert(first % osh_checkpoint_unit(ck, tensor) == 0 &&
           n % osh_checkpoint_unit(ck, tensor) == 0);
    for (int k = 0; k < c->n_steps; k++) OSH_TRY(rewrite_part(cx, ck, e, &c->steps[k], data, n));
    for (int k = 0; k < c->n; k++) osh_fold_factors(data, e->dtype, &c->of[k], first, n);
done:
    if (rc) osh_note(cx, "changing %s", e->name);
    return rc;
}
