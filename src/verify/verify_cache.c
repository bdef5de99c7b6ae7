/* verify_cache.c - checks the scales of cached keys and values. If the Linear that computes the
 * keys or values is not quantized, its weight must equal that of the source. */
#include <math.h>
#include <string.h>

#include "match/cache.h"
#include "verify/verify.h"

static osh_status verify_load_output(osh_ctx *cx, osh_tensor **out, osh_verify *v, int64_t i)
{
    osh_status rc = OSH_OK;
    const osh_ckpt_tensor *t = osh_checkpoint_find(v->ck, v->plan->manifest.out[i].name);
    OSH_TRY(osh_tensor_new(cx, out, t->e->dtype, t->e->ndim, t->e->shape));
    OSH_TRY(osh_checkpoint_read(cx, (*out)->data, v->ck, t));
done:
    return rc;
}

osh_status osh_verify_cache(osh_ctx *cx, osh_verify *v, int linear)
{
    osh_status rc = OSH_OK;
    const osh_linear *l = &v->plan->match.linears[linear];
    osh_cache_leaf leaf[OSH_CACHE_LEAVES];
    osh_tensor *t = NULL; // own
    int n = osh_cache_leaves(leaf, &v->plan->match, l);
    for (int k = 0; k < n; k++) {
        int64_t i = l->out.first + l->out.n - (l->out.bias >= 0) - n + k;
        if (leaf[k].zero) continue; // any byte can be a zero point, so there is nothing to check
        osh_tensor_free(cx, t), t = NULL;
        OSH_TRY(verify_load_output(cx, &t, v, i));
        for (int64_t h = 0; h < osh_tensor_numel(t); h++) {
            float scale = osh_tensor_at(t, h);
            if (scale > 0 && isfinite(scale)) continue;
            OSH_TRY(osh_verify_add(cx, v, v->plan->manifest.out[i].name, "a positive number",
                                   "is %g", (double)scale));
            break;
        }
    }
    /* The right value of a learned bias is unknown, so every finite value is accepted. */
    if (l->out.bias >= 0) {
        int64_t i = l->out.first + l->out.n - 1;
        osh_tensor_free(cx, t), t = NULL;
        OSH_TRY(verify_load_output(cx, &t, v, i));
        if (osh_find_nonfinite(t->data, t->dtype, osh_tensor_numel(t)) >= 0)
            OSH_TRY(osh_verify_add(cx, v, v->plan->manifest.out[i].name, "finite numbers",
                                   "has a NaN or an infinity"));
    }
done:
    osh_tensor_free(cx, t);
    return rc;
}

osh_status osh_verify_kept(osh_ctx *cx, osh_verify *v, int linear)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = v->plan;
    const osh_linear *l = &p->match.linears[linear];
    osh_tensor *w = NULL, *source = NULL; // own
    v->n_modules++;
    OSH_TRY(verify_load_output(cx, &w, v, l->out.first));
    OSH_TRY(osh_tensor_new(cx, &source, l->dtype, 2, (int64_t[]){l->O, l->I}));
    OSH_TRY(osh_checkpoint_read(cx, source->data, p->in.ck, &p->in.ck->tensors[l->tensor]));
    if (memcmp(w->data, source->data, osh_tensor_bytes(w)))
        OSH_TRY(osh_verify_add(cx, v, p->manifest.out[l->out.first].name, "the source's bytes",
                               "differs from the source"));
done:
    osh_tensor_free(cx, w);
    osh_tensor_free(cx, source);
    return rc;
}
