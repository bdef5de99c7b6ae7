/* manifest.c - lists every output tensor, with its file and offset, before any tensor is written.
 * Also finds the fate of each source tensor (quantized, copied or changed). All tensors of a module
 * are in one shard, in the order that the safetensors library uses. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/name.h"
#include "graph/heads.h"
#include "match/cache.h"
#include "rewrite/experts.h"
#include "rewrite/folds.h"
#include "rewrite/manifest.h"
#include "rewrite/rotations.h"

typedef struct builder {
    int64_t cap;
    /* at_linear[i]: index of the Linear whose tensors replace source tensor i; -1: no Linear
     * replaces it. BESIDE: the source tensor is a learned bias, which is written together with its
     * Linear. */
    int64_t *at_linear; // own [source tensors]
} builder;
enum { BESIDE = -2 };

/* Adds an output tensor named `name` with the dtype and shape of `like`. Takes ownership of
 * `name`. */
static osh_status manifest_push(osh_ctx *cx, osh_manifest *p, const builder *b, char *name,
                                const osh_entry *like, osh_out_tensor info)
{
    if (!name) return osh_fail(cx, OSH_E_NOMEM, "no memory for an output tensor's name");
    if (p->n_out >= b->cap) {
        osh_free(cx, name);
        return osh_fail(cx, OSH_E_INTERNAL, "more output tensors than were counted");
    }
    osh_entry *e = &p->out[p->n_out];
    *e = (osh_entry){.name = name, .dtype = like->dtype, .ndim = like->ndim};
    for (int i = 0; i < like->ndim; i++) e->shape[i] = like->shape[i];
    p->out_info[p->n_out++] = info;
    return OSH_OK;
}

static osh_status manifest_push_linear(osh_ctx *cx, osh_manifest *p, const builder *b,
                                       osh_matching *match, int li)
{
    osh_status rc = OSH_OK;
    osh_linear *l = &match->linears[li];
    osh_format_tensor t[OSH_FORMAT_MAX_TENSORS];
    osh_cache_leaf c[OSH_CACHE_LEAVES];
    osh_format_weight weight = osh_linear_stored(l);
    OSH_TRY(l->format->tensors(cx, t, &l->out.n, &weight));
    l->out.first = p->n_out;
    for (int k = 0; k < l->out.n; k++)
        OSH_TRY(manifest_push(cx, p, b, osh_checkpoint_name_of(cx, p->in->ck, l->name, t[k].leaf),
                              &(osh_entry){.dtype = t[k].dtype,
                                           .ndim = t[k].ndim,
                                           .shape = {t[k].shape[0], t[k].shape[1]}},
                              (osh_out_tensor){.source = -1, .linear = li, .leaf = k}));
    const char *dot = strrchr(l->name, '.');
    int n = osh_cache_leaves(c, p->match, l), around = dot ? (int)(dot - l->name) : 0;
    for (int k = 0; k < n; k++, l->out.n++) {
        osh_entry like = {.dtype = c[k].dtype, .ndim = c[k].ndim};
        memcpy(like.shape, c[k].shape, sizeof c[k].shape);
        char *name = osh_sprintf(cx, "%.*s.%s", c[k].of == OSH_OUTPUT ? INT_MAX : around, l->name,
                                 c[k].name);
        OSH_TRY(manifest_push(cx, p, b, name, &like,
                              (osh_out_tensor){.source = -1, .linear = li, .leaf = l->out.n}));
    }
    if (l->out.bias < 0) goto done;
    const osh_entry *e = p->in->ck->tensors[l->out.bias].e;
    OSH_TRY(manifest_push(cx, p, b, osh_strdup(cx, e->name), e,
                 (osh_out_tensor){.source = -1, .linear = li, .leaf = l->out.n++}));
done:
    return rc;
}

/* True if the source tensor of the Linear's weight has the Linear's own name. False for a tied
 * head, whose weight is the embedding table. The table stays in the output, and the head gets
 * tensors of its own. */
static bool replaces_weight(const osh_manifest *p, const osh_linear *l)
{
    const char *name = p->in->ck->tensors[l->tensor].e->name;
    size_t n = strlen(l->name);
    return !strncmp(name, l->name, n) && !strcmp(name + n, ".weight");
}

