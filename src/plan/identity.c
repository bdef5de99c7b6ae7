/* identity.c - the fields that decide the bytes. A shard is known by its size, its header, a few of its bytes and, on
 * this machine, its time: reading all of it would cost as much as the job. */
#include "plan/identity.h"

#include <string.h>
#include <xxhash.h>

#include "base/buf.h"
#include "base/file.h"
#include "ops/isa.h"

enum { SAMPLES = 8, SAMPLE_BYTES = 512, SIDE_FILE_BYTES = 64 << 20 };

typedef unsigned long long ull;

void osh_identity_free(osh_ctx *cx, osh_identity *id)
{
    if (!id) return;
    for (size_t i = 0; i < id->n; i++) osh_free(cx, id->names[i]), osh_free(cx, id->values[i]);
    osh_free(cx, id->names);
    osh_free(cx, id->values);
    osh_free(cx, id->here);
    osh_free(cx, id);
}

/* Takes name and value. */
static osh_status add(osh_ctx *cx, osh_identity *id, char *name, char *value, bool here)
{
    osh_status rc = OSH_OK;
    if (!name || !value) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for what decides the bytes");
    if (id->n == id->cap) {
        size_t cap = id->cap ? 2 * id->cap : 32;
        char **n = osh_realloc(cx, id->names, cap * sizeof *n);
        if (n) id->names = n;
        char **v = osh_realloc(cx, id->values, cap * sizeof *v);
        if (v) id->values = v;
        bool *h = osh_realloc(cx, id->here, cap * sizeof *h);
        if (h) id->here = h;
        if (!n || !v || !h) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for what decides the bytes");
        id->cap = cap;
    }
    id->names[id->n] = name, id->values[id->n] = value, id->here[id->n++] = here;
    return OSH_OK;
done:
    osh_free(cx, name);
    osh_free(cx, value);
    return rc;
}

#define FIELD(name, ...) OSH_TRY(add(cx, id, osh_strdup(cx, name), osh_sprintf(cx, __VA_ARGS__), false))

static osh_status add_shard(osh_ctx *cx, osh_identity *id, const osh_checkpoint *ck, int s)
{
    osh_status rc = OSH_OK;
    osh_file *f = NULL; // own
    char *head = NULL;  // own
    char sample[SAMPLE_BYTES];
    const char *path = osh_st_path(ck->shards[s]);
    int64_t size, mtime, n_head = 8;
    uint64_t sum = 0;
    OSH_TRY(osh_file_stat(cx, &size, &mtime, path));
    OSH_TRY(osh_file_open(cx, &f, path));
    n_head = osh_st_count(ck->shards[s]) ? osh_st_at(ck->shards[s], 0)->begin : size;
    if (!(head = osh_alloc(cx, (size_t)n_head))) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the header of %s", path);
    OSH_TRY(osh_file_pread(cx, f, head, (size_t)n_head, 0));
    for (int i = 0; i < SAMPLES; i++) {
        int64_t at = n_head + (size - n_head) / SAMPLES * i, n = size - at < SAMPLE_BYTES ? size - at : SAMPLE_BYTES;
        OSH_TRY(osh_file_pread(cx, f, sample, (size_t)n, at));
        sum = XXH3_64bits_withSeed(sample, (size_t)n, sum);
    }
    OSH_TRY(add(cx, id, osh_sprintf(cx, "source %s", ck->shard_names[s]),
                osh_sprintf(cx, "%lld bytes, header %016llx, samples %016llx", (long long)size,
                            (ull)XXH3_64bits(head, (size_t)n_head), (ull)sum),
                false));
    OSH_TRY(add(cx, id, osh_sprintf(cx, "time of %s", ck->shard_names[s]), osh_sprintf(cx, "%lld ns", (long long)mtime),
                true));
done:
    osh_free(cx, head);
    osh_file_close(cx, f);
    return rc;
}

