/* weights.c - loads and frees the weights of a range of nodes. Weights are loaded from the files of
 * the checkpoint. */
#include "graph/exec.h"
#include "graph/picked.h"

osh_status osh_weights_new(osh_ctx *cx, osh_weights **out, const osh_graph *g)
{
    osh_status rc = OSH_OK;
    osh_weights *w = NULL; // own
    OSH_NEW(cx, w, 1);
    OSH_NEW(cx, w->w, g->n_weights);
    OSH_NEW(cx, w->host, g->n_weights);
    w->n = g->n_weights;
    *out = w, w = NULL; // give
done:
    osh_weights_free(cx, w);
    return rc;
}

void osh_weights_free(osh_ctx *cx, osh_weights *w)
{
    if (!w) return;
    for (int i = 0; i < w->n; i++) osh_tensor_free(cx, w->w[i]), osh_tensor_free(cx, w->host[i]);
    osh_free(cx, w->w);
    osh_free(cx, w->host);
    osh_free(cx, w);
}

static osh_status load_one(osh_ctx *cx, osh_tensor **out, const osh_weight *w,
                           const osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;
    osh_tensor *t = NULL; // own
    int64_t bad = -1;
    if (w->compressed)
        OSH_FAIL(cx, OSH_E_INTERNAL,
                 "tensor %s is compressed and was not decompressed before the run", w->name);
    if (w->part) {
        OSH_TRY(osh_tensor_new(cx, &t, w->part->dtype, w->ndim, w->shape));
        OSH_TRY(osh_checkpoint_read_as(cx, t->data, ck, &ck->tensors[w->tensor], w->part));
    } else {
        OSH_TRY(osh_checkpoint_load(cx, &t, ck, w->name, w->ndim, w->shape));
    }
    bad = osh_find_nonfinite(t->data, t->dtype, osh_tensor_numel(t));
    if (bad >= 0)
        OSH_FAIL(cx, OSH_E_NUMERIC, "tensor %s: element %lld is not finite", w->name,
                 (long long)bad);
    *out = t, t = NULL; // give
done:
    osh_tensor_free(cx, t);
    return rc;
}

osh_status osh_weights_load(osh_ctx *cx, osh_weights *w, const osh_graph *g,
                            const osh_checkpoint *ck, int first_node, int n_nodes)
{
    osh_status rc = OSH_OK;
    w->rows = ck;
    for (int i = first_node; i < first_node + n_nodes; i++)
        for (int k = 0; k < g->nodes[i].op->n_weights; k++) {
            int index = g->nodes[i].w[k];
            if (index < 0 || w->w[index] || osh_is_picked(g, &g->nodes[i], k)) continue;
            OSH_TRY(osh_weight_place(cx, w, g, ck, index));
            osh_tensor_free(cx, w->host[index]), w->host[index] = NULL;
        }
done:
    return rc;
}

/* Returns the stored tensor of the weight, if the loaded bytes are contiguous bytes of a file.
 * Otherwise returns NULL. */
static const osh_ckpt_tensor *stored_tensor(const osh_graph *g, const osh_checkpoint *ck,
                                            int weight)
{
    const osh_weight *w = &g->weights[weight];
    const osh_ckpt_tensor *t = w->tensor < 0 ? NULL : &ck->tensors[w->tensor];
    if (w->compressed || !t) return NULL;
    // looks the tensor up by name, as osh_weights_load does
    if (!w->part) t = osh_checkpoint_find(ck, w->name);
    if (!t || t->shard < 0 || osh_checkpoint_is_changed(ck, t - ck->tensors)) return NULL;
    return (w->part ? w->part : t->e)->row ? NULL : t;
}

bool osh_weight_is_stored(const osh_graph *g, const osh_checkpoint *ck, int weight)
{
    return stored_tensor(g, ck, weight) != NULL;
}

const osh_container *osh_weight_stored(const osh_entry **e, const osh_graph *g,
                                       const osh_checkpoint *ck, int weight)
{
    const osh_ckpt_tensor *t = ck->sums ? NULL : stored_tensor(g, ck, weight);
    if (!t) return NULL;
    *e = g->weights[weight].part ? g->weights[weight].part : t->e;
    return ck->shards[t->shard];
}

osh_status osh_weight_load(osh_ctx *cx, osh_tensor **out, const osh_graph *g,
                           const osh_checkpoint *ck, int weight)
{
    return load_one(cx, out, &g->weights[weight], ck);
}

typedef struct reading { // state of osh_weights_read
    osh_weights *w;           // view
    const osh_graph *g;       // view
    const osh_checkpoint *ck; // view
    const osh_weight_set *s;  // view
} reading;

static osh_status reading_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const reading *j = user;
    int i = j->s->first + (int)chunk;
    (void)worker;
    if (!j->s->want[i] || j->w->w[i] || j->w->host[i] || !osh_weight_is_stored(j->g, j->ck, i))
        return OSH_OK;
    return load_one(cx, &j->w->host[i], &j->g->weights[i], j->ck);
}

osh_status osh_weights_read(osh_ctx *cx, osh_weights *w, const osh_graph *g,
                            const osh_checkpoint *ck, const osh_weight_set *s)
{
    return osh_parallel_for(cx, s->end - s->first, reading_chunk, &(reading){w, g, ck, s});
}

osh_status osh_weight_place(osh_ctx *cx, osh_weights *w, const osh_graph *g,
                            const osh_checkpoint *ck, int weight)
{
    osh_status rc = OSH_OK;
    osh_tensor *t = NULL; // own
    if (!w->host[weight]) OSH_TRY(load_one(cx, &w->host[weight], &g->weights[weight], ck));
    const osh_tensor *h = w->host[weight];
    if (w->device) {
        OSH_TRY(osh_tensor_new_on(cx, &t, (osh_where){w->device, OSH_LIFE_LONG}, h->dtype, h->ndim,
                                  h->shape));
        OSH_TRY(osh_tensor_copy(cx, t, h));
    } else {
        t = w->host[weight], w->host[weight] = NULL; // give
    }
    osh_tensor_free(cx, w->w[weight]);
    w->w[weight] = t, t = NULL; // give
done:
    osh_tensor_free(cx, t);
    return rc;
}

size_t osh_weight_bytes(const osh_graph *g, const osh_checkpoint *ck, int weight)
{
    if (g->weights[weight].tensor < 0 && !g->weights[weight].part) return 0;
    const osh_entry *e = osh_weight_entry(g, ck, weight);
    return osh_tensor_gross((size_t)(e->end - e->begin));
}

void osh_weights_release(osh_ctx *cx, osh_weights *w, const osh_graph *g, int first_node,
                         int n_nodes)
{
    for (int i = first_node; i < first_node + n_nodes; i++)
        for (int k = 0; k < g->nodes[i].op->n_weights; k++) {
            int index = g->nodes[i].w[k];
            if (index < 0) continue;
            osh_tensor_free(cx, w->w[index]);
            osh_tensor_free(cx, w->host[index]);
            w->w[index] = w->host[index] = NULL;
        }
}
