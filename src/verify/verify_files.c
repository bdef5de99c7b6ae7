/* verify_files.c - checks the tensors, checksums, files and index of an output against its
 * manifest. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "output/emit_impl.h"
#include "verify/verify.h"

static const char *files_text(const cJSON *o, const char *key)
{
    const cJSON *s = cJSON_GetObjectItemCaseSensitive(o, key);
    return cJSON_IsString(s) ? s->valuestring : "";
}

static void files_shape_text(char *to, size_t room, int ndim, const int64_t *shape)
{
    size_t at = (size_t)snprintf(to, room, "[");
    for (int d = 0; d < ndim && at < room; d++)
        at += (size_t)snprintf(to + at, room - at, "%s%lld", d ? ", " : "", (long long)shape[d]);
    if (at < room) snprintf(to + at, room - at, "]");
}

static osh_status files_sum(osh_ctx *cx, uint64_t *sum, const osh_checkpoint *ck,
                            const osh_ckpt_tensor *t, void *chunk)
{
    osh_status rc = OSH_OK;
    XXH3_state_t *state = XXH3_createState(); // own
    if (!state) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a checksum");
    XXH3_64bits_reset(state);
    for (int64_t at = 0; at < t->e->end - t->e->begin; at += OSH_EMIT_CHUNK) {
        int64_t left = t->e->end - t->e->begin - at;
        size_t n = left > OSH_EMIT_CHUNK ? OSH_EMIT_CHUNK : (size_t)left;
        OSH_TRY(osh_container_read_part(cx, chunk, ck->shards[t->shard], t->e, at, n));
        XXH3_64bits_update(state, chunk, n);
    }
    *sum = XXH3_64bits_digest(state);
done:
    XXH3_freeState(state);
    return rc;
}

/* Prints a shape of the manifest in the form of files_shape_text: "[576, 1536]". */
static void files_listed_shape(char *to, size_t room, const cJSON *list)
{
    int64_t shape[OSH_MAX_DIMS];
    int n = 0;
    for (const cJSON *d = cJSON_IsArray(list) ? list->child : NULL; d && n < OSH_MAX_DIMS;
         d = d->next)
        shape[n++] = (int64_t)d->valuedouble;
    files_shape_text(to, room, n, shape);
}

typedef struct tensors {
    osh_verify *v;
    osh_map *listed; // own: names of the tensors that the manifest lists
    void *chunk;     // own
} tensors;

static void files_take_rule(osh_verify *v, const char *rule)
{
    v->quantized |= !strcmp(rule, "quantized");
    v->pruned |= !strcmp(rule, "pruned");
    v->changed |= !strcmp(rule, "changed");
}

/* Checks one tensor that the manifest lists. Has the type of osh_json_taken.item. */
static osh_status files_check_tensor(osh_ctx *cx, void *user, const cJSON *m)
{
    osh_status rc = OSH_OK;
    const tensors *list = user;
    osh_verify *v = list->v;
    const char *name = files_text(m, "name");
    const osh_ckpt_tensor *t = osh_checkpoint_find(v->ck, name);
    char has[160], want[160], sum_text[24];
    uint64_t sum = 0;
    files_take_rule(v, files_text(m, "rule"));
    OSH_TRY(osh_map_put(cx, list->listed, name, strlen(name), 0));
    if (!osh_verify_next(v, t ? t->e->end - t->e->begin : 0)) goto done;
    if (!t) {
        OSH_TRY(osh_verify_add(cx, v, name, "the tensor that the manifest lists", "is not there"));
        goto done;
    }
    if (strcmp(v->ck->shard_names[t->shard], files_text(m, "file")))
        OSH_TRY(osh_verify_add(cx, v, name, files_text(m, "file"), "is in %s",
                               v->ck->shard_names[t->shard]));
    files_shape_text(has, sizeof has, t->e->ndim, t->e->shape);
    files_listed_shape(want, sizeof want, cJSON_GetObjectItemCaseSensitive(m, "shape"));
    if (strcmp(has, want)) OSH_TRY(osh_verify_add(cx, v, name, want, "has shape %s", has));
    if (strcmp(osh_dtype_name(t->e->dtype), files_text(m, "dtype")))
        OSH_TRY(osh_verify_add(cx, v, name, files_text(m, "dtype"), "is %s",
                               osh_dtype_name(t->e->dtype)));
    rc = files_sum(cx, &sum, v->ck, t, list->chunk);
    if (rc) {
        OSH_TRY(osh_verify_failed(cx, v, rc, name, "bytes that can be read"));
        goto done;
    }
    snprintf(sum_text, sizeof sum_text, "%016llx", (unsigned long long)sum);
    if (strcmp(sum_text, files_text(m, "xxh3")))
        OSH_TRY(osh_verify_add(cx, v, name, files_text(m, "xxh3"), "has checksum %s", sum_text));
    else v->n_sums++;
done:
    return rc;
}

