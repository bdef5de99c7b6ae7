/* source_module.c - functions that all rows of sources.def use to add a module and to find the
 * module's stored tensors. The tensors of a module may be in different shards. */
#include "quant/source_impl.h"

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

osh_status osh_source_find_leaf(osh_ctx *cx, const osh_ckpt_tensor **t, const osh_source_module *q,
                                const char *sep, const char *leaf)
{
    char *name = osh_sprintf(cx, "%s%s%s", q->name, sep, leaf); // own
    if (!name) return osh_fail(cx, OSH_E_NOMEM, "no memory for %s", q->name);
    *t = osh_checkpoint_find(q->source->ck, name);
    osh_free(cx, name);
    return OSH_OK;
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
