/* results.c - sends the result of a Linear to rank 0 in two messages. The first has the small parts
 * of the result. The second is the codes, which are sent without a copy. */
#include "run/results.h"

#include <stdio.h>
#include <string.h>

#include "budget/memory.h"
#include "match/cache.h"

/* number of tensors in addition to the codes: scale and zero points of the weight, scale and zero
 * point of the input */
enum { N_TENSORS = 4 };

/* Beginning of the first message. The cache, the bias and the elements of the tensors follow it. */
typedef struct head {
    int32_t linear;
    bool packed;
    double nmse, objective, nearest;
    osh_losses losses;
    float global;
    bool seen;       // true if `source` is known
    uint64_t source; // checksum of the weight's bytes in the source
    size_t n_codes, n_cache, n_bias;
    struct {
        int32_t dtype, ndim; // ndim 0: the result has no such tensor
        int64_t shape[2];
    } tensors[N_TENSORS];
    char fallback[256];
} head;

/* Sets the sizes of the parts of a result. The plan determines these sizes. */
static void head_set_sizes(head *h, const osh_plan *p, const osh_linear_job *j)
{
    const osh_linear *l = &p->match.linears[h->linear];
    osh_cache_leaf leaf[OSH_CACHE_LEAVES];
    if (!l->out.n) return; // a survey computes losses but no codes
    const osh_entry *out = &p->manifest.out[l->out.first];
    h->n_codes = j->packed ? (size_t)(out[0].end - out[0].begin) : (size_t)(l->O * l->I);
    for (int k = 0, n = j->cache ? osh_cache_leaves(leaf, &p->match, l) : 0; k < n; k++)
        h->n_cache += leaf[k].bytes;
    if (j->bias) h->n_bias = (size_t)(out[l->out.n - 1].end - out[l->out.n - 1].begin);
}

/* Waits as long as earlier results are on their way to rank 0 and more memory is in use than
 * planned. */
static osh_status result_wait(osh_ctx *cx, const osh_run *r)
{
    osh_status rc = OSH_OK;
    int left = 0;
    OSH_TRY(osh_ranks_posted(cx, r->ranks, &left));
    while (left && osh_mem_used(cx, OSH_MEM_HOST) > osh_memory_counted(r->budget)) {
        OSH_TRY(osh_ranks_post_wait(cx, r->ranks, left - 1));
        OSH_TRY(osh_ranks_posted(cx, r->ranks, &left));
    }
done:
    return rc;
}

osh_status osh_result_send(osh_ctx *cx, osh_run *r, int linear, osh_linear_job *j,
                           osh_tensor **in_scale, osh_tensor **in_zero)
{
    osh_status rc = OSH_OK;
    osh_tensor **const all[N_TENSORS] = {&j->params.scale, &j->params.zero, in_scale, in_zero};
    const osh_linear *l = &r->budget->match->linears[linear];
    head h = {.linear = linear, .packed = j->packed, .nmse = j->nmse, .objective = j->objective,
              .nearest = j->nearest, .losses = j->losses, .global = j->params.global};
    size_t n = sizeof h;
    char *bytes = NULL; // own
    osh_mem_class old = osh_mem_use(cx, OSH_MEM_HOST);
    OSH_TRY(result_wait(cx, r));
    head_set_sizes(&h, r->plan, j);
    h.seen = osh_checkpoint_seen(r->budget->in->ck, l->tensor, &h.source);
    if (j->fallback) snprintf(h.fallback, sizeof h.fallback, "%s", j->fallback);
    n += h.n_cache + h.n_bias;
    for (int k = 0; k < N_TENSORS; k++) {
        const osh_tensor *t = *all[k];
        if (!t) continue;
        h.tensors[k].dtype = (int32_t)t->dtype, h.tensors[k].ndim = t->ndim;
        for (int d = 0; d < t->ndim; d++) h.tensors[k].shape[d] = t->shape[d];
        n += osh_tensor_bytes(t);
    }
    if (!(bytes = osh_alloc(cx, n))) OSH_FAIL(cx, OSH_E_NOMEM, "no memory to send %s", l->name);
    char *at = (char *)memcpy(bytes, &h, sizeof h) + sizeof h;
    if (h.n_cache) memcpy(at, j->cache, h.n_cache), at += h.n_cache;
    if (h.n_bias) memcpy(at, j->bias, h.n_bias), at += h.n_bias;
    for (int k = 0; k < N_TENSORS; k++) {
        if (!*all[k]) continue;
        memcpy(at, (*all[k])->data, osh_tensor_bytes(*all[k])), at += osh_tensor_bytes(*all[k]);
        osh_tensor_free(cx, *all[k]), *all[k] = NULL;
    }
    void *codes = j->codes;
    j->codes = NULL;
    if (codes) osh_mem_move(cx, codes, OSH_MEM_HOST);
    rc = osh_ranks_post(cx, r->ranks, bytes, n), bytes = NULL;
    osh_status sent = osh_ranks_post(cx, r->ranks, codes, h.n_codes);
    if (!rc) rc = sent;
    r->results[linear].done = true;
done:
    osh_mem_use(cx, old);
    osh_free(cx, bytes);
    return rc;
}

