/* verify_source.c - checks an output against its source. It makes the plan again from the source
 * and the output's recipe.yaml. So the checks trust neither the manifest nor the config. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/num.h"
#include "output/emit_impl.h"
#include "budget/bands.h"
#include "rewrite/experts.h"
#include "rewrite/folds.h"
#include "schedule/tuning.h"
#include "verify/verify.h"

/* Returns a member of the run's identity in the manifest (its source, flags or versions), or NULL
 * if it is missing. */
static const cJSON *manifest_made_of(const osh_verify *v, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(v->manifest, "made_of"), key);
}

/* Splits the recorded value of --only into patterns. The value has one pattern on each line. */
static osh_status source_take_only(osh_ctx *cx, osh_strs *to, const cJSON *text)
{
    osh_status rc = OSH_OK;
    if (!cJSON_IsString(text)) goto done;
    size_t n = 1;
    for (const char *s = text->valuestring; *s; s++) n += *s == '\n';
    OSH_NEW(cx, to->items, n);
    for (const char *s = text->valuestring, *end; s; s = *end ? end + 1 : NULL) {
        end = s + strcspn(s, "\n");
        if (!(to->items[to->n] = osh_sprintf(cx, "%.*s", (int)(end - s), s)))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for --only");
        to->n++;
    }
done:
    return rc;
}

static osh_status source_make_plan(osh_ctx *cx, osh_verify *v)
{
    osh_status rc = OSH_OK;
    osh_options *o = &v->plan_options;
    const cJSON *arithmetic = manifest_made_of(v, "arithmetic"),
                *size = manifest_made_of(v, "max_shard_size");
    *o = (osh_options){.model = v->opt->model,
                       .adapter = v->opt->adapter,
                       .models_dir = v->opt->models_dir,
                       .max_shard_size = 20000000000,
                       .moe_calibrate_all_experts = true};
    if (!(o->recipe = osh_path_join(cx, v->dir, "recipe.yaml")))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    if (cJSON_IsString(arithmetic)) o->arithmetic = arithmetic->valuestring;
    if (cJSON_IsString(size) && strtoll(size->valuestring, NULL, 10) > 0)
        o->max_shard_size = strtoll(size->valuestring, NULL, 10);
    const cJSON *indivisible = manifest_made_of(v, "indivisible"),
                *parallel = manifest_made_of(v, "tensor_parallel"),
                *target = manifest_made_of(v, "target");
    if (cJSON_IsString(target)) o->target = target->valuestring;
    if (cJSON_IsString(indivisible)) o->indivisible = indivisible->valuestring;
    if (cJSON_IsString(parallel)) o->tensor_parallel = strtoll(parallel->valuestring, NULL, 10);
    OSH_TRY(source_take_only(cx, &o->only, manifest_made_of(v, "only")));
    if (!osh_file_exists(o->recipe)) {
        OSH_TRY(osh_verify_add(cx, v, "recipe.yaml", "the recipe that made the output",
                               "is not there"));
        goto done;
    }
    rc = osh_plan_of_output(cx, &v->plan, o);
    OSH_TRY(osh_verify_failed(cx, v, rc, "source and recipe.yaml",
                              "a source and a recipe that make this output"));
    if (v->plan) OSH_TRY(osh_globals_new(cx, &v->globals, &v->plan->match));
done:
    return rc;
}

typedef struct json_place { // the first member in which two JSON values differ
    char path[256];         // path of the member in the JSON value, such as "a.b[2]"
    char has[160], want[160];
} json_place;

/* Compares two JSON values. If they differ, sets *at to the first member that differs and returns
 * true. If they are equal, returns false. */
