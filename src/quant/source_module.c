/* source_module.c - implements functions for all rows of sources.def: they add a module, and find,
 * check and read the stored tensors of a module. The tensors of one module may be in different
 * shards. */
#include "base/name.h"
#include "quant/source_impl.h"

#include <math.h>
#include <stdio.h>

osh_status osh_source_module_new(osh_ctx *cx, osh_source_module **out, osh_source *s,
                                 const char *name, size_t n)
{
    osh_status rc = OSH_OK;
    osh_source_module *q = &s->mods[s->n++];
    q->source = s;
    if (!(q->name = osh_sprintf(cx, "%.*s", (int)n, name)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a module's name");
    OSH_TRY(osh_map_put(cx, s->by_name, q->name, n, s->n - 1));
    q->dtype = s->ck->config->dtype;
    *out = q;
done:
    return rc;
}

int64_t osh_source_stored_bytes(const osh_source *s, int64_t tensor)
{
    const osh_ckpt_tensor *t = &s->ck->tensors[tensor];
    /* For one of several experts in a tensor, this is the name of the tensor. */
    const char *name = t->shard < 0 ? s->ck->virtuals[-1 - t->shard].e->name : "";
    int64_t i, numel = 0, sum = 0;
    osh_shape_numel(&numel, t->e->ndim, t->e->shape);
    size_t n = osh_before_tail(name, ".weight");
    bool coded = osh_map_get(s->by_name, name, strlen(name), &i) ||
                 (n && osh_map_get(s->by_name, name, n, &i));
    if (!coded) return numel * (int64_t)osh_dtype_bytes(t->e->dtype);
    const osh_source_module *q = &s->mods[i];
    for (int k = 0; k < q->n_leaves; k++)
        if (q->parts[k].e) sum += q->parts[k].e->end - q->parts[k].e->begin;
    // zeros that are added to the weight (--indivisible pad) are not stored in the source
    double share = (double)numel / ((double)q->O * (double)q->I);
    return (int64_t)((double)sum * (share < 1 ? share : 1));
}

osh_status osh_source_find_leaf(osh_ctx *cx, const osh_ckpt_tensor **t, const osh_source_module *q,
                                const char *sep, const char *leaf)
{
    char *name = osh_sprintf(cx, "%s%s%s", q->name, sep, leaf); // own
    if (!name) return osh_fail(cx, OSH_E_NOMEM, "no memory for %s", q->name);
    *t = osh_checkpoint_find(q->source->ck, name);
    osh_free(cx, name);
    return OSH_OK;
}

bool osh_source_weight_is(const osh_source *s, const char *name, size_t n, osh_dtype dt)
{
    char whole[1024];
    int wrote = snprintf(whole, sizeof whole, "%.*s.weight", (int)n, name);
    if (wrote < 0 || (size_t)wrote >= sizeof whole) return false;
    const osh_ckpt_tensor *t = osh_checkpoint_find(s->ck, whole);
    return t && t->e->dtype == dt;
}

osh_status osh_source_need_leaf(osh_ctx *cx, const osh_ckpt_tensor **t, const osh_source_module *q,
                                const char *leaf, const char *why)
{
    osh_status rc = osh_source_find_leaf(cx, t, q, ".", leaf);
    if (rc || *t) return rc;
    return osh_fail(cx, OSH_E_FORMAT, "%s.%s is missing: want it for %s", q->name, leaf, why);
}

osh_status osh_source_bind_checked(osh_ctx *cx, osh_source_module *q, int leaf,
                                   const osh_ckpt_tensor *t)
{
    osh_status rc =
        osh_format_check(cx, &(osh_format_stored){t->e->name, t->e->dtype, t->e->ndim, t->e->shape},
                         &q->leaves[leaf]);
    return rc ? rc : osh_source_bind_leaf(cx, q, leaf, t);
}

osh_status osh_source_bind_leaf(osh_ctx *cx, osh_source_module *q, int leaf,
                                const osh_ckpt_tensor *t)
{
    osh_status rc = OSH_OK;
    const osh_format_tensor *f = &q->leaves[leaf];
    int64_t numel = 0, want = 0;
    osh_shape_numel(&numel, t->e->ndim, t->e->shape);
    osh_shape_numel(&want, f->ndim, f->shape);
    if (numel != want)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s has %ld elements, %s wants %ld", t->e->name, (long)numel,
                 q->format->name, (long)want);
    q->parts[leaf] = *t;
done:
    return rc;
}

bool osh_source_packs_awq(const osh_source *s)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(s->ck->config->quantization_config,
                                                      "packing_format");
    return osh_ends_with(s->method, strlen(s->method), "auto-round") && cJSON_IsString(v) &&
           !strcmp(v->valuestring, "auto_round:auto_awq");
}

