/* dense.c - lists the weights that stay dense (not quantized), with the reasons. Weights whose
 * names differ only in numbers share a row of the list, with `*` in place of the numbers. */
#include "match/dense.h"
#include "quant/source.h"

#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "base/name.h"
#include "graph/kind.h"

static bool dense_is_weight(const osh_entry *e)
{
    size_t n = strlen(e->name);
    return (e->ndim == 2 || e->ndim == 3) && !osh_ends_with(e->name, n, "bias") &&
           !osh_ends_with(e->name, n, "norm.weight");
}

/* Returns the reason why a tensor that is not the weight of a known module stays dense. */
static const char *dense_reason_by_shape(const osh_checkpoint *ck, const osh_entry *e)
{
    if (strstr(e->name, "conv")) return "a convolution";
    if (strstr(e->name, "experts") || (e->ndim == 3 && strstr(e->name, "_moe.")))
        return osh_checkpoint_parts_for_vllm(ck)
                   ? "experts in one tensor; transformers does not find their codes, vLLM does "
                     "(--target vllm)"
                   : "experts in one tensor; transformers does not find their codes";
    return e->ndim == 3 ? "of three dimensions" : "not the weight of a module";
}

/* Writes a module's name to b, with * in place of its numbers. For example,
 * "model.layers.3.mlp.gate.weight" becomes "model.layers.*.mlp.gate". */
osh_status osh_dense_pattern(osh_ctx *cx, osh_buf *b, const char *name)
{
    osh_status rc = OSH_OK;
    size_t n =
        strlen(name) - (osh_ends_with(name, strlen(name), ".weight") ? strlen(".weight") : 0);
    osh_buf_clear(b);
    for (size_t at = 0; at < n;) {
        size_t len = strcspn(name + at, "."), digits = strspn(name + at, "0123456789");
        if (at + len > n) len = n - at;
        if (len && digits == len) OSH_TRY(osh_buf_append(cx, b, "*", 1));
        else OSH_TRY(osh_buf_append(cx, b, name + at, len));
        at += len;
        if (at < n) OSH_TRY(osh_buf_append(cx, b, ".", 1));
        at++;
    }
done:
    return rc;
}

static osh_status dense_row_count(osh_ctx *cx, osh_matching *p, osh_map *rows,
                                  const osh_ckpt_tensor *t, const char *why, osh_buf *key)
{
    osh_status rc = OSH_OK;
    const osh_entry *e = t->e;
    bool decoded = t->shard < 0 && !p->in->ck->virtuals[-1 - t->shard].dense;
    int64_t at;
    OSH_TRY(osh_dense_pattern(cx, key, e->name));
    size_t n = key->len;
    OSH_TRY(osh_buf_printf(cx, key, "\n%s\n%d", why, decoded));
    if (!osh_map_get(rows, key->data, key->len, &at)) {
        at = p->n_dense;
        OSH_TRY(osh_map_put(cx, rows, key->data, key->len, at));
        p->dense[at].why = why, p->dense[at].decoded = decoded,
        p->dense[at].in_block = osh_in_decoder_block(e->name);
        if (!(p->dense[at].names = osh_sprintf(cx, "%.*s", (int)n, key->data)))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the list of dense weights");
        p->n_dense++;
    }
    p->dense[at].n++;
    p->dense[at].bytes += e->end - e->begin;
done:
    return rc;
}