/* Finds a tied head that has no tensor in the source. Sets *name to its name, or to NULL if there
 * is no such head. Sets *tensor to the index of the embedding table. */
static void tied_head(const char **name, int64_t *tensor, const osh_manifest *p)
{
    osh_missing_head h;
    const osh_node *n = p->in->graph ? &p->in->graph->nodes[p->in->graph->head] : NULL;
    *name = NULL;
    if (!osh_head_missing(&h, p->in->ck)) return;
    *tensor = n ? p->in->graph->weights[n->w[0]].tensor : h.embedding;
    if (n && *tensor >= 0)
        *name = p->in->graph->modules[n->module].name;
    else if (!n && h.tied)
        *name = h.name;
}

/* If the embedding table is quantized and the tied head stays dense, adds a dense copy of the table
 * as the weight of the head. */
static osh_status manifest_keep_head(osh_ctx *cx, osh_manifest *p, const builder *b)
{
    osh_status rc = OSH_OK;
    const char *name = NULL; // view
    int64_t tied = -1;
    bool head = false;
    tied_head(&name, &tied, p);
    if (!name || b->at_linear[tied] < 0) goto done;
    for (int i = 0; i < p->match->n_linears; i++) head |= !strcmp(p->match->linears[i].name, name);
    if (head) goto done;
    OSH_TRY(manifest_push(cx, p, b, osh_sprintf(cx, "%s.weight", name), p->in->ck->tensors[tied].e,
                 (osh_out_tensor){.source = tied, .linear = -1, .leaf = -1}));
    p->untie = true;
done:
    return rc;
}

/* True if the output tensor belongs to the output head. */
static bool manifest_is_head(const osh_manifest *p, const osh_entry *e)
{
    const char *tensor = e->name;
    const osh_graph *g = p->in->graph;
    if (!g) return osh_head_is(p->in->ck->config, e);
    const char *head = g->modules[g->nodes[g->head].module].name;
    size_t n = strlen(head);
    return !strncmp(tensor, head, n) && !strncmp(tensor + n, ".weight", strlen(".weight"));
}

/* Some sources have a tensor for the head although their config ties the head. Loaders replace such
 * a tensor by the embedding table. So the output's config must untie the head if the output changes
 * the head or the table. */
static void manifest_untie_stored(osh_manifest *p)
{
    bool stored = false, changed = false;
    for (int64_t i = 0; i < p->n_out; i++) {
        const char *name = p->out[i].name;
        int64_t source = p->out_info[i].source;
        bool head = manifest_is_head(p, &p->out[i]);
        if (!head && !osh_head_is_table(name)) continue;
        stored |= head;
        changed |= p->out_info[i].linear >= 0 || !osh_ends_with(name, strlen(name), ".weight") ||
                   osh_is_folded(p->rewrites, source) || osh_is_tuned(p, source);
    }
    p->untie |= p->in->ck->config->tie_word_embeddings && stored && changed;
}

/* Sets b->cap to an upper bound of the number of output tensors: copies of source tensors, tensors
 * of Linears, and one tensor of an untied head. */
static osh_status manifest_count(osh_ctx *cx, builder *b, const osh_manifest *p)
{
    osh_status rc = OSH_OK;
    osh_format_tensor t[OSH_FORMAT_MAX_TENSORS];
    osh_cache_leaf c[OSH_CACHE_LEAVES];
    b->cap = 1;
    for (int64_t i = 0; i < p->in->ck->n_tensors; i++)
        b->cap += b->at_linear[i] == -1 && !osh_checkpoint_is_kept(p->in->ck, i);
    for (int i = 0, packed; i < p->match->n_linears; i++) {
        const osh_linear *l = &p->match->linears[i];
        osh_format_weight weight = osh_linear_stored(l);
        OSH_TRY(l->format->tensors(cx, t, &packed, &weight));
        b->cap += packed + osh_cache_leaves(c, p->match, l) + (l->out.bias >= 0);
    }
done:
    return rc;
}