static osh_status files_check_tensors(osh_ctx *cx, osh_verify *v)
{
    osh_status rc = OSH_OK;
    tensors list = {.v = v};
    if (!(list.chunk = osh_alloc(cx, OSH_EMIT_CHUNK)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory to read the output");
    OSH_TRY(osh_map_new(cx, &list.listed, (size_t)v->ck->n_tensors));
    OSH_TRY(osh_verify_each(cx, v, &(osh_json_taken){"tensors", files_check_tensor}, &list));
    osh_verify_alone(v);
    for (int64_t i = 0; i < v->ck->n_tensors; i++) {
        const char *name = osh_checkpoint_name_in_file(v->ck, i);
        if (!osh_map_get(list.listed, name, strlen(name), &(int64_t){0}))
            OSH_TRY(osh_verify_add(cx, v, name, "tensors that the manifest lists",
                                   "is not in the manifest"));
    }
done:
    osh_map_free(cx, list.listed);
    osh_free(cx, list.chunk);
    return rc;
}

static osh_status files_check_file(osh_ctx *cx, osh_verify *v, const cJSON *m)
{
    osh_status rc = OSH_OK;
    const char *name = files_text(m, "name");
    char *path = osh_path_join(cx, v->dir, name), text[OSH_SUM_TEXT]; // own: path
    int64_t n = 0;
    if (!path) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    if (!osh_verify_next(v, 0)) goto done;
    if (strchr(name, '/') || !osh_file_exists(path)) {
        OSH_TRY(osh_verify_add(cx, v, name, "the file that the manifest lists", "is not there"));
        goto done;
    }
    OSH_TRY(osh_sum_text_of_file(cx, text, &n, path));
    if (strcmp(text, files_text(m, "xxh3")))
        OSH_TRY(osh_verify_add(cx, v, name, files_text(m, "xxh3"), "has %lld bytes and checksum %s",
                               (long long)n, text));
    else v->n_sums++;
done:
    osh_free(cx, path);
    return rc;
}

/* Checks that the shards are the only files of tensors in the directory, because some tools would
 * load another such file. Also checks total_size of the index. */
static osh_status files_check_shards(osh_ctx *cx, osh_verify *v)
{
    osh_status rc = OSH_OK;
    char **names = NULL, *path = NULL, want[32]; // own
    size_t n = 0;
    cJSON *index = NULL; // own
    int64_t total = 0;
    OSH_TRY(osh_dir_list(cx, &names, &n, v->dir));
    for (size_t i = 0; i < n; i++) {
        bool known = false;
        if (!osh_container_kind_of(names[i])) continue;
        for (int s = 0; s < v->ck->n_shards; s++) known |= !strcmp(names[i], v->ck->shard_names[s]);
        if (!known)
            OSH_TRY(
                osh_verify_add(cx, v, names[i], "only shards of the checkpoint", "is not a shard"));
    }
    if (!(path = osh_path_join(cx, v->dir, osh_container_written()->index)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    if (!osh_file_exists(path)) goto done;
    rc = osh_json_read(cx, &index, path, (size_t)1 << 28, 0);
    OSH_TRY(osh_verify_failed(cx, v, rc, osh_container_written()->index, "an index"));
    for (int64_t i = 0; i < v->ck->n_tensors; i++)
        total += v->ck->tensors[i].e->end - v->ck->tensors[i].e->begin;
    const cJSON *meta = cJSON_GetObjectItemCaseSensitive(index, "metadata");
    const cJSON *size = cJSON_GetObjectItemCaseSensitive(meta, "total_size");
    snprintf(want, sizeof want, "%lld", (long long)total);
    if (index && (!cJSON_IsNumber(size) || (int64_t)size->valuedouble != total))
        OSH_TRY(osh_verify_add(cx, v, osh_container_written()->index, want, "total_size is %.0f",
                               cJSON_IsNumber(size) ? size->valuedouble : -1));
done:
    osh_strings_free(cx, names, n);
    osh_free(cx, path);
    cJSON_Delete(index);
    return rc;
}

osh_status osh_verify_manifest(osh_ctx *cx, osh_verify *v)
{
    osh_status rc = OSH_OK;
    const cJSON *files = cJSON_GetObjectItemCaseSensitive(v->manifest, "files");
    for (const cJSON *m = cJSON_IsArray(files) ? files->child : NULL; m; m = m->next)
        OSH_TRY(files_check_file(cx, v, m));
    if (!v->ck) goto done;
    OSH_TRY(files_check_tensors(cx, v));
    OSH_TRY(files_check_shards(cx, v));
done:
    return rc;
}

static osh_status files_known_add(osh_ctx *cx, osh_map *known, const char *name)
{
    return osh_map_put(cx, known, name, strlen(name), 0);
}

/* Lists the files that an output may have. These are the files of the manifest, the source and the
 * plan, and also the reports and the log of a run. */
static osh_status files_list_known(osh_ctx *cx, osh_map *known, const osh_verify *v)
{
    static const char *const always[] = {OSH_MANIFEST_NAME, OSH_MARK_NAME, "oneshot-report.html",
                                         "oneshot.log"};
    osh_status rc = OSH_OK;
    char **names = NULL; // own
    size_t n = 0;
    const cJSON *files = cJSON_GetObjectItemCaseSensitive(v->manifest, "files");
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        OSH_TRY(files_known_add(cx, known, always[i]));
    for (const cJSON *m = cJSON_IsArray(files) ? files->child : NULL; m; m = m->next)
        OSH_TRY(files_known_add(cx, known, files_text(m, "name")));
    for (int s = 0; v->ck && s < v->ck->n_shards; s++)
        OSH_TRY(files_known_add(cx, known, v->ck->shard_names[s]));
    if (v->opt->model) {
        /* If there is no plan, `closed` takes the place of the source. `closed` has no shards. */
        osh_checkpoint closed = {.dir = v->opt->model};
        OSH_TRY(osh_checkpoint_side_files(cx, &names, &n, v->plan ? v->plan->in.ck : &closed));
    }
    for (size_t i = 0; i < n; i++) OSH_TRY(files_known_add(cx, known, names[i]));
    if (!v->plan) goto done;
    for (int s = 0; s < v->plan->manifest.n_shards; s++)
        OSH_TRY(files_known_add(cx, known, v->plan->manifest.shards[s].name));
    OSH_TRY(files_known_add(cx, known, "config.json"));
    OSH_TRY(files_known_add(cx, known, "recipe.yaml"));
    OSH_TRY(files_known_add(cx, known, OSH_README_NAME));
    if (v->plan->manifest.n_shards > 1)
        OSH_TRY(files_known_add(cx, known, osh_container_written()->index));
done:
    osh_strings_free(cx, names, n);
    return rc;
}

osh_status osh_verify_strangers(osh_ctx *cx, osh_verify *v)
{
    osh_status rc = OSH_OK;
    osh_map *known = NULL; // own
    char **names = NULL;   // own
    size_t n = 0;
    // without manifest and plan it is unknown which files the output may have
    if (!v->manifest && !v->plan) goto done;
    OSH_TRY(osh_map_new(cx, &known, 32));
    OSH_TRY(files_list_known(cx, known, v));
    OSH_TRY(osh_dir_list(cx, &names, &n, v->dir));
    for (size_t i = 0; i < n; i++)
        if (!osh_map_get(known, names[i], strlen(names[i]), &(int64_t){0}) &&
            !osh_container_kind_of(names[i]))
            OSH_TRY(osh_verify_add(cx, v, names[i], "only files of the output",
                                   v->plan ? "is not in the plan and not in the manifest"
                                           : "is not in the manifest"));
done:
    osh_strings_free(cx, names, n);
    osh_map_free(cx, known);
    return rc;
}

osh_status osh_verify_side_files(osh_ctx *cx, osh_verify *v)
{
    osh_status rc = OSH_OK;
    char **names = NULL, *from = NULL, *to = NULL; // own
    size_t n = 0;
    /* If there is no plan, `closed` takes the place of the source. `closed` has no shards. */
    osh_checkpoint closed = {.dir = v->opt->model};
    OSH_TRY(osh_checkpoint_side_files(cx, &names, &n, v->plan ? v->plan->in.ck : &closed));
    for (size_t i = 0; i < n; i++) {
        uint64_t a = 0, b = 0;
        int64_t n_a = 0, n_b = 0;
        if (!osh_verify_next(v, 0)) continue;
        osh_free(cx, from);
        osh_free(cx, to);
        from = osh_path_join(cx, v->opt->model, names[i]), to = osh_path_join(cx, v->dir, names[i]);
        if (!from || !to) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
        if (!osh_file_exists(to)) {
            OSH_TRY(osh_verify_add(cx, v, names[i], "the file of the source", "is not there"));
            continue;
        }
        OSH_TRY(osh_sum_of_file(cx, &a, &n_a, from));
        OSH_TRY(osh_sum_of_file(cx, &b, &n_b, to));
        if (a != b || n_a != n_b)
            OSH_TRY(osh_verify_add(cx, v, names[i], "the source's bytes",
                                   "has %lld bytes, the source's has %lld", (long long)n_b,
                                   (long long)n_a));
    }
    osh_verify_alone(v);
done:
    osh_strings_free(cx, names, n);
    osh_free(cx, from);
    osh_free(cx, to);
    return rc;
}
