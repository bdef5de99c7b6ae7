/* checkpoint.c - opens a Hugging Face directory and checks that its index agrees with its shards.
 *
 * Like transformers, osh_checkpoint_open reads model.safetensors. If this file does not exist, it
 * reads model.safetensors.index.json. If both exist and it is not clear which of them is the model,
 * opening fails (ckpt_files.c). The index names the shard of each tensor. A tensor that is not in
 * this shard, or not in the index, is an error. */
#include "io/ckpt_files.h"
#include "io/ckpt_other.h"
#include "io/hf_quant.h"
#include "io/safetensors.h"
#include "base/name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_INDEX_BYTES = 256 << 20 };

static int by_string(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* True for a file name without directories. An index must not name files of other directories. */
static bool is_plain_name(const char *s)
{
    return *s && !strchr(s, '/') && strcmp(s, ".") && strcmp(s, "..");
}

/* Sets the shard names of ck to the sorted names in the index's weight_map, without duplicates. */
static osh_status shards_of_index(osh_ctx *cx, osh_checkpoint *ck, const cJSON *weights,
                                  const char *path)
{
    osh_status rc = OSH_OK;
    osh_map *seen = NULL; // own
    int64_t n = 0, at;

    OSH_TRY(osh_map_new(cx, &seen, 64));
    for (const cJSON *w = weights->child; w; w = w->next) {
        if (!cJSON_IsString(w) || !is_plain_name(w->valuestring))
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: %.200s is in '%.200s', wanted a file name without '/'",
                     path, w->string, cJSON_IsString(w) ? w->valuestring : "(not a string)");
        if (osh_map_get(seen, w->valuestring, strlen(w->valuestring), &at)) continue;
        OSH_TRY(osh_map_put(cx, seen, w->valuestring, strlen(w->valuestring), n++));
    }
    if (n == 0) OSH_FAIL(cx, OSH_E_FORMAT, "%s: weight_map names no shard", path);
    OSH_NEW(cx, ck->shard_names, n);
    OSH_NEW(cx, ck->shards, n);
    for (const cJSON *w = weights->child; w; w = w->next) {
        if (!osh_map_get(seen, w->valuestring, strlen(w->valuestring), &at) || at != ck->n_shards)
            continue; // weight_map has named this shard before
        ck->shard_names[ck->n_shards] = osh_strdup(cx, w->valuestring);
        if (!ck->shard_names[ck->n_shards]) {
            rc = OSH_E_NOMEM;
            goto done;
        }
        ck->n_shards++;
    }
    qsort(ck->shard_names, (size_t)ck->n_shards, sizeof *ck->shard_names, by_string);
done:
    osh_map_free(cx, seen);
    return rc;
}

static osh_status only_shard(osh_ctx *cx, osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;

    OSH_NEW(cx, ck->shard_names, 1);
    OSH_NEW(cx, ck->shards, 1);
    ck->shard_names[0] = osh_strdup(cx, OSH_SAFETENSORS_SINGLE);
    if (!ck->shard_names[0])
        rc = OSH_E_NOMEM;
    else
        ck->n_shards = 1;
done:
    return rc;
}

static osh_status open_shards(osh_ctx *cx, osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;
    char *path = NULL; // own

    for (int i = 0; i < ck->n_shards; i++) {
        OSH_TRY(osh_check_interrupt(cx));
        osh_free(cx, path);
        path = osh_path_join(cx, ck->dir, ck->shard_names[i]);
        if (!path) {
            rc = OSH_E_NOMEM;
            goto done;
        }
        rc = osh_container_open(cx, &ck->shards[i], path);
        if (rc && ck->n_shards > 1)
            osh_note(cx, "opening shard %d of %d named by %s", i + 1, ck->n_shards,
                     OSH_SAFETENSORS_INDEX);
        if (rc) goto done;
        ck->n_tensors += osh_container_count(ck->shards[i]);
    }
done:
    osh_free(cx, path);
    return rc;
}

static osh_status shards_list_tensors(osh_ctx *cx, osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;
    int64_t k = 0, other;

    OSH_NEW(cx, ck->tensors, ck->n_tensors);
    OSH_TRY(osh_map_new_views(cx, &ck->by_name, (size_t)ck->n_tensors));
    for (int s = 0; s < ck->n_shards; s++)
        for (int64_t i = 0; i < osh_container_count(ck->shards[s]); i++) {
            const osh_entry *e = osh_container_at(ck->shards[s], i);
            if (osh_map_get(ck->by_name, e->name, strlen(e->name), &other))
                OSH_FAIL(cx, OSH_E_FORMAT, "%s: %.200s occurs twice, in %s and in %s", ck->dir,
                         e->name, ck->shard_names[ck->tensors[other].shard], ck->shard_names[s]);
            OSH_TRY(osh_map_put(cx, ck->by_name, e->name, strlen(e->name), k));
            ck->tensors[k++] = (osh_ckpt_tensor){e, s};
        }
done:
    return rc;
}

