/* ckpt_changes.c - tensors of a checkpoint that are read otherwise than they are stored: each factor that was folded
 * into them is applied, in the order in which it came. Their checksums are those of the stored bytes. */
#include <assert.h>

#include "io/checkpoint.h"

enum { MOST = 2 }; // of one tensor: what it takes over, and what it gives away

struct osh_ckpt_changes {
    struct changed {
        osh_fold_rule of[MOST];
        int n;
    } *tensors; // own [n]
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

osh_status osh_checkpoint_change(osh_ctx *cx, osh_checkpoint *ck, int64_t tensor, const osh_fold_rule *r)
{
    struct changed *c = &ck->changes->tensors[tensor];
    if (c->n == MOST) return osh_fail(cx, OSH_E_INTERNAL, "%s is changed too often", ck->tensors[tensor].e->name);
    c->of[c->n++] = *r;
    return OSH_OK;
}

void osh_checkpoint_free_changes(osh_ctx *cx, osh_checkpoint *ck)
{
    if (ck->changes) osh_free(cx, ck->changes->tensors);
    osh_free(cx, ck->changes);
    ck->changes = NULL;
}

bool osh_checkpoint_is_changed(const osh_checkpoint *ck, int64_t tensor)
{
    return ck->changes && tensor < ck->changes->n && ck->changes->tensors[tensor].n;
}

void osh_checkpoint_apply(const osh_checkpoint *ck, int64_t tensor, void *data, int64_t first, int64_t n)
{
    if (!osh_checkpoint_is_changed(ck, tensor)) return;
    const struct changed *c = &ck->changes->tensors[tensor];
    const osh_st_entry *e = ck->tensors[tensor].e;
    for (int k = 0; k < c->n; k++) osh_fold_factors(data, e->dtype, &c->of[k], first, n);
}