static bool json_differs(json_place *at, const cJSON *a, const cJSON *b)
{
    size_t n = strlen(at->path), room = sizeof at->path - n;
    if (cJSON_IsObject(a) && cJSON_IsObject(b)) {
        for (int side = 0; side < 2; side++)
            for (const cJSON *x = (side ? b : a)->child; x; x = x->next) {
                const cJSON *y = cJSON_GetObjectItemCaseSensitive(side ? a : b, x->string);
                if (side && y) continue;
                snprintf(at->path + n, room, "%s%s", n ? "." : "", x->string);
                if (json_differs(at, side ? y : x, side ? x : y)) return true;
                at->path[n] = 0;
            }
        return false;
    }
    if (cJSON_IsArray(a) && cJSON_IsArray(b) && cJSON_GetArraySize(a) == cJSON_GetArraySize(b)) {
        int i = 0;
        for (const cJSON *x = a->child, *y = b->child; x; x = x->next, y = y->next, i++) {
            snprintf(at->path + n, room, "[%d]", i);
            if (json_differs(at, x, y)) return true;
            at->path[n] = 0;
        }
        return false;
    }
    if (a && b && cJSON_Compare(a, b, true)) return false;
    char *s = a ? cJSON_PrintUnformatted(a) : NULL,
         *t = b ? cJSON_PrintUnformatted(b) : NULL; // own
    snprintf(at->has, sizeof at->has, "%s", s ? s : "not there");
    snprintf(at->want, sizeof at->want, "%s", t ? t : "no such key");
    cJSON_free(s);
    cJSON_free(t);
    return true;
}

static osh_status source_check_config_text(osh_ctx *cx, osh_verify *v)
{
    osh_status rc = OSH_OK;
    cJSON *want = NULL; // own
    json_place at = {0};
    char where[300];
    const osh_hf_config *c = v->ck->config;
    size_t n = strlen(v->plan->manifest.config_text);
    if (c->n_text == n && !memcmp(c->text, v->plan->manifest.config_text, n)) goto done;
    OSH_TRY(osh_json_parse(cx, &want, v->plan->manifest.config_text, n, "config.json", 0));
    if (json_differs(&at, c->json, want)) {
        snprintf(where, sizeof where, "config.json: %s", at.path);
        OSH_TRY(osh_verify_add(cx, v, where, at.want, "is %s", at.has));
    } else {
        OSH_TRY(osh_verify_add(cx, v, "config.json", "the bytes that source and recipe.yaml make",
                               "has the same values, but other bytes"));
    }
done:
    cJSON_Delete(want);
    return rc;
}

/* Checks that the manifest names the source that the caller gave. */
static osh_status source_check_identity(osh_ctx *cx, osh_verify *v)
{
    osh_status rc = OSH_OK;
    osh_identity *id = NULL; // own
    if (!v->manifest) goto done;
    OSH_TRY(osh_identity_of_source(cx, &id, v->plan->in.ck));
    for (size_t i = 0; i < id->n; i++) {
        const cJSON *was = manifest_made_of(v, id->names[i]);
        if (id->here[i] || (cJSON_IsString(was) && !strcmp(was->valuestring, id->values[i])))
            continue;
        OSH_TRY(osh_verify_add(cx, v, id->names[i], cJSON_IsString(was) ? was->valuestring : "none",
                               "is %s", id->values[i]));
    }
done:
    osh_identity_free(cx, id);
    return rc;
}

/* Checks that the manifest lists the same dropped tensors of the source as the plan. */
static osh_status source_check_dropped(osh_ctx *cx, osh_verify *v)
{
    osh_status rc = OSH_OK;
    const osh_experts *x = v->plan->rewrites.experts;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(v->manifest, "dropped"), *o;
    int n = x ? x->n_dropped : 0, i = 0;
    char want[64];
    if (!v->manifest) goto done;
    snprintf(want, sizeof want, "a list of %d tensors", n);
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != n) {
        OSH_TRY(osh_verify_add(cx, v, "dropped", want, "has %d tensors", cJSON_GetArraySize(list)));
        goto done;
    }
    cJSON_ArrayForEach(o, list) {
        const char *is = cJSON_IsString(o) ? o->valuestring : "no name", *planned = x->dropped[i++];
        if (!strcmp(is, planned)) continue;
        OSH_TRY(osh_verify_add(cx, v, "dropped", planned, "has %s as its tensor %d", is, i - 1));
        break;
    }
done:
    return rc;
}

/* Checks the names, shapes, dtypes and shards of the output's tensors against the plan. Sets
 * present[i] to true if output tensor i has the planned dtype and shape. */