/* Checks the index: every tensor must be in the shard that the index names, and every tensor of the
 * shards must be in the index. */
static osh_status check_index(osh_ctx *cx, const osh_checkpoint *ck, const cJSON *weights,
                              const char *path)
{
    osh_status rc = OSH_OK;
    osh_map *listed = NULL; // own

    OSH_TRY(osh_map_new_views(cx, &listed, (size_t)ck->n_tensors));
    for (const cJSON *w = weights->child; w; w = w->next) {
        const osh_ckpt_tensor *t = osh_checkpoint_find(ck, w->string);
        if (!t)
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: %.200s is not in its shard %.200s or in another shard",
                     path, w->string, w->valuestring);
        if (strcmp(ck->shard_names[t->shard], w->valuestring))
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: %.200s is not in its shard %.200s but in %s", path,
                     w->string, w->valuestring, ck->shard_names[t->shard]);
        OSH_TRY(osh_map_put(cx, listed, w->string, strlen(w->string), 0));
    }
    for (int64_t i = 0; i < ck->n_tensors; i++) {
        const char *name = ck->tensors[i].e->name;
        int64_t unused;
        if (!osh_map_get(listed, name, strlen(name), &unused))
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: does not list %.200s, which %s holds", path, name,
                     ck->shard_names[ck->tensors[i].shard]);
    }
done:
    osh_map_free(cx, listed);
    return rc;
}

/* Frees the names of shards; no shard may be open. */
static void shards_forget(osh_ctx *cx, osh_checkpoint *ck)
{
    for (int i = 0; i < ck->n_shards; i++) osh_free(cx, ck->shard_names[i]);
    osh_free(cx, ck->shard_names);
    osh_free(cx, ck->shards);
    ck->shard_names = NULL, ck->shards = NULL, ck->n_shards = 0;
}

static osh_status open_single(osh_ctx *cx, osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;
    OSH_TRY(only_shard(cx, ck));
    OSH_TRY(open_shards(cx, ck));
    OSH_TRY(shards_list_tensors(cx, ck));
done:
    return rc;
}

static osh_status open_indexed(osh_ctx *cx, osh_checkpoint *ck, const char *path, bool has_single)
{
    osh_status rc = OSH_OK;
    cJSON *index = NULL; // own
    const cJSON *weights;
    bool single = false;

    OSH_TRY(osh_json_read(cx, &index, path, MAX_INDEX_BYTES, 0));
    weights = cJSON_IsObject(index) ? cJSON_GetObjectItemCaseSensitive(index, "weight_map") : NULL;
    if (!cJSON_IsObject(weights))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: has no weight_map, wanted tensor names with their shards",
                 path);
    OSH_TRY(shards_of_index(cx, ck, weights, path));
    if (has_single) OSH_TRY(osh_ckpt_files_choose(cx, &single, ck));
    if (single) {
        shards_forget(cx, ck);
        OSH_TRY(open_single(cx, ck));
        goto done;
    }
    OSH_TRY(open_shards(cx, ck));
    OSH_TRY(shards_list_tensors(cx, ck));
    OSH_TRY(check_index(cx, ck, weights, path));
done:
    cJSON_Delete(index);
    return rc;
}

osh_status osh_checkpoint_open(osh_ctx *cx, osh_checkpoint **out, const char *dir)
{
    osh_status rc = OSH_OK;
    osh_checkpoint *ck = NULL;          // own
    char *single = NULL, *index = NULL, *config = NULL; // own: paths

    OSH_NEW(cx, ck, 1);
    if (!osh_dir_exists(dir)) OSH_TRY(osh_ckpt_refuse_other(cx, dir, ""));
    ck->dir = osh_strdup(cx, dir);
    single = osh_path_join(cx, dir, OSH_SAFETENSORS_SINGLE);
    index = osh_path_join(cx, dir, OSH_SAFETENSORS_INDEX);
    if (!ck->dir || !single || !index) {
        rc = OSH_E_NOMEM;
        goto done;
    }
    bool has_single = osh_file_exists(single);
    if (!(config = osh_path_join(cx, dir, "config.json"))) OSH_TRY(OSH_E_NOMEM);
    if (!osh_file_exists(config)) OSH_TRY(osh_ckpt_refuse_other(cx, dir, "has no config.json"));
    OSH_TRY(osh_hf_config_open(cx, &ck->config, dir));
    if (osh_file_exists(index)) OSH_TRY(open_indexed(cx, ck, index, has_single));
    else if (has_single) OSH_TRY(open_single(cx, ck));
    else
        OSH_TRY(osh_ckpt_refuse_other(
            cx, dir, "has no model.safetensors and no model.safetensors.index.json"));
    OSH_TRY(osh_ckpt_files_leave(cx, ck));
    OSH_TRY(osh_checkpoint_part_experts(cx, ck));
    *out = ck, ck = NULL; // give
done:
    osh_free(cx, index);
    osh_free(cx, single);
    osh_free(cx, config);
    osh_checkpoint_close(cx, ck);
    return rc;
}