/* A file that is carried along: its bytes, or where it is large its size and time. */
static osh_status add_file(osh_ctx *cx, osh_identity *id, const char *kind, const char *dir, const char *name)
{
    osh_status rc = OSH_OK;
    char *path = osh_path_join(cx, dir, name), *text = NULL; // own
    int64_t size, mtime;
    size_t n = 0;
    if (!path) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    OSH_TRY(osh_file_stat(cx, &size, &mtime, path));
    if (size <= SIDE_FILE_BYTES) {
        OSH_TRY(osh_file_read_all(cx, &text, &n, path, 0));
        OSH_TRY(add(cx, id, osh_sprintf(cx, "%s %s", kind, name),
                    osh_sprintf(cx, "%zu bytes, %016llx", n, (ull)XXH3_64bits(text, n)), false));
        goto done;
    }
    OSH_TRY(add(cx, id, osh_sprintf(cx, "%s %s", kind, name), osh_sprintf(cx, "%lld bytes", (long long)size), false));
    OSH_TRY(add(cx, id, osh_sprintf(cx, "time of %s", name), osh_sprintf(cx, "%lld ns", (long long)mtime), true));
done:
    osh_free(cx, path);
    osh_free(cx, text);
    return rc;
}

static osh_status add_source(osh_ctx *cx, osh_identity *id, const osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;
    char **names = NULL; // own
    size_t n = 0;
    FIELD("source config.json", "%zu bytes, %016llx", ck->config->n_text,
          (ull)XXH3_64bits(ck->config->text, ck->config->n_text));
    for (int s = 0; s < ck->n_shards; s++) OSH_TRY(add_shard(cx, id, ck, s));
    OSH_TRY(osh_checkpoint_side_files(cx, &names, &n, ck));
    for (size_t i = 0; i < n; i++) OSH_TRY(add_file(cx, id, "source", ck->dir, names[i]));
done:
    osh_strings_free(cx, names, n);
    return rc;
}

static osh_status add_templates(osh_ctx *cx, osh_identity *id, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    char **names = NULL; // own
    size_t n = 0;
    if (!p->opt->models_dir) goto done;
    OSH_TRY(osh_dir_list(cx, &names, &n, p->opt->models_dir));
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(names[i]);
        if (len > 5 && !strcmp(names[i] + len - 5, ".json"))
            OSH_TRY(add_file(cx, id, "template", p->opt->models_dir, names[i]));
    }
done:
    osh_strings_free(cx, names, n);
    return rc;
}

/* Where the graph is cut, and what it is made of. */
static uint64_t partition_sum(const osh_plan *p)
{
    uint64_t h = 0;
    for (int i = 0; i < p->parts->n; i++) {
        const osh_subgraph *s = &p->parts->parts[i];
        int cut[2] = {s->first, s->n_nodes};
        h = XXH3_64bits_withSeed(cut, sizeof cut, h);
        h = XXH3_64bits_withSeed(s->name, strlen(s->name), h);
    }
    return h;
}

static osh_status add_calibration(osh_ctx *cx, osh_identity *id, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    const osh_dataset *d = &p->data;
    int64_t n_tokens = d->offsets[d->n];
    uint64_t h = XXH3_64bits(d->ids, (size_t)n_tokens * sizeof *d->ids);
    h = XXH3_64bits_withSeed(d->offsets, (size_t)(d->n + 1) * sizeof *d->offsets, h);
    FIELD("data", "%lld samples, %lld tokens, %016llx", (long long)d->n, (long long)n_tokens, (ull)h);
    FIELD("sequential_targets", "%d subgraphs, %016llx", p->parts->n, (ull)partition_sum(p));
    FIELD("propagate_error", "%s", p->propagate_error ? "true" : "false");
done:
    return rc;
}

static osh_status add_output(osh_ctx *cx, osh_identity *id, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    uint64_t h = 0;
    for (int s = 0; s < p->n_shards; s++) h = XXH3_64bits_withSeed(p->shards[s].header, p->shards[s].header_bytes, h);
    FIELD("max_shard_size", "%lld bytes", (long long)p->opt->max_shard_size);
    FIELD("schemes", "%016llx", (ull)XXH3_64bits(p->quantization_json, strlen(p->quantization_json)));
    FIELD("layout", "%d files, %lld bytes, %016llx", p->n_shards, (long long)p->total_bytes, (ull)h);
done:
    return rc;
}