static osh_status source_check_names(osh_ctx *cx, osh_verify *v, bool *present)
{
    osh_status rc = OSH_OK;
    osh_map *planned = NULL; // own
    const osh_plan *p = v->plan;
    OSH_TRY(osh_map_new_views(cx, &planned, (size_t)p->manifest.n_out));
    for (int64_t i = 0; i < p->manifest.n_out; i++) {
        const osh_entry *e = &p->manifest.out[i];
        const osh_ckpt_tensor *t = osh_checkpoint_find(v->ck, e->name);
        OSH_TRY(osh_map_put(cx, planned, e->name, strlen(e->name), i));
        if (!t) {
            OSH_TRY(osh_verify_add(cx, v, e->name, "the tensor that the plan has", "is not there"));
            continue;
        }
        bool shape = t->e->ndim == e->ndim &&
                     !memcmp(t->e->shape, e->shape, (size_t)e->ndim * sizeof *e->shape);
        if (!shape)
            OSH_TRY(osh_verify_add(cx, v, e->name, "the shape that source and recipe give",
                                   "has another shape"));
        if (t->e->dtype != e->dtype)
            OSH_TRY(osh_verify_add(cx, v, e->name, osh_dtype_name(e->dtype), "is %s",
                                   osh_dtype_name(t->e->dtype)));
        const char *file = p->manifest.shards[p->manifest.out_info[i].shard].name;
        if (p->manifest.n_shards == v->ck->n_shards && strcmp(file, v->ck->shard_names[t->shard]))
            OSH_TRY(osh_verify_add(cx, v, e->name, file, "is in %s", v->ck->shard_names[t->shard]));
        present[i] = shape && t->e->dtype == e->dtype;
    }
    if (p->manifest.n_shards != v->ck->n_shards) {
        char want[32];
        snprintf(want, sizeof want, "%d", p->manifest.n_shards);
        OSH_TRY(osh_verify_add(cx, v, v->dir, want, "has %d shards", v->ck->n_shards));
    }
    for (int64_t i = 0; i < v->ck->n_tensors; i++) {
        const char *name = osh_checkpoint_name_in_file(v->ck, i);
        if (!osh_map_get(planned, name, strlen(name), &(int64_t){0}))
            OSH_TRY(osh_verify_add(cx, v, name, "only tensors of the source and of the recipe",
                                   "is not planned"));
    }
done:
    osh_map_free(cx, planned);
    return rc;
}

typedef struct source_sums {
    osh_verify *v;
    bool
        /* Own [tensors of the source]: true if the checksum was already compared. Several output
         * tensors may have one source tensor. */
        *listed;
} source_sums;

/* Compares two checksums of a source tensor: the checksum in the manifest, and the checksum of the
 * bytes that were read. Has the type of osh_json_taken.item. */
static osh_status source_check_sum(osh_ctx *cx, void *user, const cJSON *tensor)
{
    const source_sums *s = user;
    const osh_checkpoint *ck = s->v->plan->in.ck;
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(tensor, "source");
    const cJSON *was = cJSON_GetObjectItemCaseSensitive(tensor, "source_xxh3");
    const osh_ckpt_tensor *t =
        cJSON_IsString(name) ? osh_checkpoint_find_copied(ck, name->valuestring) : NULL;
    uint64_t sum;
    char text[24];
    if (!t || s->listed[t - ck->tensors] || !osh_checkpoint_seen(ck, t - ck->tensors, &sum))
        return OSH_OK;
    s->listed[t - ck->tensors] = true;
    snprintf(text, sizeof text, "%016llx", (unsigned long long)sum);
    const char *wanted = cJSON_IsString(was) ? was->valuestring : "a checksum in the manifest";
    if (!strcmp(wanted, text)) return OSH_OK;
    return osh_verify_add(cx, s->v, t->e->name, wanted, "the tensor of the source has checksum %s",
                          text);
}

static osh_status source_check_sums(osh_ctx *cx, osh_verify *v)
{
    osh_status rc = OSH_OK;
    source_sums s = {.v = v};
    OSH_NEW(cx, s.listed, v->plan->in.ck->n_tensors);
    OSH_TRY(osh_verify_each(cx, v, &(osh_json_taken){"tensors", source_check_sum}, &s));
done:
    osh_free(cx, s.listed);
    return rc;
}

/* Reads the factors of fold f from the manifest. Returns false if their number is wrong or if a
 * factor is not positive. */
