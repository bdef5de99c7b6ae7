/* manifest_text.c - writes the manifest from the plan and the emitter's checksums, and reads a
 * manifest. */
#include "output/manifest_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/num.h"
#include "base/xxh3.h"
#include "output/emit_impl.h"
#include "rewrite/experts.h"
#include "rewrite/folds.h"
#include "schedule/tuning.h"

typedef unsigned long long ull;

/* Returns the index of the source tensor from which output tensor i is made. */
static int64_t manifest_source(const osh_manifest *p, int64_t i)
{
    const osh_out_tensor *o = &p->out_info[i];
    if (o->source >= 0) return o->source;
    const osh_linear *l = &p->match->linears[o->linear];
    return l->out.bias >= 0 && o->leaf == l->out.n - 1 ? l->out.bias : l->tensor;
}

/* Returns the rule of output tensor i, which says how it was made, such as "copied". Sets *source
 * to the name of its source tensor. */
static const char *manifest_rule(const osh_manifest *p, int64_t i, const char **source)
{
    const osh_out_tensor *o = &p->out_info[i];
    int64_t s = manifest_source(p, i);
    *source = p->in->ck->tensors[s].e->name;
    if (o->source < 0 && s == p->match->linears[o->linear].out.bias) return "changed";
    bool kept = o->source < 0 && p->match->linears[o->linear].kept && !o->leaf;
    if (o->source < 0 && !kept && p->match->linears[o->linear].kept)
        return "quantized"; // the tensor is a scale of cached keys or values
    if (o->source < 0 && !kept)
        return p->match->linears[o->linear].scheme_index < 0 ? "pruned" : "quantized";
    if (osh_is_folded(p->rewrites, s) || osh_is_tuned(p, s) ||
        osh_is_cut_router(p->rewrites, s))
        return "changed";
    if (strcmp(*source, p->out[i].name)) return "untied";
    int shard = p->in->ck->tensors[s].shard;
    if (shard >= 0) return "copied";
    const osh_ckpt_virtual *v = &p->in->ck->virtuals[-1 - shard];
    return v->merged ? "merged" : v->dense ? "padded" : "dequantized";
}

static osh_status manifest_put_text(osh_ctx *cx, osh_buf *b, const char *key, const char *value)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_buf_printf(cx, b, "%s\"%s\": ", b->data[b->len - 1] == '{' ? "" : ", ", key));
    OSH_TRY(osh_json_put_string(cx, b, value));
done:
    return rc;
}

static osh_status manifest_put_tensor(osh_ctx *cx, osh_buf *b, const osh_manifest *p, int64_t i,
                                      const uint64_t *sums)
{
    osh_status rc = OSH_OK;
    const osh_entry *t = &p->out[i];
    const char *source, *rule = manifest_rule(p, i, &source);
    OSH_TRY(osh_buf_printf(cx, b, "{"));
    OSH_TRY(manifest_put_text(cx, b, "name", t->name));
    OSH_TRY(
        manifest_put_text(cx, b, "file", p->shards[p->out_info[i].shard].name));
    OSH_TRY(manifest_put_text(cx, b, "dtype", osh_dtype_name(t->dtype)));
    OSH_TRY(osh_buf_printf(cx, b, ", \"shape\": ["));
    for (int d = 0; d < t->ndim; d++)
        OSH_TRY(osh_buf_printf(cx, b, "%s%lld", d ? ", " : "", (long long)t->shape[d]));
    OSH_TRY(osh_buf_printf(cx, b, "]"));
    OSH_TRY(manifest_put_text(cx, b, "rule", rule));
    OSH_TRY(manifest_put_text(cx, b, "source", source));
    if (sums) OSH_TRY(osh_buf_printf(cx, b, ", \"xxh3\": \"%016llx\"", (ull)sums[i]));
    int64_t from = manifest_source(p, i);
    uint64_t read;
    if (sums && osh_checkpoint_seen(p->in->ck, from, &read))
        OSH_TRY(osh_buf_printf(cx, b, ", \"source_xxh3\": \"%016llx\"", (ull)read));
    OSH_TRY(osh_buf_printf(cx, b, "}"));
done:
    return rc;
}