osh_status osh_source_check_matrix(osh_ctx *cx, const osh_ckpt_tensor *t, int64_t rows,
                                   int64_t columns, const osh_dtype *dtypes)
{
    osh_status rc = OSH_OK;
    const osh_entry *e = t->e;
    bool known = false;
    for (const osh_dtype *d = dtypes; *d != OSH_DTYPE_NONE; d++) known |= e->dtype == *d;
    if (!known)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s is %s: want %s%s", e->name, osh_dtype_name(e->dtype),
                 osh_dtype_name(dtypes[0]), dtypes[1] == OSH_DTYPE_NONE ? "" : " or another float");
    if (e->ndim != 2)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s has %d dimensions: want [%lld, %lld]", e->name, e->ndim,
                 (long long)rows, (long long)columns);
    if (e->shape[0] != rows || e->shape[1] != columns)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s has the shape [%lld, %lld]: want [%lld, %lld]", e->name,
                 (long long)e->shape[0], (long long)e->shape[1], (long long)rows,
                 (long long)columns);
done:
    return rc;
}

osh_status osh_source_read_columns(osh_ctx *cx, void *to, const osh_source_module *q, int part,
                                   int64_t first, int64_t n)
{
    const osh_ckpt_tensor *t = &q->parts[part];
    return osh_container_read_columns(cx, to, q->source->ck->shards[t->shard], t->e, first, n);
}

osh_status osh_source_read_rows(osh_ctx *cx, void *to, const osh_source_module *q, int part,
                                int64_t first, int64_t n)
{
    const osh_ckpt_tensor *t = &q->parts[part];
    return osh_container_read_rows(cx, to, q->source->ck->shards[t->shard], t->e, first, n);
}

osh_status osh_source_check_finite(osh_ctx *cx, const osh_source_module *q, int part,
                                   const float *scales, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(scales[i]))
            return osh_fail(cx, OSH_E_NUMERIC, "%s holds %g, want finite numbers",
                            q->parts[part].e->name, (double)scales[i]);
    return OSH_OK;
}

osh_status osh_source_decode(osh_ctx *cx, char *to, const osh_source_module *q, int64_t first,
                             int64_t n, const osh_source_pieces *p)
{
    osh_status rc = OSH_OK;
    char *block = osh_alloc(cx, p->bytes); // own
    if (!block) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for rows of %s", q->name);
    OSH_TRY(p->open(cx, p->room, q, block));
    for (int64_t at = first, rows; at < first + n; at += rows) {
        rows = first + n - at < p->rows ? first + n - at : p->rows;
        OSH_TRY(osh_check_interrupt(cx));
        OSH_TRY(p->piece(cx, to, p->room, q, at, rows));
        to += (size_t)(rows * q->I) * osh_dtype_bytes(q->dtype);
    }
done:
    osh_free(cx, block);
    return rc;
}

size_t osh_source_decode_bytes(size_t block_bytes)
{
    return osh_mem_gross(block_bytes) + osh_mem_gross(OSH_DIRECT_BYTES + OSH_BLOCK_BYTES);
}

void *osh_source_slice(char *block, size_t *at, size_t n_bytes)
{
    void *slice = block ? block + *at : NULL;
    *at += n_bytes;
    return slice;
}