static bool factors_read(osh_fold *f, const cJSON *text)
{
    if (!cJSON_IsString(text) || strlen(text->valuestring) != (size_t)f->n * 8) return false;
    for (int64_t c = 0; c < f->n; c++) {
        char digits[9] = {0}, *end;
        memcpy(digits, text->valuestring + 8 * c, 8);
        f->s[c] = osh_f32_of_bits((uint32_t)strtoul(digits, &end, 16));
        if (*end || !(f->s[c] > 0 && isfinite(f->s[c]))) return false;
    }
    return true;
}

typedef struct factors {
    const osh_plan *p;
    bool *known; // own [folds]: true if the manifest has valid factors for the fold
    int next; // index of the fold to try first; the manifest has the folds in the order of the plan
} factors;

static osh_status factors_take_fold(osh_ctx *cx, void *user, const cJSON *fold)
{
    factors *f = user;
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(fold, "layer");
    (void)cx;
    for (int k = 0; cJSON_IsString(name) && k < f->p->rewrites.n_folds; k++) {
        int i = (f->next + k) % f->p->rewrites.n_folds;
        osh_fold *at = &f->p->rewrites.folds[i];
        if (f->known[i] || strcmp(name->valuestring, f->p->in.graph->modules[at->module].name))
            continue;
        f->known[i] = factors_read(at, cJSON_GetObjectItemCaseSensitive(fold, "factors"));
        f->next = i + 1;
        break;
    }
    return OSH_OK;
}

/* Takes the factors of all folds from the manifest, so that the weights of the source are read with
 * these factors folded in. The later comparison of the tensors shows if the output has the same
 * factors. Sets *known to true if the manifest has the factors of all folds. */
static osh_status source_take_factors(osh_ctx *cx, osh_verify *v, bool *known)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = v->plan;
    factors f = {.p = p};
    *known = true;
    if (!p->rewrites.n_folds) goto done;
    OSH_NEW(cx, f.known, p->rewrites.n_folds);
    OSH_TRY(osh_verify_each(cx, v, &(osh_json_taken){"folds", factors_take_fold}, &f));
    for (int i = 0; i < p->rewrites.n_folds; i++) {
        if (f.known[i]) {
            OSH_TRY(osh_fold_known(cx, &p->rewrites, i));
            continue;
        }
        *known = false;
        OSH_TRY(osh_verify_add(cx, v, p->in.graph->modules[p->rewrites.folds[i].module].name,
                               "factors of its channels in \"folds\" of the manifest",
                               "has no such factors, or they do not fit"));
    }
done:
    osh_free(cx, f.known);
    return rc;
}

/* If the recipe asks for tuning, marks norms as tuned in the plan, because the values of tuned
 * norms cannot be computed again. */
static osh_status source_take_tuned(osh_ctx *cx, osh_verify *v)
{
    if (!osh_tuning_asked(&v->plan->schedule) || v->plan->rewrites.n_folds ||
        v->plan->rewrites.rotated || !v->plan->in.graph)
        return OSH_OK;
    return v->changed ? osh_tuning_kept(cx, &v->plan->manifest) : OSH_OK;
}