void osh_checkpoint_close(osh_ctx *cx, osh_checkpoint *ck)
{
    if (!ck) return;
    osh_checkpoint_free_virtuals(cx, ck);
    osh_checkpoint_free_parts(cx, ck);
    osh_checkpoint_free_changes(cx, ck);
    osh_checkpoint_unwatch(cx, ck);
    for (int i = 0; i < ck->n_shards; i++) {
        osh_container_close(cx, ck->shards[i]);
        osh_free(cx, ck->shard_names[i]);
    }
    osh_free(cx, ck->shards);
    osh_free(cx, ck->shard_names);
    osh_strings_free(cx, ck->aside, ck->n_aside);
    osh_free(cx, ck->tensors);
    osh_map_free(cx, ck->by_name);
    osh_hf_config_close(cx, ck->config);
    osh_free(cx, ck->adapter);
    osh_free(cx, ck->dir);
    osh_free(cx, ck);
}

int64_t osh_checkpoint_stored_bytes(const osh_checkpoint *ck)
{
    int64_t sum = 0;
    for (int s = 0; s < ck->n_shards; s++)
        for (int64_t i = 0; i < osh_container_count(ck->shards[s]); i++)
            sum +=
                osh_container_at(ck->shards[s], i)->end - osh_container_at(ck->shards[s], i)->begin;
    return sum;
}

/* True for files that are not copied to the output: weights in any format, indexes of weights, and
 * files that this program writes. */
static bool is_replaced(const char *name)
{
    static const char *const tails[] = {".safetensors", ".bin",  ".pt",        ".pth",
                                        ".gguf",        ".onnx", ".h5",        ".msgpack",
                                        ".ot",          ".ckpt", ".index.json"};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++)
        if (osh_ends_with(name, strlen(name), tails[i])) return true;
    return !strcmp(name, "config.json") || osh_hf_quant_is_file(name) ||
           !strcmp(name, "recipe.yaml") || !strcmp(name, OSH_README_NAME) ||
           !strcmp(name, "oneshot.log") ||
           /* Excludes the reports of this program, because the source may be an output of this
            * program. */
           !strncmp(name, "oneshot-", 8);
}

static bool shards_have(const osh_checkpoint *ck, const char *name)
{
    for (int s = 0; s < ck->n_shards; s++)
        if (!strcmp(ck->shard_names[s], name)) return true;
    return false;
}

osh_status osh_checkpoint_side_files(osh_ctx *cx, char ***names, size_t *n,
                                     const osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;
    char **all = NULL, *path = NULL; // own
    size_t n_all = 0, kept = 0;

    OSH_TRY(osh_dir_list(cx, &all, &n_all, ck->dir));
    for (size_t i = 0; i < n_all; i++) {
        struct stat st;
        // shards are found by their whole names, because the names may have any ending
        bool keep = !is_replaced(all[i]) && !shards_have(ck, all[i]);
        if (keep) {
            osh_free(cx, path);
            path = osh_path_join(cx, ck->dir, all[i]);
            if (!path) {
                rc = OSH_E_NOMEM;
                goto done;
            }
            if (stat(path, &st))
                OSH_FAIL(cx, OSH_E_IO, "%s: is a broken link, or cannot be read", path);
            keep = S_ISREG(st.st_mode);
        }
        if (keep) {
            // moves the name to the front; names of files that are not copied move to the end
            char *swap = all[kept];
            all[kept++] = all[i];
            all[i] = swap;
        }
    }
    for (size_t i = kept; i < n_all; i++) osh_free(cx, all[i]);
    n_all = kept;
    *n = n_all;
    *names = all, all = NULL; // give
done:
    osh_free(cx, path);
    osh_strings_free(cx, all, n_all);
    return rc;
}