osh_status osh_identity_of_source(osh_ctx *cx, osh_identity **out, const osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;
    osh_identity *id = NULL; // own
    OSH_NEW(cx, id, 1);
    OSH_TRY(add_source(cx, id, ck));
    *out = id, id = NULL; // give
done:
    osh_identity_free(cx, id);
    return rc;
}

osh_status osh_identity_new(osh_ctx *cx, osh_identity **out, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    osh_identity *id = NULL; // own
    char *isa = NULL;        // own
    OSH_NEW(cx, id, 1);
    FIELD("program", "oneshot %s", osh_version());
    OSH_TRY(add_source(cx, id, p->ck));
    FIELD("recipe", "%zu bytes, %016llx", p->recipe->n_text, (ull)XXH3_64bits(p->recipe->text, p->recipe->n_text));
    FIELD("pipeline", "%s", osh_pipeline_name(p->pipeline));
    FIELD("arithmetic", "%s", p->arithmetic == OSH_ARITH_F32 ? "f32" : "reference");
    if (p->pipeline != OSH_PIPELINE_DATAFREE) {
        OSH_TRY(add_templates(cx, id, p));
        OSH_TRY(add_calibration(cx, id, p));
        if (!p->device) { // without products the bytes are the same on all
            OSH_TRY(osh_isa_describe(cx, &isa));
            FIELD("isa", "%s", isa);
        }
    }
    OSH_TRY(add_output(cx, id, p));
    FIELD("back_end", "%s", p->device ? p->device->type->name : "cpu");
    if (p->device) {
        FIELD("device", "%s", p->device->text);
        FIELD("batches", "of %d tokens and more", OSH_DEVICE_BATCH_TOKENS);
    }
    *out = id, id = NULL; // give
done:
    osh_free(cx, isa);
    osh_identity_free(cx, id);
    return rc;
}

osh_status osh_identity_json(osh_ctx *cx, char **out, const osh_identity *id, bool all)
{
    osh_status rc = OSH_OK;
    cJSON *root = cJSON_CreateObject(); // own
    bool ok = root != NULL;
    for (size_t i = 0; ok && i < id->n; i++)
        if (all || !id->here[i]) ok = cJSON_AddStringToObject(root, id->names[i], id->values[i]) != NULL;
    if (!ok) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for what decides the bytes");
    OSH_TRY(osh_json_print(cx, out, root, 0));
done:
    cJSON_Delete(root);
    return rc;
}

static bool has(const osh_identity *id, const char *name)
{
    for (size_t i = 0; i < id->n; i++)
        if (!strcmp(id->names[i], name)) return true;
    return false;
}

osh_status osh_identity_differs(osh_ctx *cx, char **out, const osh_identity *id, const cJSON *was, bool all)
{
    osh_status rc = OSH_OK;
    *out = NULL;
    for (size_t i = 0; i < id->n; i++) {
        if (id->here[i] && !all) continue;
        const cJSON *v = cJSON_GetObjectItemCaseSensitive(was, id->names[i]);
        if (cJSON_IsString(v) && !strcmp(v->valuestring, id->values[i])) continue;
        *out = osh_sprintf(cx, "%s is '%s', was %s%.200s%s", id->names[i], id->values[i], v ? "'" : "",
                           cJSON_IsString(v) ? v->valuestring : "not there", v ? "'" : "");
        if (!*out) rc = OSH_E_NOMEM;
        goto done;
    }
    for (const cJSON *v = was ? was->child : NULL; v; v = v->next) {
        if (has(id, v->string)) continue;
        *out = osh_sprintf(cx, "%s is not there, was '%.200s'", v->string, cJSON_IsString(v) ? v->valuestring : "?");
        if (!*out) rc = OSH_E_NOMEM;
        goto done;
    }
done:
    return rc;
}