static osh_status source_check_copy(osh_ctx *cx, osh_verify *v, int64_t i)
{
    osh_status rc = OSH_OK;
    bool differs = false,
         tuned = osh_is_tuned(&v->plan->manifest, v->plan->manifest.out_info[i].source);
    // own: bytes of the source, followed by as many bytes of the output
    char *chunk = NULL;
    XXH3_state_t *state = XXH3_createState(); // own
    const osh_plan *p = v->plan;
    const osh_ckpt_tensor *src = &p->in.ck->tensors[p->manifest.out_info[i].source];
    const osh_ckpt_tensor *out = osh_checkpoint_find(v->ck, p->manifest.out[i].name);
    int64_t n_bytes = out->e->end - out->e->begin, half = OSH_EMIT_CHUNK / 2;
    // bytes of the smallest set of elements that can be changed without reading other elements
    int64_t unit = osh_checkpoint_unit(p->in.ck, src - p->in.ck->tensors) *
                   (int64_t)osh_dtype_bytes(src->e->dtype);
    half = unit < half ? half / unit * unit : unit;
    if (half > n_bytes) half = n_bytes;
    if (!(chunk = osh_alloc(cx, (size_t)half * 2)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory to compare tensors");
    if (!state) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a checksum");
    XXH3_64bits_reset(state);
    for (int64_t at = 0; at < n_bytes; at += half) {
        size_t n = (size_t)(n_bytes - at < half ? n_bytes - at : half), k = 0;
        OSH_TRY(osh_checkpoint_read_part(cx, chunk, p->in.ck, src, at, n));
        OSH_TRY(
            osh_container_read_part(cx, chunk + half, v->ck->shards[out->shard], out->e, at, n));
        XXH3_64bits_update(state, chunk, n);
        size_t size = osh_dtype_bytes(src->e->dtype);
        OSH_TRY(osh_checkpoint_apply(cx, p->in.ck, src - p->in.ck->tensors, chunk,
                                     at / (int64_t)size, (int64_t)(n / size)));
        if (tuned && !differs &&
            osh_find_nonfinite(chunk + half, src->e->dtype, (int64_t)(n / size)) >= 0) {
            differs = true;
            OSH_TRY(osh_verify_add(cx, v, p->manifest.out[i].name, "finite numbers",
                                   "has a NaN or an infinity"));
        }
        if (tuned || differs || !memcmp(chunk, chunk + half, n)) continue;
        differs = true;
        while (chunk[k] == chunk[half + (int64_t)k]) k++;
        OSH_TRY(osh_verify_add(cx, v, p->manifest.out[i].name, "the bytes of the source",
                               "differs from byte %lld on", (long long)at + (long long)k));
    }
    v->n_compared += !differs && !tuned;
    OSH_TRY(osh_checkpoint_saw(cx, p->in.ck, src - p->in.ck->tensors, XXH3_64bits_digest(state)));
done:
    osh_free(cx, chunk);
    XXH3_freeState(state);
    return rc;
}

osh_status osh_verify_plan(osh_ctx *cx, osh_verify *v)
{
    osh_status rc = OSH_OK;
    bool *present = NULL; // own
    OSH_TRY(source_make_plan(cx, v));
    if (!v->plan) goto done;
    const osh_plan *p = v->plan;
    OSH_TRY(osh_verify_agree(cx, v, "another source", p->in.ck));
    OSH_NEW(cx, present, p->manifest.n_out);
    OSH_TRY(osh_checkpoint_watch(cx, p->in.ck));
    OSH_TRY(source_check_identity(cx, v));
    OSH_TRY(source_check_config_text(cx, v));
    OSH_TRY(source_check_dropped(cx, v));
    OSH_TRY(source_check_names(cx, v, present));
    bool known = true;
    OSH_TRY(source_take_factors(cx, v, &known));
    OSH_TRY(source_take_tuned(cx, v));
    if (!known) goto done; // no tensor can be compared without the factors
    for (int64_t i = 0; i < p->manifest.n_out; i++) {
        OSH_TRY(osh_check_interrupt(cx));
        if (!present[i] || p->manifest.out_info[i].source < 0) continue;
        if (osh_verify_next(v, p->manifest.out[i].end - p->manifest.out[i].begin))
            OSH_TRY(source_check_copy(cx, v, i));
    }
    for (int l = 0; l < p->match.n_linears; l++) {
        bool all = true;
        OSH_TRY(osh_check_interrupt(cx));
        for (int k = 0; k < p->match.linears[l].out.n; k++)
            all &= present[p->match.linears[l].out.first + k];
        const osh_entry *w = p->in.ck->tensors[p->match.linears[l].tensor].e;
        if (!all || !osh_verify_next(v, w->end - w->begin)) continue;
        rc = osh_verify_cache(cx, v, l);
        if (!rc) rc = osh_verify_linear(cx, v, l);
        OSH_TRY(osh_verify_failed(cx, v, rc, p->match.linears[l].name,
                                  "codes and scales of the source's weight"));
    }
    osh_verify_alone(v);
    OSH_TRY(osh_verify_gather_sums(cx, v));
    if (v->manifest) OSH_TRY(source_check_sums(cx, v));
done:
    osh_free(cx, present);
    return rc;
}
