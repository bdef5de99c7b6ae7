/* ckpt_virtual.c - adds virtual tensors to a checkpoint: tensors that are computed when they are
 * read, and second names of stored tensors. */
#include <string.h>

#include "io/ckpt_replace.h"

/* Reserves memory for one more virtual tensor. The capacity of the list is a power of two. */
static osh_status virtuals_grow(osh_ctx *cx, osh_checkpoint *ck, const char *name)
{
    size_t n = (size_t)ck->n_virtuals;
    if (n & (n - 1)) return OSH_OK;
    osh_ckpt_virtual *v = osh_realloc(cx, ck->virtuals, (n ? 2 * n : 1) * sizeof *v);
    if (!v) return osh_fail(cx, OSH_E_NOMEM, "no memory for %s", name);
    ck->virtuals = v;
    return OSH_OK;
}

/* Adds tensor `e` to the list of tensors. Takes ownership of `e` and of e->name. */
static osh_status virtual_add_entry(osh_ctx *cx, osh_checkpoint *ck, osh_entry *e, int shard,
                                    const osh_ckpt_virtual *as)
{
    osh_status rc = OSH_OK;
    osh_ckpt_tensor *t = osh_realloc(cx, ck->tensors, (size_t)(ck->n_tensors + 1) * sizeof *t);
    if (t) ck->tensors = t;
    if (!t) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", e->name);
    OSH_TRY(virtuals_grow(cx, ck, e->name));
    OSH_TRY(osh_map_put(cx, ck->by_name, e->name, strlen(e->name), ck->n_tensors));
    ck->tensors[ck->n_tensors++] = (osh_ckpt_tensor){.e = e, .shard = shard};
    ck->virtuals[ck->n_virtuals] = *as;
    ck->virtuals[ck->n_virtuals++].e = e, e = NULL; // give
done:
    if (e) osh_free(cx, e->name);
    osh_free(cx, e);
    return rc;
}

static osh_status entry_new(osh_ctx *cx, osh_entry **out, const char *name, const osh_entry *like)
{
    osh_status rc = OSH_OK;
    osh_entry *e = NULL; // own
    OSH_NEW(cx, e, 1);
    *e = *like;
    if (!(e->name = osh_strdup(cx, name))) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", name);
    *out = e, e = NULL; // give
done:
    osh_free(cx, e);
    return rc;
}

/* Makes an entry for the name, with the dtype and shape of `like`. */
static osh_status entry_whole(osh_ctx *cx, osh_entry **out, const osh_checkpoint *ck,
                              const char *name, const osh_entry *like)
{
    osh_status rc = OSH_OK;
    osh_entry whole = {.dtype = like->dtype, .ndim = like->ndim};
    int64_t numel = 0;
    if (!osh_shape_numel(&numel, like->ndim, like->shape) ||
        __builtin_mul_overflow(numel, (int64_t)osh_dtype_bytes(like->dtype), &whole.end))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: %s is too large", ck->dir, name);
    for (int i = 0; i < like->ndim; i++) whole.shape[i] = like->shape[i];
    OSH_TRY(entry_new(cx, out, name, &whole));
done:
    return rc;
}

osh_status osh_checkpoint_replace(osh_ctx *cx, osh_ckpt_virtual **made, osh_checkpoint *ck,
                                  int64_t tensor, const osh_entry *like)
{
    osh_status rc = OSH_OK;
    osh_entry *e = NULL; // own
    osh_ckpt_tensor *t = &ck->tensors[tensor];
    OSH_TRY(virtuals_grow(cx, ck, t->e->name));
    OSH_TRY(entry_whole(cx, &e, ck, t->e->name, like));
    *made = &ck->virtuals[ck->n_virtuals++];
    **made = (osh_ckpt_virtual){.e = e, .stored = -1, .first_shard = t->shard,
                                .last_shard = t->shard};
    *t = (osh_ckpt_tensor){.e = e, .shard = -ck->n_virtuals};
done:
    return rc;
}

osh_status osh_checkpoint_add_virtual(osh_ctx *cx, osh_checkpoint *ck, const char *name,
                                      const osh_entry *like, osh_ckpt_make make, void *user)
{
    osh_status rc = OSH_OK;
    osh_entry *e = NULL; // own: the new virtual tensor
    const osh_ckpt_tensor *old = osh_checkpoint_find(ck, name);
    if (old && old->shard < 0) OSH_FAIL(cx, OSH_E_FORMAT, "%s: %s is made twice", ck->dir, name);
    OSH_TRY(entry_whole(cx, &e, ck, name, like));
    const osh_ckpt_virtual as = {.make = make, .user = user, .stored = -1, .last_shard = -1};
    OSH_TRY(virtual_add_entry(cx, ck, e, -1 - ck->n_virtuals, &as));
done:
    return rc;
}

osh_status osh_checkpoint_add_alias(osh_ctx *cx, osh_checkpoint *ck, const char *name, int64_t of)
{
    osh_status rc = OSH_OK;
    osh_entry *e = NULL; // own
    OSH_TRY(entry_new(cx, &e, name, ck->tensors[of].e));
    OSH_TRY(virtual_add_entry(cx, ck, e, ck->tensors[of].shard, &(osh_ckpt_virtual){0}));
done:
    return rc;
}

osh_status osh_checkpoint_hide(osh_ctx *cx, osh_checkpoint *ck, const int64_t *by)
{
    osh_status rc = OSH_OK;
    osh_ckpt_tensor *list = NULL; // own
    osh_map *names = NULL;        // own
    bool *placed = NULL;          // own [tensors]: true if the tensor is already in the new list
    int64_t n = 0;
    OSH_NEW(cx, list, ck->n_tensors);
    OSH_NEW(cx, placed, ck->n_tensors);
    OSH_TRY(osh_map_new_views(cx, &names, (size_t)ck->n_tensors));
    for (int64_t i = 0; i < ck->n_tensors; i++) {
        int64_t from = by[i] >= 0 ? by[i] : i;
        if (by[i] < -1 || placed[from]) continue;
        placed[from] = true;
        list[n++] = ck->tensors[from];
    }
    /* Stored tensors are put into the map first. A virtual tensor with the same name then replaces
     * the stored tensor in the map. */
    for (int64_t i = 0; i < n; i++)
        if (list[i].shard >= 0)
            OSH_TRY(osh_map_put(cx, names, list[i].e->name, strlen(list[i].e->name), i));
    for (int64_t i = 0; i < n; i++) {
        if (list[i].shard >= 0) continue;
        int64_t *stored = &ck->virtuals[-1 - list[i].shard].stored;
        if (!osh_map_get(names, list[i].e->name, strlen(list[i].e->name), stored)) *stored = -1;
        OSH_TRY(osh_map_put(cx, names, list[i].e->name, strlen(list[i].e->name), i));
    }
    osh_free(cx, ck->tensors);
    osh_map_free(cx, ck->by_name);
    ck->tensors = list, list = NULL;  // give
    ck->by_name = names, names = NULL; // give
    ck->n_tensors = n;
done:
    osh_free(cx, list);
    osh_free(cx, placed);
    osh_map_free(cx, names);
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