/* Makes the tensors that h describes, from their bytes at `at`. */
static osh_status head_read_tensors(osh_ctx *cx, const head *h, const char *at,
                                    osh_tensor **const *to)
{
    osh_status rc = OSH_OK;
    for (int k = 0; k < N_TENSORS; k++) {
        if (!h->tensors[k].ndim) continue;
        OSH_TRY(osh_tensor_new(cx, to[k], (osh_dtype)h->tensors[k].dtype, h->tensors[k].ndim,
                               h->tensors[k].shape));
        size_t n = osh_tensor_bytes(*to[k]);
        memcpy((*to[k])->data, at, n), at += n;
    }
done:
    return rc;
}

static osh_status copy_bytes(osh_ctx *cx, void **to, const char **at, size_t n)
{
    if (!n) return OSH_OK;
    if (!(*to = osh_alloc(cx, n))) return osh_fail(cx, OSH_E_NOMEM, "no memory for a result");
    memcpy(*to, *at, n), *at += n;
    return OSH_OK;
}

/* Fails if the rank `from` has read other bytes of the Linear's weight than rank 0. */
static osh_status result_check_source(osh_ctx *cx, const osh_run *r, const head *h, int from)
{
    uint64_t mine = 0;
    const osh_linear *l = &r->budget->match->linears[h->linear];
    bool both = h->seen && osh_checkpoint_seen(r->budget->in->ck, l->tensor, &mine);
    if (!both || mine == h->source) return OSH_OK;
    return osh_fail(
        cx, OSH_E_IO,
        "%s: rank %d on %s has read different bytes of the weight than rank 0: checksum "
        "%016llx, want %016llx",
        l->name, from, osh_ranks_at(r->ranks, from)->node, (unsigned long long)h->source,
        (unsigned long long)mine);
}

/* Passes a result to the emitter. Another rank has sent the result. Takes ownership of *codes. */
static osh_status result_emit(osh_ctx *cx, osh_run *r, const char *bytes, void **codes)
{
    osh_status rc = OSH_OK;
    head h;
    const char *at = bytes + sizeof h;
    osh_tensor *scale = NULL, *zero = NULL; // own
    osh_linear_job j = {.codes = *codes};   // own: the members codes, params, cache and bias
    *codes = NULL;
    memcpy(&h, bytes, sizeof h);
    const osh_linear *l = &r->budget->match->linears[h.linear];
    j.name = l->name, j.scheme = l->scheme, j.packed = h.packed, j.losses = h.losses;
    j.nmse = h.nmse, j.objective = h.objective, j.nearest = h.nearest;
    j.params.global = h.global;
    if (*h.fallback) OSH_TRY(osh_emit_keep_text(cx, r->emitter, &j.fallback, h.fallback));
    OSH_TRY(copy_bytes(cx, &j.cache, &at, h.n_cache));
    OSH_TRY(copy_bytes(cx, &j.bias, &at, h.n_bias));
    OSH_TRY(head_read_tensors(
        cx, &h, at, (osh_tensor **const[]){&j.params.scale, &j.params.zero, &scale, &zero}));
    OSH_TRY(osh_emit_linear(cx, r->emitter, h.linear, &j, &scale, &zero));
    osh_run_record(cx, r, h.linear, &j);
done:
    osh_linear_job_deinit(cx, &j);
    osh_tensor_free(cx, scale);
    osh_tensor_free(cx, zero);
    return rc;
}

/* Rank 0: receives one result and passes it to the emitter. Sets *any to false if no result has
 * arrived. */
static osh_status result_take(osh_ctx *cx, osh_run *r, bool wait, bool *any)
{
    osh_status rc = OSH_OK;
    void *bytes = NULL, *codes = NULL; // own
    size_t n = 0, n_codes = 0;
    int from = -1;
    head h;
    osh_mem_class old = osh_mem_use(cx, OSH_MEM_HOST);
    OSH_TRY(osh_ranks_take(cx, r->ranks, &bytes, &n, &from, wait));
    if (!(*any = bytes != NULL)) goto done;
    OSH_TRY(osh_ranks_take(cx, r->ranks, &codes, &n_codes, &from, true));
    memcpy(&h, bytes, n < sizeof h ? n : sizeof h);
    if (n < sizeof h || n_codes != h.n_codes)
        OSH_FAIL(cx, OSH_E_INTERNAL, "a result of rank %d is truncated", from);
    OSH_TRY(result_check_source(cx, r, &h, from));
    OSH_TRY(result_emit(cx, r, bytes, &codes));
done:
    osh_mem_use(cx, old);
    osh_free(cx, bytes);
    osh_free(cx, codes);
    return rc;
}

osh_status osh_results_take(osh_ctx *cx, osh_run *r)
{
    osh_status rc = OSH_OK;
    for (bool any = r->ranks && !osh_ranks_me(r->ranks); any;)
        OSH_TRY(result_take(cx, r, false, &any));
done:
    return rc;
}

osh_status osh_results_finish(osh_ctx *cx, osh_run *r, const bool *todo)
{
    osh_status rc = OSH_OK;
    if (!r->ranks) goto done;
    if (osh_ranks_me(r->ranks)) OSH_TRY(osh_ranks_post_wait(cx, r->ranks, 0));
    for (int i = 0; i < r->budget->match->n_linears; i++) {
        if (!todo[i]) continue;
        if (osh_ranks_me(r->ranks)) r->results[i].done = true;
        while (!r->results[i].done) OSH_TRY(result_take(cx, r, true, &(bool){false}));
    }
done:
    return rc;
}