static osh_status manifest_put_module(osh_ctx *cx, osh_buf *b, const osh_manifest *p, int i,
                                      const osh_result *r)
{
    osh_status rc = OSH_OK;
    const osh_linear *l = &p->match->linears[i];
    OSH_TRY(osh_buf_printf(cx, b, "{"));
    OSH_TRY(manifest_put_text(cx, b, "name", l->name));
    OSH_TRY(manifest_put_text(cx, b, "group", l->scheme->group_name));
    OSH_TRY(manifest_put_text(cx, b, "format", l->format->name));
    OSH_TRY(manifest_put_text(cx, b, "modifier", p->in->recipe->modifiers[l->modifier].type->name));
    if (l->prune.modifier >= 0)
        OSH_TRY(manifest_put_text(cx, b, "pruned_by",
                                  p->in->recipe->modifiers[l->prune.modifier].type->name));
    OSH_TRY(osh_buf_printf(cx, b, ", \"relative_squared_error\": %.17g", r->nmse));
    if (r->fallback) OSH_TRY(manifest_put_text(cx, b, "fallback", r->fallback));
    OSH_TRY(osh_buf_printf(cx, b, "}"));
done:
    return rc;
}

/* Writes the factors of a fold, with eight hexadecimal digits for the bits of each factor. */
static osh_status manifest_put_fold(osh_ctx *cx, osh_buf *b, const osh_manifest *p,
                                    const osh_fold *f)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_buf_printf(cx, b, "{"));
    OSH_TRY(manifest_put_text(cx, b, "layer", p->in->graph->modules[f->module].name));
    OSH_TRY(manifest_put_text(cx, b, "modifier", p->in->recipe->modifiers[f->modifier].type->name));
    OSH_TRY(osh_buf_printf(cx, b, ", \"factors\": \""));
    for (int64_t c = 0; c < f->n; c++)
        OSH_TRY(osh_buf_printf(cx, b, "%08x", osh_bits_of_f32(f->s[c])));
    OSH_TRY(osh_buf_printf(cx, b, "\"}"));
done:
    return rc;
}

static osh_status manifest_put_folds(osh_ctx *cx, osh_buf *b, const osh_manifest *p)
{
    osh_status rc = OSH_OK;
    if (!p->rewrites->n_folds) goto done;
    OSH_TRY(osh_buf_printf(cx, b, "  \"folds\": ["));
    for (int i = 0; i < p->rewrites->n_folds; i++) {
        OSH_TRY(osh_buf_printf(cx, b, "%s\n    ", i ? "," : ""));
        OSH_TRY(manifest_put_fold(cx, b, p, &p->rewrites->folds[i]));
    }
    OSH_TRY(osh_buf_printf(cx, b, "\n  ],\n"));
done:
    return rc;
}

static osh_status manifest_put_file(osh_ctx *cx, osh_buf *b, const char *dir, const char *name,
                                    bool *first)
{
    osh_status rc = OSH_OK;
    char *path = osh_path_join(cx, dir, name); // own
    uint64_t sum = 0;
    int64_t n = 0;
    if (!path) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    if (!osh_file_exists(path)) goto done; // an output with only one shard has no index file
    OSH_TRY(osh_sum_of_file(cx, &sum, &n, path));
    OSH_TRY(osh_buf_printf(cx, b, "%s\n    {", *first ? "" : ","));
    *first = false;
    OSH_TRY(manifest_put_text(cx, b, "name", name));
    OSH_TRY(
        osh_buf_printf(cx, b, ", \"bytes\": %lld, \"xxh3\": \"%016llx\"}", (long long)n, (ull)sum));
done:
    osh_free(cx, path);
    return rc;
}