osh_status osh_plan_dense(osh_ctx *cx, osh_matching *p, const char *const *why)
{
    osh_status rc = OSH_OK;
    bool *quantized = NULL; // own
    osh_map *rows = NULL;   // own
    int64_t all = 0, dense = 0;
    osh_buf key;
    osh_buf_init(&key, 0);
    OSH_NEW(cx, quantized, p->in->ck->n_tensors);
    OSH_NEW(cx, p->dense, p->in->ck->n_tensors);
    OSH_TRY(osh_map_new(cx, &rows, 64));
    for (int i = 0; i < p->n_linears; i++) quantized[p->linears[i].tensor] = !p->linears[i].kept;
    for (int64_t i = 0; i < p->in->ck->n_tensors; i++) {
        const osh_entry *e = p->in->ck->tensors[i].e;
        int shard = p->in->ck->tensors[i].shard;
        bool decoded = shard < 0 && !p->in->ck->virtuals[-1 - shard].dense;
        if (!dense_is_weight(e) || osh_checkpoint_is_kept(p->in->ck, i)) continue;
        if (!decoded && osh_source_has_part(p->in->source, e->name)) continue;
        if (p->transforms && osh_q_is_matrix(p->transforms, e->name)) continue;
        int64_t in_block = osh_in_decoder_block(e->name) ? e->end - e->begin : 0;
        all += in_block;
        if (quantized[i]) continue;
        dense += in_block;
        OSH_TRY(dense_row_count(cx, p, rows, &p->in->ck->tensors[i],
                                why[i] ? why[i] : dense_reason_by_shape(p->in->ck, e), &key));
    }
    p->dense_share = all ? (double)dense / (double)all : 0;
done:
    osh_map_free(cx, rows);
    osh_free(cx, quantized);
    osh_buf_deinit(cx, &key);
    return rc;
}

void osh_plan_dense_free(osh_ctx *cx, osh_matching *p)
{
    for (int64_t i = 0; i < p->n_dense; i++) osh_free(cx, p->dense[i].names);
    osh_free(cx, p->dense);
}

bool osh_dense_json(cJSON *root, const osh_matching *p)
{
    cJSON *list = cJSON_AddArrayToObject(root, "left_dense");
    bool ok = list && cJSON_AddNumberToObject(root, "dense_share", p->dense_share);
    for (int64_t i = 0; ok && i < p->n_dense; i++) {
        const osh_dense *d = &p->dense[i];
        cJSON *o = cJSON_CreateObject();
        cJSON_AddItemToArray(list, o);
        ok = o && cJSON_AddStringToObject(o, "modules", d->names) &&
             cJSON_AddNumberToObject(o, "n", (double)d->n) &&
             cJSON_AddNumberToObject(o, "bytes", (double)d->bytes) &&
             cJSON_AddStringToObject(o, "why", d->why);
    }
    return ok;
}

osh_status osh_dense_warning(osh_ctx *cx, osh_buf *b, const osh_matching *p)
{
    int64_t most = -1;
    // true if all Linears are listed only for the scales of attentions, so that no weight changes
    bool all = true;
    for (int i = 0; i < p->n_linears; i++) all &= p->linears[i].kept;
    if (all || p->dense_share <= OSH_DENSE_MUCH) return OSH_OK;
    for (int64_t i = 0; i < p->n_dense; i++)
        if (p->dense[i].in_block && (most < 0 || p->dense[i].bytes > p->dense[most].bytes))
            most = i;
    const osh_dense *d = &p->dense[most];
    return osh_buf_printf(
        cx, b, "%.1f %% of the decoder blocks' weight bytes stay dense, most of them in %s: %s",
        100 * p->dense_share, d->names, d->why);
}

osh_status osh_dense_grown(osh_ctx *cx, osh_buf *b, const osh_matching *p, int64_t total_bytes)
{
    int64_t in = osh_checkpoint_stored_bytes(p->in->ck), most = -1;
    for (int64_t i = 0; i < p->n_dense; i++)
        if (p->dense[i].decoded && (most < 0 || p->dense[i].bytes > p->dense[most].bytes)) most = i;
    if (most < 0 || total_bytes <= in) return OSH_OK;
    return osh_buf_printf(
        cx, b,
        "the output is %.2f times as large as the source, which stores codes of weights that stay "
        "dense, most of them in %s",
        (double)total_bytes / (double)in, p->dense[most].names);
}
