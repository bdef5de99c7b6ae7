/* ckpt_virtual.c - tensors of a checkpoint that no shard holds, made when they are asked for. */
#include <string.h>

#include "io/checkpoint.h"

osh_status osh_checkpoint_add_virtual(osh_ctx *cx, osh_checkpoint *ck, const char *name, osh_dtype dtype, int ndim,
                                      const int64_t *shape, osh_ckpt_make make, void *user)
{
    osh_status rc = OSH_OK;
    osh_st_entry *e = NULL; // own
    const osh_ckpt_tensor *old = osh_checkpoint_find(ck, name); // a stored one gives its name away
    int64_t numel = 0, n_bytes = 0;
    if (!osh_shape_numel(&numel, ndim, shape) ||
        __builtin_mul_overflow(numel, (int64_t)osh_dtype_bytes(dtype), &n_bytes))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: %s is too large", ck->dir, name);
    if (old && old->shard < 0) OSH_FAIL(cx, OSH_E_FORMAT, "%s: %s is made twice", ck->dir, name);
    osh_ckpt_virtual *v = osh_realloc(cx, ck->virtuals, (size_t)(ck->n_virtuals + 1) * sizeof *v);
    if (!v) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", name);
    ck->virtuals = v;
    osh_ckpt_tensor *t = osh_realloc(cx, ck->tensors, (size_t)(ck->n_tensors + 1) * sizeof *t);
    if (!t) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", name);
    ck->tensors = t;
    OSH_NEW(cx, e, 1);
    *e = (osh_st_entry){.name = osh_strdup(cx, name), .dtype = dtype, .ndim = ndim, .end = n_bytes};
    if (!e->name) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", name);
    for (int i = 0; i < ndim; i++) e->shape[i] = shape[i];
    OSH_TRY(osh_map_put(cx, ck->by_name, name, strlen(name), ck->n_tensors));
    ck->tensors[ck->n_tensors++] = (osh_ckpt_tensor){.e = e, .shard = -1 - ck->n_virtuals};
    ck->virtuals[ck->n_virtuals++] = (osh_ckpt_virtual){e, make, user}; // give
    e = NULL;
done:
    if (e) osh_free(cx, e->name);
    osh_free(cx, e);
    return rc;
}

void osh_checkpoint_free_virtuals(osh_ctx *cx, osh_checkpoint *ck)
{
    for (int i = 0; i < ck->n_virtuals; i++) {
        osh_free(cx, ck->virtuals[i].e->name);
        osh_free(cx, ck->virtuals[i].e);
    }
    osh_free(cx, ck->virtuals);
    ck->virtuals = NULL, ck->n_virtuals = 0;
}