static osh_status manifest_put_files(osh_ctx *cx, osh_buf *b, const osh_manifest *p,
                                     const char *dir)
{
    osh_status rc = OSH_OK;
    const char *const own[] = {"config.json", osh_container_written()->index, "recipe.yaml",
                               OSH_README_NAME};
    char **names = NULL; // own
    size_t n = 0;
    bool first = true;
    OSH_TRY(osh_buf_printf(cx, b, "  \"files\": ["));
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        OSH_TRY(manifest_put_file(cx, b, dir, own[i], &first));
    OSH_TRY(osh_checkpoint_side_files(cx, &names, &n, p->in->ck));
    for (size_t i = 0; i < n; i++) OSH_TRY(manifest_put_file(cx, b, dir, names[i], &first));
    if (osh_experts_file(p->rewrites))
        OSH_TRY(manifest_put_file(cx, b, dir, osh_experts_file(p->rewrites), &first));
    OSH_TRY(osh_buf_printf(cx, b, "\n  ],\n"));
done:
    osh_strings_free(cx, names, n);
    return rc;
}

/* ---- the manifest file; its text is written in pieces, because it can have about 10 MB ---- */

enum { PIECE = 1 << 16 };
typedef struct writing {
    const osh_emitter *e;
    const osh_result *results;
    osh_file *f; // view
    int64_t at;  // number of bytes that are written to the file so far
    osh_buf b;   // own: text that is not yet written to the file
    XXH3_state_t *sum; // own: checksum state of the written bytes
} writing;

/* The last member of the manifest is the checksum of all bytes before it. */
#define SUM_KEY "  \"manifest_xxh3\": \""
#define SUM_END "\"\n}\n"
enum { SUM_DIGITS = 16, SUM_BYTES = sizeof SUM_KEY - 1 + SUM_DIGITS + sizeof SUM_END - 1 };

static osh_status manifest_flush(osh_ctx *cx, writing *w)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_file_pwrite(cx, w->f, w->b.data, w->b.len, w->at));
    XXH3_64bits_update(w->sum, w->b.data, w->b.len);
    w->at += (int64_t)w->b.len;
    osh_buf_clear(&w->b);
done:
    return rc;
}

static osh_status manifest_begin_item(osh_ctx *cx, writing *w, bool first)
{
    osh_status rc = OSH_OK;
    if (w->b.len >= PIECE) OSH_TRY(manifest_flush(cx, w));
    OSH_TRY(osh_buf_printf(cx, &w->b, "%s\n    ", first ? "" : ","));
done:
    return rc;
}

static osh_status manifest_put_head(osh_ctx *cx, osh_buf *b, const osh_emitter *e)
{
    osh_status rc = OSH_OK;
    const osh_manifest *p = &e->plan->manifest;
    char *made_of = NULL, *stamps = NULL; // own
    OSH_TRY(osh_identity_json(cx, &made_of, e->id, OSH_IDENTITY_FIELDS));
    OSH_TRY(osh_identity_json(cx, &stamps, e->id, OSH_IDENTITY_STAMPS));
    OSH_TRY(osh_buf_printf(cx, b, "{\n  \"format\": 1,\n  \"made_of\": %s,\n  \"read_from\": %s,\n",
                           made_of, stamps));
    OSH_TRY(osh_buf_printf(cx, b, "  \"dropped\": ["));
    for (int i = 0; p->rewrites->experts && i < p->rewrites->experts->n_dropped; i++)
        OSH_TRY(osh_buf_printf(cx, b, "%s\"%s\"", i ? ", " : "", p->rewrites->experts->dropped[i]));
    OSH_TRY(osh_buf_printf(cx, b, "],\n"));
    OSH_TRY(manifest_put_files(cx, b, p, e->partial));
    OSH_TRY(manifest_put_folds(cx, b, p));
done:
    osh_free(cx, made_of);
    osh_free(cx, stamps);
    return rc;
}