static osh_status manifest_push_all(osh_ctx *cx, osh_manifest *p, builder *b,
                                    osh_matching *match)
{
    osh_status rc = OSH_OK;
    OSH_NEW(cx, b->at_linear, p->in->ck->n_tensors);
    for (int64_t i = 0; i < p->in->ck->n_tensors; i++) b->at_linear[i] = -1;
    for (int i = 0; i < p->match->n_linears; i++) {
        if (p->match->linears[i].out.bias >= 0)
            b->at_linear[p->match->linears[i].out.bias] = BESIDE;
        if (replaces_weight(p, &p->match->linears[i]))
            b->at_linear[p->match->linears[i].tensor] = i;
        else p->untie = true;
    }
    OSH_TRY(manifest_count(cx, b, p));
    OSH_NEW(cx, p->out, b->cap);
    OSH_NEW(cx, p->out_info, b->cap);
    for (int64_t i = 0; i < p->in->ck->n_tensors; i++) {
        const osh_entry *e = p->in->ck->tensors[i].e;
        // a module whose codes are copied gets no dense copy
        if (osh_checkpoint_is_kept(p->in->ck, i)) continue;
        if (b->at_linear[i] == BESIDE) continue;
        if (b->at_linear[i] >= 0)
            OSH_TRY(manifest_push_linear(cx, p, b, match, (int)b->at_linear[i]));
        else
            OSH_TRY(manifest_push(cx, p, b, osh_strdup(cx, e->name), e,
                         (osh_out_tensor){.source = i, .linear = -1, .leaf = -1}));
    }
    for (int i = 0; i < p->match->n_linears; i++)
        if (!replaces_weight(p, &p->match->linears[i]))
            OSH_TRY(manifest_push_linear(cx, p, b, match, i));
    OSH_TRY(manifest_keep_head(cx, p, b));
done:
    return rc;
}

static osh_status manifest_check_unique(osh_ctx *cx, const osh_manifest *p)
{
    osh_status rc = OSH_OK;
    const char *twice;
    OSH_TRY(osh_entry_twice(cx, &twice, p->out, p->n_out));
    if (twice)
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "the output would hold %s twice: the source has a tensor of that name, and "
                 "quantization adds another",
                 twice);
done:
    return rc;
}

static size_t entry_bytes(const osh_entry *e)
{
    int64_t n = 0;
    osh_shape_numel(&n, e->ndim, e->shape);
    return (size_t)n * osh_dtype_bytes(e->dtype);
}

static size_t module_length(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? (size_t)(dot - name) : strlen(name);
}

/* Assigns the output tensors to shards, in the order of p->out. If the tensors of a module do not
 * fit in the rest of a shard, they begin the next shard. Returns the number of shards. */
static int assign_shards(osh_manifest *p)
{
    int shard = 0;
    int64_t used = 0;
    p->total_bytes = 0;
    for (int64_t i = 0; i < p->n_out;) {
        int64_t end = i, bytes = 0;
        size_t n = module_length(p->out[i].name);
        while (end < p->n_out && module_length(p->out[end].name) == n &&
               !memcmp(p->out[end].name, p->out[i].name, n))
            bytes += (int64_t)entry_bytes(&p->out[end++]);
        if (used && used + bytes > p->in->opt->max_shard_size) shard++, used = 0;
        for (; i < end; i++) p->out_info[i].shard = shard;
        used += bytes, p->total_bytes += bytes;
    }
    return shard + 1;
}

/* Sorts the tensors of shard s, and makes its header and its name. */
static osh_status shard_lay_out(osh_ctx *cx, osh_manifest *p, int s)
{
    osh_status rc = OSH_OK;
    osh_entry **part = NULL; // own: pointers to the shard's tensors
    osh_shard *sh = &p->shards[s];
    int64_t n = 0;
    for (int64_t i = 0; i < p->n_out; i++) n += p->out_info[i].shard == s;
    OSH_NEW(cx, part, n);
    n = 0;
    for (int64_t i = 0; i < p->n_out; i++)
        if (p->out_info[i].shard == s) part[n++] = &p->out[i];
    OSH_TRY(osh_container_written()->layout(cx, &sh->header, &sh->header_bytes, part, n));
    sh->n_bytes = (int64_t)sh->header_bytes;
    for (int64_t i = 0; i < n; i++)
        if (part[i]->end > sh->n_bytes) sh->n_bytes = part[i]->end;
    sh->name = osh_container_file_name(cx, osh_container_written(), s + 1, p->n_shards);
    if (!sh->name) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a shard's name");
done:
    osh_free(cx, part);
    return rc;
}

osh_status osh_plan_manifest(osh_ctx *cx, osh_manifest *p, osh_matching *match)
{
    osh_status rc = OSH_OK;
    builder b = {0};
    osh_fate *fates = NULL; // own
    p->untie |= osh_is_untied(p->rewrites);
    OSH_TRY(manifest_push_all(cx, p, &b, match));
    manifest_untie_stored(p);
    OSH_TRY(osh_plan_fates(cx, &fates, p));
    OSH_TRY(manifest_check_unique(cx, p));
    p->n_shards = assign_shards(p);
    OSH_NEW(cx, p->shards, p->n_shards);
    for (int s = 0; s < p->n_shards; s++) OSH_TRY(shard_lay_out(cx, p, s));
    for (int64_t i = 0; i < p->n_out; i++)
        if (p->out_info[i].source >= 0) p->dense_bytes += p->out[i].end - p->out[i].begin;
    OSH_TRY(osh_hf_config_with_quantization(cx, &p->config_text, p->in->ck->config,
                                            p->match->quantization_json, p->untie));
done:
    osh_free(cx, fates);
    osh_free(cx, b.at_linear);
    return rc;
}

void osh_plan_drop_output(osh_ctx *cx, osh_manifest *p, osh_matching *match)
{
    for (int64_t i = 0; i < p->n_out; i++) osh_free(cx, p->out[i].name);
    for (int s = 0; p->shards && s < p->n_shards; s++)
        osh_free(cx, p->shards[s].name), osh_free(cx, p->shards[s].header);
    for (int i = 0; i < match->n_linears; i++)
        match->linears[i].out.first = 0, match->linears[i].out.n = 0;
    osh_free(cx, p->out), p->out = NULL;
    osh_free(cx, p->out_info), p->out_info = NULL;
    osh_free(cx, p->shards), p->shards = NULL;
    p->n_out = 0, p->n_shards = 0;
}

/* ---- fates of source tensors ---- */

osh_status osh_plan_fates(osh_ctx *cx, osh_fate **out, const osh_manifest *p)
{
    osh_status rc = OSH_OK;
    osh_fate *f = NULL; // own
    OSH_NEW(cx, f, p->in->ck->n_tensors);
    for (int i = 0; i < p->match->n_linears; i++) {
        if (replaces_weight(p, &p->match->linears[i]))
            f[p->match->linears[i].tensor] = OSH_FATE_QUANTIZED;
        if (p->match->linears[i].out.bias >= 0) f[p->match->linears[i].out.bias] = OSH_FATE_CHANGED;
    }
    for (int64_t i = 0; i < p->n_out; i++) {
        int64_t s = p->out_info[i].source;
        /* Skips output tensors without a source tensor of the same name: computed tensors, and the
         * weight of an untied head. */
        if (s < 0 || strcmp(p->in->ck->tensors[s].e->name, p->out[i].name)) continue;
        if (f[s] != OSH_FATE_NONE)
            OSH_FAIL(cx, OSH_E_INTERNAL, "%s would be both copied and quantized", p->out[i].name);
        bool changed = osh_is_folded(p->rewrites, s) || osh_is_tuned(p, s) ||
                       osh_is_cut_router(p->rewrites, s);
        f[s] = changed ? OSH_FATE_CHANGED : OSH_FATE_COPIED;
    }
    for (int64_t s = 0; s < p->in->ck->n_tensors; s++)
        if (f[s] == OSH_FATE_NONE && !osh_checkpoint_is_kept(p->in->ck, s))
            OSH_FAIL(cx, OSH_E_INTERNAL, "%s is not quantized and not copied, and no rule drops it",
                     p->in->ck->tensors[s].e->name);
    *out = f, f = NULL; // passes ownership
done:
    osh_free(cx, f);
    return rc;
}