static osh_status manifest_fill(osh_ctx *cx, void *user, osh_file *f)
{
    osh_status rc = OSH_OK;
    writing *w = user;
    const osh_manifest *p = &w->e->plan->manifest;
    w->f = f;
    OSH_TRY(manifest_put_head(cx, &w->b, w->e));
    OSH_TRY(osh_buf_printf(cx, &w->b, "  \"modules\": ["));
    for (int i = 0; i < p->match->n_linears; i++) {
        OSH_TRY(manifest_begin_item(cx, w, !i));
        OSH_TRY(manifest_put_module(cx, &w->b, p, i, &w->results[i]));
    }
    OSH_TRY(osh_buf_printf(cx, &w->b, "\n  ],\n  \"tensors\": ["));
    for (int64_t i = 0; i < p->n_out; i++) {
        OSH_TRY(manifest_begin_item(cx, w, !i));
        OSH_TRY(manifest_put_tensor(cx, &w->b, p, i, w->e->sums));
    }
    OSH_TRY(osh_buf_printf(cx, &w->b, "\n  ],\n"));
    OSH_TRY(manifest_flush(cx, w));
    OSH_TRY(osh_buf_printf(cx, &w->b, SUM_KEY "%016llx" SUM_END, (ull)XXH3_64bits_digest(w->sum)));
    OSH_TRY(manifest_flush(cx, w));
done:
    return rc;
}

osh_status osh_manifest_write(osh_ctx *cx, const char *path, const osh_emitter *e,
                              const osh_result *results)
{
    osh_status rc = OSH_OK;
    writing w = {.e = e, .results = results, .sum = XXH3_createState()}; // own
    osh_buf_init(&w.b, 0);
    if (!w.sum) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a checksum");
    XXH3_64bits_reset(w.sum);
    OSH_TRY(osh_file_write_by(cx, path, manifest_fill, &w));
done:
    osh_buf_deinit(cx, &w.b);
    XXH3_freeState(w.sum);
    return rc;
}

static void sum_update(void *state, const void *p, size_t n) { XXH3_64bits_update(state, p, n); }

osh_status osh_manifest_sum(osh_ctx *cx, uint64_t *sum, uint64_t *said, bool *has, const char *dir)
{
    osh_status rc = OSH_OK;
    osh_file *f = NULL;                         // own
    XXH3_state_t *state = XXH3_createState();   // own
    char *path = osh_path_join(cx, dir, OSH_MANIFEST_NAME); // own
    char tail[SUM_BYTES + 1] = "", again[SUM_BYTES + 1];
    osh_stamp stamp;
    *has = false;
    if (!state || !path) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the checksum of the manifest");
    OSH_TRY(osh_file_open(cx, &f, path));
    OSH_TRY(osh_file_stamp(cx, &stamp, f));
    int64_t n = stamp.n_bytes - SUM_BYTES;
    if (n < 0) goto done;
    OSH_TRY(osh_file_pread(cx, f, tail, SUM_BYTES, n));
    *said = strtoull(tail + sizeof SUM_KEY - 1, NULL, 16);
    snprintf(again, sizeof again, SUM_KEY "%016llx" SUM_END, (ull)*said);
    *has = !memcmp(tail, again, SUM_BYTES);
    XXH3_64bits_reset(state);
    OSH_TRY(osh_file_scan(cx, f, (size_t)n, 0, sum_update, state));
    *sum = XXH3_64bits_digest(state);
done:
    XXH3_freeState(state);
    osh_file_close(cx, f);
    osh_free(cx, path);
    return rc;
}

osh_status osh_manifest_read(osh_ctx *cx, cJSON **rest, const char *dir, const osh_json_taken *list,
                             void *user)
{
    osh_status rc = OSH_OK;
    osh_json_taken lists[] = {{"modules", NULL}, {"tensors", NULL}, {"folds", NULL}, {NULL, NULL}};
    char *path = osh_path_join(cx, dir, OSH_MANIFEST_NAME); // own
    if (!path) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    for (osh_json_taken *l = lists; list && l->key; l++)
        if (!strcmp(l->key, list->key)) l->item = list->item;
    OSH_TRY(osh_json_read_lists(cx, rest, path, lists, user));
done:
    osh_free(cx, path);
    return rc;
}

osh_status osh_manifest_list(osh_ctx *cx, cJSON *list, const osh_manifest *p)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    osh_buf_init(&b, 0);
    for (int64_t i = 0; i < p->n_out; i++) {
        osh_buf_clear(&b);
        OSH_TRY(manifest_put_tensor(cx, &b, p, i, NULL));
        if (!cJSON_AddItemToArray(list, cJSON_Parse(b.data)))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the plan");
    }
done:
    osh_buf_deinit(cx, &b);
    return rc;
}
